"""Dynamic configurations by resource.

Holds the rules by which Config records, and the removal of a topic, change the configuration of
topics, brokers, groups and client metrics. Called by ``kraft.image.cluster``. Sources: Kafka's
``ConfigurationsDelta``, ``ConfigurationControlManager``, ``SupportedConfigChecker``
(KAFKA-19851).

Invariants: a resource without a setting is not in the mapping; a value is never None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

from kraft import records
from kraft.errors import InvalidArgumentError
from kraft.image.journal import Journal, JournaledGroups
from kraft.records import Record

# ConfigResource.Type.
TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

RESOURCE_TYPES: Mapping[int, str] = MappingProxyType(
    {
        TOPIC: "topic",
        BROKER: "broker",
        BROKER_LOGGER: "broker_logger",
        CLIENT_METRICS: "client_metrics",
        GROUP: "group",
    }
)

ConfigResource = tuple[int, str]
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Configs(JournaledGroups[ConfigResource, str]):
    """Settings by ``(resource_type, resource_name)``; the cluster's default is broker ``""``.

    Records of settings for which ``is_supported(resource_type, name)`` is false are ignored, as in
    Kafka since 4.2.1. Without it every setting is kept.
    """

    __slots__ = ("_is_supported",)
    kind: ClassVar[str] = "config"

    def __init__(
        self, journal: Journal, is_supported: Callable[[int, str], bool] | None = None
    ) -> None:
        super().__init__(journal)
        self._is_supported = is_supported

    def topic(self, name: str) -> Mapping[str, str]:
        return self._of(TOPIC, name)

    def broker(self, broker_id: int) -> Mapping[str, str]:
        return self._of(BROKER, str(broker_id))

    def cluster_default(self) -> Mapping[str, str]:
        """Return the settings of every broker that has no value of its own."""
        return self._of(BROKER, "")

    def client_metrics(self, subscription: str) -> Mapping[str, str]:
        return self._of(CLIENT_METRICS, subscription)

    def group(self, group_id: str) -> Mapping[str, str]:
        return self._of(GROUP, group_id)

    def replay(self, record: records.Config, offset: int) -> None:
        resource = (record.resource_type, record.resource_name)
        value = record.value
        if value is None:
            self._unset(resource, record.name, offset)
        elif self._is_supported is None or self._is_supported(record.resource_type, record.name):
            self._set(resource, record.name, value, offset)

    def remove_topic(self, topic_name: str, offset: int) -> None:
        """Drop all settings of a removed topic: the log has no Config records for that."""
        resource = (TOPIC, topic_name)
        for name in list(self._entries.get(resource, ())):
            self._unset(resource, name, offset)

    def snapshot_records(self) -> Iterator[records.Config]:
        """Return one Config for each setting, by resource and name."""
        return self.snapshot_records_in_order(0)

    def snapshot_records_of(self, key: ConfigResource, metadata_version: int) -> Iterator[Record]:
        for name, value in sorted(self._entries.get(key, _NOTHING).items()):
            yield records.Config(*key, name, value, version=0)

    def _of(self, resource_type: int, name: str) -> Mapping[str, str]:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"the name of a resource must be text, not {name!r}")
        settings = self._entries.get((resource_type, name))
        return _NOTHING if settings is None else MappingProxyType(settings)
