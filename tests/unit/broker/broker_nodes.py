"""Nodes of a cluster with brokers in one process, and a client of one broker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from kraft._core.bytes.batch_records import iterate
from kraft._core.bytes.file_slice import FileSlice
from kraft.broker import node as broker_node
from kraft.broker.lifecycle import BrokerState
from kraft.broker.node import BrokerNode, RunningBroker
from kraft.errors import NONE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION
from kraft.network.authentication import ListenerSecurity
from kraft.network.channel import Channel
from kraft.network.throttled_log import ThrottledLog
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.fetch import (
    FETCH,
    FetchPartitionData,
    FetchRequestData,
    FetchResponseData,
    FetchTopicData,
)
from kraft.protocol.metadata import (
    METADATA,
    MetadataRequestData,
    MetadataRequestTopic,
    MetadataResponseData,
)
from kraft.protocol.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequestData,
    ProduceResponseData,
    TopicProduceData,
)
from kraft.raft.voters import Endpoint
from kraft.security.sasl.client import ClientCredentials
from kraft.server import process
from kraft.server.config.loading import ServerConfig
from kraft.server.controller import ControllerRunner
from kraft.server.local_quorum import LocalNode, LocalQuorum
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import QUICK, until
from tests.harness.data_requests import batch

#: The last versions with names of topics in place of ids.
PRODUCE_BY_NAME = PRODUCE._replace(highest=12)
FETCH_BY_NAME = FETCH._replace(highest=12, lowest_sent=0)
#: What a broker answers that has not opened the log, or not heard of the topic.
_NOT_YET = (NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION)
SETTINGS = QUICK | {
    "broker.heartbeat.interval.ms": "200",
    "initial.broker.registration.timeout.ms": "20000",
    "offsets.topic.num.partitions": "3",
}


class LocalNodes:
    """The nodes of a cluster in this process: `QuorumNode` and `BrokerNode`."""

    def __init__(
        self,
        home: Path,
        controllers: int,
        brokers: int,
        *,
        is_combined: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.layout = LocalQuorum(
            home / "cluster",
            controllers,
            {**SETTINGS, **(settings or {})},
            brokers=brokers,
            is_combined=is_combined,
        )
        self.running: dict[int, QuorumNode | BrokerNode] = {}
        self.ended: list[tuple[str, str]] = []

    def node(self, id: int) -> LocalNode:
        return next(one for one in self.layout.all if one.id == id)

    def broker(self, id: int) -> BrokerNode:
        found = self.running[id]
        assert isinstance(found, BrokerNode)
        return found

    async def start(self, *ids: int, **overrides: str) -> None:
        """Start these nodes, by default all; return when the brokers serve."""
        started = ids or tuple(one.id for one in self.layout.all)
        for id in started:
            config = ServerConfig.load(
                self.node(id).config_path,
                {name.replace("_", "."): value for name, value in overrides.items()},
            )
            made = BrokerNode(config) if config.is_broker else QuorumNode(config)
            self.running[id] = made
            await made.start()
        for id in started:
            if isinstance(self.running[id], BrokerNode):
                await until(lambda id=id: self.broker(id).state is BrokerState.RUNNING)  # type: ignore[misc]

    async def stop(self, *ids: int) -> None:
        """Stop these nodes, by default all: brokers first, which need the controllers for it."""
        for id in ids or sorted(self.running, reverse=True):
            await self.running.pop(id).stop()


class Client:
    """A client of one broker."""

    def __init__(
        self, node: LocalNode, user: str | None = None, security: ListenerSecurity | None = None
    ) -> None:
        assert node.client_port is not None
        security = security or ListenerSecurity()
        if user is not None:
            security.credentials = ClientCredentials("PLAIN", user, user)
        self._channel = Channel(
            Endpoint("PLAINTEXT", "127.0.0.1", node.client_port),
            "test",
            security,
            ThrottledLog(logging.getLogger(__name__), time.monotonic),
        )

    def close(self) -> None:
        self._channel.close()

    async def topic(self, name: str, *, create: bool = False) -> MetadataResponseData:
        request = MetadataRequestData(
            [MetadataRequestTopic(name=name)], allow_auto_topic_creation=create
        )
        return await self._channel.call(METADATA, request, MetadataResponseData, timeout_ms=20_000)

    async def leader(self, name: str) -> int:
        """Return the leader of partition 0 of a topic; create the topic if there is none."""

        async def found() -> int:
            (topic,) = (await self.topic(name, create=True)).topics
            return -1 if topic.error_code else topic.partitions[0].leader_id

        while (leader := await found()) < 0:
            await asyncio.sleep(0.02)
        return leader

    async def produce(
        self, topic: str, *values: bytes, acks: int = -1, key: bytes | None = None
    ) -> tuple[int, int]:
        """Return the error and the base offset of a batch for partition 0.

        A broker that has not opened the log yet, or has not heard of the topic, is asked again, as
        by any client.
        """
        data = [PartitionProduceData(0, batch(*values, key=key))]
        topics = [TopicProduceData(topic, partition_data=data)]
        request = ProduceRequestData(None, acks, 20_000, topics)
        while True:
            said = await self._channel.call(
                PRODUCE_BY_NAME, request, ProduceResponseData, timeout_ms=20_000
            )
            answer = said.responses[0].partition_responses[0]
            if answer.error_code not in _NOT_YET:
                return answer.error_code, answer.base_offset
            await asyncio.sleep(0.01)

    async def fetch(self, topic: str, offset: int = 0) -> list[bytes]:
        """Return the values of partition 0 from an offset on."""
        partition = FetchPartitionData(0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequestData(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopicData(topic, partitions=[partition])],
        )
        while True:
            said = await self._channel.call(
                FETCH_BY_NAME, request, FetchResponseData, timeout_ms=20_000
            )
            fetched = said.responses[0].partitions[0]
            if fetched.error_code not in _NOT_YET:
                break
            await asyncio.sleep(0.01)
        assert fetched.error_code == NONE
        assert not isinstance(fetched.records, FileSlice)
        return [bytes(one.value or b"") for each in iterate(fetched.records or b"") for one in each]

    async def create(self, name: str, **configs: str) -> None:
        given = [CreatableConfig(key.replace("_", "."), value) for key, value in configs.items()]
        request = CreateTopicsRequestData([CreatableTopic(name, 1, 1, configs=given)], 20_000)
        said = await self._channel.call(
            CREATE_TOPICS, request, CreateTopicsResponseData, timeout_ms=20_000
        )
        assert said.topics[0].error_code == NONE, said.topics[0].error_message

    async def versions(self) -> dict[int, tuple[int, int]]:
        await self.topic("any")
        assert self._channel.versions is not None
        return dict(self._channel.versions.ranges)


def play(
    nodes: LocalNodes,
    scenario: Callable[[], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run a scenario on one loop, and stop every node; an ended process is noted in ``ended``."""

    def end(what: str, error: BaseException) -> None:
        nodes.ended.append((what, str(error)))

    monkeypatch.setattr(process, "end_process", end)
    monkeypatch.setattr(broker_node, "end_process", end)

    async def whole() -> None:
        try:
            async with asyncio.timeout(120):
                await scenario()
        finally:
            await nodes.stop()

    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        runner.run(whole())


def running(nodes: LocalNodes, id: int) -> RunningBroker:
    broker = nodes.broker(id).broker
    assert broker is not None
    return broker


def controller_of(nodes: LocalNodes, id: int) -> ControllerRunner:
    controller = nodes.broker(id).quorum.controller
    assert controller is not None
    return controller
