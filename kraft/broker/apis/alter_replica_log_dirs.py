"""AlterReplicaLogDirs: move replicas of this broker to other log directories.

The response comes when the copies were created; DescribeLogDirs shows how far they are. Source:
``KafkaApis.handleAlterReplicaLogDirsRequest``, ``ReplicaManager.alterReplicaLogDirs`` (4.3.1),
KIP-113.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.broker.apis.data_services import DataServices, ImageTopics
from kraft.broker.log.checkpoint_files import PartitionKey
from kraft.broker.replica_mover import WantedMove
from kraft.broker.replication.messages import PartitionId
from kraft.errors import ClusterAuthorizationError, KraftError
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequestData,
    AlterReplicaLogDirsResponseData,
    AlterReplicaLogDirTopicResult,
)
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi


def alter_replica_log_dirs_api(broker: DataServices) -> AnyApi:
    """Return the API AlterReplicaLogDirs."""

    async def answer(
        data: AlterReplicaLogDirsRequestData, context: CallContext
    ) -> AlterReplicaLogDirsResponseData:
        if not context.allows(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError(f"{context.principal} may not alter the cluster")
        topics = ImageTopics(broker.image().table)

        def id_of(name: str, partition: int) -> PartitionId | None:
            topic = topics.by_name(name)
            if topic is None or not topics.has_partition(topic, partition):
                return None
            return PartitionId(topic.id, partition)

        wanted = [
            WantedMove(topic.name, partition, id_of(topic.name, partition), directory.path)
            for directory in data.dirs
            for topic in directory.topics
            for partition in topic.partitions
        ]
        errors = await broker.replicas.mover.alter(wanted)
        return AlterReplicaLogDirsResponseData(results=_results(errors.items()))

    def failed(
        data: AlterReplicaLogDirsRequestData, error: KraftError
    ) -> AlterReplicaLogDirsResponseData:
        return AlterReplicaLogDirsResponseData(
            results=_results(
                ((topic.name, partition), error.kafka_code)
                for directory in data.dirs
                for topic in directory.topics
                for partition in topic.partitions
            )
        )

    return ListenerApi(
        ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsRequestData.decode, answer, failed
    )


def _results(errors: Iterable[tuple[PartitionKey, int]]) -> list[AlterReplicaLogDirTopicResult]:
    """Return the errors by topic."""
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (topic, partition), error in errors:
        result = topics.setdefault(topic, AlterReplicaLogDirTopicResult(topic, []))
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition, error))
    return list(topics.values())
