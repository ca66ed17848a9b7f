"""A cluster of the ZooKeeper era for the script: ZooKeeper, two candidates, light brokers.

The parent has a session of its own, by which it creates topics and sees when a znode comes or goes:
watches report that without polling. A write is the creation of a topic of one partition; the
controller accepts it when it writes the partition's first leader.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from kraft.errors import KraftError
from kraft.generations.candidates import Candidate
from kraft.generations.light_processes import ZkLightBrokers
from kraft.generations.measures import Deadline, failover_measures
from kraft.generations.topics import TOPIC_PREFIX, topics_of
from kraft.generations.zk_worker import Knowledge
from kraft.zookeeper import znodes
from kraft.zookeeper.administration import ZkAdmin
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.port import FindZnode, GetZnode, ZkEvent, ZooKeeperPort
from kraft.zookeeper.server import LocalZooKeeper, ZooKeeperAddress
from kraft.zookeeper.znodes import ControllerZnode

#: Ids of controllers, above all brokers', and below Kafka's reserved.broker.max.id of 1000.
FIRST_CANDIDATE_ID = 901
_LOOK_S = 0.005
_NO_LEADER = -1


class ZkMonitor:
    """A session that creates topics and reports when znodes come and go."""

    def __init__(self, port: ZooKeeperPort) -> None:
        self._port = port
        self._port.on_event = self._changed
        self._changes = threading.Event()
        self.admin = ZkAdmin(self._port)

    def _changed(self, event: ZkEvent) -> None:
        self._changes.set()

    def controller(self) -> int:
        """Return the id of the active controller, -1 without one."""
        (found,) = self._port.run([GetZnode(znodes.CONTROLLER)])
        return ControllerZnode.decode(found.data).broker_id if found.is_ok else -1

    def await_znode(
        self, path: str, deadline: Deadline, *, exists: bool, check: Callable[[], None]
    ) -> float:
        """Return the time of the monotonic clock at which a znode exists, or exists no more.

        A znode that was created again exists no more: another controller may do so before this
        session looks. ``check`` is called meanwhile; it raises what ends the wait.
        """
        first: int | None = None
        while True:
            self._changes.clear()
            (found,) = self._port.run([FindZnode(path, watch=True)])
            if first is None and found.is_ok:
                first = found.created_zxid
            if found.is_ok == exists or (not exists and found.created_zxid != first):
                return time.monotonic()
            while not self._changes.wait(min(0.5, deadline.left_s())):
                check()

    def close(self) -> None:
        self._port.close()


class ZkCluster:
    """Implements `script.GenerationCluster`. A context manager that ends everything.

    ``candidates`` makes the processes of the candidates for an address. ``is_0_8``: they are of
    Kafka 0.8, and so are the light brokers.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int,
        *,
        candidates: Callable[[str, Path], Sequence[Candidate]],
        replication_factor: int,
        partitions_per_topic: int,
        session_timeout_ms: int,
        seed: int,
        is_0_8: bool = False,
    ) -> None:
        self._directory = directory
        self._replication_factor = replication_factor
        self._partitions_per_topic = partitions_per_topic
        self._session_timeout_ms = session_timeout_ms
        self._seed = seed
        self._is_0_8 = is_0_8
        self._server = LocalZooKeeper(directory / "zookeeper", heap_mb=1024)
        self._candidates = candidates(self._server.endpoint, directory)
        racks = min(3, brokers)
        self._lights = ZkLightBrokers(
            brokers, racks, self._server.endpoint, session_timeout_ms, directory, is_0_8=is_0_8
        )
        self._monitor: ZkMonitor | None = None
        self._stack = ExitStack()
        #: The partitions of the cluster.
        self._partitions = 0
        self._writes = 0

    def __enter__(self) -> ZkCluster:
        self._stack.callback(self._close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _close(self) -> None:
        # Brokers first: their sessions end without waiting for a controller.
        self._lights.close()
        for candidate in self._candidates:
            candidate.kill()
        if self._monitor is not None:
            self._monitor.close()
        self._server.stop()

    @property
    def _zookeeper(self) -> ZkMonitor:
        assert self._monitor is not None, "start opens it"
        return self._monitor

    def _check(self) -> None:
        for candidate in self._candidates:
            candidate.check()

    def controller_processes(self) -> list[int]:
        pids = [each.pid for each in self._candidates]
        if self._server.process is not None:
            pids.append(self._server.process.pid)
        return [pid for pid in pids if pid is not None]

    # -- the steps

    def start(self, deadline: Deadline) -> None:
        self._lights.open(deadline)
        self._start_controllers(deadline)
        self._lights.start(self._lights.ids, deadline)
        token = self._write()
        self._lights.known(token, deadline)

    def _start_controllers(self, deadline: Deadline) -> None:
        self._server.start()
        self._monitor = ZkMonitor(
            KazooPort(
                ZooKeeperAddress.parse(self._server.endpoint),
                session_timeout_ms=self._session_timeout_ms,
                creates_chroot=True,
            )
        )
        for candidate in self._candidates:
            candidate.start()
        self._await(znodes.CONTROLLER, deadline, exists=True)
        for candidate in self._candidates:
            self._await_candidate(candidate, deadline)

    def _await(self, path: str, deadline: Deadline, *, exists: bool) -> float:
        return self._zookeeper.await_znode(path, deadline, exists=exists, check=self._check)

    def create(self, partitions: int, deadline: Deadline) -> Mapping[str, float]:
        self._partitions += partitions
        token = self._lights.expect(Knowledge(self._partitions, [_NO_LEADER]))
        begun = time.monotonic()
        for topic, count in topics_of(partitions, self._partitions_per_topic):
            self._create(topic, count)
            deadline.left_s()
        return {"known": self._lights.known(token, deadline) - begun}

    def _create(self, topic: str, partitions: int) -> None:
        self._seed += 1
        self._zookeeper.admin.create(
            topic,
            partitions,
            self._replication_factor,
            seed=self._seed,
            # Candidates of Apache Kafka are registered too, and get no replicas.
            brokers=self._lights.running,
        )

    def _write(self) -> int:
        """Create a topic of one partition; return the token for its arrival at all brokers."""
        self._writes += 1
        self._partitions += 1
        topic = self._written_topic
        token = self._lights.expect(Knowledge(topic=topic))
        self._create(topic, 1)
        return token

    @property
    def _written_topic(self) -> str:
        return f"{TOPIC_PREFIX}write-{self._writes}"

    def shut_down_broker(self, deadline: Deadline) -> Mapping[str, float]:
        id = self._lights.ids[0]
        token = self._lights.expect(Knowledge(absent=[id]))
        begun = time.monotonic()
        answered = self._lights.stop(id, deadline)
        known = self._lights.known(token, deadline)
        # A controller of this era does not see that a broker was gone if it is back already.
        gone = self._lights.expect(Knowledge(gone=[id]))
        self._lights.known(gone, deadline)
        found = {"known": known - begun}
        return found if answered is None else {"answered": answered - begun, **found}

    def crash_broker(self, deadline: Deadline) -> Mapping[str, float]:
        id = self._lights.ids[-1]
        begun = time.monotonic()
        self._lights.crash_last()
        token = self._lights.expect(Knowledge(absent=[id]))
        detected = self._await(znodes.broker_path(id), deadline, exists=False)
        known = self._lights.known(token, deadline)
        return {"detected": detected - begun, "known": max(known - detected, 0.0)}

    def bring_back(self, deadline: Deadline) -> None:
        self._lights.open(deadline)
        down = set(self._lights.ids) - self._lights.running
        self._lights.start(sorted(down), deadline)
        wanted = Knowledge(
            self._partitions,
            absent=[_NO_LEADER],
            in_sync=True,
            told_in_sync=not self._is_0_8,
        )
        token = self._lights.expect(wanted)
        self._lights.known(token, deadline)

    def fail_over(self, deadline: Deadline) -> Mapping[str, float]:
        killed = self._active()
        old_epoch = self._zookeeper.admin.controller().epoch
        begun = time.monotonic()
        killed.kill()
        token = self._write()
        state = znodes.state_path(self._written_topic, 0)
        detected = self._await(znodes.CONTROLLER, deadline, exists=False)
        accepted = self._await(state, deadline, exists=True)
        known = self._lights.known(token, deadline)
        (written,) = self._zookeeper.admin.describe([self._written_topic])[self._written_topic]
        if written.state is None or written.state.controller_epoch <= old_epoch:
            raise KraftError(f"controller {killed.id}, which was killed, accepted the write")
        killed.start()
        self._await_candidate(killed, deadline)
        return failover_measures(begun, detected, accepted, known)

    def _active(self) -> Candidate:
        id = self._zookeeper.controller()
        for candidate in self._candidates:
            if candidate.id == id:
                return candidate
        raise KraftError(f"the active controller is {id}, which is none of this run's")

    def _await_candidate(self, candidate: Candidate, deadline: Deadline) -> None:
        """Wait until a process that was started is a candidate."""
        if candidate.is_broker:
            self._await(znodes.broker_path(candidate.id), deadline, exists=True)
            return
        while not candidate.has_session():
            candidate.check()
            deadline.left_s()
            time.sleep(_LOOK_S)

    def restart_all(self, deadline: Deadline) -> Mapping[str, float]:
        for candidate in self._candidates:
            candidate.kill()
        # Without a controller no ISR shrinks: all brokers come back as they were.
        self._lights.end_all(deadline)
        self._await(znodes.CONTROLLER, deadline, exists=False)
        for candidate in self._candidates:
            self._await(znodes.broker_path(candidate.id), deadline, exists=False)
        self._zookeeper.close()
        self._monitor = None
        self._server.stop()
        begun = time.monotonic()
        self._start_controllers(deadline)
        self._lights.start(self._lights.ids, deadline)
        token = self._lights.expect(Knowledge(self._partitions, absent=[_NO_LEADER]))
        return {"known": self._lights.known(token, deadline) - begun}
