"""A log directory of one or two segments: opened read-only, with salvage, and then for writing.

A read-only open changes nothing in the directory. After an open for writing, the log opens again
without a torn tail and with the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kraft._core.log.log import Log
from kraft._core.log.partition_directory import segment_file
from kraft.errors import DamagedLogError, KraftError
from tests.fuzz import samples
from tests.fuzz.scratch import scratch

# flags, the permille of the bytes that go to the first segment (u16)
PREFIX = 3
HOLDS_BATCHES = True

_SALVAGE = 1
_BASE_FROM_BYTES = 2
_BESIDE = 4
_WRITE = 8


def seeds() -> Iterator[bytes]:
    for number, path in enumerate(samples.files("*.log")):
        for flags in (_BASE_FROM_BYTES, _BASE_FROM_BYTES | _SALVAGE | _BESIDE, 0x0A):
            piece = next(samples.runs(path, 4096 + 1024 * (number % 3)))
            yield bytes((flags, 1, 244)) + piece


def run(data: bytes) -> None:
    if len(data) < PREFIX:
        return
    flags, content = data[0], data[PREFIX:]
    cut = len(content) * min(int.from_bytes(data[1:3], "big"), 1000) // 1000
    directory = scratch("log")
    _lay(directory, content[:cut], content[cut:], flags)
    before = _content(directory)
    found = _read(directory, salvage=bool(flags & _SALVAGE))
    assert _content(directory) == before, "reading changed the directory"
    if flags & _SALVAGE and found is not None:
        _read(directory, salvage=False)
    if flags & _WRITE:
        _write(directory)
        if content:
            _append(content)


def _lay(directory: Path, first: bytes, second: bytes, flags: int) -> None:
    """Write the segments, named by their first batch's offset or by chance."""
    for number, content in enumerate((first, second)):
        base = int.from_bytes(content[:8], "big") if flags & _BASE_FROM_BYTES else number * 10
        if number and not content:
            continue
        base = base if base < 1 << 63 else number
        path = Path(segment_file(str(directory), base, ".log"))
        path.write_bytes(content)
        if flags & _BESIDE:
            path.with_suffix(".index").write_bytes(content[:24])
            path.with_suffix(".timeindex").write_bytes(content[5:29])
            (directory / "leader-epoch-checkpoint").write_bytes(content[:40])


def _content(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def _read(directory: Path, *, salvage: bool) -> list[bytes] | None:
    """Return the batches of the log, or None if it is rejected."""
    try:
        log = Log.open(directory, read_only=True, salvage=salvage)
    except DamagedLogError:
        if salvage:
            raise
        return None
    except KraftError:
        return None
    with log:
        return _batches(log)


def _batches(log: Log) -> list[bytes]:
    found: list[bytes] = []
    offset = log.log_start_offset
    assert log.log_start_offset <= log.log_end_offset
    for batch in log.batches():
        assert batch.base_offset >= offset
        assert batch.last_offset >= batch.base_offset
        if len(found) < 50:
            fetched = log.fetch(batch.base_offset, 1)
            assert bytes(fetched) == bytes(batch.data), "a fetch returns another batch"
            inside = log.fetch(batch.last_offset, 1)
            assert bytes(inside) == bytes(batch.data)
            log.epoch_at(batch.base_offset)
            log.end_offset_for_epoch(batch.epoch)
        found.append(bytes(batch.data))
        offset = batch.last_offset + 1
    assert offset <= log.log_end_offset
    if log.log_end_offset < (1 << 63) - 1:
        assert len(log.fetch(log.log_end_offset, 100)) == 0
    assert len(log.gaps) == 0 or log.read_only
    return found


def _write(directory: Path) -> None:
    try:
        log = Log.open(directory)
    except KraftError:
        return
    with log:
        batches, end = _batches(log), log.log_end_offset
    with Log.open(directory) as log:
        assert log.torn_tail is None, "the tail is still torn after recovery"
        assert log.log_end_offset == end
        assert _batches(log) == batches
        middle = log.log_start_offset + (end - log.log_start_offset) // 2
        cut = log.truncate_to(middle)
        assert cut <= middle
        assert _batches(log) == batches[: len(_batches(log))]
    with Log.open(directory, read_only=True) as log:
        assert log.log_end_offset == cut


def _append(content: bytes) -> None:
    """Append foreign bytes, which are stored unchanged or rejected, to a log that begins there."""
    directory = scratch("appended")
    with Log.open(directory) as log:
        log.truncate_fully_and_start_at(min(int.from_bytes(content[:8], "big"), 1 << 62))
        start = log.log_end_offset
        try:
            first, last = log.append(content, verify_crc=True)
        except KraftError:
            assert log.log_end_offset == start, "a rejected append moved the log end"
            assert log.size == 0
            return
        assert (first, last + 1) == (start, log.log_end_offset)
        assert b"".join(_batches(log)) == content
    with Log.open(directory, read_only=True) as log:
        assert log.torn_tail is None
        assert b"".join(_batches(log)) == content, "the appended batches are not in the log"
