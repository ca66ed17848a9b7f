"""kraft's own nodes beside Apache Kafka's in one cluster.

Owns the process of a kraft controller, which is configured by the very file that a Kafka controller
would get, formatted by ``kraft storage format`` and run by ``kraft server start`` (or, where it has
to write something while it leads, by ``quota_writer``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass

from tests.interop.cluster import Cluster, ClusterError, Node


@dataclass
class KraftNode(Node):
    """A controller that is kraft."""

    cluster_id: str = ""
    format_options: tuple[str, ...] = ()
    #: Whether it appends a quota after the other while it leads, and notes them in `acknowledged`.
    is_writer: bool = False

    def start(self) -> None:
        assert self.process is None, f"node {self.id} runs already"
        self.write_properties()
        command = ["kraft", "server", "start", str(self.properties)]
        if self.is_writer:
            notes = self.directory / "acknowledged"
            command = ["tests.interop.quota_writer", str(self.properties), str(notes)]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def format(self, cluster_id: str, *options: str) -> None:
        self.cluster_id, self.format_options = cluster_id, options
        self.write_properties()
        command = [sys.executable, "-m", "kraft", "storage", "format"]
        arguments = ["-t", cluster_id, "-c", str(self.properties), *options]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"kraft storage format: {done.stderr}")

    def wipe(self) -> None:
        """An empty disk, formatted as it was at first; its directory id is another one."""
        shutil.rmtree(self.metadata_directory)
        self.format(self.cluster_id, *self.format_options)

    def acknowledged(self) -> set[str]:
        """The users whose quotas the quorum has acknowledged to this node."""
        notes = self.directory / "acknowledged"
        return set(notes.read_text().split()) if notes.exists() else set()


def add_kraft_controller(cluster: Cluster, node_id: int, **settings: str) -> KraftNode:
    """A controller of the cluster, under one of its reserved ports, run by kraft."""
    as_kafka = cluster.add_controller(node_id, **settings)
    node = KraftNode(
        as_kafka.jars,
        as_kafka.directory,
        node_id,
        as_kafka.role,
        as_kafka.port,
        as_kafka.sasl_port,
        as_kafka.settings,
    )
    cluster.nodes[node_id] = node
    return node
