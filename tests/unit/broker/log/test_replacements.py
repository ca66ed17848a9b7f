"""What a stop inside of a compaction or deletion leaves, and what a start makes of it."""

from __future__ import annotations

from pathlib import Path

from kraft.broker.log.settings import LogSettings
from tests.harness.partition_logs import TOPIC_ID, Logs, produced

SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=100)


def filled(tmp_path: Path) -> tuple[Path, list[int]]:
    """Return the closed directory of a partition with 30 records, and its base offsets."""
    logs = Logs(tmp_path, settings=SMALL)
    log = logs.manager.create("t", 0, TOPIC_ID)
    for _ in range(30):
        log.append_as_leader(produced(), 1)
    bases = list(log.core.base_offsets)
    logs.manager.close()
    return tmp_path / "t-0", bases


def offsets(tmp_path: Path) -> list[int]:
    log = Logs(tmp_path, settings=SMALL).manager.get("t", 0)
    assert log is not None
    return [batch.base_offset for batch in log.core.batches()]


def names(home: Path) -> set[str]:
    return {path.suffix for path in home.iterdir()}


def test_a_swapped_segment_replaces_those_that_it_covers(tmp_path: Path) -> None:
    home, bases = filled(tmp_path)
    # Two segments became one that has their second halves.
    first, second, third = (home / f"{base:020d}.log" for base in bases[:3])
    kept = second.read_bytes()
    home.joinpath(f"{first.name}.swap").write_bytes(kept)
    assert offsets(tmp_path) == list(range(bases[1], 30))
    assert first.read_bytes() == kept
    assert not second.exists()
    assert third.exists()
    assert ".swap" not in names(home)


def test_a_swap_file_after_an_unfinished_one_is_dropped(tmp_path: Path) -> None:
    home, bases = filled(tmp_path)
    home.joinpath(f"{bases[0]:020d}.log.cleaned").write_bytes(b"half")
    home.joinpath(f"{bases[1]:020d}.log.swap").write_bytes(b"")
    assert offsets(tmp_path) == list(range(30))
    assert not names(home) & {".swap", ".cleaned"}


def test_files_to_be_removed_and_orphans_are_removed(tmp_path: Path) -> None:
    home, bases = filled(tmp_path)
    for name in (
        f"{7777:020d}.log.deleted",
        f"{7777:020d}.index",
        f"{7777:020d}.txnindex",
        f"{bases[1]:020d}.log.tmp",
        f"{bases[1] + 1:020d}.snapshot",
    ):
        home.joinpath(name).write_bytes(b"")
    before = len(list(home.iterdir()))
    assert offsets(tmp_path) == list(range(30))
    assert len(list(home.iterdir())) == before - 5
