"""Slots for runs: how many at a time, and what is left of an ended run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.errors import StorageError
from kraft.fleet.run_slot import RunSlot, await_slots, take_slot

#: A process that lives until its standard input ends.
LISTENING = (sys.executable, "-c", "import sys; sys.stdin.read()")


def test_a_machine_has_so_many_slots_and_each_is_free_again(tmp_path: Path) -> None:
    first, second = take_slot(tmp_path, 2, "a"), take_slot(tmp_path, 2, "b")
    assert first is not None
    assert second is not None
    assert first.directory != second.directory
    assert take_slot(tmp_path, 2, "c") is None
    assert take_slot(tmp_path, 2, "c", wait_s=0.2) is None
    (first.directory / "log").write_text("a")
    first.release()
    with first_again(tmp_path) as again:
        assert again.directory == first.directory
        assert list(again.directory.iterdir()) == []
    second.release()
    assert not first.directory.exists()


def first_again(work: Path) -> RunSlot:
    found = take_slot(work, 2, "d")
    assert found is not None
    return found


def test_a_child_keeps_the_slot_of_a_parent_that_is_gone(tmp_path: Path) -> None:
    """A killed task of Spark leaves its run the time to end."""
    slot = take_slot(tmp_path, 1, "a")
    assert slot is not None
    child = subprocess.Popen(LISTENING, stdin=subprocess.PIPE, pass_fds=(slot.fd,))
    (slot.directory / "log").write_text("a")
    # As when the parent is killed: its descriptor is closed, and the files stay.
    os.close(slot.fd)
    try:
        assert take_slot(tmp_path, 1, "b") is None
        assert await_slots(tmp_path, "a", timeout_s=0.2) == 1
        assert await_slots(tmp_path, "b", timeout_s=60.0) == 0
        assert (slot.directory / "log").exists()
    finally:
        child.communicate()
    assert await_slots(tmp_path, "a", timeout_s=60.0) == 0
    assert not slot.directory.exists()


def test_files_of_a_dead_run_are_removed_by_the_next_one(tmp_path: Path) -> None:
    slot = take_slot(tmp_path, 1, "a")
    assert slot is not None
    (slot.directory / "log").write_text("a")
    os.close(slot.fd)
    with first_again(tmp_path) as again:
        assert list(again.directory.iterdir()) == []


def test_a_directory_of_another_kind_is_rejected(tmp_path: Path) -> None:
    (tmp_path / f"kraft-sweep-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="name another"):
        take_slot(tmp_path, 1, "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot use"):
        take_slot(tmp_path / "file", 1, "a")
