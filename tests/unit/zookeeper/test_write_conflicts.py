"""Each write of a failover meets a znode that is gone, changed or there, or has no parent.

The writes are those that a new controller of the era carries out, found by a failover that is
recorded. Before one of them another program interferes, and soon it repairs what it broke. The
controller copes, or resigns and names the znode; afterwards the cluster is as without the conflict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from kraft.zookeeper import znodes
from kraft.zookeeper.port import CreateZnode, DeleteZnode, GetZnode, SetZnode, ZkOperation, ZkWrite
from kraft.zookeeper.settings import ZkEra
from kraft.zookeeper.znodes import PartitionStateZnode
from tests.unit.zookeeper.failovers import before_failover, check_settled, outcome
from tests.unit.zookeeper.simulated import SimulatedZkCluster

#: How many calls of candidates the conflict lasts.
CALLS = 40
SLOW = ("slow", 0)


class Conflict(NamedTuple):
    """What another program does before a write: the n-th write of this kind and path."""

    era: ZkEra
    kind: type[ZkWrite]
    path: str
    #: gone, changed, exists, child, or no parent.
    what: str

    def __str__(self) -> str:
        return f"{self.era} {self.kind.__name__} {self.path} {self.what}"


def prepared(era: ZkEra) -> SimulatedZkCluster:
    """Return a cluster before a failover; one of its reassignments cannot end in it."""
    cluster = before_failover(era)
    (request,) = cluster.admin.run([GetZnode(znodes.REASSIGN_PARTITIONS)])
    wanted = znodes.decode_reassignment(request.data)
    # Broker 4 does not catch up: the request stays.
    wanted[SLOW] = (4, 3)
    cluster.admin.run([SetZnode(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment(wanted))])
    data = znodes.TopicZnode({0: (2, 3)}).encode()
    state = PartitionStateZnode(2, 0, (2, 3), 1).encode()
    topic = [CreateZnode(znodes.topic_path("slow"), data)]
    topic += [
        CreateZnode(path) for path in (znodes.partitions_path("slow"), znodes.partition_path(*SLOW))
    ]
    topic += [CreateZnode(znodes.state_path(*SLOW), state)]
    assert all(one.is_ok for one in cluster.admin.run(topic))
    return cluster


def fail_over(cluster: SimulatedZkCluster) -> None:
    cluster.server.expire(cluster.sessions[0].session_id)
    cluster.run(for_ms=5000, most_events=3000)


def writes_of_a_failover(era: ZkEra) -> tuple[list[tuple[type[ZkWrite], str]], object]:
    """Return the writes of the second candidate, each once, and the outcome."""
    cluster = prepared(era)
    writes: dict[tuple[type[ZkWrite], str], None] = {}

    def note(operations: Sequence[object]) -> None:
        for one in operations:
            if isinstance(one, CreateZnode | SetZnode | DeleteZnode):
                writes[type(one), one.path] = None

    cluster.sessions[1].before_run = note
    fail_over(cluster)
    assert cluster.active is cluster.controllers[1]
    return list(writes), outcome(cluster)


def conflicts_of(era: ZkEra) -> list[Conflict]:
    found = []
    for kind, path in WRITES[era][0]:
        if kind is CreateZnode:
            whats = ["exists"] if path == znodes.CONTROLLER else ["exists", "no parent"]
        elif kind is SetZnode:
            whats = ["gone", "changed", "no parent"]
            if path == znodes.CONTROLLER_EPOCH:
                # Without it the epochs begin again, in Kafka too.
                whats = ["changed"]
        else:
            whats = ["gone", "child"]
        found += [Conflict(era, kind, path, what) for what in whats]
    return found


WRITES = {era: writes_of_a_failover(era) for era in ZkEra}


class Interference:
    """The other program, and how it repairs what it did."""

    def __init__(self, cluster: SimulatedZkCluster, conflict: Conflict) -> None:
        self.is_done = False
        self._cluster = cluster
        self._conflict = conflict
        self._session = cluster.server.connect()
        #: What it deleted, parents first, with the sessions of ephemeral znodes.
        self._deleted: list[tuple[str, bytes, int]] = []
        self._calls = 0
        self._is_repaired = False
        for index, session in enumerate(cluster.sessions):
            session.before_run = lambda some, index=index: self._before(index, some)  # type: ignore[misc]

    def _before(self, index: int, operations: Sequence[ZkOperation]) -> None:
        if self.is_done:
            self._calls += 1
            if self._calls == CALLS:
                self.repair()
            return
        conflict = self._conflict
        if index == 1:
            for one in operations:
                if type(one) is conflict.kind and one.path == conflict.path:
                    self.is_done = True
                    self._interfere(one)
                    return

    def _interfere(self, write: ZkWrite) -> None:
        path = self._conflict.path
        match self._conflict.what:
            case "exists":
                assert isinstance(write, CreateZnode)
                names = path.split("/")[1:-1]
                for count in range(1, len(names) + 1):
                    # The controller creates missing parents in the same batch.
                    self._session.run([CreateZnode("/" + "/".join(names[:count]))])
                made = CreateZnode(path, write.data, is_ephemeral=write.is_ephemeral)
                assert self._session.run([made])[0].is_ok
            case "changed":
                # The same content: only its version differs.
                same = SetZnode(path, self._cluster.server.data(path))
                assert self._session.run([same])[0].is_ok
            case "gone":
                self._delete(path)
            case "child":
                self._session.run([CreateZnode(f"{path}/child")])
            case _:
                self._delete(path.rpartition("/")[0])

    def _delete(self, top: str) -> None:
        paths = [
            path
            for path in self._cluster.server.paths()
            if path == top or path.startswith(f"{top}/")
        ]
        for path in paths:
            (found,) = self._cluster.admin.run([GetZnode(path)])
            self._deleted.append((path, found.data, found.owner))
        for path in reversed(paths):
            assert self._session.run([DeleteZnode(path)])[0].is_ok

    def has_deleted(self, path: str) -> bool:
        return any(path == one for one, _, _ in self._deleted)

    def repair(self) -> None:
        """End the session with what it created, and create what is missing of what it deleted."""
        if self._is_repaired:
            return
        self._is_repaired = True
        cluster, conflict = self._cluster, self._conflict
        self._session.run([DeleteZnode(f"{conflict.path}/child")])
        # A deletion that the controller wanted too stays.
        for path, data, owner in self._deleted if conflict.kind is not DeleteZnode else ():
            sessions = {
                broker.session.session_id: broker.session
                for broker in cluster.brokers.values()
                if broker.session is not None
            }
            if not owner:
                cluster.admin.run([CreateZnode(path, data)])
            elif owner in sessions:
                sessions[owner].run([CreateZnode(path, data, is_ephemeral=True)])
        self._session.close()


@pytest.mark.parametrize("conflict", [one for era in ZkEra for one in conflicts_of(era)], ids=str)
def test_a_write_conflicts(conflict: Conflict, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    cluster = prepared(conflict.era)
    interference = Interference(cluster, conflict)
    fail_over(cluster)
    assert interference.is_done
    interference.repair()
    cluster.run(for_ms=5000)
    (active,) = [one for one in cluster.controllers if one.is_active]
    if "controller 102 resigns in epoch 2" in caplog.text:
        named = (conflict.path, "controller epoch 1 was raised by another controller")
        assert any(one in caplog.text for one in named), caplog.text
        assert active.context.epoch > 2
    for session in cluster.sessions:
        session.before_run = lambda operations: None
    # What was lost is found again by the next controller.
    cluster.delete(znodes.CONTROLLER)
    cluster.run(for_ms=5000)
    check_settled(cluster)
    if conflict.what not in ("gone", "no parent") or conflict.kind is DeleteZnode:
        assert outcome(cluster) == WRITES[conflict.era][1]
    # The request to move a topic that is gone goes too.
    is_lost = interference.has_deleted(znodes.topic_path("slow"))
    assert cluster.exists(znodes.REASSIGN_PARTITIONS) != is_lost
    assert not cluster.exists(znodes.delete_topic_path("gone"))
    # The topic that was deleted already came back without its request.
    is_back = interference.has_deleted(znodes.topic_path("gone")) and (
        conflict.kind is not DeleteZnode
    )
    assert cluster.exists(znodes.topic_path("gone")) == is_back
