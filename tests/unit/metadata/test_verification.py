"""``kraft.verify``: recorded directories are sound, and findings name each contradicting file."""

from __future__ import annotations

import shutil
import struct
from contextlib import closing
from pathlib import Path

import pytest

import kraft
from kraft._core.bytes.batch import assign_offsets, scan
from kraft._core.log.log import Log
from kraft.errors import DamagedLogError, StorageError
from kraft.metadata.directory import METADATA_LOG
from kraft.metadata.facade import Metadata
from kraft.metadata.known_kafka_faults import KEPT_TRANSACTION
from kraft.metadata.verification import MOST_LISTED, verify, work_of
from kraft.metadata.verification_findings import Severity, VerificationFinding
from kraft.raft.interface import AppendBatches, WriteElectionState
from kraft.records import (
    AbortTransaction,
    BeginTransaction,
    Config,
    FeatureLevel,
    NoOp,
    Record,
    RemoveTopic,
    Topic,
    Uuid,
    ZkMigrationState,
)
from kraft.records.batches import encode_records
from tests.harness.metadata_files import overwrite
from tests.harness.metadata_store import append, begin_epoch, open_store, stamped

DATA = Path(__file__).parents[2] / "data"
CONTROLLER = DATA / "kafka-4.3" / "controller-101"
BROKER = DATA / "kafka-4.3" / "broker-1"
RELEASES = ("3.7", "4.0", "4.1", "4.2")
QUORUMS = (
    ("kafka-4.3/controller-101", "kafka-4.3/controller-103", "kafka-4.3/broker-1"),
    ("kafka-3.9/controller-101", "kafka-3.9/broker-1"),
    ("kafka-4.3-transaction/controller-201",),
    ("kafka-4.3-transaction/controller-201-open",),
    *((f"kafka-{one}/controller-101", f"kafka-{one}/broker-1") for one in RELEASES),
)
ORDERS = Uuid(b"orders----------")
LEVEL = FeatureLevel("metadata.version", 21)


@pytest.mark.parametrize("nodes", QUORUMS, ids=lambda nodes: nodes[0])
def test_kafkas_directories_are_sound(nodes: tuple[str, ...]) -> None:
    reported: list[int] = []
    paths = [DATA / node for node in nodes]
    found = verify(paths, advance=reported.append)
    assert found.findings == []
    assert found.is_sound
    assert [each.path for each in found.directories] == paths
    assert reported == sorted(reported)
    assert 0 < reported[-1] <= work_of(paths)


def test_every_snapshot_but_the_first_of_a_shortened_log_is_replayed() -> None:
    (whole, shortened) = verify([CONTROLLER, DATA / "kafka-4.3" / "controller-103"]).directories
    # The replay begins with the snapshot at offset 0, which has the first voters.
    assert (whole.snapshots, whole.snapshot_count) == (2, 3)
    assert (shortened.snapshots, shortened.snapshot_count) == (1, 2)


def test_a_path_without_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no metadata log"):
        kraft.verify(tmp_path)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CONTROLLER, tmp_path / "101"))


def only(
    directory: Path | list[Path], severity: Severity = Severity.CONTRADICTION
) -> VerificationFinding:
    (finding,) = verify(directory).findings
    assert finding.severity is severity
    return finding


def batch_end(directory: Path, offset: int) -> int:
    """Return the end offset of the batch that has an offset."""
    with Log.open(directory / METADATA_LOG, read_only=True) as log:
        return next(log.batches(offset)).last_offset + 1


# The log compared with snapshots


def written(directory: Path, *logged: Record) -> Metadata:
    """Append records to the log of a directory, one batch each; return its metadata."""
    with Log.open(directory / METADATA_LOG) as log:
        for record in logged:
            log.append(encode_records([record], base_offset=log.log_end_offset))
    return kraft.open_metadata(directory)


def with_snapshot(directory: Path, *said: Record) -> None:
    """Add the snapshot of another log of the same length, which has other records."""
    other = written(directory.with_name("other"), *said)
    shutil.copy(
        other.write_snapshot(directory.with_name("s"), columns=False), directory / METADATA_LOG
    )


