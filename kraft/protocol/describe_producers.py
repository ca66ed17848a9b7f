"""DescribeProducers: the idempotent and transactional producers of partitions (KIP-664).

Source: ``DescribeProducersRequest``, ``DescribeProducersResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", 0, 0, 0)


class DescribeProducersTopic(Struct):
    name: str = field("string")
    partition_indexes: list[int] = field("[]int32")


class DescribeProducersRequestData(Message, versions=(0, 0)):
    topics: list[DescribeProducersTopic] = field("[]struct", of=DescribeProducersTopic)


class ActiveProducer(Struct):
    producer_id: int = field("int64")
    producer_epoch: int = field("int32")
    last_sequence: int = field("int32", -1)
    last_timestamp: int = field("int64", -1)
    coordinator_epoch: int = field("int32")
    current_txn_start_offset: int = field("int64", -1)


class DescribedProducersPartition(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    active_producers: list[ActiveProducer] = field("[]struct", of=ActiveProducer)


class DescribedProducersTopic(Struct):
    name: str = field("string")
    partitions: list[DescribedProducersPartition] = field(
        "[]struct", of=DescribedProducersPartition
    )


class DescribeProducersResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    topics: list[DescribedProducersTopic] = field("[]struct", of=DescribedProducersTopic)
