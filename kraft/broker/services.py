"""What the APIs of a broker work with: its metadata, partitions, groups and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraft.broker.config import BrokerSettings
from kraft.broker.group_driver import GroupDriver
from kraft.broker.log.log_manager import LogManager
from kraft.broker.metadata_cache import MetadataCache
from kraft.broker.replica_driver import ReplicaDriver
from kraft.broker.topic_settings import EffectiveTopicSettings
from kraft.image.publishing import Image
from kraft.server.config.loading import ServerConfig


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The parts of one broker; ``image`` returns the published metadata.

    ``settings`` are those of its properties file.
    """

    config: ServerConfig
    settings: BrokerSettings
    topics: EffectiveTopicSettings
    cache: MetadataCache
    replicas: ReplicaDriver
    logs: LogManager
    groups: GroupDriver
    image: Callable[[], Image]
