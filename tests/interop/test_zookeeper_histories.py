"""Generated histories: the stand-in for ZooKeeper answers and reports as the real server.

A history is a sequence of operations of three sessions on few znodes, so that conflicts are common;
sessions expire in between. HISTORIES sets the number of histories, SEED the first seed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.memory import MemorySession, MemoryZooKeeper
from kraft.zookeeper.port import (
    CheckZnode,
    CreateZnode,
    DeleteZnode,
    FindZnode,
    GetZnode,
    ListZnodes,
    SetZnode,
    ZkChange,
    ZkEvent,
    ZkOperation,
    ZkResult,
    ZkSessionExpiredError,
    ZkTransactionPart,
    ZooKeeperPort,
)
from kraft.zookeeper.server import LocalZooKeeper, ZooKeeperAddress
from tests.harness.commands import eventually

pytestmark = [pytest.mark.interop, pytest.mark.zookeeper]

HISTORIES = int(os.environ.get("HISTORIES", "80"))
SEED = int(os.environ.get("SEED", "1"))
OPERATIONS = 30
SESSIONS = 3
NAMES = ("a", "b", "a/c", "a/d", "b/c")

Seen = ZkEvent | str
Part = ZkOperation | CheckZnode


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    with LocalZooKeeper(tmp_path_factory.mktemp("zookeeper"), heap_mb=128) as started:
        yield started


class Side:
    """Three sessions of one implementation, and what they were told in this history."""

    def __init__(self, ports: list[ZooKeeperPort], expire: Callable[[int], None]) -> None:
        self.ports = ports
        self.expire = expire
        self.seen: list[list[Seen]] = [[] for _ in ports]
        for index, port in enumerate(ports):
            self._listen(index, port)

    def _listen(self, index: int, port: ZooKeeperPort) -> None:
        def see(event: ZkEvent) -> None:
            # The connection breaks before the session is known to have ended.
            if event.change != ZkChange.UNKNOWN:
                self.seen[index].append(event)

        port.on_event = see
        port.on_expired = lambda: self.seen[index].append("expired")

    def begin(self) -> None:
        self.seen = [[] for _ in self.ports]

    def plain(self, result: ZkResult) -> tuple[object, ...]:
        """Return what both must agree on: not the transactions' numbers, nor session ids."""
        ids = [0, *(port.session_id for port in self.ports)]
        owner = ids.index(result.owner) if result.owner in ids else "an old session"
        return (
            result.code,
            result.data,
            result.version,
            owner,
            result.children,
            result.path,
        )


def generated(choices: random.Random, root: str) -> ZkOperation:
    path = f"{root}/{choices.choice(NAMES)}"
    version = choices.choice((-1, -1, 0, 1))
    data = b"%d" % choices.randrange(5)
    watch = choices.random() < 0.5
    kinds: list[ZkOperation] = [
        CreateZnode(path, data),
        CreateZnode(path, data, is_ephemeral=True),
        CreateZnode(path, data, is_ephemeral=choices.random() < 0.5, is_sequential=True),
        SetZnode(path, data, version),
        SetZnode(path, data, version),
        DeleteZnode(path, version),
        DeleteZnode(path, version),
        GetZnode(path, watch),
        FindZnode(path, watch),
        ListZnodes(path, watch),
        ListZnodes(root, watch),
    ]
    return choices.choice(kinds)


def generated_parts(choices: random.Random, root: str) -> list[ZkTransactionPart]:
    parts: list[ZkTransactionPart] = []
    while len(parts) < 3:
        operation = generated(choices, root)
        if isinstance(operation, CreateZnode | SetZnode | DeleteZnode):
            parts.append(operation)
        elif isinstance(operation, GetZnode):
            parts.append(CheckZnode(operation.path, choices.choice((-1, 0, 1))))
    return parts


def run_history(seed: int, sides: tuple[Side, Side]) -> None:
    choices = random.Random(seed)
    root = f"/h{seed}"
    for side in sides:
        side.begin()
        side.ports[0].run([CreateZnode(root)])
    history: list[object] = []
    for _ in range(OPERATIONS):
        session = choices.randrange(SESSIONS)
        what = choices.random()
        if what < 0.01:
            history.append(("expire", session))
            compare_reports(sides, seed, history)
            for side in sides:
                side.begin()
                side.expire(session)
            # The server deletes the ephemerals of a session in no particular order.
            compare_reports(sides, seed, history, in_order=False)
            for side in sides:
                side.begin()
            continue
        if what < 0.15:
            parts = generated_parts(choices, root)
            history.append((session, parts))
            answers = [
                [side.plain(one) for one in side.ports[session].multi(parts)] for side in sides
            ]
        else:
            some = [generated(choices, root) for _ in range(choices.choice((1, 2, 3, 8)))]
            history.append((session, some))
            answers = [[side.plain(one) for one in side.ports[session].run(some)] for side in sides]
        assert answers[0] == answers[1], (seed, history)
    compare_reports(sides, seed, history)


def compare_reports(
    sides: tuple[Side, Side], seed: int, history: list[object], *, in_order: bool = True
) -> None:
    """Wait until both sides reported the same; they may still be on their way from the server."""

    def reports() -> tuple[list[list[Seen]], list[list[Seen]]]:
        first, second = (
            [list(one) if in_order else sorted(one, key=str) for one in side.seen] for side in sides
        )
        return first, second

    try:
        eventually(reports, until=lambda both: both[0] == both[1])
    except AssertionError as error:
        raise AssertionError((seed, history)) from error


def test_generated_histories(server: LocalZooKeeper) -> None:
    address = ZooKeeperAddress.parse(server.endpoint)
    # Longer than any pause of this machine: sessions end only where the history says so.
    kazoo_ports = [KazooPort(address, session_timeout_ms=40_000) for _ in range(SESSIONS)]

    def expire_real(index: int) -> None:
        port = kazoo_ports[index]
        client_id = port._client.client_id

        def steal() -> bool:
            # Another connection ends the session, as ZooKeeper's own tests do. The first may take
            # the session back before that: then once more.
            thief = KazooClient(server.endpoint, client_id=client_id)
            thief.start(30)
            thief.stop()
            thief.close()
            deadline = time.monotonic() + 5
            while "expired" not in real.seen[index] and time.monotonic() < deadline:
                time.sleep(0.01)
            return "expired" in real.seen[index]

        eventually(steal)
        with pytest.raises(ZkSessionExpiredError):
            port.run([FindZnode("/")])
        port.renew()

    memory_server = MemoryZooKeeper()
    sessions: list[MemorySession] = [memory_server.connect() for _ in range(SESSIONS)]

    def expire_memory(index: int) -> None:
        memory_server.expire(sessions[index].session_id)
        sessions[index].renew()

    real = Side(list(kazoo_ports), expire_real)
    memory = Side(list(sessions), expire_memory)
    for seed in range(SEED, SEED + HISTORIES):
        run_history(seed, (real, memory))
    for port in kazoo_ports:
        port.close()
