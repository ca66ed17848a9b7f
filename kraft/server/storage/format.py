"""Format the directories of a node: write the files from which a cluster starts.

    <each log dir>/meta.properties             the ids of cluster, node and directory
    <each log dir>/bootstrap.checkpoint        the records that the first controller writes
    <metadata dir>/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint
                                               the first voters, where voters may change

Both checkpoints are snapshots of epoch 0: a SnapshotHeader, records, a SnapshotFooter.

Invariants: every file is written to a temporary file and synced; then all are renamed,
``meta.properties`` last in each directory, and the metadata directory last of all. A directory with
a ``meta.properties`` is therefore complete, and if the metadata directory has one, all are. A
failed format removes the files it created. Sources: Kafka's ``StorageTool``, ``Formatter``,
``BootstrapDirectory``, ``DynamicVoters``; KIP-853.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from kraft._core.codec.metadata_codec import Record
from kraft._core.log.disk import Disk, OsDisk
from kraft._core.snapshot.snapshot_file import snapshot_name
from kraft.configdef import ConfigValueError
from kraft.errors import InvalidRequestError, KraftError, StorageError
from kraft.image.nodes import is_reserved_directory
from kraft.metadata.directory import BOOTSTRAP_CHECKPOINT, METADATA_LOG, MetaProperties
from kraft.metadata.identifiers import random_uuid
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import KRaftVersion, MetadataVersion, SnapshotFooter, SnapshotHeader, Uuid
from kraft.records.batches import encode_control_records, encode_records
from kraft.server.config.listeners import read_initial_controllers, written_host
from kraft.server.config.loading import ServerConfig
from kraft.server.storage.features import (
    KRAFT_VERSION,
    bootstrap_records,
    feature_levels,
    release_version,
)
from kraft.server.storage.meta_properties import (
    LogDirectories,
    meta_properties_bytes,
    meta_properties_path,
)
from kraft.server.storage.scram import parse_scram

BOOTSTRAP_SNAPSHOT = snapshot_name(0, 0)


class DirectoryKind(Enum):
    """The purpose of a directory, as kafka-storage prints it."""

    LOG = "data directory"
    STATIC_METADATA = "metadata directory"
    DYNAMIC_METADATA = "dynamic metadata directory"
    DYNAMIC_METADATA_VOTER = "dynamic metadata voter directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRequest:
    """The options of a format; at most one of the three options for first voters is set."""

    cluster_id: str
    #: This node is the only voter.
    is_standalone: bool = False
    #: ``id@host:port:directory,…``, the same on every node.
    initial_controllers: str | None = None
    #: The node joins a quorum whose voters are formatted elsewhere.
    has_no_initial_controllers: bool = False
    release: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    scram: tuple[str, ...] = ()
    ignore_formatted: bool = False


@dataclass(frozen=True, slots=True)
class FormattedDirectory:
    """One directory that this format created."""

    path: str
    kind: DirectoryKind
    directory_id: Uuid


@dataclass(frozen=True, slots=True)
class FormatReport:
    """The result of a format; ``already_formatted`` and ``failed`` directories are unchanged."""

    cluster_id: str
    node_id: int
    metadata_version: MetadataVersion
    levels: Mapping[str, int]
    records: tuple[Record, ...]
    voters: VoterSet | None
    formatted: tuple[FormattedDirectory, ...]
    already_formatted: tuple[str, ...]
    failed: Mapping[str, str]


def format_storage(
    config: ServerConfig,
    request: FormatRequest,
    *,
    timestamp_ms: int,
    disk: Disk | None = None,
    draw: Callable[[], Uuid] = random_uuid,
) -> FormatReport:
    """Format every directory of ``config`` that has no ``meta.properties``.

    Raises InvalidRequestError and UnsupportedVersionError for invalid options, InvalidConfigError
    where a directory belongs to another node or cluster, StorageError where one is formatted
    already or the disk fails; nothing is changed then.
    """
    disk = disk or OsDisk()
    if not request.cluster_id:
        raise InvalidRequestError("the cluster id is empty")
    version = release_version(request.release, request.features)
    levels = feature_levels(version, request.features, has_dynamic_quorum=not config.voters)
    voters = _first_voters(config, request, draw)
    records = bootstrap_records(levels, map(parse_scram, request.scram))

    found = LogDirectories.load_all(config.directories, disk=disk)
    found.check(node_id=config.node_id, cluster_id=request.cluster_id)
    if found.formatted and not request.ignore_formatted:
        raise StorageError(
            f"{next(iter(found.formatted))} is already formatted; --ignore-formatted leaves it as "
            "it is and formats the others"
        )
    if found.failed and not found.formatted and not found.empty:
        raise StorageError(f"no directory can be formatted: {next(iter(found.failed.values()))}")

    new = _new_directories(config, found, voters, draw)
    files = _StagedFiles(disk)
    bootstrap = _snapshot((SnapshotHeader(),), records, timestamp_ms)
    for directory in new:
        files.add(directory.path, BOOTSTRAP_CHECKPOINT, bootstrap)
        if directory.path == config.metadata_log_dir:
            _add_first_voters(files, directory.path, voters, levels, timestamp_ms)
        properties = MetaProperties(1, request.cluster_id, config.node_id, directory.directory_id)
        files.add_meta_properties(directory.path, meta_properties_bytes(properties))
    files.write()
    return FormatReport(
        request.cluster_id,
        config.node_id,
        version,
        levels,
        tuple(records),
        voters,
        tuple(new),
        tuple(found.formatted),
        found.failed,
    )


def _first_voters(
    config: ServerConfig, request: FormatRequest, draw: Callable[[], Uuid]
) -> VoterSet | None:
    """Return the voters of the first checkpoint; None where it has none."""
    listener = config.controller_listener_names[0].upper()
    asks = request.is_standalone or request.initial_controllers is not None
    if asks + request.has_no_initial_controllers > 1 or (
        request.is_standalone and request.initial_controllers is not None
    ):
        raise InvalidRequestError(
            "only one of --standalone, --initial-controllers and --no-initial-controllers"
        )
    if config.voters and asks:
        raise InvalidRequestError(
            f"{config.path}: controller.quorum.voters fixes the voters, so --standalone and "
            "--initial-controllers are not allowed; for voters that may change, replace it by "
            "controller.quorum.bootstrap.servers"
        )
    if request.is_standalone:
        return _standalone(config, listener, draw)
    if request.initial_controllers is not None:
        try:
            voters = read_initial_controllers(request.initial_controllers, listener)
        except ConfigValueError as refused:
            raise InvalidRequestError(f"--initial-controllers needs {refused}") from None
        for voter in voters:
            directory_id = voter.key.directory_id
            assert directory_id is not None
            if is_reserved_directory(directory_id):
                raise InvalidRequestError(
                    f"--initial-controllers gives {voter.id} the directory id {directory_id!s}, "
                    "which is reserved"
                )
        return voters
    if config.is_controller and not config.voters and not request.has_no_initial_controllers:
        raise InvalidRequestError(
            f"{config.path}: controller.quorum.voters is not set on this controller, so choose "
            "the first voters: --standalone, --initial-controllers, or --no-initial-controllers"
        )
    return None


def _standalone(config: ServerConfig, listener: str, draw: Callable[[], Uuid]) -> VoterSet:
    if not config.is_controller:
        raise InvalidRequestError(
            f"{config.path}: --standalone is for controllers, and process.roles has none"
        )
    at = config.advertised_controller_listeners[0]
    endpoint = Endpoint(listener, written_host(at.host or "localhost"), at.port)
    key = ReplicaKey(config.node_id, draw())
    return VoterSet([VoterNode(key, (endpoint,), KRaftVersionRange(0, 1))])


def _new_directories(
    config: ServerConfig,
    found: LogDirectories,
    voters: VoterSet | None,
    draw: Callable[[], Uuid],
) -> list[FormattedDirectory]:
    """Return the directories to format, the metadata directory last."""
    new: list[FormattedDirectory] = []
    taken = {each.directory_id for each in found.formatted.values()}
    taken |= {voter.key.directory_id for voter in voters or ()}
    metadata_log_dir = config.metadata_log_dir
    for path in sorted(found.empty, key=lambda path: (path == metadata_log_dir, path)):
        voter = None if voters is None else voters.get(config.node_id)
        if path != metadata_log_dir:
            kind = DirectoryKind.LOG
        elif voters is None:
            kind = DirectoryKind.STATIC_METADATA
        else:
            kind = (
                DirectoryKind.DYNAMIC_METADATA
                if voter is None
                else DirectoryKind.DYNAMIC_METADATA_VOTER
            )
        stated = None if voter is None else voter.key.directory_id
        if kind is DirectoryKind.DYNAMIC_METADATA_VOTER and stated is not None:
            directory_id = stated
        else:
            while (directory_id := draw()) in taken:
                pass
            taken.add(directory_id)
        new.append(FormattedDirectory(path, kind, directory_id))
    return new


def _add_first_voters(
    files: _StagedFiles,
    directory: str,
    voters: VoterSet | None,
    levels: Mapping[str, int],
    timestamp_ms: int,
) -> None:
    metadata_log = f"{directory}/{METADATA_LOG}"
    if voters is None:
        # A format that was interrupted may have left a snapshot with other voters.
        files.remove_before_placing(f"{metadata_log}/{BOOTSTRAP_SNAPSHOT}")
        return
    head = (
        SnapshotHeader(last_contained_log_timestamp=timestamp_ms),
        KRaftVersion(kraft_version=levels[KRAFT_VERSION]),
        voters.to_record(),
    )
    files.add(metadata_log, BOOTSTRAP_SNAPSHOT, _snapshot(head, (), timestamp_ms))


def _snapshot(head: tuple[Record, ...], records: Iterable[Record], timestamp_ms: int) -> bytes:
    """Return a snapshot of epoch 0: its head, data records, and the footer."""
    data = list(records)
    return b"".join(
        (
            encode_control_records(head, timestamp_ms=timestamp_ms),
            encode_records(data, base_offset=len(head), timestamp_ms=timestamp_ms),
            encode_control_records(
                (SnapshotFooter(),), base_offset=len(head) + len(data), timestamp_ms=timestamp_ms
            ),
        )
    )


@dataclass(slots=True)
class _StagedFiles:
    """Files that are created together, or removed again if one fails."""

    disk: Disk
    #: (directory, name, content) in the order of their renames.
    _files: list[tuple[str, str, bytes]] = field(default_factory=list)
    _removals: list[str] = field(default_factory=list)

    def add(self, directory: str, name: str, content: bytes) -> None:
        self._files.append((directory, name, content))

    def add_meta_properties(self, directory: str, properties: bytes) -> None:
        """Add the ``meta.properties``; call it after `add` of the directory's other files."""
        self.add(directory, os.path.basename(meta_properties_path(directory)), properties)

    def remove_before_placing(self, path: str) -> None:
        """Remove an existing file before the first rename."""
        self._removals.append(path)

    def write(self) -> None:
        placed: list[str] = []
        try:
            for directory, name, content in self._files:
                self._make_directory(directory)
                self._write_beside(f"{directory}/{name}", content)
            for path in self._removals:
                if self.disk.exists(path):
                    self.disk.remove(path)
                    self.disk.sync_directory(os.path.dirname(path))
            for directory, name, _ in self._files:
                path = f"{directory}/{name}"
                placed.append(path)
                self.disk.rename(f"{path}.tmp", path)
                # Sync after each rename: a later file implies that the earlier ones are durable.
                self.disk.sync_directory(directory)
        except BaseException:
            self._undo(placed)
            raise

    def _write_beside(self, path: str, content: bytes) -> None:
        file = self.disk.open(f"{path}.tmp", create=True)
        try:
            file.truncate(0)
            file.append([content])
            file.sync()
        finally:
            file.close()

    def _make_directory(self, directory: str) -> None:
        """Create it and its missing parents, and sync their directory entries."""
        missing: list[str] = []
        path = directory
        while not self.disk.exists(path):
            missing.append(path)
            path = os.path.dirname(path) or "."
        self.disk.make_directory(directory)
        for made in missing:
            self.disk.sync_directory(os.path.dirname(made) or ".")

    def _undo(self, placed: list[str]) -> None:
        """Remove all files again, ``meta.properties`` first: it marks a directory as formatted.

        Errors are ignored, since ``write`` raises the first one anyway.
        """
        for path in reversed(placed):
            with suppress(KraftError):
                if self.disk.exists(path):
                    self.disk.remove(path)
        for directory, name, _ in self._files:
            with suppress(KraftError):
                if self.disk.exists(f"{directory}/{name}.tmp"):
                    self.disk.remove(f"{directory}/{name}.tmp")
