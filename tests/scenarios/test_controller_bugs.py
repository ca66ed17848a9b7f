"""Known bugs of Kafka's controller, one test each; those of the quorum are scripts in this folder.

Each test is named after its row in the list of known bugs in `docs/simulation.md`. A bug that needs
a failover of the quorum runs in a simulated whole cluster; the others use one controller over a
log.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kraft import records
from kraft._core.bytes.batch import assign_offsets
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision, Records
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.topics.isr_changes import IsrChange
from kraft.controller.topics.topic_creation import NewTopic
from kraft.errors import (
    DuplicateBrokerRegistrationError,
    IneligibleReplicaError,
    KraftError,
    NotControllerError,
    PolicyViolationError,
)
from kraft.image.publishing import ImagePublishing
from kraft.raft.interface import Role
from kraft.records import Uuid
from kraft.records.batches import encode_control_records
from kraft.simulation.scenario import CALM
from kraft.simulation.whole_cluster import WholeCluster
from kraft.simulation.whole_scenario import build, small_chunks
from tests.harness.controller import ControllerLog, leading, replayed
from tests.harness.decisions import LEVEL, registration

SESSION_MS = 9_000.0


class CalmCluster:
    """A simulated cluster without faults, with three voters and at least three brokers."""

    def __init__(self) -> None:
        seed = 0
        self.cluster, self.faults = build(seed)
        while len(self.cluster.machines) != 3 or self._voter_count() != 3:
            seed += 1
            self.cluster, self.faults = build(seed)
        cluster = self.cluster
        cluster.conditions, cluster.run_cost_ms = CALM, 0.1
        for machine in cluster.machines.values():
            machine.clock_rate = 1.0
            cluster.at(0.0, cluster.start, machine)
        for broker in cluster.brokers.values():
            cluster.at(500.0, broker.start)
        self.answers: list[tuple[Any, KraftError | None]] = []
        self.run_until(lambda: self.unfenced() == set(cluster.brokers))

    def _voter_count(self) -> int:
        machine = next(iter(self.cluster.machines.values()))
        static = machine.config.static_voters
        return len(static) or len(machine.storage.last.voters or ())

    def unfenced(self) -> set[int]:
        known = self.cluster.ledger.brokers
        return {id for id, broker in known.items() if not broker.is_fenced}

    def run(self, ms: float) -> None:
        until = self.cluster.now + ms
        self._run(lambda: self.cluster.now >= until)

    def run_until(self, is_there: Callable[[], bool], within_ms: float = 30_000.0) -> None:
        begin = self.cluster.now
        self._run(lambda: is_there() or self.cluster.now > begin + within_ms)
        assert is_there(), f"the condition does not hold within {within_ms} ms"

    def _run(self, is_enough: Callable[[], bool]) -> None:
        cluster: WholeCluster = self.cluster
        cluster.is_over = False

        def look(_a: None = None, _b: None = None, _c: None = None) -> None:
            cluster.is_over = is_enough()
            if not cluster.is_over:
                cluster.at(cluster.now + 1.0, look)

        look()
        with small_chunks():
            cluster.run()

    def ask(self, operation: Operation) -> None:
        active = self.cluster.active_controller()
        assert active is not None
        active.submit(operation, lambda response, error, epoch: self._hear(response, error))

    def _hear(self, response: Any, error: KraftError | None) -> None:
        self.answers.append((response, error))

    def create(self, name: str, partitions: int) -> None:
        topic = NewTopic(name, Uuid(name.encode().ljust(16, b".")), partitions, 3)
        self.ask(requests.create_topics([topic]))

    def leader(self) -> int:
        active = self.cluster.active_controller()
        return -1 if active is None else active.machine.id


def place(log: ControllerLog, name: str, *assignments: list[int]) -> Uuid:
    """Create a topic with the given placement of its partitions."""
    topic_id = Uuid(name.encode().ljust(16, b"."))
    topic = NewTopic(name, topic_id, assignments=dict(enumerate(assignments)))
    token = log.submit(requests.create_topics([topic]))
    log.settle()
    assert not isinstance(log.response(token)[name], KraftError)
    return topic_id


def partition(log: ControllerLog, topic_id: Uuid, number: int = 0) -> dict[str, Any]:
    table = log.controller.cluster.table
    return table.state_of(table.row_of(table.topic_number_by_id(topic_id), number))


def epoch(log: ControllerLog, broker: int) -> int:
    return log.controller.cluster.state.brokers[broker].epoch


def let_expire(log: ControllerLog, *silent: int, beating: tuple[int, ...]) -> None:
    """Send heartbeats of some brokers until the others are fenced."""
    for _ in range(8):
        log.now_ms += SESSION_MS / 6
        for broker in beating:
            log.heartbeat(broker)
        log.settle()
    for broker in silent:
        assert log.controller.cluster.state.brokers[broker].fenced


# -- leadership


def test_row_13_kafka_13104_raft_resigns_with_the_controller() -> None:
    """In Kafka the controller gave up and its raft node stayed leader: no controller was active."""
    calm = CalmCluster()
    old = calm.cluster.active_controller()
    assert old is not None
    machine, old_epoch = old.machine, old.controller.epoch
    calm.cluster.refusing.add(machine.id)
    calm.create("orders", 3)
    calm.run(50.0)
    assert isinstance(calm.answers[-1][1], NotControllerError)
    assert machine.role is not Role.LEADER or machine.epoch > old_epoch
    calm.run_until(lambda: calm.leader() > 0, within_ms=10_000.0)
    assert calm.cluster.controller_checks.newest_epoch > old_epoch
    calm.create("orders", 3)
    calm.run(200.0)
    assert calm.answers[-1][1] is None
    assert "orders" in calm.cluster.ledger.topics


def test_row_14_kafka_17608_a_control_batch_moves_no_stable_offset() -> None:
    """In Kafka a control batch moved the stable offset into an open transaction, which could not be
    reverted then.
    """
    log = leading(2)
    log.create("huge", 50_000)
    while log.controller.cluster.table.partition_count < 20_000:
        log.run_once()
    begin = log.controller.cluster.transaction_start
    assert begin is not None
    batch = bytearray(encode_control_records([records.KRaftVersion(kraft_version=1)], epoch=1))
    assign_offsets(batch, log.end_offset, 1)
    log.batches.append((log.end_offset, bytes(batch)))
    log.controller.control_batch_appended(log.end_offset, memoryview(batch))
    log.end_offset += 1
    log.commit()
    assert log.controller.stable_offset == begin
    committed = log.end_offset
    log.run_once()
    log.take(log.controller.renounce(log.now_ms))
    assert log.controller.cluster.next_offset == committed
    standby = replayed(log, until=committed)
    assert log.controller.cluster.state == standby.state
    log.batches = [each for each in log.batches if each[0] < committed]
    log.end_offset = committed
    log.lead(epoch=2)
    assert log.names(since=committed) == ["AbortTransaction"]
    assert log.controller.cluster.table.partition_count == 0
    assert log.controller.stable_offset == log.end_offset


def test_row_15_kafka_14204_too_large_a_batch_ends_no_leadership() -> None:
    """In Kafka one request with many records made the controller fail over."""
    log = leading(2)

    def too_much(context: Any) -> Decision[None]:
        noop = [records.NoOp()] * (MAX_RECORDS_PER_BATCH + 1)
        return Decision(Records.of(noop, LEVEL), None, is_atomic=True)

    refused = log.ask("too much", too_much)
    log.settle()
    assert isinstance(log.answers[refused].error, PolicyViolationError)
    since = log.end_offset
    created = log.create("huge", 35_000)
    log.settle()
    assert log.response(created)["huge"].num_partitions == 35_000
    names = log.names(since)
    assert (names[0], names[-1]) == ("BeginTransaction", "EndTransaction")
    sizes = [base for base, _ in log.batches if base >= since] + [log.end_offset]
    steps = [end - base for base, end in pairwise(sizes)]
    assert max(steps) <= MAX_RECORDS_PER_BATCH
    assert log.controller.is_active
    assert log.resigned == []


# -- brokers that die


def test_row_16_kafka_13173_brokers_that_expire_together() -> None:
    """In Kafka both decisions used the same old state, so the ISR contained dead brokers."""
    log = leading(3)
    topic_id = place(log, "orders", [1, 2, 3], [2, 1, 3])
    of_the_dead = place(log, "pairs", [1, 2])
    let_expire(log, 1, 2, beating=(3,))
    for number in (0, 1):
        state = partition(log, topic_id, number)
        assert (state["leader"], state["isr"]) == (3, [3])
    last = partition(log, of_the_dead)
    assert last["leader"] == -1
    assert len(last["isr"]) == 1, "the ISR keeps its last member"


def test_row_17_kafka_18138_a_broker_that_dies_during_a_failover_is_fenced() -> None:
    calm = CalmCluster()
    cluster = calm.cluster
    active = cluster.active_controller()
    assert active is not None
    broker = next(iter(cluster.brokers.values()))
    broker.die()
    cluster.crash(active.machine)
    died_at = cluster.now
    calm.run_until(lambda: calm.leader() not in (-1, active.machine.id))
    session_ms = cluster.settings.session_timeout_ms
    calm.run_until(lambda: broker.id not in calm.unfenced(), within_ms=1.125 * session_ms + 500)
    assert cluster.now - died_at < 1.125 * session_ms + 10_000.0
    assert calm.unfenced() == set(cluster.brokers) - {broker.id}, "a live broker was fenced"


def test_row_18_kafka_14617_a_replica_of_an_old_broker_epoch_joins_no_isr() -> None:
    """KIP-903: the replica lost its disk while the leader's AlterPartition was in flight."""
    log = leading(2)
    topic_id = place(log, "orders", [1, 2])
    old_epoch = epoch(log, 2)
    let_expire(log, 2, beating=(1,))
    log.submit(requests.register_broker(registration(2, incarnation=2)))
    log.settle()
    log.heartbeat(2)
    log.settle()
    state = partition(log, topic_id)
    assert (state["leader"], state["isr"]) == (1, [1])

    def join(broker_epoch: int) -> Any:
        isr = {1: epoch(log, 1), 2: broker_epoch}
        change = IsrChange(topic_id, 0, state["leader_epoch"], state["partition_epoch"], isr)
        token = log.submit(requests.alter_partition(1, epoch(log, 1), [change]))
        log.settle()
        return log.response(token)[topic_id, 0]

    assert isinstance(join(old_epoch), IneligibleReplicaError)
    assert partition(log, topic_id)["isr"] == [1]
    assert join(epoch(log, 2)).isr == (1, 2)


