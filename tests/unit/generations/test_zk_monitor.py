"""The session that sees when znodes come and go."""

from __future__ import annotations

from kraft.generations.measures import Deadline
from kraft.generations.zk_cluster import ZkMonitor
from kraft.zookeeper.memory import MemoryZooKeeper
from kraft.zookeeper.port import CreateZnode, DeleteZnode, SetZnode, ZkOperation

LIMIT_S = 20.0


def test_a_znode_that_another_creates_at_once_is_gone_all_the_same() -> None:
    """A run of mode zk-0.8 waited for its whole time limit: the next controller was too fast."""
    server = MemoryZooKeeper()
    monitor, candidates = ZkMonitor(server.connect()), server.connect()
    candidates.run([CreateZnode("/controller", b"1")])
    replaced: list[int] = []

    def replace() -> None:
        if not replaced:
            replaced.append(len(candidates.run([DeleteZnode("/controller")])))
            candidates.run([CreateZnode("/controller", b"2")])

    monitor.await_znode("/controller", Deadline(LIMIT_S), exists=False, check=replace)
    assert replaced == [1]


def test_a_change_of_its_content_is_not_its_end() -> None:
    server = MemoryZooKeeper()
    monitor, candidates = ZkMonitor(server.connect()), server.connect()
    candidates.run([CreateZnode("/controller", b"1")])
    left: list[ZkOperation] = [SetZnode("/controller", b"2"), DeleteZnode("/controller")]

    def change() -> None:
        candidates.run([left.pop(0)])

    monitor.await_znode("/controller", Deadline(LIMIT_S), exists=False, check=change)
    assert left == []


def test_a_znode_that_comes() -> None:
    server = MemoryZooKeeper()
    monitor, candidates = ZkMonitor(server.connect()), server.connect()

    def create() -> None:
        candidates.run([CreateZnode("/state", b"")])

    monitor.await_znode("/state", Deadline(LIMIT_S), exists=True, check=create)
