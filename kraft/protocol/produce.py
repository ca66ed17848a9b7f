"""Produce: a client appends a batch to each of several partitions.

The records of a request are a view of its frame: ``kraft.broker.produce_validation`` checks them
and, if the frame is writable, sets offsets in place. A request with ``acks`` 0 has no response.
Source: ``ProduceRequest``, ``ProduceResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.common import BrokerEndpoint, LeaderIdAndEpoch
from kraft.protocol.headers import Api, Body

PRODUCE = Api(0, "Produce", 3, 13, 9)


class PartitionProduceData(Struct):
    index: int = field("int32")
    records: Body | None = field("records", None, nullable=True)


class TopicProduceData(Struct):
    name: str = field("string", until=12, ignorable=True)
    topic_id: Uuid = field("uuid", since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = field("[]struct", of=PartitionProduceData)


class ProduceRequestData(Message, versions=(3, 13), flexible_since=9):
    transactional_id: str | None = field("string", None, nullable=True)
    # 0: no response; 1: the leader has written; -1: all replicas in sync have.
    acks: int = field("int16")
    timeout_ms: int = field("int32")
    topic_data: list[TopicProduceData] = field("[]struct", of=TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field("int32")
    batch_index_error_message: str | None = field("string", None, nullable=True)


class PartitionProduceResponse(Struct):
    index: int = field("int32")
    error_code: int = field("int16")
    # -1 with an error.
    base_offset: int = field("int64")
    # -1 under CreateTime.
    log_append_time_ms: int = field("int64", -1)
    log_start_offset: int = field("int64", -1, since=5, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        "[]struct", since=8, ignorable=True, of=BatchIndexAndErrorMessage
    )
    error_message: str | None = field("string", None, since=8, nullable=True, ignorable=True)
    # With NOT_LEADER_OR_FOLLOWER; its address is in ``node_endpoints`` (KIP-951).
    current_leader: LeaderIdAndEpoch = field("struct", since=10, tag=0, of=LeaderIdAndEpoch)


class TopicProduceResponse(Struct):
    name: str = field("string", until=12, ignorable=True)
    topic_id: Uuid = field("uuid", since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(
        "[]struct", of=PartitionProduceResponse
    )


class ProduceResponseData(Message, versions=(3, 13), flexible_since=9):
    responses: list[TopicProduceResponse] = field("[]struct", of=TopicProduceResponse)
    throttle_time_ms: int = field("int32")
    node_endpoints: list[BrokerEndpoint] = field("[]struct", since=10, tag=0, of=BrokerEndpoint)
