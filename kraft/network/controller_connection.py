"""A blocking connection to one controller: handshakes, then one request at a time.

A connection begins with TLS where the client uses it, then ApiVersions, then SASL where the client
has credentials. `kraft.network.quorum_client` chooses the controller, and
`kraft.network.connection_faults` explains a connection that fails in its handshakes. Sources:
Kafka's ``NetworkClient``, ``SaslClientAuthenticator``, ``SslTransportLayer`` (4.3.1).
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from kraft._core.bytes.receive_buffer import ReceiveBuffer
from kraft.errors import (
    ILLEGAL_SASL_STATE,
    MISMATCHED_ENDPOINT_TYPE,
    NONE,
    UNSUPPORTED_VERSION,
    CorruptRecordError,
    KraftError,
    SaslAuthenticationError,
    UnsupportedVersionError,
    error_name,
)
from kraft.protocol.api_versions import (
    API_VERSIONS,
    FIRST_SENT_VERSION,
    PeerVersions,
    decode_api_versions_response,
    encode_api_versions_request,
    version_to_retry,
)
from kraft.protocol.describe_cluster import (
    DESCRIBE_CLUSTER,
    ClusterDescription,
    decode_describe_cluster,
    encode_describe_cluster,
)
from kraft.protocol.headers import (
    Api,
    Body,
    newest_common_version,
    read_response_header,
    request_frame,
)
from kraft.protocol.raft_rpcs import API_OF_REQUEST, decode_response, encode_request
from kraft.protocol.releases import FIRST_RELEASES
from kraft.protocol.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequestData,
    SaslAuthenticateResponseData,
)
from kraft.protocol.sasl_handshake import (
    SASL_HANDSHAKE,
    SaslHandshakeRequestData,
    SaslHandshakeResponseData,
)
from kraft.protocol.vote import VOTE
from kraft.raft.rpc import Request, Response
from kraft.security.sasl.client import ClientCredentials
from kraft.version import VERSION

#: (host, port)
Address = tuple[str, int]

#: How long a leader may be silent before the other controllers are asked who leads, and how often.
WATCH_S = 1.0
_MAX_RESPONSE_SIZE = 100 * 1024 * 1024
# Larger responses are received into reused memory, which comes in blocks of this size.
_SMALL_SIZE = 64 * 1024
# The size that a response claims decides no larger allocation than this: a part of a snapshot and
# the bytes around it.
_FIRST_SIZE = 1024 * 1024 + 4096
# The listener's name is arbitrary for a client: it only names endpoints in responses.
_LISTENER = "CONTROLLER"
# Every listener of a broker serves Produce, and no listener of a controller.
_PRODUCE_KEY = 0


class HandshakeError(KraftError):
    """The listener is not one of a controller, or it rejects the client's handshake."""

    kafka_code = MISMATCHED_ENDPOINT_TYPE


class ClientSecurity(NamedTuple):
    """How a client connects: by TLS where ``tls`` is set, by SASL where it has credentials."""

    tls: ssl.SSLContext | None = None
    credentials: ClientCredentials | None = None


class _Sent(NamedTuple):
    """A request that has no response yet."""

    request: Request | None
    api: Api
    version: int
    correlation: int


