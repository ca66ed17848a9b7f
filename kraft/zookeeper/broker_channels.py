"""The controller's channels to brokers: a thread and a connection for each (plaintext only).

A sender delivers the requests of one broker in order, one at a time. It connects again and repeats
a request until the broker answers or is no longer registered, so that a broker that hangs delays no
other. Responses are put into the controller's queue.

Rules: ``ControllerChannelManager``, ``RequestSendThread`` of Kafka 1.1.1.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from kraft.errors import CorruptRecordError
from kraft.protocol.headers import read_response_header, request_frame
from kraft.zookeeper.broker_requests import BrokerRequest, OnResponse, UpdateMetadata
from kraft.zookeeper.controller_rpcs import (
    VERSIONS_1_1,
    RequestVersions,
    decode_response,
    encode_request,
    inter_broker_address,
)
from kraft.zookeeper.frames import read_frame
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress

_log = logging.getLogger(__name__)

#: Kafka's pause before a request is repeated, and ``controller.socket.timeout.ms``.
_PAUSE_S = 0.1
_TIMEOUT_S = 30.0


class SocketChannels:
    """Channels over sockets; implements `broker_requests.BrokerChannels`.

    ``on_response(broker, request, response)`` is called in the sender's thread with the answers to
    LeaderAndIsr and StopReplica. The other methods are called by one thread at a time.
    """

    def __init__(
        self,
        controller_id: int,
        on_response: OnResponse,
        versions: RequestVersions = VERSIONS_1_1,
    ) -> None:
        self._versions = versions
        self._client_id = f"{controller_id}"
        self._on_response = on_response
        self._senders: dict[int, _Sender] = {}
        # UpdateMetadata goes to all brokers: it is encoded once.
        self._encoded: tuple[BrokerRequest, _EncodedRequest] | None = None

    def set_brokers(self, brokers: Mapping[int, BrokerZnode]) -> None:
        """Open channels to new brokers; drop those to all others, with their requests."""
        for id in list(self._senders):
            if id not in brokers or self._senders[id].broker.listeners != brokers[id].listeners:
                self._senders.pop(id).stop()
        for id, broker in brokers.items():
            address = inter_broker_address(broker)
            if address is None:
                listeners = ", ".join(map(str, broker.listeners))
                _log.error("broker %d has no PLAINTEXT listener, only %s", id, listeners)
            elif id not in self._senders:
                self._senders[id] = _Sender(broker, address, self._client_id, self._on_response)

    def send(self, broker: int, request: BrokerRequest) -> None:
        """Queue a request."""
        sender = self._senders.get(broker)
        if sender is None:
            return
        if self._encoded is None or self._encoded[0] is not request:
            self._encoded = request, _EncodedRequest(request, self._versions)
        sender.put(self._encoded[1])

    def stop(self) -> None:
        """Drop all channels."""
        self.set_brokers({})


class _EncodedRequest:
    """A request and its bytes."""

    def __init__(self, request: BrokerRequest, versions: RequestVersions) -> None:
        self.request = request
        self.api, self.version, self.body = encode_request(request, versions)


class _Sender:
    """The thread and the connection of one broker."""

    def __init__(
        self,
        broker: BrokerZnode,
        address: ListenerAddress,
        client_id: str,
        on_response: OnResponse,
    ) -> None:
        self.broker = broker
        self._address = address
        self._client_id = client_id
        self._on_response = on_response
        self._changed = threading.Condition()
        self._queue: deque[_EncodedRequest] = deque()
        self._is_stopping = False
        self._connection: socket.socket | None = None
        self._correlation = 0
        name = f"controller-to-broker-{broker.id}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, request: _EncodedRequest) -> None:
        with self._changed:
            self._queue.append(request)
            self._changed.notify()

    def stop(self) -> None:
        """Drop the queue and the connection; does not wait for the thread."""
        with self._changed:
            self._is_stopping = True
            self._queue.clear()
            self._changed.notify()
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while (request := self._next()) is not None:
            self._deliver(request)
        self._disconnect()

    def _next(self) -> _EncodedRequest | None:
        with self._changed:
            while not self._queue and not self._is_stopping:
                self._changed.wait()
            return None if self._is_stopping else self._queue.popleft()

    def _deliver(self, encoded: _EncodedRequest) -> None:
        """Send a request until it is answered or the channel is dropped."""
        while not self._is_stopping:
            try:
                body = self._exchange(encoded)
                response = decode_response(encoded.api, encoded.version, body)
            except (OSError, CorruptRecordError) as error:
                _log.info("broker %d: %s is repeated: %s", self.broker.id, encoded.api.name, error)
                self._disconnect()
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopping, _PAUSE_S)
                continue
            if not self._is_stopping and not isinstance(encoded.request, UpdateMetadata):
                self._on_response(self.broker.id, encoded.request, response)
            elif response.error:
                _log.warning(
                    "broker %d refuses %s with error %d",
                    self.broker.id,
                    encoded.api.name,
                    response.error,
                )
            return

    def _exchange(self, encoded: _EncodedRequest) -> memoryview:
        connection = self._connect()
        self._correlation += 1
        connection.sendall(
            request_frame(
                encoded.api, encoded.version, self._correlation, self._client_id, encoded.body
            )
        )
        frame = read_frame(connection)
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        correlation, position = read_response_header(frame, encoded.api, encoded.version)
        if correlation != self._correlation:
            raise CorruptRecordError(f"response {correlation} to request {self._correlation}")
        return frame[position:]

    def _connect(self) -> socket.socket:
        if self._connection is None:
            connection = socket.create_connection(
                (self._address.host, self._address.port), _TIMEOUT_S
            )
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                if self._is_stopping:
                    connection.close()
                    raise ConnectionError("the channel was dropped")
                self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        with self._changed:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
