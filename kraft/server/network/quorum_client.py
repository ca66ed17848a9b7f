"""A client of the quorum, for commands and tests: plain blocking sockets, one request at a time.

Owns finding the leader: a node that does not lead says who does, in its answer to DescribeQuorum
(ours), to DescribeCluster, or to a Fetch (any); while nobody leads, the client asks on until its
time is over. Then it asks every controller that it knows of once more, and the error says how many
answered. Every error says in words what was asked, of whom, and what came back.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from kraft import __version__
from kraft.errors import CorruptRecordError, KraftError, UnsupportedVersionError
from kraft.raft.messages import (
    BROKER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNSUPPORTED_VERSION,
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
from kraft.server.rpc.api_versions import (
    PeerVersions,
    decode_api_versions_response,
    encode_api_versions_request,
    version_to_retry,
)
from kraft.server.rpc.cluster_description import (
    ClusterDescription,
    decode_describe_cluster,
    encode_describe_cluster,
)
from kraft.server.rpc.requests import encode_request
from kraft.server.rpc.responses import decode_response
from kraft.server.rpc.wire import (
    API_OF_REQUEST,
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FETCH,
    Api,
    newest_common_version,
    read_response_header,
    request_frame,
)

#: (host, port)
Address = tuple[str, int]

R = TypeVar("R")

NOT_CONTROLLER = 41

_MAX_RESPONSE_SIZE = 100 * 1024 * 1024
_RETRY_PAUSE_S = 0.1
# How long a server may take to shake hands while there are others to be asked.
_CONNECT_S = 3.0
# What asking every controller once more takes at most, after nobody led for the whole time.
_SURVEY_S = 2.0
# The listener's name does not matter to a client: it only names endpoints in answers.
_LISTENER = "CONTROLLER"

#: The words for the codes that a quorum answers with.
ERROR_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    35: "UNSUPPORTED_VERSION",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    95: "INVALID_UPDATE_VERSION",
    96: "FEATURE_UPDATE_FAILED",
    104: "INCONSISTENT_CLUSTER_ID",
    114: "MISMATCHED_ENDPOINT_TYPE",
    125: "INVALID_VOTER_KEY",
    126: "DUPLICATE_VOTER",
    127: "VOTER_NOT_FOUND",
}


class QuorumUnreachableError(KraftError):
    """No controller answered, or none leads, within the time."""

    kafka_code = 13


class QuorumRefusedError(KraftError):
    """The quorum answered with an error; ``kafka_code`` is it."""

    def __init__(self, code: int, asked: str, message: str | None) -> None:
        self.kafka_code = code
        name = ERROR_NAMES.get(code, f"error {code}")
        super().__init__(f"{asked}: {name}" + (f" ({message})" if message else ""))


class _Connection:
    """A connection to one controller, after the handshake."""

    def __init__(self, address: Address, client_id: str, deadline: float) -> None:
        self.address = address
        self._client_id = client_id
        self._deadline = deadline
        self._correlation = 0
        self._socket = socket.create_connection(address, timeout=self._time_left())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.peer = self._shake_hands()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def until(self, deadline: float) -> None:
        """Everything from here on has time until then."""
        self._deadline = deadline

    def _time_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is over")
        return left

    def _shake_hands(self) -> PeerVersions:
        version = API_VERSIONS.highest
        while True:
            body = encode_api_versions_request(version, __version__)
            frame, at = self.ask(API_VERSIONS, version, body)
            peer = decode_api_versions_response(version, frame, at)
            if peer.error == UNSUPPORTED_VERSION and version_to_retry(peer) < version:
                version = version_to_retry(peer)
            elif peer.error != NONE:
                raise QuorumRefusedError(peer.error, "ApiVersions", None)
            else:
                return peer

    def version(self, api: Api) -> int:
        version = newest_common_version(api, self.peer.ranges)
        if version is None:
            host, port = self.address
            raise UnsupportedVersionError(f"{host}:{port} does not serve {api.name}")
        return version

    def ask(self, api: Api, version: int, body: bytes) -> tuple[bytes, int]:
        """The response, and where its body begins. Raises OSError, CorruptRecordError."""
        self._correlation += 1
        self._socket.settimeout(self._time_left())
        self._socket.sendall(request_frame(api, version, self._correlation, self._client_id, body))
        size = int.from_bytes(self._receive(4), "big", signed=True)
        if not 0 <= size <= _MAX_RESPONSE_SIZE:
            raise CorruptRecordError(f"a response of {size} bytes")
        frame = self._receive(size)
        correlation, at = read_response_header(frame, api, version)
        if correlation != self._correlation:
            raise CorruptRecordError(f"the answer to {correlation}, not to {self._correlation}")
        return frame, at

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            self._socket.settimeout(self._time_left())
            part = self._socket.recv(min(size - len(received), 1 << 20))
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
    """Asks and changes a quorum through any of its controllers.

    Every method raises QuorumUnreachableError, QuorumRefusedError, and UnsupportedVersionError
    where the controller is too old for what is asked.
    """

    def __init__(
        self,
        servers: Sequence[Address],
        *,
        timeout_s: float = 30.0,
        leader_wait_s: float | None = None,
        client_id: str = "kraft-quorum",
    ) -> None:
        if not servers:
            raise ValueError("no controller to ask")
        self._servers = list(servers)
        self._timeout_s = timeout_s
        #: How long a leader is waited for while nobody leads.
        self._leader_wait_s = timeout_s if leader_wait_s is None else min(leader_wait_s, timeout_s)
        self._client_id = client_id
        self._connection: _Connection | None = None

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

    # -- what can be asked

    def describe_quorum(self) -> DescribeQuorumResponse:
        """As the leader sees it."""
        response = self._ask_leader(DescribeQuorumRequest(), "DescribeQuorum")
        assert isinstance(response, DescribeQuorumResponse)
        return response

    def add_voter(
        self, voter: ReplicaKey, endpoints: tuple[Endpoint, ...], cluster_id: str | None = None
    ) -> None:
        """Returns when the new voters are committed."""
        # The quorum gives up before this client does, so that it can say so.
        timeout_ms = int(self._timeout_s * 900)
        request = AddRaftVoterRequest(cluster_id, timeout_ms, voter, endpoints)
        self._ask_leader(request, f"adding controller {voter!r}")

    def remove_voter(self, voter: ReplicaKey, cluster_id: str | None = None) -> None:
        """Returns when the new voters are committed."""
        self._ask_leader(
            RemoveRaftVoterRequest(cluster_id, voter), f"removing controller {voter!r}"
        )

    def update_kraft_version(self, level: int, *, validate_only: bool = False) -> None:
        """Raise the finalized level of kraft.version."""
        request = UpdateKRaftVersionRequest(level, validate_only=validate_only)
        self._ask_leader(request, f"updating kraft.version to {level}")

    def api_versions(self) -> PeerVersions:
        """What the first controller that answers serves; any will do, leader or not."""
        deadline = time.monotonic() + self._timeout_s
        return self._any(deadline).peer

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its controllers and their leader, as any controller sees them."""
        deadline = time.monotonic() + self._timeout_s
        try:
            cluster = self._any(deadline).describe_cluster()
        except (OSError, CorruptRecordError) as error:
            self.close()
            raise QuorumUnreachableError(f"DescribeCluster: {error}") from error
        if cluster.error != NONE:
            raise QuorumRefusedError(cluster.error, "DescribeCluster", cluster.message)
        return cluster

    # -- finding who answers

    def _any(self, deadline: float) -> _Connection:
        """The connection at hand, or a new one to the first server that answers."""
        if self._connection is not None:
            self._connection.until(deadline)
            return self._connection
        failures = []
        for place, server in enumerate(self._servers):
            # A server that swallows everything must not take the others' time.
            others = len(self._servers) - place - 1
            share = (deadline - time.monotonic()) / (others + 1)
            if others:
                share = min(share, _CONNECT_S)
            failure = self._connect(server, time.monotonic() + share)
            if self._connection is not None:
                self._connection.until(deadline)
                return self._connection
            failures.append(failure)
        raise QuorumUnreachableError(f"no controller answers: {'; '.join(failures)}")

    def _connect(self, server: Address, deadline: float) -> str:
        """Connect to this server and no other; why it failed, else ""."""
        self.close()
        try:
            self._connection = _Connection(server, self._client_id, deadline)
        except (OSError, UnicodeError, CorruptRecordError) as error:
            return f"{server[0]}:{server[1]}: {error}"
        return ""

    def _ask_leader(self, request: Request, asked: str) -> Response:
        deadline = time.monotonic() + self._timeout_s
        give_up = time.monotonic() + self._leader_wait_s
        failure = ""
        while True:
            try:
                connection = self._any(max(give_up, _soon()))
            except QuorumUnreachableError as error:
                # Where none has ever answered, it is not an election that is waited for.
                if not failure:
                    raise QuorumUnreachableError(f"{asked}: {error}") from error
                failure = str(error)
                self._pause(give_up, asked, failure)
                continue
            is_quick = isinstance(request, DescribeQuorumRequest)
            connection.until(_part_of_time(deadline) if is_quick else deadline)
            try:
                response = connection.request(request)
                if response.error not in (
                    NOT_LEADER_OR_FOLLOWER,
                    NOT_CONTROLLER,
                    BROKER_NOT_AVAILABLE,
                ):
                    break
                host, port = connection.address
                failure = f"{host}:{port} does not lead, and names no leader"
                leader = self._leader_named_by(connection, response)
                if leader is not None and leader != connection.address:
                    failure = f"{host}:{port} names {leader[0]}:{leader[1]} as the leader"
                    failed = self._connect(leader, _part_of_time(deadline))
                    if not failed:
                        continue
                    failure += f", which fails: {failed}"
            except (OSError, CorruptRecordError) as error:
                self.close()
                failure = f"the connection failed: {error}"
            self._pause(give_up, asked, failure)
        if response.error != NONE:
            message = getattr(response, "message", None)
            raise QuorumRefusedError(response.error, asked, message)
        return response

    def _pause(self, give_up: float, asked: str, failure: str) -> None:
        if time.monotonic() + _RETRY_PAUSE_S >= give_up:
            raise QuorumUnreachableError(f"{asked}: {self._survey()} (last: {failure})")
        time.sleep(_RETRY_PAUSE_S)
        # Whoever was asked knows no better: begin again with those that were given, and with
        # another of them.
        self._servers.append(self._servers.pop(0))
        self.close()

    def _survey(self) -> str:
        """Ask every controller that is known once, and say how many answered and who leads."""
        self.close()
        waiting = [*self._servers]
        answered: list[str] = []
        failed: list[str] = []
        leader_ids: set[int] = set()
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
                    # The loop goes on over those that are found here.
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
        else:
            text += ", and nobody leads: a majority of the voters must run and reach each other"
        return "; ".join((text, *failed))

    def _leader_named_by(self, connection: _Connection, response: Response) -> Address | None:
        if not isinstance(response, DescribeQuorumResponse):
            response = connection.request(DescribeQuorumRequest())
        assert isinstance(response, DescribeQuorumResponse)
        for endpoint in response.leader_endpoints:
            return endpoint.host, endpoint.port
        if response.error == NONE:
            return connection.address
        if DESCRIBE_CLUSTER.key in connection.peer.ranges:
            cluster = connection.describe_cluster()
            if cluster.leader_id in cluster.controllers:
                return cluster.controllers[cluster.leader_id]
        if FETCH.key not in connection.peer.ranges:
            return None
        # Kafka describes controllers that are registered, and kraft's are not. To whoever fetches
        # as of no epoch every voter says who leads.
        fetched = connection.request(FetchRequest(None, ReplicaKey(-1), 0, 0, 0))
        assert isinstance(fetched, FetchResponse)
        for endpoint in fetched.leader_endpoints:
            return endpoint.host, endpoint.port
        return None


def _soon() -> float:
    """As long as a connection that is refused, or made at once, takes."""
    return time.monotonic() + _RETRY_PAUSE_S


def _part_of_time(deadline: float) -> float:
    """How long one controller may take for what is answered at once: one that has come to a stop
    must leave time to ask the others for its successor.
    """
    now = time.monotonic()
    return now + (deadline - now) / 4
