"""The simulation of whole clusters: checks that can fail."""

import pytest

from kraft import records
from kraft.controller.brokers.producer_ids import ProducerIdBlock
from kraft.controller.topics import topic_creation
from kraft.records import Record, Uuid
from kraft.records.batches import encode_records
from kraft.simulation.batch_tree import Entry, Violation
from kraft.simulation.ledger import Ledger, summary_of
from kraft.simulation.linearizability import (
    Call,
    is_linearizable,
    topic_step,
    value_step,
    without_unread_sets,
)
from kraft.simulation.producer_id_blocks import ProducerIdBlocks
from kraft.simulation.state_storage import load_snapshot
from kraft.simulation.whole_scenario import build, small_chunks

LEVEL = 25


def test_chunks_are_small_only_during_a_run() -> None:
    with small_chunks():
        assert topic_creation.MAX_RECORDS_PER_BATCH == 12
    assert topic_creation.MAX_RECORDS_PER_BATCH == 10_000


# -- histories


def test_unread_sets_do_not_slow_the_search() -> None:
    """With sixty timed-out calls, two of which were read, the search used to take 2^60 steps."""
    unknown = [Call("set", number, float(number)) for number in range(60)]
    reads = [Call("read", None, 100.0 + at, 100.5 + at, ("read", at)) for at in (7, 9)]
    calls = without_unread_sets([*unknown, *reads])
    assert [call.given for call in calls if call.kind == "set"] == [7, 9]
    assert is_linearizable(calls, value_step, None)
    backwards = [Call("read", None, 200.0, 200.5, ("read", 7))]
    assert not is_linearizable([*calls, *backwards], value_step, None)


# -- linearizability


def call(kind: str, given: object, start: float, end: float, outcome: object) -> Call:
    return Call(kind, given, start, end, outcome)  # type: ignore[arg-type]


ONE, OTHER = (b"1", 3), (b"2", 5)


def test_serial_operations_are_linearizable() -> None:
    history = [
        call("create", ONE, 0, 1, "done"),
        call("create", OTHER, 2, 3, "exists"),
        call("grow", 4, 4, 5, "done"),
        call("grow", 4, 6, 7, "few"),
        call("read", None, 8, 9, ("read", (b"1", 4))),
        call("delete", None, 10, 11, "done"),
        call("delete", None, 12, 13, "absent"),
        call("grow", 9, 14, 15, "absent"),
        call("read", None, 16, 17, ("read", None)),
    ]
    assert is_linearizable(history, topic_step, None)


def test_a_lost_acknowledged_operation_is_not_linearizable() -> None:
    history = [call("create", ONE, 0, 1, "done"), call("read", None, 2, 3, ("read", None))]
    assert not is_linearizable(history, topic_step, None)


def test_a_part_of_a_topic_is_not_linearizable() -> None:
    history = [call("create", ONE, 0, 1, "done"), call("read", None, 2, 3, ("read", (b"1", 2)))]
    assert not is_linearizable(history, topic_step, None)


def test_concurrent_operations_may_have_any_order() -> None:
    history = [
        call("create", ONE, 0, 10, "exists"),
        call("create", OTHER, 0, 10, "done"),
        call("read", None, 0, 10, ("read", None)),
    ]
    assert is_linearizable(history, topic_step, None)
    history[2] = call("read", None, 11, 12, ("read", None))
    assert not is_linearizable(history, topic_step, None)


def test_an_operation_of_unknown_outcome_may_happen_later_or_never() -> None:
    unknown = Call("create", ONE, 0)
    assert is_linearizable([unknown], topic_step, None)
    for found in (None, ONE):
        history = [unknown, call("read", None, 50, 51, ("read", found))]
        assert is_linearizable(history, topic_step, None)
    history = [
        unknown,
        call("read", None, 50, 51, ("read", None)),
        call("read", None, 60, 61, ("read", ONE)),
        call("read", None, 70, 71, ("read", None)),
    ]
    assert not is_linearizable(history, topic_step, None), "it cannot be undone"


def test_a_configuration_has_the_last_value_set() -> None:
    history = [
        call("set", "1", 0, 1, "done"),
        call("set", "2", 2, 3, "done"),
        call("read", None, 4, 5, ("read", "1")),
    ]
    assert not is_linearizable(history, value_step, None)
    history[0] = call("set", "1", 0, 4.5, "done")
    assert is_linearizable(history, value_step, None)


