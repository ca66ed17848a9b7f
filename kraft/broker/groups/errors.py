"""The error of a group request, and how errors of the log become errors of a response."""

from __future__ import annotations

from kraft.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_FETCH_SIZE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NETWORK_EXCEPTION,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    RECORD_LIST_TOO_LARGE,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
)


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
