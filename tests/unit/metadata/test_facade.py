"""The library as users call it: open a state, read it, go back, change it and write it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kraft
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.log.log import Log
from kraft._core.snapshot.snapshot_file import SnapshotReader
from kraft.errors import (
    BrokerIdNotRegisteredError,
    InvalidRequestError,
    PolicyViolationError,
    ReplayError,
    TopicAlreadyExistsError,
)
from kraft.metadata.facade import Metadata
from kraft.records import (
    AbortTransaction,
    BeginTransaction,
    BrokerRegistrationChange,
    Config,
    EndTransaction,
    FeatureLevel,
    PartitionChange,
    Record,
    RegisterBroker,
    Topic,
    Uuid,
    encode_value,
)
from kraft.records.versions import MetadataVersion

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3"
CONTROLLER = DATA / "controller-101"
SESSION = {"consumer.session.timeout.ms": "50000"}
STATIC_QUORUM = DATA.parent / "kafka-3.9" / "controller-101"


def meaning(metadata: Metadata) -> dict[tuple[str, int], object]:
    """Return every partition by topic and id, independent of its row."""
    return {(info.topic, info.partition): info for info in metadata.partitions}


def files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture
def metadata() -> Metadata:
    return kraft.open_metadata(CONTROLLER)


def test_opening_changes_nothing_on_disk() -> None:
    before = files(CONTROLLER)
    metadata = kraft.open_metadata(CONTROLLER)
    metadata.at(metadata.source.offset_range[0])  # type: ignore[union-attr]
    assert files(CONTROLLER) == before


def test_columns_are_views_of_the_tables_memory(metadata: Metadata) -> None:
    leader = metadata.partitions.leader
    assert leader.base is not None
    assert not leader.flags.writeable
    assert np.shares_memory(leader, metadata.partitions.leader)
    assert len(metadata.partitions) == len(leader)
    with pytest.raises(AttributeError):
        _ = metadata.partitions.no_such_column


def test_matrix_and_members_equal_the_rows(metadata: Metadata) -> None:
    partitions = metadata.partitions
    isr, replicas = partitions.members("isr"), partitions.replica_matrix()
    sizes, counts = partitions.isr_size(), partitions.replica_count()
    for row in range(len(partitions)):
        info = partitions.row(row)
        assert tuple(isr[row][: sizes[row]]) == info.isr
        assert tuple(replicas[row][: counts[row]]) == info.replicas
        assert metadata.topics[info.topic].rows[info.partition] == row


def test_a_fenced_broker_leads_nothing_once_the_records_are_applied(metadata: Metadata) -> None:
    broker = next(id for id, each in metadata.brokers.items() if not each.fenced)
    before = meaning(metadata)
    records = metadata.fence_broker(broker)
    assert meaning(metadata) == before, "deciding changes nothing"
    metadata.apply(records)
    assert broker not in metadata.partitions.leader
    assert metadata.brokers[broker].fenced
    metadata.revert(metadata.next_offset - len(records))
    assert meaning(metadata) == before
    assert not metadata.brokers[broker].fenced


def test_at_returns_the_state_as_of_every_available_offset(metadata: Metadata) -> None:
    first, last = metadata.source.offset_range  # type: ignore[union-attr]
    for offset in (first, (first + last) // 2, last):
        past = metadata.at(offset)
        assert past.next_offset == offset
        assert meaning(past) == meaning(kraft.open_metadata(CONTROLLER, at=offset))
    with pytest.raises(kraft.OffsetOutOfRangeError, match=str(last)):
        metadata.at(last + 1)


def test_at_includes_applied_records(metadata: Metadata) -> None:
    start = metadata.next_offset
    metadata.apply(metadata.create_topic("first", 3, 2))
    middle = metadata.next_offset
    metadata.apply(metadata.create_topic("second", 1, 1))
    assert "first" not in metadata.at(start).topics
    assert "first" in metadata.at(middle).topics
    assert "second" not in metadata.at(middle).topics


def test_a_topic_is_created_gets_partitions_and_is_deleted(metadata: Metadata) -> None:
    metadata.apply(metadata.create_topic("orders-2", 4, 2, configs={"retention.ms": "1000"}))
    assert metadata.configs.topic("orders-2") == {"retention.ms": "1000"}
    with pytest.raises(TopicAlreadyExistsError):
        metadata.create_topic("orders-2", 1, 1)
    metadata.apply(metadata.create_partitions("orders-2", 6))
    assert metadata.topics["orders-2"].partition_count == 6
    assert metadata.partitions.find("orders-2", 5).isr
    metadata.apply(metadata.delete_topic("orders-2"))
    assert "orders-2" not in metadata.topics
    assert not metadata.configs.topic("orders-2")


def test_a_rejected_record_changes_nothing(metadata: Metadata) -> None:
    before, offset = meaning(metadata), metadata.next_offset
    good = Topic(name="good", topic_id=Uuid(bytes(range(16))))
    bad = PartitionChange(partition_id=0, topic_id=Uuid(b"\xff" * 16), leader=1)
    with pytest.raises(ReplayError):
        metadata.apply([good, bad])
    assert meaning(metadata) == before
    assert "good" not in metadata.topics
    assert metadata.next_offset == offset
    assert metadata.pending == 0


def test_unknown_brokers_are_rejected(metadata: Metadata) -> None:
    with pytest.raises(BrokerIdNotRegisteredError, match="99"):
        metadata.fence_broker(99)


def test_records_are_ordered_and_filtered_by_type(metadata: Metadata) -> None:
    offsets = [each.offset for each in metadata.records()]
    assert offsets == sorted(offsets)
    assert offsets[-1] == metadata.next_offset - 1
    changes = list(metadata.records("PartitionChangeRecord", since=offsets[len(offsets) // 2]))
    assert changes
    assert all(isinstance(each.record, PartitionChange) for each in changes)
    with pytest.raises(InvalidRequestError, match="PartitionChange"):
        list(metadata.records("NoSuchRecord"))


def test_applied_records_can_be_appended_to_the_log(tmp_path: Path, metadata: Metadata) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    metadata.apply(metadata.create_topic("written", 5, 2))
    metadata.apply([Config(resource_type=2, resource_name="written", name="a", value="b")])
    with Log.open(directory / "__cluster_metadata-0") as log:
        first, last = metadata.append(log)  # type: ignore[misc]
        assert last + 1 == metadata.next_offset
        assert log.synced_offset == metadata.next_offset
        assert metadata.append(log) is None
    again = kraft.open_metadata(directory)
    assert meaning(again) == meaning(metadata)
    assert again.state == metadata.state
    assert kraft.open_metadata(directory, at=first).topics.keys() == (
        kraft.open_metadata(CONTROLLER).topics.keys()
    )


def test_a_log_with_another_end_offset_is_rejected(tmp_path: Path, metadata: Metadata) -> None:
    metadata.apply(metadata.create_topic("written", 1, 1))
    with (
        Log.open(tmp_path / "log") as log,
        pytest.raises(InvalidRequestError, match="ends at offset 0"),
    ):
        metadata.append(log)


@pytest.mark.parametrize("columns", [True, False])
def test_a_snapshot_holds_the_state(tmp_path: Path, metadata: Metadata, columns: bool) -> None:
    metadata.apply(metadata.create_topic("snapshotted", 7, 3))
    path = metadata.write_snapshot(tmp_path, columns=columns)
    assert path.name == f"{metadata.next_offset:020d}-{metadata.epoch:010d}.checkpoint"
    assert path.with_suffix(".columns").exists() == columns
    again = kraft.open_metadata(path)
    assert meaning(again) == meaning(metadata)
    assert again.state == metadata.state
    assert again.next_offset == metadata.next_offset


def timestamp_of(snapshot: Path) -> int:
    return SnapshotReader(snapshot).info.last_contained_log_timestamp_ms


def test_a_snapshot_has_the_append_time_of_its_last_record(
    tmp_path: Path, metadata: Metadata
) -> None:
    appended = {record.offset: record.timestamp_ms for record in metadata.records()}
    # The end offsets of groups of records with the same append time.
    ends = [at for at in range(20, max(appended) + 1) if appended[at] != appended[at - 1]]
    assert len(ends) > 3
    for at in (ends[0], ends[len(ends) // 2], ends[-1]):
        opened = kraft.open_metadata(CONTROLLER, at=at).write_snapshot(tmp_path / f"opened-{at}")
        assert timestamp_of(opened) == appended[at - 1]
        seen = metadata.at(at).write_snapshot(tmp_path / f"seen-{at}")
        assert timestamp_of(seen) == appended[at - 1]
    newest = metadata.write_snapshot(tmp_path / "newest")
    assert timestamp_of(newest) == appended[max(appended)]


@pytest.mark.parametrize("seed", [CONTROLLER, STATIC_QUORUM])
@pytest.mark.parametrize("columns", [True, False])
def test_a_snapshot_without_its_log_keeps_its_time_and_epoch(
    tmp_path: Path, seed: Path, columns: bool
) -> None:
    metadata = kraft.open_metadata(seed)
    alone = metadata.write_snapshot(tmp_path, timestamp_ms=1_234_567, columns=columns)
    opened = kraft.open_metadata(alone)
    assert opened.epoch == metadata.epoch > 0
    again = opened.write_snapshot(tmp_path / "again")
    assert again.name == alone.name
    assert timestamp_of(again) == 1_234_567


def test_records_applied_since_count_for_the_time_of_a_snapshot(
    tmp_path: Path, metadata: Metadata
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    before = metadata.next_offset
    log_time = timestamp_of(metadata.write_snapshot(tmp_path / "before"))
    later, latest = (
        Topic(name=name, topic_id=Uuid(name.encode() * 4)) for name in ("late", "last")
    )
    metadata.apply(later, timestamp_ms=log_time + 10)
    behind_first = metadata.next_offset
    metadata.apply(latest, timestamp_ms=log_time + 20)
    assert timestamp_of(metadata.write_snapshot(tmp_path / "all")) == log_time + 20
    assert timestamp_of(metadata.at(before).write_snapshot(tmp_path / "0")) == log_time
    assert timestamp_of(metadata.at(behind_first).write_snapshot(tmp_path / "1")) == log_time + 10
    metadata.revert(behind_first)
    assert timestamp_of(metadata.write_snapshot(tmp_path / "2")) == log_time + 10
    with Log.open(directory / "__cluster_metadata-0") as log:
        metadata.append(log)
    assert timestamp_of(metadata.write_snapshot(tmp_path / "3")) == log_time + 10


def test_a_damaged_column_checkpoint_is_ignored(tmp_path: Path, metadata: Metadata) -> None:
    path = metadata.write_snapshot(tmp_path)
    columns = path.with_suffix(".columns")
    damaged = bytearray(columns.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    columns.write_bytes(damaged)
    assert meaning(kraft.open_metadata(path)) == meaning(metadata)


def test_records_of_an_open_transaction_are_not_part_of_the_state(
    tmp_path: Path, metadata: Metadata
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    before = meaning(metadata)
    metadata.apply([BeginTransaction(name="half")])
    metadata.apply(metadata.create_topic("unfinished", 2, 1))
    with Log.open(directory / "__cluster_metadata-0") as log:
        metadata.append(log)
    again = kraft.open_metadata(directory)
    assert meaning(again) == before
    assert again.next_offset == metadata.next_offset
    with pytest.raises(InvalidRequestError, match="inside the metadata transaction"):
        again.write_snapshot(tmp_path)


def test_first_records_are_applied_to_an_empty_cluster(tmp_path: Path) -> None:
    empty = Metadata()
    empty.apply([FeatureLevel(name="metadata.version", feature_level=30)])
    empty.apply([Topic(name="first", topic_id=Uuid(bytes(range(16))))])
    assert empty.metadata_version == 30
    path = empty.write_snapshot(tmp_path / "new")
    assert "first" in kraft.open_metadata(path).topics


def test_a_torn_tail_is_skipped_and_reported(tmp_path: Path, metadata: Metadata) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    newest = max((directory / "__cluster_metadata-0").glob("*.log"))
    size = newest.stat().st_size
    with newest.open("r+b") as file:
        file.truncate(size - 5)
    again = kraft.open_metadata(directory)
    assert again.source is not None
    torn = again.source.torn_tail
    assert torn is not None
    assert torn.offset == again.next_offset < metadata.next_offset
    assert newest.stat().st_size == size - 5, "opening never changes a directory"


def test_damage_before_valid_batches_raises_and_is_salvaged(tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    newest = max((directory / "__cluster_metadata-0").glob("*.log"))
    with newest.open("r+b") as file:
        file.seek(newest.stat().st_size // 3)
        file.write(b"\xff" * 8)
    with pytest.raises(kraft.DamagedLogError) as refused:
        kraft.open_metadata(directory)
    assert refused.value.path is not None
    assert refused.value.position >= 0


def test_arrow_has_a_row_for_each_partition(metadata: Metadata) -> None:
    pytest.importorskip("pyarrow")
    table = metadata.to_arrow()
    by_name = {(row["topic"], row["partition"]): row for row in table.to_pylist()}
    assert by_name.keys() == meaning(metadata).keys()
    for key, info in meaning(metadata).items():
        assert tuple(by_name[key]["isr"]) == info.isr  # type: ignore[attr-defined]
        assert tuple(by_name[key]["replicas"]) == info.replicas  # type: ignore[attr-defined]


def test_importing_kraft_imports_neither_numba_nor_spark_nor_pyarrow() -> None:
    code = (
        "import sys, kraft; "
        "print([m for m in ('numba', 'pyspark', 'pyarrow', 'kio', 'typer', 'jpype')"
        " if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout.strip() == "[]", printed.stderr


def two_batches(metadata: Metadata) -> tuple[memoryview, int]:
    """Return a decision of two batches and the offset of the second, which fences a broker."""
    records: list[Record] = [Config(2, "payments", f"setting-{each}", "1") for each in range(3)]
    records.append(BrokerRegistrationChange(1, metadata.brokers[1].epoch, fenced=1))
    builder = BatchBuilder(max_batch_records=3)
    for record in records:
        builder.append(encode_value(record, metadata_version=metadata.metadata_version))
    return builder.finish(), metadata.next_offset + 3


def test_a_reverted_batch_of_a_decision_is_not_written(tmp_path: Path, metadata: Metadata) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    batches, middle = two_batches(metadata)
    metadata.apply(batches)
    assert metadata.brokers[1].fenced
    metadata.revert(middle)
    assert metadata.pending == 3
    with Log.open(directory / "__cluster_metadata-0") as log:
        assert metadata.append(log) == (middle - 3, middle - 1)
    again = kraft.open_metadata(directory)
    assert not again.brokers[1].fenced
    assert again.state == metadata.state


def test_a_decision_after_a_partial_revert_is_written_after_the_rest(
    tmp_path: Path, metadata: Metadata
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    batches, middle = two_batches(metadata)
    metadata.apply(batches)
    metadata.revert(middle)
    metadata.apply([Config(2, "payments", "another", "2")])
    assert metadata.at(metadata.next_offset).state == metadata.state
    with Log.open(directory / "__cluster_metadata-0") as log:
        metadata.append(log)
    assert kraft.open_metadata(directory).state == metadata.state


def test_written_records_of_an_open_transaction_are_not_reverted(
    tmp_path: Path, metadata: Metadata
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    start = metadata.apply([BeginTransaction(name="half")])
    with Log.open(directory / "__cluster_metadata-0") as log:
        metadata.append(log)
    with pytest.raises(kraft.OffsetOutOfRangeError, match="written"):
        metadata.revert(start)


def test_states_and_records_are_available_after_writing(tmp_path: Path, metadata: Metadata) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    start = metadata.apply(metadata.create_topic("first", 2, 1))
    end = metadata.apply(metadata.create_topic("second", 2, 1))
    with Log.open(directory / "__cluster_metadata-0") as log:
        metadata.append(log)
    assert metadata.at(metadata.next_offset).state == metadata.state
    assert "second" not in metadata.at(end).topics
    assert [each.offset for each in metadata.records(since=start)] == list(
        range(start, metadata.next_offset)
    )


def test_a_past_state_rejects_a_contradiction_and_does_not_change() -> None:
    past = Metadata().at(0)
    bad = PartitionChange(partition_id=0, topic_id=Uuid(b"\xff" * 16), leader=1)
    with pytest.raises(ReplayError):
        past.apply([Topic(name="good", topic_id=Uuid(bytes(range(16)))), bad])
    assert "good" not in past.topics
    assert past.next_offset == 0


def test_a_contradiction_after_the_end_of_a_transaction_reverts_nothing(
    metadata: Metadata,
) -> None:
    start = metadata.apply([BeginTransaction(), Config(2, "payments", "a", "1")])
    bad = PartitionChange(partition_id=0, topic_id=Uuid(b"\xff" * 16), leader=1)
    with pytest.raises(ReplayError):
        metadata.apply([AbortTransaction(), bad])
    assert metadata.next_offset == start + 2
    assert metadata.configs.topic("payments")["a"] == "1"


def test_nothing_is_appended_inside_a_transaction_that_the_state_excludes(
    tmp_path: Path, metadata: Metadata
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(CONTROLLER, directory)
    metadata.apply([BeginTransaction(name="half")])
    with Log.open(directory / "__cluster_metadata-0") as log:
        metadata.append(log)
    again = kraft.open_metadata(directory)
    again.apply([Config(2, "payments", "lost", "1")])
    with (
        Log.open(directory / "__cluster_metadata-0") as log,
        pytest.raises(InvalidRequestError, match="inside the transaction"),
    ):
        again.append(log)


def test_topics_are_compared_by_value(metadata: Metadata) -> None:
    assert metadata.topics["payments"] == metadata.topics["payments"]
    assert metadata.topics["payments"] in {metadata.topics["payments"]}
    before = metadata.topics["payments"]
    metadata.apply(metadata.create_partitions("payments", 6))
    assert metadata.topics["payments"] != before


def cluster_at(level: int) -> Metadata:
    """Return the metadata of a cluster of two brokers at a metadata.version."""
    metadata = Metadata()
    brokers = [RegisterBroker(each, broker_epoch=0, fenced=False) for each in (1, 2)]
    metadata.apply([FeatureLevel("metadata.version", level), *brokers])
    return metadata


def test_a_decision_of_any_size_is_one_metadata_transaction() -> None:
    metadata = cluster_at(MetadataVersion.IBP_4_0_IV3)
    first = metadata.next_offset
    created = metadata.create_topic("large", 25_000, 1)
    assert len(created) == 1 + 1 + 25_000 + 1
    assert created[0] == BeginTransaction(name="create topic")
    assert created[-1] == EndTransaction()
    assert metadata.apply(created) == first
    assert metadata.next_offset == first + len(created)
    assert len(metadata.partitions) == 25_000
    metadata.apply(metadata.create_partitions("large", 50_000))
    assert len(metadata.partitions) == 50_000
    leaders = metadata.partitions.leader[metadata.topics["large"].rows].tolist()
    moved = metadata.alter_partition_reassignments(
        {("large", each): [3 - led] for each, led in enumerate(leaders)}
    )
    assert len(moved) == 1 + 50_000 + 1
    metadata.apply(moved)
    altered = metadata.incremental_alter_configs(
        {(32, f"group-{each}"): SESSION for each in range(10_001)}
    )
    assert len(altered) == 1 + 10_001 + 1
    metadata.apply(altered)
    assert metadata.configs[32, "group-10000"] == SESSION
    metadata.revert(first)
    assert len(metadata.partitions) == 0


def test_without_transactions_too_many_records_raise_and_the_error_advises() -> None:
    metadata = cluster_at(MetadataVersion.IBP_3_5_IV2)
    with pytest.raises(PolicyViolationError, match="add the rest by create_partitions"):
        metadata.create_topic("large", 20_000, 1)
    metadata.apply(metadata.create_topic("large", 9_999, 1))
    with pytest.raises(PolicyViolationError, match="add fewer at a time"):
        metadata.create_partitions("large", 20_000)
    metadata.apply(metadata.create_partitions("large", 19_999))
    assert len(metadata.partitions) == 19_999
    leaders = metadata.partitions.leader[metadata.topics["large"].rows[:10_001]].tolist()
    with pytest.raises(PolicyViolationError, match="reassign fewer partitions"):
        metadata.alter_partition_reassignments(
            {("large", each): [3 - led] for each, led in enumerate(leaders)}
        )
    with pytest.raises(PolicyViolationError, match="alter fewer settings"):
        metadata.incremental_alter_configs(
            {(32, f"group-{each}"): SESSION for each in range(10_001)}
        )