def test_row_19_kafka_15441_an_open_transaction_holds_no_heartbeat_back() -> None:
    log = leading(3, max_transaction_ms=8_000)
    log.create("huge", 60_000)
    log.run_once()
    log.run_once()
    for _ in range(3):
        log.now_ms += 2_000
        tokens = [log.heartbeat(broker) for broker in (1, 2, 3)]
        for _ in range(4):
            log.run_once()
        assert all(log.response(token).state is not None for token in tokens)
    log.settle()
    for _ in range(4):
        log.now_ms += 2_000
        for broker in (1, 2, 3):
            log.heartbeat(broker)
        log.settle()
    assert not any(each.fenced for each in log.controller.cluster.state.brokers.values())


def test_row_19_kafka_14208_the_next_controller_aborts_the_transaction() -> None:
    calm = CalmCluster()
    cluster = calm.cluster
    old = calm.leader()
    aborted = cluster.ledger.abort_count
    calm.create("huge", 5_000)
    calm.run_until(lambda: cluster.ledger.open_since is not None)
    assert "huge" not in cluster.ledger.topics
    cluster.crash(cluster.machines[old])
    calm.run_until(lambda: calm.leader() not in (-1, old))
    calm.run(1_000.0)
    assert "huge" not in cluster.ledger.topics
    assert cluster.ledger.open_since is None
    assert cluster.ledger.abort_count == aborted + 1
    calm.create("huge", 40)
    calm.run(2_000.0)
    assert calm.answers[-1][1] is None
    assert len(cluster.ledger.topics["huge"].partitions) == 40
    assert calm.unfenced() == set(cluster.brokers)


