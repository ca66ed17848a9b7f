"""A KRaft cluster for the script: three controllers, kraft's or Apache Kafka's, and a fleet.

The brokers are those of `kraft.fleet`. A write is a change of the setting of one topic, whose
arrival the fleet times at every broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from kraft.admin import BlockingAdmin, ConfigChange, ConfigResourceType, TopicSpec
from kraft.admin.settings import AdminSettings, read_admin_settings
from kraft.errors import TOPIC_ALREADY_EXISTS, KraftError
from kraft.fleet.fleet import Fleet, FleetSettings
from kraft.fleet.own_quorum import OwnQuorum
from kraft.fleet.run import check_created
from kraft.fleet.trace import FleetRun, FleetTrace
from kraft.fleet.worker import MARKER_SETTING, MARKER_TOPIC
from kraft.generations.measures import Deadline, failover_measures
from kraft.generations.topics import topics_of
from kraft.network.quorum_client import QuorumClient
from kraft.server.local_quorum import LOOPBACK, LocalNode

#: Kafka's controllers reject a request that writes more records (10,000).
_RECORDS_PER_REQUEST = 9000
_POLL_S = 0.02
_LOOK_S = 0.02
_ATTEMPT_S = 2.0


class QuorumCluster:
    """Implements `script.GenerationCluster`. A context manager that ends everything."""

    def __init__(
        self,
        directory: Path,
        brokers: int,
        quorum: OwnQuorum,
        *,
        replication_factor: int,
        partitions_per_topic: int,
        seed: int,
    ) -> None:
        self._directory = directory
        self._quorum = quorum
        self._replication_factor = replication_factor
        self._partitions_per_topic = partitions_per_topic
        self._settings = FleetSettings(brokers, racks=min(3, brokers), seed=seed)
        self._partitions = 0
        self._marker = 0
        self._stack = ExitStack()
        self._admin_settings: AdminSettings
        self._cluster_id = ""
        self._trace: FleetTrace
        self._open_fleet: Fleet | None = None

    def __enter__(self) -> QuorumCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_fleet()
        self._stack.close()

    def _close_fleet(self) -> None:
        fleet, self._open_fleet = self._open_fleet, None
        if fleet is not None:
            fleet.close()

    @property
    def _fleet(self) -> Fleet:
        assert self._open_fleet is not None, "start opens it"
        return self._open_fleet

    def controller_processes(self) -> list[int]:
        return list(self._quorum.processes.values())

    # -- the steps

    def start(self, deadline: Deadline) -> None:
        self._stack.enter_context(self._quorum)
        self._admin_settings = read_admin_settings(self._quorum.bootstrap_controllers, None)
        with self._client() as client:
            self._cluster_id = client.describe_cluster().cluster_id
        run = FleetRun(
            "compare",
            self._quorum.label,
            len(self._quorum.nodes),
            self._settings.brokers,
            0,
            "compare",
            self._settings.seed,
            1,
        )
        self._trace = self._stack.enter_context(FleetTrace(self._directory / "fleet", run))
        self._open_brokers()
        self._fleet.start(self._settings.broker_ids, 0.0)
        self._await_unfenced(deadline)
        topic = TopicSpec(MARKER_TOPIC, 1, self._replication_factor)
        with BlockingAdmin(self._admin_settings) as admin:
            for result in admin.create_topics([topic]).values():
                if result.error is not None and result.error.kafka_code != TOPIC_ALREADY_EXISTS:
                    raise result.error
        self._expect(deadline)
        self._write()
        self._arrived(deadline)

    def _open_brokers(self) -> None:
        """Start the fleet's process, without its brokers."""
        self._open_fleet = Fleet(
            self._settings,
            self._cluster_id,
            self._quorum.bootstrap_controllers,
            self._directory / "brokers",
            self._trace,
        )

    def _client(self) -> QuorumClient:
        return QuorumClient(self._admin_settings.bootstrap_controllers)

    def _await_unfenced(self, deadline: Deadline) -> None:
        fleet = self._fleet
        wanted = fleet.settings.brokers - len(fleet.down)
        fleet.wait(
            lambda: len(fleet.unfenced) >= wanted,
            deadline.left_s(),
            lambda: f"{len(fleet.unfenced)} of {wanted} brokers are unfenced",
        )

    def create(self, partitions: int, deadline: Deadline) -> Mapping[str, float]:
        self._expect(deadline)
        batch: list[TopicSpec] = []
        records = 0
        begun = time.monotonic()
        with BlockingAdmin(self._admin_settings) as admin:
            for name, count in topics_of(partitions, self._partitions_per_topic):
                if records + count + 1 > _RECORDS_PER_REQUEST:
                    check_created(admin.create_topics(batch))
                    batch, records = [], 0
                    deadline.left_s()
                batch.append(TopicSpec(name, count, self._replication_factor))
                records += count + 1
            check_created(admin.create_topics(batch))
        # The last broker that has the write has everything before it.
        self._write()
        return {"known": self._arrived(deadline) - begun}

    def shut_down_broker(self, deadline: Deadline) -> Mapping[str, float]:
        fleet, id = self._fleet, self._settings.broker_ids[0]
        loss = fleet.stop([id])
        fleet.wait(
            lambda: id in fleet.down, deadline.left_s(), lambda: f"broker {id} may not stop yet"
        )
        answered = time.monotonic()
        fleet.wait(
            lambda: loss.is_over,
            deadline.left_s(),
            lambda: f"not every broker knows that broker {id} leads nothing",
        )
        return {
            "answered": answered - loss.begun_s,
            "known": max(loss.everywhere.values()) - loss.begun_s,
        }

    def crash_broker(self, deadline: Deadline) -> Mapping[str, float]:
        fleet, id = self._fleet, self._settings.broker_ids[-1]
        self._trace.step = "crash"
        loss = fleet.kill([id])
        fenced = self._trace.values.setdefault(("crash", "fenced_after"), [])
        fleet.wait(
            lambda: loss.is_over and bool(fenced),
            deadline.left_s(),
            lambda: f"not every broker knows that broker {id} leads nothing",
        )
        detected = fenced[-1] / 1000
        known = max(loss.everywhere.values()) - loss.begun_s - detected
        return {"detected": detected, "known": max(known, 0.0)}

    def bring_back(self, deadline: Deadline) -> None:
        fleet = self._fleet
        fleet.start(self._settings.broker_ids, 0.0)
        self._await_unfenced(deadline)
        while fleet.rows_out_of_sync(deadline.left_s()):
            fleet.pause(_POLL_S)

    def fail_over(self, deadline: Deadline) -> Mapping[str, float]:
        quorum = self._quorum
        killed = quorum.active(deadline.left_s())
        self._expect(deadline)
        begun = time.monotonic()
        quorum.kill(killed)
        watch = _LeaderWatch([node for node in quorum.nodes if node is not killed], killed.id)
        try:
            accepted = self._await_write(deadline)
            known = self._arrived(deadline)
        finally:
            watch.stop()
            quorum.start_node(killed)
        # The writes began when the killed node had ended: another one accepted it.
        return failover_measures(begun, watch.elected_s, accepted, known)

    def restart_all(self, deadline: Deadline) -> Mapping[str, float]:
        fleet = self._fleet
        # Controlled: a broker that was killed may only come back when its session has timed out.
        fleet.stop(self._settings.broker_ids)
        fleet.wait(
            lambda: len(fleet.down) == self._settings.brokers,
            deadline.left_s(),
            lambda: f"{self._settings.brokers - len(fleet.down)} brokers may not stop yet",
        )
        # New processes have no metadata.
        self._close_fleet()
        for node in self._quorum.nodes:
            self._quorum.kill(node)
        self._open_brokers()
        begun = time.monotonic()
        for node in self._quorum.nodes:
            self._quorum.start_node(node)
        self._fleet.start(self._settings.broker_ids, 0.0)
        self._await_unfenced(deadline)
        self._expect(deadline)
        self._await_write(deadline)
        return {"known": self._arrived(deadline) - begun}

    # -- writes

    def _expect(self, deadline: Deadline) -> None:
        """Let the fleet time the next write."""
        self._marker += 1
        self._fleet.expect_marker(self._marker, deadline.left_s())

    def _write(self) -> None:
        change = ConfigChange(MARKER_SETTING, str(self._marker))
        resource = (ConfigResourceType.TOPIC, MARKER_TOPIC)
        with BlockingAdmin(self._admin_settings) as admin:
            admin.incremental_alter_configs({resource: [change]}).all()

    def _await_write(self, deadline: Deadline) -> float:
        """Write until a controller accepts it; return when (monotonic clock)."""
        while True:
            try:
                self._write()
            except KraftError as error:
                try:
                    deadline.left_s()
                except KraftError as over:
                    raise over from error
                time.sleep(_POLL_S)
            else:
                return time.monotonic()

    def _arrived(self, deadline: Deadline) -> float:
        """Return when the last broker had the write (monotonic clock)."""
        arrivals = self._fleet.marker_arrivals(self._marker, deadline.left_s())
        return max(at_s for _, at_s in arrivals)


class _LeaderWatch:
    """Asks controllers in a thread until one of them leads; ``elected_s`` is when it answered."""

    def __init__(self, nodes: list[LocalNode], killed_id: int) -> None:
        self.elected_s: float | None = None
        self._addresses = [(LOOPBACK, node.port) for node in nodes]
        self._killed_id = killed_id
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            with (
                suppress(KraftError, OSError),
                QuorumClient(self._addresses, timeout_s=_ATTEMPT_S) as client,
            ):
                if client.describe_quorum().leader_id not in (-1, self._killed_id):
                    self.elected_s = time.monotonic()
                    return

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
