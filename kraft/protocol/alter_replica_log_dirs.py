"""AlterReplicaLogDirs: move replicas of a broker between its log directories (KIP-113).

Source: ``AlterReplicaLogDirsRequest``, ``AlterReplicaLogDirsResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

ALTER_REPLICA_LOG_DIRS = Api(34, "AlterReplicaLogDirs", 1, 2, 2)


class AlterReplicaLogDirTopic(Struct):
    name: str = field("string")
    partitions: list[int] = field("[]int32")


class AlterReplicaLogDir(Struct):
    path: str = field("string")
    topics: list[AlterReplicaLogDirTopic] = field("[]struct", of=AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequestData(Message, versions=(1, 2), flexible_since=2):
    dirs: list[AlterReplicaLogDir] = field("[]struct", of=AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field("int32")
    error_code: int = field("int16")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field("string")
    partitions: list[AlterReplicaLogDirPartitionResult] = field(
        "[]struct", of=AlterReplicaLogDirPartitionResult
    )


class AlterReplicaLogDirsResponseData(Message, versions=(1, 2), flexible_since=2):
    throttle_time_ms: int = field("int32")
    results: list[AlterReplicaLogDirTopicResult] = field(
        "[]struct", of=AlterReplicaLogDirTopicResult
    )
