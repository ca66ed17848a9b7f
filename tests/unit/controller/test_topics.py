"""Topics are created, grow, are configured and deleted."""

from __future__ import annotations

import pytest

from kraft import controller, records
from kraft.controller import NewTopic
from kraft.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KraftError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kraft.records import Uuid
from tests.unit.controller.clusters import Lab

ID = Uuid(b"i" * 16)


def test_a_topic_is_its_record_then_its_configs_then_its_partitions() -> None:
    lab = Lab()
    topic = NewTopic("t", ID, 5, 3, configs={"retention.ms": "1"})
    decision = controller.create_topic(lab.cluster, topic, placer=lab.placer)
    assert [type(record).__name__ for record in decision.records] == (
        ["Topic", "Config"] + ["Partition"] * 5
    )
    assert decision.is_atomic
    assert decision.response == controller.CreatedTopic("t", ID, 5, 3)
    lab.do(decision)
    assert lab.cluster.state.configs.topic("t") == {"retention.ms": "1"}
    state = lab.partition("t", 4)
    assert state["leader"] == state["replicas"][0]  # type: ignore[index]
    assert state["isr"] == state["replicas"]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("", ID, 1, 1), InvalidTopicError),
        (NewTopic("..", ID, 1, 1), InvalidTopicError),
        (NewTopic("a b", ID, 1, 1), InvalidTopicError),
        (NewTopic("x" * 250, ID, 1, 1), InvalidTopicError),
        (NewTopic("is_there", ID, 1, 1), InvalidTopicError),
        (NewTopic("is.there", ID, 1, 1), TopicAlreadyExistsError),
        (NewTopic("__cluster_metadata", ID, 1, 1), InvalidRequestError),
        (NewTopic("n", ID, 1, 1, configs={"a": None}), InvalidConfigError),
        (NewTopic("n", ID, 0, 1), InvalidPartitionsError),
        (NewTopic("n", ID, -2, 1), InvalidPartitionsError),
        (NewTopic("n", ID, 1, 0), InvalidReplicationFactorError),
        (NewTopic("n", ID, 1, 5), InvalidReplicationFactorError),
        (NewTopic("n", ID, 1, -1, {0: [0]}), InvalidRequestError),
        (NewTopic("n", ID, -1, -1, {1: [0]}), InvalidReplicaAssignmentError),
        (NewTopic("n", ID, -1, -1, {0: [0, 0]}), InvalidReplicaAssignmentError),
        (NewTopic("n", ID, -1, -1, {0: [9]}), InvalidReplicaAssignmentError),
        (NewTopic("n", ID, -1, -1, {0: []}), InvalidReplicaAssignmentError),
        (NewTopic("n", ID, -1, -1, {0: [0], 1: [0, 1]}), InvalidReplicaAssignmentError),
        (NewTopic("n", ID, -1, -1, {0: [3]}), InvalidReplicaAssignmentError),
        (NewTopic("n", ID, 10_001, 1), PolicyViolationError),
        (NewTopic("n", ID, 10_000, 1), PolicyViolationError),
    ],
)
def test_a_topic_that_cannot_be_is_refused(topic: NewTopic, error: type[KraftError]) -> None:
    lab = Lab()
    lab.create("is.there", [0])
    lab.do(controller.fence_broker(lab.cluster, 3))
    with pytest.raises(error):
        controller.create_topic(lab.cluster, topic, placer=lab.placer)


def test_one_topic_of_a_request_fails_and_the_others_are_made() -> None:
    lab = Lab()
    topics = [
        NewTopic("a.b", ID, 1, 1),
        NewTopic("a_b", Uuid(b"j" * 16), 1, 1),
        NewTopic("twice", Uuid(b"k" * 16), 1, 1),
        NewTopic("twice", Uuid(b"l" * 16), 1, 1),
        NewTopic("good", Uuid(b"m" * 16)),
    ]
    response = lab.do(controller.create_topics(lab.cluster, topics, placer=lab.placer))
    made = [name for name, result in response.items() if not isinstance(result, KraftError)]
    assert made == ["a.b", "good"]
    assert lab.cluster.table.topic_count == 2


def test_a_topic_grows_by_as_many_partitions_as_are_missing() -> None:
    lab = Lab()
    lab.create("t", [0, 1], [1, 2])
    grow = controller.create_partitions
    assert lab.do(grow(lab.cluster, "t", 4, placer=lab.placer)) == 2
    assert lab.do(grow(lab.cluster, "t", 5, [[3, 0]], placer=lab.placer)) == 1
    assert lab.partition("t", 4)["replicas"] == [3, 0]
    with pytest.raises(InvalidPartitionsError):
        grow(lab.cluster, "t", 5, placer=lab.placer)
    with pytest.raises(InvalidReplicaAssignmentError):
        grow(lab.cluster, "t", 7, [[1, 2]], placer=lab.placer)
    with pytest.raises(InvalidReplicaAssignmentError):
        grow(lab.cluster, "t", 6, [[1]], placer=lab.placer)
    with pytest.raises(UnknownTopicOrPartitionError):
        grow(lab.cluster, "u", 6, placer=lab.placer)


def test_a_topic_is_deleted_by_name_or_by_id() -> None:
    lab = Lab()
    topic_id = lab.create("t", [0])
    lab.create("u", [0])
    assert lab.do(controller.delete_topic(lab.cluster, topic_id=topic_id)) == "t"
    assert lab.do(controller.delete_topic(lab.cluster, "u")) == "u"
    assert lab.cluster.table.partition_count == 0
    with pytest.raises(UnknownTopicIdError):
        controller.delete_topic(lab.cluster, topic_id=topic_id)
    with pytest.raises(UnknownTopicOrPartitionError):
        controller.delete_topic(lab.cluster, "u")
    with pytest.raises(InvalidRequestError):
        controller.delete_topic(lab.cluster, "u", topic_id)


def test_only_changed_values_are_written_but_for_brokers() -> None:
    lab = Lab()
    lab.create("t", [0], retention_ms="1")
    decision = controller.alter_configs(
        lab.cluster,
        {
            (2, "t"): {"retention.ms": "1", "segment.ms": "2", "unset": None},
            (4, "0"): {"num.io.threads": "3"},
            (2, "no"): {"a": "b"},
        },
    )
    lab.do(decision)
    assert [record.name for record in decision.records] == ["segment.ms", "num.io.threads"]  # type: ignore[attr-defined]
    again = controller.alter_configs(lab.cluster, {(4, "0"): {"num.io.threads": "3"}})
    assert len(again.records) == 1
    assert isinstance(decision.response[2, "no"], UnknownTopicOrPartitionError)


def test_another_min_isr_empties_the_elrs_behind_it_while_elr_is_on() -> None:
    lab = Lab(elr=True)
    lab.create("t", [0, 1])
    decision = controller.alter_configs(
        lab.cluster, {(2, "t"): {"min.insync.replicas": "2"}, (4, ""): {"min.insync.replicas": "2"}}
    )
    assert list(decision.records)[2:] == [
        records.ClearElr(topic_name="t"),
        records.ClearElr(topic_name=""),
    ]
    refused = controller.alter_configs(
        lab.cluster,
        {(4, "1"): {"min.insync.replicas": "2"}, (4, ""): {"min.insync.replicas": None}},
    )
    assert all(isinstance(error, InvalidConfigError) for error in refused.response.values())
