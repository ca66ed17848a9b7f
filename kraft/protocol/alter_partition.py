"""AlterPartition: a leader changes the ISR of its partitions (KIP-497, 704, 841, 903).

Tests and clients use these classes. The controller decides on the encoded request:
`kraft._core.decide.alter_partition`.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

ALTER_PARTITION = Api(56, "AlterPartition", 2, 3, 0)


class IsrMember(Struct):
    broker_id: int = field("int32", since=3)
    broker_epoch: int = field("int64", -1, since=3)


class IsrPartition(Struct):
    partition_index: int = field("int32")
    leader_epoch: int = field("int32")
    new_isr: list[int] = field("[]int32", until=2)
    new_isr_with_epochs: list[IsrMember] = field("[]struct", since=3, of=IsrMember)
    # 1 while the leader recovers from an unclean election, else 0.
    leader_recovery_state: int = field("int8")
    partition_epoch: int = field("int32")


class IsrTopic(Struct):
    topic_id: Uuid = field("uuid")
    partitions: list[IsrPartition] = field("[]struct", of=IsrPartition)


class AlterPartitionRequestData(Message, versions=(2, 3)):
    broker_id: int = field("int32")
    broker_epoch: int = field("int64", -1)
    topics: list[IsrTopic] = field("[]struct", of=IsrTopic)


class IsrPartitionResult(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")
    isr: list[int] = field("[]int32")
    leader_recovery_state: int = field("int8")
    partition_epoch: int = field("int32")


class IsrTopicResult(Struct):
    topic_id: Uuid = field("uuid")
    partitions: list[IsrPartitionResult] = field("[]struct", of=IsrPartitionResult)


class AlterPartitionResponseData(Message, versions=(2, 3)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    topics: list[IsrTopicResult] = field("[]struct", of=IsrTopicResult)
