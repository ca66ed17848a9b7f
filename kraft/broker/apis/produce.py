"""Produce: append the batches of producers.

A request names topics by name up to version 12, by id from 13 on. Each partition has its own error;
a batch with wrong records has the errors of its records too. With acks=0 there is no response: an
error closes the connection, as in Kafka, so that the client looks at the metadata again.

Batches are validated as views of the request's frame. Those that take long are validated in a
thread, without the GIL. Source: ``KafkaApis.handleProduceRequest``, ``ReplicaManager`` (4.3.1).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from kraft._core.bytes.produced_batch import ProducedBatch
from kraft.broker.apis.data_services import (
    DataServices,
    ImageTopics,
    KnownTopic,
    LeaderHints,
    Pace,
    TopicAccess,
)
from kraft.broker.produce_validation import ProduceRules, check
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


class _SentBatch(NamedTuple):
    """A batch that was passed on, and the response of its partition."""

    id: PartitionId
    records: memoryview
    response: PartitionProduceResponse


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
        self._image = broker.image()
        self._topics = ImageTopics(self._image.table)
        self._access = TopicAccess(context, AclOperation.WRITE)
        self._hints = LeaderHints(self._image, context.listener)
        self._pace = Pace()
        self._sent: list[_SentBatch] = []

    async def answer(self) -> ProduceResponseData:
        data = self._data
        responses = [
            TopicProduceResponse(topic.name, topic.topic_id, await self._validate(topic))
            for topic in data.topic_data
        ]
        if self._sent:
            batches = {sent.id: sent.records for sent in self._sent}
            produced = await self._broker.replicas.produce(batches, data.acks, data.timeout_ms)
            for sent in self._sent:
                self._complete(sent, produced[sent.id])
                await self._pace.rest()
        response = ProduceResponseData(responses)
        if self._context.version >= _FIRST_WITH_LEADERS:
            response.node_endpoints = self._hints.endpoints()
        return response

    # -- before the append

    async def _validate(self, data: TopicProduceData) -> list[PartitionProduceResponse]:
        """Return the responses of a topic's partitions; `_complete` ends those of valid batches."""
        topic, error = self._find(data)
        responses = []
        for each in data.partition_data:
            response = PartitionProduceResponse(each.index, error, -1)
            responses.append(response)
            if error or topic is None:
                continue
            if not self._topics.has_partition(topic, each.index):
                response.error_code = UNKNOWN_TOPIC_OR_PARTITION
                continue
            try:
                batch = await _checked(
                    each.records,
                    self._broker.topics.of(topic.name).produce,
                    f"{topic.name}-{each.index}",
                    self._context.version,
                )
            except RejectedBatchError as rejected:
                _reject(response, rejected)
                response.record_errors = [
                    BatchIndexAndErrorMessage(*each) for each in rejected.record_errors
                ]
            except KraftError as rejected:
                _reject(response, rejected)
            else:
                self._sent.append(
                    _SentBatch(PartitionId(topic.id, each.index), batch.data, response)
                )
            await self._pace.rest()
        return responses

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

    def _complete(self, sent: _SentBatch, produced: ProducedPartition) -> None:
        response = sent.response
        if not produced.error:
            response.base_offset = produced.base_offset
            response.log_start_offset = produced.log_start_offset
            response.log_append_time_ms = produced.append_time_ms
            return
        response.error_code = produced.error
        response.error_message = produced.message or error_name(produced.error)
        if (
            produced.error == NOT_LEADER_OR_FOLLOWER
            and self._context.version >= _FIRST_WITH_LEADERS
        ):
            response.current_leader = self._hints.leader_of(sent.id)


async def _checked(
    records: Body | None, rules: ProduceRules, partition: str, version: int
) -> ProducedBatch:
    """Return the checked batch of a partition; raise as `produce_validation.check`."""
    work = partial(check, records, rules, partition, now_ms=int(now_ms()), version=version)
    if records is None or len(records) <= COMPRESSED_BYTES_INLINE:
        return work()
    if len(records) <= PLAIN_BYTES_INLINE and not records[_CODEC_AT] & _CODEC_MASK:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)


def _reject(response: PartitionProduceResponse, error: KraftError) -> None:
    response.error_code = error.kafka_code
    response.error_message = str(error)


def _unanswered(data: ProduceRequestData, code: int) -> KraftError:
    """Return the error that closes the connection of a request with acks=0."""
    count = sum(len(topic.partition_data) for topic in data.topic_data)
    return KraftError(f"{error_name(code)} for a request with acks=0 and {count} partitions")
