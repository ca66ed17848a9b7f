"""What a step of a scenario makes of the controllers' answers."""

from __future__ import annotations

import pytest

from kraft.admin.results import ItemResult
from kraft.admin.topics import TopicCreated
from kraft.errors import INVALID_REPLICATION_FACTOR, TOPIC_ALREADY_EXISTS
from kraft.fleet.run import check_created
from kraft.network.quorum_client import QuorumRefusedError

EXISTS = QuorumRefusedError(TOPIC_ALREADY_EXISTS, "creating topic 'a'", None)


def test_a_topic_that_an_attempt_without_a_response_created_is_no_error() -> None:
    """As when the active controller is killed between the record and its response."""
    check_created({"a": ItemResult(error=EXISTS, is_repeated=True), "b": ItemResult()})


def test_a_topic_that_existed_before_is_an_error() -> None:
    with pytest.raises(QuorumRefusedError, match="creating topic 'a': TOPIC_ALREADY_EXISTS"):
        check_created({"b": ItemResult(), "a": ItemResult(error=EXISTS)})


def test_another_error_of_a_repeated_request_is_raised() -> None:
    error = QuorumRefusedError(INVALID_REPLICATION_FACTOR, "creating topic 'a'", None)
    refused: ItemResult[TopicCreated] = ItemResult(error=error, is_repeated=True)
    with pytest.raises(QuorumRefusedError, match="INVALID_REPLICATION_FACTOR"):
        check_created({"a": refused})
