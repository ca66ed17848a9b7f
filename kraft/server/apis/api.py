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
from kraft.network.handler import Handler
from kraft.protocol.headers import Api, Body, RequestHeader

Request = TypeVar("Request")


class RequestContext(NamedTuple):
    """The circumstances of a request; ``is_forwarded``: it came in an envelope."""

    version: int
    is_forwarded: bool = False


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

    async def reply(self, context: RequestContext, body: Body) -> Reply:
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
    answer: Callable[[Request, RequestContext], Awaitable[Message | bytes]]
    failed: Callable[[Request, KraftError], Message]

    async def reply(self, context: RequestContext, body: Body) -> Reply:
        """Answer the request. Raises CorruptRecordError for a malformed body."""
        version = context.version
        request = self.decode(body, version)
        try:
            response = await self.answer(request, context)
        except KraftError as error:
            is_not_controller = error.kafka_code == NOT_CONTROLLER
            return Reply(self.failed(request, error).encode(version), is_not_controller)
        if isinstance(response, bytes):
            return Reply(response)
        return Reply(response.encode(version))


#: An API of any request.
AnyApi = ListenerApi[Any]


def handler_of(api: AnyApi) -> Handler:
    """Return the listener's handler of an API."""

    async def answer(header: RequestHeader, body: Body) -> bytes:
        return (await api.reply(RequestContext(header.version), body)).body

    return Handler(api.api, answer)
