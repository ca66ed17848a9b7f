"""Registered brokers and controllers.

Holds the rules by which RegisterBroker, UnregisterBroker, BrokerRegistrationChange, FenceBroker,
UnfenceBroker, RegisterController and UnregisterController change the registrations, and the
records that a snapshot holds of them. Called by ``kraft.image.cluster``. Sources: Kafka's
``ClusterControlManager``, ``ClusterDelta``, ``BrokerRegistration``, ``ControllerRegistration``
(4.3.1).

Invariants: a registration is immutable, a change replaces it; a record that changes a broker names
the epoch of its present registration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kraft import records
from kraft.errors import ReplayError, UnsupportedVersionError
from kraft.image.journal import ABSENT, Journal, JournaledMap
from kraft.records import Record, Uuid
from kraft.records.versions import MetadataVersion, record_version

if TYPE_CHECKING:
    from kraft.image.overlays import PastEntries

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_FENCED_AFTER: Mapping[int, bool | None] = {1: True, 0: None, -1: False}


class NodeEndpoint(NamedTuple):
    """Where a node listens; ``security_protocol`` is Kafka's number, an index of
    ``SECURITY_PROTOCOLS``.
    """

    name: str
    host: str
    port: int
    security_protocol: int

    def __repr__(self) -> str:
        return (
            f"{self.name}://{self.host}:{self.port} ({SECURITY_PROTOCOLS[self.security_protocol]})"
        )


class VersionRange(NamedTuple):
    """The levels of a feature that a node supports, both ends included."""

    min: int
    max: int

    def __repr__(self) -> str:
        return f"{self.min}-{self.max}"


#: Kafka reserves the directory ids below.
_FIRST_FREE_DIRECTORY = 100


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registration of one broker.

    ``log_dirs`` are sorted as Kafka sorts them on replay (signed halves). ``cordoned_log_dirs``
    is None until the broker has sent it (KIP-1066). ``registration_offset`` is the offset of the
    RegisterBroker record, or the offset at which the caller replays a snapshot; ``==`` ignores it.
    """

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, NodeEndpoint]
    features: Mapping[str, VersionRange]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None
    is_migrating_zk_broker: bool = False
    registration_offset: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """The registration of one controller (KIP-919)."""

    id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    endpoints: Mapping[str, NodeEndpoint]
    features: Mapping[str, VersionRange]


