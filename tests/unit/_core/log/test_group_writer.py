"""Group commit in another thread: the order of appends, one sync a group, and disk failures."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft._core.log.disk import OsDisk, OsFile
from kraft._core.log.group_writer import GroupWriter
from kraft.errors import StorageError


class Running:
    """A group writer with its thread, its file, its file of notes and its eventfd."""

    def __init__(self, path: Path, file: OsFile | None = None) -> None:
        disk = OsDisk()
        self.file = file or disk.open(path / "file", create=True)
        self.notes = disk.open(path / "notes", create=True)
        self.signal_fd = os.eventfd(0)
        self.group = GroupWriter(self.signal_fd, self.notes)
        self.group.set_position(self.file, self.file.size())
        self.thread = threading.Thread(target=self.group.run)
        self.done = 0

    def start(self) -> None:
        self.thread.start()

    def put(self, *appends: bytes) -> None:
        """Queue appends and hand them over to the writer's thread."""
        for data in appends:
            assert self.group.put(data, 0, b"")
        self.group.hand_over()

    def until(self, count: int) -> None:
        """Wait until `take_done` has returned this many appends."""
        while self.done < count:
            os.eventfd_read(self.signal_fd)
            while taken := self.group.take_done():
                self.done += taken

    def close(self) -> None:
        self.group.close()
        self.thread.join(60)
        assert not self.thread.is_alive()
        os.close(self.signal_fd)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    running.start()
    yield running
    running.close()


def test_appends_lie_in_the_order_in_which_they_were_put(running: Running, tmp_path: Path) -> None:
    wanted = b""
    for number in range(3000):
        data = b"%d;" % number * (number % 50)
        wanted += data
        while not running.group.put(data, 0, b""):
            running.until(running.done + 1)
        running.group.hand_over()
    running.until(3000)
    assert (tmp_path / "file").read_bytes() == wanted
    assert running.group.pending == 0


def test_waiting_appends_are_synced_together(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.put(*[b"data"] * 100)
    running.start()
    running.until(100)
    assert running.group.sync_count == 1
    running.close()


def test_a_full_ring_rejects_the_next_append(tmp_path: Path) -> None:
    running = Running(tmp_path)
    assert [running.group.put(b"x", 0, b"") for _ in range(1025)] == [True] * 1024 + [False]
    running.group.hand_over()
    running.start()
    running.until(1024)
    running.put(b"x")
    running.until(1025)
    running.close()


def test_of_several_notes_of_a_group_only_the_last_is_written(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.group.put(b"first", 0, b"one")
    running.group.put(b"second", 10, b"two")
    running.group.hand_over()
    running.start()
    running.until(2)
    assert (tmp_path / "notes").read_bytes() == bytes(10) + b"two"
    running.close()


def test_appends_go_to_the_file_and_position_that_were_set(
    running: Running, tmp_path: Path
) -> None:
    running.put(b"behind")
    running.until(1)
    other = OsDisk().open(tmp_path / "other", create=True)
    other.append([b"there "])
    running.group.set_position(other, 6)
    running.put(b"behind")
    running.until(2)
    assert (tmp_path / "file").read_bytes() == b"behind"
    assert (tmp_path / "other").read_bytes() == b"there behind"


def test_close_finishes_all_appends(tmp_path: Path) -> None:
    running = Running(tmp_path)
    for _ in range(1000):
        running.group.put(b"data", 0, b"")
    running.start()
    running.close()
    assert (tmp_path / "file").read_bytes() == b"data" * 1000


def test_appends_are_not_written_before_they_are_handed_over(
    running: Running, tmp_path: Path
) -> None:
    running.put(b"first ")
    running.until(1)
    running.group.put(b"second", 0, b"")
    time.sleep(0.01)
    assert (tmp_path / "file").read_bytes() == b"first "
    running.group.hand_over()
    running.until(2)
    assert (tmp_path / "file").read_bytes() == b"first second"


def test_appends_of_either_thread_lie_in_their_order(running: Running, tmp_path: Path) -> None:
    wanted = b""
    for number in range(500):
        data = b"%d;" % number
        wanted += data
        if number % 3:
            running.put(data)
            running.until(number + 1)
        else:
            running.group.put(data, number, b"!")
            running.group.write_now()
            assert running.group.take_done() == 1
            running.done += 1
    assert (tmp_path / "file").read_bytes() == wanted
    assert (tmp_path / "notes").read_bytes()[498] == ord("!")
    assert running.group.sync_count == 500


def test_write_now_is_not_allowed_while_the_thread_writes(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.put(b"first")
    running.group.put(b"second", 0, b"")
    with pytest.raises(AssertionError, match="under way"):
        running.group.write_now()
    running.start()
    running.close()
    assert (tmp_path / "file").read_bytes() == b"firstsecond"


@pytest.mark.parametrize(
    ("path", "read_only", "reason"),
    [
        ("/dev/null", False, "cannot sync /dev/null"),
        ("/dev/full", False, "cannot append to /dev/full: No space left"),
        ("/dev/zero", True, "cannot append to /dev/zero: Bad file descriptor"),
    ],
)
def test_after_a_disk_failure_no_append_is_done(
    path: str, read_only: bool, reason: str, tmp_path: Path
) -> None:
    running = Running(tmp_path, OsDisk().open(path, read_only=read_only))
    running.start()
    running.group.put(b"data", 0, b"note")
    running.group.hand_over()
    with pytest.raises(StorageError, match=reason):
        running.until(1)
    running.group.put(b"more", 0, b"note")
    running.group.hand_over()
    running.thread.join(60)
    assert not running.thread.is_alive()
    time.sleep(0.01)
    with pytest.raises(StorageError, match=reason):
        running.group.take_done()
    assert (tmp_path / "notes").read_bytes() == b""
    running.close()


def test_an_append_that_failed_in_this_thread_is_not_retried_by_the_other(tmp_path: Path) -> None:
    running = Running(tmp_path, OsDisk().open("/dev/null"))
    running.start()
    running.group.put(b"data", 0, b"note")
    running.group.write_now()
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot sync /dev/null"):
            running.group.take_done()
    running.group.hand_over()
    running.close()
    assert running.group.pending == 1
    assert (tmp_path / "notes").read_bytes() == b""


def test_a_dropped_writer_releases_its_buffers(tmp_path: Path) -> None:
    running = Running(tmp_path)
    data = bytearray(b"data")
    running.group.put(data, 0, b"")
    with pytest.raises(BufferError):
        data.append(1)
    del running.group, running.thread
    data.append(1)
