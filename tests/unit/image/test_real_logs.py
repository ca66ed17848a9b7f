"""Replay logs of Apache Kafka and compare the states with Kafka's snapshots."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kraft import records
from kraft.image import ClusterState, diff
from kraft.metadata.directory import MetadataDirectory, SnapshotFile
from kraft.records import Uuid, control
from tests.harness.metadata_files import Logged, canonical, kinds, read_records

DATA = Path(__file__).parents[2] / "data"
DIRECTORIES = [
    MetadataDirectory.find(path.parent)
    for path in sorted(DATA.glob("kafka-*/*/__cluster_metadata-0"))
]
SNAPSHOTS = [
    pytest.param(directory, snapshot, id=f"{directory.path.name}-{snapshot.end_offset}")
    for directory in DIRECTORIES
    for snapshot in directory.snapshots
    # The snapshot of a freshly formatted directory ends at offset 0 and holds no data.
    if directory.log_start_offset == 0 and snapshot.end_offset > 0
]


def replay(
    logged: list[Logged], state: ClusterState, topics: dict[Uuid, str] | None = None
) -> ClusterState:
    """Apply records to a state and return it; find topic names as a ``PartitionTable`` does."""
    topics = {} if topics is None else topics
    for offset, epoch, is_control, record in logged:
        if is_control:
            state.apply_control(record, offset, epoch)
            continue
        if isinstance(record, records.Topic):
            topics[record.topic_id] = record.name
        elif isinstance(record, records.RemoveTopic):
            state.remove_topic(topics[record.topic_id], offset)
        state.apply(record, offset)
    return state


def log_of(directory: MetadataDirectory) -> list[Logged]:
    return [logged for segment in directory.segments for logged in read_records(segment.path)]


def test_recorded_data_exists() -> None:
    assert DIRECTORIES
    assert SNAPSHOTS


@pytest.mark.parametrize(("directory", "snapshot"), SNAPSHOTS)
def test_the_replayed_log_gives_the_snapshot_that_kafka_wrote(
    directory: MetadataDirectory, snapshot: SnapshotFile
) -> None:
    log = [logged for logged in log_of(directory) if logged.offset < snapshot.end_offset]
    state = replay(log, ClusterState())
    written = list(read_records(snapshot.path))
    theirs = [
        logged.record
        for logged in written
        if not logged.is_control
        # Kafka 3.9 also writes a record if no migration was done; 4.x does not.
        and not isinstance(
            logged.record, records.Topic | records.Partition | records.ZkMigrationState
        )
    ]
    ours = [*state.snapshot_records_before_topics(), *state.snapshot_records_after_topics()]

    assert kinds(ours) == kinds(theirs)
    assert Counter(map(canonical, ours)) == Counter(map(canonical, theirs))
    their_quorum = [
        logged.record
        for logged in written
        if isinstance(logged.record, control.KRaftVersion | control.KRaftVoters)
    ]
    assert [record.to_dict() for record in state.quorum.snapshot_records()] == [
        record.to_dict() for record in their_quorum
    ]


@pytest.mark.parametrize(("directory", "snapshot"), SNAPSHOTS)
def test_the_log_and_a_snapshot_with_the_rest_of_the_log_give_the_same_state(
    directory: MetadataDirectory, snapshot: SnapshotFile
) -> None:
    log = log_of(directory)
    whole = replay(log, ClusterState())

    topics: dict[Uuid, str] = {}
    loaded = ClusterState(journaling=False)
    last = snapshot.end_offset - 1
    replay([each._replace(offset=last) for each in read_records(snapshot.path)], loaded, topics)
    replay([each for each in log if each.offset > last], loaded, topics)

    assert diff(whole, loaded) == []
    assert loaded == whole


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda each: each.path.name)
def test_a_real_log_can_be_reverted_to_its_beginning(directory: MetadataDirectory) -> None:
    log = log_of(directory)
    if directory.log_start_offset != 0:
        pytest.skip("the beginning of this log is in a snapshot")
    state = replay(log, ClusterState())
    for offset in range(log[-1].offset, -1, -max(1, len(log) // 20)):
        state.revert(offset)
        assert state == replay(
            [logged for logged in log if logged.offset < offset], ClusterState(journaling=False)
        )
    state.revert(0)
    assert state == ClusterState()