def test_configs_that_kafka_keeps_of_a_deleted_topic_are_known(
    tmp_path: Path,
) -> None:
    logged = (
        Topic("orders", ORDERS),
        Config(2, "orders", "retention.ms", "1"),
        RemoveTopic(ORDERS),
    )
    written(tmp_path / "node", LEVEL, *logged)
    with_snapshot(
        tmp_path / "node", LEVEL, Config(2, "orders", "retention.ms", "1"), NoOp(), NoOp()
    )
    finding = only(tmp_path / "node", Severity.KNOWN)
    assert finding.offset == 4
    assert finding.path.name == "00000000000000000004-0000000000.checkpoint"
    assert finding.other == tmp_path / "node" / METADATA_LOG
    assert "retention.ms is only in the snapshot" in finding.message
    assert "ConfigurationsDelta" in str(finding)
    assert verify(tmp_path / "node").is_sound


def test_records_that_kafka_keeps_of_an_aborted_transaction_are_known(tmp_path: Path) -> None:
    setting = Config(2, "orders", "retention.ms", "1")
    aborted = (BeginTransaction(), Topic("orders", ORDERS), setting, AbortTransaction(), NoOp())
    written(tmp_path / "node", LEVEL, *aborted)
    with_snapshot(
        tmp_path / "node", LEVEL, Topic("orders", ORDERS), setting, NoOp(), NoOp(), NoOp()
    )
    found = verify(tmp_path / "node")
    assert found.is_sound
    assert [each.reason for each in found.findings] == [KEPT_TRANSACTION] * 2
    assert [each.message.split()[0] for each in found.findings] == ["topic", "config"]


def test_a_setting_of_a_topic_that_was_not_deleted_is_a_contradiction(tmp_path: Path) -> None:
    written(tmp_path / "node", LEVEL, Topic("orders", ORDERS), NoOp())
    setting = Config(2, "orders", "ssl.keystore.password", "sesame")
    with_snapshot(tmp_path / "node", LEVEL, Topic("orders", ORDERS), setting)
    finding = only(tmp_path / "node")
    assert "ssl.keystore.password is only in the snapshot" in finding.message
    assert "sesame" not in str(finding)


def test_a_migration_state_that_kafka_4_dropped_is_known(tmp_path: Path) -> None:
    written(tmp_path / "node", LEVEL, ZkMigrationState(zk_migration_state=3))
    with_snapshot(tmp_path / "node", LEVEL, NoOp())
    assert "Kafka 4.0 and later drop" in str(only(tmp_path / "node", Severity.KNOWN))


def test_differences_beyond_the_first_are_counted(tmp_path: Path) -> None:
    settings = [Config(4, "", f"name-{number}", "1") for number in range(MOST_LISTED + 5)]
    written(tmp_path / "node", LEVEL, *(NoOp() for _ in settings))
    with_snapshot(tmp_path / "node", LEVEL, *settings)
    found = verify(tmp_path / "node").findings
    assert len(found) == MOST_LISTED + 1
    assert found[-1].message == "and 5 more differences from the replayed log"


def test_a_snapshot_of_another_epoch_and_one_that_ends_inside_a_batch(copy: Path) -> None:
    directory = copy / METADATA_LOG
    end = batch_end(copy, 1600)
    snapshot = kraft.open_metadata(copy, at=end).write_snapshot(directory, columns=False)
    renamed = directory / f"{end:020d}-0000000002.checkpoint"
    content = bytearray(snapshot.read_bytes())
    assign_offsets(content, 0, 2)
    snapshot.unlink()
    renamed.write_bytes(content)
    finding = only(copy)
    assert (finding.path, finding.offset) == (renamed, end)
    assert "is of epoch 2; the last record before its end is of epoch 1" in finding.message
    segment = directory / f"{0:020d}.log"
    headers = scan(segment.read_bytes())
    long = int((headers.last_offset_deltas > 0).nonzero()[0][0])
    inside = int(headers.base_offsets[long]) + 1
    renamed.rename(directory / f"{inside:020d}-0000000001.checkpoint")
    assign_offsets(content, 0, 1)
    (directory / f"{inside:020d}-0000000001.checkpoint").write_bytes(content)
    assert "ends inside the batch" in only(copy).message


def test_a_damaged_snapshot_is_named_and_the_others_are_replayed(copy: Path) -> None:
    newest = max((copy / METADATA_LOG).glob("*.checkpoint"))
    overwrite(newest, 700, b"????")
    finding = only(copy)
    assert finding.path == newest
    assert "CRC" in finding.message


# The log compared with the files beside it


def test_a_record_that_contradicts_those_before_it_is_named(tmp_path: Path) -> None:
    with Log.open(tmp_path / METADATA_LOG) as log:
        log.append(encode_records([LEVEL], epoch=1))
        log.append(encode_records([RemoveTopic(ORDERS)], base_offset=1, epoch=1))
    finding = only(tmp_path)
    assert finding.offset == 1
    assert "contradicts those before it" in finding.message


