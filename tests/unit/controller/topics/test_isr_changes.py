"""Requested elections, ISR changes and reassignments."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.controller.brokers.broker_lifecycle import fence_broker, unfence_broker
from kraft.controller.topics.elections import (
    ElectionType,
    LeaderElection,
    balance_leaders,
    elect_unclean_leaders,
)
from kraft.controller.topics.isr_changes import (
    IsrChange,
    PartitionAnswer,
    alter_partition,
    expand_isrs,
)
from kraft.controller.topics.reassignment import (
    Reassignment,
    alter_partition_reassignments,
    list_partition_reassignments,
)
from kraft.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KraftError,
    NewLeaderElectedError,
    NoReassignmentInProgressError,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kraft.records import Uuid
from tests.harness.decisions import Lab, whole


def lab_with_elections_due() -> Lab:
    """Return a lab in which partition 0 lacks its preferred leader and partition 1 has no leader.

    Broker 1 leads partition 0, although its preferred leader, broker 0, is back.
    """
    lab = Lab()
    lab.create("t", [0, 1], [3, 2])
    for broker in (0, 2, 3):
        lab.do(fence_broker(lab.cluster, broker))
    lab.do(unfence_broker(lab.cluster, 0))
    lab.do(expand_isrs(lab.cluster))
    return lab


def elect(
    lab: Lab, election: ElectionType, partitions: dict[str, list[int]] | None = None
) -> list[tuple[str, int, int]]:
    """Elect leaders; return the topic, partition and error code of each result."""
    results = lab.do(LeaderElection(election, partitions).decide(lab.cluster))
    assert results is not None
    return list(results)


def test_the_preferred_leader_is_elected() -> None:
    lab = lab_with_elections_due()
    asked = {"t": [0, 1, 2]}
    assert elect(lab, ElectionType.PREFERRED, asked) == [("t", 0, 0), ("t", 1, 80), ("t", 2, 3)]
    assert lab.partition("t")["leader"] == 0
    assert elect(lab, ElectionType.PREFERRED, asked)[0] == ("t", 0, 84)


def test_an_election_of_all_responds_only_for_partitions_that_need_one() -> None:
    lab = lab_with_elections_due()
    assert elect(lab, ElectionType.UNCLEAN) == [("t", 1, 83)]
    assert elect(lab, ElectionType.PREFERRED) == [("t", 0, 0), ("t", 1, 80)]


def test_leaders_are_balanced_in_limited_steps() -> None:
    lab = Lab()
    lab.create("t", *([[0, 1]] * 5))
    lab.do(fence_broker(lab.cluster, 0))
    lab.do(unfence_broker(lab.cluster, 0))
    assert lab.do(expand_isrs(lab.cluster)) == 5
    assert lab.do(balance_leaders(lab.cluster, 3)) is True
    assert lab.do(balance_leaders(lab.cluster, 3)) is False
    assert [lab.partition("t", id)["leader"] for id in range(5)] == [0] * 5


def test_unclean_leaders_are_elected_if_the_topic_allows() -> None:
    lab = Lab()
    lab.create("lossy", [0, 1])
    lab.create("safe", [0, 1])
    for broker in (1, 0):
        lab.do(fence_broker(lab.cluster, broker))
    lab.do(unfence_broker(lab.cluster, 1))
    lab.write(records.Config(2, "lossy", "unclean.leader.election.enable", "true"))
    assert lab.do(elect_unclean_leaders(lab.cluster)) is False
    assert lab.partition("safe")["leader"] == -1
    state = lab.partition("lossy")
    assert (state["leader"], state["isr"], state["leader_recovery_state"]) == (1, [1], 1)


def asked(lab: Lab, topic_id: Uuid) -> IsrChange:
    state = lab.partition("t")
    return IsrChange(topic_id, 0, state["leader_epoch"], state["partition_epoch"], {0: -1, 1: -1})  # type: ignore[arg-type]


def alter(lab: Lab, *changes: IsrChange, broker: int = 0) -> list[PartitionAnswer | KraftError]:
    epoch = lab.cluster.state.brokers[broker].epoch
    decision = alter_partition(lab.cluster, broker, epoch, changes)
    return list(lab.do(decision).values())


def test_a_leader_shrinks_its_isr() -> None:
    lab = Lab()
    topic_id = lab.create("t", [0, 1, 2])
    assert alter(lab, asked(lab, topic_id)) == [PartitionAnswer(0, 0, 1, (0, 1), 0)]
    state = lab.partition("t")
    assert (state["isr"], state["partition_epoch"], state["leader_epoch"]) == ([0, 1], 1, 0)
    assert alter(lab, asked(lab, topic_id)) == [PartitionAnswer(0, 0, 1, (0, 1), 0)]
    assert lab.partition("t")["partition_epoch"] == 1, "an unchanged ISR writes nothing"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic_id": Uuid(b"?" * 16)}, UnknownTopicIdError),
        ({"partition": 1}, UnknownTopicOrPartitionError),
        ({"leader_epoch": 9}, NotControllerError),
        ({"partition_epoch": 9}, NotControllerError),
        ({"leader_epoch": 0}, FencedLeaderEpochError),
        ({"partition_epoch": 0}, InvalidUpdateVersionError),
        ({"isr": {0: -1, 3: -1}}, InvalidRequestError),
        ({"isr": {1: -1}}, InvalidRequestError),
        ({"is_recovering": True}, InvalidRequestError),
        ({"is_recovering": True, "isr": {0: -1}}, InvalidRequestError),
        ({"isr": {0: -1, 2: -1}}, IneligibleReplicaError),
        ({"isr": {0: -1, 1: 1_000}}, IneligibleReplicaError),
    ],
)
def test_invalid_isr_changes_are_rejected(
    fields: dict[str, object], error: type[KraftError]
) -> None:
    lab = Lab()
    topic_id = lab.create("t", [0, 1, 2])
    lab.write(records.PartitionChange(partition_id=0, topic_id=topic_id, leader=0))
    lab.do(fence_broker(lab.cluster, 2))
    (answer,) = alter(lab, asked(lab, topic_id)._replace(**fields))  # type: ignore[arg-type]
    assert isinstance(answer, error)


def test_only_the_leader_with_the_present_epoch_may_change_the_isr() -> None:
    lab = Lab()
    topic_id = lab.create("t", [0, 1, 2])
    assert isinstance(alter(lab, asked(lab, topic_id), broker=1)[0], InvalidRequestError)
    with pytest.raises(StaleBrokerEpochError):
        alter_partition(lab.cluster, 0, -1, [asked(lab, topic_id)])


def test_a_reassignment_completes_with_its_last_replica_and_may_move_the_leader() -> None:
    lab = Lab()
    topic_id = lab.create("t", [0, 1])
    lab.do(alter_partition_reassignments(lab.cluster, {("t", 0): [2, 3]}))
    in_progress = Reassignment((2, 3, 0, 1), (2, 3), (0, 1))
    assert list_partition_reassignments(lab.cluster) == {("t", 0): in_progress}
    assert list_partition_reassignments(lab.cluster, [("t", 0), ("u", 0)]) == {
        ("t", 0): in_progress
    }
    everyone = asked(lab, topic_id)._replace(isr=dict.fromkeys((0, 1, 2, 3), -1))
    assert isinstance(alter(lab, everyone)[0], NewLeaderElectedError)
    state = lab.partition("t")
    assert (state["leader"], state["replicas"], state["isr"]) == (2, [2, 3], [2, 3])
    assert list_partition_reassignments(lab.cluster) == {}


def test_a_reassignment_is_cancelled() -> None:
    lab = Lab()
    lab.create("t", [0, 1])
    lab.do(alter_partition_reassignments(lab.cluster, {("t", 0): [2, 3]}))
    assert lab.do(alter_partition_reassignments(lab.cluster, {("t", 0): None})) == {("t", 0): None}
    assert lab.partition("t")["replicas"] == [0, 1]
    again = whole(alter_partition_reassignments(lab.cluster, {("t", 0): None})).response
    assert isinstance(again["t", 0], NoReassignmentInProgressError)


def test_invalid_targets_are_rejected() -> None:
    lab = Lab()
    lab.create("t", [0, 1])
    response = whole(
        alter_partition_reassignments(
            lab.cluster,
            {("t", 0): [0, 9], ("t", 1): [0], ("u", 0): [0]},
        )
    ).response
    assert [type(error) for error in response.values()] == [
        InvalidReplicaAssignmentError,
        UnknownTopicOrPartitionError,
        UnknownTopicOrPartitionError,
    ]
    response = whole(
        alter_partition_reassignments(
            lab.cluster, {("t", 0): [2]}, allow_replication_factor_change=False
        )
    ).response
    assert isinstance(response["t", 0], InvalidReplicationFactorError)
    # kafka-reassign-partitions prints this text.
    assert str(response["t", 0]) == "The replication factor is changed from 2 to 1"


def test_a_non_numeric_min_isr_is_ignored() -> None:
    """Kafka writes such a value of a broker to the log, and then every later decision fails."""
    lab = Lab(brokers=3)
    lab.create("orders", [0, 1, 2])
    for resource_type, resource_name in ((4, ""), (2, "orders")):
        lab.write(records.Config(resource_type, resource_name, "min.insync.replicas", "abc"))
    lab.do(fence_broker(lab.cluster, 0))
    assert lab.partition("orders")["leader"] == 1
