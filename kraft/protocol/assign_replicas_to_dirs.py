"""AssignReplicasToDirs: a broker reports the directories of its replicas (KIP-858)."""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

ASSIGN_REPLICAS_TO_DIRS = Api(73, "AssignReplicasToDirs", 0, 0, 0)


class DirectoryPartition(Struct):
    partition_index: int = field("int32")


class DirectoryTopic(Struct):
    topic_id: Uuid = field("uuid")
    partitions: list[DirectoryPartition] = field("[]struct", of=DirectoryPartition)


class DirectoryReplicas(Struct):
    id: Uuid = field("uuid")
    topics: list[DirectoryTopic] = field("[]struct", of=DirectoryTopic)


class AssignReplicasToDirsRequestData(Message, versions=(0, 0)):
    broker_id: int = field("int32")
    broker_epoch: int = field("int64", -1)
    directories: list[DirectoryReplicas] = field("[]struct", of=DirectoryReplicas)


class DirectoryPartitionResult(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")


class DirectoryTopicResult(Struct):
    topic_id: Uuid = field("uuid")
    partitions: list[DirectoryPartitionResult] = field("[]struct", of=DirectoryPartitionResult)


class DirectoryResult(Struct):
    id: Uuid = field("uuid")
    topics: list[DirectoryTopicResult] = field("[]struct", of=DirectoryTopicResult)


class AssignReplicasToDirsResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    directories: list[DirectoryResult] = field("[]struct", of=DirectoryResult)