def test_a_gap_is_a_contradiction_and_a_torn_tail_a_note(copy: Path) -> None:
    newest = max((copy / METADATA_LOG).glob("*.log"))
    whole = newest.read_bytes()
    # The indexes have entries for the batch that is not complete any more.
    newest.write_bytes(whole[:-5])
    torn = only(copy, Severity.NOTE)
    assert "interrupted write" in torn.message
    newest.write_bytes(whole)
    headers = scan(whole)
    overwrite(newest, int(headers.positions[-3]) + 40, b"?")
    gap = only(copy)
    assert gap.offset == headers.base_offsets[-3]
    assert f"up to offset {headers.base_offsets[-2]}" in gap.message


# A log that a restart empties


def node_killed_in_an_installation(home: Path, extra_records: int) -> tuple[Path, Path]:
    """Return a directory whose latest snapshot is not of its log, and that snapshot.

    Its log has records of epoch 4 only, the last ``extra_records`` from a leader that lost.
    """
    leader, node = home / "leader", home / "node"
    for directory in (leader, node):
        with closing(open_store(directory)) as store:
            store.perform(WriteElectionState(4, -1, -1, None, 0))
            begin_epoch(store, 4)
            base = store.log.log_end_offset
            level = stamped([LEVEL], base, 4, is_control=False)
            store.perform(AppendBatches(base, base + 1, level))
            append(store, 20, epoch=4)
            if directory == node and extra_records:
                append(store, extra_records, epoch=4)
            if directory == leader:
                store.perform(WriteElectionState(6, -1, -1, None, 0))
                begin_epoch(store, 6)
                base = store.log.log_end_offset
                topic = stamped([Topic("orders", ORDERS)], base, 6, is_control=False)
                store.perform(AppendBatches(base, base + 1, topic))
    installed = kraft.open_metadata(leader).write_snapshot(node / METADATA_LOG, columns=False)
    return node, installed


@pytest.mark.parametrize("extra_records", [0, 1, 2, 30], ids="{} extra".format)
def test_a_log_that_a_restart_empties_is_a_note(tmp_path: Path, extra_records: int) -> None:
    """It was compared with the snapshot, and open_metadata replayed its end on the snapshot."""
    node, installed = node_killed_in_an_installation(tmp_path, extra_records)
    finding = only(node, Severity.NOTE)
    assert finding.path == installed
    assert f"has the offsets 0 to {22 + extra_records} up to epoch 4" in finding.message
    assert (
        "The next start removes these records, and continues from this snapshot at offset 24"
        in (finding.message)
    )
    before = kraft.open_metadata(node)
    assert (before.next_offset, list(before.topics)) == (24, ["orders"])
    assert before.source is not None
    assert any(each.startswith("replaced log: ") for each in before.source.damage)
    # The other node's log is not compared with it.
    assert verify([node, tmp_path / "leader"]).findings == [finding]
    open_store(node).close()
    assert verify(node).findings == []
    assert list(kraft.diff(before, kraft.open_metadata(node))) == []


def test_a_restart_also_removes_the_snapshots_before(tmp_path: Path) -> None:
    node, installed = node_killed_in_an_installation(tmp_path, 30)
    for end in (2, 22):
        kraft.open_metadata(node, at=end).write_snapshot(node / METADATA_LOG, columns=False)
    (finding,) = verify(node).findings
    assert "removes these records, and 2 earlier snapshots, and continues" in finding.message
    open_store(node).close()
    assert list((node / METADATA_LOG).glob("*.checkpoint")) == [installed]


def test_damage_in_a_log_that_a_restart_empties_is_a_contradiction(tmp_path: Path) -> None:
    """A node checks its whole log before it looks at snapshots, and does not start."""
    node, _ = node_killed_in_an_installation(tmp_path, 30)
    (segment,) = (node / METADATA_LOG).glob("*.log")
    overwrite(segment, int(scan(segment.read_bytes()).positions[1]) + 40, b"?")
    assert not verify(node).is_sound
    with pytest.raises(DamagedLogError):
        open_store(node)


def test_epochs_that_a_crash_left_before_the_start_of_the_log_are_ignored(tmp_path: Path) -> None:
    """A node empties the log before it writes the epochs."""
    node, _ = node_killed_in_an_installation(tmp_path, 0)
    epochs = node / METADATA_LOG / "leader-epoch-checkpoint"
    open_store(node).close()
    epochs.write_bytes(b"0\n3\n1 0\n2 5\n4 9\n")
    assert verify(node).findings == []


