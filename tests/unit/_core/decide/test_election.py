"""Elections: the results equal those of Kafka 4.3.1, and an event visits only the rows it needs."""

from __future__ import annotations

import numpy as np
import pytest

from kraft import records
from kraft._core.bytes.batch import BatchBuilder, assign_offsets
from kraft._core.bytes.batch_records import iterate
from kraft._core.decide.election import ElectionContext
from kraft._core.table.table import PartitionTable
from kraft.errors import (
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    UnsupportedVersionError,
)
from kraft.records import Uuid
from kraft.records.batches import encode_records
from tests.reference.election_cases import answer_of_kernel, answer_of_twin, question, read_corpus
from tests.reference.election_twin import Broker, hash_set_order

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)


def partition(topic: Uuid, id: int, replicas: list[int], **fields: object) -> records.Partition:
    given: dict[str, object] = {
        "isr": replicas,
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
    } | fields
    return records.Partition(partition_id=id, topic_id=topic, replicas=replicas, **given)  # type: ignore[arg-type]


def table_of(*rows: records.Partition) -> PartitionTable:
    table = PartitionTable()
    topics = [records.Topic(name="a", topic_id=A), records.Topic(name="b", topic_id=B)]
    table.apply(encode_records([*topics, *rows]))
    return table


def context_of(
    table: PartitionTable, fenced: tuple[int, ...] = (), **switches: object
) -> ElectionContext:
    brokers = [Broker(id, fenced=id in fenced) for id in range(6)]
    return ElectionContext(table, brokers, metadata_version=30, **switches)  # type: ignore[arg-type]


def changes(builder: BatchBuilder) -> list[records.PartitionChange]:
    found = []
    for batch in iterate(builder.finish()):
        for record in batch:
            assert record.value is not None
            change = records.decode_value(record.value)
            assert isinstance(change, records.PartitionChange)
            found.append(change)
    return found


def test_every_event_of_the_corpus_is_answered_as_kafka_answered_it() -> None:
    corpus = read_corpus()
    assert len(corpus) > 500
    for case, answer in corpus:
        assert answer_of_kernel(case) == answer, question(case)
        assert answer_of_twin(case) == answer, question(case)


def test_fencing_visits_only_the_rows_of_the_broker() -> None:
    table = table_of(
        partition(A, 0, [1, 2, 3]), partition(A, 1, [2, 3, 4]), partition(B, 0, [4, 1, 2])
    )
    builder = BatchBuilder()
    assert context_of(table).remove_from_isr(builder, [1]) == 2
    assert changes(builder) == [
        records.PartitionChange(partition_id=0, topic_id=A, isr=[2, 3], leader=2),
        records.PartitionChange(partition_id=0, topic_id=B, isr=[4, 2]),
    ]


def test_a_removed_row_that_the_index_still_lists_gets_no_record() -> None:
    table = table_of(partition(A, 0, [1, 2, 3]), partition(B, 0, [1, 2, 3]))
    table.ensure_index()
    table.start_journal(10)
    gone = encode_records([records.RemoveTopic(topic_id=A)])
    moved = encode_records(
        [records.PartitionChange(partition_id=0, topic_id=B, replicas=[4, 5], isr=[4, 5], leader=4)]
    )
    for offset, batches in ((10, gone), (11, moved)):
        assign_offsets(batches, offset, 1)
        table.apply(batches)
    builder = BatchBuilder()
    assert context_of(table).remove_from_isr(builder, [1]) == 0
    assert context_of(table).remove_from_isr(builder, [4]) == 1
    # Rows beyond the end of the table, which a revert removed, are not visited either.
    table.revert(10)
    more = encode_records([partition(B, 1, [1, 5])])
    assign_offsets(more, 10, 1)
    table.apply(more)
    table.revert(10)
    builder = BatchBuilder()
    assert context_of(table).remove_from_isr(builder, [1]) == 2
    assert [change.topic_id for change in changes(builder)] == [A, B]


def test_deciding_twice_on_one_context_decides_the_same_both_times() -> None:
    context = context_of(table_of(partition(A, 0, [1, 2]), partition(A, 1, [2, 1])))
    first, second = BatchBuilder(), BatchBuilder()
    context.remove_from_isr(first, [1])
    context.remove_from_isr(second, [2])
    context.remove_from_isr(second, [1])
    expected = changes(first)
    assert changes(second)[2:] == expected
    assert [change.leader for change in expected] == [2, -2]


