"""One family of exceptions, each with the error code that Kafka would answer.

The codes are those of ``clients/.../common/protocol/Errors.java``. Every exception that kraft
raises for bad input or a rejected operation derives from :class:`KraftError`; any other exception
is a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Self

# The error codes of the RPCs of a quorum, its controller and brokers (``Errors.java``).
UNKNOWN_SERVER_ERROR = -1
NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_FETCH_SIZE = 4
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
BROKER_NOT_AVAILABLE = 8
REPLICA_NOT_AVAILABLE = 9
MESSAGE_TOO_LARGE = 10
OFFSET_METADATA_TOO_LARGE = 12
NETWORK_EXCEPTION = 13
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC_EXCEPTION = 17
RECORD_LIST_TOO_LARGE = 18
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
INVALID_REQUIRED_ACKS = 21
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
INVALID_TIMESTAMP = 32
UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
NOT_CONTROLLER = 41
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
SECURITY_DISABLED = 54
OPERATION_NOT_ATTEMPTED = 55
KAFKA_STORAGE_ERROR = 56
LOG_DIR_NOT_FOUND = 57
SASL_AUTHENTICATION_FAILED = 58
REASSIGNMENT_IN_PROGRESS = 60
DELEGATION_TOKEN_AUTH_DISABLED = 61
DELEGATION_TOKEN_NOT_FOUND = 62
DELEGATION_TOKEN_OWNER_MISMATCH = 63
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
DELEGATION_TOKEN_EXPIRED = 66
INVALID_PRINCIPAL_TYPE = 67
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
LISTENER_NOT_FOUND = 72
TOPIC_DELETION_DISABLED = 73
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNSUPPORTED_COMPRESSION_TYPE = 76
STALE_BROKER_EPOCH = 77
OFFSET_NOT_AVAILABLE = 78
MEMBER_ID_REQUIRED = 79
PREFERRED_LEADER_NOT_AVAILABLE = 80
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
ELECTION_NOT_NEEDED = 84
NO_REASSIGNMENT_IN_PROGRESS = 85
GROUP_SUBSCRIBED_TO_TOPIC = 86
INVALID_RECORD = 87
THROTTLING_QUOTA_EXCEEDED = 89
RESOURCE_NOT_FOUND = 91
DUPLICATE_RESOURCE = 92
UNACCEPTABLE_CREDENTIAL = 93
INVALID_UPDATE_VERSION = 95
FEATURE_UPDATE_FAILED = 96
PRINCIPAL_DESERIALIZATION_FAILURE = 97
SNAPSHOT_NOT_FOUND = 98
POSITION_OUT_OF_RANGE = 99
UNKNOWN_TOPIC_ID = 100
DUPLICATE_BROKER_REGISTRATION = 101
BROKER_ID_NOT_REGISTERED = 102
INCONSISTENT_CLUSTER_ID = 104
FETCH_SESSION_TOPIC_ID_ERROR = 106
INELIGIBLE_REPLICA = 107
NEW_LEADER_ELECTED = 108
MISMATCHED_ENDPOINT_TYPE = 114
UNSUPPORTED_ENDPOINT_TYPE = 115
INVALID_VOTER_KEY = 125
DUPLICATE_VOTER = 126
VOTER_NOT_FOUND = 127
REBOOTSTRAP_REQUIRED = 129

_CODE_NAMES: dict[int, str] = {
    code: name for name, code in list(vars().items()) if name.isupper() and isinstance(code, int)
}


def error_name(code: int) -> str:
    """Return Kafka's name of an error code of those RPCs, else ``error <code>``."""
    return _CODE_NAMES.get(code, f"error {code}")


class KraftError(Exception):
    """The base class of all errors; ``kafka_code`` is the error code for a response."""

    kafka_code: int = UNKNOWN_SERVER_ERROR

    def as_result(self) -> Self:
        """Return this error without its traceback and context.

        An error that a response keeps would otherwise keep the frames of its traceback, and these
        frames the response: a cycle that only the garbage collector frees.
        """
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self


class UnknownServerError(KraftError):
    """An unexpected failure; the message describes it."""

    kafka_code = UNKNOWN_SERVER_ERROR