@pytest.mark.parametrize("entry", [0, 2, -1])
@pytest.mark.parametrize("field", [0, 1])
def test_every_entry_of_an_offset_index_is_checked(copy: Path, entry: int, field: int) -> None:
    path = copy / METADATA_LOG / f"{0:020d}.index"
    count = path.stat().st_size // 8
    at = entry % count * 8 + field * 4
    (value,) = struct.unpack_from(">i", path.read_bytes(), at)
    overwrite(path, at, struct.pack(">i", value + 1 if field else value - 300))
    finding = only(copy)
    assert finding.path == path


@pytest.mark.parametrize("entry", [0, 2, -1])
@pytest.mark.parametrize("field", [0, 8])
def test_every_entry_of_a_time_index_is_checked(copy: Path, entry: int, field: int) -> None:
    path = copy / METADATA_LOG / f"{0:020d}.timeindex"
    count = path.stat().st_size // 12
    at = entry % count * 12 + field
    content = bytearray(path.read_bytes())
    if field:
        (value,) = struct.unpack_from(">i", content, at)
        struct.pack_into(">i", content, at, value - 300)
    else:
        (value,) = struct.unpack_from(">q", content, at)
        struct.pack_into(">q", content, at, value + 1)
    path.write_bytes(content)
    assert only(copy).path == path


def test_zeros_that_kafka_preallocates_are_ignored(copy: Path) -> None:
    for path in (copy / METADATA_LOG).glob("*index"):
        path.write_bytes(path.read_bytes() + bytes(10 << 20))
    assert verify(copy).findings == []
    overwrite(path, path.stat().st_size - 1, b"?")
    assert only(copy).path == path


def test_missing_and_superfluous_indexes_are_notes(copy: Path) -> None:
    directory = copy / METADATA_LOG
    (directory / f"{0:020d}.index").rename(directory / f"{7:020d}.index")
    (directory / "leader-epoch-checkpoint").unlink()
    found = verify(copy)
    assert found.is_sound
    assert found.count(Severity.NOTE) == len(found.findings) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"0\n1\n1 0\n", "lacks epoch 2"),
        (b"0\n2\n1 0\n2 7\n", "says that epoch 2 begins here; in the log the epoch is 1"),
        (b"0\n2\n1 0\n", "2 leader epochs are claimed"),
    ],
)
def test_leader_epochs_are_those_of_the_log(copy: Path, text: bytes, message: str) -> None:
    path = copy / METADATA_LOG / "leader-epoch-checkpoint"
    path.write_bytes(text)
    found = verify(copy).findings
    assert {each.path for each in found} == {path}
    assert any(message in each.message for each in found)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("quorum-state", b"{", "not JSON"),
        ("partition.metadata", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n", "version 1"),
        ("partition.metadata", b"version: 0\ntopic_id: lXGj5VebQnKyEbV4-aMVmQ\n", "data partition"),
        ("meta.properties", b"version=1\n", "no cluster.id"),
        ("00000000000000000514.snapshot", b"?" * 10, "producer snapshot"),
    ],
)
def test_small_files_are_checked(copy: Path, name: str, content: bytes, message: str) -> None:
    path = copy / METADATA_LOG / name if name != "meta.properties" else copy / name
    path.write_bytes(content)
    finding = only(copy)
    assert finding.path == path
    assert message in finding.message


def test_an_election_state_that_is_older_than_the_log_is_found(copy: Path) -> None:
    path = copy / METADATA_LOG / "quorum-state"
    text = path.read_text()
    assert '"leaderEpoch":2' in text
    path.write_text(text.replace('"leaderEpoch":2', '"leaderEpoch":1'))
    assert "stores epoch 1, but the log has records of epoch 2" in only(copy).message


def test_columns_of_another_state_are_found(copy: Path) -> None:
    ends = batch_end(copy, 1600), batch_end(copy, 1700)
    first, second = (kraft.open_metadata(copy, at=end) for end in ends)
    directory = copy / METADATA_LOG
    first.write_snapshot(directory)
    second.write_snapshot(directory)
    old, new = sorted(directory.glob("*.columns"))
    assert verify(copy).findings == []
    shutil.copy(old, new)
    assert "is not used" in only(copy, Severity.NOTE).message


# Several nodes


def other_node(copy: Path) -> Path:
    return Path(shutil.copytree(BROKER, copy.with_name("1")))