class Brokers(JournaledMap[int, BrokerRegistration]):
    """The registered brokers by id, with an index by log directory.

    ``table_size`` is the number of entries for which Kafka sized its hash table of brokers: one
    more than the most brokers that were registered at a change since this state was loaded.
    """

    __slots__ = ("_by_directory", "_past", "table_size")
    kind: ClassVar[str] = "broker"

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.table_size = 0
        # Several brokers may have a directory: a log may hold what no controller accepts.
        self._by_directory: dict[Uuid, dict[int, None]] = {}
        self._past: PastEntries | None = None

    def ids_with_directory(self, directory: Uuid) -> Collection[int]:
        """Return the ids of the brokers that register this log directory; costs their number."""
        now: Collection[int] = self._by_directory.get(directory, ())
        if self._past is None or not (olds := self._past.olds()):
            return now
        return [id for id in now if id not in olds] + [
            id for id, old in olds.items() if old is not ABSENT and directory in old.log_dirs
        ]

    def show(self, past: PastEntries) -> None:
        super().show(past)
        self._past = past
        source = past.source
        assert isinstance(source, Brokers)
        # The present index, whose results `ids_with_directory` corrects.
        self._by_directory = source._by_directory

    def _put(self, key: int, value: BrokerRegistration, offset: int) -> None:
        self.table_size = max(self.table_size, len(self._entries) + 1)
        self._unlink(key)
        super()._put(key, value, offset)
        self._link(key)

    def _drop(self, key: int, offset: int) -> None:
        self._unlink(key)
        super()._drop(key, offset)

    def _restore(self, key: Any, old: Any) -> None:
        self._unlink(key)
        super()._restore(key, old)
        self._link(key)

    def _copy_entries(self, source: JournaledMap[int, BrokerRegistration]) -> None:
        for key in self._entries:
            self._unlink(key)
        super()._copy_entries(source)
        for key in self._entries:
            self._link(key)

    def _link(self, key: int) -> None:
        broker = self._entries.get(key)
        if broker is not None:
            for directory in broker.log_dirs:
                self._by_directory.setdefault(directory, {})[key] = None

    def _unlink(self, key: int) -> None:
        broker = self._entries.get(key)
        if broker is None:
            return
        # A registration of a damaged log may list a directory twice.
        for directory in set(broker.log_dirs):
            ids = self._by_directory[directory]
            del ids[key]
            if not ids:
                del self._by_directory[directory]

    def replay_register(self, record: records.RegisterBroker, offset: int) -> None:
        registration = BrokerRegistration(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            _endpoints(record),
            _features(record),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            sorted_directories(record.log_dirs),
            None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            record.is_migrating_zk_broker,
            offset,
        )
        self._put(registration.id, registration, offset)

    def replay_unregister(self, record: records.UnregisterBroker, offset: int) -> None:
        self._registered(record, record.broker_id, record.broker_epoch)
        self._drop(record.broker_id, offset)

    def replay_fence(self, record: records.FenceBroker, offset: int) -> None:
        before = self._registered(record, record.id, record.epoch)
        self._change(before, replace(before, fenced=True), offset)

    def replay_unfence(self, record: records.UnfenceBroker, offset: int) -> None:
        before = self._registered(record, record.id, record.epoch)
        self._change(before, replace(before, fenced=False), offset)

    def replay_change(self, record: records.BrokerRegistrationChange, offset: int) -> None:
        before = self._registered(record, record.broker_id, record.broker_epoch)
        if record.fenced not in _FENCED_AFTER:
            raise ReplayError(f"{record} has fenced={record.fenced}; known are -1, 0 and 1")
        if record.in_controlled_shutdown not in (0, 1):
            raise ReplayError(
                f"{record} has in_controlled_shutdown={record.in_controlled_shutdown}; "
                f"known are 0 and 1"
            )
        fenced = _FENCED_AFTER[record.fenced]
        cordoned = record.cordoned_log_dirs
        after = replace(
            before,
            fenced=before.fenced if fenced is None else fenced,
            in_controlled_shutdown=(
                before.in_controlled_shutdown or record.in_controlled_shutdown == 1
            ),
            # An empty list means no change: this record cannot express "no directory left".
            log_dirs=sorted_directories(record.log_dirs) if record.log_dirs else before.log_dirs,
            cordoned_log_dirs=before.cordoned_log_dirs if cordoned is None else tuple(cordoned),
        )
        self._change(before, after, offset)

    def snapshot_records(self, metadata_version: int) -> Iterator[records.RegisterBroker]:
        """Return one RegisterBroker for each broker, by id (``BrokerRegistration.toRecord``).

        Raises :class:`UnsupportedVersionError` where the metadata.version cannot express the
        registration.
        """
        return self.snapshot_records_in_order(metadata_version)

    def snapshot_records_of(self, key: int, metadata_version: int) -> Iterator[Record]:
        broker = self._entries.get(key)
        if broker is None:
            return
        level = MetadataVersion.from_level(metadata_version)
        if broker.log_dirs and not level.is_directory_assignment_supported:
            raise _cannot_be_written(level, f"the log dirs of broker {broker.id}")
        if broker.cordoned_log_dirs is not None and not level.is_cordoned_log_dirs_supported:
            raise _cannot_be_written(level, f"the cordoned log dirs of broker {broker.id}")
        cordoned = broker.cordoned_log_dirs
        yield records.RegisterBroker(
            broker_id=broker.id,
            is_migrating_zk_broker=broker.is_migrating_zk_broker,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=_endpoint_structs(broker.endpoints),
            features=_feature_structs(broker.features),
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=list(broker.log_dirs),
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
            version=record_version(records.RegisterBroker, level),
        )

    def _registered(self, record: records.Record, broker_id: int, epoch: int) -> BrokerRegistration:
        registration = self._entries.get(broker_id)
        if registration is None:
            raise ReplayError(f"{record} names broker {broker_id}, which is not registered")
        if registration.epoch != epoch:
            raise ReplayError(
                f"{record} names epoch {epoch} of broker {broker_id}, "
                f"which is registered with epoch {registration.epoch}"
            )
        return registration

    def _change(self, before: BrokerRegistration, after: BrokerRegistration, offset: int) -> None:
        if after != before:
            self._put(after.id, after, offset)


