"""Requests of producers and consumers to a broker of one process, in any version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kraft.image.security import AccessControl, AclOperation, ResourceType
from kraft.protocol.fetch import (
    FETCH,
    FetchedPartitionData,
    FetchPartitionData,
    FetchReplicaState,
    FetchRequestData,
    FetchResponseData,
    FetchTopicData,
)
from kraft.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequestData,
    ListOffsetsResponseData,
    ListOffsetsTopic,
)
from kraft.protocol.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequestData,
    ProduceResponseData,
    TopicProduceData,
)
from kraft.records import ZERO_UUID, Uuid
from kraft.security.authorizer import Authorizer, AuthorizerSettings
from kraft.security.principals import KafkaPrincipal
from kraft.server.driver import now_ms
from tests.harness.data_brokers import DataBroker, DataCluster, running
from tests.harness.produced_batches import RawBatch, RawRecord

ALICE = KafkaPrincipal("User", "alice")
_ALLOW, _LITERAL = 3, 3

Scenario = Callable[[DataCluster], Awaitable[None]]


def run(path: Path, scenario: Scenario, *ids: int, **fields: Any) -> None:
    """Run a scenario on started brokers, by default on one."""

    async def main() -> None:
        with running(DataCluster(path, *(ids or (1,)), **fields)) as cluster:
            await cluster.start()
            await scenario(cluster)

    asyncio.run(asyncio.wait_for(main(), 120))


def allowing(*rules: tuple[AclOperation, ResourceType, str]) -> Authorizer:
    """Return an authorizer that allows alice these operations on resources, and nothing else."""
    authorizer = Authorizer(AuthorizerSettings(frozenset()))
    authorizer.load(
        {
            Uuid(bytes([number] * 16)): AccessControl(
                kind, name, _LITERAL, "User:alice", "*", operation, _ALLOW
            )
            for number, (operation, kind, name) in enumerate(rules)
        }
    )
    authorizer.is_ready = True
    return authorizer


def batch(
    *values: bytes, codec: int = 0, time_ms: int | None = None, key: bytes | None = None, **raw: Any
) -> bytes:
    """Return a producer's batch of records with these values."""
    records = [RawRecord(value=value, key=key) for value in values or (b"value",)]
    base_ms = int(now_ms()) if time_ms is None else time_ms
    return RawBatch(records, codec=codec, base_timestamp=base_ms, **raw).encoded()


async def produce(
    broker: DataBroker,
    name: str,
    records: bytes | None = None,
    *,
    topic_id: Uuid = ZERO_UUID,
    partition: int = 0,
    acks: int = -1,
    version: int = PRODUCE.highest,
    **sender: Any,
) -> PartitionProduceResponse:
    """Produce to one partition, by name and id: the version decides which one is sent."""
    data = TopicProduceData(
        name, topic_id, [PartitionProduceData(partition, batch() if records is None else records)]
    )
    request = ProduceRequestData(None, acks, 5_000, [data])
    response = await broker.ask(PRODUCE, request, ProduceResponseData, version, **sender)
    (topic,) = response.responses
    (produced,) = topic.partition_responses
    return produced


def fetch_request(
    name: str,
    offset: int = 0,
    *,
    topic_id: Uuid = ZERO_UUID,
    partition: int = 0,
    version: int = FETCH.highest,
    replica: int = -1,
    replica_epoch: int = -1,
    epoch: int = -1,
    partition_max_bytes: int = 1 << 20,
    **fields: Any,
) -> FetchRequestData:
    """Return a Fetch of one partition."""
    asked = FetchPartitionData(partition, epoch, offset, partition_max_bytes=partition_max_bytes)
    request = FetchRequestData(
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=fields.pop("min_bytes", 1),
        topics=[FetchTopicData(name, topic_id, [asked])],
        **fields,
    )
    if version >= 15:
        request.replica_state = FetchReplicaState(replica, replica_epoch)
    else:
        request.replica_id = replica
    return request


async def fetch(
    broker: DataBroker,
    name: str,
    offset: int = 0,
    *,
    version: int = FETCH.highest,
    sender: dict[str, Any] | None = None,
    **fields: Any,
) -> FetchedPartitionData:
    request = fetch_request(name, offset, version=version, **fields)
    response = await broker.ask(FETCH, request, FetchResponseData, version, **(sender or {}))
    assert response.error_code == 0
    (topic,) = response.responses
    (fetched,) = topic.partitions
    return fetched


async def list_offset(
    broker: DataBroker,
    name: str,
    timestamp: int,
    *,
    partition: int = 0,
    version: int = LIST_OFFSETS.highest,
    epoch: int = -1,
    replica: int = -1,
    **sender: Any,
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition, epoch, timestamp)
    request = ListOffsetsRequestData(replica, topics=[ListOffsetsTopic(name, [asked])])
    response = await broker.ask(LIST_OFFSETS, request, ListOffsetsResponseData, version, **sender)
    (topic,) = response.topics
    assert topic.name == name
    (listed,) = topic.partitions
    return listed
