"""Read, check and write the ``meta.properties`` of a node's directories.

Also identifies the node at its start, and adds a directory id to each file that has none yet
(Kafka 3.7 introduced them).

Invariants: a file is replaced as a whole, synced before the rename, its directory synced after it.
Sources: Kafka's ``MetaProperties``, ``MetaPropertiesEnsemble``, ``DirectoryId``,
``KafkaRaftServer.initializeLogDirs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Self

from kraft._core.log.disk import Disk, OsDisk, write_atomically
from kraft.errors import InvalidConfigError, KraftError, StorageError
from kraft.image.nodes import is_reserved_directory
from kraft.metadata.directory import (
    META_PROPERTIES,
    METADATA_LOG,
    MetaProperties,
    parse_meta_properties,
)
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.properties import property_line
from kraft.records import Uuid
from kraft.server.config.loading import ServerConfig

_MAX_FILE_SIZE = 1 << 20


def meta_properties_path(directory: str) -> str:
    return f"{directory}/{META_PROPERTIES}"


def meta_properties_bytes(properties: MetaProperties) -> bytes:
    """Return the content of the file."""
    id_name = "broker.id" if properties.version == 0 else "node.id"
    fields = {
        "version": properties.version,
        "cluster.id": properties.cluster_id,
        id_name: properties.node_id,
        "directory.id": properties.directory_id,
    }
    lines = [property_line(name, str(value)) for name, value in fields.items() if value is not None]
    return "".join(lines).encode("ascii")


class LogDirectories(NamedTuple):
    """A node's directories: formatted ones, empty ones, and unreadable ones with the reason."""

    formatted: Mapping[str, MetaProperties]
    empty: tuple[str, ...]
    failed: Mapping[str, str]

    @classmethod
    def load_all(cls, directories: Iterable[str], *, disk: Disk | None = None) -> Self:
        """Read the ``meta.properties`` of each directory; a missing directory counts as empty."""
        disk = disk or OsDisk()
        formatted: dict[str, MetaProperties] = {}
        empty: list[str] = []
        failed: dict[str, str] = {}
        for directory in sorted(set(directories)):
            try:
                found = _load(disk, directory)
            except KraftError as error:
                failed[directory] = str(error)
                continue
            if found is None:
                empty.append(directory)
            else:
                formatted[directory] = found
        return cls(formatted, tuple(empty), failed)

    def check(self, *, node_id: int, cluster_id: str | None = None) -> None:
        """Raise InvalidConfigError where a directory belongs to another node or cluster, or two
        have the same id; the message names the file.
        """
        first_of_cluster: str | None = None
        owner: dict[Uuid, str] = {}
        for directory, found in self.formatted.items():
            path = meta_properties_path(directory)
            if found.cluster_id is not None:
                if cluster_id is None:
                    cluster_id, first_of_cluster = found.cluster_id, path
                if found.cluster_id != cluster_id:
                    other = "expected" if first_of_cluster is None else f"in {first_of_cluster}"
                    raise InvalidConfigError(
                        f"{path}: the directory belongs to cluster {found.cluster_id!r}, and "
                        f"{cluster_id!r} is {other}"
                    )
            if found.node_id is not None and found.node_id != node_id:
                raise InvalidConfigError(
                    f"{path}: the directory belongs to node {found.node_id}, and this is node "
                    f"{node_id}. Data that was moved keeps its node.id; for a new node give "
                    "directories that are empty"
                )
            if found.directory_id is None:
                continue
            if is_reserved_directory(found.directory_id):
                raise InvalidConfigError(
                    f"{path}: directory.id {found.directory_id!s} is reserved and "
                    "cannot identify a directory"
                )
            if found.directory_id in owner:
                raise InvalidConfigError(
                    f"{path}: directory.id {found.directory_id!s} is also the id of "
                    f"{owner[found.directory_id]}; a directory was copied"
                )
            owner[found.directory_id] = directory

    def new_directory_id(self, draw: Callable[[], Uuid] = random_uuid) -> Uuid:
        """Return an id that none of the directories has."""
        taken = {found.directory_id for found in self.formatted.values()}
        while (drawn := draw()) in taken:
            pass
        return drawn


class NodeIdentity(NamedTuple):
    """The ids of a node in its directories; ``failed`` are unreadable ones with the reason."""

    cluster_id: str
    node_id: int
    #: The id of the metadata directory; with the node id it is the replica's key.
    directory_id: Uuid
    directory_ids: Mapping[str, Uuid]
    failed: Mapping[str, str]


def load_identity(
    config: ServerConfig, *, disk: Disk | None = None, draw: Callable[[], Uuid] = random_uuid
) -> NodeIdentity:
    """Read a node's directories; write an id into those without one.

    Raises StorageError where a directory is not formatted, or the metadata directory cannot be
    read; InvalidConfigError where they contradict one another or the configuration.
    """
    disk = disk or OsDisk()
    loaded = LogDirectories.load_all(config.directories, disk=disk)
    metadata_log_dir = config.metadata_log_dir
    if metadata_log_dir in loaded.failed:
        raise StorageError(loaded.failed[metadata_log_dir])
    if loaded.empty:
        raise StorageError(
            f"{loaded.empty[0]} is not formatted: it has no {META_PROPERTIES}; format it with "
            f"`kraft storage format -t CLUSTER_ID -c {config.path}`"
        )
    loaded.check(node_id=config.node_id)
    for directory, found in loaded.formatted.items():
        path = meta_properties_path(directory)
        if found.node_id is None or found.cluster_id is None:
            name = "node id" if found.node_id is None else "cluster.id"
            raise InvalidConfigError(f"{path} (version {found.version}) has no {name}")
        misplaced = f"{directory}/{METADATA_LOG}"
        if directory != metadata_log_dir and disk.exists(misplaced):
            raise InvalidConfigError(
                f"{misplaced} is a metadata log outside of the metadata directory, which is "
                f"{metadata_log_dir}"
            )
    directory_ids: dict[str, Uuid] = {}
    for directory, found in loaded.formatted.items():
        if found.directory_id is None:
            drawn = loaded.new_directory_id(draw)
            found = found._replace(directory_id=drawn)
            write_atomically(disk, meta_properties_path(directory), meta_properties_bytes(found))
            directory_ids[directory] = drawn
        else:
            directory_ids[directory] = found.directory_id
    cluster_id = loaded.formatted[metadata_log_dir].cluster_id
    assert cluster_id is not None
    return NodeIdentity(
        cluster_id,
        config.node_id,
        directory_ids[metadata_log_dir],
        directory_ids,
        loaded.failed,
    )


def _load(disk: Disk, directory: str) -> MetaProperties | None:
    path = meta_properties_path(directory)
    if not disk.exists(path):
        return None
    file = disk.open(path, read_only=True)
    try:
        if file.size() > _MAX_FILE_SIZE:
            raise StorageError(
                f"{path} is larger than {_MAX_FILE_SIZE:,} bytes: not a {META_PROPERTIES}"
            )
        content = file.read_at(0, file.size())
    finally:
        file.close()
    # Java reads the bytes of a properties file as Latin-1.
    return parse_meta_properties(content.decode("latin-1"), path)
