"""Copy stores that kraft wrote before it used Delta tables.

Such a store has manifests, ``commits/00000001.json`` and so on, each with the data files that it
adds and removes and with the runs that it adds, or with all of them if it is complete. The newest
complete manifest and all after it are the state. The data files are Parquet with columns of
`points.POINTS` and one that `data_files` does not use. Those of kraft before it knew units lack
``unit`` and ``bigger_is_better``: their values are seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow.dataset as ds

from kraft.errors import StorageError
from kraft.regression.data_files import RunEntry, read_files, write_file
from kraft.regression.ingest import AddedRuns, StagedRuns, add_staged, staging_directory
from kraft.regression.store import load_state
from kraft.regression.store_location import StoreLocation

_FORMAT = 1
_MANIFEST = re.compile(r"(\d{8,})\.json")


class _EarlierRun(msgspec.Struct):
    run_id: str
    digest: str
    source: str
    machine: str
    time_us: int
    points: int
    has_values: bool
    file: str
    project: str | None = None
    branch: str | None = None
    commit: str | None = None
    commit_time_us: int | None = None
    dirty: bool | None = None
    parents: list[str] | None = None


class _Manifest(msgspec.Struct):
    format: int
    number: int
    complete: bool
    runs: list[_EarlierRun]


def convert_store(earlier: str | os.PathLike[str], store: str | os.PathLike[str]) -> AddedRuns:
    """Copy the runs of an earlier store to a store, which is created if it does not exist.

    Runs that the store has already are not added again. The earlier store stays unchanged. Raises
    StorageError if it is not a store, or is damaged.
    """
    root = Path(earlier)
    location = StoreLocation.of(store)
    runs_of: dict[str, list[_EarlierRun]] = {}
    for run in _runs(root).values():
        runs_of.setdefault(run.file, []).append(run)
    state = load_state(location)
    known = {run.run_id for run in state.runs}
    staged: list[StagedRuns] = []
    with staging_directory(location):
        for file, runs in runs_of.items():
            new = [run for run in runs if run.run_id not in known]
            if new:
                staged.append(_staged(StoreLocation.of(root), file, new, location))
        added = add_staged(staged, state)
    skipped = sum(map(len, runs_of.values())) - sum(len(each.runs) for each in staged)
    return replace(added, duplicates=added.duplicates + skipped)


def _staged(
    earlier: StoreLocation, file: str, runs: list[_EarlierRun], location: StoreLocation
) -> StagedRuns:
    """Write the points of these runs in an earlier data file as a data file."""
    wanted = ds.field("run_id").isin([run.run_id for run in runs])
    table = read_files(earlier, [file], filters=wanted, categorical=True)
    entries = [_entry(run) for run in runs]
    return StagedRuns(entries, write_file(table, location, entries))


def _entry(run: _EarlierRun) -> RunEntry:
    given = msgspec.structs.asdict(run)
    del given["file"]
    return RunEntry(**given)


def _runs(root: Path) -> dict[str, _EarlierRun]:
    """Return the runs of an earlier store by their id."""
    runs: dict[str, _EarlierRun] = {}
    for manifest in reversed(list(_manifests(root / "commits"))):
        runs |= {run.run_id: run for run in manifest.runs}
    return runs


def _manifests(folder: Path) -> Iterator[_Manifest]:
    """Yield the newest manifest and those before it, down to a complete one."""
    names = os.listdir(folder) if folder.is_dir() else []
    numbers = [int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name))]
    if not numbers:
        raise StorageError(f"{folder.parent}: this folder is not a store of an earlier kraft")
    for number in range(max(numbers), 0, -1):
        path = folder / f"{number:08}.json"
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=_Manifest)
        except FileNotFoundError:
            raise StorageError(f"{folder}: manifest {path.name} is missing") from None
        except msgspec.MsgspecError as error:
            raise StorageError(f"{path}: not a manifest of a store of results: {error}") from None
        if manifest.format != _FORMAT:
            raise StorageError(f"{path}: format {manifest.format}; this kraft knows {_FORMAT}")
        yield manifest
        if manifest.complete:
            return
