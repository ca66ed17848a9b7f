"""Brokers of Apache Kafka obey kraft's controller of their time, and clients use them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kraft.server.local_quorum import free_ports
from kraft.zookeeper import znodes
from kraft.zookeeper.administration import ZkAdmin
from kraft.zookeeper.controller_node import ZkControllerNode
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.port import CreateZnode, DeleteZnode
from kraft.zookeeper.server import LocalZooKeeper, ZooKeeperAddress
from kraft.zookeeper.settings import ZkControllerSettings, ZkEra
from kraft.zookeeper.znodes import PartitionStateZnode
from tests.harness.commands import eventually, logged
from tests.harness.configurations import write_configuration
from tests.harness.kafka_jars import KAFKA_0_8, KAFKA_1, zookeeper_era

pytestmark = [pytest.mark.interop, pytest.mark.zookeeper]

BROKERS = (1, 2, 3)
SESSION_MS = 6000
PATIENCE_S = 60
#: How often the role of the controller goes to a broker and back under load (`make zk-moves`).
MOVES = int(os.environ.get("ZK_MOVES", "0"))
#: Brokers of 0.8.2 and older tell no versions of their APIs, and close the connection.
OLD_CLIENT = {"api.version.request": False, "broker.version.fallback": KAFKA_0_8}


class KafkaBrokers:
    """Three brokers of a release, and two candidates of kraft for their controller."""

    def __init__(self, release: str, directory: Path, server: LocalZooKeeper) -> None:
        self.release = release
        is_old = release == KAFKA_0_8
        self.client = OLD_CLIENT if is_old else {}
        self.address = ZooKeeperAddress.parse(f"{server.endpoint}/kafka")
        self.controllers = [
            ZkControllerNode(
                id,
                self.address,
                era=ZkEra.V0_8 if is_old else ZkEra.V2018,
                settings=ZkControllerSettings(),
                session_timeout_ms=SESSION_MS,
            )
            for id in (1001, 1002)
        ]
        # Before the brokers, which are candidates too.
        self.controllers[0].start()
        eventually(lambda: self.controllers[0].is_active)
        self.admin_port = KazooPort(self.address)
        self.admin = ZkAdmin(self.admin_port)
        self.ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.directory = directory

    def start_all(self) -> None:
        for id in BROKERS:
            self.start(id)
        eventually(lambda: self.admin.controller().brokers == BROKERS)

    def start(self, id: int) -> None:
        home = self.directory / f"broker-{id}"
        home.mkdir(exist_ok=True)
        settings = {
            "broker.id": f"{id}",
            **self._listener(self.ports[id]),
            "zookeeper.connect": f"{self.address}",
            "zookeeper.session.timeout.ms": f"{SESSION_MS}",
            "log.dirs": f"{home / 'data'}",
            "log.cleaner.enable": "false",
            "num.network.threads": "1",
            "num.io.threads": "2",
            "background.threads": "1",
        }
        config = write_configuration(home, settings)
        command = zookeeper_era(self.release).command("kafka.Kafka", config)
        self.processes[id] = logged(command, home / "log")

    def _listener(self, port: int) -> dict[str, str]:
        if self.release == KAFKA_0_8:
            return {"host.name": "127.0.0.1", "port": f"{port}"}
        return {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}

    def state(self, topic: str, partition: int = 0) -> PartitionStateZnode:
        state = self.admin.describe([topic])[topic][partition].state
        assert state is not None
        return state

    def await_state(self, topic: str, leader: int | None, isr: set[int]) -> None:
        """Wait for an ISR, and for a leader, by default one of the ISR."""

        def settled() -> bool:
            state = self.admin.describe([topic])[topic][0].state
            leaders = isr if leader is None else {leader}
            return state is not None and state.leader in leaders and set(state.isr) == isr

        eventually(settled)

    def take_over(self, node: ZkControllerNode) -> None:
        """Let this candidate replace the broker that is the controller.

        A broker of 0.8.2.2 goes on as controller if it finds another in ``/controller`` before it
        finds that deleted (KAFKA-4447): it is killed, and started again.
        """
        if self.release != KAFKA_0_8:
            self._delete_controller(node)
            return
        killed = self.admin.controller().broker_id
        others = [process for id, process in self.processes.items() if id != killed]
        # They must not be elected either.
        for process in others:
            process.send_signal(signal.SIGSTOP)
        self.processes[killed].kill()
        self.processes[killed].wait()
        self.admin_port.run([DeleteZnode(znodes.CONTROLLER)])
        eventually(lambda: node.is_active)
        for process in others:
            process.send_signal(signal.SIGCONT)
        eventually(lambda: killed not in self.admin.controller().brokers)
        self.start(killed)
        eventually(lambda: set(self.state("t").isr) == set(BROKERS))

    def take_over_at_once(self, node: ZkControllerNode) -> None:
        """Let this candidate replace the controller while all brokers stand still for a moment."""
        for process in self.processes.values():
            process.send_signal(signal.SIGSTOP)
        try:
            self.admin_port.run([DeleteZnode(znodes.CONTROLLER)])
            eventually(lambda: node.is_active)
        finally:
            for process in self.processes.values():
                process.send_signal(signal.SIGCONT)

    def _delete_controller(self, node: ZkControllerNode) -> None:
        """Delete ``/controller`` until this candidate is elected."""

        def is_elected() -> bool:
            if not node.is_active:
                epoch = self.admin.controller().epoch
                self.admin_port.run([DeleteZnode(znodes.CONTROLLER)])
                eventually(lambda: self.admin.controller().epoch > epoch)
            return node.is_active

        eventually(is_elected)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.admin_port.close()
        for node in self.controllers:
            node.stop()


@pytest.fixture(params=[KAFKA_0_8, KAFKA_1])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaBrokers]:
    with LocalZooKeeper(tmp_path / "zookeeper", heap_mb=128) as server:
        made = KafkaBrokers(request.param, tmp_path, server)
        try:
            made.start_all()
            yield made
        finally:
            made.stop()


class Load:
    """Numbered records, all acknowledged with acks=all."""

    def __init__(self, cluster: KafkaBrokers, topic: str) -> None:
        self._client = {**cluster.client, "bootstrap.servers": cluster.bootstrap, "log_level": 0}
        self._producer = Producer({**self._client, "acks": "all", "message.timeout.ms": 60_000})
        self._topic = topic
        self.sent = 0

    def produce(self, count: int) -> None:
        failures: list[Any] = []
        for number in range(self.sent, self.sent + count):
            self._producer.produce(
                self._topic, b"%d" % number, partition=0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )  # fmt: skip
        assert self._producer.flush(PATIENCE_S) == 0
        assert failures == []
        self.sent += count

    def consume(self) -> list[int]:
        """Return the records of the partition, without a group."""
        consumer = Consumer({**self._client, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        found: list[int] = []

        def poll() -> bool:
            messages = consumer.consume(self.sent, timeout=0.5)
            found.extend(int(one.value()) for one in messages if not one.error())
            return len(found) >= self.sent

        eventually(poll)
        consumer.close()
        return found


def test_brokers_obey(cluster: KafkaBrokers) -> None:
    admin = cluster.admin
    data = znodes.TopicZnode({0: (1, 2, 3)}).encode()
    cluster.admin_port.run([CreateZnode(znodes.topic_path("t"), data)])
    cluster.await_state("t", 1, {1, 2, 3})
    load = Load(cluster, "t")
    load.produce(100)

    # kill -9 of the leader: another one leads when its session has ended.
    cluster.processes[1].kill()
    cluster.processes[1].wait()
    cluster.await_state("t", 2, {2, 3})
    load.produce(100)
    # The broker comes back, catches up, and joins the ISR.
    cluster.start(1)
    cluster.await_state("t", 2, {1, 2, 3})

    # A real broker takes over, and knows what kraft's controller wrote.
    cluster.controllers[0].stop()
    eventually(lambda: admin.controller().broker_id in BROKERS)
    load.produce(100)
    # And back: brokers follow the later epoch.
    cluster.controllers[1].start()
    cluster.take_over(cluster.controllers[1])
    cluster.admin_port.run(
        [CreateZnode(znodes.PREFERRED_ELECTION, znodes.encode_partitions([("t", 0)]))]
    )
    cluster.await_state("t", 1, {1, 2, 3})
    assert cluster.state("t").controller_epoch == admin.controller().epoch >= 3
    load.produce(100)

    # A controlled shutdown moves the leader before the broker ends.
    cluster.processes[1].terminate()
    cluster.processes[1].wait(PATIENCE_S)
    # In 0.8 the first of the ISR leads, in 1.1.1 the first replica that is in it.
    cluster.await_state("t", None if cluster.release == KAFKA_0_8 else 2, {2, 3})
    load.produce(100)
    assert load.consume() == list(range(500))

    # A reassignment away from broker 2: the leader writes the ISR, the controller ends it.
    cluster.start(1)
    eventually(lambda: admin.controller().brokers == BROKERS)
    wanted = znodes.encode_reassignment({("t", 0): [1, 3]})
    cluster.admin_port.run([CreateZnode(znodes.REASSIGN_PARTITIONS, wanted)])
    eventually(lambda: admin.describe(["t"])["t"][0].replicas == (1, 3))
    eventually(lambda: set(cluster.state("t").isr) == {1, 3})
    assert load.consume() == list(range(500))
    eventually(lambda: not (cluster.directory / "broker-2" / "data" / "t-0").exists())

    # Brokers delete the logs of a topic.
    admin.delete(["t"])
    eventually(lambda: "t" not in admin.topics())
    for id in BROKERS:
        eventually(
            lambda id=id: not (cluster.directory / f"broker-{id}" / "data" / "t-0").exists()  # type: ignore[misc]
        )


class LiveLoad:
    """Produces numbered records with acks=all in a thread, until its end; a context manager."""

    def __init__(self, cluster: KafkaBrokers, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self.acknowledged: list[int] = []
        self.failures: list[Any] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.002):
            self._producer.produce(
                self._topic, b"%d" % number, partition=0, on_delivery=self._delivered
            )
            number += 1
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error:
            self.failures.append(error)
        else:
            self.acknowledged.append(int(message.value()))

    def await_progress(self) -> None:
        """Wait until records are acknowledged that were not before."""
        before = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) > before + 20)

    def __enter__(self) -> LiveLoad:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(2 * PATIENCE_S) == 0


@pytest.mark.skipif(MOVES == 0, reason="make zk-moves")
@pytest.mark.timeout(300 + 60 * MOVES)
@pytest.mark.parametrize("cluster", [KAFKA_1], indirect=True)
def test_the_role_of_the_controller_moves_under_load(cluster: KafkaBrokers) -> None:
    admin, ours = cluster.admin, cluster.controllers[0]
    data = znodes.TopicZnode({0: (1, 2, 3)}).encode()
    cluster.admin_port.run([CreateZnode(znodes.topic_path("t"), data)])
    cluster.await_state("t", 1, {1, 2, 3})
    epochs = [admin.controller().epoch]
    with LiveLoad(cluster, "t") as load:
        for number in range(MOVES):
            ours.stop()
            eventually(lambda: admin.controller().broker_id in BROKERS)
            load.await_progress()
            ours.start()
            cluster.take_over_at_once(ours)
            # It acts: it moves the leader.
            wanted = BROKERS[number % 3 :] + BROKERS[: number % 3]
            moved = znodes.encode_reassignment({("t", 0): wanted})
            cluster.admin_port.run([CreateZnode(znodes.REASSIGN_PARTITIONS, moved)])
            eventually(lambda wanted=wanted: admin.describe(["t"])["t"][0].replicas == wanted)  # type: ignore[misc]
            elect = znodes.encode_partitions([("t", 0)])
            cluster.admin_port.run([CreateZnode(znodes.PREFERRED_ELECTION, elect)])
            cluster.await_state("t", wanted[0], {1, 2, 3})
            # An elected controller raises the epoch a moment later.
            epochs.append(admin.controller().epoch)
            load.await_progress()
    assert load.failures == []
    assert all(later >= before + 2 for before, later in pairwise(epochs))
    found = Load(cluster, "t")
    found.sent = len(load.acknowledged)
    # Nothing acknowledged is lost, nothing is there twice, and all is in order.
    assert found.consume() == sorted(load.acknowledged) == load.acknowledged
    print(
        f"\n{MOVES} moves both ways, controller epochs {epochs[0]} to {epochs[-1]}: "
        f"{found.sent} records acknowledged, none lost"
    )
