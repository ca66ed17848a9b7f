"""DescribeLogDirs: the log directories of this broker and the sizes of its partitions.

The size of a partition whose log was not used yet needs its files to be opened. Source:
``KafkaApis.handleDescribeLogDirsRequest``, ``ReplicaManager.describeLogDirs`` (4.3.1), KIP-113,
KIP-827, KIP-1066.
"""

from __future__ import annotations

import os

from kraft.broker.apis.data_services import DataServices, Pace
from kraft.broker.log.checkpoint_files import PartitionKey
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.partition_log import PartitionLog
from kraft.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    KAFKA_STORAGE_ERROR,
    NONE,
    KraftError,
    StorageError,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsPartition,
    DescribeLogDirsRequestData,
    DescribeLogDirsResponseData,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi

#: The version from which a response has an error of its own.
_FIRST_WITH_ERROR = 3
_UNKNOWN = -1


def describe_log_dirs_api(broker: DataServices) -> AnyApi:
    """Return the API DescribeLogDirs."""

    async def answer(
        data: DescribeLogDirsRequestData, context: CallContext
    ) -> DescribeLogDirsResponseData:
        if not context.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return DescribeLogDirsResponseData(
                error_code=CLUSTER_AUTHORIZATION_FAILED
                if context.version >= _FIRST_WITH_ERROR
                else NONE
            )
        wanted: set[PartitionKey] | None = None
        if data.topics is not None:
            wanted = {(topic.topic, each) for topic in data.topics for each in topic.partitions}
        broker.replicas.note_high_watermarks()
        pace = Pace()
        return DescribeLogDirsResponseData(
            results=[
                await _describe(directory, broker.logs, wanted, pace)
                for directory in broker.logs.directories
            ]
        )

    def failed(data: DescribeLogDirsRequestData, error: KraftError) -> DescribeLogDirsResponseData:
        return DescribeLogDirsResponseData(error_code=error.kafka_code)

    return ListenerApi(DESCRIBE_LOG_DIRS, DescribeLogDirsRequestData.decode, answer, failed)


async def _describe(
    directory: LogDirectory,
    manager: LogManager,
    wanted: set[PartitionKey] | None,
    pace: Pace,
) -> DescribeLogDirsResult:
    """Describe one directory; ``wanted`` are the partitions that are asked for, None for all."""
    topics: dict[str, DescribeLogDirsTopic] = {}
    try:
        if directory.failure is not None:
            raise directory.offline_error()
        for logs, is_future in ((directory.partitions, False), (directory.future, True)):
            for (name, partition), log in list(logs.items()):
                if wanted is not None and (name, partition) not in wanted:
                    continue
                topic = topics.setdefault(name, DescribeLogDirsTopic(name, []))
                lag = _lag(log, manager.get(name, partition), is_future=is_future)
                topic.partitions.append(
                    DescribeLogDirsPartition(partition, log.size, lag, is_future)
                )
                await pace.rest()
        total, usable = _volume(directory.path)
    except StorageError:
        return DescribeLogDirsResult(KAFKA_STORAGE_ERROR, directory.path)
    return DescribeLogDirsResult(
        NONE, directory.path, list(topics.values()), total, usable, directory.is_cordoned
    )


def _lag(log: PartitionLog, current: PartitionLog | None, *, is_future: bool) -> int:
    """Return how far a log is behind: the high watermark, or a future log its current one."""
    if is_future:
        return _UNKNOWN if current is None else current.end_offset - log.end_offset
    return max(log.high_watermark - log.end_offset, 0)


def _volume(path: str) -> tuple[int, int]:
    """Return the size of a directory's volume and what is free for this process, in bytes."""
    try:
        volume = os.statvfs(path)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
