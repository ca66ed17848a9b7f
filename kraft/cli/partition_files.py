"""Kafka's JSON files of partitions: reassignments, topics to move, elections.

The formats are those of ``kafka-reassign-partitions`` and ``kafka-leader-election`` (version 1).
Every error names the file and the place in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kraft.errors import InvalidRequestError, MissingFileError, StorageError

#: (topic, partition)
TopicPartition = tuple[str, int]

_VERSION = 1
#: The log directory of a replica whose broker chooses it.
_ANY_DIRECTORY = "any"


def read_reassignments(path: Path) -> dict[TopicPartition, list[int]]:
    """Return the target replicas by partition, in the order of the file.

    Raises InvalidRequestError for a malformed file, a partition or replica that is named twice, and
    for log directories: only brokers can move a replica between their directories.
    """
    found: dict[TopicPartition, list[int]] = {}
    for place, entry in enumerate(_entries(path, "partitions")):
        where = f"{path}: partitions[{place}]"
        partition = _partition(entry, where)
        replicas = entry.get("replicas")
        if not isinstance(replicas, list) or not all(map(_is_broker, replicas)) or not replicas:
            raise InvalidRequestError(f"{where}.replicas must be a list of broker ids, not empty")
        if len(set(replicas)) < len(replicas):
            raise InvalidRequestError(f"{where}.replicas names a broker twice: {replicas}")
        directories = entry.get("log_dirs", [_ANY_DIRECTORY] * len(replicas))
        if not isinstance(directories, list) or len(directories) != len(replicas):
            raise InvalidRequestError(f"{where}.log_dirs must have one entry for each replica")
        if any(each != _ANY_DIRECTORY for each in directories):
            raise InvalidRequestError(
                f'{where}.log_dirs is not "any": a controller cannot move replicas between the '
                "directories of a broker; use kafka-reassign-partitions --bootstrap-server for it"
            )
        if partition in found:
            raise InvalidRequestError(f"{where} repeats partition {name_of(partition)}")
        found[partition] = replicas
    if not found:
        raise InvalidRequestError(f"{path}: the partition reassignment list is empty")
    return found


def read_topics_to_move(path: Path) -> list[str]:
    """Return the names of the topics. Raises InvalidRequestError."""
    names = []
    for place, entry in enumerate(_entries(path, "topics")):
        name = entry.get("topic")
        if not isinstance(name, str):
            raise InvalidRequestError(f"{path}: topics[{place}].topic must be a name")
        if name in names:
            raise InvalidRequestError(f"{path}: topics[{place}] repeats topic {name!r}")
        names.append(name)
    if not names:
        raise InvalidRequestError(f"{path}: the list of topics is empty")
    return names


def read_elections(path: Path) -> list[TopicPartition]:
    """Return the partitions of an election file. Raises InvalidRequestError."""
    found: list[TopicPartition] = []
    for place, entry in enumerate(_entries(path, "partitions")):
        partition = _partition(entry, f"{path}: partitions[{place}]")
        if partition in found:
            raise InvalidRequestError(
                f"{path}: partitions[{place}] repeats partition {name_of(partition)}"
            )
        found.append(partition)
    if not found:
        raise InvalidRequestError(f"{path}: the list of partitions is empty")
    return found


def reassignment_document(assignments: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """Return the content of a reassignment file, sorted by partition."""
    return {
        "version": _VERSION,
        "partitions": [
            {
                "topic": topic,
                "partition": index,
                "replicas": list(replicas),
                "log_dirs": [_ANY_DIRECTORY] * len(replicas),
            }
            for (topic, index), replicas in sorted(assignments.items())
        ],
    }


def reassignment_text(assignments: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return the file as Kafka's tool writes it, on one line."""
    return json.dumps(reassignment_document(assignments), separators=(",", ":"))


def name_of(partition: TopicPartition) -> str:
    """Return ``topic-0``."""
    return f"{partition[0]}-{partition[1]}"


def _entries(path: Path, name: str) -> list[dict[str, Any]]:
    """Return the objects of a file's list ``name``."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"cannot read {path}: {error}") from None
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequestError(f"{path} must be a JSON object with the list {name!r}")
    if document.get("version", _VERSION) != _VERSION:
        raise InvalidRequestError(
            f"{path}: version is {document['version']!r:.40}; expected {_VERSION}"
        )
    entries = document.get(name)
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise InvalidRequestError(f"{path}: {name} must be a list of objects")
    return entries


def _partition(entry: Mapping[str, Any], where: str) -> TopicPartition:
    topic, index = entry.get("topic"), entry.get("partition")
    if not isinstance(topic, str):
        raise InvalidRequestError(f"{where}.topic must be a name")
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < 1 << 31:
        raise InvalidRequestError(f"{where}.partition must be a number of at least 0")
    return topic, index


def _is_broker(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
