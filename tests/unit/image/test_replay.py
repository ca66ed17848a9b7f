"""``MetadataState``: transactions, failures, reverts, snapshots and logs of Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft import records
from kraft.errors import CorruptRecordError, InvalidRequestError, OffsetOutOfRangeError, ReplayError
from kraft.image import diff
from kraft.image.replay import MetadataState
from kraft.metadata.directory import MetadataDirectory
from kraft.records import Record, Uuid
from kraft.records.batches import encode_control_records, encode_records
from tests.harness.metadata_files import read_log
from tests.reference.table_twin import TableTwin, plain

DATA = Path(__file__).parents[2] / "data"
FOUND = [
    MetadataDirectory.find(path.parent)
    for path in sorted(DATA.glob("kafka-*/*/__cluster_metadata-0"))
]
LOGS = [
    pytest.param(
        found.path / "__cluster_metadata-0", id=f"{found.path.parent.name}-{found.path.name}"
    )
    for found in FOUND
    if found.log_start_offset == 0
]
WITH_SNAPSHOTS = [
    pytest.param(snapshot.path, id=f"{found.path.name}-{snapshot.end_offset}")
    for found in FOUND
    for snapshot in found.snapshots
    if found.log_start_offset == 0 and snapshot.end_offset > 0
]

A, B = Uuid(b"\xaa" * 16), Uuid(b"\xbb" * 16)
TOPIC_A = records.Topic(name="a", topic_id=A)
TOPIC_B = records.Topic(name="b", topic_id=B)
BEGIN = records.BeginTransaction(name="create b")
END = records.EndTransaction()
ABORT = records.AbortTransaction(reason="no")
LEVEL = records.FeatureLevel(name="metadata.version", feature_level=25)
SETTING = records.Config(resource_type=2, resource_name="b", name="retention.ms", value="1")


def partition(topic_id: Uuid, number: int) -> records.Partition:
    return records.Partition(
        partition_id=number,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )


BASE = [LEVEL, TOPIC_A, partition(A, 0)]
MADE = [BEGIN, TOPIC_B, partition(B, 0), SETTING, partition(A, 1)]


def feed(cluster: MetadataState, *log: Record) -> None:
    cluster.apply(encode_records(log, base_offset=cluster.next_offset))


def lead(cluster: MetadataState, *, leader_id: int, epoch: int) -> None:
    change = records.LeaderChange(leader_id=leader_id)
    cluster.apply(encode_control_records([change], base_offset=cluster.next_offset, epoch=epoch))


def replayed(log: list[Record], *, journaling: bool = False) -> MetadataState:
    cluster = MetadataState(journaling=journaling)
    feed(cluster, *log)
    return cluster


def meaning(cluster: MetadataState) -> tuple[object, ...]:
    """Return everything that a failed call must not change."""
    return (
        plain(cluster.table),
        {kept.kind: dict(kept) for kept in cluster.state.journaled_maps()},
        cluster.next_offset,
        cluster.stable_offset,
        cluster.transaction_start,
        cluster.transaction_name,
    )


@pytest.mark.parametrize("journaling", [False, True])
def test_a_completed_transaction_equals_its_records_without_one(journaling: bool) -> None:
    cluster = replayed([*BASE, *MADE], journaling=journaling)
    assert cluster.transaction_start == cluster.stable_offset == 3
    assert cluster.transaction_name == "create b"
    feed(cluster, END)
    assert cluster.transaction_start is None
    assert cluster.stable_offset == cluster.next_offset == 9
    assert cluster.table.is_journaling == journaling
    without = replayed([*BASE, *MADE[1:]])
    assert plain(cluster.table) == plain(without.table)
    assert diff(cluster.state, without.state) == []


@pytest.mark.parametrize("journaling", [False, True])
def test_an_aborted_transaction_changes_nothing_in_the_state(journaling: bool) -> None:
    cluster = replayed([*BASE, *MADE, ABORT], journaling=journaling)
    assert cluster.stable_offset == cluster.next_offset == 9
    assert cluster.table.is_journaling == journaling
    assert plain(cluster.table) == plain(replayed(BASE).table)
    assert diff(cluster.state, replayed(BASE).state) == []
    feed(cluster, TOPIC_B)
    assert cluster.table.topic_number("b") >= 0


@pytest.mark.parametrize("journaling", [False, True])
def test_an_abort_keeps_control_records_inside_the_transaction(journaling: bool) -> None:
    """The LeaderChange of a new leader is inside the transaction that it then aborts."""
    cluster = replayed([*BASE, *MADE], journaling=journaling)
    lead(cluster, leader_id=7, epoch=4)
    assert cluster.transaction_start == 3
    feed(cluster, ABORT)
    assert (cluster.state.quorum.leader_id, cluster.state.quorum.leader_epoch) == (7, 4)
    assert plain(cluster.table) == plain(replayed(BASE).table)
    if journaling:
        cluster.revert(3)
        assert (cluster.state.quorum.leader_id, cluster.state.quorum.leader_epoch) == (-1, 0)


def test_dropping_a_transaction_keeps_control_records_inside_it() -> None:
    cluster = replayed([*BASE, *MADE])
    lead(cluster, leader_id=7, epoch=4)
    assert cluster.drop_open_transaction() == 3
    assert (cluster.state.quorum.leader_id, cluster.state.quorum.leader_epoch) == (7, 4)
    assert plain(cluster.table) == plain(replayed(BASE).table)


def test_an_open_transaction_can_be_dropped_at_the_end_of_a_log() -> None:
    cluster = replayed([*BASE, *MADE])
    assert cluster.drop_open_transaction() == 3
    assert cluster.drop_open_transaction() is None
    assert cluster.next_offset == cluster.stable_offset == 8
    assert not cluster.table.is_journaling
    assert plain(cluster.table) == plain(replayed(BASE).table)


def test_a_journal_started_inside_a_transaction_can_still_abort_it() -> None:
    cluster = replayed([*BASE, *MADE])
    cluster.start_journal()
    feed(cluster, partition(A, 2), ABORT)
    assert plain(cluster.table) == plain(replayed(BASE).table)
    assert cluster.table.is_journaling


def test_forgetting_stops_at_an_open_transaction() -> None:
    cluster = replayed([*BASE, *MADE], journaling=True)
    cluster.forget(cluster.next_offset)
    feed(cluster, ABORT)
    assert plain(cluster.table) == plain(replayed(BASE).table)


def test_reverting_into_a_transaction_reopens_it() -> None:
    cluster = replayed([*BASE, *MADE], journaling=True)
    before = meaning(cluster)
    feed(cluster, END, TOPIC_B.replace(name="c", topic_id=Uuid(b"c" * 16)))
    cluster.revert(8)
    assert meaning(cluster) == before
    feed(cluster, ABORT)
    assert plain(cluster.table) == plain(replayed(BASE).table)


def test_reverting_into_an_aborted_transaction_is_rejected() -> None:
    cluster = replayed([*BASE, *MADE, ABORT], journaling=True)
    before = meaning(cluster)
    with pytest.raises(OffsetOutOfRangeError, match="aborted"):
        cluster.revert(5)
    assert meaning(cluster) == before
    cluster.revert(3)
    assert cluster.next_offset == 3
    assert plain(cluster.table) == plain(replayed(BASE).table)


@pytest.mark.parametrize(
    "log", [[END], [ABORT], [BEGIN, BEGIN]], ids=["end", "abort", "begin twice"]
)
def test_transactions_out_of_order_are_rejected(log: list[Record]) -> None:
    cluster = replayed(BASE, journaling=True)
    before = meaning(cluster)
    with pytest.raises(ReplayError, match="transaction"):
        feed(cluster, *log)
    assert meaning(cluster) == before


@pytest.mark.parametrize(
    "log",
    [
        [TOPIC_B, partition(B, 0), TOPIC_B],
        [TOPIC_B, SETTING, partition(Uuid(b"?" * 16), 0)],
        [records.RemoveTopic(topic_id=A), partition(A, 0)],
        [BEGIN, TOPIC_B, TOPIC_B],
        [BEGIN, TOPIC_B, END, TOPIC_B],
        [BEGIN, TOPIC_B, ABORT, TOPIC_A],
        [partition(A, 0).replace(isr=[2]), records.UnregisterBroker(broker_id=9, broker_epoch=1)],
    ],
)
def test_a_failed_call_does_not_change_a_live_state(log: list[Record]) -> None:
    cluster = replayed(
        [*BASE, records.PartitionChange(partition_id=0, topic_id=A, leader=2)], journaling=True
    )
    before = meaning(cluster)
    with pytest.raises(ReplayError):
        feed(cluster, *log)
    assert meaning(cluster) == before
    feed(cluster, TOPIC_B, partition(B, 0))
    assert cluster.table.partition_count == 2


def test_a_failure_inside_a_transaction_leaves_it_open() -> None:
    cluster = replayed([*BASE, *MADE], journaling=True)
    before = meaning(cluster)
    with pytest.raises(ReplayError):
        feed(cluster, END, TOPIC_B)
    assert meaning(cluster) == before


def test_a_failure_after_an_abort_reverts_to_before_the_transaction() -> None:
    # The abort discards the changes of the transaction, so the state before it is the nearest.
    cluster = replayed([*BASE, *MADE], journaling=True)
    with pytest.raises(ReplayError):
        feed(cluster, ABORT, TOPIC_A)
    assert cluster.next_offset == cluster.stable_offset == 3
    assert plain(cluster.table) == plain(replayed(BASE).table)


def test_truncated_bytes_do_not_change_a_live_state() -> None:
    cluster = replayed(BASE, journaling=True)
    before = meaning(cluster)
    good = bytes(encode_records([TOPIC_B], base_offset=3))
    bad = bytes(encode_records([partition(B, 0)], base_offset=4))
    with pytest.raises(CorruptRecordError) as caught:
        cluster.apply(good + bad[:-1], path="some.log", base_position=1000)
    assert (caught.value.path, caught.value.position) == ("some.log", 1000 + len(good))
    assert meaning(cluster) == before


def test_records_that_were_applied_are_skipped() -> None:
    cluster = replayed(BASE, journaling=True)
    before = meaning(cluster)
    cluster.apply(encode_records(BASE))
    assert meaning(cluster) == before
    cluster.apply(encode_records([*BASE, TOPIC_B]))
    assert cluster.next_offset == 4
    assert cluster.table.topic_count == 2


def test_an_image_prevents_a_revert_but_not_the_handling_of_a_failure() -> None:
    cluster = replayed(BASE, journaling=True)
    image = cluster.table.image(cluster.next_offset)
    with pytest.raises(ReplayError):
        feed(cluster, TOPIC_B, TOPIC_B)
    before = meaning(cluster)
    with pytest.raises(InvalidRequestError, match="image as of offset 3"):
        cluster.revert(2)
    assert meaning(cluster) == before
    assert image.topic_numbers() == [0]


def test_a_snapshot_needs_an_empty_state_and_later_records_follow_it() -> None:
    snapshot = encode_records([*BASE, partition(A, 1), partition(A, 2)])
    cluster = MetadataState(journaling=True)
    cluster.apply_snapshot(snapshot, end_offset=2)
    assert cluster.next_offset == 2
    # The five records have offsets within the snapshot file, which are not offsets of the log.
    feed(cluster, TOPIC_B)
    cluster.revert(2)
    assert cluster.table.partition_count == 3
    assert cluster.table.topic_count == 1
    with pytest.raises(ReplayError, match="empty"):
        cluster.apply_snapshot(snapshot, end_offset=9)


@pytest.mark.parametrize("record", [BEGIN, records.RemoveTopic(topic_id=A)])
def test_a_snapshot_holds_state_only(record: Record) -> None:
    with pytest.raises(ReplayError, match="snapshot"):
        MetadataState().apply_snapshot(encode_records([TOPIC_A, record]), end_offset=5)


def whole_log(path: Path) -> list[bytes]:
    return [segment.read_bytes() for segment in sorted(path.glob("*.log"))]


def slow_replay(path: Path, end_offset: int) -> TableTwin:
    """Return a reference table after the records of a log before an offset.

    Open and completed transactions are applied, aborted transactions are undone.
    """
    twin, before = TableTwin(), TableTwin()
    for logged in read_log(path):
        if logged.offset >= end_offset or logged.is_control:
            continue
        if isinstance(logged.record, records.BeginTransaction):
            before = TableTwin()
            before.topics, before.partitions = dict(twin.topics), dict(twin.partitions)
        elif isinstance(logged.record, records.AbortTransaction):
            twin = before
        else:
            twin.apply(logged.record)
    return twin


@pytest.mark.parametrize("path", LOGS)
def test_an_open_transaction_is_not_part_of_the_state(path: Path) -> None:
    cluster = MetadataState()
    for segment in whole_log(path):
        cluster.apply(segment)
    stable_offset = cluster.stable_offset
    is_open = stable_offset < cluster.next_offset
    assert is_open == path.parent.name.endswith("-open")
    assert cluster.drop_open_transaction() == (stable_offset if is_open else None)
    assert plain(cluster.table) == slow_replay(path, stable_offset).plain()


def offsets_of_aborted_transactions(path: Path) -> set[int]:
    """Return the offsets that no revert can reach: after a transaction's begin, up to its abort."""
    offsets: set[int] = set()
    start = 0
    for logged in read_log(path):
        if isinstance(logged.record, records.BeginTransaction):
            start = logged.offset
        elif isinstance(logged.record, records.AbortTransaction):
            offsets.update(range(start + 1, logged.offset + 1))
    return offsets