class Controllers(JournaledMap[int, ControllerRegistration]):
    """The registered controllers by id."""

    __slots__ = ()
    kind: ClassVar[str] = "controller"

    def replay_register(self, record: records.RegisterController, offset: int) -> None:
        registration = ControllerRegistration(
            record.controller_id,
            record.incarnation_id,
            record.zk_migration_ready,
            _endpoints(record),
            _features(record),
        )
        self._put(registration.id, registration, offset)

    def replay_unregister(self, record: records.UnregisterController, offset: int) -> None:
        if record.controller_id not in self._entries:
            raise ReplayError(
                f"{record} names controller {record.controller_id}, which is not registered"
            )
        self._drop(record.controller_id, offset)

    def snapshot_records(self, metadata_version: int) -> Iterator[records.RegisterController]:
        """Return one RegisterController for each controller, by id
        (``ControllerRegistration.toRecord``).
        """
        return self.snapshot_records_in_order(metadata_version)

    def snapshot_records_of(self, key: int, metadata_version: int) -> Iterator[Record]:
        controller = self._entries.get(key)
        if controller is None:
            return
        yield records.RegisterController(
            controller_id=controller.id,
            incarnation_id=controller.incarnation_id,
            zk_migration_ready=controller.zk_migration_ready,
            end_points=_endpoint_structs(controller.endpoints),
            features=_feature_structs(controller.features),
            version=record_version(records.RegisterController, metadata_version),
        )


def is_reserved_directory(directory_id: Uuid) -> bool:
    """Return whether Kafka reserves this id, as it does for lost and unassigned directories.

    Source: ``DirectoryId.reserved``, where the lower half is a signed number.
    """
    upper = int.from_bytes(directory_id[:8], "big")
    lower = int.from_bytes(directory_id[8:], "big", signed=True)
    return upper == 0 and lower < _FIRST_FREE_DIRECTORY


def sorted_directories(directories: Iterable[Uuid]) -> tuple[Uuid, ...]:
    """Return directory ids sorted as by Java's ``Uuid.compareTo``: two signed 64-bit halves, the
    upper one first.
    """
    return tuple(
        sorted(
            directories,
            key=lambda directory: (
                int.from_bytes(directory[:8], "big", signed=True),
                int.from_bytes(directory[8:], "big", signed=True),
            ),
        )
    )


def _endpoints(
    record: records.RegisterBroker | records.RegisterController,
) -> Mapping[str, NodeEndpoint]:
    endpoints: dict[str, NodeEndpoint] = {}
    for point in record.end_points:
        if not point.name:
            raise ReplayError(f"{record} has a listener without a name")
        if not 0 <= point.security_protocol < len(SECURITY_PROTOCOLS):
            raise ReplayError(f"{record} names unknown security protocol {point.security_protocol}")
        endpoints[point.name] = NodeEndpoint(
            point.name, point.host, point.port, point.security_protocol
        )
    return MappingProxyType(endpoints)


def _features(
    record: records.RegisterBroker | records.RegisterController,
) -> Mapping[str, VersionRange]:
    return MappingProxyType(
        {
            feature.name: VersionRange(feature.min_supported_version, feature.max_supported_version)
            for feature in record.features
        }
    )


def _endpoint_structs(endpoints: Mapping[str, NodeEndpoint]) -> list[records.EndpointData]:
    return [
        records.EndpointData(
            name=point.name,
            host=point.host,
            port=point.port,
            security_protocol=point.security_protocol,
        )
        for point in endpoints.values()
    ]


def _feature_structs(features: Mapping[str, VersionRange]) -> list[records.Feature]:
    return [
        records.Feature(
            name=name, min_supported_version=levels.min, max_supported_version=levels.max
        )
        for name, levels in features.items()
    ]


def _cannot_be_written(level: MetadataVersion, what: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(f"metadata.version {level.text} cannot express {what}")
