"""The error codes of group requests, and how errors of the log become errors of a response."""

from __future__ import annotations

from kraft.errors import (
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NETWORK_EXCEPTION,
    NOT_LEADER_OR_FOLLOWER,
    RECORD_LIST_TOO_LARGE,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
)

# ``Errors.java``, as far as ``kraft.errors`` does not have them.
INVALID_FETCH_SIZE = 4
OFFSET_METADATA_TOO_LARGE = 12
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
NOT_ENOUGH_REPLICAS = 19
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86
UNSTABLE_OFFSET_COMMIT = 88


class GroupError(KraftError):
    """A group request was rejected; ``kafka_code`` is the code of its response."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.kafka_code = code


#: Codes of a failed append -> the code of the response. The log's own codes would make clients look
#: at the topics of their request instead of looking for the coordinator.
_OF_APPEND = {
    NETWORK_EXCEPTION: COORDINATOR_LOAD_IN_PROGRESS,
    UNKNOWN_TOPIC_OR_PARTITION: COORDINATOR_NOT_AVAILABLE,
    NOT_ENOUGH_REPLICAS: COORDINATOR_NOT_AVAILABLE,
    REQUEST_TIMED_OUT: COORDINATOR_NOT_AVAILABLE,
    NOT_LEADER_OR_FOLLOWER: NOT_COORDINATOR,
    KAFKA_STORAGE_ERROR: NOT_COORDINATOR,
    MESSAGE_TOO_LARGE: UNKNOWN_SERVER_ERROR,
    RECORD_LIST_TOO_LARGE: UNKNOWN_SERVER_ERROR,
    INVALID_FETCH_SIZE: UNKNOWN_SERVER_ERROR,
}
#: An OffsetFetch gets NOT_COORDINATOR instead: consumers before 3.9 do not retry the other code.
_OF_FETCH = {UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT}


def response_code(code: int) -> int:
    """Return the code of a response whose records could not be appended or committed.

    Source: ``CoordinatorOperationExceptionHelper.handleOperationException`` and
    ``GroupMetadataManager.appendGroupMetadataErrorToResponseError``.
    """
    return _OF_APPEND.get(code, code)


def fetch_response_code(code: int) -> int:
    """Return the code of an OffsetFetch that waited for records that were not committed.

    Source: ``GroupCoordinatorService.handleOffsetFetchException``.
    """
    return NOT_COORDINATOR if code in _OF_FETCH else response_code(code)
