"""Comparisons of two clusters, of a cluster and the slow twin, and of two answers."""

from __future__ import annotations

import tempfile
from typing import Any

from kraft._core.bytes.batch import BatchBuilder
from kraft.controller.state import election_context, usable_brokers
from kraft.errors import KraftError
from kraft.image.publishing import Image
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SnapshotGeneration
from kraft.metadata.directory import SnapshotFile
from kraft.metadata.snapshots import load_snapshot, save_snapshot
from tests.reference import cluster_state_twin, table_twin
from tests.reference.controller_state_twin import RefusedError, State
from tests.reference.table_twin import plain_image

BROKERS = range(8)


def check_cluster(cluster: MetadataState, state: State) -> None:
    """Check that a cluster has the twin's state: everything that records determine."""
    assert table_twin.plain(cluster.table) == state.table.plain()
    assert cluster_state_twin.plain(cluster.state) == state.rest
    assert cluster.transaction_start == state.transaction_start


def check_image(image: Image, state: State) -> None:
    """Check that a published image has the twin's state."""
    assert plain_image(image.table) == state.table.plain()
    assert cluster_state_twin.plain(image.state) == state.rest


def check_indexes(cluster: MetadataState, state: State) -> None:
    """Check that each broker's partitions are found without reading other rows."""
    table = cluster.table
    for broker in BROKERS:
        rows = table.broker_rows(broker).tolist()
        names = {
            (
                table.topic_name(int(table.column("topic")[row])),
                int(table.column("partition")[row]),
            )
            for row in rows
        }
        assert len(rows) == len(names)
        assert names == state.table.rows_of_broker(broker)


def decided(cluster: MetadataState) -> list[object]:
    """Return a cluster's decisions as bytes, for any event."""
    found: list[object] = [tuple(usable_brokers(cluster))]
    context = election_context(cluster)
    for broker in BROKERS:
        builder = BatchBuilder()
        context.remove_from_isr(builder, [broker], and_elr=True)
        context.elect_leaderless(builder, broker)
        found.append(bytes(builder.finish()))
    builder = BatchBuilder()
    context.elect_unclean(builder)
    context.elect_preferred(builder)
    context.expand_isrs(builder)
    found.append(bytes(builder.finish()))
    return found


def decided_anew(cluster: MetadataState) -> list[object]:
    """Return the same without any state kept from earlier decisions."""
    kept, cluster.state.derived = cluster.state.derived, None
    found = decided(cluster)
    cluster.state.derived = kept
    return found


def by_file(cluster: MetadataState, *, use_column_cache: bool) -> MetadataState:
    """Return the cluster loaded from a snapshot file."""
    with tempfile.TemporaryDirectory() as directory:
        path = save_snapshot(directory, cluster, last_contained_log_timestamp_ms=7, timestamp_ms=8)
        epoch, size = cluster.state.quorum.leader_epoch, path.stat().st_size
        file = SnapshotFile(path, cluster.next_offset, epoch, size)
        loaded = load_snapshot(file, use_column_cache=use_column_cache)
        loaded.start_journal()
        return loaded


def by_image(image: Image) -> MetadataState:
    """Return a cluster loaded from the snapshot of a published image, without later changes."""
    made = SnapshotGeneration(image, timestamp_ms=8)
    pieces: list[memoryview] = []
    while (more := made.next_slice()) is not None:
        pieces += more
    loaded = MetadataState(journaling=True)
    loaded.apply_snapshot(b"".join(pieces), end_offset=image.offset)
    return loaded


def twin_answer_as_codes(answer: Any) -> Any:
    """Return an answer of the twin, with its errors as codes."""
    if isinstance(answer, RefusedError):
        return ("refused", answer.code)
    if isinstance(answer, dict):
        return {key: twin_answer_as_codes(value) for key, value in answer.items()}
    return [twin_answer_as_codes(each) for each in answer] if isinstance(answer, list) else answer


def answer_as_codes(answer: Any) -> Any:
    """Return a real answer in the twin's form."""
    if isinstance(answer, KraftError):
        return ("refused", answer.kafka_code)
    if isinstance(answer, dict):
        return {key: answer_as_codes(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [answer_as_codes(each) for each in answer]
    return tuple(answer) if isinstance(answer, tuple) else answer
