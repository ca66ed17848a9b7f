"""Create, extend, configure and delete topics."""

from __future__ import annotations

import pytest

from kraft.controller.brokers.broker_lifecycle import begin_controlled_shutdown, fence_broker
from kraft.controller.topics.partition_creation import add_partitions
from kraft.controller.topics.topic_creation import (
    CreatedTopic,
    NewTopic,
    create_topic,
    create_topics,
)
from kraft.controller.topics.topic_deletion import delete_topic
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
from tests.harness.decisions import Lab, whole

ID = Uuid(b"i" * 16)


def test_a_topic_writes_topic_configs_then_partitions() -> None:
    lab = Lab()
    topic = NewTopic("t", ID, 5, 3, configs={"retention.ms": "1"})
    decision = create_topic(lab.cluster, topic, placer=lab.placer)
    assert [type(record).__name__ for record in decision.records] == (
        ["Topic", "Config"] + ["Partition"] * 5
    )
    assert decision.is_atomic
    assert decision.response == CreatedTopic("t", ID, 5, 3)
    lab.do(decision)
    assert lab.cluster.state.configs.topic("t") == {"retention.ms": "1"}
    state = lab.partition("t", 4)
    assert state["leader"] == state["replicas"][0]  # type: ignore[index]
    assert state["isr"] == state["replicas"]


def test_configurations_without_values_are_named_as_in_kafka() -> None:
    lab = Lab()
    configs = {"retention.bytes": None, "retention.ms": "1", "segment.ms": None}
    with pytest.raises(InvalidConfigError) as raised:
        create_topic(lab.cluster, NewTopic("n", ID, 1, 1, configs=configs), placer=lab.placer)
    assert str(raised.value) == (
        "Null value not supported for topic configs: retention.bytes,segment.ms"
    )


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (
            NewTopic("n", ID, 1, 0),
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("n", ID, 0, 1),
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("n", ID, -1, 1, {0: [0]}),
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        ),
        (
            NewTopic("n", ID, 1, -1, {0: [0]}),
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("n", ID, -1, -1, {1: [0]}),
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("n", ID, -1, -1, [(0, [0]), (0, [1])]),
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("n", ID, -1, -1, {0: [3]}),
            "All brokers specified in the manual partition assignment for partition 0 are fenced "
            "or in controlled shutdown.",
        ),
    ],
)
def test_errors_of_create_topics_have_kafkas_messages(topic: NewTopic, message: str) -> None:
    lab = Lab()
    lab.do(fence_broker(lab.cluster, 3))
    with pytest.raises(KraftError) as raised:
        create_topic(lab.cluster, topic, placer=lab.placer)
    assert str(raised.value) == message


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
    ],
)
def test_an_invalid_topic_is_rejected(topic: NewTopic, error: type[KraftError]) -> None:
    lab = Lab()
    lab.create("is.there", [0])
    lab.do(fence_broker(lab.cluster, 3))
    with pytest.raises(error):
        create_topic(lab.cluster, topic, placer=lab.placer)


@pytest.mark.parametrize("count", [10_000, 10_001])
def test_a_topic_larger_than_a_batch_is_one_transaction_or_rejected(count: int) -> None:
    lab = Lab()
    topic = NewTopic("n", ID, count, 1)
    with pytest.raises(PolicyViolationError):
        whole(create_topics(lab.cluster, [topic], placer=lab.placer, at_once=count + 1))
    decision = create_topic(lab.cluster, topic, placer=lab.placer)
    assert not decision.is_atomic
    names = [type(record).__name__ for record in decision.records]
    assert names[:3] == ["BeginTransaction", "Topic", "Partition"]
    assert names[-2:] == ["Partition", "EndTransaction"]
    assert len(names) == count + 3
    assert lab.do(decision) == CreatedTopic("n", ID, count, 1)
    assert lab.cluster.table.topic_number("n") >= 0


def test_one_topic_of_a_request_fails_and_the_others_are_created() -> None:
    lab = Lab()
    topics = [
        NewTopic("a.b", ID, 1, 1),
        NewTopic("a_b", Uuid(b"j" * 16), 1, 1),
        NewTopic("twice", Uuid(b"k" * 16), 1, 1),
        NewTopic("twice", Uuid(b"l" * 16), 1, 1),
        NewTopic("good", Uuid(b"m" * 16)),
    ]
    response = lab.do(create_topics(lab.cluster, topics, placer=lab.placer))
    made = [name for name, result in response.items() if not isinstance(result, KraftError)]
    assert made == ["a.b", "good"]
    assert lab.cluster.table.topic_count == 2


def test_add_partitions_creates_the_missing_partitions() -> None:
    lab = Lab()
    lab.create("t", [0, 1], [1, 2])
    grow = add_partitions
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
    assert lab.do(delete_topic(lab.cluster, topic_id=topic_id)) == "t"
    assert lab.do(delete_topic(lab.cluster, "u")) == "u"
    assert lab.cluster.table.partition_count == 0
    with pytest.raises(UnknownTopicIdError):
        delete_topic(lab.cluster, topic_id=topic_id)
    with pytest.raises(UnknownTopicOrPartitionError):
        delete_topic(lab.cluster, "u")
    with pytest.raises(InvalidRequestError):
        delete_topic(lab.cluster, "u", topic_id)


def test_a_broker_that_has_stopped_cleanly_still_counts_for_the_replication_factor() -> None:
    lab = Lab(3)
    lab.do(begin_controlled_shutdown(lab.cluster, 2))
    topic = NewTopic("t", Uuid(b"t" * 16), 1, 3)
    with pytest.raises(InvalidReplicationFactorError):
        create_topic(lab.cluster, topic, placer=lab.placer)
    # Once broker 2 is fenced it counts like any other failed broker, although its registration
    # still has the mark of the controlled shutdown.
    lab.do(fence_broker(lab.cluster, 2))
    assert lab.cluster.state.brokers[2].in_controlled_shutdown
    lab.do(create_topic(lab.cluster, topic, placer=lab.placer))
    assert sorted(lab.partition("t")["replicas"]) == [0, 1, 2]  # type: ignore[call-overload]
    assert 2 not in lab.partition("t")["isr"]  # type: ignore[operator]