def test_different_batches_of_one_epoch_are_a_contradiction(copy: Path) -> None:
    other = other_node(copy)
    # Change the timestamp of a batch and update its CRC.
    segment = other / METADATA_LOG / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    headers = scan(content)
    number = len(headers) - 4
    start = int(headers.positions[number])
    stop = start + int(headers.sizes[number])
    offset, epoch = int(headers.base_offsets[number]), int(headers.partition_leader_epochs[number])
    assign_offsets(memoryview(content)[start:stop], offset, epoch, 5)
    segment.write_bytes(content)
    finding = only([copy, other])
    assert finding.offset == offset
    assert finding.message == f"the nodes have different batches of epoch {epoch}"
    assert finding.other == segment
    assert METADATA_LOG in str(finding.path)


def test_records_of_another_epoch_at_the_end_may_be_uncommitted(copy: Path) -> None:
    other = other_node(copy)
    segment = other / METADATA_LOG / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    headers = scan(content)
    start, offset = int(headers.positions[-2]), int(headers.base_offsets[-2])
    assign_offsets(memoryview(content)[start:], offset, 3)
    segment.write_bytes(content)
    (other / METADATA_LOG / "leader-epoch-checkpoint").unlink()
    quorum_state = other / METADATA_LOG / "quorum-state"
    quorum_state.write_text(quorum_state.read_text().replace('"leaderEpoch":2', '"leaderEpoch":3'))
    found = verify([copy, other])
    assert found.is_sound
    assert [
        each.offset for each in found.findings if "one node has uncommitted records" in each.message
    ] == [offset]
    # A later snapshot shows that the records were committed.
    written = kraft.open_metadata(other).write_snapshot(other / METADATA_LOG, columns=False)
    assert written.exists()
    found = verify([copy, other])
    assert not found.is_sound
    assert any("this offset was committed" in each.message for each in found.findings)


def test_a_gap_in_one_log_does_not_hide_the_rest(copy: Path) -> None:
    other = other_node(copy)
    segment = other / METADATA_LOG / f"{0:020d}.log"
    headers = scan(segment.read_bytes())
    overwrite(segment, int(headers.positions[50]) + 40, b"?")
    finding = only([copy, other])
    assert finding.offset == headers.base_offsets[50]


def test_directories_of_two_clusters_or_of_one_node_are_found(copy: Path) -> None:
    twin = Path(shutil.copytree(copy, copy.with_name("twin")))
    messages = [each.message for each in verify([copy, twin]).findings]
    assert messages[0] == "has the same node id as another directory: 101"
    assert messages[1].startswith("has the same directory id as another directory: ")
    other = other_node(copy)
    path = other / "meta.properties"
    text = path.read_text()
    cluster = next(line for line in text.splitlines() if line.startswith("cluster.id="))
    path.write_text(text.replace(cluster, "cluster.id=another"))
    finding = only([copy, other])
    assert finding.message.endswith("the other node has another")


def test_snapshots_of_one_name_that_differ_are_found(tmp_path: Path) -> None:
    for name, value in (("a", "1"), ("b", "2")):
        directory = tmp_path / name / METADATA_LOG
        directory.mkdir(parents=True)
        metadata = written(tmp_path / f"{name}-log", LEVEL, Config(4, "", "x", value))
        metadata.write_snapshot(directory, columns=False)
    finding = only([tmp_path / "a", tmp_path / "b"])
    assert "differs from the snapshot of the other node in 1 places" in finding.message


@pytest.mark.parametrize("with_fault", [0, 1])
def test_a_snapshot_with_the_configs_of_a_deleted_topic_is_known_to_differ_from_another_nodes(
    tmp_path: Path, with_fault: int
) -> None:
    """A quorum of Kafka's controllers and kraft's, 30 moves of leadership, was called unsound."""
    logged = (
        Topic("orders", ORDERS),
        Config(2, "orders", "retention.ms", "1"),
        RemoveTopic(ORDERS),
    )
    said = [LEVEL, Config(2, "orders", "retention.ms", "1"), NoOp(), NoOp()]
    nodes = [tmp_path / "a" / "node", tmp_path / "b" / "node"]
    for number, node in enumerate(nodes):
        written(node, LEVEL, *logged)
        with_snapshot(node, *(said if number == with_fault else (LEVEL, *logged)))
    found = verify(nodes)
    assert found.is_sound
    assert [each.severity for each in found.findings] == [Severity.KNOWN] * 2
    between = next(each for each in found.findings if "other node" in each.message)
    assert "ConfigurationsDelta" in str(between)
