"""Elections of any size: partial decisions, many rows, and requests rejected as a whole."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.controller.brokers.broker_lifecycle import fence_broker, unfence_broker
from kraft.controller.decision import Decision, Records
from kraft.controller.topics import elections
from kraft.controller.topics.elections import (
    ElectionType,
    LeaderElection,
    balance_leaders,
    elect_unclean_leaders,
)
from kraft.controller.topics.isr_changes import expand_isrs
from kraft.controller.topics.topic_creation import NewTopic, create_topics
from kraft.controller.topics.topic_deletion import delete_topic
from kraft.records import Uuid
from tests.harness.decisions import Lab

MANY = 200


def lab_with_wrong_leaders(partitions: int = MANY) -> Lab:
    """Return a lab in which broker 0 is the preferred leader of every partition and leads none.

    Broker 0 was fenced and is back.
    """
    lab = Lab()
    topic = NewTopic("t", Uuid(b"t" * 16), assignments={id: [0, 1, 2] for id in range(partitions)})
    lab.do(create_topics(lab.cluster, [topic], placer=lab.placer))
    lab.do(fence_broker(lab.cluster, 0))
    lab.do(unfence_broker(lab.cluster, 0))
    lab.do(expand_isrs(lab.cluster))
    return lab


def elect_preferred(lab: Lab, *partitions: int) -> list[tuple[str, int, int]]:
    """Elect the preferred leaders of these partitions of "t"; return the results."""
    results = lab.do(LeaderElection(ElectionType.PREFERRED, {"t": partitions}).decide(lab.cluster))
    assert results is not None
    return list(results)


def leaders(lab: Lab) -> list[int]:
    leaders: list[int] = lab.cluster.table.column("leader").tolist()
    return leaders


def test_a_large_election_is_partial_and_responds_once() -> None:
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


def test_a_partial_election_sees_changes_in_between() -> None:
    lab = lab_with_wrong_leaders()
    asked = LeaderElection(ElectionType.PREFERRED, at_a_time=100)
    lab.do(asked.decide(lab.cluster))
    # Another decision elects two of the remaining leaders; then the preferred leader fails.
    elect_preferred(lab, 150, 151)
    lab.do(fence_broker(lab.cluster, 0))
    results = lab.do(asked.decide(lab.cluster))
    assert results is not None
    codes = results.errors.tolist()
    assert codes[:100] == [0] * 100
    assert set(codes[100:]) == {80}


def test_a_topic_deleted_in_between_needs_no_election() -> None:
    lab = lab_with_wrong_leaders()
    asked = LeaderElection(ElectionType.PREFERRED, at_a_time=100)
    lab.do(asked.decide(lab.cluster))
    lab.do(delete_topic(lab.cluster, "t"))
    decision = asked.decide(lab.cluster)
    assert len(decision.records) == 0
    assert decision.response is not None
    assert decision.response.errors.tolist() == [0] * 100 + [84] * 100


def test_results_keep_the_order_of_the_request() -> None:
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


def test_errors_of_elect_leaders_start_with_kafkas_sentences() -> None:
    lab = lab_with_wrong_leaders(2)
    lab.create("u", [3])
    lab.do(fence_broker(lab.cluster, 0))
    lab.do(fence_broker(lab.cluster, 3))

    def messages(election: ElectionType, requested: dict[str, list[int]]) -> list[str]:
        results = lab.do(LeaderElection(election, requested).decide(lab.cluster))
        assert results is not None
        return [str(results.error(*each)) for each in results]

    assert messages(ElectionType.PREFERRED, {"no": [7], "t": [9, 0]}) == [
        "No such topic as no",
        "No such partition as t-9",
        "The preferred leader was not available. The first replica of t-0 must be alive and in "
        "sync",
    ]
    assert messages(ElectionType.UNCLEAN, {"t": [0], "u": [0]}) == [
        "t-0 already has the requested leader",
        "Eligible topic partition leaders are not available. No replica of u-0 is alive",
    ]


def test_one_decision_elects_at_most_one_batch() -> None:
    lab = lab_with_wrong_leaders(10_001)
    asked = LeaderElection(ElectionType.PREFERRED)
    first = asked.decide(lab.cluster)
    assert (len(first.records), first.is_partial) == (10_000, True)
    lab.do(first)
    second = asked.decide(lab.cluster)
    assert (len(second.records), second.is_partial) == (1, False)


def test_the_periodic_election_finds_few_among_many_partitions() -> None:
    lab = lab_with_wrong_leaders(1_000)
    assert lab.do(balance_leaders(lab.cluster, 999))
    assert leaders(lab) == [0] * 999 + [1]
    elect_preferred(lab, 999)
    lab.create("u", [1, 0])
    lab.do(fence_broker(lab.cluster, 1))
    assert leaders(lab)[-1] == 0
    lab.do(unfence_broker(lab.cluster, 1))
    lab.do(expand_isrs(lab.cluster))
    assert not lab.do(balance_leaders(lab.cluster))
    assert leaders(lab)[-1] == 1


def test_a_returning_broker_leads_a_leaderless_partition_at_the_end_of_the_table() -> None:
    lab = lab_with_wrong_leaders(1_000)
    lab.create("u", [3])
    lab.do(fence_broker(lab.cluster, 3))
    assert leaders(lab)[-1] == -1
    decision = unfence_broker(lab.cluster, 3)
    assert len(decision.records) == 2
    lab.do(decision)
    assert leaders(lab)[-1] == 3


def test_kafka_19522_the_last_known_leader_is_elected_only_while_it_is_alive() -> None:
    lab = Lab(elr=True)
    topic_id = lab.create("t", [0, 1])
    for broker in (0, 1):
        lab.do(fence_broker(lab.cluster, broker))
    # ISR and ELR are empty: only the last known leader is left.
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
    lab.do(unfence_broker(lab.cluster, 1))
    assert lab.partition("t")["leader"] == -1
    assert elect_preferred(lab, 0) == [("t", 0, 80)]
    lab.do(unfence_broker(lab.cluster, 0))
    state = lab.partition("t")
    assert (state["leader"], state["isr"], state["leader_recovery_state"]) == (0, [0], 1)


def test_a_large_lookup_is_a_decision_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elections, "MAX_INLINE_LOOKUP", 100)
    lab = lab_with_wrong_leaders()
    asked = LeaderElection(ElectionType.PREFERRED)
    first = asked.decide(lab.cluster)
    assert (len(first.records), first.response, first.is_partial) == (0, None, True)
    # Another decision elects two of the leaders before the next call.
    elect_preferred(lab, 150, 151)
    results = lab.do(asked.decide(lab.cluster))
    assert results is not None
    assert sorted(set(results.errors.tolist())) == [0, 84]
    assert int((results.errors == 84).sum()) == 2


def test_unclean_elections_are_limited_per_decision() -> None:
    lab = Lab(2)
    lab.create("t", *([[0, 1]] * 5), unclean_leader_election_enable="true")
    lab.do(fence_broker(lab.cluster, 1))
    lab.do(fence_broker(lab.cluster, 0))
    lab.do(lab_without_election(lab, 1))
    sizes = []
    while True:
        decision = elect_unclean_leaders(lab.cluster, 2)
        sizes.append(len(decision.records))
        if not lab.do(decision):
            break
    assert sizes == [2, 2, 1]
    assert leaders(lab) == [1] * 5


def lab_without_election(lab: Lab, broker: int) -> Decision[None]:
    """Return a decision that unfences a broker but elects no leaders of leaderless partitions."""
    change = records.BrokerRegistrationChange(
        broker_id=broker, broker_epoch=lab.cluster.state.brokers[broker].epoch, fenced=-1
    )
    return Decision(Records.of([change], 30), None)
