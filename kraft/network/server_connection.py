"""A connection of a peer, a broker or a tool to the controller listener: its requests in turn.

A request goes from its frame and header to the raft node, or to a `Handler` (the controller's
APIs), or is answered at once (ApiVersions, a malformed request to the raft node). As in Kafka's
``SocketServer``, a connection has one request in progress: the next is decoded after the response
is written. Responses therefore keep their order, and no peer can queue more than one request.

A misbehaving peer loses at most its own connection: for a malformed or too large frame, for an API
or version that is not served, for a frame or response that makes no progress, after a long idle
time.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from kraft._core.bytes.file_slice import FileSlice, size_of
from kraft._core.codec.fetch import decode_request_header
from kraft.errors import IllegalSaslStateError, KraftError, SaslAuthenticationError
from kraft.network.admission import Standing
from kraft.network.authentication import (
    SASL_APIS,
    GateAnswer,
    ListenerSecurity,
    SaslGate,
    illegal_state,
)
from kraft.network.eager_tasks import started
from kraft.network.file_copies import FileCopy, Piece
from kraft.network.framing import Buffer, FrameProtocol
from kraft.network.handler import AnswersAhead, Handler
from kraft.network.listener import Listener
from kraft.network.tls_transport import TlsTransport
from kraft.protocol.api_versions import API_VERSIONS, answer_api_versions
from kraft.protocol.common import Rejected
from kraft.protocol.headers import RequestHeader, response_header
from kraft.protocol.raft_rpcs import decode_request, encode_response, error_response
from kraft.protocol.sasl_handshake import SASL_HANDSHAKE
from kraft.raft.interface import RequestReceived
from kraft.raft.rpc import FetchRequest, FetchSnapshotRequest, Response
from kraft.security.hosts import java_host
from kraft.security.principals import KafkaPrincipal
from kraft.security.protocols import PeerIdentity
from kraft.security.sasl.mechanism import Authenticated

if TYPE_CHECKING:
    from kraft.network.tls_context import TlsContexts

# Most requests are small; the buffer of a larger one grows with the bytes that arrive.
_SMALL_BUFFER_SIZE = 4096
# Requests of unknown APIs: enough to log their API key and version.
MAX_UNKNOWN_REQUEST_SIZE = 4096
_PACED_REQUESTS = (FetchRequest, FetchSnapshotRequest)


def accept_connection(
    owner: Listener, name: str, loop: asyncio.AbstractEventLoop
) -> asyncio.BufferedProtocol:
    """Return the protocol of a new connection to the listener with this name."""
    security = owner.security.get(name) or ListenerSecurity()
    connection = ServerConnection(owner, name, loop, security)
    if security.tls is None:
        return connection
    return TlsTransport(
        loop,
        connection,
        lambda incoming, outgoing: _tls_of(security).server.wrap_bio(
            incoming, outgoing, server_side=True
        ),
        connection.handshake_failed,
        owner.handshakes,
    )


def _tls_of(security: ListenerSecurity) -> TlsContexts:
    """Return the present contexts: a reload may have replaced them since the connection began."""
    assert security.tls is not None
    return security.tls


class ServerConnection(FrameProtocol):
    """One connection of a peer, with at most one request in progress."""

    _small_buffer_size = _SMALL_BUFFER_SIZE

    def __init__(
        self,
        owner: Listener,
        name: str,
        loop: asyncio.AbstractEventLoop,
        security: ListenerSecurity,
    ) -> None:
        super().__init__(loop, owner.limits.max_request_size, self._small_buffer_size)
        self._owner = owner
        self.listener_name = name
        self._security = security
        self._gate = (
            SaslGate(security.sasl, self._sasl_principal) if security.sasl is not None else None
        )
        #: The peer, from its first request or its authentication on.
        self._identity: PeerIdentity | None = None
        #: Whether a SASL token is being checked, or was rejected.
        self._is_authenticating = False
        self.address = ""
        self._arrived = 0.0
        self._request_memory = 0
        self._header: RequestHeader | None = None
        self._traffic = owner.traffic.listeners[name]
        #: When the request in progress was complete, and its size.
        self._began_s = 0.0
        self._request_size = 0
        self._reply_to = -1
        #: Whether the response in progress waits its turn: a fetch of a replica that does not vote.
        self._is_paced = False
        #: Whether the request in progress counts against max_requests.
        self._is_counted = False
        self._task: asyncio.Task[None] | None = None
        self._is_stalled = False
        self._stalled_frame: Buffer = b""
        self._writing_since: float | None = None
        #: Passes on the response in progress, if it has slices of files.
        self._copy: FileCopy | None = None
        #: Bytes in memory and slices of files of a handler's response; 0 for the raft node's.
        self._response_size = self._response_slices = 0
        self._unwritten = 0
        #: Ends the time for which a quota mutes the connection.
        self._unmute: asyncio.TimerHandle | None = None

    # -- life and limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        owner = self._owner
        peer = transport.get_extra_info("peername")
        self.address = java_host(str(peer[0])) if peer else ""
        self._arrived = self._loop.time()
        delay = owner.rates.accept(self.listener_name, self.address, 1000 * self._arrived)
        if not owner.admission.admit(self):
            self.close_for_others()
            return
        owner.connections.add(self)
        self._traffic.opened += 1
        if delay.wait_ms:
            self._arrived += delay.wait_ms / 1000
            self._mute(delay.wait_ms, self.close if delay.is_rejected else self._unmuted)

    def close_for_others(self) -> None:
        """Close this connection because there are too many."""
        count = len(self._owner.connections)
        self._owner.warnings.warn(
            "too many connections", f"closed one of {self.address}; {count} are open"
        )
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        owner = self._owner
        # The gate refers to this connection: the cycle would never be freed (`GC_THRESHOLDS`).
        self._gate = None
        if self not in owner.connections:
            return
        owner.connections.discard(self)
        self._traffic.closed += 1
        owner.admission.leave(self)
        owner.forget_unread(self)
        owner.paced.taken(self)
        self._release_memory()
        self._is_stalled = False
        if self in owner.stalled:
            owner.stalled.remove(self)
        if self._task is not None:
            self._task.cancel()
        if self._unmute is not None:
            self._unmute.cancel()
        if self._copy is not None:
            self._copy.cancel()
            self._copy = None
        if self._header is not None:
            self._header = None
            if self._is_counted:
                self._is_counted = False
                owner.request_done()
            if self._reply_to >= 0:
                owner.forget(self._reply_to)

    def frame_refused(self, reason: str) -> None:
        self._owner.warnings.warn(
            "frames were rejected", f"{self.address} sent {reason}: the connection is closed"
        )
        self.close()

    def handshake_failed(self, reason: str) -> None:
        """Log a failed TLS handshake; the transport closes the connection."""
        self._owner.warnings.warn(
            "TLS handshakes failed", f"the TLS handshake with {self.address} failed: {reason}"
        )

    def size_limit(self, start: memoryview) -> int:
        if self._gate is not None and (limit := self._gate.size_limit) is not None:
            return min(limit, self._max_frame_size)
        if len(start) < 2:
            return self._max_frame_size
        owner = self._owner
        key = int.from_bytes(start, "big", signed=True)
        if key in owner.handlers:
            return self._max_frame_size
        if key in owner.apis:
            return min(owner.limits.max_raft_request_size, self._max_frame_size)
        return MAX_UNKNOWN_REQUEST_SIZE

    def may_grow(self, capacity: int) -> bool:
        owner = self._owner
        more = capacity - self._request_memory
        if not owner.memory.take(more, self._most_request_memory):
            self.memory_refused()
            return False
        self._request_memory = capacity
        return True

    @property
    def _most_request_memory(self) -> int:
        """The memory of all large requests up to which this connection may take some."""
        most = self._owner.limits.max_request_memory
        is_unknown = self._gate is not None and self._gate.principal is None
        return most // 2 if is_unknown else most

    def memory_refused(self) -> None:
        taken = self._owner.memory.taken
        self.frame_refused(f"a large request while others take {taken} bytes of memory")

    def _release_memory(self) -> None:
        if self._request_memory:
            self._owner.memory.give_back(self._request_memory)
            self._request_memory = 0

    def check_time(self, now: float) -> None:
        """Close the connection if it is idle or makes no progress for too long."""
        limits = self._owner.limits
        if self._writing_since is not None:
            unwritten = self._unwritten_size
            if unwritten < self._unwritten:
                self._unwritten, self._writing_since = unwritten, now
            elif now - self._writing_since > limits.response_write_timeout_ms / 1000:
                self.frame_refused("no sign that it reads its responses")
        elif self._header is not None or self._is_stalled:
            return
        elif (
            now - self._arrived > limits.first_request_timeout_ms / 1000
            and self._owner.admission.is_silent(self)
        ):
            self.frame_refused(f"no {self._missing} within {limits.first_request_timeout_ms} ms")
        elif self.frame_begun is not None and self._unmute is None:
            if now - self.frame_begun > limits.request_read_timeout_ms / 1000:
                self.frame_refused("an incomplete frame for too long")
        elif now - self.last_active > limits.max_idle_ms / 1000:
            self.close()

    @property
    def _missing(self) -> str:
        """The next step that a silent peer has not done."""
        if isinstance(self.transport, TlsTransport) and not self.transport.is_open:
            return "complete TLS handshake"
        if self._gate is not None and self._gate.principal is None:
            return "complete SASL authentication"
        return "request"

    @property
    def _unwritten_size(self) -> int:
        assert self.transport is not None
        uncopied = 0 if self._copy is None else self._copy.remaining
        return uncopied + self.transport.get_write_buffer_size()

    def write(self, pieces: Sequence[Piece]) -> None:
        if not self._response_slices:
            super().write(cast(Sequence[Buffer], pieces))
            return
        assert self.transport is not None
        assert self._copy is None
        if not self.transport.is_closing():
            self._copy = FileCopy(self._loop, self.transport, pieces, self._copied)
            self._wait_for_reader()

    def _copied(self, reason: str | None) -> None:
        """End the response with slices of files; ``reason``: why a file could not be read."""
        self._copy = None
        if reason is not None:
            self.file_failed(reason)
        elif self.transport is None or not self.transport.is_closing():
            self.resume_writing()

    def file_failed(self, reason: str) -> None:
        """Close the connection: the peer was promised more bytes than a file has."""
        self._owner.warnings.warn(
            "responses could not be read",
            f"a response to {self.address} ends early, the connection is closed: {reason}",
        )
        self.close()

    def pause_writing(self) -> None:
        if self._copy is not None:
            self._copy.pause()
        self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        """Take no request, and watch the progress of the peer, until `resume_writing`."""
        if self._writing_since is not None:
            return
        self.hold()
        self._writing_since = self._loop.time()
        self._unwritten = self._unwritten_size
        if self._response_size or self._response_slices:
            self._owner.note_unread(self, self._response_size, self._response_slices)

    def resume_writing(self) -> None:
        if self._copy is not None:
            self._copy.resume()
            return
        self._writing_since = None
        self._owner.forget_unread(self)
        self._owner.paced.taken(self)
        self.last_active = self._loop.time()
        self._release_if_free()

    def _mute(self, throttle_ms: float, then: Callable[[], None]) -> None:
        """Read nothing for a time, so that the client's requests wait in its own buffers."""
        self.pause()
        self._unmute = self._loop.call_later(throttle_ms / 1000, then)

    def _unmuted(self) -> None:
        self._unmute = None
        self.last_active = self._loop.time()
        self._release_if_free()

    def _release_if_free(self) -> None:
        """Take the next frame unless a request, its response or a quota is in the way."""
        is_busy = self._header is not None or self._is_stalled or self._is_authenticating
        if not is_busy and self._writing_since is None and self._unmute is None:
            self.release()

    # -- requests

    def frame_received(self, frame: Buffer) -> None:
        self._began_s, self._request_size = time.monotonic(), len(frame)
        owner = self._owner
        if (
            owner.gathered_apis
            and owner.request_count == 0
            and int.from_bytes(frame[:2], "big") in owner.gathered_apis
            and not self.has_more
        ):
            self._keep(frame)
            owner.gather(self)
        else:
            self._handle_frame(frame)

    def _handle_frame(self, frame: Buffer) -> None:
        try:
            self._begin_request(frame)
        except IllegalSaslStateError as error:
            self.frame_refused(f"an illegal request ({error})")
        except SaslAuthenticationError as error:
            self.frame_refused(f"a request without a principal ({error})")
        except KraftError as error:
            self.frame_refused(f"a malformed request ({error})")
        if self._header is None and not self._is_stalled:
            self._release_memory()

    def _keep(self, frame: Buffer) -> None:
        """Keep the frame, and read no further, until `resume`."""
        self.hold()
        self._is_stalled = True
        self._stalled_frame = frame

    def resume(self) -> None:
        """Handle the kept frame; called by the event loop."""
        if not self._is_stalled:
            return
        self._is_stalled = False
        frame, self._stalled_frame = self._stalled_frame, b""
        self._handle_frame(frame)
        self._release_if_free()

    def _begin_request(self, frame: Buffer) -> None:
        owner, gate = self._owner, self._gate
        if gate is not None and gate.takes_bare_tokens:
            self._begin_token(gate, None, frame, 0)
            return
        key, version, correlation, client_id, body_at = decode_request_header(
            frame, owner.flexible_since
        )
        api = owner.apis.get(key)
        if api is None or not (api.lowest <= version <= api.highest or api is API_VERSIONS):
            self.frame_refused(f"API {key} in version {version}, which is not served")
            return
        header = RequestHeader(api, version, correlation, client_id)
        if gate is not None and gate.takes(header):
            self._authenticate(gate, header, frame, body_at)
            return
        if self._identity is None:
            self._identity = self._identify()
        if key in SASL_APIS:
            self.write(illegal_state(header))
            return
        if api is API_VERSIONS:
            said, body = answer_api_versions(
                version, frame, body_at, owner.advertised_apis(), owner.features()
            )
            owner.admission.begin_work(self)
            owner.admission.promote(self, Standing.CLIENT)
            self._write_answer(header._replace(version=said), [body])
            owner.admission.end_work(self)
            return
        handler = owner.handlers.get(key)
        if handler is not None:
            if not handler.keeps_alive:
                if owner.request_count >= owner.limits.max_requests:
                    self._keep(frame)
                    owner.stalled.append(self)
                    return
                owner.request_count += 1
            self._begin_work(header)
            self._is_counted = not handler.keeps_alive
            standing = Standing.REPLICA if handler.keeps_alive else Standing.CLIENT
            owner.admission.promote(self, standing)
            self._start_in_turn(self._handle(handler, header, frame, body_at))
            return
        raft = owner.raft
        assert raft is not None, "every other API has a handler"
        if error := raft.denial_of(api, self._identity):
            denied = error_response(api, error)
            self._write_answer(
                header, encode_response(denied, version, self.listener_name, raft.resolve)
            )
            return
        request = decode_request(api, version, frame, body_at)
        if isinstance(request, Rejected):
            self._write_answer(header, [request.body])
            return
        self._begin_work(header)
        standing, id = raft.standing_of(request)
        owner.admission.promote(self, standing, id)
        self._is_paced = standing is not Standing.VOTER and type(request) in _PACED_REQUESTS
        self._reply_to = owner.await_answer(self)
        received = RequestReceived(request, self._reply_to)
        if self._is_paced:
            owner.deliver_together(received)
        else:
            raft.deliver(received)

    # -- authentication

    def _identify(self) -> PeerIdentity:
        """Return the peer of a connection without SASL. Raises SaslAuthenticationError."""
        return self._security.identity(
            self.address, self.listener_name, self._certificate, self._owner.warnings.warn
        )

    def _sasl_principal(self, mechanism: str, peer: Authenticated) -> KafkaPrincipal:
        """Return the principal of the peer that authenticated by SASL."""
        return self._security.sasl_principal(
            *(self.address, self.listener_name, self._certificate, mechanism, peer),
            self._owner.warnings.warn,
        )

    @property
    def _certificate(self) -> bytes | None:
        transport = self.transport
        return transport.peer_certificate if isinstance(transport, TlsTransport) else None

    def _authenticate(
        self, gate: SaslGate, header: RequestHeader, frame: Buffer, body_at: int
    ) -> None:
        if header.api is API_VERSIONS:
            owner = self._owner
            said, body = answer_api_versions(
                header.version, frame, body_at, owner.advertised_apis(), owner.features()
            )
            gate.note_versions(is_answered=body[:2] == b"\0\0")
            self._write_answer(header._replace(version=said), [body])
        elif header.api is SASL_HANDSHAKE:
            self._write_gate_answer(gate.answer_handshake(header, frame, body_at))
        else:
            self._begin_token(gate, header, frame, body_at)

    def _begin_token(
        self, gate: SaslGate, header: RequestHeader | None, frame: Buffer, body_at: int
    ) -> None:
        self.hold()
        self._is_authenticating = True
        self._task = self._loop.create_task(self._answer_token(gate, header, frame, body_at))

    async def _answer_token(
        self, gate: SaslGate, header: RequestHeader | None, frame: Buffer, body_at: int
    ) -> None:
        try:
            answer = await gate.answer_token(header, frame, body_at, self._owner.token_executor)
        except KraftError as error:
            self.frame_refused(f"an illegal request ({error})")
            return
        self._task = None
        self._write_gate_answer(answer)
        if gate.principal is not None and not answer.is_final:
            self._identity = PeerIdentity(
                self.address, gate.principal, self._security.protocol, self.listener_name
            )
        if not answer.is_final:
            self._is_authenticating = False
            self._release_if_free()

    def _write_gate_answer(self, answer: GateAnswer) -> None:
        self.last_active = self._loop.time()
        if not answer.is_final:
            self.write(answer.pieces)
            return
        self._owner.warnings.warn(
            "SASL authentications failed",
            f"the SASL authentication of {self.address} failed: {answer.failure}",
        )
        self.hold()
        self._is_authenticating = True
        self._loop.call_later(
            self._security.failure_delay_ms / 1000, self._end_rejected, answer.pieces
        )

    def _end_rejected(self, pieces: list[Buffer]) -> None:
        """Write the last response and close."""
        if pieces:
            self.write(pieces)
        self.finish()

    # -- answers

    def _begin_work(self, header: RequestHeader) -> None:
        self.hold()
        self._header = header
        self._reply_to = -1
        self._owner.admission.begin_work(self)

    def _start_in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin ``work``; behind those of other connections where the next request is there."""
        if self.has_more:
            self._task = self._loop.create_task(work)
        else:
            self._start(work)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` up to its first wait; most requests need none, and so no task."""
        task = started(self._loop, work)
        if task is not None:
            self._task = task

    async def _handle(
        self, handler: Handler, header: RequestHeader, frame: Buffer, body_at: int
    ) -> None:
        assert self._identity is not None
        try:
            answer = await handler.answer(header, memoryview(frame)[body_at:], self._identity)
        except KraftError as error:
            self.frame_refused(f"an invalid {header.api.name} request ({error})")
        except Exception:
            self._owner.warnings.warn(
                "requests failed",
                f"{header.api.name} failed; the connection is closed\n{traceback.format_exc()}",
            )
            self.close()
        else:
            self._task = None
            if answer.throttle_ms:
                self._mute(answer.throttle_ms, self._unmuted)
            pieces = answer.pieces
            for piece in pieces:
                if isinstance(piece, FileSlice):
                    self._response_slices += 1
                else:
                    self._response_size += len(piece)
            if answer.ahead is not None:
                self._run_ahead(answer.ahead, header, frame, body_at)
            self._answer(pieces)
            self._response_size = self._response_slices = 0

    def _run_ahead(
        self, ahead: AnswersAhead, header: RequestHeader, frame: Buffer, body_at: int
    ) -> None:
        """Leave the answers to the requests after this one to a data loop; here there is none."""

    def respond(self, response: Response) -> None:
        """Write the raft node's response to the request in progress."""
        header, owner = self._header, self._owner
        assert header is not None
        owner.traffic.errors[header.api.name, response.error] += 1
        pieces = owner.encoded(response, header.version, self.listener_name)
        if self._is_paced:
            owner.paced.send(self, pieces)
        else:
            self._answer(pieces)

    @property
    def is_writing(self) -> bool:
        """Whether the peer has not taken all of the last response."""
        return self._writing_since is not None

    def answer_paced(self, pieces: Sequence[Buffer]) -> None:
        """Write a response whose turn has come."""
        self._answer(pieces)

    def _answer(self, pieces: Sequence[Piece]) -> None:
        header, self._header = self._header, None
        if header is None:
            return
        self._write_answer(header, pieces)
        self._release_memory()
        self._owner.admission.end_work(self)
        self._release_if_free()
        if self._is_counted:
            self._is_counted = False
            self._owner.request_done()

    def _write_answer(self, header: RequestHeader, pieces: Sequence[Piece]) -> None:
        """Write a response; an empty one means that the request has none."""
        size = sum(map(size_of, pieces))
        if not size:
            return
        start = response_header(header.api, header.version, header.correlation, size)
        self.last_active = self._loop.time()
        self.write([start, *pieces])
        taken_ms = (time.monotonic() - self._began_s) * 1000
        self._owner.traffic.note(self._traffic, header, self._request_size, size, taken_ms)
