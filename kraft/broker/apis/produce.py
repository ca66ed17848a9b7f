"""Produce: append the batches of producers.

A request names topics by name up to version 12, by id from 13 on. Each partition has its own error;
a batch with wrong records has the errors of its records too. With acks=0 there is no response: an
error closes the connection, as in Kafka, so that the client looks at the metadata again.

Batches are validated as views of the request's frame. Those that take long are validated in a
thread, without the GIL. Source: ``KafkaApis.handleProduceRequest``, ``ReplicaManager`` (4.3.1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial

from typing_extensions import Buffer

from kraft._core.bytes.produced_batch import ProducedBatch
from kraft.broker.apis.data_services import (
    DataServices,
    ImageTopics,
    KnownTopic,
    LeaderHints,
    Pace,
    TopicAccess,
)
from kraft.broker.produce_validation import check
from kraft.broker.replication.messages import PartitionId, ProducedPartition
from kraft.errors import (
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
    RejectedBatchError,
    error_name,
)
from kraft.image.security import AclOperation
from kraft.protocol.headers import Body
from kraft.protocol.metadata import INTERNAL_TOPICS
from kraft.protocol.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequestData,
    ProduceResponseData,
    TopicProduceData,
    TopicProduceResponse,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.driver import now_ms

#: Batches of more bytes are validated in a thread. Plain ones take 0.1 ms a MiB for the CRC and a
#: walk over the records, compressed ones up to 25 ms, as they are inflated.
PLAIN_BYTES_INLINE = 4 << 20
COMPRESSED_BYTES_INLINE = 64 << 10
#: Only this client may write to internal topics (``AdminUtils.ADMIN_CLIENT_ID``).
_ADMIN_CLIENT = "__admin_client"
_FIRST_BY_ID = 13
_FIRST_WITH_LEADERS = 10
#: The byte of a batch's attributes that has the codec.
_CODEC_AT, _CODEC_MASK = 22, 7
_VALID_ACKS = (-1, 0, 1)
#: The body of a request without a response.
NO_RESPONSE = b""


def produce_api(broker: DataServices) -> AnyApi:
    """Return the API Produce."""

    async def answer(data: ProduceRequestData, context: CallContext) -> ProduceResponseData | bytes:
        try:
            response = await _Producing(broker, data, context).answer()
        except KraftError as error:
            response = failed(data, error)
        if data.acks:
            return response
        for topic in response.responses:
            for each in topic.partition_responses:
                if each.error_code:
                    raise _unanswered(data, each.error_code)
        return NO_RESPONSE

    def failed(data: ProduceRequestData, error: KraftError) -> ProduceResponseData:
        if not data.acks:
            # The listener closes the connection.
            raise error
        return ProduceResponseData(
            [
                TopicProduceResponse(
                    topic.name,
                    topic.topic_id,
                    [
                        PartitionProduceResponse(
                            each.index, error.kafka_code, -1, error_message=str(error)
                        )
                        for each in topic.partition_data
                    ],
                )
                for topic in data.topic_data
            ]
        )

    return ListenerApi(PRODUCE, ProduceRequestData.decode, answer, failed)


class _Producing:
    """One request."""

    def __init__(
        self, broker: DataServices, data: ProduceRequestData, context: CallContext
    ) -> None:
        self._broker = broker
        self._data = data
        self._context = context
        self._topics = ImageTopics(broker.image().table)
        self._access = TopicAccess(context, AclOperation.WRITE)
        self._pace = Pace()
        #: The valid batches, and the response of each one's partition.
        self._batches: dict[PartitionId, Buffer] = {}
        self._sent: list[tuple[PartitionId, PartitionProduceResponse]] = []

    async def answer(self) -> ProduceResponseData:
        data = self._data
        response = ProduceResponseData()
        for topic in data.topic_data:
            answered = TopicProduceResponse(topic.name, topic.topic_id)
            response.responses.append(answered)
            await self._validate(topic, answered.partition_responses)
        if self._sent:
            replicas = self._broker.replicas
            produced = await replicas.produce(self._batches, data.acks, data.timeout_ms)
            await self._complete(produced, response)
        return response

    # -- before the append

    async def _validate(
        self, data: TopicProduceData, responses: list[PartitionProduceResponse]
    ) -> None:
        """Add the responses of a topic's partitions; `_complete` ends those of valid batches."""
        topic, error = self._find(data)
        for each in data.partition_data:
            response = PartitionProduceResponse(each.index, error, -1)
            responses.append(response)
            if error or topic is None:
                continue
            if not self._topics.has_partition(topic, each.index):
                response.error_code = UNKNOWN_TOPIC_OR_PARTITION
                continue
            try:
                batch = self._check(each, topic)
                if not isinstance(batch, ProducedBatch):
                    batch = await batch
            except KraftError as rejected:
                _reject(response, rejected)
                self._broker.replicas.traffic.produce_rejected(rejected.kafka_code)
                continue
            id = PartitionId(topic.id, each.index)
            self._batches[id] = batch.data
            self._sent.append((id, response))
            if self._pace.is_over:
                await self._pace.rest()

    def _check(
        self, data: PartitionProduceData, topic: KnownTopic
    ) -> ProducedBatch | Awaitable[ProducedBatch]:
        """Return the checked batch of a partition; raise as `produce_validation.check`."""
        records, version = data.records, self._context.version
        rules = self._broker.topics.of(topic.name).produce
        partition = f"{topic.name}-{data.index}"
        if not _takes_long(records):
            return check(records, rules, partition, now_ms=int(now_ms()), version=version)
        work = partial(check, records, rules, partition, now_ms=int(now_ms()), version=version)
        return asyncio.get_running_loop().run_in_executor(None, work)

    def _find(self, data: TopicProduceData) -> tuple[KnownTopic | None, int]:
        """Return a topic and the error of all its partitions, 0 for none."""
        if self._context.version >= _FIRST_BY_ID:
            topic = self._topics.by_id(bytes(data.topic_id))
            if topic is None:
                return None, UNKNOWN_TOPIC_ID
            name = topic.name
        else:
            name = data.name
            topic = self._topics.by_name(name)
        if not self._access.is_allowed(name):
            return None, TOPIC_AUTHORIZATION_FAILED
        if topic is None:
            return None, UNKNOWN_TOPIC_OR_PARTITION
        if self._data.acks not in _VALID_ACKS:
            return topic, INVALID_REQUIRED_ACKS
        if name in INTERNAL_TOPICS and self._context.client_id != _ADMIN_CLIENT:
            return topic, INVALID_TOPIC_EXCEPTION
        return topic, NONE

    # -- after the append

    async def _complete(
        self, produced: Mapping[PartitionId, ProducedPartition], response: ProduceResponseData
    ) -> None:
        """Write the outcomes of the appends into the responses of their partitions."""
        hints: LeaderHints | None = None
        for id, partition in self._sent:
            outcome = produced[id]
            if not outcome.error:
                partition.base_offset = outcome.base_offset
                partition.log_start_offset = outcome.log_start_offset
                partition.log_append_time_ms = outcome.append_time_ms
            else:
                partition.error_code = outcome.error
                partition.error_message = outcome.message or error_name(outcome.error)
                names_leaders = self._context.version >= _FIRST_WITH_LEADERS
                if outcome.error == NOT_LEADER_OR_FOLLOWER and names_leaders:
                    # Of the present metadata: the leader may have changed while this waited.
                    hints = hints or LeaderHints(self._broker.image(), self._context.listener)
                    partition.current_leader = hints.leader_of(id)
            if self._pace.is_over:
                await self._pace.rest()
        if hints is not None:
            response.node_endpoints = hints.endpoints()


def _takes_long(records: Body | None) -> bool:
    """Return whether the check of a batch would delay other requests."""
    if records is None or len(records) <= COMPRESSED_BYTES_INLINE:
        return False
    return len(records) > PLAIN_BYTES_INLINE or bool(records[_CODEC_AT] & _CODEC_MASK)


def _reject(response: PartitionProduceResponse, error: KraftError) -> None:
    response.error_code = error.kafka_code
    response.error_message = str(error)
    if isinstance(error, RejectedBatchError):
        response.record_errors = [BatchIndexAndErrorMessage(*each) for each in error.record_errors]


def _unanswered(data: ProduceRequestData, code: int) -> KraftError:
    """Return the error that closes the connection of a request with acks=0."""
    count = sum(len(topic.partition_data) for topic in data.topic_data)
    return KraftError(f"{error_name(code)} for a request with acks=0 and {count} partitions")
