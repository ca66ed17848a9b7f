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
    SECURITY_DISABLED,
    UNSUPPORTED_VERSION,
    CorruptRecordError,
    KraftError,
    SaslAuthenticationError,
    error_name,
)
from kraft.network.connection_faults import asks_for_sasl, explain
from kraft.network.controller_connection import (
    Address,
    ClientSecurity,
    ControllerConnection,
    HandshakeError,
)
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.describe_cluster import DESCRIBE_CLUSTER, ClusterDescription
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import Api
from kraft.protocol.raft_rpcs import API_OF_REQUEST
from kraft.raft.rpc import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FetchRequest,
    FetchResponse,
    Request,
    Response,
)
from kraft.raft.voters import ReplicaKey

R = TypeVar("R")
M = TypeVar("M", bound=Message)

_RETRY_PAUSE_S = 0.1
# How long connect and handshake may take while there are other servers to try. The first round is
# shorter, because a controller that hangs accepts connections; the second is for busy controllers.
_FIRST_CONNECT_S = 1.0
_CONNECT_S = 3.0
# The time for asking every controller once more, after there was no leader until the timeout.
_SURVEY_S = 2.0
# The shortest time of a connection and of a request, also of the last before the timeout: a busy
# controller may need it.
_LAST_CONNECT_S = 1.0
# UnicodeError: the host is not a valid host name.
_CONNECT_ERRORS = (
    *(OSError, UnicodeError, CorruptRecordError),
    *(HandshakeError, SaslAuthenticationError),
)


class QuorumUnreachableError(KraftError):
    """No controller answered, or there was no leader, within the timeout.

    `QuorumClient.call` sets ``may_be_done`` where it sent the request, so that the quorum may have
    carried it out.
    """

    kafka_code = 13
    may_be_done = False


#: What to do about an error, of one request or ("") of all.
_ADVICE = {
    (SECURITY_DISABLED, ""): (
        ". The controllers have no authorizer: set authorizer.class.name in the configuration of "
        "each, and restart them one after the other"
    ),
    (UNSUPPORTED_VERSION, "DescribeCluster"): (
        ". Raise metadata.version first, through a broker or the controllers: kafka-features.sh "
        "--bootstrap-server BROKER:PORT upgrade --release-version 3.7, or kraft features upgrade "
        "--release-version 3.7"
    ),
}


class QuorumRefusedError(KraftError):
    """The quorum answered with the error ``kafka_code``.

    ``name`` is Kafka's name of the error, ``message`` the controller's message, which may be None.
    """

    def __init__(self, code: int, asked: str, message: str | None) -> None:
        self.kafka_code = code
        self.name = error_name(code)
        self.message = message
        said = f"{asked}: {self.name}" + (f" ({message})" if message else "")
        super().__init__(said + _ADVICE.get((code, asked), _ADVICE.get((code, ""), "")))


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


