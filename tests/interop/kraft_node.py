"""Run kraft controllers and brokers in a cluster with Apache Kafka's.

A node of kraft has the same configuration file as Kafka's. ``kraft storage format``
formats it, and ``kraft server start`` runs it; ``quota_writer`` runs a controller that must write
while it leads.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.commands import KRAFT, kraft, logged
from tests.interop.cluster import Cluster, ClusterError, Node

#: The command ``kraft`` whose controllers delete their old log every half second; Kafka's interval
#: is a minute.
CLEANING = (
    sys.executable,
    "-c",
    "from kraft.server import process; process.CLEAN_INTERVAL_S = 0.5; "
    "from kraft.cli import main; main()",
)


@dataclass
class KraftNode(Node):
    """A controller or broker of kraft."""

    cluster_id: str = ""
    format_options: tuple[str, ...] = ()
    #: Whether it writes quotas while it leads, and notes them in `acknowledged`.
    is_writer: bool = False
    #: The command ``kraft``, such as one with another view of the file system.
    program: Sequence[str] = KRAFT
    #: Variables of its environment, beside the usual ones.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: The directory of `metadata_directory` where ``program`` sees it elsewhere.
    seen_from_outside: Path | None = None

    @property
    def metadata_directory(self) -> Path:
        return self.seen_from_outside or super().metadata_directory

    def start(self) -> None:
        assert self.process is None, f"node {self.id} runs already"
        self.write_properties()
        command = [*self.program, "server", "start", self.properties]
        if self.is_writer:
            notes = self.directory / "acknowledged"
            command = [sys.executable, "-m", "tests.interop.quota_writer", self.properties, notes]
        self.process = logged(command, self.log, env=os.environ | self.environment)

    def format(self, cluster_id: str, *options: str) -> None:
        self.cluster_id, self.format_options = cluster_id, options
        self.write_properties()
        done = kraft(
            *("storage", "format", "-t", cluster_id, "-c", self.properties, *options),
            program=self.program,
        )
        if done.returncode:
            raise ClusterError(f"kraft storage format: {done.stderr}")

    def wipe(self) -> None:
        """Replace the disk by an empty, formatted one, with a new directory id."""
        shutil.rmtree(self.metadata_directory)
        self.format(self.cluster_id, *self.format_options)

    def acknowledged(self) -> set[str]:
        """Return the users whose quotas the quorum has acknowledged to this node."""
        notes = self.directory / "acknowledged"
        return set(notes.read_text().split()) if notes.exists() else set()


def add_kraft_controller(cluster: Cluster, node_id: int, **settings: str) -> KraftNode:
    """Add a controller run by kraft to the cluster, at one of its reserved ports."""
    return run_by_kraft(cluster, cluster.add_controller(node_id, **settings))


def add_kraft_broker(
    cluster: Cluster, node_id: int, rack: str | None, **settings: str
) -> KraftNode:
    """Add a broker run by kraft to the cluster."""
    return run_by_kraft(cluster, cluster.add_broker(node_id, rack, **settings))


def run_by_kraft(cluster: Cluster, node: Node) -> KraftNode:
    """Let kraft run a stopped node of the cluster, with its files; return the node."""
    taken = KraftNode(
        node.jars,
        node.directory,
        node.id,
        node.role,
        node.port,
        node.sasl_port,
        node.settings,
    )
    cluster.nodes[node.id] = taken
    return taken


def run_by_kafka(cluster: Cluster, node: Node) -> Node:
    """Let Apache Kafka run a stopped node of the cluster, with its files; return the node."""
    taken = Node(
        node.jars,
        node.directory,
        node.id,
        node.role,
        node.port,
        node.sasl_port,
        node.settings,
    )
    cluster.nodes[node.id] = taken
    return taken
