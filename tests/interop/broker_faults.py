"""Faults of a cluster of Apache Kafka's brokers on kraft controllers, drawn from a seed.

The controllers reach each other, and the brokers reach them, through `NetworkLinks`. One controller
has a small disk of its own that can be filled; all have a library preloaded that can make their
disks slow. After each fault everything is started and connected again, and `FaultyCluster.recover`
waits until the cluster is well: every broker unfenced, every replica in sync, every controller with
all records.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import kraft
from kraft.errors import KraftError
from kraft.live.metadata import LiveMetadata
from kraft.metadata.identifiers import random_uuid
from kraft.server.local_quorum import free_ports
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.harness.network_links import NetworkLinks
from tests.harness.small_disk import SmallDisk, fill, small_disk
from tests.interop.cluster import HOST, Cluster, Driver, Node, wait_for
from tests.interop.kraft_node import KraftNode, add_kraft_controller
from tests.interop.mixed_quorum import MixedQuorum
from tests.interop.scenario import CONTROLLERS, RACKS
from tests.interop.verified_load import (
    DEFAULTS_OF_BROKERS,
    REPLICATED,
    VerifiedLoad,
    create_topics,
)

BROKERS = tuple(RACKS)
#: The controller with a disk of its own.
SMALL_DISK = CONTROLLERS[-1]
_SMALL_DISK_MIB = 64
#: A broker is fenced after 9 s without heartbeats, and a follower leaves the ISR after 30 s.
RECOVERY_S = 180.0
#: A snapshot every few rounds.
SETTINGS = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "metadata.log.max.record.bytes.between.snapshots": "100000",
}


@dataclass(frozen=True)
class Round:
    """One fault: seconds until the cluster was well again, and the producer's longest wait."""

    fault: str
    recovery_s: float
    longest_wait_ms: int

    def __str__(self) -> str:
        return f"{self.fault:34} {self.recovery_s:6.1f} s {self.longest_wait_ms:8} ms"


class FaultyCluster:
    """The running cluster under load."""

    def __init__(
        self,
        quorum: MixedQuorum,
        ask: Driver,
        load: VerifiedLoad,
        links: NetworkLinks,
        live: LiveMetadata,
        disk: SmallDisk,
        slow_sync: Path,
        dice: random.Random,
    ) -> None:
        self.quorum = quorum
        self._ask = ask
        self.load = load
        self._links = links
        self._live = live
        self._disk = disk
        self._slow_sync = slow_sync
        self._dice = dice
        self._topics = 0
        #: The epochs of registrations that brokers had before they stopped.
        self._left_epochs: dict[int, int] = {}

    def faults(self) -> Iterator[Callable[[], None]]:
        """Yield faults for ever: each of them once in random order, and then again."""
        every = [
            self.broker_killed,
            self.broker_shut_down,
            self.brokers_restarted_in_turn,
            self.controllers_restarted_in_turn,
            self.leader_killed,
            self.leader_paused,
            self.leader_cut_off_from_controllers,
            self.leader_cut_off_from_brokers,
            self.disk_of_a_controller_full,
            self.disks_slow,
        ]
        while True:
            yield from self._dice.sample(every, len(every))

    def run(self, fault: Callable[[], None]) -> Round:
        """Cause one fault, and wait until the cluster is well."""
        fault()
        begin = time.monotonic()
        self.recover()
        recovery_s = time.monotonic() - begin
        self._create_topic()
        marked = self.load.ask("mark")
        return Round(fault.__name__.replace("_", " "), recovery_s, marked["longest_ms"])

    # -- the faults

    def broker_killed(self) -> None:
        broker = self._stopping(self._dice.choice(BROKERS))
        broker.kill()
        self._pause(0, 12)
        broker.start()

    def broker_shut_down(self) -> None:
        broker = self._stopping(self._dice.choice(BROKERS))
        broker.stop()
        self._pause(0, 5)
        broker.start()

    def brokers_restarted_in_turn(self) -> None:
        for id in BROKERS:
            broker = self._stopping(id)
            broker.stop()
            broker.start()
            self.recover()

    def _stopping(self, id: int) -> Node:
        """Return a broker that will stop now: it is well only once it has registered again."""
        self._left_epochs[id] = self._live.brokers[id].epoch
        return self.quorum.cluster.nodes[id]

    def controllers_restarted_in_turn(self) -> None:
        for id in CONTROLLERS:
            self.quorum.restart(id)
            self.recover()

    def leader_killed(self) -> None:
        leader = self._leader()
        leader.kill()
        self._pause(0, 6)
        leader.start()

    def leader_paused(self) -> None:
        process = self._leader().process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        self._pause(3, 8)
        process.send_signal(signal.SIGCONT)

    def leader_cut_off_from_controllers(self) -> None:
        """The brokers reach the old leader still, which steps down after a while."""
        self._cut(self._leader().id, CONTROLLERS)

    def leader_cut_off_from_brokers(self) -> None:
        self._cut(self._leader().id, BROKERS)

    def disk_of_a_controller_full(self) -> None:
        """A controller that cannot write ends."""
        node = self.quorum.kraft_node(SMALL_DISK)
        ballast = self._disk.from_outside / "ballast"
        fill(ballast, left_kib=0)
        process, node.process = node.process, None
        assert process is not None

        def has_ended() -> bool:
            # The last page of its log has room still.
            self._create_topic()
            return process.poll() is not None

        wait_for("the end of the controller", has_ended, RECOVERY_S)
        assert "No space left on device" in node.log.read_text()
        # Every other log must be without errors.
        node.log.rename(node.log.with_name("log-of-full-disk"))
        ballast.unlink()
        node.start()

    def disks_slow(self) -> None:
        self._slow_sync.write_text(str(self._dice.randrange(100, 1500)))
        self._pause(3, 10)
        self._slow_sync.unlink()

    # -- between the faults

    def recover(self) -> None:
        """Wait until the cluster is well."""
        wait_for("the brokers and replicas", self._is_well, RECOVERY_S)
        self.quorum.wait_until_all_have_all()

    def _is_well(self) -> bool:
        for node in self.quorum.cluster.nodes.values():
            node.check_running()
        with suppress(KraftError):
            self._live.poll()
        brokers, partitions = self._live.brokers, self._live.partitions
        are_registered = all(
            id in brokers
            and not brokers[id].fenced
            and brokers[id].epoch != self._left_epochs.get(id)
            for id in BROKERS
        )
        return are_registered and np.array_equal(partitions.isr_size(), partitions.replica_count())

    def _create_topic(self) -> None:
        """Check that the present leader serves the brokers' clients."""
        self._topics += 1
        topic = {"name": f"after-{self._topics}", "partitions": 3, **REPLICATED}
        wait_for("a topic", lambda: self._ask("create_topics", topics=[topic]) == 1, RECOVERY_S)

    def _leader(self) -> KraftNode:
        found = self.quorum.wait_until("a leader", lambda said: said.high_watermark > 0)
        return self.quorum.kraft_node(found.leader_id)

    def _cut(self, leader: int, others: tuple[int, ...]) -> None:
        for other in set(others) - {leader}:
            self._links.cut([(leader, other), (other, leader)])
        self._pause(3, 12)
        self._links.mend()

    def _pause(self, least_s: float, most_s: float) -> None:
        """Let the fault last."""
        time.sleep(self._dice.uniform(least_s, most_s))


