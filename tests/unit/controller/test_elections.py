"""Elections of any size: in parts, over many rows, refused as a whole."""

from __future__ import annotations

import pytest

from kraft import controller, records
from kraft.controller import ElectionType, LeaderElection, NewTopic, elections
from kraft.errors import PolicyViolationError, PreferredLeaderNotAvailableError
from kraft.records import Uuid
from tests.unit.controller.clusters import Lab

MANY = 200


def lab_with_wrong_leaders(partitions: int = MANY) -> Lab:
    """Broker 0 is the preferred leader everywhere, was away, is back and leads nothing."""
    lab = Lab()
    topic = NewTopic("t", Uuid(b"t" * 16), assignments={id: [0, 1, 2] for id in range(partitions)})
    for written in controller.create_topics_in_pieces(lab.cluster, [topic], placer=lab.placer):
        lab.do(controller.Decision(written, None))
    lab.do(controller.fence_broker(lab.cluster, 0))
    lab.do(controller.unfence_broker(lab.cluster, 0))
    lab.do(controller.expand_isrs(lab.cluster))
    return lab


def leaders(lab: Lab) -> list[int]:
    leaders: list[int] = lab.cluster.table.column("leader").tolist()
    return leaders


def test_all_partitions_move_in_parts_and_are_answered_once() -> None:
    lab = lab_with_wrong_leaders()
    asked = LeaderElection(ElectionType.PREFERRED, at_a_time=90)
    sizes = []
    while (decision := asked.decide(lab.cluster)).is_partial:
        assert decision.response is None
        sizes.append(len(decision.records))
        lab.do(decision)
    sizes.append(len(decision.records))
    results = lab.do(decision)
    assert sizes == [90, 90, 20]
    assert results is not None
    assert list(results) == [("t", id, 0) for id in range(MANY)]
    assert leaders(lab) == [0] * MANY


def test_what_changes_between_the_parts_is_seen() -> None:
    lab = lab_with_wrong_leaders()
    asked = LeaderElection(ElectionType.PREFERRED, at_a_time=100)
    lab.do(asked.decide(lab.cluster))
    # Somebody else elects a few; then the preferred leader dies.
    lab.do(controller.elect_leaders(lab.cluster, ElectionType.PREFERRED, {"t": [150, 151]}))
    lab.do(controller.fence_broker(lab.cluster, 0))
    results = lab.do(asked.decide(lab.cluster))
    assert results is not None
    codes = results.errors.tolist()
    assert codes[:100] == [0] * 100
    assert set(codes[100:]) == {80}


def test_a_topic_that_goes_between_the_parts_needs_no_election() -> None:
    lab = lab_with_wrong_leaders()
    asked = LeaderElection(ElectionType.PREFERRED, at_a_time=100)
    lab.do(asked.decide(lab.cluster))
    lab.do(controller.delete_topic(lab.cluster, "t"))
    decision = asked.decide(lab.cluster)
    assert len(decision.records) == 0
    assert decision.response is not None
    assert decision.response.errors.tolist() == [0] * 100 + [84] * 100


def test_named_partitions_keep_their_order_among_refusals() -> None:
    lab = lab_with_wrong_leaders(3)
    lab.create("u", [3])
    asked = {"no": [7], "t": [2, 9, 0], "u": [0]}
    decision = LeaderElection(ElectionType.PREFERRED, asked).decide(lab.cluster)
    assert decision.response is not None
    assert list(decision.response) == [
        ("no", 7, 3),
        ("t", 2, 0),
        ("t", 9, 3),
        ("t", 0, 0),
        ("u", 0, 84),
    ]
    lab.do(decision)
    assert leaders(lab)[:3] == [0, 1, 0]


def test_one_decision_elects_no_more_than_a_batch_holds() -> None:
    lab = lab_with_wrong_leaders(10_001)
    with pytest.raises(PolicyViolationError):
        controller.elect_leaders(lab.cluster, ElectionType.PREFERRED)
    # What cannot be elected does not count.
    lab.do(controller.fence_broker(lab.cluster, 0))
    response = controller.elect_leaders(lab.cluster, ElectionType.PREFERRED).response
    assert len(response) == 10_001


