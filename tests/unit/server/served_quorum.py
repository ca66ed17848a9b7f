"""A quorum of controllers with light brokers, for clients and commands in other threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kraft.network.quorum_client import QuorumClient
from kraft.server.light_brokers import LightBrokers
from tests.harness.command_line import Ran, run_command
from tests.harness.controller_nodes import Quorum, RunScenario, until

Address = tuple[str, int]


@dataclass
class ServedQuorum:
    """A running quorum with three unfenced brokers, 1001 to 1003."""

    quorum: Quorum
    address: Address
    brokers: LightBrokers

    @property
    def bootstrap(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    async def ask(self, *words: object, at: Address | None = None) -> Ran:
        """Run a command line in a thread, with a controller's address at its end."""
        host, port = at or self.address
        there = ("--bootstrap-controller", f"{host}:{port}")
        return await asyncio.to_thread(run_command, *words, *there)


def on_a_quorum(
    tmp_path: Path,
    run_scenario: RunScenario,
    scenario: Callable[[ServedQuorum], Awaitable[None]],
    *,
    count: int = 1,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Run a scenario with ``count`` controllers and three brokers."""
    quorum = Quorum(tmp_path, count, settings=settings)

    async def whole() -> None:
        await quorum.start()
        endpoint = quorum.running[await quorum.active()].transport.endpoints[0]
        address = (endpoint.host, endpoint.port)
        with QuorumClient([address]) as client:
            cluster = await asyncio.to_thread(client.describe_cluster)
        brokers = LightBrokers([address], cluster.cluster_id, 3)
        brokers.start()
        try:
            await until(lambda: brokers.unfenced_count == 3)
            await scenario(ServedQuorum(quorum, address, brokers))
        finally:
            brokers.stop()

    run_scenario(whole, quorum)