def test_producer_ids_are_allocated_once_in_ascending_order() -> None:
    blocks = ProducerIdBlocks()
    blocks.take(ProducerIdBlock(1000, 1000), 0.0, 5.0)
    blocks.take(ProducerIdBlock(0, 1000), 3.0, 6.0)
    with pytest.raises(Violation, match="producer_ids_are_allocated_once"):
        blocks.take(ProducerIdBlock(1500, 1000), 1.0, 7.0)
    blocks.take(ProducerIdBlock(5000, 1000), 6.5, 8.0)
    with pytest.raises(Violation, match="producer_ids_ascend"):
        blocks.take(ProducerIdBlock(2000, 1000), 9.0, 10.0)


# -- the ledger

TOPIC = Uuid(b"t" * 16)


class Written:
    """A log in memory; each batch of records is committed at once."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.last = Entry(None, 0, 0, 0, b"", False)

    def commit(self, *written: Record, epoch: int = 1) -> None:
        base = self.last.end_offset
        data = bytes(encode_records(written, metadata_version=LEVEL, base_offset=base, epoch=epoch))
        self.last = Entry(self.last, base, base + len(written), epoch, data, False)
        self.ledger.take(self.last)


def begun() -> Written:
    log = Written()
    log.commit(
        records.FeatureLevel(name="metadata.version", feature_level=LEVEL),
        records.RegisterBroker(broker_id=1, broker_epoch=1, fenced=False),
        records.RegisterBroker(broker_id=2, broker_epoch=2, fenced=True),
    )
    return log


def partition(leader: int, isr: list[int]) -> records.Partition:
    return records.Partition(
        partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=isr, leader=leader
    )


def test_a_transaction_is_applied_at_its_end() -> None:
    log = begun()
    log.commit(records.BeginTransaction(name="create topics"))
    log.commit(records.Topic(name="orders", topic_id=TOPIC), partition(1, [1]))
    assert log.ledger.topics == {}
    assert log.ledger.is_inside_transaction(log.last.end_offset)
    log.commit(records.EndTransaction())
    assert log.ledger.topics["orders"].partitions == {0}
    assert not log.ledger.is_inside_transaction(log.last.end_offset)
    assert [log.ledger.is_inside_transaction(offset) for offset in range(3, 8)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert summary_of(log.ledger.replay) == log.ledger.summary()


def test_fenced_and_out_of_sync_brokers_do_not_lead() -> None:
    for led in (partition(2, [1, 2]), partition(1, [2])):
        log = begun()
        with pytest.raises(Violation, match="a_leader_is_alive_and_in_sync"):
            log.commit(records.Topic(name="orders", topic_id=TOPIC), led)


def test_a_leader_is_not_fenced_without_a_new_leader() -> None:
    log = begun()
    log.commit(records.Topic(name="orders", topic_id=TOPIC), partition(1, [1]))
    with pytest.raises(Violation, match="a_leader_is_alive_and_in_sync"):
        log.commit(records.BrokerRegistrationChange(broker_id=1, broker_epoch=1, fenced=1))


def test_a_transaction_contains_no_other_records() -> None:
    log = begun()
    log.commit(records.BeginTransaction(name="create topics"))
    with pytest.raises(Violation, match="nothing_between_the_records_of_a_transaction"):
        log.commit(records.NoOp())


def test_the_next_controller_aborts_an_open_transaction_first() -> None:
    log = begun()
    log.commit(records.BeginTransaction(name="create topics"))
    with pytest.raises(Violation, match="the_next_controller_aborts_the_transaction"):
        log.commit(records.Topic(name="orders", topic_id=TOPIC), epoch=2)
    log = begun()
    log.commit(records.BeginTransaction(name="create topics"))
    log.commit(records.AbortTransaction(reason="failover"), epoch=2)
    assert log.ledger.abort_count == 1


def test_a_snapshot_of_the_simulated_disk_is_a_complete_kafka_snapshot() -> None:
    cluster, _ = build(1)
    storage = cluster.machines[1].storage
    ((id, snapshot),) = storage.snapshots.items()
    assert load_snapshot(snapshot.content, id.offset).state.quorum.kraft_version == 1
    assert not storage._is_damaged(snapshot.content)
    damaged = bytearray(snapshot.content)
    damaged[len(damaged) // 2] ^= 1
    assert storage._is_damaged(bytes(damaged))
