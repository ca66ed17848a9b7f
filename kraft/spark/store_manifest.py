"""Manifests of a store of results: numbered files, each committed atomically.

This module reads and writes ``STORE/commits/NNNNNNNN.json``, which define the data files and runs
of a store. Readers ignore a data file that no manifest names, so a store is never half written,
whenever an ingest dies. A manifest contains changes; every `_COMPLETE_EVERY` commits one contains
the complete state.

`store.ingest` commits; all readers of a store, also Spark's workers, load the state. The store's
file system must support hard links and appear at the same path on all executors.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from kraft.errors import StorageError

#: Version of the store's layout; other versions are rejected.
FORMAT = 1
#: Buckets over which the series of a store are distributed: the limit of parallel analysis tasks.
BUCKETS = 16
#: After this many manifests with changes, one with the complete state limits the time to open a
#: store.
_COMPLETE_EVERY = 32
#: Removed files and old manifests are kept this long for readers that still use them.
_GRACE_S = 3600.0

_MANIFEST = re.compile(r"(\d{8,})\.json")


class DataFile(msgspec.Struct, frozen=True):
    """One Parquet file."""

    path: str  # relative to the store
    rows: int
    bytes: int


class RunEntry(msgspec.Struct, frozen=True):
    """One run in the store."""

    run_id: str
    digest: str  # hash of the file's bytes
    source: str
    machine: str
    time_us: int
    points: int
    has_values: bool
    file: str  # the data file that contains it
    project: str | None = None
    branch: str | None = None
    commit: str | None = None
    commit_time_us: int | None = None
    dirty: bool | None = None
    parents: list[str] | None = None


class Manifest(msgspec.Struct, frozen=True):
    """One commit: files added and removed, or, if complete, the whole state."""

    format: int
    number: int
    buckets: int
    complete: bool
    add: list[DataFile]
    remove: list[str]
    runs: list[RunEntry]
    removed: dict[str, float]  # removed files -> time of removal, s since 1970


class StoreState(msgspec.Struct):
    """A store as of one commit; an immutable value that can be sent to workers."""

    path: str
    number: int = 0  # of the newest manifest; 0 if the store does not exist
    buckets: int = BUCKETS
    files: dict[str, DataFile] = {}
    runs: dict[str, RunEntry] = {}
    removed: dict[str, float] = {}
    since_complete: int = 0

    @property
    def points(self) -> int:
        return sum(file.rows for file in self.files.values())

    def absolute(self, file: str) -> str:
        return os.path.join(self.path, file)

    def after(self, manifest: Manifest) -> StoreState:
        """Return the state after a manifest."""
        fresh = StoreState(path=self.path) if manifest.complete else self
        files = {name: file for name, file in fresh.files.items() if name not in manifest.remove}
        files |= {file.path: file for file in manifest.add}
        runs = fresh.runs | {run.run_id: run for run in manifest.runs}
        for run in manifest.runs:
            assert run.file in files, f"manifest {manifest.number}: {run.file} is not named"
        return StoreState(
            path=self.path,
            number=manifest.number,
            buckets=manifest.buckets,
            files=files,
            runs=runs,
            removed=fresh.removed | manifest.removed,
            since_complete=0 if manifest.complete else self.since_complete + 1,
        )


class CommitConflictError(Exception):
    """Another process committed first; reload the state."""


def load_state(path: str | os.PathLike[str]) -> StoreState:
    """Return a store's newest state; an empty one if the store does not exist.

    Raises StorageError with the file's name for a manifest that is damaged or of another version.
    """
    for _ in range(3):
        try:
            return _load(os.fspath(path))
        except FileNotFoundError:
            continue  # an ingest removed it after it was listed
    return _load(os.fspath(path))


def commit(
    state: StoreState,
    *,
    add: list[DataFile],
    remove: list[str],
    runs: list[RunEntry],
) -> StoreState:
    """Commit a change atomically and durably; return the new state.

    ``state`` is the state on which the change is based. Raises CommitConflictError if a newer one
    exists.
    """
    now = time.time()
    change = Manifest(
        format=FORMAT,
        number=state.number + 1,
        buckets=state.buckets,
        complete=False,
        add=add,
        remove=remove,
        runs=runs,
        removed=dict.fromkeys(remove, now),
    )
    after = state.after(change)
    if state.since_complete + 1 >= _COMPLETE_EVERY or remove:
        after.removed = {
            name: when
            for name, when in after.removed.items()
            if os.path.exists(state.absolute(name))
        }
        change = msgspec.structs.replace(
            change,
            complete=True,
            add=list(after.files.values()),
            remove=[],
            runs=list(after.runs.values()),
            removed=after.removed,
        )
        after.since_complete = 0
    folder = Path(state.path) / "commits"
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{uuid4().hex}"
    try:
        with open(draft, "wb") as file:
            file.write(msgspec.json.encode(change))
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link, unlike a rename, fails if another process already created this manifest.
            os.link(draft, folder / f"{change.number:08}.json")
        except FileExistsError:
            raise CommitConflictError from None
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(folder)
    return after


def clean(state: StoreState) -> None:
    """Remove old manifests, unnamed data files and drafts of processes that died.

    `store` removes whole data folders, because it knows which ingests are still running.
    """
    now = time.time()
    for name, when in state.removed.items():
        if name not in state.files and now - when > _GRACE_S:
            Path(state.absolute(name)).unlink(missing_ok=True)
    folder = Path(state.path) / "commits"
    oldest_needed = state.number - state.since_complete
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        found = _MANIFEST.fullmatch(entry.name)
        is_needed = found is not None and int(found[1]) >= oldest_needed
        try:
            if not is_needed and now - entry.stat().st_mtime > _GRACE_S:
                entry.unlink()
        except FileNotFoundError:
            continue  # another ingest removed it


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Sync a directory, which makes its entries durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _load(path: str) -> StoreState:
    folder = os.path.join(path, "commits")
    state = StoreState(path=os.path.abspath(path))
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return state
    numbers = sorted(int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name)))
    chain: list[Manifest] = []
    for number in reversed(numbers):
        manifest = _read(os.path.join(folder, f"{number:08}.json"))
        if chain and number != chain[-1].number - 1:
            raise StorageError(f"{folder}: manifest {chain[-1].number - 1:08}.json is missing")
        chain.append(manifest)
        if manifest.complete:
            break
    if chain and not chain[-1].complete and chain[-1].number != 1:
        raise StorageError(f"{folder}: manifest {chain[-1].number - 1:08}.json is missing")
    for manifest in reversed(chain):
        state = state.after(manifest)
    return state


def _read(path: str) -> Manifest:
    with open(path, "rb") as file:
        data = file.read()
    try:
        version: Any = msgspec.json.decode(data)["format"]
        if version != FORMAT:
            raise StorageError(f"{path}: format {version!r}; this kraft knows {FORMAT}")
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise StorageError(f"{path}: not a manifest of a store of results: {error}") from None
