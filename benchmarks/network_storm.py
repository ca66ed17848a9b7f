"""Brokers that connect at once with mutual TLS: a process of its own, started by the benchmark.

``python -m benchmarks.network_storm`` reads lines of JSON: a `Plan`, then one line for each round.
A round drops all connections, opens one a broker, sends a heartbeat on each, and prints a `Round`.

A broker's figure is how long it waited for the controller: from its request for a connection, its
first bytes and its heartbeat, each until the answer arrived at this machine. The kernel notes the
arrival (SO_TIMESTAMPNS). A connection that the controller closes is opened again, and all of its
time counts. A thousand handshakes of clients take as long as those of the controller,
on the same cores, where real brokers have cores of their own: that work, and the time in which an
arrived answer waits for it, count in ``seconds`` only.
"""

from __future__ import annotations

import json
import selectors
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.network_clients import LightBroker
from kraft.network.controller_connection import Address
from kraft.protocol.broker_heartbeat import (
    BROKER_HEARTBEAT,
    BrokerHeartbeatRequestData,
    BrokerHeartbeatResponseData,
)
from kraft.protocol.headers import read_response_header, request_frame
from kraft.server.config.key_stores import read_client_security
from kraft.server.descriptors import raise_soft_limit

TIMEOUT_S = 120.0
# Linux's number of the option, and of its control message.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")
_RECEIVE_SIZE = 64 * 1024
_ESTABLISHED = 1


@dataclass
class Plan:
    """The controller, the settings of the connections, the version, and (id, epoch) of brokers."""

    address: Address
    security: dict[str, str]
    version: int
    brokers: list[tuple[int, int]]


@dataclass
class Round:
    """The seconds until every broker had its response; how long each waited for the controller;
    the CPU seconds of this process; the brokers whose response says that they are fenced, or that
    carries an error.
    """

    seconds: float
    waited_s: list[float]
    own_cpu_s: float
    fenced: int


class Storm:
    """The process of the brokers, from the benchmark's side; a context manager."""

    def __init__(self, plan: Plan) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.network_storm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        self._say(json.dumps(asdict(plan)))

    def round(self) -> Round:
        """Drop all connections and open them again."""
        self._say("")
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of the reconnecting brokers ended")
        return Round(**json.loads(line))

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


class _Connection:
    """A broker's connection, from its request for one to the response to its heartbeat."""

    def __init__(
        self, address: Address, tls: ssl.SSLContext, heartbeat: bytes, waited_s: float = 0.0
    ) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=address[0])
        self.heartbeat = heartbeat
        self._is_open = False
        self._received = b""
        self._arrived_s = 0.0
        self.waited_before_s = self.waited_s = waited_s
        self.begun_s = self._sent_s = time.time()
        self.socket.connect_ex(address)

    @property
    def is_established(self) -> bool:
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return info[0] == _ESTABLISHED

    def begin(self, *, has_waited: bool) -> None:
        """Send the first bytes; ``has_waited``: the connection was not made at once."""
        if has_waited:
            self._arrived_s = time.time()
            self._end_wait()
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self._send()

    def go_on(self, *, has_waited: bool) -> bytes | None:
        """Take the next step; return the response to the heartbeat, once it is there."""
        if not has_waited:
            return self._read()
        self.begin(has_waited=True)
        return None

    def _read(self) -> bytes | None:
        """Take what has arrived; return the response to the heartbeat, once it is there."""
        data, notes, _, _ = self.socket.recvmsg(_RECEIVE_SIZE, socket.CMSG_SPACE(_TIMESPEC.size))
        if not data:
            raise ConnectionResetError("the controller closed the connection")
        (_, _, arrived), *_ = notes
        seconds, nanoseconds = _TIMESPEC.unpack(arrived)
        self._arrived_s = seconds + nanoseconds / 1e9
        self._incoming.write(data)
        if not self._is_open:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return None
            self._is_open = True
            self._end_wait()
            self._tls.write(self.heartbeat)
            self._send()
        with suppress(ssl.SSLWantReadError):
            while True:
                self._received += self._tls.read(_RECEIVE_SIZE)
        size = int.from_bytes(self._received[:4], "big")
        if len(self._received) < 4 + size or not size:
            return None
        self._end_wait()
        return self._received[4:]

    def _end_wait(self) -> None:
        self.waited_s += max(0.0, self._arrived_s - self._sent_s)

    def _send(self) -> None:
        data = self._outgoing.read()
        self._sent_s = time.time()
        assert self.socket.send(data) == len(data)


