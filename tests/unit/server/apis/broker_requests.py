"""Requests that several tests of the APIs send: brokers register, clients create topics."""

from __future__ import annotations

from kraft.metadata.identifiers import random_uuid
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
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import FEATURES, Quorum
from tests.harness.listener_client import ask


async def register(
    node: QuorumNode, broker: int = 1, version: int = 4, cluster_id: str | None = None
) -> BrokerRegistrationResponseData:
    request = BrokerRegistrationRequestData(
        broker,
        node.identity.cluster_id if cluster_id is None else cluster_id,
        random_uuid(),
        [AdvertisedListener("PLAINTEXT", "127.0.0.1", 9092, 0)],
        [SupportedFeatureRange(name, levels.min, levels.max) for name, levels in FEATURES.items()],
        log_dirs=[random_uuid()] if version >= 2 else [],
    )
    return await ask(node, BROKER_REGISTRATION, version, request, BrokerRegistrationResponseData)


async def beat(
    node: QuorumNode, broker: int, epoch: int, version: int = 2
) -> BrokerHeartbeatResponseData:
    assert node.controller is not None
    offset = node.controller.controller.committed_offset
    request = BrokerHeartbeatRequestData(broker, epoch, offset)
    return await ask(node, BROKER_HEARTBEAT, version, request, BrokerHeartbeatResponseData)


async def brokers(node: QuorumNode, *ids: int) -> dict[int, int]:
    """Register and unfence brokers; return their epochs."""
    epochs = {}
    for id in ids:
        registered = await register(node, id)
        assert registered.error_code == 0
        epochs[id] = registered.broker_epoch
        reply = await beat(node, id, registered.broker_epoch)
        assert (reply.error_code, reply.is_fenced, reply.is_caught_up) == (0, False, True)
    return epochs


async def create(
    node: QuorumNode, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> CreateTopicsResponseData:
    request = CreateTopicsRequestData(list(topics), validate_only=validate_only)
    return await ask(node, CREATE_TOPICS, version, request, CreateTopicsResponseData)


async def leader(quorum: Quorum) -> QuorumNode:
    return quorum.running[await quorum.active()]
