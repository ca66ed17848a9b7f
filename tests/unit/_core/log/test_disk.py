"""The disk interface: files of the operating system and files in memory behave alike."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft._core.log.disk import Disk, OsDisk, write_atomically
from kraft.errors import StorageError
from kraft.simulation.memory_disk import MemoryDisk


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return OsDisk() if request.param == "os" else MemoryDisk()


def test_appended_and_written_bytes_are_read_back(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    assert file.append([b"one", bytearray(b"two"), memoryview(b"three")]) == 0
    assert file.append([b""]) == 11
    assert file.append([b"four"]) == 11
    file.write_at(3, b"TWO")
    file.write_at(17, b"far")
    assert file.size() == 20
    assert file.read_at(0, 100) == b"oneTWOthreefour\0\0far"
    assert file.read_at(18, 100) == b"ar"
    assert file.read_at(99, 5) == b""
    file.truncate(6)
    assert bytes(memoryview(file.map(6))) == b"oneTWO"
    file.sync()
    file.close()
    assert disk.size(str(tmp_path / "a")) == 6


def test_more_buffers_than_one_system_call_takes_are_all_written(
    disk: Disk, tmp_path: Path
) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    pieces = [bytes([i % 256]) * (i % 7) for i in range(300)]
    file.append(pieces)
    assert file.read_at(0, 10_000) == b"".join(pieces)


def test_files_are_listed_renamed_and_removed(disk: Disk, tmp_path: Path) -> None:
    directory = str(tmp_path / "d")
    disk.make_directory(directory)
    disk.make_directory(directory)
    assert disk.list(directory) == []
    for name in ("b", "a"):
        disk.open(f"{directory}/{name}", create=True).close()
    assert disk.list(directory) == ["a", "b"]
    disk.rename(f"{directory}/a", f"{directory}/b")
    disk.sync_directory(directory)
    assert disk.list(directory) == ["b"]
    assert disk.exists(f"{directory}/b")
    disk.remove(f"{directory}/b")
    assert not disk.exists(f"{directory}/b")


def test_a_missing_file_is_a_storage_error_that_names_it(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing: no such file"):
        disk.open(str(tmp_path / "missing"))
    with pytest.raises(StorageError, match="absent"):
        disk.list(str(tmp_path / "absent"))


def test_a_file_opened_for_reading_is_not_written(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    disk.open(path, create=True).close()
    file = disk.open(path, read_only=True)
    for write in (
        lambda: file.append([b"x"]),
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(0),
    ):
        with pytest.raises(StorageError):
            write()


def test_an_atomic_write_leaves_the_new_content_and_no_temporary_file(
    disk: Disk, tmp_path: Path
) -> None:
    directory = str(tmp_path)
    disk.make_directory(directory)
    path = f"{directory}/quorum"
    write_atomically(disk, path, b"a longer first content")
    write_atomically(disk, path, b"second")
    assert disk.open(path).read_at(0, 100) == b"second"
    assert disk.list(directory) == ["quorum"]


def test_an_atomic_write_that_cannot_be_synced_leaves_the_old_content() -> None:
    disk = MemoryDisk()
    disk.make_directory("d")
    write_atomically(disk, "d/quorum", b"old")
    disk.refuse("sync")
    with pytest.raises(StorageError):
        write_atomically(disk, "d/quorum", b"new")
    assert disk.open("d/quorum").read_at(0, 100) == b"old"


def test_a_mapping_outlives_its_file_and_cannot_be_written(tmp_path: Path) -> None:
    disk = OsDisk()
    path = str(tmp_path / "a")
    file = disk.open(path, create=True)
    file.append([b"x" * 5000])
    mapping = file.map(5000)
    view = memoryview(mapping)
    file.close()
    os.unlink(path)
    assert view[4990:] == b"x" * 10
    assert view.readonly
    assert view.nbytes == len(mapping) == 5000
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(ValueError, match="cannot map 1 bytes of a file of 0"):
        disk.open(path, create=True).map(1)


def test_a_sync_that_begins_early_changes_nothing_that_is_read(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append([b"one"])
    for position, size in ((0, 3), (1, 0), (2, 100)):
        file.begin_sync(position, size)
    file.append([b"two"])
    file.sync()
    assert file.read_at(0, 100) == b"onetwo"


def test_an_empty_file_maps_to_no_bytes(tmp_path: Path) -> None:
    assert bytes(memoryview(OsDisk().open(str(tmp_path / "a"), create=True).map(0))) == b""


def test_using_a_closed_file_is_an_error_that_says_so(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    file.close()
    file.close()
    for use in (
        lambda: file.append([b"x"]),
        lambda: file.read_at(0, 1),
        lambda: file.begin_sync(0, 1),
        file.sync,
    ):
        with pytest.raises(StorageError, match="closed"):
            use()


def test_negative_positions_and_sizes_are_rejected(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    for use in (
        lambda: file.read_at(-1, 1),
        lambda: file.read_at(0, -1),
        lambda: file.write_at(-1, b"x"),
        lambda: file.truncate(-1),
        lambda: file.map(-1),
        lambda: file.begin_sync(-1, 1),
        lambda: file.begin_sync(0, -1),
    ):
        with pytest.raises(ValueError, match=r"is negative|cannot map -1 bytes"):
            use()
