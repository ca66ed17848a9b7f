"""Many operations in one packet: their bytes, and how the driver splits and repeats packets."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, UnimplementedError
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData, Transaction
from kazoo.security import OPEN_ACL_UNSAFE

from kraft.errors import ZooKeeperError
from kraft.zookeeper import kazoo_port
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.memory import MemorySession, MemoryZooKeeper
from kraft.zookeeper.packets import Multi, MultiRead
from kraft.zookeeper.port import (
    CheckZnode,
    CreateZnode,
    DeleteZnode,
    FindZnode,
    GetZnode,
    ListZnodes,
    SetZnode,
    ZkCode,
    ZkOperation,
    ZkResult,
)
from kraft.zookeeper.server import ZooKeeperAddress

STAT = struct.pack(">qqqqiiiqiiq", 7, 8, 0, 0, 3, 0, 0, 5, 1, 0, 8)


def header(type: int, error: int = 0, *, is_end: bool = False) -> bytes:
    return struct.pack(">i?i", type, is_end, error)


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_a_transaction_has_the_bytes_of_kazoos() -> None:
    operations = [
        CreateZnode("/a", b"x"),
        CreateZnode("/a/s-", b"", is_ephemeral=True, is_sequential=True),
        SetZnode("/ä", b"y", 4),
        DeleteZnode("/a", 2),
        CheckZnode("/b", 9),
    ]
    theirs = Transaction(
        [
            Create("/k/a", b"x", OPEN_ACL_UNSAFE, 0),
            Create("/k/a/s-", b"", OPEN_ACL_UNSAFE, 3),
            SetData("/k/ä", b"y", 4),
            Delete("/k/a", 2),
            CheckVersion("/k/b", 9),
        ]
    )
    assert Multi(operations, "/k").serialize() == bytes(theirs.serialize())
    assert Multi.type == Transaction.type


def test_results_of_a_transaction() -> None:
    reply = b"".join(
        [
            *(b"head", header(1), sized(b"/k/a/s-0000000000")),
            *(header(5), STAT, header(2), header(13)),
            *(header(-1, -103), struct.pack(">i", -103)),
            *(header(-1, 0), struct.pack(">i", 0), header(-1, -2), struct.pack(">i", -2)),
            header(-1, -1, is_end=True),
        ]
    )
    assert Multi((), "/k").deserialize(reply, 4) == [
        ZkResult(ZkCode.OK, path="/a/s-0000000000"),
        ZkResult(ZkCode.OK, b"", 3, 7, 5),
        ZkResult(ZkCode.OK),
        ZkResult(ZkCode.OK),
        ZkResult(ZkCode.BAD_VERSION),
        ZkResult(ZkCode.ROLLED_BACK),
        ZkResult(ZkCode.ROLLED_BACK),
    ]


def test_bytes_and_results_of_reads() -> None:
    read = MultiRead([GetZnode("/a"), ListZnodes("/")], "/k")
    assert read.serialize() == b"".join(
        [
            *(header(4, -1), sized(b"/k/a"), b"\0"),
            *(header(8, -1), sized(b"/k"), b"\0"),
            header(-1, -1, is_end=True),
        ]
    )
    reply = b"".join(
        [
            *(header(4), sized(b"data"), STAT, header(-1, -101), struct.pack(">i", -101)),
            *(header(4), struct.pack(">i", -1), STAT),
            *(header(8), struct.pack(">i", 2), sized(b"b"), sized(b"a")),
            header(-1, -1, is_end=True),
        ]
    )
    assert read.deserialize(reply, 0) == [
        ZkResult(ZkCode.OK, b"data", 3, 7, 5),
        ZkResult(ZkCode.NO_NODE),
        ZkResult(ZkCode.OK, b"", 3, 7, 5),
        ZkResult(ZkCode.OK, children=("a", "b")),
    ]


def test_an_unexpected_error_of_an_operation_is_named() -> None:
    reply = header(-1, -5) + struct.pack(">i", -5) + header(-1, -1, is_end=True)
    with pytest.raises(ZooKeeperError, match="error -5"):
        MultiRead((), "").deserialize(reply, 0)


class Client:
    """What the driver uses of kazoo, over the stand-in. ``failures`` are raised first."""

    def __init__(self) -> None:
        self.client_id = (1, b"")
        self.chroot = ""
        self.connected = True
        self.server = MemoryZooKeeper()
        self.session: MemorySession = self.server.connect()
        #: The operations of each packet, and None for a request of kazoo's own.
        self.packets: list[int | None] = []
        self.failures: list[Exception] = []
        #: Called before each packet of several operations.
        self.on_packet = lambda: None
        self.handler = SimpleNamespace(async_result=Pending)

    def add_listener(self, listen: object) -> None:
        pass

    def _call(self, request: MultiRead | Multi, pending: Pending) -> None:
        self.on_packet()
        operations: Any = request._operations
        self.packets.append(len(operations))
        if self.failures:
            pending.error = self.failures.pop(0)
        elif isinstance(request, MultiRead):
            pending.found = self.session.run(operations)
        else:
            pending.found = self.session.multi(operations)


class Pending:
    found: object = None
    error: Exception | None = None

    def wait(self, timeout_s: float) -> bool:
        return True

    def get(self) -> object:
        if self.error is not None:
            raise self.error
        return self.found


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()

    def send(port: KazooPort, operation: ZkOperation) -> ZkResult:
        made.packets.append(None)
        return made.session.run([operation])[0]

    monkeypatch.setattr(kazoo_port, "open_client", lambda *_, **__: made)
    monkeypatch.setattr(kazoo_port, "close_client", lambda client: None)
    monkeypatch.setattr(KazooPort, "_send", send)
    monkeypatch.setattr(KazooPort, "_result", lambda port, operation, result: result)
    return made


@pytest.fixture
def port(client: Client) -> KazooPort:
    return KazooPort(ZooKeeperAddress.parse("127.0.0.1:1"))


def creates(*names: str) -> list[ZkOperation]:
    return [CreateZnode(f"/{name}", name.encode()) for name in names]


def test_reads_and_writes_of_many_znodes_are_few_packets(client: Client, port: KazooPort) -> None:
    names = [f"{number}" for number in range(2500)]
    results = port.run([*creates(*names), *(GetZnode(f"/{name}") for name in names)])
    assert [one.path for one in results[:2500]] == [f"/{name}" for name in names]
    assert [one.data for one in results[2500:]] == [name.encode() for name in names]
    assert client.packets == [1000, 1000, 500] * 2


def test_a_packet_keeps_below_the_servers_limit(client: Client, port: KazooPort) -> None:
    large = b"x" * (100 << 10)
    port.run([CreateZnode(f"/{number}", large) for number in range(5)])
    assert client.packets == [2, 2, 1]
    port.run([CreateZnode(f"/large-{number}", large * 3) for number in range(2)])
    assert client.packets[3:] == [1, 1]


def test_what_sets_a_watch_or_is_alone_has_its_own_packet(client: Client, port: KazooPort) -> None:
    port.run(creates("a"))
    results = port.run([GetZnode("/a", True), FindZnode("/a"), GetZnode("/a"), *creates("b")])
    assert [one.code for one in results] == [ZkCode.OK] * 4
    assert client.packets == [None] * 5


def test_a_failure_splits_a_transaction(client: Client, port: KazooPort) -> None:
    port.run(creates("c"))
    client.packets.clear()
    results = port.run(creates("a", "b", "c", "d", "e"))
    assert [one.code for one in results] == [*[ZkCode.OK] * 2, ZkCode.NODE_EXISTS, *[ZkCode.OK] * 2]
    assert client.packets == [5, 2, None, 2]
    # Each in its turn: the second of two writes of a znode finds the version of the first.
    results = port.run([SetZnode("/a", b"1", 0), SetZnode("/a", b"2", 0), SetZnode("/a", b"3", 1)])
    assert [one.code for one in results] == [ZkCode.OK, ZkCode.BAD_VERSION, ZkCode.OK]
    assert client.server.data("/a") == b"3"


def test_failures_far_apart_split_each_their_transaction(client: Client, port: KazooPort) -> None:
    failing = [f"{number}" for number in (500, 2600, 4700, 6800)]
    port.run(creates(*failing))
    client.packets.clear()
    names = [f"{number}" for number in range(7000)]
    results = port.run(creates(*names))
    found = [name for name, one in zip(names, results, strict=True) if not one.is_ok]
    assert found == failing
    assert client.packets.count(None) == len(failing)


def test_what_another_session_changes_during_a_split(client: Client, port: KazooPort) -> None:
    port.run(creates("c"))
    other = client.server.connect()

    def create_a() -> None:
        if len(client.packets) == 1:
            other.run(creates("a"))

    client.packets.clear()
    client.on_packet = create_a
    results = port.run(creates("a", "b", "c"))
    assert [one.code for one in results] == [ZkCode.NODE_EXISTS, ZkCode.OK, ZkCode.NODE_EXISTS]
    assert client.packets == [3, 2, None, None, None]


def test_many_failures_end_transactions(client: Client, port: KazooPort) -> None:
    names = [f"{number}" for number in range(20)]
    port.run(creates(*names))
    client.packets.clear()
    results = port.run(creates(*names, "new"))
    assert [one.code for one in results] == [*[ZkCode.NODE_EXISTS] * 20, ZkCode.OK]
    assert client.packets == [21, None, 20, None, 19, None, 18, None, *[None] * 17]


def test_a_lost_connection_repeats_the_packet(client: Client, port: KazooPort) -> None:
    client.failures = [ConnectionLoss()]
    assert [one.code for one in port.run(creates("a", "b"))] == [ZkCode.OK] * 2
    client.failures = [ConnectionLoss()]
    assert [one.data for one in port.run([GetZnode("/a"), GetZnode("/b")])] == [b"a", b"b"]
    assert client.packets == [2] * 4


def test_servers_before_3_6_get_reads_one_by_one(client: Client, port: KazooPort) -> None:
    port.run(creates("a", "b"))
    client.packets.clear()
    client.failures = [UnimplementedError()]
    reads = [GetZnode("/a"), GetZnode("/b")]
    for _ in range(2):
        assert [one.data for one in port.run(reads)] == [b"a", b"b"]
    assert client.packets == [2, *[None] * 4]
