"""``QuorumForTests``: controllers and brokers as processes on loopback, with topics and faults.

The processes are those of ``kraft.server.local_quorum``. Light brokers, of
``kraft.server.light_brokers``, send heartbeats, and store and serve nothing.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kraft.errors import NONE, KraftError
from kraft.metadata.quorum_reader import read_metadata
from kraft.network.quorum_client import QuorumClient, QuorumRefusedError, QuorumUnreachableError
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
    DeleteTopicState,
)
from kraft.server.light_brokers import LightBrokers
from kraft.server.local_quorum import LOOPBACK, LocalNode, LocalQuorum

if TYPE_CHECKING:
    from kraft.live.metadata import LiveMetadata

_READY_S = 60.0
_TIMEOUT_MS = 30_000
_LOOK_EVERY_S = 0.02


class QuorumForTests:
    """A quorum of ``controllers`` processes, started and led; a context manager that stops it.

    ``brokers`` of kraft's own serve clients at `bootstrap_servers`, each in a process of its own,
    or, with ``combined``, in those of controllers. ``light_brokers`` are enough where topics are
    created and no client produces. All are unfenced once the object exists. ``settings`` go into
    the configuration of each node. Controllers have the ids from 1 on, other nodes from 1001 on.
    Raises QuorumUnreachableError, with the end of a node's log, where the quorum has no leader, or
    its brokers are not unfenced, within 60 s.
    """

    def __init__(
        self,
        directory: Path,
        controllers: int = 1,
        *,
        brokers: int = 0,
        combined: bool = False,
        light_brokers: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._quorum = LocalQuorum(
            directory / "quorum", controllers, settings, brokers=brokers, is_combined=combined
        )
        self._paused: set[int] = set()
        self._light: LightBrokers | None = None
        addresses = [(LOOPBACK, node.port) for node in self._quorum.nodes]
        self._client = QuorumClient(addresses, timeout_s=10, client_id="kraft-testing")
        try:
            for node in self._quorum.all:
                self._prepare(node)
            self._quorum.start()
            self.wait_for_leader()
            self.cluster_id = self._client.describe_cluster().cluster_id
            if light_brokers:
                self._light = light = LightBrokers(addresses, self.cluster_id, light_brokers)
                light.start()
                self._wait("unfenced light brokers", lambda: light.unfenced_count == light_brokers)
            if brokers:
                self._wait("unfenced brokers", self._are_brokers_unfenced)
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses of all controllers: ``host:port,…``."""
        return ",".join(node.endpoint for node in self._quorum.nodes)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers for their clients: ``host:port,…``."""
        return ",".join(node.client_endpoint for node in self._quorum.brokers)

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, running or not; light ones have none here."""
        return [node.id for node in self._quorum.brokers]

    @property
    def controller_ids(self) -> list[int]:
        """The ids of all controllers, running or not."""
        return [node.id for node in self._quorum.nodes]

    def metadata_directory(self, node_id: int) -> Path:
        """Return the directory of a node, for ``kraft.open_metadata``."""
        return self._node(node_id).config_path.parent / "data"

    def leader_id(self) -> int:
        """Return the id of the controller that leads. Raises QuorumUnreachableError."""
        return self._client.describe_quorum().leader_id

    def wait_for_leader(self) -> int:
        """Wait until a controller leads and has committed a record; return its id."""
        found = -1

        def leads() -> bool:
            nonlocal found
            described = self._client.describe_quorum()
            found = described.leader_id
            return described.high_watermark > 0

        self._wait("a leader", leads)
        return found

    def follow(self) -> LiveMetadata:
        """Return the live metadata of the quorum; close it after use."""
        from kraft.live.metadata import follow

        return follow(self.bootstrap_controllers)

    # -- topics

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 1) -> None:
        """Create a topic. Raises QuorumRefusedError with Kafka's error."""
        topic = CreatableTopic(name, partitions, replication_factor)
        said = self._client.call(
            CREATE_TOPICS,
            CreateTopicsRequestData([topic], _TIMEOUT_MS),
            CreateTopicsResponseData,
            lambda response: response.topics[0].error_code,
        ).response.topics[0]
        if said.error_code != NONE:
            asked = f"creating topic {name!r}"
            raise QuorumRefusedError(said.error_code, asked, said.error_message)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises QuorumRefusedError with Kafka's error."""
        said = self._client.call(
            DELETE_TOPICS,
            DeleteTopicsRequestData(topics=[DeleteTopicState(name)], timeout_ms=_TIMEOUT_MS),
            DeleteTopicsResponseData,
            lambda response: response.responses[0].error_code,
        ).response.responses[0]
        if said.error_code != NONE:
            asked = f"deleting topic {name!r}"
            raise QuorumRefusedError(said.error_code, asked, said.error_message)

    # -- faults

    def kill_leader(self) -> int:
        """Kill the controller that leads, as by kill -9; return its id."""
        leader_id = self.leader_id()
        self.kill(leader_id)
        return leader_id

    def kill(self, node_id: int) -> None:
        """Kill a node, as by kill -9."""
        self._quorum.kill(self._node(node_id))
        self._paused.discard(node_id)

    def stop(self, node_id: int) -> None:
        """Shut a node down, and wait for its end."""
        self.resume(node_id)
        self._quorum.stop(self._node(node_id))

    def pause(self, node_id: int) -> None:
        """Stop the process of a node (SIGSTOP): its connections stay open, and silent."""
        process = self._node(node_id).process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        self._paused.add(node_id)

    def resume(self, node_id: int) -> None:
        """Continue a paused node (SIGCONT); do nothing for another one."""
        process = self._node(node_id).process
        if node_id in self._paused and process is not None:
            process.send_signal(signal.SIGCONT)
            self._paused.discard(node_id)

    def start(self, node_id: int) -> None:
        """Start a node that was stopped or killed, with its directory."""
        self._quorum.start_node(self._node(node_id))

    def _prepare(self, node: LocalNode) -> None:
        """Change a formatted node before its first start; nothing here, for a subclass."""

    def _node(self, id: int) -> LocalNode:
        for node in self._quorum.all:
            if node.id == id:
                return node
        ids = [node.id for node in self._quorum.all]
        raise ValueError(f"there is no node {id}; ids are {ids}")

    def _are_brokers_unfenced(self) -> bool:
        known = read_metadata(self._client).brokers
        return all(id in known and not known[id].fenced for id in self.broker_ids)

    def _wait(self, what: str, is_ready: Callable[[], bool]) -> None:
        end = time.monotonic() + _READY_S
        failure = ""
        while time.monotonic() < end:
            try:
                if is_ready():
                    return
            except KraftError as error:
                failure = str(error)
            time.sleep(_LOOK_EVERY_S)
        log = self._quorum.nodes[0].log_path.read_text(errors="replace")[-2000:]
        raise QuorumUnreachableError(
            f"the quorum has no {what} within {_READY_S:.0f} s ({failure}); the log of controller "
            f"{self._quorum.nodes[0].id} ends:\n{log}"
        )

    # -- the end

    def close(self) -> None:
        """Kill all processes and wait for their end; the files stay."""
        if self._light is not None:
            self._light.stop()
        self._client.close()
        self._quorum.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
