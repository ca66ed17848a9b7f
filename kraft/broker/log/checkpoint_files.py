"""The small files of a log directory: offset checkpoints, and the mark of a clean shutdown.

An offset checkpoint is a text file (``OffsetCheckpointFile.java``, ``CheckpointFile.java``)::

    0                     the version
    2                     the number of entries
    payments 0 1200       topic, partition, offset: one line an entry
    payments 1 7

`.kafka_cleanshutdown` exists while no broker uses the directory, after a clean stop. Its JSON has
the broker epoch (``CleanShutdownFileHandler.java``): the broker registers with it (KIP-966).

Files are replaced as a whole. Used by ``log_directory``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from kraft._core.log.disk import Disk, write_atomically
from kraft.errors import CorruptRecordError

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

#: Topic and partition.
PartitionKey = tuple[str, int]


def read_file(disk: Disk, path: str) -> bytes:
    """Return the whole content of a file. Raises `StorageError`."""
    file = disk.open(path, read_only=True)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def checkpoint_bytes(offsets: Iterable[tuple[PartitionKey, int]]) -> bytes:
    """Return the content of an offset checkpoint."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def parse_checkpoint(content: bytes, *, path: str | None = None) -> dict[PartitionKey, int]:
    """Return the offsets of a checkpoint; an empty file has none. Raises `CorruptRecordError`."""
    lines = content.decode("utf-8", "replace").splitlines()
    if not lines:
        return {}
    offsets: dict[PartitionKey, int] = {}
    try:
        version = int(lines[0])
        if version != 0:
            raise ValueError(f"unknown version {version}")
        count = int(lines[1])
        for line in lines[2:]:
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = int(offset)
    except (ValueError, IndexError) as error:
        raise CorruptRecordError(f"malformed offset checkpoint: {error}", path=path) from error
    if count != len(lines) - 2:
        raise CorruptRecordError(
            f"the checkpoint claims {count} offsets and has {len(lines) - 2}", path=path
        )
    return offsets


def read_checkpoint(disk: Disk, directory: str, name: str) -> dict[PartitionKey, int]:
    """Return the offsets of a directory's checkpoint, none without the file.

    Raises `CorruptRecordError`, `StorageError`.
    """
    path = f"{directory}/{name}"
    return parse_checkpoint(read_file(disk, path), path=path) if disk.exists(path) else {}


def write_checkpoint(
    disk: Disk, directory: str, name: str, offsets: Mapping[PartitionKey, int]
) -> None:
    """Replace a directory's checkpoint durably. Raises `StorageError`."""
    write_atomically(disk, f"{directory}/{name}", checkpoint_bytes(offsets.items()))


def read_clean_shutdown(disk: Disk, directory: str) -> int | None:
    """Return the broker epoch of the last clean shutdown, -1 if unknown; None after any other.

    As in Kafka a file without readable JSON still marks a clean shutdown.
    """
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return None
    try:
        epoch = json.loads(read_file(disk, path))["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Mark the directory: everything in it is complete and durable."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(disk, f"{directory}/{CLEAN_SHUTDOWN}", content.encode())


def remove_clean_shutdown(disk: Disk, directory: str) -> None:
    """Remove the mark before the first change of a log, durably."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if disk.exists(path):
        disk.remove(path)
        disk.sync_directory(directory)
