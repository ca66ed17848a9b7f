"""`NetworkLinks` cuts one direction of the connections between two nodes, and no other client's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from kraft.protocol.api_versions import API_VERSIONS
from kraft.protocol.headers import request_frame
from kraft.server.local_quorum import LOOPBACK, free_ports
from tests.harness.network_links import NetworkLinks

pytestmark = pytest.mark.nodes

ANSWER = b"the answer"
_SHORT_S, _LONG_S = 0.3, 60.0


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """Run node 2, which answers each request; yield the ports of its proxy and its own."""
    proxy, node = free_ports(2)
    with closing(socket.create_server((LOOPBACK, node))) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer_all, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield proxy, node
        server.shutdown(socket.SHUT_RDWR)


def answer_all(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as requests:
        while size := requests.read(4):
            requests.read(int.from_bytes(size, "big"))
            connection.sendall(ANSWER)


class Caller:
    def __init__(self, port: int, client_id: str) -> None:
        self.socket = socket.create_connection((LOOPBACK, port), timeout=_LONG_S)
        self.frame = request_frame(API_VERSIONS, 0, 1, client_id, b"")

    def send(self) -> None:
        self.socket.sendall(self.frame)

    def has_answer(self, within_s: float = _LONG_S) -> bool:
        self.socket.settimeout(within_s)
        try:
            return self.socket.recv(len(ANSWER)) == ANSWER
        except TimeoutError:
            return False


@pytest.mark.parametrize("link", [(1, 2), (2, 1)])
@pytest.mark.parametrize("is_connected", [True, False])
def test_bytes_of_a_cut_link_arrive_once_it_is_mended(
    ports: tuple[int, int], link: tuple[int, int], is_connected: bool
) -> None:
    with NetworkLinks({2: ports[0]}, {2: ports[1]}) as links:
        caller, client = Caller(ports[0], "raft-client-1"), Caller(ports[0], "admin-1")
        with caller.socket, client.socket:
            if is_connected:
                caller.send()
                assert caller.has_answer()
            links.cut({link})
            caller.send()
            client.send()
            assert client.has_answer()
            assert not caller.has_answer(_SHORT_S)
            links.mend()
            assert caller.has_answer()


def test_a_cut_link_leaves_the_other_links(ports: tuple[int, int]) -> None:
    with NetworkLinks({2: ports[0]}, {2: ports[1]}) as links:
        links.cut({(3, 2), (2, 3)})
        caller = Caller(ports[0], "raft-client-1")
        with caller.socket:
            caller.send()
            assert caller.has_answer()


def test_a_connection_to_a_stopped_node_ends(ports: tuple[int, int]) -> None:
    (closed,) = free_ports(1)
    with NetworkLinks({2: ports[0]}, {2: closed}):
        caller = Caller(ports[0], "raft-client-1")
        with caller.socket:
            caller.send()
            with suppress(ConnectionResetError):
                assert caller.socket.recv(1) == b""


def test_a_proxy_of_one_caller_needs_no_client_id(ports: tuple[int, int]) -> None:
    proxy, node = ports
    with NetworkLinks({2: proxy}, {2: node}, knows_senders=False) as links:
        # Too short for a request with a client id.
        caller = Caller(proxy, "")
        caller.frame = b"\0\0\0\1x"
        caller.send()
        assert caller.has_answer()
        links.cut([(None, 2)])
        caller.send()
        assert not caller.has_answer(_SHORT_S)
        links.mend()
        assert caller.has_answer()
        caller.socket.settimeout(_LONG_S)
        links.disconnect(2)
        with caller.socket:
            assert caller.socket.recv(1) == b""
        with closing(socket.create_connection((LOOPBACK, proxy), timeout=_LONG_S)) as again:
            again.sendall(caller.frame)
            assert again.recv(len(ANSWER)) == ANSWER