class CorruptRecordError(KraftError):
    """Malformed bytes, or bytes that do not match their checksum.

    ``path`` is the file (None for bytes in memory), ``offset`` the log offset (-1: unknown) and
    ``position`` the byte position in the file or buffer (-1: unknown).
    """

    kafka_code = 2

    def __init__(
        self,
        reason: str,
        *,
        path: str | PathLike[str] | None = None,
        offset: int = -1,
        position: int = -1,
    ) -> None:
        self.reason = reason
        self.path = path
        self.offset = offset
        self.position = position
        self.advice = ""
        super().__init__(reason)

    def at(
        self, *, path: str | PathLike[str] | None = None, offset: int = -1, position: int = 0
    ) -> CorruptRecordError:
        """Fill in the unknown ``path`` and ``offset``, add ``position``; return this error."""
        if self.path is None:
            self.path = path
        if self.offset < 0:
            self.offset = offset
        self.position = position + max(self.position, 0)
        return self

    def add_advice(self, advice: str) -> Self:
        """Append ``advice``, what the user can do, to the message; return this error."""
        self.advice = advice
        return self

    def __str__(self) -> str:
        where = []
        if self.path is not None:
            where.append(f"file {self.path}")
        if self.offset >= 0:
            where.append(f"offset {self.offset}")
        if self.position >= 0:
            where.append(f"byte {self.position}")
        message = f"{self.reason} ({', '.join(where)})" if where else self.reason
        return f"{message}. {self.advice}" if self.advice else message


class BudgetExceededError(CorruptRecordError):
    """A count or length is larger than the bytes that are left, or than the caller's budget."""


class DamagedLogError(CorruptRecordError):
    """Damage before valid batches: truncating the log there would lose committed records."""


class OffsetOutOfRangeError(KraftError):
    """The offset is outside of the log, whose range the message names."""

    kafka_code = 1


class UnknownTopicOrPartitionError(KraftError):
    kafka_code = UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicNameError(UnknownTopicOrPartitionError, KeyError):
    """No topic has this name. Also a KeyError, because a mapping raises it."""

    # KeyError shows the repr of its argument.
    __str__ = KraftError.__str__


class RequestTimedOutError(KraftError):
    """The operation waited too long for its turn, or its metadata transaction took too long."""

    kafka_code = REQUEST_TIMED_OUT


class RecordTooLargeError(KraftError):
    """A record, or a list of records that must stay in one batch, exceeds the largest batch."""

    kafka_code = MESSAGE_TOO_LARGE


