"""What the brokers of a fleet keep between two runs: a snapshot of the metadata for each process.

A broker that starts again has its metadata on its disk. The light brokers of a process share it:
the process writes one snapshot in Kafka's format, and in the next run its brokers begin behind it.

``fleet.json``                        the fleet and the ids of the snapshots (`FleetState`)
``process-N/OFFSET-EPOCH.checkpoint`` the snapshot of process N

`write_state` replaces ``fleet.json`` last, so that an interrupted run leaves the earlier state.
``launch`` reads and writes it; ``worker`` loads and writes the snapshots.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft.errors import InvalidConfigError, StorageError

if TYPE_CHECKING:
    from kraft.fleet.fleet import FleetSettings

STATE_FILE = "fleet.json"
FORMAT = 1
#: The settings that have to be the same in all runs: they decide the ids of the directories, which
#: the brokers have registered, and which brokers share a snapshot.
_SETTINGS = ("brokers", "processes", "racks", "directories", "seed")


class SavedSnapshot(NamedTuple):
    """The snapshot of one process; ``path`` is absolute."""

    path: str
    offset: int
    epoch: int
    size: int


@dataclass(frozen=True, slots=True)
class FleetState:
    """The saved state of a fleet: a snapshot by the number of each process."""

    cluster_id: str
    snapshots: Mapping[int, SavedSnapshot]

    @property
    def offset(self) -> int:
        """The lowest offset at which a process begins."""
        return min(each.offset for each in self.snapshots.values())


def snapshot_path(directory: Path, number: int, offset: int, epoch: int) -> Path:
    """Return the path of the snapshot of process ``number``, with Kafka's name."""
    return directory / f"process-{number}" / f"{offset:020d}-{epoch:010d}.checkpoint"


def check_state_directory(directory: Path) -> None:
    """Create the directory; raise StorageError where it is unusable or has other files."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        names = {each.name for each in directory.iterdir()}
        if not os.access(directory, os.W_OK):
            raise StorageError(f"cannot write to {directory} (--state)")
    except OSError as error:
        raise StorageError(f"cannot use {directory} for --state: {error}") from None
    if STATE_FILE not in names and not all(name.startswith("process-") for name in names):
        raise InvalidConfigError(
            f"{directory} has other files than a fleet's state: name a new directory, or one that "
            "an earlier run has written (--state)"
        )


def read_state(directory: Path, settings: FleetSettings, cluster_id: str) -> FleetState | None:
    """Return the state that an earlier run left; None without one.

    Raises InvalidConfigError where it is that of another cluster or of another fleet, StorageError
    where it is damaged.
    """
    path = directory / STATE_FILE
    if not path.exists():
        return None
    try:
        given = json.loads(path.read_bytes())
        if given["format"] != FORMAT:
            raise ValueError(f"format {given['format']!r}, expected {FORMAT}")
        fleet: dict[str, Any] = given["fleet"]
        saved = {name: int(fleet[name]) for name in _SETTINGS}
        found = str(given["cluster_id"])
        snapshots = {
            number: _snapshot(directory, number, each)
            for number, each in enumerate(given["snapshots"])
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(
            f"{path} is damaged ({error!r}): remove {directory}; the brokers then fetch all "
            "metadata again"
        ) from None
    if found != cluster_id:
        raise InvalidConfigError(
            f"{directory} has the state of cluster {found!r}, and the controllers have cluster "
            f"{cluster_id!r}: name another directory (--state)"
        )
    for name in _SETTINGS:
        if saved[name] != getattr(settings, name):
            raise InvalidConfigError(
                f"{directory} has the state of a fleet with --{name} {saved[name]}, and this one "
                f"has {getattr(settings, name)}: use the same value, or another directory (--state)"
            )
    if len(snapshots) != settings.processes:
        raise StorageError(f"{path} is damaged: it has {len(snapshots)} snapshots")
    return FleetState(cluster_id, snapshots)


def _snapshot(directory: Path, number: int, given: Mapping[str, Any]) -> SavedSnapshot:
    offset, epoch, size = (int(given[name]) for name in ("offset", "epoch", "bytes"))
    path = snapshot_path(directory, number, offset, epoch)
    found = path.stat().st_size
    if found != size:
        raise ValueError(f"{path} has {found} bytes, not {size}")
    return SavedSnapshot(str(path.absolute()), offset, epoch, size)


def write_state(directory: Path, settings: FleetSettings, state: FleetState) -> None:
    """Make the snapshots that the processes wrote the state, and remove the earlier ones.

    Raises StorageError.
    """
    document = {
        "format": FORMAT,
        "cluster_id": state.cluster_id,
        "fleet": {name: getattr(settings, name) for name in _SETTINGS},
        "snapshots": [
            {"offset": each.offset, "epoch": each.epoch, "bytes": each.size}
            for _, each in sorted(state.snapshots.items())
        ],
    }
    new = directory / f"{STATE_FILE}.new"
    try:
        new.write_text(json.dumps(document, indent=2) + "\n")
        new.replace(directory / STATE_FILE)
    except OSError as error:
        raise StorageError(f"cannot write {directory / STATE_FILE}: {error}") from None
    kept = {each.path for each in state.snapshots.values()}
    for path in directory.glob("process-*/*"):
        if str(path.absolute()) not in kept:
            with suppress(OSError):
                path.unlink()
