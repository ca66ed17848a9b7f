"""Nodes with their controllers, all on the loop of a test, on real disks and sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kraft.controller import NewTopic, requests
from kraft.controller.operations import Operation
from kraft.controller.sessions import Heartbeat
from kraft.image import VersionRange
from kraft.image.diff import diff
from kraft.image.replay import Cluster
from kraft.metadata.identifiers import random_uuid
from kraft.records.versions import LATEST_PRODUCTION
from kraft.server import process
from kraft.server.config.loading import ServerConfig
from kraft.server.controller import ControllerRunner
from kraft.server.local_quorum import LocalNode, LocalQuorum
from kraft.server.process import QuorumNode
from tests.reference.table_twin import plain
from tests.unit.controller.clusters import registration

PATIENCE_S = 20
QUICK = {
    "controller.quorum.append.linger.ms": "0",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.fetch.timeout.ms": "400",
    "controller.quorum.election.backoff.max.ms": "50",
}
FEATURES = {
    "metadata.version": VersionRange(7, LATEST_PRODUCTION),
    "kraft.version": VersionRange(0, 1),
    "eligible.leader.replicas.version": VersionRange(0, 1),
    "group.version": VersionRange(0, 1),
    "transaction.version": VersionRange(0, 2),
    "share.version": VersionRange(0, 1),
    "streams.version": VersionRange(0, 1),
}


class Quorum:
    """``count`` formatted nodes, of which those run that were started.

    What would end the process of a node is put into `ended` instead.
    """

    def __init__(
        self,
        home: Path,
        count: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        is_static: bool = False,
    ) -> None:
        given = {**QUICK, **(settings or {})}
        self.layout: dict[int, LocalNode] = {
            node.id: node
            for node in LocalQuorum(home / "quorum", count, given, is_static=is_static).nodes
        }
        self.running: dict[int, QuorumNode] = {}
        self.ended: list[tuple[str, BaseException]] = []

    async def start(self, *ids: int, has_controller: bool = True) -> None:
        """These nodes, or all that do not run."""
        for id in ids or self.layout.keys() - self.running.keys():
            config = ServerConfig.load(self.layout[id].config_path)
            node = QuorumNode(config, has_controller=has_controller)
            self.running[id] = node
            await node.start()

    async def stop(self, *ids: int) -> None:
        for id in ids or tuple(self.running):
            await self.running.pop(id).stop()

    def metadata_dir(self, id: int) -> Path:
        return self.layout[id].config_path.parent / "data" / "__cluster_metadata-0"

    def runner(self, id: int) -> ControllerRunner:
        runner = self.running[id].controller
        assert runner is not None
        return runner

    def cluster(self, id: int) -> Cluster:
        return self.runner(id).controller.cluster

    async def active(self) -> int:
        """The node whose controller is active, once there is one."""
        found = await until(
            lambda: [id for id in self.running if self.runner(id).controller.is_active]
        )
        assert len(found) == 1, found
        return int(found[0])

    async def ask(self, operation: Operation) -> Any:
        """The response of the controller that is active now."""
        return await self.runner(await self.active()).submit(operation)

    async def create(self, name: str, partitions: int = 1) -> None:
        response = await self.ask(create(name, partitions))
        assert response[name].num_partitions == partitions, response

    async def brokers(self, *ids: int) -> None:
        """Brokers that are registered and unfenced."""
        runner = self.runner(await self.active())
        for id in ids:
            epoch = await register(runner, id)
            assert not (await beat(runner, id, epoch)).is_fenced

    async def agree(self) -> None:
        """Every running node has taken up what the active one has, and all of it is committed."""
        end = self.cluster(await self.active()).next_offset
        await until(
            lambda: all(self.runner(id).controller.committed_offset >= end for id in self.running)
        )


async def register(runner: ControllerRunner, broker: int) -> int:
    """The broker's epoch."""
    request = registration(broker, features=FEATURES)
    epoch: int = await runner.submit(requests.register(request))
    return epoch


def create(name: str, partitions: int = 1) -> Operation:
    return requests.create([NewTopic(name, random_uuid(), partitions, 1)])


def beat(runner: ControllerRunner, broker: int, epoch: int, **fields: Any) -> asyncio.Future[Any]:
    """A heartbeat of a broker that has taken up everything that is committed."""
    given = {"metadata_offset": runner.controller.committed_offset} | fields
    operation = requests.heartbeat(Heartbeat(broker, epoch, **given))
    return runner.submit_heartbeat(operation, broker, epoch)


async def until(look: Callable[[], Any]) -> Any:
    """What ``look`` says, once that is something."""
    async with asyncio.timeout(PATIENCE_S):
        while not (seen := look()):
            await asyncio.sleep(0.001)
    return seen


def are_alike(one: Cluster, other: Cluster) -> bool:
    """Whether two states mean the same, in every field."""
    return not diff(one.state, other.state) and plain(one.table) == plain(other.table)


def topics(cluster: Cluster) -> dict[str, int]:
    """How many partitions each topic has."""
    table = cluster.table
    return {table.topic_name(n): len(table.topic_rows(n)) for n in table.topic_numbers()}


def run(
    story: Callable[[], Awaitable[None]], quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs a story on a loop of its own; nothing may break off unheard, and every node stops."""
    broken: list[object] = []

    def end(what: str, error: BaseException) -> None:
        quorum.ended.append((what, error))

    monkeypatch.setattr(process, "end_process", end)

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        try:
            await story()
        finally:
            await quorum.stop()

    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        runner.run(whole())
    if not quorum.ended:
        assert not broken
