"""Every writer of files under partial writes and failures of system calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft._core.log.log import Log
from kraft._core.snapshot.column_checkpoint import ColumnsRejected, load_columns
from kraft._core.snapshot.snapshot_file import SnapshotReader
from tests.durability.calls import CONTENT, WRITERS
from tests.durability.conftest import Run
from tests.durability.recording import FAIL, SHORTEN, Kind, Recording
from tests.durability.replayed_disk import ReplayedDisk
from tests.durability.rules import Rules

#: The last synced offset of 286 appends in each slot.
NOTES = {0: b"%064d\n" % 284, 512: b"%064d\n" % 285}


def write(run: Run, place: Path, writer: str, **settings: str) -> int:
    """Run a writer, check its calls by the rules, and return its exit code."""
    directory = place / "node"
    replayed = ReplayedDisk(str(directory))
    rules = Rules(replayed, str(directory))
    ran = run("-m", "tests.durability.calls", writer, str(directory), **settings)
    assert ran.returncode in (0, 3), ran.stderr
    for call in Recording(place / "calls").new():
        rules.check(call)
        replayed.take(call)
    assert replayed.differences() == []
    return ran.returncode


def written(directory: Path, writer: str) -> bytes:
    name = f"{5:020d}-{1:010d}.checkpoint" if writer == "output" else "content"
    return (directory / name).read_bytes()


def test_a_record_that_is_being_written_is_read_by_the_next_call(run: Run, place: Path) -> None:
    assert write(run, place, "output") == 0
    whole = (place / "calls").read_bytes()
    calls = list(Recording(place / "calls").new())
    for cut in range(len(whole)):
        growing = place / "growing"
        growing.write_bytes(whole[:cut])
        recording = Recording(growing)
        read = list(recording.new())
        growing.write_bytes(whole)
        assert read + list(recording.new()) == calls, f"cut at {cut}"


@pytest.mark.parametrize("writer", WRITERS)
def test_partial_writes_are_completed(writer: str, run: Run, place: Path) -> None:
    assert write(run, place, writer, **{SHORTEN: "7:2"}) == 0
    directory = place / "node"
    if writer == "log":
        with Log.open(directory, read_only=True) as log:
            assert log.log_end_offset == 100 * 300
            assert len(log.segments) > 5
    elif writer == "snapshot":
        path = directory / f"{5:020d}-{1:010d}.checkpoint"
        assert SnapshotReader(path).info.record_count == 5000
        assert not isinstance(load_columns(path), ColumnsRejected)
    else:
        assert written(directory, writer) == CONTENT
    if writer == "group":
        notes = (directory / "notes").read_bytes()
        for position, note in NOTES.items():
            assert notes[position : position + len(note)] == note


#: Writer, kind of the failing call, part of the file's name, and the number of such calls that
#: succeed before the first failure. The writer continues after the failure.
REFUSED = [
    ("buffers", "w", "content", 3),
    ("buffers", "s", "content", 0),
    ("positions", "w", "content", 3),
    ("group", "w", "content", 9),
    ("group", "s", "content", 9),
    ("log", "w", ".log", 9),
    ("log", "s", ".log", 9),
    ("log", "d", "", 2),
    *(("atomic", call, "content", 0) for call in "wsrd"),
    *(("snapshot", call, ".checkpoint", 0) for call in "wsrd"),
    *(("snapshot", call, ".columns", 0) for call in "wsrd"),
    *(("output", call, ".checkpoint", 0) for call in "wsrd"),
]


@pytest.mark.parametrize(("writer", "call", "name", "before"), REFUSED)
def test_after_a_failure_nothing_more_is_written(
    writer: str, call: str, name: str, before: int, run: Run, place: Path
) -> None:
    assert write(run, place, writer, **{FAIL: f"{call}:{name or '0'}:{before}"}) == 3
    failed = [each for each in Recording(place / "calls").new() if each.kind is Kind.FAILED]
    assert len(failed) == 1
    left = {path.name for path in (place / "node").iterdir()}
    if writer in ("snapshot", "output", "atomic") and call != "d":
        assert not any(each.endswith(name) for each in left)
