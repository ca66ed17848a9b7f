"""A directory that gets its name once it is complete."""

from __future__ import annotations

import errno
import os
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
import os, sys
from pathlib import Path
from kraft.metadata.new_directory import new_directory
with new_directory(Path(sys.argv[1])) as part:
    (part / "half").write_text("content")
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    """It had to be removed by hand, also by a nightly backup."""
    target = tmp_path / "new"
    ended = subprocess.run([sys.executable, "-c", KILLED, target], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [each.name for each in tmp_path.iterdir()] == ["new.part"]
    with new_directory(target) as part:
        (part / "file").write_text("content")
    assert [each.name for each in target.iterdir()] == ["file"]
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
