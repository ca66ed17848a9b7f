"""Light brokers make the controllers write what brokers of Apache Kafka make them write.

One scenario runs with three brokers of Apache Kafka 4.3.1 and with three light brokers, on a
controller of kraft and on one of Kafka: start, topics created, a broker killed, its return, a
controlled shutdown, its end, topics deleted. After each step the cluster comes to rest. The four
committed metadata logs have the same records in the same order, step by step, but for:

- `NoOp` records: they depend on the time only;
- ids and epochs that are drawn or are offsets: incarnations, directories, topics, broker epochs;
  a directory or topic is named by its order of appearance, an epoch is left out;
- a second record that fences a stopped broker: both controllers write it when the session of the
  broker would have ended, if the broker has not returned by then;
- the ports of endpoints, and the highest levels of features: a light broker supports kraft's, some
  of which are Kafka 4.4's;
- the order of partitions among `PartitionChange` records that follow each other: several leaders
  propose ISRs at a time, and Kafka's may split what they propose;
- the order of an ISR's members, which Kafka's leaders keep in a hash set;
- the place of the record of a returned broker's cordoned directories, which come with the heartbeat
  10 ms after the broker has caught up, or, if its logs are loaded by then, with the one that asks
  for service.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest

from kraft import records
from kraft.admin import BlockingAdmin, connect_blocking
from kraft.admin.topics import TopicSpec
from kraft.fleet.fleet_process import FleetProcess
from kraft.fleet.worker import WorkerPlan
from kraft.metadata.identifiers import random_uuid
from kraft.network.quorum_client import QuorumClient
from kraft.records import Record, Uuid
from tests.harness.kafka_jars import Jars, kafka
from tests.harness.metadata_files import read_log
from tests.interop.cluster import HOST, Cluster, Node
from tests.interop.kraft_node import add_kraft_controller, run_by_kafka, run_by_kraft

pytestmark = pytest.mark.interop

CONTROLLER = 101
CLUSTER_ID = "a3JhZnQgZmlkZWxpdHkgIA"
RACKS = {1: "a", 2: "b", 3: "c"}
TOPICS = {
    "three": {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2], 3: [3, 2, 1], 4: [1, 3, 2]},
    "two": {0: [1, 2], 1: [2, 3], 2: [3, 1]},
    "one": {0: [1], 1: [2], 2: [3]},
}
#: A pause of a busy machine fences no broker, and no replica lags before its broker is fenced.
CONTROLLER_SETTINGS = {
    "broker.session.timeout.ms": "9000",
    # A leader moves only where the scenario moves it.
    "auto.leader.rebalance.enable": "false",
}
BROKER_SETTINGS = {
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "60000",
}
PATIENCE_S = 90.0


Kind = Literal["kafka", "light"]
KINDS: tuple[Kind, ...] = ("kafka", "light")
KINDS_OF_QUORUM = ("kafka", "kraft")


class Brokers(Protocol):
    """The brokers 1 to 3 of a cluster."""

    def start(self, id: int) -> None: ...

    def kill(self, id: int) -> None: ...

    def stop(self, id: int) -> None:
        """Begin a controlled shutdown."""

    def close(self) -> None: ...


class KafkaBrokers:
    """Brokers of Apache Kafka with one log directory and one listener."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes: dict[int, Node] = {}
        for id, rack in RACKS.items():
            node = cluster.add_broker(id, rack)
            node.settings |= BROKER_SETTINGS | {
                "listeners": f"PLAINTEXT://{HOST}:{node.port}",
                "log.dirs": str(node.directory / "data-0"),
            }
            # kraft formats the directories: the tool of Kafka needs a JVM for each.
            run_by_kraft(cluster, node).format(CLUSTER_ID)
            self._nodes[id] = run_by_kafka(cluster, node)

    def start(self, id: int) -> None:
        self._nodes[id].start()

    def kill(self, id: int) -> None:
        self._nodes[id].kill()

    def stop(self, id: int) -> None:
        self._nodes[id].stop()

    def close(self) -> None:
        """Leave the processes to the cluster, which ends them."""


