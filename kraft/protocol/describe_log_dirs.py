"""DescribeLogDirs: the log directories of a broker, and the sizes of its partitions (KIP-113, 827).

Source: ``DescribeLogDirsRequest``, ``DescribeLogDirsResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", 1, 5, 2)


class DescribableLogDirTopic(Struct):
    topic: str = field("string")
    partitions: list[int] = field("[]int32")


class DescribeLogDirsRequestData(Message, versions=(1, 5), flexible_since=2):
    # Null asks for all topics.
    topics: list[DescribableLogDirTopic] | None = field(
        "[]struct", None, nullable=True, of=DescribableLogDirTopic
    )


class DescribeLogDirsPartition(Struct):
    partition_index: int = field("int32")
    partition_size: int = field("int64")
    # How far the log ends before the high watermark; a future log: before the current log's end.
    offset_lag: int = field("int64")
    # Whether AlterReplicaLogDirs is making this log, to replace the current one.
    is_future_key: bool = field("bool")


class DescribeLogDirsTopic(Struct):
    name: str = field("string")
    partitions: list[DescribeLogDirsPartition] = field("[]struct", of=DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = field("int16")
    log_dir: str = field("string")
    topics: list[DescribeLogDirsTopic] = field("[]struct", of=DescribeLogDirsTopic)
    total_bytes: int = field("int64", -1, since=4, ignorable=True)
    usable_bytes: int = field("int64", -1, since=4, ignorable=True)
    is_cordoned: bool = field("bool", since=5, ignorable=True)


class DescribeLogDirsResponseData(Message, versions=(1, 5), flexible_since=2):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16", since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = field("[]struct", of=DescribeLogDirsResult)
