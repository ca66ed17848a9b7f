"""``MetadataState.apply``: replay whole logs, revert, and copy the state through a snapshot.

A live cluster (with a journal) that rejects a call is unchanged. Its snapshot records make an equal
cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kraft._core.bytes.batch import BatchBuilder, scan
from kraft.errors import KraftError, OffsetOutOfRangeError
from kraft.image.replay import MetadataState
from kraft.records import Partition, record_version
from kraft.records.batches import encode_records
from tests.fuzz import samples
from tests.reference.random_tables import meaning

PREFIX = 2
HOLDS_BATCHES = True

_JOURNALING = 1


def seeds() -> Iterator[bytes]:
    for log in samples.small_logs():
        yield b"\x01\x03" + log
        yield b"\x00\x00" + log
    for count, log in samples.clusters():
        yield bytes((_JOURNALING, count)) + log
    for run in samples.log_runs():
        yield b"\x01\x00" + run


def run(data: bytes) -> None:
    if len(data) < 2:
        return
    flags, cut, buffer = data[0], data[1], data[2:]
    cluster = MetadataState(journaling=bool(flags & _JOURNALING))
    batches = scan(buffer, verify_crc=False)
    number = cut % (len(batches) + 1)
    position = int(batches.positions[number]) if number < len(batches) else len(buffer)
    if not _apply(cluster, buffer[:position]):
        return
    middle = cluster.next_offset
    before = said(cluster)
    applied = _apply(cluster, buffer[position:])
    if applied:
        _snapshot(cluster)
    if not flags & _JOURNALING:
        return
    if not applied and cluster.next_offset == middle:
        assert said(cluster) == before, "a rejected call changed the state"
    after = said(cluster)
    try:
        cluster.revert(min(middle, cluster.next_offset))
    except OffsetOutOfRangeError:
        # Within a transaction that was aborted later.
        return
    if cluster.next_offset == middle:
        assert said(cluster) == before, "the reverted state differs from the earlier one"
    if applied:
        assert _apply(cluster, buffer[position:])
        assert said(cluster) == after, "applied again, the records lead to another state"
    cluster.drop_open_transaction()
    cluster.forget(cluster.next_offset)
    repr(cluster)


def said(cluster: MetadataState) -> dict[str, Any]:
    """Return the whole state of a cluster as plain objects."""
    quorum = cluster.state.quorum
    return {
        "topics": meaning(cluster.table),
        "maps": [_entries(each) for each in cluster.state.journaled_maps()],
        "quorum": repr(quorum),
        "offsets": (cluster.next_offset, cluster.stable_offset, cluster.transaction_name),
    }


def _entries(entries: Mapping[Any, Any]) -> list[tuple[str, str]]:
    """Return the entries sorted: a revert moves entries to the end, which no snapshot preserves."""
    return sorted(
        (repr(key), repr(_entries(value) if isinstance(value, Mapping) else value))
        for key, value in entries.items()
    )


def _apply(cluster: MetadataState, buffer: bytes) -> bool:
    try:
        cluster.apply(buffer, verify_crc=False)
    except KraftError:
        return False
    return True


def _snapshot(cluster: MetadataState) -> None:
    """Check that the snapshot makes an equal cluster, if the metadata.version allows it."""
    state, level = cluster.state, cluster.state.metadata_version
    try:
        before = encode_records(state.snapshot_records_before_topics(), metadata_version=level)
        after = encode_records(state.snapshot_records_after_topics(), metadata_version=level)
        version = record_version(Partition, level)
    except KraftError:
        return
    topics = BatchBuilder()
    cluster.table.encode_snapshot(topics, version=version)
    copy = MetadataState()
    end_offset = max(cluster.next_offset, 1)
    copy.apply_snapshot(b"".join((before, topics.finish(), after)), end_offset=end_offset)
    for mine, theirs in zip(
        cluster.state.journaled_maps(), copy.state.journaled_maps(), strict=True
    ):
        assert {*mine} == {*theirs}, "the snapshot has other keys"
    assert {*meaning(copy.table)} == {*meaning(cluster.table)}