class Brokers:
    """The connections of all brokers, in this process."""

    def __init__(self, plan: Plan, tls: ssl.SSLContext) -> None:
        self._plan = plan
        self._tls = tls
        self._connections: list[_Connection] = []

    def play(self) -> Round:
        """Replace all connections by new ones, with a heartbeat on each."""
        for connection in self._connections:
            connection.socket.close()
        begin, cpu_s = time.perf_counter(), time.process_time()
        waited: list[float] = []
        fenced = 0
        self._connections = [self._open(*broker) for broker in self._plan.brokers]
        with selectors.DefaultSelector() as selector:
            for connection in self._connections:
                _watch(selector, connection)
            while selector.get_map():
                if time.perf_counter() - begin > TIMEOUT_S:
                    raise TimeoutError(f"{len(selector.get_map())} brokers have no response")
                for key, events in selector.select(1.0):
                    connection = key.data
                    try:
                        response = connection.go_on(has_waited=bool(events & selectors.EVENT_WRITE))
                    except OSError:
                        selector.unregister(connection.socket)
                        self._open_again(selector, connection)
                        continue
                    selector.modify(connection.socket, selectors.EVENT_READ, connection)
                    if response is not None:
                        selector.unregister(connection.socket)
                        waited.append(connection.waited_s)
                        fenced += _is_fenced(response, self._plan.version)
        seconds = time.perf_counter() - begin
        return Round(seconds, waited, time.process_time() - cpu_s, fenced)

    def _open(self, id: int, epoch: int) -> _Connection:
        version = self._plan.version
        body = BrokerHeartbeatRequestData(id, epoch, epoch).encode(version)
        frame = request_frame(BROKER_HEARTBEAT, version, 1, "kraft-bench", body)
        return _Connection(self._plan.address, self._tls, frame)

    def _open_again(self, selector: selectors.BaseSelector, closed: _Connection) -> None:
        closed.socket.close()
        self._connections.remove(closed)
        waited_s = closed.waited_before_s + time.time() - closed.begun_s
        again = _Connection(self._plan.address, self._tls, closed.heartbeat, waited_s)
        self._connections.append(again)
        _watch(selector, again)


def _watch(selector: selectors.BaseSelector, connection: _Connection) -> None:
    """Send the first bytes of an established connection; wait for any other."""
    event = selectors.EVENT_WRITE
    if connection.is_established:
        connection.begin(has_waited=False)
        event = selectors.EVENT_READ
    selector.register(connection.socket, event, connection)


def _is_fenced(frame: bytes, version: int) -> bool:
    _, body_at = read_response_header(frame, BROKER_HEARTBEAT, version)
    said = BrokerHeartbeatResponseData.decode(frame, version, body_at)
    return bool(said.error_code) or said.is_fenced


def plan_of(
    address: Address, security: dict[str, str], version: int, brokers: Sequence[LightBroker]
) -> Plan:
    return Plan(address, security, version, [(broker.id, broker.epoch) for broker in brokers])


def main() -> None:
    raise_soft_limit()
    given = json.loads(sys.stdin.readline())
    plan = Plan(**given | {"address": tuple(given["address"])})
    tls = read_client_security(plan.security, Path("client.properties")).tls
    assert tls is not None
    brokers = Brokers(plan, tls)
    for _ in sys.stdin:
        print(json.dumps(asdict(brokers.play())), flush=True)


if __name__ == "__main__":
    main()
