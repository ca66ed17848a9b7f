"""A snapshot generated in slices while the log grows has the bytes of one written at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft._core.snapshot.snapshot_file import SnapshotWriter
from kraft.image import diff
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SliceSize, SnapshotGeneration
from kraft.metadata.snapshots import save_snapshot
from kraft.records import Partition, Record, record_version
from kraft.records.batches import encode_records
from tests.property.growing_clusters import LOGS, Growing
from tests.reference.random_tables import meaning

TURNS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "apply", "slice", "revert", "publish", "compact"]),
        st.integers(0, 8),
    ),
    max_size=30,
)
SIZES = st.builds(
    SliceSize,
    steps=st.integers(1, 9),
    records=st.integers(1, 5),
    bytes=st.sampled_from([1, 100, 10_000]),
    keys=st.integers(1, 4),
)
some_logs = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def written(
    cluster: MetadataState, path: str, timestamp_ms: int, batch_size: int, piece: int
) -> bytes:
    state, level = cluster.state, cluster.state.metadata_version
    with SnapshotWriter(
        path,
        cluster.next_offset,
        state.quorum.leader_epoch,
        last_contained_log_timestamp_ms=0,
        timestamp_ms=timestamp_ms,
        max_batch_records=batch_size,
        chunk_size=piece,
    ) as writer:
        before, after = (
            state.snapshot_records_before_topics(),
            state.snapshot_records_after_topics(),
        )
        writer.append_batches(encode_records(before, metadata_version=level))
        writer.append_table(cluster.table, version=record_version(Partition, level))
        writer.append_batches(encode_records(after, metadata_version=level))
        return Path(writer.finish()).read_bytes()


@some_logs
@given(
    log=LOGS,
    turns=TURNS,
    size=SIZES,
    batch_size=st.sampled_from([1, 3, 1024]),
    piece=st.sampled_from([1, 200, 1 << 20]),
)
def test_the_bytes_equal_those_of_an_unchanged_state(
    log: list[Record],
    turns: list[tuple[str, int]],
    size: SliceSize,
    batch_size: int,
    piece: int,
) -> None:
    growing = Growing()
    coming = iter(log)
    for record in (record for record, _ in zip(coming, range(len(log) // 2), strict=False)):
        growing.apply(record)
    growing.publishing.publish(growing.cluster.next_offset)
    image = growing.publishing.image
    assert image is not None
    still = growing.frozen(image.offset)
    made = SnapshotGeneration(
        image, timestamp_ms=77, slice_size=size, max_batch_records=batch_size, chunk_size=piece
    )
    pieces: list[memoryview] = []
    for turn, number in turns:
        if turn == "apply":
            for record in (record for record, _ in zip(coming, range(number), strict=False)):
                growing.apply(record)
        elif turn == "revert":
            growing.revert(max(image.offset, growing.cluster.next_offset - number))
        elif turn == "publish":
            growing.publishing.publish(max(image.offset, growing.cluster.next_offset - number))
        elif turn == "compact":
            growing.compact()
        else:
            pieces.extend(made.next_slice() or [])
    while (more := made.next_slice()) is not None:
        pieces.extend(more)

    with tempfile.TemporaryDirectory() as path:
        assert b"".join(pieces) == written(still, path, 77, batch_size, piece)
        if (batch_size, piece) == (1024, 1 << 20):
            saved = save_snapshot(
                path, still, last_contained_log_timestamp_ms=0, timestamp_ms=77, columns=False
            )
            assert b"".join(pieces) == saved.read_bytes()
    loaded = MetadataState()
    loaded.apply_snapshot(b"".join(pieces), end_offset=image.offset)
    assert meaning(loaded.table) == meaning(still.table)
    assert diff(loaded.state, still.state) == []