@pytest.mark.parametrize("path", LOGS)
def test_a_log_of_kafka_gives_the_same_state_as_the_twin(path: Path) -> None:
    cluster = MetadataState(journaling=True)
    for segment in whole_log(path):
        cluster.apply(segment)
    assert cluster.next_offset > 0
    assert plain(cluster.table) == slow_replay(path, cluster.next_offset).plain()
    gone = offsets_of_aborted_transactions(path)
    end = cluster.next_offset
    for offset in sorted({end * part // 7 for part in range(7)} - gone, reverse=True):
        cluster.revert(offset)
        assert plain(cluster.table) == slow_replay(path, offset).plain()


@pytest.mark.parametrize("snapshot", WITH_SNAPSHOTS)
def test_a_snapshot_and_later_records_give_the_same_state_as_the_whole_log(snapshot: Path) -> None:
    whole, tail = MetadataState(), MetadataState()
    tail.apply_snapshot(snapshot.read_bytes(), end_offset=int(snapshot.name[:20]))
    for segment in whole_log(snapshot.parent):
        whole.apply(segment)
        tail.apply(segment)
    assert whole.next_offset == tail.next_offset
    assert plain(whole.table) == plain(tail.table)
    assert diff(whole.state, tail.state) == []


def test_recorded_data_exists() -> None:
    assert LOGS
    assert WITH_SNAPSHOTS
