"""OffsetCommit, OffsetFetch and OffsetDelete, and the expiration of offsets.

Source: ``OffsetMetadataManager``, ``OffsetExpirationConditionImpl``,
``ClassicGroup.offsetExpirationCondition`` of Kafka 4.3, KIP-211 (expiration), KIP-496
(OffsetDelete).
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft._core.codec.message_schema import ZERO_UUID, Uuid
from kraft.broker.groups.config import GroupCoordinatorConfig
from kraft.broker.groups.errors import GroupError
from kraft.broker.groups.group import ClassicGroup, GroupState
from kraft.broker.groups.group_table import GroupTable
from kraft.broker.groups.offset_store import OffsetStore
from kraft.broker.groups.records import (
    NO_TIMESTAMP,
    GroupRecord,
    OffsetCommitValue,
    decode_offset,
    offset_record,
    offset_tombstone,
)
from kraft.broker.groups.requests import DEFAULT_RETENTION_MS, NO_OFFSET, ClientContext
from kraft.broker.groups.writes import Write
from kraft.errors import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    OFFSET_METADATA_TOO_LARGE,
)
from kraft.protocol.offset_commit import (
    OffsetCommitRequestData,
    OffsetCommitRequestPartition,
    OffsetCommitResponseData,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kraft.protocol.offset_delete import (
    OffsetDeleteRequestData,
    OffsetDeleteResponseData,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kraft.protocol.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

#: The first version of OffsetCommit with GROUP_ID_NOT_FOUND for a group that does not exist.
_GROUP_ID_NOT_FOUND_VERSION = 9
#: The value of a partition without a committed offset; it is never changed.
_MISSING = OffsetCommitValue(offset=NO_OFFSET)


class GroupOffsets:
    """Decides about the committed offsets of one coordinator."""

    def __init__(
        self, config: GroupCoordinatorConfig, groups: GroupTable, store: OffsetStore
    ) -> None:
        self.config = config
        self.groups = groups
        self.store = store

    def validated_group(
        self, context: ClientContext, request: OffsetCommitRequestData, now_ms: int
    ) -> ClassicGroup:
        """Return the group that may commit; a simple group is made where there is none.

        Raises GroupError if the committer is no member of the present generation.
        """
        generation_id = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        if group is None:
            if generation_id >= 0:
                old_client = context.api_version < _GROUP_ID_NOT_FOUND_VERSION
                code = ILLEGAL_GENERATION if old_client else GROUP_ID_NOT_FOUND
                raise GroupError(code, f"Group {request.group_id} not found.")
            group = ClassicGroup(request.group_id, GroupState.EMPTY, now_ms)
            self.groups.set(request.group_id, group)
        group.validate_offset_commit(request.member_id, request.group_instance_id, generation_id)
        return group

    def commit(self, request: OffsetCommitRequestData, now_ms: int) -> Write:
        """Return the records of a valid commit; metadata that is too large fails by partition."""
        expire_timestamp = NO_TIMESTAMP
        if request.retention_time_ms != DEFAULT_RETENTION_MS:
            expire_timestamp = now_ms + request.retention_time_ms
        records = []
        results = []
        for topic in request.topics:
            codes = []
            for one in topic.partitions:
                code = 0
                if self._is_too_large(one.committed_metadata):
                    code = OFFSET_METADATA_TOO_LARGE
                else:
                    value = _value(one, topic.topic_id, now_ms, expire_timestamp)
                    records.append(
                        offset_record(request.group_id, topic.name, one.partition_index, value)
                    )
                codes.append(OffsetCommitResponsePartition(one.partition_index, code))
            results.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, codes))
        return Write(records, OffsetCommitResponseData(topics=results))

    def _is_too_large(self, metadata: str | None) -> bool:
        if metadata is None:
            return False
        # Kafka counts the chars of a Java string: two for a character beyond the basic plane.
        size = len(metadata)
        if not metadata.isascii():
            size = len(metadata.encode("utf-16-le", "surrogatepass")) // 2
        return size > self.config.offset_metadata_max_bytes

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Return committed offsets; with ``require_stable``, those that may not be committed yet.

        The caller lets a response with ``require_stable`` wait until they are. Without a group all
        offsets are missing, which is no error.
        """
        group_id = request.group_id
        exists = self.groups.get if require_stable else self.groups.committed
        offsets: Mapping[str, Mapping[int, bytes]] = {}
        if exists(group_id) is not None:
            store = self.store
            offsets = store.topics(group_id) if require_stable else store.committed_topics(group_id)
        if request.topics is None:
            topics = [_fetched_all(name, partitions) for name, partitions in offsets.items()]
        else:
            topics = [_fetched(topic, offsets.get(topic.name, {})) for topic in request.topics]
        return OffsetFetchResponseGroup(group_id, topics)

    def delete(self, request: OffsetDeleteRequestData) -> Write:
        """Return the tombstones of offsets of topics that the group is not subscribed to."""
        group = self.groups.get(request.group_id)
        if group is None:
            raise GroupError(GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        group.validate_offset_delete()
        topics = self.store.topics(request.group_id)
        records = []
        results = []
        for topic in request.topics:
            code = GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else 0
            partitions = topics.get(topic.name, {})
            if code == 0:
                records += [
                    offset_tombstone(request.group_id, topic.name, one.partition_index)
                    for one in topic.partitions
                    if one.partition_index in partitions
                ]
            codes = [
                OffsetDeleteResponsePartition(one.partition_index, code) for one in topic.partitions
            ]
            results.append(OffsetDeleteResponseTopic(topic.name, codes))
        return Write(records, OffsetDeleteResponseData(topics=results))

    def tombstones(self, group_id: str) -> list[GroupRecord]:
        """Return the tombstones of all offsets of a group."""
        return [
            offset_tombstone(group_id, topic, partition)
            for topic, partitions in self.store.topics(group_id).items()
            for partition in partitions
        ]

    def tombstones_of_topics(self, deleted: Mapping[str, Uuid]) -> list[GroupRecord]:
        """Return the tombstones of all offsets of deleted topics, given by name and id.

        Offsets that were committed for another topic of the same name stay.
        """
        records = []
        for group_id, topics in self.store.groups():
            for name in topics.keys() & deleted.keys():
                for partition, value in topics[name].items():
                    if decode_offset(value).topic_id in (ZERO_UUID, deleted[name]):
                        records.append(offset_tombstone(group_id, name, partition))
        return records

    def expired(self, group: ClassicGroup, now_ms: int) -> tuple[list[GroupRecord], bool]:
        """Return the tombstones of expired offsets, and whether no offset is left after them.

        They expire ``offsets.retention.minutes`` after the group became empty; after the commit, in
        a stable consumer group that is not subscribed to the topic, and in a simple group.
        """
        topics = self.store.topics(group.group_id)
        if not topics:
            return [], True
        since_empty = NO_TIMESTAMP
        if group.protocol_type is not None:
            if group.is_empty:
                since_empty = group.state_timestamp_ms
            elif not (
                group.uses_consumer_protocol
                and group.subscribed_topics is not None
                and group.state is GroupState.STABLE
            ):
                return [], False
        records = []
        is_all = True
        for name, partitions in topics.items():
            if group.is_subscribed_to(name):
                is_all = False
                continue
            for partition, value in partitions.items():
                if self._is_expired(decode_offset(value), since_empty, now_ms):
                    records.append(offset_tombstone(group.group_id, name, partition))
                else:
                    is_all = False
        return records, is_all

    def _is_expired(self, value: OffsetCommitValue, since_empty: int, now_ms: int) -> bool:
        if value.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= value.expire_timestamp
        base = value.commit_timestamp if since_empty == NO_TIMESTAMP else since_empty
        return now_ms - base >= self.config.offsets_retention_ms


def _value(
    partition: OffsetCommitRequestPartition, topic_id: Uuid, now_ms: int, expire_timestamp: int
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )


def _fetched(
    topic: OffsetFetchRequestTopic, offsets: Mapping[int, bytes]
) -> OffsetFetchResponseTopic:
    found = [
        _fetched_offset(partition, offsets.get(partition), topic.topic_id)
        for partition in topic.partition_indexes
    ]
    return OffsetFetchResponseTopic(topic.name, topic.topic_id, found)


def _fetched_all(name: str, offsets: Mapping[int, bytes]) -> OffsetFetchResponseTopic:
    found = [_fetched_offset(partition, value, ZERO_UUID) for partition, value in offsets.items()]
    return OffsetFetchResponseTopic(name, ZERO_UUID, found)


def _fetched_offset(
    partition: int, value: bytes | None, topic_id: Uuid
) -> OffsetFetchResponsePartition:
    offset = _MISSING if value is None else decode_offset(value)
    # An offset of a topic that was deleted and created again is not of this topic (KIP-848).
    if ZERO_UUID not in (offset.topic_id, topic_id) and offset.topic_id != topic_id:
        offset = _MISSING
    return OffsetFetchResponsePartition(
        partition, offset.offset, offset.leader_epoch, offset.metadata
    )
