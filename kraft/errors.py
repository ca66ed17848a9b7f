"""One family of exceptions, each tied to the error code that Kafka would answer with.

Owns the mapping exception -> code (``clients/.../common/protocol/Errors.java``). Everything that
kraft raises on bad input or a refused operation derives from :class:`KraftError`; anything else
that escapes is a bug.
"""

from __future__ import annotations

from os import PathLike
from typing import Self


class KraftError(Exception):
    """The root of the family; ``kafka_code`` is what a response would carry."""

    kafka_code: int = -1


class UnknownServerError(KraftError):
    """Something failed that should not; the message says what."""

    kafka_code = -1


class CorruptRecordError(KraftError):
    """Bytes that are not what they claim to be.

    Carries where: ``path`` (None for bytes in memory), ``offset`` (the log offset, -1 where
    unknown) and ``position`` (the byte position in the file or buffer, -1 where unknown).
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
        """The same error, told where its bytes lie: fills what is unknown, adds ``position``."""
        if self.path is None:
            self.path = path
        if self.offset < 0:
            self.offset = offset
        self.position = position + max(self.position, 0)
        return self

    def add_advice(self, advice: str) -> Self:
        """The same error, with what to do about it at the end of its message."""
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
        said = f"{self.reason} ({', '.join(where)})" if where else self.reason
        return f"{said}. {self.advice}" if self.advice else said


class BudgetExceededError(CorruptRecordError):
    """A claimed count or length is larger than the bytes left, or than the caller's budget."""


class DamagedLogError(CorruptRecordError):
    """Damage that valid batches follow: cutting it off would lose committed records."""


class OffsetOutOfRangeError(KraftError):
    """The offset is not there (any more); the message names the range that is."""

    kafka_code = 1


class UnknownTopicOrPartitionError(KraftError):
    kafka_code = 3


class UnknownTopicNameError(UnknownTopicOrPartitionError, KeyError):
    """No topic has the name; a KeyError too, as a mapping raises."""

    # KeyError shows the repr of its argument.
    __str__ = KraftError.__str__


class RequestTimedOutError(KraftError):
    """It was given up: waiting for its turn, or as a metadata transaction took too long."""

    kafka_code = 7


class RecordTooLargeError(KraftError):
    """A record, or a list of records that must stay together, is larger than a batch may be."""

    kafka_code = 10


class UnsupportedVersionError(KraftError):
    """A record type, record version, frame version or feature level that this package does not
    know.
    """

    kafka_code = 35


class InvalidTopicError(KraftError):
    """A topic's name is not allowed, or too like that of another."""

    kafka_code = 17


class TopicAuthorizationError(KraftError):
    """Whoever asks may not do this to the topic, or may not know of it."""

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
    """The caller has seen metadata that this controller has not: another one leads."""

    kafka_code = 41


class InvalidRequestError(KraftError):
    kafka_code = 42


class InvalidArgumentError(InvalidRequestError, TypeError, ValueError):
    """An argument of the library has the wrong type or is out of range; the message names it."""


class PolicyViolationError(KraftError):
    """More records than one operation may write."""

    kafka_code = 44


class UnsupportedSaslMechanismError(KraftError):
    """A SCRAM mechanism that there is not."""

    kafka_code = 33


class SecurityDisabledError(KraftError):
    """ACLs are asked for, and no authorizer is configured that would heed them."""

    kafka_code = 54


class DelegationTokenAuthDisabledError(KraftError):
    """No secret key for delegation tokens is configured."""

    kafka_code = 61


class DelegationTokenNotFoundError(KraftError):
    kafka_code = 62


class DelegationTokenOwnerMismatchError(KraftError):
    """Only its owner and its renewers may renew or expire a token."""

    kafka_code = 63


class DelegationTokenRequestNotAllowedError(KraftError):
    """Tokens are handed out over connections that prove who asks, and not for a token."""

    kafka_code = 64


class DelegationTokenExpiredError(KraftError):
    kafka_code = 66


class InvalidPrincipalTypeError(KraftError):
    """A renewer that is no ``User``."""

    kafka_code = 67


class ResourceNotFoundError(KraftError):
    kafka_code = 91


class UnknownKeyError(ResourceNotFoundError, KeyError):
    """A mapping of the state has no such key; a KeyError too, as a mapping raises."""

    __str__ = KraftError.__str__


class DuplicateResourceError(KraftError):
    """One request names the same thing twice."""

    kafka_code = 92


class UnacceptableCredentialError(KraftError):
    """A credential without a user, or with too few or too many iterations."""

    kafka_code = 93


class FencedLeaderEpochError(KraftError):
    kafka_code = 74


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
    """More is waiting for the disk than may wait: ask again a little later."""

    kafka_code = 89


class InvalidUpdateVersionError(KraftError):
    kafka_code = 95


class UnknownTopicIdError(KraftError):
    kafka_code = 100


class DuplicateBrokerRegistrationError(KraftError):
    kafka_code = 101


class BrokerIdNotRegisteredError(KraftError):
    kafka_code = 102


class InconsistentClusterIdError(KraftError):
    """A node means another cluster than the one that it asks."""

    kafka_code = 104


class InvalidRecordError(KraftError, ValueError):
    """An object that cannot be written as a record: a field's type is wrong, or its range."""

    kafka_code = 87


class IneligibleReplicaError(KraftError):
    """A leader names a replica for its ISR whose broker is not alive."""

    kafka_code = 107


class NewLeaderElectedError(KraftError):
    """The leader's ISR took effect and ended a reassignment that takes the leadership away."""

    kafka_code = 108


class InvalidRegistrationError(KraftError):
    """A broker registers with what cannot be: directories that are reserved, or another's."""

    kafka_code = 119


class ProducerIdsExhaustedError(KraftError):
    """Every producer id that a signed 64-bit number can say has been given out."""


class ReplayError(KraftError):
    """A record that contradicts the state it is applied to; Kafka's nodes stop on these too."""


class StorageError(KraftError):
    """The disk refused: the message names the file and what was tried."""

    kafka_code = 56


class MissingFileError(StorageError, FileNotFoundError):
    """Nothing lies at the path; a FileNotFoundError too, as ``open`` raises."""


class MissingJavaError(KraftError):
    """Spark needs a Java that is not here; the message says what was found and how to get one."""


class MissingPackageError(KraftError):
    """An optional package that is asked for is not installed; the message says how to get it."""


class SparkError(KraftError):
    """Spark did not start, or gave up; the message holds what it said."""


class BenchmarkFileError(KraftError):
    """A file that is no pytest-benchmark result, or a damaged one; the message names it."""
