"""Compare the metadata of several nodes of one quorum.

The nodes must have one cluster id, different node and directory ids, the same batches at the same
offsets, and the same state in snapshots of one name. A follower appends the leader's batches
unchanged, so logs are compared byte by byte. Called by ``verification``.

Invariant: at most a few MiB of each log are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kraft._core.bytes.batch import scan
from kraft.errors import KraftError
from kraft.metadata.contiguous_slices import batch_ranges
from kraft.metadata.diff import Difference, diff
from kraft.metadata.directory import META_PROPERTIES, MetaProperties, SnapshotFile
from kraft.metadata.facade import Metadata
from kraft.metadata.known_kafka_faults import KnownKafkaFaults
from kraft.metadata.snapshots import load_snapshot
from kraft.metadata.source import MetadataSource
from kraft.metadata.verification_findings import Severity, VerificationFinding

_BLOCK_BYTES = 1 << 20


def compare_nodes(
    sources: Sequence[MetadataSource], advance: Callable[[int], object]
) -> Iterator[VerificationFinding]:
    """Yield the findings of every pair of directories; ``advance`` gets the bytes of each step."""
    for one, other in combinations(sources, 2):
        yield from _compare_identities(one, other)
        yield from _compare_logs(one, other, advance)
        yield from _compare_snapshots(one, other)


def _compare_identities(
    one: MetadataSource, other: MetadataSource
) -> Iterator[VerificationFinding]:
    mine, theirs = one.directory.meta_properties, other.directory.meta_properties
    if mine is None or theirs is None:
        return
    paths = [_properties_path(each) for each in (one, other)]

    def finding(message: str) -> VerificationFinding:
        return VerificationFinding(Severity.CONTRADICTION, paths[0], message, other=paths[1])

    if mine.cluster_id != theirs.cluster_id:
        yield finding(f"has cluster id {mine.cluster_id}, the other node has {theirs.cluster_id}")
    for name, value in _ids(mine).items():
        if value is not None and value == _ids(theirs)[name]:
            yield finding(f"has the same {name} as another directory: {value}")


def _ids(properties: MetaProperties) -> dict[str, object]:
    return {"node id": properties.node_id, "directory id": properties.directory_id}


def _properties_path(source: MetadataSource) -> Path:
    return (source.directory.log_dir or source.directory.path) / META_PROPERTIES


class _Batches:
    """Cursor over the batches of a log from an offset on; ``data`` is the rest of the current
    block.
    """

    def __init__(self, source: MetadataSource, since: int) -> None:
        self._blocks = batch_ranges(source.slices(since), _BLOCK_BYTES)
        self.data = memoryview(b"")
        self.path = ""
        self.skip_before(since)

    def fill(self) -> bool:
        """Read the next block where ``data`` is empty; return False at the end of the log."""
        while not len(self.data):
            block = next(self._blocks, None)
            if block is None:
                return False
            self.path, self.data = block.path, block.data
        return True

    def take(self, size: int) -> None:
        self.data = self.data[size:]

    @property
    def base_offset(self) -> int:
        return int.from_bytes(self.data[:8], "big", signed=True)

    def skip_before(self, offset: int) -> None:
        """Skip the batches that end before ``offset``."""
        while self.fill():
            batches = scan(self.data, verify_crc=False)
            left = np.flatnonzero(batches.last_offsets >= offset)
            if len(left):
                self.take(int(batches.positions[left[0]]))
                return
            self.take(len(self.data))


class Divergence(NamedTuple):
    """The first offset at which two logs have different batches, with the leader epoch of each
    log's batch there, and the segments.
    """

    offset: int
    epochs: tuple[int, int]
    paths: tuple[Path, Path]


def first_divergence(
    one: MetadataSource, other: MetadataSource, advance: Callable[[int], object]
) -> Divergence | None:
    """Compare the offsets that both logs have, byte by byte; return None where they are equal.

    ``advance`` is called with the number of equal bytes of each step. Gaps are skipped.
    """
    since = max(one.log_start_offset, other.log_start_offset)
    until = min(one.log_end_offset, other.log_end_offset)
    if since < 0 or since >= until:
        return None
    mine, theirs = _Batches(one, since), _Batches(other, since)
    while mine.fill() and theirs.fill():
        size = min(len(mine.data), len(theirs.data))
        if mine.data[:size] == theirs.data[:size]:
            advance(size)
        else:
            size = _equal_size(mine.data, theirs.data)
            if size == 0 and mine.base_offset != theirs.base_offset:
                # One log has a gap, which is reported for its directory.
                behind = max(mine.base_offset, theirs.base_offset)
                mine.skip_before(behind)
                theirs.skip_before(behind)
                if mine.fill() and theirs.fill() and mine.base_offset == theirs.base_offset:
                    continue
                return None
            if size == 0:
                epochs = [
                    int(scan(each.data, verify_crc=False).partition_leader_epochs[0])
                    for each in (mine, theirs)
                ]
                return Divergence(
                    mine.base_offset, (epochs[0], epochs[1]), (Path(mine.path), Path(theirs.path))
                )
        mine.take(size)
        theirs.take(size)
    return None


def _compare_logs(
    one: MetadataSource, other: MetadataSource, advance: Callable[[int], object]
) -> Iterator[VerificationFinding]:
    if one.replacing_snapshot is not None or other.replacing_snapshot is not None:
        # A restart empties this log, and a note for its directory says so.
        return
    found = first_divergence(one, other, advance)
    if found is not None:
        yield _divergence_finding(one, other, found)


def _equal_size(mine: memoryview, theirs: memoryview) -> int:
    """Return the size of the equal whole batches at the front, in bytes."""
    size = 0
    for batch_size in scan(mine, verify_crc=False).sizes.tolist():
        if mine[size : size + batch_size] != theirs[size : size + batch_size]:
            break
        size += batch_size
    return size


def _divergence_finding(
    one: MetadataSource, other: MetadataSource, found: Divergence
) -> VerificationFinding:
    offset, epochs, paths = found
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
            "later snapshot shows that this offset was committed"
        )
    else:
        severity = Severity.NOTE
        message = (
            f"from here on the nodes have batches of epochs {epochs[0]} and {epochs[1]}: one node "
            "has uncommitted records, and truncates them when it follows a leader"
        )
    return VerificationFinding(severity, paths[0], message, offset, paths[1])


def _compare_snapshots(one: MetadataSource, other: MetadataSource) -> Iterator[VerificationFinding]:
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
            # A damaged snapshot is reported for its directory.
            continue
        if found:
            yield from _report(found, (one, other), mine, theirs)


def _report(
    found: Sequence[Difference],
    sources: tuple[MetadataSource, MetadataSource],
    mine: SnapshotFile,
    theirs: SnapshotFile,
) -> Iterator[VerificationFinding]:
    """Yield at most a contradiction, and a finding of differences that Kafka is known to write."""
    known = [KnownKafkaFaults(source, mine.end_offset) for source in sources]

    def reason(change: Difference) -> str | None:
        """Return why either snapshot, if Kafka wrote it, may differ from the log in this way."""
        other_way = replace(change, before=change.after, after=change.before)
        reasons = (faults.reason(each) for faults in known for each in (change, other_way))
        return next((each for each in reasons if each is not None), None)

    by_severity: dict[Severity, list[tuple[Difference, str | None]]] = {}
    for each in found:
        why = reason(each)
        severity = Severity.CONTRADICTION if why is None else Severity.KNOWN
        by_severity.setdefault(severity, []).append((each, why))
    for severity, differences in by_severity.items():
        first, why = differences[0]
        yield VerificationFinding(
            severity,
            mine.path,
            f"differs from the snapshot of the other node in {len(differences)} places, the first "
            f"is {first.kind} {first.key} {first.field}".rstrip(),
            mine.end_offset,
            theirs.path,
            why,
        )