def test_the_periodic_task_finds_the_few_among_the_many() -> None:
    lab = lab_with_wrong_leaders(1_000)
    assert lab.do(controller.balance_leaders(lab.cluster, 999))
    assert leaders(lab) == [0] * 999 + [1]
    lab.do(controller.elect_leaders(lab.cluster, ElectionType.PREFERRED))
    lab.create("u", [1, 0])
    lab.do(controller.fence_broker(lab.cluster, 1))
    assert leaders(lab)[-1] == 0
    lab.do(controller.unfence_broker(lab.cluster, 1))
    lab.do(controller.expand_isrs(lab.cluster))
    assert not lab.do(controller.balance_leaders(lab.cluster))
    assert leaders(lab)[-1] == 1


def test_a_leaderless_partition_far_down_the_table_gets_the_broker_that_returns() -> None:
    lab = lab_with_wrong_leaders(1_000)
    lab.create("u", [3])
    lab.do(controller.fence_broker(lab.cluster, 3))
    assert leaders(lab)[-1] == -1
    decision = controller.unfence_broker(lab.cluster, 3)
    assert len(decision.records) == 2
    lab.do(decision)
    assert leaders(lab)[-1] == 3


def test_kafka_19522_the_last_known_leader_is_elected_only_while_it_is_alive() -> None:
    lab = Lab(elr=True)
    topic_id = lab.create("t", [0, 1])
    for broker in (0, 1):
        lab.do(controller.fence_broker(lab.cluster, broker))
    # Nobody is known to hold everything: all that is left is who led last.
    lab.write(
        records.PartitionChange(
            partition_id=0,
            topic_id=topic_id,
            leader=-1,
            isr=[],
            eligible_leader_replicas=[],
            last_known_elr=[0],
        )
    )
    lab.do(controller.unfence_broker(lab.cluster, 1))
    assert lab.partition("t")["leader"] == -1
    response = controller.elect_leaders(lab.cluster, ElectionType.PREFERRED, {"t": [0]}).response
    assert isinstance(response["t", 0], PreferredLeaderNotAvailableError)
    lab.do(controller.unfence_broker(lab.cluster, 0))
    state = lab.partition("t")
    assert (state["leader"], state["isr"], state["leader_recovery_state"]) == (0, [0], 1)


def test_a_large_cluster_is_looked_up_in_a_turn_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elections, "LOOKED_UP_IN_PASSING", 100)
    lab = lab_with_wrong_leaders()
    asked = LeaderElection(ElectionType.PREFERRED)
    first = asked.decide(lab.cluster)
    assert (len(first.records), first.response, first.is_partial) == (0, None, True)
    # Somebody else elects a few before its next turn.
    lab.do(controller.elect_leaders(lab.cluster, ElectionType.PREFERRED, {"t": [150, 151]}))
    results = lab.do(asked.decide(lab.cluster))
    assert results is not None
    assert sorted(set(results.errors.tolist())) == [0, 84]
    assert int((results.errors == 84).sum()) == 2


def test_no_more_unclean_elections_are_held_at_a_time_than_the_limit() -> None:
    lab = Lab(2)
    lab.create("t", *([[0, 1]] * 5), unclean_leader_election_enable="true")
    lab.do(controller.fence_broker(lab.cluster, 1))
    lab.do(controller.fence_broker(lab.cluster, 0))
    lab.do(lab_without_election(lab, 1))
    sizes = []
    while True:
        decision = controller.elect_unclean_leaders(lab.cluster, 2)
        sizes.append(len(decision.records))
        if not lab.do(decision):
            break
    assert sizes == [2, 2, 1]
    assert leaders(lab) == [1] * 5


def lab_without_election(lab: Lab, broker: int) -> controller.Decision[None]:
    """The broker is unfenced, and its leaderless partitions are left as they are."""
    change = records.BrokerRegistrationChange(
        broker_id=broker, broker_epoch=lab.cluster.state.brokers[broker].epoch, fenced=-1
    )
    return controller.Decision(controller.Records.of([change], 30), None)