class RejectedBatchError(KraftError):
    """A produced batch breaks a rule; ``kafka_code`` says which.

    ``record_errors`` holds (index in the batch, message) of the records that cause it, ascending;
    it is empty where the batch itself does.
    """

    def __init__(
        self, message: str, kafka_code: int, record_errors: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(message)
        self.kafka_code = kafka_code
        self.record_errors = record_errors


class UnsupportedVersionError(KraftError):
    """An unknown record type, record version, frame version or feature level."""

    kafka_code = UNSUPPORTED_VERSION


class UnforwardableRequestError(UnsupportedVersionError):
    """The active controller does not support the version of a request that a broker forwards.

    The broker closes the client's connection: the client then asks for the versions again.
    """


class InvalidTopicError(KraftError):
    """The topic name is not allowed, or differs from another one only in ``.`` and ``_``."""

    kafka_code = 17


class TopicAuthorizationError(KraftError):
    """The principal may not do this to the topic, or may not see the topic."""

    kafka_code = 29


class TopicAlreadyExistsError(KraftError):
    kafka_code = 36


class InvalidPartitionsError(KraftError):
    kafka_code = 37


class InvalidReplicationFactorError(KraftError):
    kafka_code = 38


class InvalidReplicaAssignmentError(KraftError):
    kafka_code = 39


class InvalidConfigError(KraftError):
    kafka_code = 40


class NotControllerError(KraftError):
    """The caller has newer metadata than this controller: another controller is the leader."""

    kafka_code = NOT_CONTROLLER


class InvalidRequestError(KraftError):
    kafka_code = INVALID_REQUEST


class InvalidArgumentError(InvalidRequestError, TypeError, ValueError):
    """An argument of the library has the wrong type or is out of range; the message names it."""


class PolicyViolationError(KraftError):
    """The operation would write more records than allowed."""

    kafka_code = 44


class OutOfOrderSequenceError(KraftError):
    """A batch of an idempotent producer does not follow its last batch in the partition."""

    kafka_code = OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(KraftError):
    """A newer instance of the producer has written to the partition."""

    kafka_code = INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(KraftError):
    """A producer writes outside of its open transaction."""

    kafka_code = INVALID_TXN_STATE


class UnsupportedSaslMechanismError(KraftError):
    """An unknown SCRAM mechanism."""

    kafka_code = 33


class GroupAuthorizationError(KraftError):
    """The principal may not do this to the group."""

    kafka_code = 30


class ClusterAuthorizationError(KraftError):
    """The principal may not do this to the cluster."""

    kafka_code = CLUSTER_AUTHORIZATION_FAILED


class IllegalSaslStateError(KraftError):
    """A request that the SASL exchange of the connection does not allow now."""

    kafka_code = 34


class SaslAuthenticationError(KraftError):
    """The peer did not prove who it is; the message holds nothing that the peer may not know."""

    kafka_code = 58


class AuthorizerNotReadyError(KraftError):
    """The ACLs are not loaded yet; only super users pass. The caller retries."""


class SecurityDisabledError(KraftError):
    """The request is about ACLs, but no authorizer is configured."""

    kafka_code = 54


class DelegationTokenAuthDisabledError(KraftError):
    """No secret key for delegation tokens is configured."""

    kafka_code = 61


class DelegationTokenNotFoundError(KraftError):
    kafka_code = 62


class DelegationTokenAuthorizationError(KraftError):
    """The principal may not create tokens for another owner."""

    kafka_code = 65


class DelegationTokenOwnerMismatchError(KraftError):
    """The principal is neither the token's owner nor one of its renewers."""

    kafka_code = 63


class DelegationTokenRequestNotAllowedError(KraftError):
    """The connection is not authenticated, or only by a token: neither may create tokens."""

    kafka_code = 64


class DelegationTokenExpiredError(KraftError):
    kafka_code = 66


class InvalidPrincipalTypeError(KraftError):
    """A renewer's principal type is not ``User``."""

    kafka_code = 67


class ResourceNotFoundError(KraftError):
    kafka_code = 91


class UnknownKeyError(ResourceNotFoundError, KeyError):
    """A mapping of the state lacks the key. Also a KeyError, because a mapping raises it."""

    __str__ = KraftError.__str__


class DuplicateResourceError(KraftError):
    """A request names the same resource twice."""

    kafka_code = 92


class UnacceptableCredentialError(KraftError):
    """A credential has no user, or too few or too many iterations."""

    kafka_code = 93


class FencedLeaderEpochError(KraftError):
    kafka_code = FENCED_LEADER_EPOCH


class UnsupportedCompressionTypeError(KraftError):
    """A batch is compressed with a codec that is not installed (the extra ``codecs``)."""

    kafka_code = 76


class StaleBrokerEpochError(KraftError):
    kafka_code = 77


class TopicDeletionDisabledError(KraftError):
    """delete.topic.enable is false."""

    kafka_code = 73


class PreferredLeaderNotAvailableError(KraftError):
    kafka_code = 80


class EligibleLeadersNotAvailableError(KraftError):
    kafka_code = 83


class ElectionNotNeededError(KraftError):
    kafka_code = 84


class NoReassignmentInProgressError(KraftError):
    kafka_code = 85


class ThrottlingQuotaExceededError(KraftError):
    """Too much is waiting for the disk, or a quota is exhausted: the caller retries later."""

    kafka_code = THROTTLING_QUOTA_EXCEEDED


class InvalidUpdateVersionError(KraftError):
    kafka_code = INVALID_UPDATE_VERSION


class UnknownTopicIdError(KraftError):
    kafka_code = 100


class DuplicateBrokerRegistrationError(KraftError):
    kafka_code = 101


class BrokerIdNotRegisteredError(KraftError):
    kafka_code = 102


class ControllerIdNotRegisteredError(KraftError):
    """No controller of this id is registered (KIP-1312)."""

    kafka_code = 136


class InconsistentClusterIdError(KraftError):
    """A node sent the cluster id of another cluster."""

    kafka_code = INCONSISTENT_CLUSTER_ID


class InvalidRecordError(KraftError, ValueError):
    """An object cannot be encoded as a record: a field has a wrong type or is out of range."""

    kafka_code = 87


class IneligibleReplicaError(KraftError):
    """A leader proposes a replica for its ISR whose broker is not active."""

    kafka_code = INELIGIBLE_REPLICA


class NewLeaderElectedError(KraftError):
    """The leader's new ISR completed a reassignment, which moved the leadership away."""

    kafka_code = NEW_LEADER_ELECTED


class InvalidRegistrationError(KraftError):
    """A broker registers directories that are reserved or belong to another broker."""

    kafka_code = 119


class ProducerIdsExhaustedError(KraftError):
    """Every producer id up to 2**63 - 1 was allocated."""


class ReplayError(KraftError):
    """A record contradicts the state that it is applied to; Kafka's nodes stop there too."""


class StorageError(KraftError):
    """A file operation failed; the message names the file and the operation."""

    kafka_code = 56


class MissingFileError(StorageError, FileNotFoundError):
    """No file exists at the path. Also a FileNotFoundError, because ``open`` raises it."""


class MissingJavaError(KraftError):
    """No suitable Java is installed; the message names what was found and how to install one."""


class MissingPackageError(KraftError):
    """An optional package is not installed; the message says how to install it."""


class SparkError(KraftError):
    """Spark did not start, or failed; the message holds Spark's own message."""


class BenchmarkFileError(KraftError):
    """The file is not a pytest-benchmark result, or is damaged; the message names it."""


class FleetRunError(KraftError):
    """A file of a fleet's run is missing or damaged; the message names the file and the line."""


class ZooKeeperError(KraftError):
    """ZooKeeper did not start, does not answer, or refused an operation; the message says why."""


class CorruptZnodeError(ZooKeeperError):
    """A znode does not contain what Kafka writes there; the message names its path."""
