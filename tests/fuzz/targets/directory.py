"""``kraft.open_metadata`` on a directory with a segment and a snapshot, and a user's next calls.

Opening changes nothing on disk. The state can be read as of any offset in its range, and the
snapshot that it writes opens as the same state.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kraft
from kraft._core.log.partition_directory import segment_file
from kraft._core.snapshot.snapshot_file import SnapshotReader, snapshot_name
from kraft.errors import KraftError
from kraft.metadata.facade import Metadata
from tests.fuzz import samples
from tests.fuzz.scratch import scratch

# flags, the size of the snapshot, which comes first (u16)
PREFIX = 3
HOLDS_BATCHES = True

_SALVAGE = 1
_FILE = 2
_RECORDS_BY_TYPE = 4
_VERIFY = 8


def seeds() -> Iterator[bytes]:
    snapshots = samples.files("*.checkpoint")
    for number, path in enumerate(samples.files("00000000000000000000.log")):
        log = next(samples.runs(path, 12 * 1024))
        yield bytes((number % 8, 0, 0)) + log
        for snapshot in snapshots[number::5]:
            content = snapshot.read_bytes()
            # Salvaging syncs its output: only few seeds do it, so that the others stay fast.
            for flags in (number % 2, _VERIFY | _SALVAGE) if number == 0 else (number % 2,):
                yield bytes((flags,)) + len(content).to_bytes(2, "big") + content + log


def run(data: bytes) -> None:
    if len(data) < PREFIX:
        return
    flags, content = data[0], data[PREFIX:]
    cut = min(int.from_bytes(data[1:3], "big"), len(content))
    directory = scratch("log-dir") / "__cluster_metadata-0"
    directory.mkdir()
    log = Path(segment_file(str(directory), _base_offset(content[cut:]), ".log"))
    log.write_bytes(content[cut:])
    if cut:
        (directory / _name(content[:cut])).write_bytes(content[:cut])
    before = _content(directory)
    if flags & _VERIFY:
        _verify_and_salvage(directory)
    try:
        metadata = kraft.open_metadata(
            log if flags & _FILE else directory, salvage=bool(flags & _SALVAGE)
        )
        _ask(metadata, flags)
        _past(metadata)
        _write(metadata)
    except KraftError:
        pass
    assert _content(directory) == before, "opening changed the directory"


def _base_offset(log: bytes) -> int:
    base = int.from_bytes(log[:8], "big")
    return base if base < 1 << 63 else 0


def _name(snapshot: bytes) -> str:
    """Return the name of a snapshot: the offset after its records, and its epoch if it has one."""
    try:
        info = SnapshotReader(snapshot).info
    except KraftError:
        return snapshot_name(5, 1)
    return snapshot_name(info.record_count % 64, max(info.epoch, 0))


def _content(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def _ask(metadata: Metadata, flags: int) -> None:
    repr(metadata)
    first, last = metadata.source.offset_range if metadata.source is not None else (0, 0)
    assert first <= last
    for name in metadata.topics:
        metadata.topics[name]
    for row in metadata.partitions.live.nonzero()[0].tolist()[:50]:
        metadata.partitions.row(row)
    for each in (metadata.configs, metadata.acls, metadata.client_quotas):
        repr(each)
    repr((metadata.brokers, metadata.controllers, metadata.features, metadata.quorum))
    record_type = "Partition" if flags & _RECORDS_BY_TYPE else None
    offset = -1
    for record in metadata.records(type=record_type):
        assert record.offset > offset
        offset = record.offset


def _verify_and_salvage(directory: Path) -> None:
    """Check that damage is found and that the salvaged directory is valid."""
    try:
        for finding in kraft.verify(directory).findings:
            str(finding)
        salvaged = scratch("salvaged") / "sound"
        done = kraft.salvage(directory, salvaged)
    except KraftError:
        return
    again = kraft.open_metadata(salvaged)
    assert again.source is not None
    assert not again.source.damage
    assert again.next_offset == done.end_offset


def _past(metadata: Metadata) -> None:
    """Check that the state as of an offset in the range exists and has nothing newer."""
    assert metadata.source is not None
    first, last = metadata.source.offset_range
    middle = first + (last - first) // 2
    past = metadata.at(middle)
    assert past.next_offset <= max(middle, first)
    assert metadata.at(metadata.next_offset).state == metadata.state


def _write(metadata: Metadata) -> None:
    path = metadata.write_snapshot(scratch("written"))
    for use_column_cache in (True, False):
        again = kraft.open_metadata(path, use_column_cache=use_column_cache)
        assert len(again.partitions) == len(metadata.partitions)
        assert {*again.topics} == {*metadata.topics}
        assert {*again.brokers} == {*metadata.brokers}
