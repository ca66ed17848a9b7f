"""A blocking client of the quorum and its controller, for commands; one request at a time.

Finds the leader: a controller that does not lead names the leader in its response to DescribeQuorum
(kraft), to DescribeCluster, or to a Fetch (any). These need DESCRIBE, ALTER and CLUSTER_ACTION on
the cluster. A client that has none of them sends its request to one of the given controllers after
the other, as long as they answer NOT_CONTROLLER. While there is no leader, the client retries until
its timeout. Then it asks every known controller once more, and the error has the number of those
that answered. Every error names the request, the controller and the response.

A request whose connection fails is sent again, to the next leader if there is one. The first
attempt may have been carried out. `QuorumClient.call` reports this, because only its caller knows
which response a repeated request then gets.

A controller that hangs keeps its port open and its connections. While a leader does not answer, the
client asks the other controllers once a second; if they follow a leader of a later epoch, it sends
the request there instead of waiting for the timeout. It takes the later epoch as proof, because a
leader may need long for a large request.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.errors import (
    BROKER_NOT_AVAILABLE,
    CLUSTER_AUTHORIZATION_FAILED,
    NONE,
    NOT_CONTROLLER,
    NOT_LEADER_OR_FOLLOWER,
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
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import Api, newest_common_version, read_response_header, request_frame
from kraft.protocol.raft_rpcs import API_OF_REQUEST, decode_response, encode_request
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
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FetchRequest,
    FetchResponse,
    RemoveRaftVoterRequest,
    Request,
    Response,
    UpdateKRaftVersionRequest,
)
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.security.sasl.client import ClientCredentials
from kraft.version import VERSION

#: (host, port)
Address = tuple[str, int]

R = TypeVar("R")
M = TypeVar("M", bound=Message)

_MAX_RESPONSE_SIZE = 100 * 1024 * 1024
_RETRY_PAUSE_S = 0.1
# How long connect and handshake may take while there are other servers to try. The first round is
# shorter, because a controller that hangs accepts connections; the second is for busy controllers.
_FIRST_CONNECT_S = 1.0
_CONNECT_S = 3.0
# How long a leader may be silent before the other controllers are asked who leads, and how often.
_WATCH_S = 1.0
# The time for asking every controller once more, after there was no leader until the timeout.
_SURVEY_S = 2.0
# The shortest time of a connection and of a request, also of the last before the timeout: a busy
# controller may need it.
_LAST_CONNECT_S = 1.0
# The listener's name is arbitrary for a client: it only names endpoints in responses.
_LISTENER = "CONTROLLER"


class QuorumUnreachableError(KraftError):
    """No controller answered, or there was no leader, within the timeout."""

    kafka_code = 13


class QuorumRefusedError(KraftError):
    """The quorum answered with the error ``kafka_code``."""

    def __init__(self, code: int, asked: str, message: str | None) -> None:
        self.kafka_code = code
        super().__init__(f"{asked}: {error_name(code)}" + (f" ({message})" if message else ""))


class Answered(NamedTuple, Generic[M]):
    """The leader's response to a request of the controller's APIs.

    ``is_repeated``: an earlier attempt had no response, or its controller lost the leadership. The
    quorum may have carried out that earlier attempt too.
    """

    response: M
    is_repeated: bool


class _NamedLeader(NamedTuple):
    """The leader of an epoch; -1 for an unknown epoch."""

    id: int
    epoch: int
    address: Address


class _LeaderChangedError(OSError):
    """A controller that does not answer has lost its leadership."""

    def __init__(self, old: _NamedLeader, new: _NamedLeader) -> None:
        self.leader = new
        super().__init__(
            f"controller {old.id} did not answer, and controller {new.id} leads now, "
            f"in epoch {new.epoch}"
        )


class ClientSecurity(NamedTuple):
    """How a client connects: by TLS where ``tls`` is set, by SASL where it has credentials."""

    tls: ssl.SSLContext | None = None
    credentials: ClientCredentials | None = None


class _Connection:
    """A connection to one controller, after the handshakes."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        deadline: float,
        security: ClientSecurity,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """``watch`` is called each `_WATCH_S` without a response, and raises OSError to end it."""
        self.address = address
        self.watch = watch
        self._client_id = client_id
        self._deadline = deadline
        self._correlation = 0
        #: Whether the controller has answered a request as the leader.
        self.is_leader = False
        self._socket = socket.create_connection(address, timeout=self._time_left())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=address[0])
            self.peer = self._shake_hands()
            if security.credentials is not None:
                self._authenticate(security.credentials)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def set_deadline(self, deadline: float) -> None:
        """Set the time at which later operations fail."""
        self._deadline = deadline

    def _time_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return left

    def _shake_hands(self) -> PeerVersions:
        version = FIRST_SENT_VERSION
        while True:
            body = encode_api_versions_request(version, VERSION)
            frame, at = self.ask(API_VERSIONS, version, body)
            peer = decode_api_versions_response(version, frame, at)
            if peer.error == UNSUPPORTED_VERSION and version_to_retry(peer) < version:
                version = version_to_retry(peer)
            elif peer.error != NONE:
                raise QuorumRefusedError(peer.error, "ApiVersions", None)
            else:
                return peer

    def _authenticate(self, credentials: ClientCredentials) -> None:
        """Authenticate by SASL. Raises SaslAuthenticationError."""
        body = SaslHandshakeRequestData(credentials.mechanism).encode(1)
        frame, at = self.ask(SASL_HANDSHAKE, 1, body)
        chosen = SaslHandshakeResponseData.decode(frame, 1, at)
        if chosen.error_code != NONE:
            offered = ", ".join(chosen.mechanisms)
            raise SaslAuthenticationError(
                f"the controller does not accept {credentials.mechanism}; it has {offered:.200}"
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
                raise SaslAuthenticationError(said)
            token = exchange.respond(response.auth_bytes)

    def version(self, api: Api) -> int:
        version = newest_common_version(api, self.peer.ranges)
        if version is None:
            host, port = self.address
            raise UnsupportedVersionError(
                f"{host}:{port} does not serve {api.name} in a version that kraft supports"
            )
        return version

    def ask(self, api: Api, version: int, body: bytes) -> tuple[bytes, int]:
        """Return the response, and the position of its body. Raises OSError, CorruptRecordError."""
        self._correlation += 1
        self._socket.settimeout(self._time_left())
        self._socket.sendall(request_frame(api, version, self._correlation, self._client_id, body))
        size = int.from_bytes(self._receive(4), "big", signed=True)
        if not 0 <= size <= _MAX_RESPONSE_SIZE:
            raise CorruptRecordError(
                f"the response has {size} bytes; at most {_MAX_RESPONSE_SIZE} are read"
            )
        frame = self._receive(size)
        correlation, at = read_response_header(frame, api, version)
        if correlation != self._correlation:
            raise CorruptRecordError(
                f"the peer answered request {correlation} instead of {self._correlation}"
            )
        return frame, at

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            left = self._time_left()
            is_watched = self.watch is not None and left > _WATCH_S
            self._socket.settimeout(_WATCH_S if is_watched else left)
            try:
                part = self._socket.recv(min(size - len(received), 1 << 20))
            except TimeoutError:
                if self.watch is None or not is_watched:
                    raise
                self.watch()
                continue
            if not part:
                raise ConnectionResetError("the connection was closed")
            received += part
        return bytes(received)

    def request(self, request: Request) -> Response:
        api = API_OF_REQUEST[type(request)]
        version = self.version(api)
        frame, at = self.ask(api, version, encode_request(request, version))
        return decode_response(api, version, frame, at, _LISTENER)

    def describe_cluster(self) -> ClusterDescription:
        version = self.version(DESCRIBE_CLUSTER)
        frame, at = self.ask(DESCRIBE_CLUSTER, version, encode_describe_cluster(version))
        return decode_describe_cluster(version, frame, at)


class QuorumClient:
    """Describes and changes a quorum through any of its controllers.

    Every method raises QuorumUnreachableError, QuorumRefusedError, and UnsupportedVersionError
    where the controller does not support the request.
    """

    def __init__(
        self,
        servers: Sequence[Address],
        *,
        timeout_s: float = 30.0,
        leader_wait_s: float | None = None,
        client_id: str = "kraft-quorum",
        security: ClientSecurity | None = None,
    ) -> None:
        if not servers:
            raise ValueError("servers is empty: give the address of at least one controller")
        self._servers = list(servers)
        self.timeout_s = timeout_s
        #: How long to wait for a leader while there is none.
        self._leader_wait_s = timeout_s if leader_wait_s is None else min(leader_wait_s, timeout_s)
        self._client_id = client_id
        self._security = security or ClientSecurity()
        self._connection: _Connection | None = None
        #: The addresses of the voters, by the leader's last description.
        self._voters: list[Address] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- requests

    def describe_quorum(self) -> DescribeQuorumResponse:
        """Return the leader's view of the quorum."""
        response = self._ask_leader(DescribeQuorumRequest(), "DescribeQuorum")
        assert isinstance(response, DescribeQuorumResponse)
        return response

    def add_voter(
        self, voter: ReplicaKey, endpoints: tuple[Endpoint, ...], cluster_id: str | None = None
    ) -> None:
        """Add a voter; return when the new voters are committed."""
        # The quorum's timeout is shorter than the client's, so that its error arrives in time.
        timeout_ms = int(self.timeout_s * 900)
        request = AddRaftVoterRequest(cluster_id, timeout_ms, voter, endpoints)
        self._ask_leader(request, f"adding controller {voter!r}")

    def remove_voter(self, voter: ReplicaKey, cluster_id: str | None = None) -> None:
        """Remove a voter; return when the new voters are committed."""
        self._ask_leader(
            RemoveRaftVoterRequest(cluster_id, voter), f"removing controller {voter!r}"
        )

    def update_kraft_version(self, level: int, *, validate_only: bool = False) -> None:
        """Raise the finalized level of kraft.version."""
        request = UpdateKRaftVersionRequest(level, validate_only=validate_only)
        self._ask_leader(request, f"updating kraft.version to {level}")

    def api_versions(self) -> PeerVersions:
        """Return the API versions of the first controller that answers."""
        deadline = time.monotonic() + self.timeout_s
        return self._any_connection(deadline).peer

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, controllers and leader, as the first controller sees them."""
        deadline = time.monotonic() + self.timeout_s
        try:
            cluster = self._any_connection(deadline).describe_cluster()
        except (OSError, CorruptRecordError) as error:
            self.close()
            raise QuorumUnreachableError(f"DescribeCluster: {error}") from error
        if cluster.error != NONE:
            raise QuorumRefusedError(cluster.error, "DescribeCluster", cluster.message)
        return cluster

    def ask(self, request: Request) -> Response:
        """Return the leader's response to a request of the raft layer, which may be an error.

        If the error means that another node leads, the client asks that node; it returns all other
        errors.
        """
        return self._at_leader(
            lambda connection: connection.request(request),
            lambda response: response.error,
            API_OF_REQUEST[type(request)].name,
            is_quick=isinstance(request, DescribeQuorumRequest),
        )

    def call(
        self, api: Api, request: Message, response_type: type[M], error_of: Callable[[M], int]
    ) -> Answered[M]:
        """Send a request of the controller's APIs to the leader, in the newest common version.

        ``error_of`` returns the error code of a response as a whole: NOT_CONTROLLER makes the
        client find the leader and send the request again, other errors are the caller's.
        """
        if self._connection is None or not self._connection.is_leader:
            # Find the leader first: a controller that does not lead would reject the first attempt,
            # which would count as an earlier attempt.
            knows_leader = self._find_leader()
        else:
            knows_leader = True
        attempts = 0

        def exchange(connection: _Connection) -> M:
            nonlocal attempts
            version = connection.version(api)
            body = request.encode(version)
            attempts += 1
            frame, at = connection.ask(api, version, body)
            return response_type.decode(frame, version, at)

        def error(response: M) -> int:
            nonlocal attempts
            code = error_of(response)
            if code == NOT_CONTROLLER and not knows_leader:
                # The answer of a follower, which this client could not tell from the leader.
                attempts -= 1
            return code

        response = self._at_leader(exchange, error, api.name)
        return Answered(response, attempts > 1)

    def _find_leader(self) -> bool:
        """Connect to the leader; return False for any controller, as this client may not ask."""
        try:
            self.describe_quorum()
        except QuorumRefusedError as error:
            if error.kafka_code != CLUSTER_AUTHORIZATION_FAILED:
                raise
            return False
        return True

    # -- finding a controller that answers

    def _any_connection(self, deadline: float) -> _Connection:
        """Return the present connection, or a new one to the first server that answers."""
        if self._connection is not None:
            self._connection.set_deadline(deadline)
            return self._connection
        failures: dict[Address, str] = {}
        servers = [*self._servers]
        rounds = (_FIRST_CONNECT_S, _CONNECT_S) if len(servers) > 1 else (_CONNECT_S,)
        for longest_s in rounds:
            silent = []
            for place, server in enumerate(servers):
                # A server that never answers must leave time for the others.
                others = len(servers) - place - 1
                begin = time.monotonic()
                share = (deadline - begin) / (others + 1)
                if others or longest_s != rounds[-1]:
                    share = min(share, longest_s)
                failures[server] = self._connect(server, begin + share)
                if self._connection is not None:
                    self._connection.set_deadline(deadline)
                    return self._connection
                if time.monotonic() >= begin + share:
                    silent.append(server)
            servers = silent
        raise QuorumUnreachableError(f"no controller answers: {'; '.join(failures.values())}")

    def _connect(self, server: Address, deadline: float, leader: _NamedLeader | None = None) -> str:
        """Connect to this server; return the reason of a failure, else "".

        ``leader``: the server as the leader of an epoch.
        """
        self.close()
        watch = None
        if leader is not None and leader.epoch >= 0:
            watch = partial(self._check_leader, leader)
        try:
            self._connection = _Connection(server, self._client_id, deadline, self._security, watch)
        except (OSError, UnicodeError, CorruptRecordError, SaslAuthenticationError) as error:
            return f"{server[0]}:{server[1]}: {error}"
        return ""

    def _ask_leader(self, request: Request, asked: str) -> Response:
        """Return the leader's response; raise QuorumRefusedError if it is an error."""
        is_quick = isinstance(request, DescribeQuorumRequest)
        response = self._at_leader(
            lambda connection: connection.request(request),
            lambda response: response.error,
            asked,
            is_quick=is_quick,
        )
        if response.error != NONE:
            message = getattr(response, "message", None)
            raise QuorumRefusedError(response.error, asked, message)
        return response

    def _at_leader(
        self,
        exchange: Callable[[_Connection], R],
        error_of: Callable[[R], int],
        asked: str,
        *,
        is_quick: bool = False,
    ) -> R:
        """Return what ``exchange`` returns at the leader; follow the leader until then.

        A controller answers a request that ``is_quick`` at once.
        """
        deadline = time.monotonic() + self.timeout_s
        give_up = time.monotonic() + self._leader_wait_s
        failure = ""
        while True:
            try:
                connection = self._any_connection(max(give_up, _quick_deadline()))
            except QuorumUnreachableError as error:
                # No controller has answered so far: do not wait for an election.
                if not failure:
                    raise QuorumUnreachableError(f"{asked}: {error}") from error
                failure = str(error)
                self._pause(give_up, asked, failure)
                continue
            connection.set_deadline(_short_deadline(deadline) if is_quick else deadline)
            try:
                response = exchange(connection)
                error_code = error_of(response)
                if error_code not in (NOT_LEADER_OR_FOLLOWER, NOT_CONTROLLER, BROKER_NOT_AVAILABLE):
                    # A follower too answers that this client may not ask.
                    connection.is_leader = error_code != CLUSTER_AUTHORIZATION_FAILED
                    if isinstance(response, DescribeQuorumResponse) and error_code == NONE:
                        self._note_description(connection, response)
                    return response
                connection.is_leader = False
                host, port = connection.address
                failure = f"{host}:{port} does not lead, and names no leader"
                leader = self._leader_named_by(connection, response)
                if leader is not None and leader.address != connection.address:
                    failure = "{}:{} names {}:{} as the leader".format(host, port, *leader.address)
                    failed = self._connect(leader.address, _short_deadline(deadline), leader)
                    if not failed:
                        continue
                    failure += f", which fails: {failed}"
            except (OSError, CorruptRecordError) as error:
                self.close()
                if isinstance(error, _LeaderChangedError):
                    leader = error.leader
                    if not self._connect(leader.address, _short_deadline(deadline), leader):
                        continue
                if not is_quick:
                    # A leader that fails in a long request leaves the wait for its successor.
                    give_up = max(give_up, time.monotonic() + self._leader_wait_s)
                    give_up = min(give_up, deadline)
                failure = f"the connection failed: {error}"
            self._pause(give_up, asked, failure)

    def _pause(self, give_up: float, asked: str, failure: str) -> None:
        if time.monotonic() + _RETRY_PAUSE_S >= give_up:
            raise QuorumUnreachableError(f"{asked}: {self._survey()} (last: {failure})")
        time.sleep(_RETRY_PAUSE_S)
        # The last controller knows no leader: begin again with another of the given servers.
        self._servers.append(self._servers.pop(0))
        self.close()

    def _survey(self) -> str:
        """Ask every known controller once; return how many answered and which leader they name."""
        self.close()
        waiting = [*self._servers]
        answered: list[str] = []
        failed: list[str] = []
        leader_ids: set[int] = set()
        is_denied = False
        end = time.monotonic() + _SURVEY_S
        for place, server in enumerate(waiting):
            share = max(end - time.monotonic(), 0.1) / (len(waiting) - place)
            name = f"{server[0]}:{server[1]}"
            try:
                failure = self._connect(server, time.monotonic() + share)
                if self._connection is not None and DESCRIBE_CLUSTER.key in (
                    self._connection.peer.ranges
                ):
                    cluster = self._connection.describe_cluster()
                    leader_ids.add(cluster.leader_id)
                    is_denied |= cluster.error == CLUSTER_AUTHORIZATION_FAILED
                    # The loop continues over the controllers added here.
                    found = dict.fromkeys(cluster.controllers.values())
                    waiting += [address for address in found if address not in waiting]
            except (OSError, KraftError) as error:
                failure = f"{name}: {error}"
            if failure:
                failed.append(failure)
            else:
                answered.append(name)
        self.close()
        text = f"{len(answered)} of {len(waiting)} controllers answered"
        if answered:
            text += f" ({', '.join(answered)})"
        leader_ids -= {-1}
        if leader_ids:
            named = ", ".join(map(str, sorted(leader_ids)))
            text += f" and named controller {named} as the leader"
        elif is_denied:
            text += (
                ", and this client may not ask who leads: give it the addresses of all "
                "controllers, or allow it DESCRIBE on the cluster"
            )
        else:
            text += (
                ", and no controller leads: a majority of the voters must run and reach each other"
            )
        return "; ".join((text, *failed))

    # -- who leads

    def _note_description(self, leader: _Connection, response: DescribeQuorumResponse) -> None:
        """Remember the voters, and ask them who leads while this leader does not answer."""
        self._voters = [
            (endpoints[0].host, endpoints[0].port)
            for endpoints in response.nodes.values()
            if endpoints
        ]
        named = _NamedLeader(response.leader_id, response.epoch, leader.address)
        leader.watch = partial(self._check_leader, named)

    def _check_leader(self, leader: _NamedLeader) -> None:
        """Raise _LeaderChangedError if a controller follows another leader of a later epoch."""
        for address in dict.fromkeys((*self._servers, *self._voters)):
            if address == leader.address:
                continue
            found = None
            deadline = time.monotonic() + _LAST_CONNECT_S
            # A controller that fails leaves the question to the others.
            with suppress(OSError, UnicodeError, KraftError):
                other = _Connection(address, self._client_id, deadline, self._security)
                with closing(other):
                    found = _described_leader(other) or _fetched_leader(other)
            if found is not None and found.epoch > leader.epoch and found.id != leader.id:
                raise _LeaderChangedError(leader, found)

    def _leader_named_by(self, connection: _Connection, response: object) -> _NamedLeader | None:
        if not isinstance(response, DescribeQuorumResponse):
            response = None
        named = _described_leader(connection, response)
        if named is None and DESCRIBE_CLUSTER.key in connection.peer.ranges:
            cluster = connection.describe_cluster()
            if cluster.leader_id in cluster.controllers:
                return _NamedLeader(cluster.leader_id, -1, cluster.controllers[cluster.leader_id])
        return named or _fetched_leader(connection)


def _described_leader(
    connection: _Connection, response: DescribeQuorumResponse | None = None
) -> _NamedLeader | None:
    """Return the leader that a response to DescribeQuorum names, by default a new one."""
    if response is None:
        answer = connection.request(DescribeQuorumRequest())
        assert isinstance(answer, DescribeQuorumResponse)
        response = answer
    for endpoint in response.leader_endpoints:
        return _NamedLeader(response.leader_id, response.epoch, (endpoint.host, endpoint.port))
    if response.error == NONE:
        return _NamedLeader(response.leader_id, response.epoch, connection.address)
    return None


def _fetched_leader(connection: _Connection) -> _NamedLeader | None:
    """Return the leader that a voter names in its response to a fetch with an old epoch.

    Kafka's followers name it only there, and in DescribeCluster if it is registered.
    """
    if FETCH.key not in connection.peer.ranges:
        return None
    fetched = connection.request(FetchRequest(None, ReplicaKey(-1), 0, 0, 0))
    assert isinstance(fetched, FetchResponse)
    for endpoint in fetched.leader_endpoints:
        return _NamedLeader(fetched.leader_id, fetched.epoch, (endpoint.host, endpoint.port))
    return None


def _quick_deadline() -> float:
    """Return a deadline long enough to connect, or to be refused, at once."""
    return time.monotonic() + _LAST_CONNECT_S


def _short_deadline(deadline: float) -> float:
    """Return the deadline of one request that a controller answers at once.

    A controller that hangs must leave time to ask the others for a new leader.
    """
    now = time.monotonic()
    return now + max((deadline - now) / 4, _LAST_CONNECT_S)
