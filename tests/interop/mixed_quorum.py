"""A quorum of Apache Kafka's controllers and kraft's: drive it, describe it, compare its logs.

Timeouts decide which kind leads. A follower with a short fetch timeout and a long election timeout
only grants votes (``VOTING``); one with the opposite settings is elected (``LEADING``).
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from typer.testing import CliRunner

import kraft
from kraft._core.log.log import Log
from kraft.cli.commands import app
from kraft.errors import KraftError
from kraft.network.controller_connection import ClientSecurity
from kraft.network.quorum_client import QuorumClient
from kraft.raft.rpc import DescribeQuorumResponse
from tests.interop.cluster import HOST, Cluster, ClusterError, Driver, Node, wait_for
from tests.interop.kraft_node import KraftNode

METADATA_LOG = "__cluster_metadata-0"
QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
FEATURE_TOOL = "org.apache.kafka.tools.FeatureCommand"
ELECTION_TIMEOUT, FETCH_TIMEOUT = (
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
)
#: A Kafka leader ends itself when a voter that was just removed answers an earlier BeginQuorumEpoch
#: request (LeaderState.ensureValidVoter; 4.1.1 and 4.3.1 have it). Seen once
#: in seven removals.
KAFKAS_OWN_FAULT = (
    r"[^\n]*\s+java\.lang\.IllegalArgumentException: Unexpected acknowledgement from non-voter"
)
#: Patterns that no node's output may have.
FAULT = re.compile(
    rf"Traceback|FATAL|AssertionError|Encountered [\w ]*fault:(?!{KAFKAS_OWN_FAULT})"
)
#: Below the 2 s of Kafka's default: a voter that still follows rejects the pre-vote of a candidate.
VOTING = {FETCH_TIMEOUT: "1500", ELECTION_TIMEOUT: "60000"}
LEADING = {FETCH_TIMEOUT: "4000", ELECTION_TIMEOUT: "800"}


@dataclass
class MixedQuorum:
    """The controllers of one cluster, Kafka's and kraft's."""

    cluster: Cluster
    #: What kraft's client needs at secured listeners.
    security: ClientSecurity | None = None
    _acls: int = 0
    _admin: Driver | None = field(default=None, repr=False)
    _is_admin_stale: bool = False

    @property
    def nodes(self) -> dict[int, Node]:
        """The controllers."""
        return {id: node for id, node in self.cluster.nodes.items() if node.role == "controller"}

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.process is not None]

    def kraft_node(self, node_id: int) -> KraftNode:
        node = self.nodes[node_id]
        assert isinstance(node, KraftNode)
        return node

    def format(self, **options: tuple[str, ...]) -> None:
        """Format every node with the tool and options of its kind."""
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
        """Start the nodes, all by default, and wait until their ports are open."""
        self.cluster.start(*(self.nodes[one] for one in ids or self.nodes))

    def restart(self, node_id: int, **settings: str) -> None:
        """Stop a node cleanly, and start it with other settings."""
        node = self.nodes[node_id]
        node.stop()
        node.settings.update(settings)
        self.start(node_id)

    def wipe_kafka(self, node_id: int) -> None:
        """Replace the disk of a stopped static voter by an empty one, formatted by Kafka's tool."""
        node = self.nodes[node_id]
        node.stop()
        shutil.rmtree(node.metadata_directory)
        node.format(self.cluster.cluster_id)

    def log_end(self, node_id: int) -> int:
        """Return the log end offset of a node, which may be running."""
        with Log.open(self.log_of(node_id), read_only=True) as log:
            return log.log_end_offset

    def log_of(self, node_id: int) -> Path:
        return self.nodes[node_id].metadata_directory / METADATA_LOG

    # -- described by kraft's client

    def described(
        self, node_id: int | None = None, timeout_s: float = 60.0
    ) -> DescribeQuorumResponse:
        """Return the quorum's description by this node, or by any that runs."""
        asked = self.running if node_id is None else [self.nodes[node_id]]
        try:
            servers = [(HOST, node.port) for node in asked]
            with QuorumClient(servers, timeout_s=timeout_s, security=self.security) as client:
                return client.describe_quorum()
        except KraftError as error:
            raise ClusterError(str(error)) from error

    def wait_until(
        self, what: str, holds: Callable[[DescribeQuorumResponse], bool], timeout_s: float = 120.0
    ) -> DescribeQuorumResponse:
        def ask() -> DescribeQuorumResponse | None:
            self.check_processes()
            said = self.described(timeout_s=2.0)
            return said if holds(said) else None

        return wait_for(what, ask, timeout_s)

    def wait_for_leader(self, *ids: int) -> DescribeQuorumResponse:
        """Wait until one of these leads and all records of its epoch are committed."""
        self._is_admin_stale = True
        return self.wait_until(
            f"a leader among {ids}",
            lambda said: said.leader_id in ids and said.high_watermark > 0,
        )

    def lose_leader(
        self, end: Callable[[Node], None], candidate: Callable[[int], int]
    ) -> DescribeQuorumResponse:
        """End the leader while ``candidate(leader)`` has all that the others have.

        Returns the description before. A node that has fetched a record which the candidate has
        not rightly rejects its vote requests, and stands itself only after a minute (VOTING): then
        the leader starts again, and is ended again.
        """
        for _ in range(20):
            before = self.wait_until_all_have_all()
            end(self.nodes[before.leader_id])
            time.sleep(0.3)  # its records are applied
            new = self.log_end(candidate(before.leader_id))
            if new >= max(self.log_end(node.id) for node in self.running):
                return before
            self.start(before.leader_id)
        raise ClusterError("20 times another node had records that the candidate had not")

    def lose_leader_while_behind(
        self, end: Callable[[Node], None], behind: int
    ) -> DescribeQuorumResponse:
        """End the leader while one node is paused and has not the records of the others.

        Returns the description before. The paused node continues half a second later: it can only
        vote then. The leader must write meanwhile.
        """
        before = self.wait_until_all_have_all()
        process = self.nodes[behind].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        resume = threading.Timer(0.5, process.send_signal, (signal.SIGCONT,))
        try:
            # Responses that are on their way to the paused node have fewer records.
            paused_at = self.log_end(behind)
            others = [node.id for node in self.running if node.id != behind]
            wait_for(
                "records that the paused node has not",
                lambda: min(map(self.log_end, others)) >= paused_at + 100,
            )
        finally:
            resume.start()
        end(self.nodes[before.leader_id])
        resume.join()
        return before

    def wait_until_all_have_all(self) -> DescribeQuorumResponse:
        """Wait until every running node has all committed records."""
        present = {node.id: node.directory_id() for node in self.running}

        def has_all(said: DescribeQuorumResponse) -> bool:
            # Static voters have no directory; a wiped one is still listed with its old one.
            ends = {
                state.key.id: state.log_end_offset
                for state in (*said.voters, *said.observers)
                if state.key.directory_id is None
                or str(state.key.directory_id) == present.get(state.key.id)
            }
            return all(ends.get(one, -1) >= said.high_watermark > 0 for one in present)

        return self.wait_until(f"{set(present)} to have what is committed", has_all)

    def check_processes(self) -> None:
        """Fail if a node ended by itself; restart a Kafka node with KAFKAS_OWN_FAULT."""
        for node in self.running:
            assert node.process is not None
            if node.process.poll() is not None:
                end = node.log.read_text(errors="replace")[-4000:]
                if not re.search(f"fault:{KAFKAS_OWN_FAULT}", end):
                    raise AssertionError(f"node {node.id} ended; its log ends:\n{end}")
                node.process = None
                self.start(node.id)

    # -- changes

    @property
    def admin(self) -> Driver:
        """Return Kafka's Admin client for all controllers.

        A client that found no leader, or an unregistered one, does not retry: each leader needs a
        new client.
        """
        if self._admin is None:
            self._admin = self.cluster.driver(to_controllers=True)
        elif self._is_admin_stale:
            addresses = ",".join(node.address for node in self.nodes.values())
            self._admin.connect("plain", {"bootstrap.controllers": addresses})
        self._is_admin_stale = False
        return self._admin

    def commit(self, count: int = 5) -> None:
        """Create ``count`` ACLs by Kafka's active controller, each committed by a majority.

        A controller that was just elected may need a second request.
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
        """Create ACLs until this Kafka controller has made another snapshot; return the newest."""
        before = self.snapshots(node_id)

        def snapshot() -> Path | None:
            self.commit(10)
            found = self.snapshots(node_id)
            return found[-1] if found and found != before else None

        return wait_for("a snapshot of Kafka's", snapshot)

    def snapshots(self, node_id: int) -> list[Path]:
        """Return the complete snapshots of a node, except the one made by its formatting."""
        return [
            path
            for path in sorted(self.log_of(node_id).glob("*.checkpoint"))
            if not path.name.startswith("0" * 20)
        ]

    def wait_for_snapshot(self, node_id: int, name: str) -> Path:
        """Wait until this snapshot is the only one of a node; return its path.

        The leader of a wiped static voter remembers the voter's earlier log end, so
        `wait_until_all_have_all` is not sufficient before the voter fetches again.
        """

        def only() -> Path | None:
            found = self.snapshots(node_id)
            return found[0] if [path.name for path in found] == [name] else None

        return wait_for(f"{name} at node {node_id}", only)

    def wait_for_fetched_snapshot(self, node_id: int, leader_id: int) -> tuple[Path, Path]:
        """Wait until a wiped node has a snapshot of the leader; return its path at both.

        Both make snapshots of their own meanwhile. The fetched one is the oldest.
        """

        def oldest() -> tuple[Path, Path] | None:
            served = {path.name: path for path in self.snapshots(leader_id)}
            for path in self.snapshots(node_id):
                if path.name in served:
                    return path, served[path.name]
            return None

        return wait_for(f"the snapshot of {leader_id} at node {node_id}", oldest)

    def voted_for(self, node_id: int) -> int:
        """Return the vote in the node's quorum-state; -1 without one."""
        text = (self.log_of(node_id) / "quorum-state").read_text()
        voted: int = json.loads(text)["votedId"]
        return voted

    # -- both tools

    def kafka_says(self, node_id: int, *words: str) -> str:
        """Return the output of `kafka-metadata-quorum` for this node."""
        asked = ("--bootstrap-controller", self.nodes[node_id].address)
        return self.cluster.jars.run(QUORUM_TOOL, *asked, *words, timeout_s=180).stdout

    def endpoints_at(self, node_id: int) -> dict[int, str]:
        """Return the controllers' addresses, by Kafka's `kafka-cluster` at this node."""
        asked = ("list-endpoints", "--bootstrap-controller", self.nodes[node_id].address)
        _, *rows = self.cluster.jars.run(CLUSTER_TOOL, *asked, timeout_s=180).stdout.splitlines()
        fields = (row.split() for row in rows)
        return {int(id): f"{host}:{port}" for id, host, port, *_ in fields}

    def wait_for_endpoints(self, node_id: int, addresses: dict[int, str]) -> None:
        """Wait until Kafka's tool prints these at a node, which applies them a moment later."""
        wait_for(
            f"node {node_id} to know the controllers",
            lambda: self.endpoints_at(node_id) == addresses,
        )

    def set_feature(self, node_id: int, command: str, name: str, level: int) -> None:
        """Run Kafka's `kafka-features upgrade` or `downgrade`, asking this node for the leader."""
        asked = ("--bootstrap-controller", self.nodes[node_id].address)
        words = (command, "--feature", f"{name}={level}")
        said = self.cluster.jars.run(FEATURE_TOOL, *asked, *words, timeout_s=180).stdout
        assert f"{name} was {command}d to {level}." in said, said

    def wait_until_registered(self) -> None:
        """Wait until every running node has the registration of every running controller."""
        present = {node.id: node.address for node in self.running}

        def are_registered() -> bool:
            for one in present:
                registered = kraft.open_metadata(self.log_of(one)).controllers
                for id, address in present.items():
                    listeners = registered[id].endpoints.values() if id in registered else ()
                    if address not in {f"{at.host}:{at.port}" for at in listeners}:
                        return False
            return True

        wait_for("the controllers to register", are_registered)

    def kraft_says(self, node_id: int, *words: str) -> str:
        """Return the output of `kraft quorum` for this node."""
        asked = ("--bootstrap-controller", self.nodes[node_id].address)
        said = CliRunner().invoke(app, ["quorum", *words, *asked])
        if said.exit_code:
            raise ClusterError(f"kraft quorum {words}: {said.stderr}")
        return said.stdout

    def remove_voter(self, node_id: int, remove: Callable[[], object]) -> DescribeQuorumResponse:
        """Call ``remove`` until the node is not a voter.

        A call may end a Kafka leader (KAFKAS_OWN_FAULT).
        """

        def is_removed(said: DescribeQuorumResponse) -> bool:
            if node_id not in {state.key.id for state in said.voters}:
                return True
            with suppress(RuntimeError):
                remove()
            return False

        return self.wait_until(f"{node_id} not among the voters", is_removed)

    # -- compared

    def stop(self) -> int:
        """Stop all nodes once all have the same records; return the committed offset."""
        committed = self.wait_until_all_have_all().high_watermark
        self.check_processes()
        for node in self.nodes.values():
            node.stop()
        for node in self.nodes.values():
            log = node.log.read_text(errors="replace")
            fault = FAULT.search(log)
            assert fault is None, f"node {node.id}: {log[fault.start() :][:4000]}"
        return committed

    def check_equal_logs(self, committed: int) -> None:
        """Check that all logs have the same bytes, from their start to the high watermark.

        The snapshots that one node has of another are equal too.
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
    """Return the batches of a stopped node's metadata log between two offsets."""
    with Log.open(directory, read_only=True) as log:
        found = [
            bytes(batch.data)
            for batch in log.batches(start_offset)
            if batch.base_offset >= start_offset and batch.last_offset < end_offset
        ]
    return b"".join(found)


def status_of(text: str) -> dict[str, str]:
    """Parse `describe --status`, without the two values that change by themselves."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if line.strip())
    return {
        name: value.strip()
        for name, value in fields.items()
        if name not in ("MaxFollowerLag", "MaxFollowerLagTimeMs")
    }


def replication_of(text: str) -> list[tuple[str, str, str, str]]:
    """Parse `describe --replication`: node, directory, log end and role, without times."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    assert rows[0][0] == "NodeId"
    return sorted((row[0], row[1], row[2], row[6]) for row in rows[1:])