@pytest.mark.parametrize("is_fenced_before", [True, False])
def test_row_20_kafka_18106_a_broker_that_is_back_uncleanly_leads_nothing(
    is_fenced_before: bool,
) -> None:
    """Its new incarnation may have lost records, so it leaves all leaderships and ISRs."""
    log = leading(2)
    topic_id = place(log, "orders", [1, 2], [2, 1])
    if is_fenced_before:
        let_expire(log, 1, beating=(2,))
    else:
        back_at_once = log.submit(requests.register_broker(registration(1, incarnation=2)))
        log.settle()
        assert isinstance(log.answers[back_at_once].error, DuplicateBrokerRegistrationError)
        log.controller.sessions._contacts.clear()
    token = log.submit(requests.register_broker(registration(1, incarnation=2)))
    log.settle()
    assert log.answers[token].error is None
    for number in (0, 1):
        state = partition(log, topic_id, number)
        assert (state["leader"], state["isr"]) == (2, [2])


def test_row_22_kafka_13959_caught_up_to_the_registration_is_enough() -> None:
    """In Kafka the end of a busy log was always ahead of the broker, which stayed fenced."""
    log = leading(1)
    log.register(2)
    log.settle()
    registered_at = log.controller.cluster.state.brokers[2].registration_offset
    for number in range(20):
        log.create(f"busy-{number}", 3)
    log.settle()
    behind = log.heartbeat(2, metadata_offset=registered_at - 1)
    log.settle()
    assert log.response(behind).is_fenced
    token = log.heartbeat(2, metadata_offset=registered_at)
    log.settle()
    assert log.end_offset > registered_at + 20
    assert not log.response(token).is_fenced


