"""Report the formatted directories of a node and their problems, as ``kafka-storage info`` does.

Nothing is changed; the messages are Kafka's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from kraft.errors import KraftError
from kraft.metadata.directory import MetaProperties
from kraft.server.config.loading import ServerConfig
from kraft.server.storage.meta_properties import LogDirectories


@dataclass(frozen=True, slots=True)
class StorageInfo:
    """The existing directories; ``properties`` are those of the first formatted one."""

    directories: tuple[str, ...]
    by_directory: dict[str, MetaProperties]
    problems: tuple[str, ...]

    @property
    def properties(self) -> MetaProperties | None:
        return next(iter(self.by_directory.values()), None)


def storage_info(config: ServerConfig) -> StorageInfo:
    """Inspect every directory of the configuration."""
    problems: list[str] = []
    present: list[str] = []
    for directory in config.directories:
        if os.path.isdir(directory):
            present.append(directory)
        else:
            exists = os.path.exists(directory)
            problems.append(f"{directory} {'is not a directory' if exists else 'does not exist'}")
    found = LogDirectories.load_all(present)
    problems += [f"{directory} is not formatted." for directory in found.empty]
    problems += [
        f"Error loading {directory}: {reason}" for directory, reason in found.failed.items()
    ]
    first = next(iter(found.formatted.values()), None)
    if first is not None:
        if any(each.cluster_id != first.cluster_id for each in found.formatted.values()):
            problems.append("Mismatched cluster IDs between storage directories.")
        elif any(each.node_id != first.node_id for each in found.formatted.values()):
            problems.append("Mismatched node IDs between storage directories.")
        else:
            try:
                found.check(node_id=config.node_id)
            except KraftError as error:
                problems.append(str(error))
        if first.version == 0:
            problems.append(
                "The kafka configuration file appears to be for a cluster in KRaft mode, but the "
                "directories are formatted for legacy mode."
            )
    return StorageInfo(tuple(present), dict(found.formatted), tuple(problems))
