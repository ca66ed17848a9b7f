"""Answer the requests of one API: decode, submit an operation, encode the response.

A module of an API writes a `ListenerApi`: how a request becomes a response, and the response to a
request that the controller rejects as a whole. `reply` runs it for a request of a connection, and
for one inside an envelope. A malformed body raises CorruptRecordError, which closes the connection,
as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.codec.metadata_codec import Message
from kraft.controller.quotas.mutations import MutationRecorder
from kraft.errors import NOT_CONTROLLER, KraftError, UnforwardableRequestError
from kraft.image.security import AclOperation, ResourceType
from kraft.network.handler import AnswersAhead, Handler, HandlerAnswer
from kraft.protocol.broker_heartbeat import BROKER_HEARTBEAT
from kraft.protocol.broker_registration import BROKER_REGISTRATION
from kraft.protocol.controller_registration import CONTROLLER_REGISTRATION
from kraft.protocol.headers import Api, Body, RequestHeader
from kraft.security.authorizer import Action, Authorizer, RequestContext
from kraft.security.controller_apis import (
    CLUSTER_NAME,
    CLUSTER_OPERATIONS,
    check_cluster_operation,
)
from kraft.security.hosts import java_host
from kraft.security.principals import ANONYMOUS, KafkaPrincipal
from kraft.security.protocols import PeerIdentity, SecurityProtocol
from kraft.server.apis.error_responses import encode_rejection
from kraft.server.apis.request_time import RequestTimer
from kraft.server.client_quotas import ClientQuotaState
from kraft.server.driver import now_ms

#: The requests that brokers and controllers must send to stay registered and unfenced: they never
#: wait behind other requests.
KEEPS_ALIVE = frozenset(
    (BROKER_REGISTRATION.key, BROKER_HEARTBEAT.key, CONTROLLER_REGISTRATION.key)
)
Request = TypeVar("Request")


class CallContext(NamedTuple):
    """The circumstances of a request.

    ``host`` is the client's address as `java_host` writes it. ``listener`` is the listener that
    received the request. ``is_forwarded``: the request came in an envelope, and the broker that
    sent it authenticated the client. ``protocol`` is the connection's security protocol. Without an
    ``authorizer`` every operation is allowed; without ``quotas`` no quota applies. ``mutations``
    counts the partitions that the request creates or deletes against the client's quota.
    ``operations`` are those on the cluster that APIs need as a whole, by the name of the API.
    """

    version: int
    api_name: str
    principal: KafkaPrincipal = ANONYMOUS
    host: str = ""
    client_id: str = ""
    listener: str = ""
    is_forwarded: bool = False
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    authorizer: Authorizer | None = None
    quotas: ClientQuotaState | None = None
    mutations: MutationRecorder | None = None
    operations: Mapping[str, AclOperation] = CLUSTER_OPERATIONS
    correlation: int = 0

    def check_cluster_operation(self) -> None:
        """Raise ClusterAuthorizationError if the API needs a denied operation on the cluster.

        Raises AuthorizerNotReadyError before the ACLs are loaded.
        """
        if self.authorizer is not None:
            check_cluster_operation(self.authorizer, self._who, self.operations)

    def check_acls_loaded(self) -> None:
        """Raise AuthorizerNotReadyError while only super users may do anything.

        For an API whose operation checks the ACLs: it would wait for a leader first.
        """
        if self.authorizer is not None:
            self.authorizer.check_ready(self.principal)

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """Return whether the client may do the operation. Raises AuthorizerNotReadyError."""
        if self.authorizer is None:
            return True
        action = Action(operation, resource_type, name, log_if_denied=log_if_denied)
        return self.authorizer.authorize(self._who, action)

    def allows_on_cluster(self, operation: AclOperation) -> bool:
        """Return whether the client may do the operation on the cluster, and so on every topic.

        A denial is not logged, because the caller then checks the topics one by one.
        """
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False)

    def with_mutations(self, strict_since: int) -> CallContext:
        """Return the context with the client's mutation quota.

        The quota is strict from version ``strict_since`` of the API on.
        """
        if self.quotas is None:
            return self
        recorder = self.quotas.mutations.recorder(
            self.principal,
            self.client_id,
            is_strict=self.version >= strict_since,
            clock=now_ms,
        )
        return self if recorder is None else self._replace(mutations=recorder)

    def request_timer(self) -> RequestTimer | None:
        """Return a timer if a request quota may apply. Cluster actions are exempt."""
        if not self.quotas or not self.quotas.requests or self.is_cluster_action:
            return None
        return RequestTimer()

    @property
    def is_cluster_action(self) -> bool:
        """Whether only brokers and controllers send this request: no quota may delay it."""
        return self.operations.get(self.api_name) is AclOperation.CLUSTER_ACTION

    def throttle_ms(self, timer: RequestTimer | None) -> int:
        """Return how long the client has to wait for its quotas."""
        throttle_ms = 0 if self.mutations is None else self.mutations.throttle_ms()
        if timer is not None and self.quotas is not None:
            requests_ms = self.quotas.requests.record(
                self.principal, self.client_id, timer.taken_ms, now_ms()
            )
            throttle_ms = max(throttle_ms, requests_ms)
        return throttle_ms

    @property
    def _who(self) -> RequestContext:
        return RequestContext(self.principal, self.host, self.api_name)


class Reply(NamedTuple):
    """The body of a response, in parts if it has records of files (`Message.encode_segments`).

    ``error`` is Kafka's code for the whole response, 0 for success.

    ``is_not_controller``: this node does not lead. Kafka's brokers read this from the error of an
    envelope, not from the response inside. ``throttle_ms``: how long the listener reads no further
    request of the connection. A connection on which a broker forwards requests is never muted.
    """

    body: bytes | Sequence[bytes | memoryview | FileSlice]
    is_not_controller: bool = False
    throttle_ms: int = 0
    error: int = 0
    #: Of a client that will probably go on in the same way; ignored for a request in an envelope.
    ahead: AnswersAhead | None = None


class ThrottledResponse(Protocol):
    """A response with the time that its client has to wait."""

    throttle_time_ms: int


class AnsweringApi(Protocol):
    """An API that a broker may forward requests to."""

    @property
    def api(self) -> Api: ...

    async def reply(self, context: CallContext, body: Body) -> Reply:
        """Answer the request. Raises CorruptRecordError for a malformed body."""


class ListenerApi(NamedTuple, Generic[Request]):
    """One API of a controller or broker.

    ``decode`` reads a body of a version. ``answer`` receives the request and returns the response,
    or its encoded body where the core encodes it. ``failed`` returns the response to a request that
    raised an error. With ``strict_since`` the mutation quota applies to this API and is strict from
    this version on. An encoded body begins with the throttle time from version ``throttled_since``
    on; without it no quota delays the clients that get encoded bodies.
    """

    api: Api
    decode: Callable[[Body, int], Request]
    answer: Callable[[Request, CallContext], Awaitable[Message | bytes]]
    failed: Callable[[Request, KraftError], Message]
    strict_since: int | None = None
    throttled_since: int | None = None

    async def reply(self, context: CallContext, body: Body) -> Reply:
        """Answer the request.

        Raises CorruptRecordError for a malformed body, UnforwardableRequestError where ``answer``
        does: both close the connection.
        """
        if self.strict_since is not None:
            context = context.with_mutations(self.strict_since)
        timer = context.request_timer()
        if timer is None:
            response, error = await self._response(context, body)
        else:
            response, error = await timer.run(self._response(context, body))
        is_not_controller = error == NOT_CONTROLLER
        if isinstance(response, bytes):
            if self.throttled_since is None:
                return Reply(response, is_not_controller, error=error)
            throttle_ms = context.throttle_ms(timer)
            if throttle_ms and context.version >= self.throttled_since:
                response = throttle_ms.to_bytes(4, "big") + response[4:]
            return Reply(response, throttle_ms=throttle_ms, error=error)
        throttle_ms = context.throttle_ms(timer)
        if throttle_ms:
            cast(ThrottledResponse, response).throttle_time_ms = throttle_ms
        encode = encode_rejection if error else type(response).encode
        return Reply(
            encode(response, context.version),
            is_not_controller,
            0 if context.is_forwarded else throttle_ms,
            error or getattr(response, "error_code", 0),
        )

    async def _response(self, context: CallContext, body: Body) -> tuple[Message | bytes, int]:
        """Return the response, and the code of the error that the API raised, 0 for none."""
        request = self.decode(body, context.version)
        try:
            context.check_cluster_operation()
            return await self.answer(request, context), 0
        except UnforwardableRequestError:
            raise
        except KraftError as error:
            return self.failed(request, error), error.kafka_code


#: An API of any request.
AnyApi = ListenerApi[Any]


def handler_of(
    api: AnsweringApi,
    authorizer: Authorizer | None,
    quotas: ClientQuotaState | None,
    errors: Counter[tuple[str, int]],
    operations: Mapping[str, AclOperation] = CLUSTER_OPERATIONS,
) -> Handler:
    """Return the listener's handler of an API.

    ``errors`` counts the responses, see `Traffic.errors`. ``operations`` are those of a controller;
    a broker's are `BROKER_OPERATIONS`.
    """

    name = api.api.name

    async def answer(header: RequestHeader, body: Body, peer: PeerIdentity) -> HandlerAnswer:
        context = CallContext(
            header.version,
            name,
            peer.principal,
            java_host(peer.address),
            client_id=header.client_id or "",
            listener=peer.listener,
            protocol=peer.protocol,
            authorizer=authorizer,
            quotas=quotas,
            operations=operations,
            correlation=header.correlation,
        )
        reply = await api.reply(context, body)
        errors[name, reply.error] += 1
        return HandlerAnswer(reply.body, reply.throttle_ms, reply.ahead)

    return Handler(
        api.api,
        answer,
        keeps_alive=api.api.key in KEEPS_ALIVE,
        is_gathered=api.api is BROKER_HEARTBEAT,
    )