@contextmanager
def faulty_cluster(directory: Path, seed: int) -> Iterator[FaultyCluster]:
    """Run three kraft controllers and three brokers of Apache Kafka 4.3.1 under load.

    Skips the test where no user namespace may mount a file system, or without a C compiler.
    """
    cluster = Cluster(kafka(KAFKA_4), directory, "ZmF1bHRzIG9mIGJyb2tlcg")
    slow_sync = directory / "slow-sync-ms"
    preloaded = {"LD_PRELOAD": str(_slow_library(directory)), "SLOW_SYNC": str(slow_sync)}
    proxies = dict(zip(CONTROLLERS, free_ports(len(CONTROLLERS)), strict=True))
    cluster.controller_ports = proxies
    cluster.settings |= SETTINGS
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(directory, _SMALL_DISK_MIB))
        stack.callback(cluster.kill)
        nodes = _add_controllers(cluster, disk, preloaded)
        links = NetworkLinks(proxies, {node.id: node.port for node in nodes})
        stack.enter_context(links)
        for id in BROKERS:
            broker = cluster.add_broker(id, RACKS[id])
            broker.settings.update(DEFAULTS_OF_BROKERS)
            broker.format(cluster.cluster_id, *cluster.broker_format())
        cluster.start()
        quorum = MixedQuorum(cluster)
        quorum.wait_for_leader(*CONTROLLERS)
        ask = cluster.driver()
        wait_for("all brokers", lambda: ask("brokers") == list(BROKERS))
        create_topics(ask)
        live = stack.enter_context(kraft.follow(",".join(node.address for node in nodes)))
        brokers = [cluster.nodes[id] for id in BROKERS]
        load = VerifiedLoad(cluster.jars, brokers, cluster.directory / "load.log")
        with load.process:
            yield FaultyCluster(
                quorum, ask, load, links, live, disk, slow_sync, random.Random(seed)
            )


def _add_controllers(
    cluster: Cluster, disk: SmallDisk, preloaded: dict[str, str]
) -> list[KraftNode]:
    """Add the controllers, which advertise their proxies, and format them."""
    voters = ",".join(
        f"{id}@{HOST}:{port}:{random_uuid()!s}" for id, port in cluster.controller_ports.items()
    )
    nodes = []
    for id, port in zip(CONTROLLERS, free_ports(len(CONTROLLERS)), strict=True):
        node = add_kraft_controller(cluster, id)
        node.settings["advertised.listeners"] = f"CONTROLLER://{node.address}"
        node.port = port
        node.settings["listeners"] = f"CONTROLLER://{node.address}"
        node.environment = preloaded
        if id == SMALL_DISK:
            node.program = disk.program
            node.settings["log.dirs"] = str(disk.at / "metadata")
            node.seen_from_outside = disk.from_outside / "metadata"
        node.format(cluster.cluster_id, "--initial-controllers", voters)
        nodes.append(node)
    return nodes


def _slow_library(directory: Path) -> Path:
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and a linker that preloads")
    library = directory / "slow_sync.so"
    source = Path(__file__).with_name("slow_sync.c")
    command = [*compiler.split(), "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library
