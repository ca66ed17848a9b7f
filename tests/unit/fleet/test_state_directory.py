"""What brokers keep between two runs: written, read again, and rejected where it does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft.errors import InvalidConfigError, InvalidRequestError, StorageError
from kraft.fleet.fleet import FleetSettings
from kraft.fleet.launch import FleetRequest, run_fleet
from kraft.fleet.library import named_scenario
from kraft.fleet.state_directory import (
    STATE_FILE,
    FleetState,
    SavedSnapshot,
    check_state_directory,
    read_state,
    snapshot_path,
    write_state,
)

SETTINGS = FleetSettings(10, processes=2)


def saved(directory: Path, offset: int) -> FleetState:
    """Write snapshots of both processes as they would, and the state."""
    snapshots = {}
    for number in range(SETTINGS.processes):
        path = snapshot_path(directory, number, offset, 3)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(100 + number))
        snapshots[number] = SavedSnapshot(str(path.absolute()), offset, 3, 100 + number)
    state = FleetState("mine", snapshots)
    write_state(directory, SETTINGS, state)
    return state


def test_a_state_is_read_again_and_replaces_the_one_before(tmp_path: Path) -> None:
    check_state_directory(tmp_path / "new" / "state")
    assert read_state(tmp_path / "new" / "state", SETTINGS, "mine") is None
    first, second = saved(tmp_path, 50), saved(tmp_path, 70)
    found = read_state(tmp_path, SETTINGS, "mine")
    assert found == second
    assert found.offset == 70
    assert not Path(first.snapshots[0].path).exists()
    assert Path(second.snapshots[1].path).name == "00000000000000000070-0000000003.checkpoint"
    check_state_directory(tmp_path)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"brokers": 11}, "a fleet with --brokers 10, and this one has 11"),
        ({"processes": 1}, "--processes 2, and this one has 1"),
        ({"seed": 7}, "--seed 0, and this one has 7"),
        ({"directories": 2}, "--directories 1"),
    ],
)
def test_the_state_of_another_fleet_is_rejected(
    tmp_path: Path, other: dict[str, Any], reason: str
) -> None:
    saved(tmp_path, 50)
    with pytest.raises(InvalidConfigError, match=reason):
        read_state(tmp_path, replace(SETTINGS, **other), "mine")
    with pytest.raises(InvalidConfigError, match="has the state of cluster 'mine', and"):
        read_state(tmp_path, SETTINGS, "theirs")


@pytest.mark.parametrize(
    "damage",
    [
        lambda file, snapshot: file.write_text("{"),
        lambda file, snapshot: file.write_text("[]"),
        lambda file, snapshot: file.write_text("[" * 100_000),
        lambda file, snapshot: file.write_text(file.read_text().replace('t": 1', 't": 2', 1)),
        lambda file, snapshot: file.write_text(
            json.dumps({**json.loads(file.read_text()), "snapshots": []})
        ),
        lambda file, snapshot: snapshot.write_bytes(b"short"),
        lambda file, snapshot: snapshot.unlink(),
    ],
)  # fmt: skip
def test_a_damaged_state_is_named(tmp_path: Path, damage: Any) -> None:
    state = saved(tmp_path, 50)
    damage(tmp_path / STATE_FILE, Path(state.snapshots[1].path))
    with pytest.raises(StorageError, match=r"fleet\.json is damaged"):
        read_state(tmp_path, SETTINGS, "mine")


def test_a_directory_with_other_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidConfigError, match="has other files than a fleet's state"):
        check_state_directory(tmp_path)
    with pytest.raises(StorageError, match="cannot use"):
        check_state_directory(tmp_path / "notes.txt")


def test_brokers_that_fetch_everything_have_no_state(tmp_path: Path) -> None:
    request = FleetRequest(
        replace(SETTINGS, is_cold=True), 10, named_scenario("start"), "localhost:1",
        state=tmp_path / "state",
    )  # fmt: skip
    with pytest.raises(InvalidRequestError, match="leave out --cold or --state"):
        run_fleet(request)
    assert not (tmp_path / "state").exists()
