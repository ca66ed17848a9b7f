"""Finalized feature levels, the state of a migration from ZooKeeper, and the next producer id.

Holds the rules of FeatureLevel, ZkMigrationState and ProducerIds records. Called by
``kraft.image.cluster``. Sources: Kafka's ``FeaturesDelta`` (KAFKA-18979 for kraft.version),
``FeaturesImage`` (3.9's for the migration), ``ProducerIdControlManager``, ``ProducerIdsImage``.

Invariants: no feature has level 0; ``kraft.version`` is not among the features, because control
records carry it; the next producer id only grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kraft import records
from kraft.errors import ReplayError, UnsupportedVersionError
from kraft.image.journal import JournaledMap
from kraft.records import Record
from kraft.records.versions import METADATA_VERSION, MetadataVersion, record_version

KRAFT_VERSION = "kraft.version"
_NO_MIGRATION = 0


class Features(JournaledMap[str, int]):
    """The finalized level of each feature; ``metadata.version`` comes first."""

    __slots__ = ()
    kind: ClassVar[str] = "feature"

    def __iter__(self) -> Iterator[str]:
        if METADATA_VERSION in self._entries:
            yield METADATA_VERSION
        yield from sorted(name for name in self._entries if name != METADATA_VERSION)

    def replay(self, record: records.FeatureLevel, offset: int) -> None:
        name = record.name
        level = record.feature_level
        if name == METADATA_VERSION:
            MetadataVersion.from_level(level)
        elif name == KRAFT_VERSION:
            # Some early logs hold such a record by mistake; control records carry the level.
            return
        elif level < 0:
            raise ReplayError(f"{record} has a negative level")
        if level == 0:
            self._drop(name, offset)
        else:
            self._put(name, level, offset)

    def snapshot_records(self) -> Iterator[records.FeatureLevel]:
        """Return metadata.version first, since later records may depend on it, then the others."""
        return self.snapshot_records_in_order(0)

    def snapshot_keys(self) -> list[str]:
        """Return the features; raise UnsupportedVersionError if no metadata.version was set."""
        if METADATA_VERSION not in self._entries:
            raise UnsupportedVersionError(
                "a snapshot needs a metadata.version, but no record has set one"
            )
        return super().snapshot_keys()

    @staticmethod
    def snapshot_order(key: str) -> tuple[bool, str]:
        return key != METADATA_VERSION, key

    def snapshot_records_of(self, key: str, metadata_version: int) -> Iterator[Record]:
        if key in self._entries:
            yield records.FeatureLevel(key, self._entries[key], version=0)


class ZkMigration(JournaledMap[str, int]):
    """The progress of a migration from ZooKeeper, under the key ``state``; empty without one.

    Kafka 3.x keeps the state in its snapshots from metadata.version 3.4-IV0 on. Kafka 4.0 and later
    ignore the record and never write it; here any value is kept, known or not.
    """

    __slots__ = ()
    kind: ClassVar[str] = "zk_migration"
    STATE: ClassVar[str] = "state"

    def replay(self, record: records.ZkMigrationState, offset: int) -> None:
        if record.zk_migration_state == _NO_MIGRATION:
            self._drop(self.STATE, offset)
        else:
            self._put(self.STATE, record.zk_migration_state, offset)

    def snapshot_records_of(self, key: str, metadata_version: int) -> Iterator[Record]:
        if key in self._entries:
            yield records.ZkMigrationState(
                zk_migration_state=self._entries[key],
                version=record_version(records.ZkMigrationState, metadata_version),
            )


class ProducerIdState(JournaledMap[str, int]):
    """The first id of the next block of producer ids, under the key ``next_producer_id``.

    Empty until the first block was allocated.
    """

    __slots__ = ()
    kind: ClassVar[str] = "producer_ids"
    NEXT: ClassVar[str] = "next_producer_id"

    @property
    def next_producer_id(self) -> int:
        """The first id of the next block; -1 until a block was allocated."""
        return self._entries.get(self.NEXT, -1)

    def replay(self, record: records.ProducerIds, offset: int) -> None:
        if record.next_producer_id <= self.next_producer_id:
            raise ReplayError(
                f"{record} lowers the next producer id from {self.next_producer_id} "
                f"to {record.next_producer_id}"
            )
        self._put(self.NEXT, record.next_producer_id, offset)

    def snapshot_records(self) -> Iterator[records.ProducerIds]:
        """Return one ProducerIds without a broker, if any block was allocated."""
        return self.snapshot_records_in_order(0)

    def snapshot_records_of(self, key: str, metadata_version: int) -> Iterator[Record]:
        if key in self._entries:
            yield records.ProducerIds(
                broker_id=-1, broker_epoch=-1, next_producer_id=self._entries[key], version=0
            )
