"""Controllers of kraft that reach each other through `NetworkLinks`, and light brokers."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from kraft.metadata.identifiers import random_uuid
from kraft.network.quorum_client import QuorumClient
from kraft.raft.rpc import DescribeQuorumResponse
from kraft.server.config.loading import ServerConfig
from kraft.server.light_brokers import LightBrokers
from kraft.server.local_quorum import LOOPBACK, free_ports
from kraft.server.storage.format import FormatRequest, format_storage
from tests.e2e.admin_load import REPLICATION_FACTOR
from tests.harness.network_links import NetworkLinks
from tests.harness.nodes import Controller, Controllers

_LOOK_EVERY_S = 0.01
_PATIENCE_S = 60.0
#: Kafka's defaults are not among the settings: they apply.
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "200000"}


class ProxiedQuorum:
    """``count`` controllers at Kafka's default timeouts; a context manager that runs them."""

    def __init__(self, directory: Path, count: int) -> None:
        self.controllers = Controllers(directory, count)
        self.nodes = {node.id: node for node in self.controllers.all}
        ports = dict(zip(self.nodes, free_ports(count), strict=True))
        self.addresses = [(LOOPBACK, port) for port in ports.values()]
        bootstrap = ",".join(f"{host}:{port}" for host, port in self.addresses)
        for node in self.nodes.values():
            advertised = f"CONTROLLER://{LOOPBACK}:{ports[node.id]}"
            node.bootstrap = bootstrap
            node.settings = SETTINGS | {"advertised.listeners": advertised}
            node.write()
        self.links = NetworkLinks(ports, {node.id: node.port for node in self.nodes.values()})
        self.cluster_id = str(random_uuid())
        self._format(ports)
        self.brokers = LightBrokers(self.addresses, self.cluster_id, REPLICATION_FACTOR)
        self._stack = ExitStack()

    def _format(self, ports: Mapping[int, int]) -> None:
        voters = ",".join(f"{id}@{LOOPBACK}:{port}:{random_uuid()!s}" for id, port in ports.items())
        request = FormatRequest(cluster_id=self.cluster_id, initial_controllers=voters)
        for node in self.nodes.values():
            config = ServerConfig.load(node.file)
            format_storage(config, request, timestamp_ms=time.time_ns() // 1_000_000)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.links)
        self._stack.enter_context(self.controllers)
        try:
            for node in self.nodes.values():
                node.launch()
            for node in self.nodes.values():
                node.await_port()
            self.brokers.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.brokers.stop()
        self._stack.close()

    def described(self) -> DescribeQuorumResponse:
        with QuorumClient(self.addresses, timeout_s=_PATIENCE_S) as client:
            return client.describe_quorum()

    def signal(self, node: Controller, number: signal.Signals) -> None:
        assert node.running is not None
        node.running.process.send_signal(number)

    def check_alive(self) -> None:
        """Fail if a node ended by itself."""
        for node in self.nodes.values():
            if node.running is not None and node.running.process.poll() is not None:
                tail = "\n  ".join(node.running.text.splitlines()[-20:])
                raise AssertionError(f"node {node.id} ended by itself:\n  {tail}")

    def await_brokers(self, timeout_s: float) -> None:
        """Wait until all brokers are unfenced."""
        give_up = time.monotonic() + timeout_s
        while self.brokers.unfenced_count < REPLICATION_FACTOR:
            assert time.monotonic() < give_up, self.brokers.failure
            time.sleep(_LOOK_EVERY_S)