class QuorumClient:
    """Sends requests to the leader of a quorum, which it finds through any of its controllers.

    Every method raises QuorumUnreachableError, QuorumRefusedError, and UnsupportedVersionError
    where the controller does not support the request.
    """

    def __init__(
        self,
        servers: Sequence[Address],
        *,
        timeout_s: float = 30.0,
        request_timeout_s: float | None = None,
        leader_wait_s: float | None = None,
        client_id: str = "kraft-quorum",
        security: ClientSecurity | None = None,
    ) -> None:
        """``timeout_s`` is the longest time of a call with its retries (``default.api.timeout.ms``
        of Kafka's clients), ``request_timeout_s`` that of one attempt (``request.timeout.ms``), by
        default the same. ``leader_wait_s`` is how long to wait while the quorum has no leader.
        """
        if not servers:
            raise ValueError("servers is empty: give the address of at least one controller")
        self._servers = list(servers)
        self.timeout_s = timeout_s
        self.request_timeout_s = min(request_timeout_s or timeout_s, timeout_s)
        self._leader_wait_s = timeout_s if leader_wait_s is None else min(leader_wait_s, timeout_s)
        self._client_id = client_id
        self._security = security or ClientSecurity()
        self._connection: ControllerConnection | None = None
        self._is_aborted = False
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

    def abort(self) -> None:
        """Make the call in progress, and all later ones, fail; may be called from another thread.

        The caller of that call closes the client.
        """
        self._is_aborted = True
        connection = self._connection
        if connection is not None:
            connection.abort()

    # -- requests

    def describe_quorum(self) -> DescribeQuorumResponse:
        """Return the leader's view of the quorum."""
        response = self.ask_leader(DescribeQuorumRequest(), "DescribeQuorum")
        assert isinstance(response, DescribeQuorumResponse)
        return response

    def api_versions(self) -> PeerVersions:
        """Return the present API versions and features of the first controller that answers."""
        connection = self._any_connection(time.monotonic() + self.timeout_s)
        try:
            return connection.api_versions()
        except (OSError, CorruptRecordError) as error:
            self.close()
            host, port = connection.address
            raise QuorumUnreachableError(f"ApiVersions: {host}:{port}: {error}") from error

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, controllers and leader, as the first controller sees them.

        A controller of Kafka's that has just started does not know the metadata.version yet, and
        says that it is too low: the leader knows.
        """
        connection = self._any_connection(time.monotonic() + self.timeout_s)
        try:
            cluster = connection.describe_cluster()
        except (OSError, CorruptRecordError) as error:
            self.close()
            advice = self._sasl_advice(connection, error)
            host, port = connection.address
            raise QuorumUnreachableError(
                f"DescribeCluster: {host}:{port}: {advice or error}"
            ) from error
        may_start = cluster.error == UNSUPPORTED_VERSION and not connection.is_leader
        if may_start and self._find_leader():
            return self.describe_cluster()
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

    def ask_ahead(self, request: Request) -> None:
        """Send a request now, if the leader is connected; `ask` with the same object is to follow.

        `ask` sends it where this method did not, and again where the connection fails.
        """
        connection = self._connection
        if connection is None or not connection.is_leader:
            return
        connection.set_deadline(time.monotonic() + self.request_timeout_s)
        try:
            connection.send_ahead(request)
        except OSError:
            # A part of the request may have been sent.
            self.close()

    def call(
        self, api: Api, request: Message, response_type: type[M], error_of: Callable[[M], int]
    ) -> Answered[M]:
        """Send a request of the controller's APIs to the leader, in the newest common version.

        ``error_of`` returns the error code of a response as a whole: NOT_CONTROLLER makes the
        client find the leader and send the request again, other errors are the caller's.

        Raises QuorumUnreachableError.
        """
        if self._connection is None or not self._connection.is_leader:
            # Find the leader first: a controller that does not lead would reject the first attempt,
            # which would count as an earlier attempt.
            knows_leader = self._find_leader()
        else:
            knows_leader = True
        attempts = 0

        def exchange(connection: ControllerConnection) -> M:
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

        try:
            response = self._at_leader(exchange, error, api.name)
        except QuorumUnreachableError as unreachable:
            unreachable.may_be_done = attempts > 0
            raise
        return Answered(response, attempts > 1)

    def call_at(self, address: Address, api: Api, request: Message, response_type: type[M]) -> M:
        """Send one request to the controller at this address, and return its response.

        For requests about one node, which only that node can answer. There is no second attempt.
        """
        deadline = time.monotonic() + self.request_timeout_s
        try:
            connection = ControllerConnection(address, self._client_id, deadline, self._security)
            with closing(connection):
                version = connection.version(api)
                frame, at = connection.ask(api, version, request.encode(version))
                return response_type.decode(frame, version, at)
        except _CONNECT_ERRORS as error:
            reason = explain(error, address, self._client_id, self._security)
            raise QuorumUnreachableError(
                f"{api.name}: {address[0]}:{address[1]}: {reason}"
            ) from error

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

    def _any_connection(self, deadline: float) -> ControllerConnection:
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
            self._connection = ControllerConnection(
                server, self._client_id, deadline, self._security, watch
            )
        except _CONNECT_ERRORS as error:
            reason = explain(error, server, self._client_id, self._security)
            return f"{server[0]}:{server[1]}: {reason}"
        if self._is_aborted:
            self._connection.abort()
        return ""

    def _sasl_advice(self, connection: ControllerConnection, error: Exception) -> str:
        """Return what to do where the listener closed the connection because it wants SASL."""
        if (
            connection.has_answered
            or self._security.credentials is not None
            or not isinstance(error, ConnectionError)
        ):
            return ""
        return asks_for_sasl(connection.address, self._client_id, self._security)

    def ask_leader(self, request: Request, asked: str) -> Response:
        """Return the leader's response to a request of the raft layer.

        Raises QuorumRefusedError, with ``asked``, if the response is an error.
        """
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
        exchange: Callable[[ControllerConnection], R],
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
            longest = time.monotonic() + self.request_timeout_s
            connection.set_deadline(
                _short_deadline(deadline) if is_quick else min(longest, deadline)
            )
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
                self._check_open(asked)
                if advice := self._sasl_advice(connection, error):
                    host, port = connection.address
                    raise QuorumUnreachableError(f"{asked}: {host}:{port}: {advice}") from error
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
        self._check_open(asked)
        if time.monotonic() + _RETRY_PAUSE_S >= give_up:
            raise QuorumUnreachableError(f"{asked}: {self._survey()} (last: {failure})")
        time.sleep(_RETRY_PAUSE_S)
        # The last controller knows no leader: begin again with another of the given servers.
        self._servers.append(self._servers.pop(0))
        self.close()

    def _check_open(self, asked: str) -> None:
        if self._is_aborted:
            raise QuorumUnreachableError(f"{asked}: the client was closed")

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

    def _note_description(
        self, leader: ControllerConnection, response: DescribeQuorumResponse
    ) -> None:
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
                other = ControllerConnection(address, self._client_id, deadline, self._security)
                with closing(other):
                    found = _described_leader(other) or _fetched_leader(other)
            if found is not None and found.epoch > leader.epoch and found.id != leader.id:
                raise _LeaderChangedError(leader, found)

    def _leader_named_by(
        self, connection: ControllerConnection, response: object
    ) -> _NamedLeader | None:
        if not isinstance(response, DescribeQuorumResponse):
            response = None
        named = _described_leader(connection, response)
        if named is None and DESCRIBE_CLUSTER.key in connection.peer.ranges:
            cluster = connection.describe_cluster()
            if cluster.leader_id in cluster.controllers:
                return _NamedLeader(cluster.leader_id, -1, cluster.controllers[cluster.leader_id])
        return named or _fetched_leader(connection)


def _described_leader(
    connection: ControllerConnection, response: DescribeQuorumResponse | None = None
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


def _fetched_leader(connection: ControllerConnection) -> _NamedLeader | None:
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
