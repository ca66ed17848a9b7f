"""Answer the requests of one API: decode, submit an operation, encode the response.

A module of an API writes a `ListenerApi`: how a request becomes a response, and the response to a
request that the controller rejects as a whole. `reply` runs it for a request of a connection, and
for one inside an envelope. A malformed body raises CorruptRecordError, which closes the connection,
as in Kafka.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.errors import NOT_CONTROLLER, KraftError
from kraft.image.security import AclOperation, ResourceType
from kraft.network.handler import Handler
from kraft.protocol.broker_heartbeat import BROKER_HEARTBEAT
from kraft.protocol.broker_registration import BROKER_REGISTRATION
from kraft.protocol.controller_registration import CONTROLLER_REGISTRATION
from kraft.protocol.headers import Api, Body, RequestHeader
from kraft.security.authorizer import Action, Authorizer, RequestContext
from kraft.security.controller_apis import CLUSTER_NAME, check_cluster_operation
from kraft.security.hosts import java_host
from kraft.security.principals import ANONYMOUS, KafkaPrincipal

#: Requests without which the controller fences a broker: they never wait behind others.
KEEPS_ALIVE = frozenset(
    (BROKER_REGISTRATION.key, BROKER_HEARTBEAT.key, CONTROLLER_REGISTRATION.key)
)
Request = TypeVar("Request")


@dataclass(frozen=True, slots=True)
class CallContext:
    """The circumstances of a request.

    ``host`` is the client's address as `java_host` writes it; ``is_forwarded``: the request came in
    an envelope, whose broker authenticated the client. Without an ``authorizer`` all is allowed.
    """

    version: int
    api_name: str
    principal: KafkaPrincipal = ANONYMOUS
    host: str = ""
    is_forwarded: bool = False
    authorizer: Authorizer | None = None

    def check_cluster_operation(self) -> None:
        """Raise ClusterAuthorizationError if the API needs an operation on the cluster that is
        denied, AuthorizerNotReadyError before the ACLs are loaded.
        """
        if self.authorizer is not None:
            check_cluster_operation(self.authorizer, self._who)

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """Return whether the client may do this. Raises AuthorizerNotReadyError."""
        if self.authorizer is None:
            return True
        action = Action(operation, resource_type, name, log_if_denied=log_if_denied)
        return self.authorizer.authorize(self._who, action)

    def allows_on_cluster(self, operation: AclOperation) -> bool:
        """Return whether the client may do this to the cluster, and so to every topic of it.

        A denial is not logged, because the topics are checked one by one then.
        """
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False)

    @property
    def _who(self) -> RequestContext:
        return RequestContext(self.principal, self.host, self.api_name)


class Reply(NamedTuple):
    """The body of a response.

    ``is_not_controller``: this node does not lead. Kafka's brokers learn it from the error of an
    envelope, and not from the response inside.
    """

    body: bytes
    is_not_controller: bool = False


class AnsweringApi(Protocol):
    """An API that a broker may forward requests to."""

    @property
    def api(self) -> Api: ...

    async def reply(self, context: CallContext, body: Body) -> Reply:
        """Answer the request. Raises CorruptRecordError for a malformed body."""


@dataclass(frozen=True, slots=True)
class ListenerApi(Generic[Request]):
    """One API of the controller.

    ``decode`` reads a body of a version. ``answer`` receives the request and returns the response,
    or its encoded body where the core encodes it. ``failed`` returns the response to a request that
    raised.
    """

    api: Api
    decode: Callable[[Body, int], Request]
    answer: Callable[[Request, CallContext], Awaitable[Message | bytes]]
    failed: Callable[[Request, KraftError], Message]

    async def reply(self, context: CallContext, body: Body) -> Reply:
        """Answer the request. Raises CorruptRecordError for a malformed body."""
        version = context.version
        request = self.decode(body, version)
        try:
            context.check_cluster_operation()
            response = await self.answer(request, context)
        except KraftError as error:
            is_not_controller = error.kafka_code == NOT_CONTROLLER
            return Reply(self.failed(request, error).encode(version), is_not_controller)
        if isinstance(response, bytes):
            return Reply(response)
        return Reply(response.encode(version))


#: An API of any request.
AnyApi = ListenerApi[Any]


def handler_of(api: AnsweringApi, authorizer: Authorizer | None) -> Handler:
    """Return the listener's handler of an API. Peers of a PLAINTEXT listener are ANONYMOUS."""

    async def answer(header: RequestHeader, body: Body, address: str) -> bytes:
        context = CallContext(
            header.version, api.api.name, host=java_host(address), authorizer=authorizer
        )
        return (await api.reply(context, body)).body

    return Handler(api.api, answer, keeps_alive=api.api.key in KEEPS_ALIVE)