class LightBrokers:
    """Light brokers in one process of the fleet."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        plan = WorkerPlan(
            CLUSTER_ID,
            address,
            [(id, rack, [str(random_uuid())]) for id, rack in RACKS.items()],
            heartbeat_interval_ms=float(BROKER_SETTINGS["broker.heartbeat.interval.ms"]),
            lag_ms=float(BROKER_SETTINGS["replica.lag.time.max.ms"]),
        )
        self._process = FleetProcess(0, plan, cluster.directory, lambda number, line: None)

    def start(self, id: int) -> None:
        self._process.send(do="start", brokers=[id], spread_ms=0.0, at_once=0, is_held=False)

    def kill(self, id: int) -> None:
        self._process.send(do="die", brokers=[id])

    def stop(self, id: int) -> None:
        self._process.send(do="stop", brokers=[id])

    def close(self) -> None:
        self._process.end()


class Run:
    """One run of the scenario: what the controller wrote in each step."""

    def __init__(self, jars: Jars, directory: Path, quorum: str, brokers: Kind) -> None:
        self._cluster = Cluster(jars, directory, CLUSTER_ID, is_static=True)
        self._cluster.reserve_controllers(CONTROLLER)
        add = add_kraft_controller if quorum == "kraft" else Cluster.add_controller
        self._controller: Node = add(self._cluster, CONTROLLER, **CONTROLLER_SETTINGS)
        directory.mkdir(parents=True)
        self._kind = brokers
        self._steps: list[tuple[str, int]] = []

    def play(self) -> dict[str, list[Any]]:
        """Run the scenario; return the records of each step."""
        self._controller.format(CLUSTER_ID)
        try:
            self._controller.start()
            self._controller.wait_until_listening()
            with connect_blocking(self._controller.address) as admin:
                self._play(admin)
        finally:
            self._cluster.kill()
        return self._written()

    def _play(self, admin: BlockingAdmin) -> None:
        brokers: Brokers = (
            KafkaBrokers(self._cluster)
            if self._kind == "kafka"
            else LightBrokers(self._cluster, self._controller.address)
        )

        def state() -> tuple[set[int], bool]:
            """Return the brokers in service, and whether all replicas are in sync."""
            metadata = admin.read_metadata()
            rows = [
                each
                for topic in metadata.topics.values()
                for each in metadata.partitions.rows(topic.rows)
            ]
            return (
                {id for id, each in metadata.brokers.items() if not each.fenced},
                all(set(each.isr) == set(each.replicas) for each in rows),
            )

        try:
            self._await("bootstrap", lambda: CONTROLLER in admin.read_metadata().controllers)
            for id in RACKS:
                brokers.start(id)
                self._await(f"start {id}", lambda id=id: state() == ({*range(1, id + 1)}, True))  # type: ignore[misc]
            for name, places in TOPICS.items():
                admin.create_topics([TopicSpec(name, assignments=places)]).all()
            self._await("create topics", lambda: state() == ({1, 2, 3}, True))
            brokers.kill(3)
            self._await("kill", lambda: state()[0] == {1, 2})
            brokers.start(3)
            self._await("come back", lambda: state() == ({1, 2, 3}, True))
            brokers.stop(2)
            self._await("controlled shutdown", lambda: state()[0] == {1, 3})
            brokers.start(2)
            self._await("return", lambda: state() == ({1, 2, 3}, True))
            for name in TOPICS:
                # Kafka's controller deletes those of one request in the order of a hash map.
                admin.delete_topics([name]).all()
            self._await("delete topics", lambda: not admin.read_metadata().topics)
        finally:
            brokers.close()

    def _await(self, step: str, is_over: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_over():
            assert time.monotonic() < deadline, f"{self._kind}: step {step} is not over"
            time.sleep(0.1)
        # What the brokers send when they learn of the state, such as a last heartbeat.
        time.sleep(0.5)
        self._note(step)

    def _note(self, step: str) -> None:
        with QuorumClient([(HOST, self._controller.port)]) as client:
            self._steps.append((step, client.describe_quorum().high_watermark))

    def _written(self) -> dict[str, list[Any]]:
        names, fencing = Names(), Fencing()
        log = list(read_log(self._controller.metadata_directory / "__cluster_metadata-0"))
        written: dict[str, list[Any]] = {}
        for (_, begin), (step, end) in zip(self._steps, self._steps[1:], strict=False):
            some = [one.record for one in log if begin <= one.offset < end and not one.is_control]
            written[step] = in_order(names.shown(each) for each in some if fencing.keeps(each))
        return written


class Fencing:
    """The brokers that are fenced, to tell a record that fences one once more."""

    def __init__(self) -> None:
        self._fenced: set[int] = set()

    def keeps(self, record: Record) -> bool:
        """Return whether a record is compared; call it with each record of a log in turn."""
        if isinstance(record, records.NoOp):
            return False
        if isinstance(record, records.RegisterBroker):
            self._fenced.add(record.broker_id)
        elif isinstance(record, records.BrokerRegistrationChange):
            if record.fenced == 1 and record.broker_id in self._fenced:
                return False
            change = {1: self._fenced.add, -1: self._fenced.discard}.get(record.fenced)
            if change is not None:
                change(record.broker_id)
        return True


def in_order(shown: Iterable[tuple[str, Any]]) -> list[Any]:
    """Sort partitions where `PartitionChange` records follow each other.

    The record of a broker's cordoned directories follows its registration.
    """
    every = list(shown)
    cordons = [each for each in every if is_cordon(each)]
    shown = []
    for each in every:
        if not is_cordon(each):
            shown.append(each)
        if each[0] == "RegisterBroker":
            shown += [one for one in cordons if one[1]["broker_id"] == each[1]["broker_id"]]
    assert len(shown) == len(every), every
    found: list[Any] = []
    for kind, some in groupby(shown, key=lambda each: each[0]):
        group = list(some)
        if kind == "PartitionChange":
            # A stable sort: several changes of one partition keep their order.
            group.sort(key=lambda each: (each[1]["topic_id"], each[1]["partition_id"]))
        found += group
    return found


def is_cordon(shown: tuple[str, Any]) -> bool:
    """Return whether a record changes a broker's cordoned directories and nothing else."""
    kind, fields = shown
    changed = kind == "BrokerRegistrationChange" and fields["cordoned_log_dirs"] is not None
    return changed and not fields["fenced"] and not fields["in_controlled_shutdown"]


