"""Results by item: `get` and `all` raise as KafkaFuture does."""

from __future__ import annotations

import pytest

from kraft.admin.results import ItemResults, in_order, result_of
from kraft.errors import NONE, TOPIC_ALREADY_EXISTS, UNKNOWN_SERVER_ERROR
from kraft.network.quorum_client import QuorumRefusedError


def test_a_value_is_returned_and_an_error_raised() -> None:
    results = ItemResults(
        {
            "a": result_of(NONE, None, "creating a", 3),
            "b": result_of(TOPIC_ALREADY_EXISTS, "it exists", "creating b", 0, is_repeated=True),
        }
    )
    assert list(results) == ["a", "b"]
    assert results["a"].get() == 3
    assert results["b"].is_repeated
    with pytest.raises(
        QuorumRefusedError, match=r"creating b: TOPIC_ALREADY_EXISTS \(it exists\)"
    ) as e:
        results["b"].get()
    assert (e.value.kafka_code, e.value.name, e.value.message) == (
        *(TOPIC_ALREADY_EXISTS, "TOPIC_ALREADY_EXISTS", "it exists"),
    )
    with pytest.raises(QuorumRefusedError, match="creating b"):
        results.all()
    assert list(results.errors()) == ["b"]


def test_a_value_of_none_is_no_error() -> None:
    results = ItemResults({"a": result_of(NONE, None, "deleting a", None)})
    assert results.all() == {"a": None}
    assert results.errors() == {}


def test_an_item_that_the_response_lacks_fails() -> None:
    found = {"b": result_of(NONE, None, "creating b", 1)}
    results = in_order(["a", "b"], found, lambda name: f"creating {name}")
    assert list(results) == ["a", "b"]
    error = results["a"].error
    assert error is not None
    assert error.kafka_code == UNKNOWN_SERVER_ERROR
    assert "creating a" in str(error)
