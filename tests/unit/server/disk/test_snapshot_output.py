"""SnapshotOutput: a file is complete under its final name, or does not exist."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
from typing_extensions import Buffer

from kraft._core.log.disk import OsDisk
from kraft.errors import StorageError
from kraft.raft.rpc import OffsetAndEpoch
from kraft.server.disk.snapshot_output import SnapshotOutput
from kraft.simulation.memory_disk import MemoryDisk, MemoryFile
from tests.harness.gated_disk import PATIENCE_S, GatedDisk

ID = OffsetAndEpoch(100, 3)
NAME = "d/00000000000000000100-0000000003.checkpoint"
PIECES = [bytes([number]) * 1000 for number in range(5)]


def pieces(*numbers: int) -> list[memoryview]:
    return [memoryview(PIECES[number]) for number in numbers]


def finished(output: SnapshotOutput) -> BaseException | None:
    """Finish the output and return the future's result."""
    result: Future[BaseException | None] = Future()
    output.finish(lambda done: result.set_result(done.exception()))
    return result.result(PATIENCE_S)


def test_the_file_has_the_buffers_in_order(tmp_path: Path) -> None:
    output = SnapshotOutput(OsDisk(), str(tmp_path), ID)
    output.write(pieces(0, 1))
    output.write(pieces(2))
    output.write(pieces(3, 4))
    assert finished(output) is None
    (file,) = tmp_path.iterdir()
    assert file.name == NAME.removeprefix("d/")
    assert file.read_bytes() == b"".join(PIECES)
    assert output.unwritten_size == 0


def test_file_and_directory_are_synced_before_the_callback() -> None:
    disk = MemoryDisk()
    output = SnapshotOutput(disk, "d", ID)
    output.write(pieces(0))
    assert finished(output) is None
    assert disk.synced == [NAME + ".tmp", "d"]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
@pytest.mark.parametrize(("of_node", "expected"), [(0, 10), (15, 15)])
def test_the_thread_gives_way_to_the_loop(of_node: int, expected: int) -> None:
    found: list[int] = []

    class NotesPriority(MemoryDisk):
        def rename(self, old: str, new: str) -> None:
            found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            super().rename(old, new)

    def run_node() -> None:
        own = threading.get_native_id()
        nice = max(of_node, os.getpriority(os.PRIO_PROCESS, own))
        os.setpriority(os.PRIO_PROCESS, own, nice)
        output = SnapshotOutput(NotesPriority(), "d", ID)
        output.write(pieces(0))
        assert finished(output) is None
        found.append(os.getpriority(os.PRIO_PROCESS, own))
        found.append(nice)

    node = threading.Thread(target=run_node)
    node.start()
    node.join()
    of_thread, of_loop, before = found
    assert of_thread == max(expected, before)
    assert of_loop == before


def test_an_earlier_temporary_file_is_overwritten(tmp_path: Path) -> None:
    left = tmp_path / (NAME.removeprefix("d/") + ".tmp")
    left.write_bytes(bytes(100_000))
    output = SnapshotOutput(OsDisk(), str(tmp_path), ID)
    output.write(pieces(1))
    assert finished(output) is None
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == PIECES[1]


def test_write_never_waits_for_the_disk() -> None:
    disk = GatedDisk()
    output = SnapshotOutput(disk, "d", ID)
    output.write(pieces(0, 1))
    written = output.write(pieces(2))
    assert disk.is_asked.wait(PATIENCE_S)
    assert output.unwritten_size == 3000
    disk.gate.set()
    written.result(PATIENCE_S)
    assert output.unwritten_size == 0
    assert finished(output) is None
    assert disk.files[NAME] == b"".join(PIECES[:3])


@pytest.mark.parametrize("operation", ["truncate", "write", "begin_sync", "sync", "rename"])
def test_one_failed_write_leaves_no_snapshot(operation: str) -> None:
    """Otherwise a file with a final name and a footer would lack a buffer."""
    disk = MemoryDisk()
    disk.refuse(operation)
    output = SnapshotOutput(disk, "d", ID)
    output.write(pieces(0))
    output.write(pieces(1, 2))
    error = finished(output)
    assert isinstance(error, StorageError)
    assert f"cannot {operation}" in str(error)
    assert disk.files == {}
    assert output.unwritten_size == 0


def test_a_failure_is_visible_before_the_end() -> None:
    disk = MemoryDisk()
    disk.refuse("write")
    output = SnapshotOutput(disk, "d", ID)
    assert not output.has_failed
    output.write(pieces(0)).result(PATIENCE_S)
    assert output.has_failed


def test_a_cancelled_output_leaves_no_file() -> None:
    disk = GatedDisk()
    output = SnapshotOutput(disk, "d", ID)
    output.write(pieces(0))
    output.write(pieces(1, 2))
    assert disk.is_asked.wait(PATIENCE_S)
    # The disk is still busy; `cancel` does not wait for it.
    output.cancel()
    disk.gate.set()
    output.cancel(wait=True)
    assert disk.files == {}


def test_an_output_cancelled_before_its_first_write_creates_no_file() -> None:
    disk = MemoryDisk()
    output = SnapshotOutput(disk, "d", ID)
    output.cancel(wait=True)
    assert disk.files == {}


def test_an_output_cancelled_before_its_sync_is_not_renamed() -> None:
    disk = GatedDisk()
    output = SnapshotOutput(disk, "d", ID)
    output.write(pieces(0))
    result: Future[BaseException | None] = Future()
    output.finish(lambda done: result.set_result(done.exception()))
    output.cancel()
    disk.gate.set()
    assert result.result(PATIENCE_S) is None
    output.cancel(wait=True)
    assert disk.files == {}


class ReleasedFile(MemoryFile):
    """A file that records whether it was closed."""

    is_closed = False

    def append(self, buffers: Sequence[Buffer], /) -> int:
        assert not self.is_closed
        return super().append(buffers)

    def close(self) -> None:
        assert not self.is_closed, "closed twice"
        self.is_closed = True


@pytest.mark.parametrize("refused", [None, "write", "sync", "rename"])
def test_the_file_is_closed_in_every_case(refused: str | None) -> None:
    opened: list[ReleasedFile] = []

    class Disk(MemoryDisk):
        def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
            content = self.files.setdefault(path, bytearray())
            opened.append(ReleasedFile(self, path, content, read_only))
            return opened[-1]

    disk = Disk()
    if refused is not None:
        disk.refuse(refused)
    output = SnapshotOutput(disk, "d", ID)
    output.write(pieces(0))
    output.write(pieces(1))
    assert (finished(output) is None) == (refused is None)
    assert [file.is_closed for file in opened] == [True]