class Names:
    """Names drawn ids by the order in which they appear in a log."""

    def __init__(self) -> None:
        self._ids: dict[Uuid, str] = {}

    def _name(self, value: Any) -> Any:
        if isinstance(value, Uuid):
            return self._ids.setdefault(value, f"id {len(self._ids)}")
        if isinstance(value, list):
            return [self._name(each) for each in value]
        return value

    def shown(self, record: Record) -> tuple[str, dict[str, Any]]:
        """Return the type of a record and its fields, without times, epochs and ports."""
        shown: dict[str, Any] = {"version": record.version}
        names: tuple[str, ...] = type(record).__match_args__
        for field in names:
            value = getattr(record, field)
            if field in ("broker_epoch", "incarnation_id"):
                continue
            if field == "end_points":
                value = [(each.name, each.host, each.security_protocol) for each in value]
            elif field == "features":
                value = sorted((each.name, each.min_supported_version) for each in value)
            elif field == "isr" and value is not None:
                value = sorted(value)
            shown[field] = self._name(value)
        return type(record).__name__, shown


@pytest.mark.timeout(400)
def test_the_log_does_not_tell_light_brokers_from_kafkas(tmp_path: Path) -> None:
    jars = kafka()
    with ThreadPoolExecutor(4) as runs:
        # They mostly wait, for JVMs to start and for the session of the killed broker to end.
        running = {
            (quorum, kind): runs.submit(Run(jars, tmp_path / quorum / kind, quorum, kind).play)
            for quorum in KINDS_OF_QUORUM
            for kind in KINDS
        }
        written = {which: run.result() for which, run in running.items()}
    expected = written["kafka", "kafka"]
    for which, steps in written.items():
        assert list(steps) == list(expected)
        for step, log in steps.items():
            assert log == expected[step], (which, step)
    kinds = [kind for log in expected.values() for kind, _ in log]
    # Three starts and two returns.
    assert kinds.count("RegisterBroker") == 5
    assert kinds.count("RemoveTopic") == len(TOPICS)
    # The two brokers leave ISRs and lead no longer, and both come back.
    changed = {
        step: [kind for kind, _ in log].count("PartitionChange") for step, log in expected.items()
    }
    assert changed["kill"] == changed["controlled shutdown"] == 8
    assert changed["come back"] >= 8
    assert changed["return"] >= 8
