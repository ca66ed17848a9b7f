"""A quorum of Apache Kafka's controllers and kraft's: driven, asked by both tools, and compared.

Owns what the tests of mixed quorums have in common. Which kind leads is a matter of who is patient:
a follower that gives up its leader early, and then stands for election late, grants everybody's
vote and takes none (``VOTING``); one that does it the other way round is elected (``LEADING``).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from typer.testing import CliRunner

import kraft
from kraft._core.log import Log
from kraft.cli import app
from kraft.errors import KraftError
from kraft.raft.messages import DescribeQuorumResponse
from kraft.server.network.quorum_client import QuorumClient
from tests.interop.cluster import HOST, Cluster, ClusterError, Driver, Node, wait_for
from tests.interop.kraft_node import KraftNode

METADATA_LOG = "__cluster_metadata-0"
QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
ELECTION_TIMEOUT, FETCH_TIMEOUT = (
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
)
#: What no node's output may have, of Kafka's or ours.
FAULT = re.compile(r"Traceback|FATAL|AssertionError|Encountered [\w ]*fault:")
VOTING = {FETCH_TIMEOUT: "1500", ELECTION_TIMEOUT: "60000"}
LEADING = {FETCH_TIMEOUT: "2500", ELECTION_TIMEOUT: "800"}


@dataclass
class MixedQuorum:
    """The controllers of one cluster, of both kinds."""

    cluster: Cluster
    _acls: int = 0
    _admin: Driver | None = field(default=None, repr=False)
    _is_admin_stale: bool = False

    @property
    def nodes(self) -> dict[int, Node]:
        return self.cluster.nodes

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.process is not None]

    def format(self, **options: tuple[str, ...]) -> None:
        """Formats every node with the tool of its kind and the options of its kind."""
        with ThreadPoolExecutor(2) as pool:
            for one in [
                pool.submit(
                    node.format,
                    self.cluster.cluster_id,
                    *options.get("kraft" if isinstance(node, KraftNode) else "kafka", ()),
                )
                for node in self.nodes.values()
            ]:
                one.result()

    def start(self, *ids: int) -> None:
        """Starts the nodes, all of them by default, and waits until their ports are open."""
        nodes = [self.nodes[one] for one in ids or self.nodes]
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_until_listening()

    def restart(self, node_id: int, **settings: str) -> None:
        """A clean end, and a start with other settings."""
        node = self.nodes[node_id]
        node.stop()
        node.settings.update(settings)
        self.start(node_id)

    def wipe_kafka(self, node_id: int) -> None:
        """An empty disk for a static voter, formatted by Kafka's own tool; it is not started."""
        node = self.nodes[node_id]
        node.stop()
        shutil.rmtree(node.metadata_directory)
        node.format(self.cluster.cluster_id)

    def log_end(self, node_id: int) -> int:
        """Where the log of a node ends, which may be running."""
        with Log.open(self.log_of(node_id), read_only=True) as log:
            return log.log_end_offset

    def log_of(self, node_id: int) -> Path:
        return self.nodes[node_id].metadata_directory / METADATA_LOG

    # -- asked by our client

    def described(self, node_id: int | None = None) -> DescribeQuorumResponse:
        """What the quorum says when this node, or any that runs, is asked."""
        asked = self.running if node_id is None else [self.nodes[node_id]]
        try:
            with QuorumClient([(HOST, node.port) for node in asked], timeout_s=2.0) as client:
                return client.describe_quorum()
        except KraftError as error:
            raise ClusterError(str(error)) from error

    def wait_until(
        self, what: str, holds: Callable[[DescribeQuorumResponse], bool], timeout_s: float = 20.0
    ) -> DescribeQuorumResponse:
        def ask() -> DescribeQuorumResponse | None:
            self.check_processes()
            said = self.described()
            return said if holds(said) else None

        return wait_for(what, ask, timeout_s)

    def wait_for_leader(self, *ids: int) -> DescribeQuorumResponse:
        """Until one of these leads and everything of its epoch so far is committed."""
        self._is_admin_stale = True
        return self.wait_until(
            f"a leader among {ids}",
            lambda said: said.leader_id in ids and said.high_watermark > 0,
            timeout_s=40.0,
        )

    def wait_until_all_have_all(self) -> DescribeQuorumResponse:
        """Until every node that runs has what the quorum has committed."""
        present = {node.id: node.directory_id() for node in self.running}

        def has_all(said: DescribeQuorumResponse) -> bool:
            # Static voters have no directory; one that was wiped is remembered beside what it is.
            ends = {
                state.key.id: state.log_end_offset
                for state in (*said.voters, *said.observers)
                if state.key.directory_id is None
                or str(state.key.directory_id) == present.get(state.key.id)
            }
            return all(ends.get(one, -1) >= said.high_watermark > 0 for one in present)

        return self.wait_until(f"{set(present)} to have what is committed", has_all)

    def check_processes(self) -> None:
        """No node may have ended by itself."""
        for node in self.running:
            assert node.process is not None
            if node.process.poll() is not None:
                log = (node.directory / "log").read_text(errors="replace")
                raise AssertionError(f"node {node.id} ended; its log ends:\n{log[-4000:]}")

    # -- driven

    @property
    def admin(self) -> Driver:
        """Kafka's Admin client, which is told all controllers.

        One that has looked while nobody led, or somebody who is not registered, looks no more: so
        there is a new one for each leader.
        """
        if self._admin is None:
            self._admin = self.cluster.driver(to_controllers=True)
        elif self._is_admin_stale:
            addresses = ",".join(node.address for node in self.nodes.values())
            self._admin.connect("plain", {"bootstrap.controllers": addresses})
        self._is_admin_stale = False
        return self._admin

    def commit(self, count: int = 5) -> None:
        """So many ACLs by Kafka's active controller, each committed by a majority.

        A controller that was elected a moment ago may have to be asked twice.
        """
        for _ in range(count):
            self._acls += 1
            wait_for("an ACL to be committed", self._create_acl)

    def _create_acl(self) -> bool:
        admin, self._is_admin_stale = self.admin, True
        admin(
            "create_acl",
            resource="TOPIC",
            name=f"topic-{self._acls}",
            pattern="LITERAL",
            principal=f"User:{'u' * 60}{self._acls}",
            host="*",
            operation="READ",
            permission="ALLOW",
        )
        self._is_admin_stale = False
        return True

    def commit_until_snapshot(self, node_id: int) -> Path:
        """ACLs until this Kafka controller has made another snapshot; the newest."""
        before = self.snapshots(node_id)

        def snapshot() -> Path | None:
            self.commit(10)
            found = self.snapshots(node_id)
            return found[-1] if found and found != before else None

        return wait_for("a snapshot of Kafka's", snapshot)

    def snapshots(self, node_id: int) -> list[Path]:
        """The complete snapshots of a node but for the one of its formatting."""
        return [
            path
            for path in sorted(self.log_of(node_id).glob("*.checkpoint"))
            if not path.name.startswith("0" * 20)
        ]

    def wait_for_snapshot(self, node_id: int, name: str) -> Path:
        """Until this snapshot is the only one of a node.

        Of a static voter that was wiped its leader remembers the log that it had, so that "all have
        all" says nothing before it fetches again.
        """

        def only() -> Path | None:
            found = self.snapshots(node_id)
            return found[0] if [path.name for path in found] == [name] else None

        return wait_for(f"{name} at node {node_id}", only)

    def voted_for(self, node_id: int) -> int:
        """Whom the node's quorum-state says it has voted for; -1: nobody."""
        text = (self.log_of(node_id) / "quorum-state").read_text()
        voted: int = json.loads(text)["votedId"]
        return voted

    # -- both tools

    def kafka_says(self, node_id: int, *words: str) -> str:
        """Kafka's own `kafka-metadata-quorum`, asking this node."""
        asked = ("--bootstrap-controller", self.nodes[node_id].address)
        return self.cluster.jars.run(QUORUM_TOOL, *asked, *words, timeout_s=60).stdout

    def kraft_says(self, node_id: int, *words: str) -> str:
        """`kraft quorum`, asking this node."""
        asked = ("--bootstrap-controller", self.nodes[node_id].address)
        said = CliRunner().invoke(app, ["quorum", *words, *asked])
        if said.exit_code:
            raise ClusterError(f"kraft quorum {words}: {said.stderr}")
        return said.stdout

    # -- compared

    def stop(self) -> int:
        """Stops all nodes once all have everything; what was committed by then."""
        committed = self.wait_until_all_have_all().high_watermark
        self.check_processes()
        for node in self.nodes.values():
            node.stop()
        for node in self.nodes.values():
            log = (node.directory / "log").read_text(errors="replace")
            fault = FAULT.search(log)
            assert fault is None, f"node {node.id}: {log[fault.start() :][:4000]}"
        return committed

    def check_equal_logs(self, committed: int) -> None:
        """Every log has the same bytes up to the high watermark, from where it begins on.

        And so have the snapshots that one node has of another.
        """
        starts = {}
        for one in self.nodes:
            with Log.open(self.log_of(one), read_only=True) as log:
                starts[one] = log.log_start_offset
                assert log.log_end_offset >= committed, (one, log.log_end_offset, committed)
        longest = min(starts, key=lambda one: starts[one])
        for one in self.nodes:
            start = starts[one]
            ours = log_bytes(self.log_of(one), start, committed)
            assert ours == log_bytes(self.log_of(longest), start, committed), (one, longest)
            assert ours or start == committed
        states = {one: kraft.open_metadata(self.log_of(one), at=committed) for one in self.nodes}
        for one, state in states.items():
            assert dict(state.acls) == dict(states[longest].acls), one
            assert dict(state.client_quotas) == dict(states[longest].client_quotas), one


def log_bytes(directory: Path, start_offset: int, end_offset: int) -> bytes:
    """The batches of a metadata log, of which no node runs, from one offset up to another."""
    with Log.open(directory, read_only=True) as log:
        found = [
            bytes(batch.data)
            for batch in log.batches(start_offset)
            if batch.base_offset >= start_offset and batch.last_offset < end_offset
        ]
    return b"".join(found)


def status_of(text: str) -> dict[str, str]:
    """`describe --status` by its names, without the two that move by themselves."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if line.strip())
    return {
        name: value.strip()
        for name, value in fields.items()
        if name not in ("MaxFollowerLag", "MaxFollowerLagTimeMs")
    }


def replication_of(text: str) -> list[tuple[str, str, str, str]]:
    """`describe --replication`: node, directory, log end and role; its times move."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    assert rows[0][0] == "NodeId"
    return sorted((row[0], row[1], row[2], row[6]) for row in rows[1:])