def test_brokers_that_leave_together_elect_once() -> None:
    builder = BatchBuilder()
    table = table_of(partition(A, 0, [1, 2, 3]), partition(A, 1, [1, 2]), partition(A, 2, [3, 4]))
    assert context_of(table).remove_from_isr(builder, [2, 1, 1]) == 2
    assert [(change.isr, change.leader) for change in changes(builder)] == [([3], 3), (None, -1)]


def test_an_isr_never_becomes_empty_while_elr_is_off() -> None:
    builder = BatchBuilder()
    context = context_of(table_of(partition(A, 0, [1])))
    context.remove_from_isr(builder, [1])
    assert changes(builder) == [records.PartitionChange(partition_id=0, topic_id=A, leader=-1)]


def test_with_elr_the_isr_may_be_empty_and_last_known_elr_holds_the_leader() -> None:
    builder = BatchBuilder()
    context = context_of(table_of(partition(A, 0, [1])), is_elr_enabled=True)
    context.remove_from_isr(builder, [1])
    assert changes(builder) == [
        records.PartitionChange(
            partition_id=0,
            topic_id=A,
            leader=-1,
            isr=[],
            eligible_leader_replicas=[1],
            last_known_elr=[1],
        )
    ]


def test_the_min_isr_of_a_topic_is_at_most_the_factor_of_its_first_partition() -> None:
    table = table_of(
        partition(A, 0, [1, 2]), partition(A, 1, [1, 2, 3]), partition(B, 0, [1, 2, 3])
    )
    builder = BatchBuilder()
    context = context_of(table, is_elr_enabled=True, min_isr=5, topic_min_isr={1: 1})
    context.remove_from_isr(builder, [1])
    # The minimum ISR of topic a is 2, the factor of its partition 0, and not 5; topic b's is 1.
    assert [change.eligible_leader_replicas for change in changes(builder)] == [[1], None, None]


def test_an_unfenced_broker_leads_leaderless_partitions() -> None:
    table = table_of(
        partition(A, 0, [1, 2], isr=[1], leader=-1), partition(A, 1, [2, 1], isr=[2], leader=-1)
    )
    builder = BatchBuilder()
    context_of(table, fenced=(1, 2)).elect_leaderless(builder, 1)
    assert changes(builder) == [records.PartitionChange(partition_id=0, topic_id=A, leader=1)]


def test_elections_stop_at_the_limit_of_records() -> None:
    rows = [partition(A, id, [1, 2], leader=2) for id in range(10)]
    builder = BatchBuilder()
    assert context_of(table_of(*rows)).elect_preferred(builder, limit=4) == 4
    builder = BatchBuilder()
    outcomes = context_of(table_of(*rows)).elect_preferred(builder, [9, 3, 3], limit=2)
    assert outcomes.tolist() == [1, 1, 0]
    assert [change.partition_id for change in changes(builder)] == [9, 3]


def test_outcomes_say_which_rows_changed() -> None:
    table = table_of(partition(A, 0, [1, 2], leader=2), partition(A, 1, [3, 2], leader=2, isr=[2]))
    outcomes = context_of(table).elect_preferred(BatchBuilder(), np.array([0, 1], np.int32))
    assert outcomes.tolist() == [1, 0]


def test_active_replicas_join_the_isr_after_its_members() -> None:
    table = table_of(partition(A, 0, [1, 2, 3, 4], isr=[3], leader=3, leader_recovery_state=1))
    builder = BatchBuilder()
    assert context_of(table, fenced=(2,)).expand_isrs(builder) == 1
    assert changes(builder) == [
        records.PartitionChange(partition_id=0, topic_id=A, isr=[3, 1, 4], leader_recovery_state=0)
    ]


def test_more_records_than_a_batch_may_hold_continue_in_the_next_batch() -> None:
    rows = [partition(A, id, [1, 2]) for id in range(10_001)]
    builder = BatchBuilder()
    assert context_of(table_of(*rows)).remove_from_isr(builder, [1]) == 10_001
    assert [batch.record_count for batch in iterate(builder.finish())] == [10_000, 1]


@pytest.mark.parametrize("row", [-1, 1, 5])
def test_a_row_without_a_partition_is_rejected(row: int) -> None:
    context = context_of(table_of(partition(A, 0, [1])))
    builder = BatchBuilder()
    with pytest.raises(InvalidRequestError):
        context.elect_preferred(builder, [row])
    with pytest.raises(InvalidRequestError):
        context.reassign(builder, row, [2])
    assert builder.record_count == 0


