"""``kraft verify``: output and exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.unit.cli.conftest import BROKER, CONTROLLER, METADATA_LOG, Run


def test_sound_directories_are_a_table(kraft: Run) -> None:
    ran = kraft("verify", CONTROLLER, BROKER)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[1:] for line in ran.lines] == [
        ["NODE", "LOG", "SNAPSHOTS", "REPLAYED"],
        ["101", "0", "to", "2622", "3", "2"],
        ["1", "0", "to", "2622", "3", "3"],
    ]


def test_a_contradiction_is_named_with_file_and_offset(kraft: Run, tmp_path: Path) -> None:
    directory = tmp_path / "node"
    shutil.copytree(CONTROLLER, directory)
    epochs = directory / METADATA_LOG / "leader-epoch-checkpoint"
    epochs.write_bytes(b"0\n2\n1 0\n2 7\n")
    ran = kraft("verify", directory)
    assert ran.code == 4
    assert ran.lines[2].startswith(f"contradiction: {epochs} at offset 7: ")
    assert ran.err == f"error: {len(ran.lines) - 2} contradictions\n"
    document = kraft("verify", directory, "--json").json
    assert not document["isSound"]
    assert document["findings"][0]["path"] == str(epochs)
    assert document["findings"][0]["offset"] == 7
    assert document["directories"][0]["replayedSnapshots"] == 2


def test_a_note_and_a_path_without_metadata_have_codes_of_their_own(
    kraft: Run, tmp_path: Path
) -> None:
    directory = tmp_path / "node"
    shutil.copytree(CONTROLLER, directory)
    (directory / METADATA_LOG / "leader-epoch-checkpoint").unlink()
    ran = kraft("verify", directory)
    assert (ran.code, ran.err) == (3, "")
    assert ran.lines[2].startswith("note: ")
    ran = kraft("verify", CONTROLLER, tmp_path / "nowhere")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: no such file or directory")
