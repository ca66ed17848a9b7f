"""APIs of brokers and controllers: registration, heartbeats, ISRs, directories, producer ids.

Kafka gives only heartbeats a deadline: half of the interval in which brokers send them. Source:
``ControllerApis`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraft.controller.brokers.broker_lifecycle import RegistrationRequest
from kraft.controller.brokers.controller_registration import ControllerRegistrationRequest
from kraft.controller.brokers.directories import DirectoryAssignment
from kraft.controller.brokers.heartbeats import BrokerHeartbeatReply
from kraft.controller.brokers.producer_ids import ProducerIdBlock
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.features import LocalFeatures
from kraft.controller.runtime import requests
from kraft.controller.topics.isr_changes import EncodedAlterPartition
from kraft.image import NodeEndpoint, VersionRange
from kraft.protocol.allocate_producer_ids import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequestData,
    AllocateProducerIdsResponseData,
)
from kraft.protocol.alter_partition import ALTER_PARTITION, AlterPartitionResponseData
from kraft.protocol.assign_replicas_to_dirs import (
    ASSIGN_REPLICAS_TO_DIRS,
    AssignReplicasToDirsRequestData,
    AssignReplicasToDirsResponseData,
    DirectoryPartitionResult,
    DirectoryResult,
    DirectoryTopicResult,
)
from kraft.protocol.broker_heartbeat import (
    BROKER_HEARTBEAT,
    BrokerHeartbeatRequestData,
    BrokerHeartbeatResponseData,
)
from kraft.protocol.broker_registration import (
    BROKER_REGISTRATION,
    BrokerRegistrationRequestData,
    BrokerRegistrationResponseData,
)
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.controller_registration import (
    CONTROLLER_REGISTRATION,
    ControllerRegistrationRequestData,
    ControllerRegistrationResponseData,
)
from kraft.protocol.unregister_broker import (
    UNREGISTER_BROKER,
    UnregisterBrokerRequestData,
    UnregisterBrokerResponseData,
)
from kraft.protocol.unregister_controller import (
    UNREGISTER_CONTROLLER,
    UnregisterControllerRequestData,
    UnregisterControllerResponseData,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.apis.error_responses import (
    reject_unregister_broker,
    reject_unregister_controller,
)
from kraft.server.controller import ControllerRunner

#: Half of broker.heartbeat.interval.ms, whose default is 2000.
HEARTBEAT_TIMEOUT_MS = 1000


def broker_apis(
    runner: ControllerRunner, cluster_id: str, local: LocalFeatures
) -> Iterator[AnyApi]:
    """Yield the APIs of brokers and controllers; ``local`` names this controller and its quorum."""
    yield _register_broker(runner, cluster_id)
    yield _broker_heartbeat(runner)
    yield _unregister_broker(runner)
    yield _alter_partition(runner)
    yield _allocate_producer_ids(runner)
    yield _assign_replicas_to_dirs(runner)
    yield _register_controller(runner)
    yield _unregister_controller(runner, local)


def _register_broker(runner: ControllerRunner, cluster_id: str) -> AnyApi:
    async def answer(
        data: BrokerRegistrationRequestData, context: CallContext
    ) -> BrokerRegistrationResponseData:
        request = RegistrationRequest(
            data.broker_id,
            data.incarnation_id,
            _endpoints(data.listeners),
            _features(data.features),
            data.rack,
            data.log_dirs,
            data.previous_broker_epoch,
            data.cluster_id,
            data.is_migrating_zk_broker,
        )
        epoch: int = await runner.submit(requests.register_broker(request, cluster_id))
        return BrokerRegistrationResponseData(broker_epoch=epoch)

    return ListenerApi(
        BROKER_REGISTRATION,
        BrokerRegistrationRequestData.decode,
        answer,
        lambda _, error: BrokerRegistrationResponseData(error_code=error.kafka_code),
    )


def _broker_heartbeat(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: BrokerHeartbeatRequestData, context: CallContext
    ) -> BrokerHeartbeatResponseData:
        beat = Heartbeat(
            data.broker_id,
            data.broker_epoch,
            data.current_metadata_offset,
            data.want_fence,
            data.want_shut_down,
            data.offline_log_dirs,
            data.cordoned_log_dirs,
        )
        operation, id, epoch = requests.broker_heartbeat(beat), data.broker_id, data.broker_epoch
        reply: BrokerHeartbeatReply | None = runner.answer_heartbeat(operation, id, epoch)
        if reply is None:
            reply = await runner.submit_heartbeat(
                operation, id, epoch, timeout_ms=HEARTBEAT_TIMEOUT_MS
            )
            assert reply is not None
        return BrokerHeartbeatResponseData(
            is_caught_up=reply.is_caught_up,
            is_fenced=reply.is_fenced,
            should_shut_down=reply.should_shut_down,
        )

    return ListenerApi(
        BROKER_HEARTBEAT,
        BrokerHeartbeatRequestData.decode,
        answer,
        lambda _, error: BrokerHeartbeatResponseData(error_code=error.kafka_code),
    )


def _unregister_broker(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: UnregisterBrokerRequestData, context: CallContext
    ) -> UnregisterBrokerResponseData:
        await runner.submit(requests.unregister_broker(data.broker_id))
        return UnregisterBrokerResponseData()

    return ListenerApi(
        UNREGISTER_BROKER,
        UnregisterBrokerRequestData.decode,
        answer,
        reject_unregister_broker,
    )


def _alter_partition(runner: ControllerRunner) -> AnyApi:
    async def answer(request: EncodedAlterPartition, context: CallContext) -> bytes:
        if not request.partition_count:
            # As in Kafka, whoever asks: there is nothing to decide, and no broker epoch is checked.
            return request.encode_response()
        body: bytes = await runner.submit(requests.alter_partition_encoded(request))
        return body

    return ListenerApi(
        ALTER_PARTITION,
        EncodedAlterPartition,
        answer,
        lambda _, error: AlterPartitionResponseData(error_code=error.kafka_code),
    )


def _allocate_producer_ids(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: AllocateProducerIdsRequestData, context: CallContext
    ) -> AllocateProducerIdsResponseData:
        operation = requests.allocate_producer_ids(data.broker_id, data.broker_epoch)
        block: ProducerIdBlock = await runner.submit(operation)
        return AllocateProducerIdsResponseData(
            producer_id_start=block.first, producer_id_len=block.size
        )

    return ListenerApi(
        ALLOCATE_PRODUCER_IDS,
        AllocateProducerIdsRequestData.decode,
        answer,
        lambda _, error: AllocateProducerIdsResponseData(error_code=error.kafka_code),
    )


def _assign_replicas_to_dirs(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: AssignReplicasToDirsRequestData, context: CallContext
    ) -> AssignReplicasToDirsResponseData:
        assignments = [
            DirectoryAssignment(
                directory.id, topic.topic_id, [at.partition_index for at in topic.partitions]
            )
            for directory in data.directories
            for topic in directory.topics
        ]
        operation = requests.assign_replicas_to_dirs(data.broker_id, data.broker_epoch, assignments)
        results = iter(await runner.submit(operation))
        return AssignReplicasToDirsResponseData(
            directories=[
                DirectoryResult(
                    directory.id,
                    [
                        DirectoryTopicResult(
                            topic.topic_id,
                            [
                                DirectoryPartitionResult(at.partition_index, int(code))
                                for at, code in zip(topic.partitions, next(results), strict=True)
                            ],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in data.directories
            ]
        )

    return ListenerApi(
        ASSIGN_REPLICAS_TO_DIRS,
        AssignReplicasToDirsRequestData.decode,
        answer,
        lambda _, error: AssignReplicasToDirsResponseData(error_code=error.kafka_code),
    )


def _register_controller(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: ControllerRegistrationRequestData, context: CallContext
    ) -> ControllerRegistrationResponseData:
        request = ControllerRegistrationRequest(
            data.controller_id,
            data.incarnation_id,
            _endpoints(data.listeners),
            _features(data.features),
            data.zk_migration_ready,
        )
        await runner.submit(requests.register_controller(request))
        return ControllerRegistrationResponseData()

    return ListenerApi(
        CONTROLLER_REGISTRATION,
        ControllerRegistrationRequestData.decode,
        answer,
        lambda _, error: ControllerRegistrationResponseData(
            error_code=error.kafka_code, error_message=str(error)
        ),
    )


def _unregister_controller(runner: ControllerRunner, local: LocalFeatures) -> AnyApi:
    async def answer(
        data: UnregisterControllerRequestData, context: CallContext
    ) -> UnregisterControllerResponseData:
        await runner.submit(requests.unregister_controller(data.controller_id, local))
        return UnregisterControllerResponseData()

    return ListenerApi(
        UNREGISTER_CONTROLLER,
        UnregisterControllerRequestData.decode,
        answer,
        reject_unregister_controller,
    )


def _endpoints(listeners: Iterable[AdvertisedListener]) -> list[NodeEndpoint]:
    return [NodeEndpoint(at.name, at.host, at.port, at.security_protocol) for at in listeners]


def _features(features: Iterable[SupportedFeatureRange]) -> dict[str, VersionRange]:
    return {
        each.name: VersionRange(each.min_supported_version, each.max_supported_version)
        for each in features
    }