@pytest.mark.parametrize("replicas", [[], [1, 1], [-1], list(range(65))])
def test_an_invalid_target_is_rejected(replicas: list[int]) -> None:
    context = context_of(table_of(partition(A, 0, [1])))
    with pytest.raises(InvalidReplicaAssignmentError):
        context.reassign(BatchBuilder(), 0, replicas)


def test_a_reassignment_over_more_than_64_replicas_is_rejected() -> None:
    context = context_of(table_of(partition(A, 0, list(range(40)))))
    with pytest.raises(InvalidReplicaAssignmentError):
        context.reassign(BatchBuilder(), 0, list(range(100, 130)))


def test_only_a_reassignment_can_be_cancelled() -> None:
    context = context_of(table_of(partition(A, 0, [1])))
    with pytest.raises(NoReassignmentInProgressError):
        context.cancel_reassignment(BatchBuilder(), 0)


def test_a_context_needs_whole_directory_ids_and_a_level() -> None:
    table = table_of()
    with pytest.raises(InvalidRequestError):
        ElectionContext(table, [Broker(1, log_dirs=(b"short",))], metadata_version=30)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedVersionError):
        ElectionContext(table, [], metadata_version=0)


def test_a_broker_that_is_added_decides_as_in_a_new_context() -> None:
    one, two, shared, unnamed = (Uuid(bytes([200, number]) * 8) for number in range(4))
    table = table_of(
        partition(A, 0, [1, 2], directories=[one, two]),
        partition(A, 1, [3, 1], directories=[shared, one]),
        partition(A, 2, [4, 5], directories=[shared, unnamed]),
        partition(B, 0, [6, 5], directories=[unnamed, two]),
    )
    brokers = [
        Broker(1, log_dirs=(one, two)),
        Broker(3, log_dirs=(shared,)),
        # Its directory is registered by broker 3 too, as no controller accepts it.
        Broker(4, log_dirs=(shared, unnamed)),
        Broker(5, log_dirs=(Uuid(bytes([9]) * 16),)),
        Broker(6),
        Broker(7, fenced=True, log_dirs=(unnamed,)),
        *(Broker(id, log_dirs=(Uuid(id.to_bytes(16, "big")),)) for id in range(1000, 1200)),
    ]
    built = ElectionContext(table, brokers, metadata_version=30)
    grown = ElectionContext(table, brokers[:1], metadata_version=30)
    # An operation that names a broker before it registers.
    grown.remove_from_isr(BatchBuilder(), [5])
    for broker in brokers[1:]:
        assert grown.update_broker(broker)
    for mine, theirs in zip(grown.row_rules(), built.row_rules(), strict=True):
        assert mine.tolist() == theirs.tolist()
    targets = [[7, 1100], [4, 5], [1, 3]]
    found = []
    for context in (grown, built):
        builder = BatchBuilder()
        context.remove_from_isr(builder, [1, 3])
        for row, replicas in enumerate(targets):
            context.reassign(builder, row, replicas)
        found.append(changes(builder))
    assert found[0] == found[1]
    assert any(Uuid((1100).to_bytes(16, "big")) in (each.directories or ()) for each in found[0])


def test_a_broker_is_not_added_beside_directories_that_the_context_has_not_seen() -> None:
    table = table_of(partition(A, 0, [1]))
    context = ElectionContext(table, [Broker(1)], metadata_version=30)
    late = Uuid(bytes([200]) * 16)
    table.apply(
        encode_records([records.PartitionChange(partition_id=0, topic_id=A, directories=[late])])
    )
    assert not context.knows_directories
    assert not context.update_broker(Broker(2, log_dirs=(late,)))


def test_a_broker_with_other_directories_is_not_updated() -> None:
    one, two = Uuid(bytes([200]) * 16), Uuid(bytes([201]) * 16)
    context = ElectionContext(table_of(), [Broker(1, log_dirs=(one,))], metadata_version=30)
    assert not context.update_broker(Broker(1, log_dirs=(two,)))
    assert context.update_broker(Broker(1, fenced=True, log_dirs=(one,)))
    with pytest.raises(InvalidRequestError):
        context.update_broker(Broker(2, log_dirs=(b"short",)))  # type: ignore[arg-type]


def test_the_twins_hash_set_has_javas_order() -> None:
    # java.util.HashSet printed these orders: 65538 shares bucket 3 with 3, and 16 comes before 1.
    assert hash_set_order([], [3, 1, 2]) == [1, 2, 3]
    assert hash_set_order([16], [0, 1]) == [16, 0, 1]
    assert hash_set_order([65538], [3, 1]) == [1, 65538, 3]
