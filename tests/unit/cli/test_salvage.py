"""``kraft salvage``: output and exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.unit.cli.conftest import BROKER, CONTROLLER, METADATA_LOG, Run


def test_a_sound_directory_is_copied(kraft: Run, tmp_path: Path) -> None:
    ran = kraft("salvage", CONTROLLER, "--to", tmp_path / "new")
    assert (ran.code, ran.err) == (0, "")
    assert "offsets 0 to 2622 in 4 segments" in ran.out
    assert kraft("open", tmp_path / "new", "--json").json["offsets"]["asOf"] == 2622


def test_skipped_parts_are_named_and_have_an_exit_code(kraft: Run, tmp_path: Path) -> None:
    shutil.copytree(BROKER, tmp_path / "damaged")
    newest = max((tmp_path / "damaged" / METADATA_LOG).glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-10])
    ran = kraft("salvage", tmp_path / "damaged", "--to", tmp_path / "new", "--json")
    assert ran.code == 3
    assert [newest.name in sentence for sentence in ran.json["leftOut"]] == [True]
    assert newest.name not in ran.json["snapshots"]
    assert ran.json["logEndOffset"] == 2622
    again = kraft("salvage", tmp_path / "damaged", "--to", tmp_path / "again")
    assert again.code == 3
    assert again.err.startswith(f"note: skipped: {newest}: ")
    assert kraft("open", tmp_path / "damaged").code == 1
    opened = kraft("open", tmp_path / "damaged", "--salvage", "--json")
    assert opened.code == 3
    assert opened.json["offsets"]["loadedSnapshot"] == "00000000000000001519-0000000001.checkpoint"
    assert any(newest.name in sentence for sentence in opened.json["attention"])


def test_a_source_without_sound_parts_is_an_error(kraft: Run, tmp_path: Path) -> None:
    ran = kraft("salvage", tmp_path / "nowhere", "--to", tmp_path / "new")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: no such file or directory")
    ran = kraft("salvage", CONTROLLER, "--to", CONTROLLER)
    assert ran.code == 1
    assert "already exists" in ran.err