class ControllerConnection:
    """A connection to one controller, after the handshakes."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        deadline: float,
        security: ClientSecurity,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """``watch`` is called each `WATCH_S` without a response, and raises OSError to end it."""
        self.address = address
        self.watch = watch
        self._client_id = client_id
        self._deadline = deadline
        self._correlation = 0
        #: The requests that `send_ahead` has sent, in the order of their responses.
        self._ahead: deque[_Sent] = deque()
        #: Whether the controller has answered a request as the leader.
        self.is_leader = False
        #: Whether the controller has answered a request after the handshakes.
        self.has_answered = False
        self._socket = socket.create_connection(address, timeout=self._time_left())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=address[0])
            self.peer = self.api_versions()
            if security.credentials is not None:
                self._authenticate(security.credentials)
            self.has_answered = False
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """Make the request in progress fail; may be called from another thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def set_deadline(self, deadline: float) -> None:
        """Set the time at which later operations fail."""
        self._deadline = deadline

    def _time_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return left

    def api_versions(self) -> PeerVersions:
        """Ask for the controller's API versions and features. Raises HandshakeError, OSError."""
        version = FIRST_SENT_VERSION
        while True:
            body = encode_api_versions_request(version, VERSION)
            frame, at = self.ask(API_VERSIONS, version, body)
            peer = decode_api_versions_response(version, frame, at)
            if peer.error == UNSUPPORTED_VERSION and version_to_retry(peer) < version:
                version = version_to_retry(peer)
            elif peer.error != NONE:
                raise HandshakeError(f"it answers ApiVersions with {error_name(peer.error)}")
            elif _PRODUCE_KEY in peer.ranges and VOTE.key not in peer.ranges:
                raise HandshakeError(
                    "this is a broker's listener: give the address of a controller, as in "
                    "controller.quorum.bootstrap.servers of the nodes"
                )
            else:
                return peer

    def _authenticate(self, credentials: ClientCredentials) -> None:
        """Authenticate by SASL. Raises SaslAuthenticationError."""
        body = SaslHandshakeRequestData(credentials.mechanism).encode(1)
        frame, at = self.ask(SASL_HANDSHAKE, 1, body)
        chosen = SaslHandshakeResponseData.decode(frame, 1, at)
        if chosen.error_code == ILLEGAL_SASL_STATE:
            raise SaslAuthenticationError(
                "the listener does not use SASL: set security.protocol to PLAINTEXT, or to SSL "
                "for a listener with TLS, in the client's configuration"
            )
        if chosen.error_code != NONE:
            offered = ", ".join(chosen.mechanisms)
            raise SaslAuthenticationError(
                f"the listener does not accept {credentials.mechanism}: set sasl.mechanism to one "
                f"of its mechanisms, {offered:.200}"
            )
        exchange = credentials.begin(secrets.token_urlsafe(24))
        version = self.version(SASL_AUTHENTICATE)
        token: bytes | None = exchange.first_message()
        while token is not None:
            body = SaslAuthenticateRequestData(token).encode(version)
            frame, at = self.ask(SASL_AUTHENTICATE, version, body)
            response = SaslAuthenticateResponseData.decode(frame, version, at)
            if response.error_code != NONE:
                said = response.error_message or error_name(response.error_code)
                raise SaslAuthenticationError(
                    f"user {credentials.user!r:.100} cannot authenticate by "
                    f"{credentials.mechanism} ({said:.300}): check the user name and the password "
                    "in sasl.jaas.config"
                )
            token = exchange.respond(response.auth_bytes)

    def version(self, api: Api) -> int:
        version = newest_common_version(api, self.peer.ranges)
        if version is None:
            host, port = self.address
            needed = FIRST_RELEASES.get(api.key)
            advice = f"; it needs controllers of Apache Kafka {needed} or newer" if needed else ""
            raise UnsupportedVersionError(
                f"{host}:{port} does not serve {api.name} in a version that kraft supports{advice}"
            )
        return version

    def ask(self, api: Api, version: int, body: bytes) -> tuple[Body, int]:
        """Return the response, and the position of its body. Raises OSError, CorruptRecordError."""
        while self._ahead:
            # Nobody wants their responses any more.
            self._response(self._ahead.popleft())
        return self._response(self._send(None, api, version, body))

    def _send(self, request: Request | None, api: Api, version: int, body: bytes) -> _Sent:
        self._correlation += 1
        self._socket.settimeout(self._time_left())
        self._socket.sendall(request_frame(api, version, self._correlation, self._client_id, body))
        return _Sent(request, api, version, self._correlation)

    def _response(self, sent: _Sent) -> tuple[Body, int]:
        start = self._receive(4)
        size = int.from_bytes(start, "big", signed=True)
        if not 0 <= size <= _MAX_RESPONSE_SIZE:
            raise CorruptRecordError(
                f"the response begins with {bytes(start)!r}, a size of {size} bytes; at most "
                f"{_MAX_RESPONSE_SIZE} are read"
            )
        frame = self._receive(size)
        correlation, at = read_response_header(frame, sent.api, sent.version)
        if correlation != sent.correlation:
            raise CorruptRecordError(
                f"the peer answered request {correlation} instead of {sent.correlation}"
            )
        self.has_answered = True
        return frame, at

    def _receive(self, size: int) -> Body:
        """Return the next bytes; memory grows with those that arrive."""
        if size <= _SMALL_SIZE:
            small = bytearray(size)
            self._receive_into(memoryview(small))
            return bytes(small)
        buffer = memoryview(ReceiveBuffer(min(size, _FIRST_SIZE)))
        received = 0
        while True:
            self._receive_into(buffer[received:])
            if len(buffer) == size:
                return buffer.toreadonly()
            received = len(buffer)
            larger = memoryview(ReceiveBuffer(min(size, 4 * received)))
            larger[:received] = buffer
            buffer = larger

    def _receive_into(self, buffer: memoryview) -> None:
        while buffer:
            left = self._time_left()
            is_watched = self.watch is not None and left > WATCH_S
            self._socket.settimeout(WATCH_S if is_watched else left)
            try:
                received = self._socket.recv_into(buffer)
            except TimeoutError:
                if self.watch is None or not is_watched:
                    raise
                self.watch()
                continue
            if not received:
                raise ConnectionResetError("the connection was closed")
            buffer = buffer[received:]

    def offered_mechanisms(self) -> list[str] | None:
        """Return the SASL mechanisms of the listener; None if it does not use SASL."""
        body = SaslHandshakeRequestData("").encode(1)
        frame, at = self.ask(SASL_HANDSHAKE, 1, body)
        chosen = SaslHandshakeResponseData.decode(frame, 1, at)
        return None if chosen.error_code == ILLEGAL_SASL_STATE else chosen.mechanisms

    def send_ahead(self, request: Request) -> None:
        """Send a request now; `request` with the same object receives its response later.

        The controller works on it meanwhile. Raises OSError.
        """
        api = API_OF_REQUEST[type(request)]
        version = self.version(api)
        self._ahead.append(self._send(request, api, version, encode_request(request, version)))

    def request(self, request: Request) -> Response:
        api = API_OF_REQUEST[type(request)]
        version = self.version(api)
        if self._ahead and self._ahead[0].request is request:
            frame, at = self._response(self._ahead.popleft())
        else:
            frame, at = self.ask(api, version, encode_request(request, version))
        return decode_response(api, version, frame, at, _LISTENER)

    def describe_cluster(self) -> ClusterDescription:
        version = self.version(DESCRIBE_CLUSTER)
        frame, at = self.ask(DESCRIBE_CLUSTER, version, encode_describe_cluster(version))
        return decode_describe_cluster(version, frame, at)
