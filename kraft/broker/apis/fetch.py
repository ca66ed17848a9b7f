"""Fetch: consumers and followers read batches of many partitions.

A request names topics by name up to version 12, by id from 13 on. The partitions of a session are
checked in every request of it, also those that only earlier requests named. A name that does not
exist has no id, and so no place in a session: the response then ends the session, and the client
begins another with a full request.

Records are sent as slices of files. Source: ``KafkaApis.handleFetchRequest``, ``FetchResponse``
(4.3.1), KIP-227, KIP-392, KIP-951.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from kraft._core.bytes.file_slice import FileSlice
from kraft.broker.apis.data_services import (
    DataServices,
    ImageTopics,
    LeaderHints,
    Pace,
    TopicAccess,
)
from kraft.broker.apis.fetches_ahead import FetchesAhead, may_go_on
from kraft.broker.replication.messages import (
    CONSUMER,
    FINAL_SESSION_EPOCH,
    BrokerFetchRequest,
    BrokerFetchResponse,
    FetchedPartition,
    FetchPartition,
    PartitionId,
)
from kraft.broker.replication.ports import DataSlice
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.fetch import (
    FETCH,
    AbortedTransactionData,
    DivergingEpochData,
    FetchedPartitionData,
    FetchedTopicData,
    FetchPartitionData,
    FetchRequestData,
    FetchResponseData,
)
from kraft.protocol.headers import Api, Body
from kraft.records import Uuid
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.server.apis.api import CallContext, Reply

#: fetch.max.bytes
DEFAULT_MAX_BYTES = 55 << 20
_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_RACK = 11
_FIRST_BY_ID = 13
_FIRST_WITH_REPLICA_STATE = 15
_FIRST_WITH_LEADERS = 16
_READ_COMMITTED = 1


class FetchApi:
    """The API Fetch of a broker; a response has at most ``max_bytes``, or one larger batch."""

    def __init__(self, broker: DataServices, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._broker = broker
        self._max_bytes = max_bytes

    @property
    def api(self) -> Api:
        return FETCH

    async def reply(self, context: CallContext, body: Body) -> Reply:
        """Answer the request. Raises CorruptRecordError for a malformed body."""
        data = FetchRequestData.decode(body, context.version)
        fetching = _Fetching(self._broker, data, context, self._max_bytes)
        try:
            response = await fetching.answer()
        except KraftError as error:
            response = FetchResponseData(error_code=error.kafka_code)
        segments, _ = response.encode_segments(context.version)
        return Reply(segments, error=response.error_code, ahead=fetching.ahead(body))


def fetch_api(broker: DataServices, *, max_bytes: int = DEFAULT_MAX_BYTES) -> FetchApi:
    """Return the API Fetch."""
    return FetchApi(broker, max_bytes=max_bytes)


class _Fetching:
    """One request."""

    def __init__(
        self, broker: DataServices, data: FetchRequestData, context: CallContext, max_bytes: int
    ) -> None:
        self._broker = broker
        self._data = data
        self._context = context
        self._is_by_id = context.version >= _FIRST_BY_ID
        self._max_bytes = max_bytes
        self._topics = ImageTopics(broker.image().table)
        self._access = TopicAccess(context, AclOperation.READ)
        #: The leaders that the present response names, if it names any.
        self._hints: LeaderHints | None = None
        self._pace = Pace()
        #: Topics by id, as far as the request or response names them.
        self._names: dict[bytes, str | None] = {}
        #: Answers for topics of unknown names.
        self._unknown: list[FetchedTopicData] = []
        #: What was read, once it is.
        self._read: tuple[BrokerFetchRequest, BrokerFetchResponse] | None = None

    @property
    def _replica_id(self) -> int:
        data = self._data
        if self._context.version >= _FIRST_WITH_REPLICA_STATE:
            return data.replica_state.replica_id
        return data.replica_id

    async def answer(self) -> FetchResponseData:
        request = await self._request()
        fetched = await self._broker.replicas.fetch(request)
        self._read = request, fetched
        return self._response(fetched)

    def ahead(self, body: Body) -> FetchesAhead | None:
        """Return the fetches after this one, whose body this is; None if they are not known."""
        if self._read is None or self._unknown or not may_go_on(*self._read):
            return None
        return FetchesAhead(
            self._broker.replicas.manager.fetches,
            lambda: self._broker.replicas.now_ms,
            body,
            self._data,
            self._context.version,
            *self._read,
            lambda fetched: self._response(fetched).encode_segments(self._context.version)[0],
        )

    def _response(self, fetched: BrokerFetchResponse) -> FetchResponseData:
        response = FetchResponseData(error_code=fetched.error)
        self._hints = None
        if self._context.version >= _FIRST_WITH_SESSIONS:
            response.session_id = fetched.session_id
        for each in fetched.partitions:
            if not self._add(response.responses, each):
                return FetchResponseData(error_code=FETCH_SESSION_ID_NOT_FOUND)
        response.responses.extend(self._unknown)
        if self._hints is not None:
            response.node_endpoints = self._hints.endpoints()
        return response

    # -- the request

    async def _request(self) -> BrokerFetchRequest:
        data, context = self._data, self._context
        replica_id = self._replica_id
        is_follower = replica_id >= 0
        error_of = self._check_follower() if is_follower else self._check_consumer()
        partitions: list[FetchPartition] = []
        for topic in data.topics:
            topic_id = self._id_of(topic.topic_id, topic.topic)
            if topic_id is None:
                error = self._error_of_unknown(topic.topic, is_follower=is_follower)
                self._unknown.append(
                    FetchedTopicData(
                        topic.topic,
                        partitions=[_failed(each.partition, error) for each in topic.partitions],
                    )
                )
                continue
            partitions += (_asked(topic_id, each) for each in topic.partitions)
            if self._pace.is_over:
                await self._pace.rest()
        max_bytes = min(data.max_bytes, self._max_bytes)
        return BrokerFetchRequest(
            partitions,
            replica_id if is_follower else CONSUMER,
            data.replica_state.replica_epoch,
            data.max_wait_ms,
            min(data.min_bytes, max_bytes),
            max_bytes,
            data.session_id,
            FINAL_SESSION_EPOCH if self._unknown else data.session_epoch,
            [
                PartitionId(topic_id, partition)
                for topic in data.forgotten_topics_data
                if (topic_id := self._id_of(topic.topic_id, topic.topic)) is not None
                for partition in topic.partitions
            ],
            data.rack_id if context.version >= _FIRST_WITH_RACK else None,
            self._is_by_id,
            error_of,
        )

    def _id_of(self, topic_id: Uuid, name: str) -> bytes | None:
        """Return a topic's id, None if there is no topic of this name."""
        if self._is_by_id:
            return bytes(topic_id)
        topic = self._topics.by_name(name)
        if topic is None:
            return None
        self._names[topic.id] = name
        return topic.id

    def _name_of(self, topic_id: bytes) -> str | None:
        if topic_id not in self._names:
            topic = self._topics.by_id(topic_id)
            self._names[topic_id] = None if topic is None else topic.name
        return self._names[topic_id]

    # -- authorization

    def _check_follower(self) -> Callable[[PartitionId], int] | None:
        if self._context.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return None
        return lambda id: TOPIC_AUTHORIZATION_FAILED

    def _check_consumer(self) -> Callable[[PartitionId], int] | None:
        """Return the error of each partition by the topics that the client may read."""
        if self._context.authorizer is None:
            return None

        def error_of(id: PartitionId) -> int:
            name = self._name_of(id.topic_id)
            if name is None or self._access.is_allowed(name):
                return NONE
            return TOPIC_AUTHORIZATION_FAILED

        # All topics of the request are checked now: a request that waits reads them again.
        for topic in self._data.topics:
            topic_id = self._id_of(topic.topic_id, topic.topic)
            if topic_id is not None:
                error_of(PartitionId(topic_id, 0))
        return error_of

    def _error_of_unknown(self, name: str, *, is_follower: bool) -> int:
        if not is_follower and not self._access.is_allowed(name):
            return TOPIC_AUTHORIZATION_FAILED
        return UNKNOWN_TOPIC_OR_PARTITION

    # -- the response

    def _add(self, topics: list[FetchedTopicData], fetched: FetchedPartition) -> bool:
        """Add a partition to a response; return False if the response cannot name its topic.

        That is a topic of a session by names which was deleted.
        """
        name = self._name_of(fetched.id.topic_id)
        if name is None and not self._is_by_id:
            return False
        topic_id = Uuid(fetched.id.topic_id)
        if not topics or topics[-1].topic_id != topic_id:
            topics.append(FetchedTopicData(name or "", topic_id, []))
        topics[-1].partitions.append(self._partition(fetched))
        return True

    def _partition(self, fetched: FetchedPartition) -> FetchedPartitionData:
        id, error = fetched.id, fetched.error
        if error:
            if error == UNKNOWN_TOPIC_ID and not self._is_by_id:
                error = UNKNOWN_TOPIC_OR_PARTITION
            failed = _failed(id.partition, error)
            if (
                error in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH)
                and self._context.version >= _FIRST_WITH_LEADERS
            ):
                if self._hints is None:
                    # Of the present metadata: the leader may have changed while this waited.
                    self._hints = LeaderHints(self._broker.image(), self._context.listener)
                failed.current_leader = self._hints.leader_of(id)
            return failed
        diverging = fetched.diverging_epoch
        made = FetchedPartitionData(
            id.partition,
            NONE,
            fetched.high_watermark,
            fetched.high_watermark,
            fetched.log_start_offset,
            aborted_transactions=self._aborted(),
            records=_records(fetched.records),
        )
        if diverging is not None:
            made.diverging_epoch = DivergingEpochData(diverging.epoch, diverging.end_offset)
        if fetched.preferred_read_replica >= 0:
            made.preferred_read_replica = fetched.preferred_read_replica
        return made

    def _aborted(self) -> list[AbortedTransactionData] | None:
        """Return the aborted transactions, of which there are none, for read_committed."""
        return [] if self._data.isolation_level == _READ_COMMITTED else None


def _asked(topic_id: bytes, data: FetchPartitionData) -> FetchPartition:
    return FetchPartition(
        PartitionId(topic_id, data.partition),
        data.fetch_offset,
        data.partition_max_bytes,
        data.current_leader_epoch,
        data.last_fetched_epoch,
        data.log_start_offset,
    )


def _failed(partition: int, error: int) -> FetchedPartitionData:
    # Some clients fail on null records.
    return FetchedPartitionData(partition, error, -1, records=b"")


def _records(records: DataSlice | None) -> Body | FileSlice:
    return b"" if records is None else cast(FileSlice, records)
