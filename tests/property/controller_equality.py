"""What two clusters, a cluster and the slow twin, or two answers have to agree on."""

from __future__ import annotations

import tempfile
from typing import Any

from kraft import controller
from kraft._core.batch import BatchBuilder
from kraft.controller import election_context
from kraft.errors import KraftError
from kraft.image.publishing import Image
from kraft.image.replay import Cluster
from kraft.image.snapshot_generation import SnapshotGeneration
from kraft.metadata.directory import SnapshotFile
from kraft.metadata.snapshots import load_snapshot, save_snapshot
from tests.property.test_history import plain_image
from tests.reference import cluster_state_twin, table_twin
from tests.reference.controller_state_twin import RefusedError, State

BROKERS = range(8)


def check_cluster(cluster: Cluster, state: State) -> None:
    """Everything that the records say."""
    assert table_twin.plain(cluster.table) == state.table.plain()
    assert cluster_state_twin.plain(cluster.state) == state.rest
    assert cluster.transaction_start == state.transaction_start


def check_image(image: Image, state: State) -> None:
    """The same of what is published."""
    assert plain_image(image.table) == state.table.plain()
    assert cluster_state_twin.plain(image.state) == state.rest


def check_indexes(cluster: Cluster, state: State) -> None:
    """The partitions of each broker are found without a look at the others."""
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


def decided(cluster: Cluster) -> list[object]:
    """What a cluster decides, in bytes, whatever may come."""
    found: list[object] = [tuple(controller.usable_brokers(cluster))]
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


def decided_anew(cluster: Cluster) -> list[object]:
    """The same with nothing that was kept from earlier decisions."""
    kept, cluster.state.derived = cluster.state.derived, None
    found = decided(cluster)
    cluster.state.derived = kept
    return found


def by_file(cluster: Cluster, *, use_column_cache: bool) -> Cluster:
    """The cluster by way of a snapshot's file."""
    with tempfile.TemporaryDirectory() as directory:
        path = save_snapshot(directory, cluster, last_contained_log_timestamp_ms=7, timestamp_ms=8)
        epoch, size = cluster.state.quorum.leader_epoch, path.stat().st_size
        file = SnapshotFile(path, cluster.next_offset, epoch, size)
        loaded = load_snapshot(file, use_column_cache=use_column_cache)
        loaded.start_journal()
        return loaded


def by_image(image: Image) -> Cluster:
    """A cluster from the snapshot of what was published, wherever the tip is by now."""
    made = SnapshotGeneration(image, timestamp_ms=8)
    pieces: list[memoryview] = []
    while (more := made.next_slice()) is not None:
        pieces += more
    loaded = Cluster(journaling=True)
    loaded.apply_snapshot(b"".join(pieces), end_offset=image.offset)
    return loaded


def plainly(answer: Any) -> Any:
    """An answer of the twin, its refusals as codes."""
    if isinstance(answer, RefusedError):
        return ("refused", answer.code)
    if isinstance(answer, dict):
        return {key: plainly(value) for key, value in answer.items()}
    return [plainly(each) for each in answer] if isinstance(answer, list) else answer


def normally(answer: Any) -> Any:
    """A real answer in the same words."""
    if isinstance(answer, KraftError):
        return ("refused", answer.kafka_code)
    if isinstance(answer, dict):
        return {key: normally(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [normally(each) for each in answer]
    return tuple(answer) if isinstance(answer, tuple) else answer
