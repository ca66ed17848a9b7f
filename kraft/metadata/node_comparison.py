"""The metadata of several nodes of one quorum, side by side.

Owns what must hold between them: one cluster, different nodes and directories, the same batches at
the same offsets, the same state in snapshots of one name. A follower appends the leader's batches
as they are, so that logs are compared byte by byte. Fed by ``verification``.

Invariant: of each log a few MiB are looked at, at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from kraft._core.batch import scan
from kraft.errors import KraftError
from kraft.metadata.diff import diff
from kraft.metadata.directory import META_PROPERTIES, MetaProperties
from kraft.metadata.facade import Metadata
from kraft.metadata.findings import Finding, Severity
from kraft.metadata.runs import pieces_of
from kraft.metadata.snapshots import load_snapshot
from kraft.metadata.source import MetadataSource

_PIECE_BYTES = 1 << 20


def compare_nodes(
    sources: Sequence[MetadataSource], advance: Callable[[int], object]
) -> Iterator[Finding]:
    """Every pair of directories; ``advance`` is called with the bytes of each step."""
    for one, other in combinations(sources, 2):
        yield from _compare_identities(one, other)
        yield from _compare_logs(one, other, advance)
        yield from _compare_snapshots(one, other)


def _compare_identities(one: MetadataSource, other: MetadataSource) -> Iterator[Finding]:
    mine, theirs = one.directory.meta_properties, other.directory.meta_properties
    if mine is None or theirs is None:
        return
    paths = [_properties_path(each) for each in (one, other)]

    def finding(message: str) -> Finding:
        return Finding(Severity.CONTRADICTION, paths[0], message, other=paths[1])

    if mine.cluster_id != theirs.cluster_id:
        yield finding(f"is of cluster {mine.cluster_id}, the other of {theirs.cluster_id}")
    for name, value in _ids(mine).items():
        if value is not None and value == _ids(theirs)[name]:
            yield finding(f"has the {name} {value} of another directory")


def _ids(properties: MetaProperties) -> dict[str, object]:
    return {"node id": properties.node_id, "directory id": properties.directory_id}


def _properties_path(source: MetadataSource) -> Path:
    return (source.directory.log_dir or source.directory.path) / META_PROPERTIES


class _Batches:
    """The batches of a log from an offset on, as bytes that are taken bit by bit."""

    def __init__(self, source: MetadataSource, since: int) -> None:
        self._pieces = pieces_of(source.slices(since), _PIECE_BYTES)
        self.data = memoryview(b"")
        self.path = ""
        self.skip_before(since)

    def fill(self) -> bool:
        """Whether there is a batch left."""
        while not len(self.data):
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self.path, self.data = piece.path, piece.data
        return True

    def take(self, size: int) -> None:
        self.data = self.data[size:]

    @property
    def base_offset(self) -> int:
        return int.from_bytes(self.data[:8], "big", signed=True)

    def skip_before(self, offset: int) -> None:
        """Takes the batches that end before the offset."""
        while self.fill():
            batches = scan(self.data, verify_crc=False)
            left = np.flatnonzero(batches.last_offsets >= offset)
            if len(left):
                self.take(int(batches.positions[left[0]]))
                return
            self.take(len(self.data))


def _compare_logs(
    one: MetadataSource, other: MetadataSource, advance: Callable[[int], object]
) -> Iterator[Finding]:
    since = max(one.log_start_offset, other.log_start_offset)
    until = min(one.log_end_offset, other.log_end_offset)
    if since < 0 or since >= until:
        return
    mine, theirs = _Batches(one, since), _Batches(other, since)
    while mine.fill() and theirs.fill():
        size = min(len(mine.data), len(theirs.data))
        if mine.data[:size] == theirs.data[:size]:
            advance(size)
        else:
            size = _equal_size(mine.data, theirs.data)
            if size == 0 and mine.base_offset != theirs.base_offset:
                # One of them has a gap, which is a finding of its own.
                behind = max(mine.base_offset, theirs.base_offset)
                mine.skip_before(behind)
                theirs.skip_before(behind)
                if mine.fill() and theirs.fill() and mine.base_offset == theirs.base_offset:
                    continue
                return
            if size == 0:
                yield _divergence(one, other, mine, theirs)
                return
        mine.take(size)
        theirs.take(size)


def _equal_size(mine: memoryview, theirs: memoryview) -> int:
    """The bytes of the whole batches at the front that are the same."""
    size = 0
    for batch_size in scan(mine, verify_crc=False).sizes.tolist():
        if mine[size : size + batch_size] != theirs[size : size + batch_size]:
            break
        size += batch_size
    return size


def _divergence(
    one: MetadataSource, other: MetadataSource, mine: _Batches, theirs: _Batches
) -> Finding:
    offset = mine.base_offset
    epochs = [
        int(scan(each.data, verify_crc=False).partition_leader_epochs[0]) for each in (mine, theirs)
    ]
    is_committed = any(
        snapshot.end_offset > offset
        for source in (one, other)
        for snapshot in source.directory.snapshots
    )
    severity = Severity.CONTRADICTION
    if epochs[0] == epochs[1]:
        message = f"the nodes have different batches of epoch {epochs[0]}"
    elif is_committed:
        message = (
            f"the nodes have different batches, of epochs {epochs[0]} and {epochs[1]}, and a "
            "snapshot behind them says that they were committed"
        )
    else:
        severity = Severity.NOTE
        message = (
            f"from here on the nodes have batches of epochs {epochs[0]} and {epochs[1]}: one node "
            "has records that were never committed, and cuts them off when it follows a leader"
        )
    return Finding(severity, Path(mine.path), message, offset, Path(theirs.path))


def _compare_snapshots(one: MetadataSource, other: MetadataSource) -> Iterator[Finding]:
    by_name = {each.path.name: each for each in other.directory.snapshots if each.size}
    for mine in one.directory.snapshots:
        theirs = by_name.get(mine.path.name)
        if theirs is None or not mine.size:
            continue
        try:
            found = diff(
                Metadata(load_snapshot(mine, use_column_cache=False)),
                Metadata(load_snapshot(theirs, use_column_cache=False)),
            )
        except KraftError:
            # A damaged snapshot is a finding of its directory.
            continue
        if found:
            first = found[0]
            yield Finding(
                Severity.CONTRADICTION,
                mine.path,
                f"differs from the snapshot of the other node in {len(found)} places, the first is "
                f"{first.kind} {first.key} {first.field}".rstrip(),
                mine.end_offset,
                theirs.path,
            )
