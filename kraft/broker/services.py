"""What the APIs of a broker work with: its metadata, partitions, groups and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraft.broker.config import ALL_DIRECTORIES, BrokerSettings
from kraft.broker.group_driver import GroupDriver
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.metadata_cache import MetadataCache
from kraft.broker.replica_driver import ReplicaDriver
from kraft.broker.topic_settings import EffectiveTopicSettings
from kraft.image.publishing import Image
from kraft.server.config.loading import ServerConfig


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The parts of one broker; ``image`` returns the published metadata."""

    config: ServerConfig
    settings: BrokerSettings
    topics: EffectiveTopicSettings
    cache: MetadataCache
    replicas: ReplicaDriver
    logs: LogManager
    groups: GroupDriver
    image: Callable[[], Image]

    def is_cordoned(self, directory: LogDirectory) -> bool:
        """Return whether a log directory takes no new partitions (cordoned.log.dirs)."""
        cordoned = self.settings.cordoned_log_dirs
        return directory.path in cordoned or ALL_DIRECTORIES in cordoned