def test_row_23_kafka_16952_the_same_incarnation_keeps_its_epoch() -> None:
    log = leading(2)
    before = log.controller.cluster.state.brokers[1]
    log.create("orders", 3, 2)
    log.settle()
    token = log.register(1)
    log.settle()
    assert log.response(token) == before.epoch
    after = log.controller.cluster.state.brokers[1]
    assert (after.epoch, after.fenced) == (before.epoch, False)
    stays = log.heartbeat(1)
    log.settle()
    assert not log.response(stays).is_fenced


# -- elections: row 24 (KAFKA-19522) is in tests/unit/controller/topics/test_elections.py


def test_row_27_kafka_15019_heartbeats_come_before_a_long_queue() -> None:
    """In Kafka a thread that was busy longer than a session caused healthy brokers to be fenced."""
    log = leading(3)
    for number in range(400):
        log.create(f"topic-{number}", 2, 3)
    turns = 0
    while len(log.controller.queue):
        # So slow that the queue takes longer than two sessions.
        log.now_ms += 50.0
        turns += 1
        if turns % 40 == 0:
            tokens = [log.heartbeat(broker) for broker in (1, 2, 3)]
            for _ in tokens:
                log.run_once()
            log.commit()
            assert all(token in log.answers for token in tokens), "a heartbeat waited"
        log.run_once()
    assert turns * 50.0 > 2 * SESSION_MS
    log.settle()
    assert not any(each.fenced for each in log.controller.cluster.state.brokers.values())
    assert log.controller.cluster.table.topic_count == 400


def test_row_28_kafka_14735_an_update_of_the_image_names_what_changed_only() -> None:
    """In Kafka each update iterated over all topics of the cluster."""
    log = leading(2)
    images = ImagePublishing(log.controller.cluster)
    for number in range(300):
        log.create(f"topic-{number}", 4, 2)
    log.settle()
    images.publish(log.end_offset)
    since = log.end_offset
    log.create("new", 3, 2)
    log.settle()
    for base_offset, batches in log.batches:
        if base_offset >= since:
            images.note_batches(batches)
    delta = images.publish(log.end_offset)
    assert delta is not None
    assert not delta.is_full
    assert delta.batch_count == 1
    table = delta.image.table
    assert [table.topic_name(number) for number in delta.topics_added] == ["new"]
    assert [end - begin for begin, end in delta.rows_added] == [3]
    assert len(delta.rows_changed) == 0
    assert not delta.changes
    assert table.row_count == 300 * 4 + 3


@pytest.mark.parametrize("kept", range(4))
def test_kafka_20839_the_next_controller_finishes_a_bootstrap_that_was_lost(kept: int) -> None:
    """The first active controller dies; ``kept`` records of its bootstrap are in the log.

    Kafka treats a log that is only an open transaction with a FeatureLevel as bootstrapped. It
    aborts the transaction, and metadata.version stays at the lowest level for ever.
    """
    first = ControllerLog()
    first.take(first.controller.claim(1, first.now_ms, first.end_offset))
    bootstrap = first.written()
    assert [type(record).__name__ for record in bootstrap] == [
        "BeginTransaction",
        "FeatureLevel",
        "EndTransaction",
    ]
    left = Records.of(bootstrap[:kept], LEVEL).batches
    second = ControllerLog()
    if kept:
        second.end_offset = assign_offsets(left, second.end_offset, 1)
        second.batches.append((1, bytes(left)))
        second.controller.apply_committed(left, second.now_ms)
    second.controller.cluster.next_offset = second.end_offset
    second.lead(epoch=2)
    second.settle()
    for cluster in (second.controller.cluster, replayed(second)):
        assert cluster.state.metadata_version == bootstrap[1].feature_level  # type: ignore[attr-defined]
        assert cluster.transaction_start is None
        assert "metadata.version" in cluster.state.features
    names = second.names(1 if kept == 0 else second.batches[0][0])
    assert names.count("FeatureLevel") == (2 if kept == 2 else 1)
    second.brokers(1, 2)
    second.create("works", 2, 2)
    second.settle()
    assert second.controller.cluster.table.partition_count == 2
