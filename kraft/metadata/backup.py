"""Write and read backups: a cluster's metadata as of one offset, with a manifest.

A backup is a directory of two files::

    backup.json                                     the manifest, one JSON object
    00000000000000002622-0000000002.checkpoint      the state, as Kafka's snapshot

The manifest has the SHA-256 of the snapshot and of itself. `read_backup` checks both, and decodes
every record of the snapshot; the snapshot alone is also a source for `open_metadata`.

The state comes from a running quorum (``quorum_reader``), or from a directory. Invariants: the
directory gets its name after both files are synced; only its owner can read it, because a snapshot
has the salted keys of SCRAM users. Called by library users, ``kraft backup`` and
``kraft.server.storage.restore``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from kraft.errors import (
    CorruptRecordError,
    StorageError,
    UnsupportedVersionError,
)
from kraft.metadata.arguments import disk_errors, path_of, text, whole_number
from kraft.metadata.directory import MetadataDirectory, SnapshotFile
from kraft.metadata.facade import Metadata
from kraft.metadata.new_directory import new_directory
from kraft.metadata.record_counts import RecordCounts
from kraft.metadata.snapshots import load_snapshot, map_snapshot

MANIFEST = "backup.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """What a backup holds.

    The state includes all records below ``offset``; ``epoch`` is the leader epoch of the quorum
    then. ``created_ms`` is the time of the backup. ``records`` counts the records of the snapshot
    by type; ``sha256`` is the digest of the file ``snapshot`` with ``size`` bytes.
    """

    format: int
    cluster_id: str
    offset: int
    epoch: int
    metadata_version: int
    kraft_version: int
    voters: tuple[int, ...]
    created_ms: int
    records: Mapping[str, int]
    snapshot: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Backup:
    """A checked backup: its directory, its manifest and its snapshot."""

    path: Path
    manifest: BackupManifest
    snapshot: SnapshotFile


def write_backup(
    metadata: Metadata, to: str | PathLike[str], *, cluster_id: str, created_ms: int
) -> Backup:
    """Write the state of ``metadata`` as a backup to the new directory ``to``.

    Raises :class:`InvalidRequestError` where ``to`` exists and is not an empty directory, and while
    a metadata transaction is open; :class:`StorageError` where a write fails.
    """
    target = path_of(to, "to")
    text(cluster_id, "cluster_id")
    created_ms = whole_number(created_ms, "created_ms")
    with new_directory(target, mode=0o700) as part:
        snapshot = metadata.write_snapshot(part, columns=False, timestamp_ms=created_ms)
        snapshot.chmod(0o600)
        manifest = _manifest(metadata, snapshot, cluster_id, created_ms)
        _write(part / MANIFEST, _encoded(manifest))
    return read_backup(target)


def read_backup(path: str | PathLike[str]) -> Backup:
    """Check a backup to its last record and return it.

    Raises :class:`StorageError` where ``path`` is no backup, :class:`CorruptRecordError` where a
    file is damaged or missing (the message says which, and what is wrong),
    :class:`UnsupportedVersionError` for a backup of a newer version.
    """
    directory = path_of(path, "path")
    if directory.name == MANIFEST:
        directory = directory.parent
    with disk_errors(directory):
        if not (directory / MANIFEST).is_file():
            raise StorageError(f"{directory} is not a backup: it has no {MANIFEST}")
        manifest = _read_manifest(directory / MANIFEST)
        file = directory / manifest.snapshot
        if not file.is_file():
            raise CorruptRecordError(f"the snapshot {manifest.snapshot} is missing", path=directory)
        size = file.stat().st_size
        if size != manifest.size:
            raise CorruptRecordError(
                f"has {size:,} bytes, and {manifest.size:,} when the backup was made", path=file
            )
        if _digest(file) != manifest.sha256:
            raise CorruptRecordError("is damaged: its SHA-256 is not that of the backup", path=file)
        snapshot = MetadataDirectory.find(file).snapshots[0]
        if (snapshot.end_offset, snapshot.epoch) != (manifest.offset, manifest.epoch):
            raise CorruptRecordError(
                f"is of offset {snapshot.end_offset}, epoch {snapshot.epoch}, and {MANIFEST} says "
                f"offset {manifest.offset}, epoch {manifest.epoch}",
                path=file,
            )
        load_snapshot(snapshot, use_column_cache=False)
    return Backup(directory, manifest, snapshot)


def _manifest(
    metadata: Metadata, snapshot: Path, cluster_id: str, created_ms: int
) -> BackupManifest:
    file = MetadataDirectory.find(snapshot).snapshots[0]
    counts = RecordCounts()
    counts.add(map_snapshot(file))
    quorum = metadata.state.quorum
    return BackupManifest(
        FORMAT,
        cluster_id,
        file.end_offset,
        file.epoch,
        metadata.state.metadata_version,
        quorum.kraft_version,
        quorum.voter_ids,
        created_ms,
        dict(sorted(counts.by_type.items())),
        snapshot.name,
        file.size,
        _digest(snapshot),
    )


def _encoded(manifest: BackupManifest) -> bytes:
    """Return the manifest as JSON; its last member is the SHA-256 of the others."""
    fields = asdict(manifest)
    return json.dumps(fields | {"manifest_sha256": _digest_of(fields)}, indent=2).encode() + b"\n"


def _digest_of(fields: Mapping[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _read_manifest(path: Path) -> BackupManifest:
    try:
        fields = json.loads(path.read_bytes())
        assert isinstance(fields, dict)
        digest = fields.pop("manifest_sha256")
        newer = fields["format"]
    except (ValueError, AssertionError, KeyError, RecursionError):
        raise CorruptRecordError("is not the manifest of a backup", path=path) from None
    if isinstance(newer, int) and newer > FORMAT:
        raise UnsupportedVersionError(
            f"{path} has format {newer}, and this version of kraft knows {FORMAT}: use a newer one"
        )
    if digest != _digest_of(fields):
        raise CorruptRecordError("is damaged: its SHA-256 does not match", path=path)
    try:
        manifest = BackupManifest(**fields)
    except TypeError as error:
        raise CorruptRecordError(f"is not the manifest of a backup: {error}", path=path) from None
    return replace(manifest, voters=tuple(manifest.voters))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
