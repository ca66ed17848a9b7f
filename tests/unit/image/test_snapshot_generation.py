"""Generation of snapshots in slices while the state changes, and the times at which one is due."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft import records
from kraft._core.snapshot.snapshot_file import SnapshotReader
from kraft.errors import InvalidRequestError, UnsupportedVersionError
from kraft.image.publishing import ImagePublishing
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SliceSize, SnapshotGeneration, SnapshotPolicy
from kraft.metadata.snapshots import save_snapshot
from kraft.records import Record, Uuid
from kraft.records.batches import encode_control_records, encode_records
from kraft.records.control import KRaftVersion, LeaderChange
from tests.harness.publishing import BASE, OTHER, TOPIC, PublishedCluster, change

ONE_AT_A_TIME = SliceSize(steps=1, records=1, bytes=1, keys=1)


def partitions(topic: Uuid, ids: list[int]) -> list[Record]:
    return [
        records.Partition(partition_id=each, topic_id=topic, replicas=[1, 2], isr=[1, 2], leader=1)
        for each in ids
    ]


def all_of(made: SnapshotGeneration) -> bytes:
    pieces: list[memoryview] = []
    while (more := made.next_slice()) is not None:
        pieces.extend(more)
    return b"".join(pieces)


def saved(cluster: MetadataState, directory: Path) -> bytes:
    path = save_snapshot(
        directory, cluster, last_contained_log_timestamp_ms=0, timestamp_ms=9, columns=False
    )
    return path.read_bytes()


def test_slices_give_the_same_bytes_as_writing_at_once(tmp_path: Path) -> None:
    lab = PublishedCluster()
    lab.append(*BASE, *partitions(TOPIC, [1, 2, 5]), records.Config(2, "a", "k", "v"))
    made = SnapshotGeneration(lab.publish().image, timestamp_ms=9)
    assert (made.end_offset, made.epoch) == (7, 0)
    data = all_of(made)
    assert data == saved(lab.cluster, tmp_path)
    assert SnapshotReader(data).info.record_count == 7


def test_topics_removed_meanwhile_are_included_and_new_ones_are_not(
    tmp_path: Path,
) -> None:
    lab = PublishedCluster()
    lab.append(*BASE, *partitions(TOPIC, [1, 2, 5]), records.Config(2, "a", "k", "v"))
    expected = saved(lab.cluster, tmp_path)
    made = SnapshotGeneration(lab.publish().image, timestamp_ms=9, slice_size=ONE_AT_A_TIME)
    pieces = made.next_slice() or []
    lab.append(records.RemoveTopic(topic_id=TOPIC))
    for _ in range(3):
        pieces += made.next_slice() or []
    again = Uuid(b"\3" * 16)
    lab.append(records.Topic(name="a", topic_id=again), *partitions(again, [0, 1]))
    assert b"".join(pieces) + all_of(made) == expected


def test_partitions_added_to_a_half_written_topic_are_not_included(tmp_path: Path) -> None:
    lab = PublishedCluster()
    lab.append(*BASE, *partitions(TOPIC, [1, 2, 3]))
    expected = saved(lab.cluster, tmp_path)
    made = SnapshotGeneration(lab.publish().image, timestamp_ms=9, slice_size=ONE_AT_A_TIME)
    pieces = []
    for _ in range(4):
        pieces += made.next_slice() or []
    lab.append(*partitions(TOPIC, [4, 5]), change(2))
    pieces += made.next_slice() or []
    lab.append(records.Topic(name="b", topic_id=Uuid(b"\4" * 16)))
    lab.append(*partitions(TOPIC, [6, 1000]))
    assert b"".join(pieces) + all_of(made) == expected


def test_the_control_records_of_the_quorum_are_included(tmp_path: Path) -> None:
    lab = PublishedCluster()
    control = encode_control_records(
        [LeaderChange(leader_id=1), KRaftVersion(kraft_version=1)], base_offset=0, epoch=5
    )
    lab.cluster.apply(control)
    lab.publishing.note_batches(control)
    lab.append(*BASE)
    made = SnapshotGeneration(lab.publish().image, timestamp_ms=9)
    assert made.epoch == 5
    data = all_of(made)
    assert data == saved(lab.cluster, tmp_path)
    assert SnapshotReader(data).info.control_record_count == 3


def test_a_generation_goes_on_with_the_old_rows_after_a_compaction(tmp_path: Path) -> None:
    lab = PublishedCluster()
    lab.append(
        *(BASE[0], records.Topic(name="gone", topic_id=OTHER), *partitions(OTHER, [0, 1])),
        *(*BASE[1:], *partitions(TOPIC, [1, 2, 5]), records.Config(2, "a", "k", "v")),
    )
    expected = saved(lab.cluster, tmp_path)
    made = SnapshotGeneration(lab.publish().image, timestamp_ms=9, slice_size=ONE_AT_A_TIME)
    pieces = []
    for _ in range(8):
        pieces += made.next_slice() or []
    lab.append(records.RemoveTopic(topic_id=OTHER), change(2))
    lab.publishing.forget_image()
    lab.cluster.compact()
    lab.append(records.RemoveTopic(topic_id=TOPIC))
    assert b"".join(pieces) + all_of(made) == expected


def test_a_generation_keeps_the_journal_until_its_end() -> None:
    lab = PublishedCluster()
    lab.append(*BASE, records.RemoveTopic(topic_id=TOPIC))
    image = lab.publish().image
    made = SnapshotGeneration(image, timestamp_ms=9)
    with pytest.raises(InvalidRequestError, match="in use"):
        lab.cluster.table.stop_journal()
    del image
    lab.publishing.image = None
    with pytest.raises(InvalidRequestError, match="in use"):
        lab.cluster.table.stop_journal()
    all_of(made)
    lab.cluster.table.stop_journal()
    lab.cluster.table.compact()


def test_no_snapshot_ends_inside_a_batch() -> None:
    lab = PublishedCluster()
    lab.append(*BASE, records.BeginTransaction(name="x"), change(2))
    image = lab.publish().image
    with pytest.raises(InvalidRequestError, match="it is inside a batch of the log"):
        SnapshotGeneration(image, timestamp_ms=9)


def test_without_a_metadata_version_generation_fails() -> None:
    lab = PublishedCluster()
    lab.append(*BASE[1:])
    image = lab.publish().image
    with pytest.raises(UnsupportedVersionError, match=r"metadata\.version"):
        SnapshotGeneration(image, timestamp_ms=9)


def test_a_state_that_the_level_cannot_express_fails() -> None:
    lab = PublishedCluster()
    lab.append(
        records.FeatureLevel("metadata.version", 10),
        records.UserScramCredential(name="a", mechanism=1),
    )
    made = SnapshotGeneration(lab.publish().image, timestamp_ms=9)
    with pytest.raises(UnsupportedVersionError, match="UserScramCredential"):
        all_of(made)


def test_a_snapshot_is_due_after_max_record_bytes() -> None:
    lab = PublishedCluster()
    most = len(encode_records(BASE)) + 3 * len(encode_records([change(2)]))
    policy = SnapshotPolicy(0, max_record_bytes=most, max_interval_ms=0)
    lab.append(*BASE)
    assert policy.reason(lab.publish(), 1) is None
    reasons = []
    for _ in range(4):
        lab.append(change(2))
        reasons.append(policy.reason(lab.publish(), 10**9))
    assert [reason is None for reason in reasons] == [True, True, False, False]
    assert "bytes of records were applied" in (reasons[2] or "")
    policy.begin(5)
    assert policy.record_bytes == 0


def test_a_snapshot_is_due_after_max_interval() -> None:
    lab = PublishedCluster()
    policy = SnapshotPolicy(0, max_interval_ms=1000)
    lab.append(*BASE)
    assert policy.reason(lab.publish(), 500) is None
    lab.append(change(2))
    assert policy.reason(lab.publish(), 1499) is None
    lab.append(change(1))
    assert policy.reason(lab.publish(), 1500) == "the last snapshot is 1000 ms old"


def test_only_one_snapshot_is_generated_at_a_time() -> None:
    lab = PublishedCluster()
    policy = SnapshotPolicy(0, max_record_bytes=1)
    lab.append(*BASE)
    assert policy.reason(lab.publish(), 1) is not None
    policy.begin(1)
    lab.append(change(2))
    assert policy.reason(lab.publish(), 2) is None
    with pytest.raises(InvalidRequestError, match="another snapshot is being generated"):
        policy.begin(2)
    policy.end()
    lab.append(change(1))
    assert policy.reason(lab.publish(), 3) is not None


def test_no_snapshot_is_due_inside_a_batch() -> None:
    lab = PublishedCluster()
    policy = SnapshotPolicy(0, max_record_bytes=1)
    lab.append(*BASE, records.BeginTransaction(name="x"), change(2))
    assert policy.reason(lab.publish(), 1) is None
    lab.append(records.EndTransaction())
    assert policy.reason(lab.publish(), 2) is not None


def test_the_bytes_of_a_loaded_snapshot_do_not_count() -> None:
    loaded = MetadataState(journaling=True)
    loaded.apply_snapshot(encode_records(BASE), end_offset=100)
    publishing = ImagePublishing(loaded)
    delta = publishing.publish(100)
    assert delta is not None
    policy = SnapshotPolicy(0, max_record_bytes=1)
    assert policy.reason(delta, 1) is None
    assert policy.record_bytes == 0
