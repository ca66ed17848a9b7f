"""The channels to brokers over real sockets: order, repetition, brokers that hang or disappear."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kraft.errors import CorruptRecordError
from kraft.server.local_quorum import free_ports
from kraft.zookeeper.broker_channels import SocketChannels
from kraft.zookeeper.broker_requests import (
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from kraft.zookeeper.controller_rpcs import VERSIONS_0_8, decode_request, encode_response
from kraft.zookeeper.frames import RequestServer, read_frame
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress

PATIENCE_S = 60.0
Answered = tuple[int, BrokerRequest, BrokerResponse]


class Channels:
    """Channels of controller 7, and a queue of the answers."""

    def __init__(self) -> None:
        self.answers: queue.Queue[Answered] = queue.Queue()
        self.channels = SocketChannels(7, lambda *answer: self.answers.put(answer))
        self.brokers: dict[int, BrokerZnode] = {}

    def open(self, broker: int, port: int) -> None:
        self.brokers[broker] = BrokerZnode(broker, (ListenerAddress("127.0.0.1", port),))
        self.channels.set_brokers(self.brokers)

    def send(self, broker: int, number: int) -> None:
        self.channels.send(broker, StopReplica(7, 1, True, [("t", number)]))

    def next(self) -> tuple[int, list[tuple[str, int]]]:
        broker, _, response = self.answers.get(timeout=PATIENCE_S)
        assert response.error == 0
        return broker, list(response.partitions)


@pytest.fixture
def channels() -> Iterator[Channels]:
    made = Channels()
    yield made
    made.channels.stop()


def obey(key: int, version: int, body: memoryview) -> bytes:
    request = decode_request(key, version, body)
    assert isinstance(request, StopReplica)
    return encode_response(
        request, version, BrokerResponse(0, dict.fromkeys(request.partitions, 0))
    )


def test_requests_arrive_in_order(channels: Channels) -> None:
    server = RequestServer(0, obey, name="broker")
    channels.open(1, server.port)
    for number in range(20):
        channels.send(1, number)
    assert [channels.next() for _ in range(20)] == [(1, [("t", number)]) for number in range(20)]
    server.stop()


def test_a_request_is_repeated_until_the_broker_answers(channels: Channels) -> None:
    (port,) = free_ports(1)
    channels.open(1, port)
    channels.send(1, 0)
    seen: list[BrokerRequest] = []

    def fail_once(key: int, version: int, body: memoryview) -> bytes:
        seen.append(decode_request(key, version, body))
        if len(seen) == 1:
            raise CorruptRecordError("planted")
        return obey(key, version, body)

    # It listens only now, and then closes the first connection.
    server = RequestServer(port, fail_once, name="broker")
    assert channels.next() == (1, [("t", 0)])
    assert len(seen) == 2
    assert seen[0] == seen[1]
    server.stop()


def test_a_broker_that_hangs_delays_no_other(channels: Channels) -> None:
    released = threading.Event()

    def hang(key: int, version: int, body: memoryview) -> bytes:
        released.wait(PATIENCE_S)
        return obey(key, version, body)

    hanging, other = RequestServer(0, hang, name="hangs"), RequestServer(0, obey, name="other")
    channels.open(1, hanging.port)
    channels.open(2, other.port)
    channels.send(1, 0)
    channels.send(2, 1)
    assert channels.next() == (2, [("t", 1)])
    released.set()
    assert channels.next() == (1, [("t", 0)])
    hanging.stop()
    other.stop()


def test_a_broker_that_is_gone_gets_nothing_more(channels: Channels) -> None:
    server = RequestServer(0, obey, name="broker")
    (port,) = free_ports(1)
    channels.open(1, port)
    channels.send(1, 0)
    # Nothing listens there. It registers again elsewhere: the old request is dropped.
    channels.open(1, server.port)
    channels.send(1, 1)
    assert channels.next() == (1, [("t", 1)])
    channels.channels.set_brokers({})
    channels.send(1, 2)
    channels.open(1, server.port)
    channels.send(1, 3)
    assert channels.next() == (1, [("t", 3)])
    server.stop()


def test_a_broker_without_a_plaintext_listener_is_reported(
    channels: Channels, caplog: pytest.LogCaptureFixture
) -> None:
    secured = BrokerZnode(1, (ListenerAddress("s", 9093, "IN", "SSL"),))
    channels.channels.set_brokers({1: secured})
    channels.send(1, 0)
    assert "broker 1 has no PLAINTEXT listener, only IN://s:9093" in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -5),
        struct.pack(">i", 1 << 30) + b"x",
        struct.pack(">i", 4) + b"abcd",
        struct.pack(">ihhih", 10, 5, 0, 1, 500),
        struct.pack(">ihhih", 10, 18, 0, 1, -1),
    ],
)
def test_a_server_disconnects_malformed_requests(sent: bytes) -> None:
    server = RequestServer(0, obey, name="broker")
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as connection:
        connection.sendall(sent)
        received = b""
        # A reset, if it closes with unread bytes; then there may be no connection to shut down.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            received = connection.recv(1)
        assert received == b""
    server.stop()


def test_a_controlled_shutdown_of_0_8_has_no_client_id() -> None:
    seen: list[tuple[int, int, bytes]] = []

    def answer(key: int, version: int, body: memoryview) -> bytes:
        seen.append((key, version, bytes(body)))
        return b"answered"

    server = RequestServer(0, answer, name="controller")
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as connection:
        connection.sendall(struct.pack(">ihhii", 12, 7, 0, 41, 70_000))
        connection.sendall(struct.pack(">ihhihci", 15, 7, 1, 42, 1, b"c", 3))
        frames = [read_frame(connection) for _ in range(2)]
    assert [None if one is None else bytes(one) for one in frames] == [
        struct.pack(">i", correlation) + b"answered" for correlation in (41, 42)
    ]
    assert seen == [(7, 0, struct.pack(">i", 70_000)), (7, 1, struct.pack(">i", 3))]
    server.stop()


def test_channels_of_0_8_send_its_versions() -> None:
    seen: queue.Queue[tuple[int, int]] = queue.Queue()

    def answer(key: int, version: int, body: memoryview) -> bytes:
        seen.put((key, version))
        return encode_response(decode_request(key, version, body), version, BrokerResponse(0, {}))

    server = RequestServer(0, answer, name="broker")
    channels = SocketChannels(7, lambda *answer: None, VERSIONS_0_8)
    channels.set_brokers({1: BrokerZnode(1, (ListenerAddress("127.0.0.1", server.port),))})
    channels.send(1, LeaderAndIsr(7, 1, {}, []))
    channels.send(1, UpdateMetadata(7, 1, {}, []))
    assert [seen.get(timeout=PATIENCE_S) for _ in range(2)] == [(4, 0), (6, 0)]
    channels.stop()
    server.stop()
