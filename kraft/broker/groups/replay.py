"""Replay of ``__consumer_offsets``: batches of the log -> groups and offsets.

A broker that becomes the leader gives `OffsetsReplay` the log from its start to its end. What is
below the high watermark is committed; the rest will be, unless this broker loses the leadership.
kraft has no transactions, but a log of Apache Kafka may have offsets that were committed in one:
they count from its commit marker on, unless a later plain commit of the same offset is in the log.
Source: ``CoordinatorLoaderImpl``, ``GroupCoordinatorShard.replay``,
``OffsetMetadataManager.replay`` and ``replayEndTransactionMarker``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from typing_extensions import Buffer

from kraft._core.bytes.batch_records import RawRecord, RecordBatch, iterate
from kraft.broker.groups.group import ClassicGroup, GroupState
from kraft.broker.groups.group_table import GroupTable
from kraft.broker.groups.offset_store import OffsetStore
from kraft.broker.groups.records import (
    NO_TIMESTAMP,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_group,
    decode_key,
    decode_offset,
    offset_key,
)
from kraft.errors import CorruptRecordError

_COMMIT_MARKER = 1
_OFFSET_KINDS = frozenset((b"\0\0", b"\0\1"))
#: Records, or groups, of one step: at most a millisecond.
_STEP = 100


class OffsetId(NamedTuple):
    """What an offset was committed for."""

    group: str
    topic: str
    partition: int


class OffsetsReplay:
    """Applies committed batches to the groups and offsets of a coordinator that is loading."""

    def __init__(self, groups: GroupTable, offsets: OffsetStore) -> None:
        self._groups = groups
        self._offsets = offsets
        #: Key without its partition -> the offsets of that group and topic, by partition. A log has
        #: many records of each. They stay in the store when they are empty, until `finish`.
        self._by_prefix: dict[bytes, dict[int, bytes]] = {}
        #: Producer id -> offsets of its open transaction, each with its record's offset.
        self._pending: dict[int, dict[OffsetId, tuple[int, bytes]]] = {}
        #: Plain commits while transactions are open -> the offset of the last record.
        self._plain: dict[OffsetId, int] = {}
        self._simple: list[ClassicGroup] = []
        #: The last offset of the present batch if it is not committed, else -1.
        self._uncommitted_to = -1
        self.next_offset = 0

    def replay(self, batches: Buffer, high_watermark: int) -> Iterator[None]:
        """Apply whole batches, each once and in order, in steps of at most a millisecond.

        Raises CorruptRecordError or UnsupportedVersionError at a record that cannot be read.
        """
        count = 0
        for batch in iterate(batches):
            self._uncommitted_to = -1 if batch.last_offset < high_watermark else batch.last_offset
            if batch.is_control:
                self._end_transaction(batch)
            elif batch.is_transactional:
                self._await_marker(batch)
            else:
                for record in batch:
                    self._apply(_key_of(record), record.value)
                    if self._pending:
                        self._note_plain(record)
                    count += 1
                    if count % _STEP == 0:
                        yield
            self._groups.stamp(batch.last_offset)
            self.next_offset = batch.next_offset

    def finish(self, now_ms: int) -> Iterator[None]:
        """Drop what is empty; date the state of groups that no record describes. In steps.

        Offsets of transactions that are still open do not count.
        """
        # One by one: 100,000 entries that go at once take 20 ms.
        for count in range(len(self._by_prefix)):
            self._by_prefix.popitem()
            if count % _STEP == 0:
                yield
        for count, group_id in enumerate(self._offsets.group_ids(), 1):
            self._offsets.drop_empty(group_id)
            if count % _STEP == 0:
                yield
        for count, group in enumerate(self._simple, 1):
            group.state_timestamp_ms = now_ms
            if count % _STEP == 0:
                yield

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if key[:2] not in _OFFSET_KINDS:
            self._apply_group(key, value)
            return
        if value is not None:
            decode_offset(value)
        partition = int.from_bytes(key[-4:], "big", signed=True)
        partitions = self._by_prefix.get(key[:-4])
        if self._uncommitted_to >= 0:
            typed = decode_key(key)
            assert isinstance(typed, OffsetCommitKey)
            if value is not None:
                self._need_group(typed.group)
            self._set_offset(OffsetId(typed.group, typed.topic, partition), value)
        elif value is not None:
            if partitions is None:
                partitions = self._new_prefix(key)
            partitions[partition] = value
        elif partitions is not None:
            partitions.pop(partition, None)
        else:
            typed = decode_key(key)
            assert isinstance(typed, OffsetCommitKey)
            self._offsets.load(typed.group, typed.topic, partition, None)

    def _new_prefix(self, key: bytes) -> dict[int, bytes]:
        """Return the offsets of the group and topic of a key, and remember them by its prefix."""
        typed = decode_key(key)
        assert isinstance(typed, OffsetCommitKey)
        group, topic = sys.intern(typed.group), sys.intern(typed.topic)
        self._need_group(group)
        partitions = self._offsets.partitions(group, topic)
        self._by_prefix[key[:-4]] = partitions
        return partitions

    def _need_group(self, group_id: str) -> None:
        """Make a simple group unless the group exists: offsets do not exist without one."""
        if self._groups.get(group_id) is None:
            group = ClassicGroup(group_id, GroupState.EMPTY, NO_TIMESTAMP)
            self._set_group(group_id, group)
            self._simple.append(group)

    def _set_group(self, group_id: str, group: ClassicGroup | None) -> None:
        if self._uncommitted_to < 0:
            self._groups.load(group_id, group)
        elif group is not None or self._groups.get(group_id) is not None:
            self._groups.set(group_id, group)

    def _set_offset(self, offset_id: OffsetId, value: bytes | None) -> None:
        if self._uncommitted_to < 0:
            self._offsets.load(*offset_id, value)
        else:
            self._offsets.set(*offset_id, value, self._uncommitted_to)

    def _apply_group(self, key: bytes, value: bytes | None) -> None:
        typed = decode_key(key)
        if not isinstance(typed, GroupMetadataKey):
            return
        group_id = sys.intern(typed.group)
        if value is not None:
            self._set_group(group_id, ClassicGroup.from_record(group_id, decode_group(value)))
            return
        self._set_group(group_id, None)
        # The next offset of the group makes it again.
        for topic in self._offsets.topics(group_id):
            prefix = offset_key(group_id, topic, 0)[2:-4]
            for kind in _OFFSET_KINDS:
                self._by_prefix.pop(kind + prefix, None)

    def _note_plain(self, record: RawRecord) -> None:
        key = decode_key(_key_of(record))
        if not isinstance(key, OffsetCommitKey):
            return
        offset_id = OffsetId(key.group, key.topic, key.partition)
        if record.value is not None:
            self._plain[offset_id] = record.offset
            return
        for pending in self._pending.values():
            pending.pop(offset_id, None)

    def _await_marker(self, batch: RecordBatch) -> None:
        pending = self._pending.setdefault(batch.producer_id, {})
        for record in batch:
            key, value = decode_key(_key_of(record)), record.value
            if isinstance(key, OffsetCommitKey) and value is not None:
                decode_offset(value)
                self._need_group(key.group)
                pending[OffsetId(key.group, key.topic, key.partition)] = (record.offset, value)

    def _end_transaction(self, batch: RecordBatch) -> None:
        pending = self._pending.pop(batch.producer_id, {})
        markers = batch.records()
        if not markers or markers[0].control_type != _COMMIT_MARKER:
            pending = {}
        for (group, topic, partition), (offset, value) in pending.items():
            # The later of both commits counts, whichever the log compaction left.
            if self._plain.get(OffsetId(group, topic, partition), -1) < offset:
                self._set_offset(OffsetId(group, topic, partition), value)
        if not self._pending:
            self._plain.clear()


def _key_of(record: RawRecord) -> bytes:
    key = record.key
    if key is None:
        raise CorruptRecordError(f"the record at offset {record.offset} has no key")
    return key
