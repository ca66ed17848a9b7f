"""Run nodes with controllers on a test's event loop, with real disks and sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kraft import records
from kraft._core.bytes.batch_records import iterate
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.topics.topic_creation import NewTopic
from kraft.image import VersionRange
from kraft.image.diff import diff
from kraft.image.replay import MetadataState
from kraft.metadata.identifiers import random_uuid
from kraft.raft.rpc import LogSlice, OffsetAndEpoch
from kraft.records import decode_control, decode_value
from kraft.records.versions import LATEST_PRODUCTION
from kraft.server import process
from kraft.server.config.loading import ServerConfig
from kraft.server.controller import ControllerRunner
from kraft.server.local_quorum import LocalNode, LocalQuorum
from kraft.server.process import QuorumNode
from tests.harness.decisions import registration
from tests.reference.table_twin import plain

PATIENCE_S = 60
QUICK = {
    "controller.quorum.append.linger.ms": "0",
    "controller.quorum.election.timeout.ms": "200",
    # A standstill of the machine must not cause an election: 1.5 s, and the time to recover.
    "controller.quorum.fetch.timeout.ms": "3000",
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
SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "4000"}


class Quorum:
    """``count`` formatted nodes; `start` and `stop` run some of them.

    An error that would end a node's process is added to `ended` instead.
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
        """Start these nodes, or all that are stopped."""
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

    def cluster(self, id: int) -> MetadataState:
        return self.runner(id).controller.cluster

    async def active(self) -> int:
        """Wait for the only active controller and return the id of its node.

        One that another has replaced may not know it yet.
        """

        def found() -> list[int]:
            return [id for id in self.running if self.runner(id).controller.is_active]

        await until(lambda: len(found()) == 1)
        (id,) = found()
        return id

    async def ask(self, operation: Operation) -> Any:
        """Submit an operation to the active controller and return its response."""
        return await self.runner(await self.active()).submit(operation)

    async def create(self, name: str, partitions: int = 1) -> None:
        response = await self.ask(create(name, partitions))
        assert response[name].num_partitions == partitions, response

    async def brokers(self, *ids: int) -> None:
        """Register and unfence brokers."""
        runner = self.runner(await self.active())
        for id in ids:
            epoch = await register(runner, id)
            assert not (await beat(runner, id, epoch)).is_fenced

    async def agree(self) -> None:
        """Wait until every running node has committed all records of the active controller."""
        end = self.cluster(await self.active()).next_offset
        await until(
            lambda: all(self.runner(id).controller.committed_offset >= end for id in self.running)
        )


async def register(runner: ControllerRunner, broker: int) -> int:
    """Register a broker and return its epoch."""
    request = registration(broker, features=FEATURES)
    epoch: int = await runner.submit(requests.register_broker(request))
    return epoch


def create(name: str, partitions: int = 1) -> Operation:
    return requests.create_topics([NewTopic(name, random_uuid(), partitions, 1)])


def beat(runner: ControllerRunner, broker: int, epoch: int, **fields: Any) -> asyncio.Future[Any]:
    """Send a heartbeat of a broker that has applied everything committed."""
    given = {"metadata_offset": runner.controller.committed_offset} | fields
    operation = requests.broker_heartbeat(Heartbeat(broker, epoch, **given))
    return runner.submit_heartbeat(operation, broker, epoch)


async def until(look: Callable[[], Any]) -> Any:
    """Return the result of ``look`` once it is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not (seen := look()):
            await asyncio.sleep(0.001)
    return seen


def are_alike(one: MetadataState, other: MetadataState) -> bool:
    """Return whether two states are equal but for the controllers, which register at each start."""
    changes = [change for change in diff(one.state, other.state) if change.kind != "controller"]
    return not changes and plain(one.table) == plain(other.table)


def topics(cluster: MetadataState) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    table = cluster.table
    return {table.topic_name(n): len(table.topic_rows(n)) for n in table.topic_numbers()}


RunScenario = Callable[[Callable[[], Awaitable[None]], Quorum], None]


def run(
    scenario: Callable[[], Awaitable[None]], quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a scenario on its own loop and stop every node; fail if an error was not handled."""
    broken: list[object] = []

    def end(what: str, error: BaseException) -> None:
        quorum.ended.append((what, error))

    monkeypatch.setattr(process, "end_process", end)

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        try:
            await scenario()
        finally:
            await quorum.stop()

    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        runner.run(whole())
    if not quorum.ended:
        assert not broken


async def outcomes(*asked: asyncio.Future[Any]) -> list[Any]:
    return await asyncio.gather(*asked, return_exceptions=True)


def snapshot_ids(quorum: Quorum, id: int) -> list[OffsetAndEpoch]:
    return list(quorum.running[id].store.view.snapshots)


async def cut_log(quorum: Quorum, id: int) -> None:
    """Delete the log below a node's latest snapshot, or below a newer one made meanwhile."""
    node = quorum.running[id]
    assert node.driver is not None
    latest = snapshot_ids(quorum, id)[-1].offset
    node.driver.clean(0, -1)
    await until(lambda: node.store.view.start_offset >= latest)


async def snapshot_of_all(quorum: Quorum, id: int) -> OffsetAndEpoch:
    """Create topics until a node has a snapshot of the state at the call."""
    end = quorum.cluster(id).next_offset
    number = 0
    while not (ids := snapshot_ids(quorum, id)) or ids[-1].offset < end:
        number += 1
        await quorum.create(f"filler-{end}-{number}", 20)
        await asyncio.sleep(0.002)
    return ids[-1]


def hold_disk(node: QuorumNode) -> threading.Event:
    """Block the node's writes until the returned event is set."""
    gate = threading.Event()

    def wait() -> None:
        assert gate.wait(PATIENCE_S)

    node.writer.run(wait)
    return gate


def log_of(quorum: Quorum, id: int, since: int) -> list[records.Record]:
    """Return the records of a node's log from an offset on."""
    store = quorum.running[id].store
    return [
        decode_value(record.value or b"")
        if record.control_type is None
        else decode_control(record.control_type, record.value or b"")
        for batch in iterate(store.read(LogSlice(since, store.log.log_end_offset, 1 << 30)))
        for record in batch
    ]
