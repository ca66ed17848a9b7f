"""A directory that gets its name once it is complete."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.errors import InvalidRequestError, StorageError
from kraft.metadata.new_directory import new_directory


def test_the_directory_has_its_name_once_the_block_has_ended(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "new"
    with new_directory(target) as part:
        (part / "file").write_text("content")
        assert not target.exists()
    assert (target / "file").read_text() == "content"
    assert [each.name for each in target.parent.iterdir()] == ["new"]


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    with new_directory(tmp_path / "new") as part:
        (part / "file").touch()
        (tmp_path / "new").mkdir()
    assert (tmp_path / "new" / "file").exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_after_an_error_nothing_is_left(tmp_path: Path, error: BaseException) -> None:
    expected = StorageError if isinstance(error, OSError) else KeyboardInterrupt

    def write() -> None:
        with new_directory(tmp_path / "new") as part:
            (part / "file").write_text("content")
            raise error

    with pytest.raises(expected):
        write()
    assert not list(tmp_path.iterdir())


def test_a_directory_with_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(InvalidRequestError, match="already exists: name a new directory"),
        new_directory(tmp_path),
    ):
        pytest.fail("the block ran")


def test_what_another_process_writes_is_not_removed(tmp_path: Path) -> None:
    """Two salvages into one directory: the second removed the files of the first."""
    with new_directory(tmp_path / "new") as part:
        (part / "file").write_text("content")
        with (
            pytest.raises(InvalidRequestError, match=r"new\.part exists: another process"),
            new_directory(tmp_path / "new"),
        ):
            pytest.fail("the block ran")
        assert (part / "file").read_text() == "content"
    assert (tmp_path / "new" / "file").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from kraft.metadata.new_directory import new_directory

steps_left = int(sys.argv[2])

def count(event, arguments):
    global steps_left
    if event in STEPS:
        steps_left -= 1
        if steps_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
with new_directory(Path(sys.argv[1])) as part:
    (part / "folder").mkdir()
    (part / "folder" / "half").write_text("content")
"""
STEPS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock")


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    """It had to be removed by hand, later still after a kill just before the rename.

    A process is killed before each of its changes in turn. The next one replaces what it left,
    and is killed at the same step; the last one completes.
    """
    program = f"STEPS = {STEPS}{KILLED}"

    def ends_at(step: int) -> bool:
        """Tell whether the process was killed, that is had so many steps."""
        command = [sys.executable, "-c", program, target, str(step)]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        return ended.returncode != 0

    target = tmp_path / "new"
    step = remainders = 0
    while True:
        step += 1
        if not ends_at(step):
            break
        if not target.exists():
            remainders += any(tmp_path.iterdir())
            ends_at(step)
        if not target.exists():
            with new_directory(target) as part:
                (part / "folder").mkdir()
                (part / "folder" / "half").write_text("content")
        assert (target / "folder" / "half").read_text() == "content"
        shutil.rmtree(target)
    assert remainders > 5
    assert [each.name for each in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("is_directory", [True, False])
def test_what_kraft_did_not_write_is_not_removed(tmp_path: Path, is_directory: bool) -> None:
    theirs = tmp_path / "new.part"
    if is_directory:
        theirs.mkdir()
        theirs = theirs / "file"
    theirs.write_text("content")
    with (
        pytest.raises(InvalidRequestError, match=r"new\.part exists and has no \.writing"),
        new_directory(tmp_path / "new"),
    ):
        pytest.fail("the block ran")
    assert theirs.read_text() == "content"


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process cannot tell whether another one runs, so it does not remove its directory."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("kraft.metadata.new_directory.fcntl.flock", flock)
    with new_directory(tmp_path / "new") as part:
        (part / "file").write_text("content")
        with (
            pytest.raises(InvalidRequestError, match="If none runs, remove it"),
            new_directory(tmp_path / "new"),
        ):
            pytest.fail("the block ran")
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["file"]
