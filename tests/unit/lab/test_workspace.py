"""The directory that a scenario writes to is removed unless the user keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.errors import InvalidRequestError, StorageError
from kraft.lab.workspace import workspace

pytestmark = pytest.mark.usefixtures("temporary_place")


def write_and_end(directory: Path | None, end: type[BaseException], *, keep: bool) -> None:
    with workspace(directory, keep=keep, needed_size=0) as path:
        (path / "file").write_text("written")
        raise end


def test_a_temporary_directory_is_removed_with_its_files(temporary_place: Path) -> None:
    with workspace(None, keep=False, needed_size=0) as path:
        assert path.parent == temporary_place
        (path / "sub").mkdir()
        (path / "sub" / "file").write_text("written")
    assert list(temporary_place.iterdir()) == []


@pytest.mark.parametrize("end", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("keep", [True, False])
def test_a_temporary_directory_is_removed_after_ctrl_c_and_errors_even_with_keep(
    end: type[BaseException], keep: bool, temporary_place: Path
) -> None:
    with pytest.raises(end):
        write_and_end(None, end, keep=keep)
    assert list(temporary_place.iterdir()) == []


def test_a_temporary_directory_stays_with_keep() -> None:
    with workspace(None, keep=True, needed_size=0) as path:
        (path / "file").write_text("written")
    assert (path / "file").read_text() == "written"


def test_a_named_directory_is_created_and_always_stays(tmp_path: Path) -> None:
    named = tmp_path / "of" / "mine"
    with pytest.raises(KeyboardInterrupt):
        write_and_end(named, KeyboardInterrupt, keep=False)
    assert (named / "file").exists()


def test_a_named_directory_with_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with (
        pytest.raises(InvalidRequestError, match="not empty"),
        workspace(tmp_path, keep=False, needed_size=0),
    ):
        pytest.fail("the block must not run")
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_file_is_rejected_as_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(StorageError, match="cannot use"),
        workspace(tmp_path / "file", keep=False, needed_size=0),
    ):
        pytest.fail("the block must not run")


def test_too_little_space_is_an_error_before_anything_is_written(temporary_place: Path) -> None:
    with (
        pytest.raises(StorageError, match=r"writes up to .* GiB"),
        workspace(None, keep=False, needed_size=1 << 60),
    ):
        pytest.fail("the block must not run")
    assert list(temporary_place.iterdir()) == []
