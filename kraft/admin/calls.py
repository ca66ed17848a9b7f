"""The requests of the admin functions, on their way to the active controller.

`ControllerCalls` sends one request at a time by a `QuorumClient`, which finds the active controller
and follows it, and waits where a controller throttles the client (KIP-219). Every admin function
takes it as its first argument; the modules of this package have the functions by subject.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.errors import NONE, NOT_CONTROLLER
from kraft.network.controller_connection import Address
from kraft.network.quorum_client import Answered, QuorumClient, QuorumRefusedError
from kraft.protocol.headers import Api
from kraft.raft.rpc import Request, Response

M = TypeVar("M", bound=Message)

#: The part of a request's timeout that the controller gets, so that the controller's error arrives
#: before the client gives up.
_CONTROLLER_SHARE = 0.9


class _Throttled(Protocol):
    throttle_time_ms: int


class _WholeResponse(Protocol):
    """A response with one error for all of it."""

    error_code: int


class ControllerCalls:
    """Sends the requests of admin functions; one at a time."""

    def __init__(self, client: QuorumClient) -> None:
        self.client = client
        #: When a throttled client may send again, by the monotonic clock.
        self._throttled_until = 0.0

    @property
    def controller_timeout_ms(self) -> int:
        """The time that a request gives the controller, in ms."""
        return int(self.client.request_timeout_s * _CONTROLLER_SHARE * 1000)

    def call(
        self,
        api: Api,
        request: Message,
        response_type: type[M],
        codes_of: Callable[[M], Iterable[int]],
    ) -> Answered[M]:
        """Send a request to the active controller; return its response.

        ``codes_of`` returns the error codes of a response: NOT_CONTROLLER among them makes the
        client send the request to the next leader; all others are the caller's. Raises
        QuorumUnreachableError, QuorumRefusedError, UnsupportedVersionError.
        """

        def leader_error(response: M) -> int:
            return NOT_CONTROLLER if NOT_CONTROLLER in codes_of(response) else NONE

        self._wait()
        answered = self.client.call(api, request, response_type, leader_error)
        self._note_throttle(answered.response)
        return answered

    def call_whole(
        self, api: Api, request: Message, response_type: type[M], asked: str
    ) -> Answered[M]:
        """As `call`, for a response with one error; raises it as QuorumRefusedError."""
        answered = self.call(api, request, response_type, lambda each: (each.error_code,))  # type: ignore[attr-defined]
        response = answered.response
        code: int = response.error_code  # type: ignore[attr-defined]
        if code != NONE:
            raise QuorumRefusedError(code, asked, getattr(response, "error_message", None))
        return answered

    def call_at(self, address: Address, api: Api, request: Message, response_type: type[M]) -> M:
        """Send a request about one controller to this controller; return its response."""
        self._wait()
        response = self.client.call_at(address, api, request, response_type)
        self._note_throttle(response)
        return response

    def ask(self, request: Request, asked: str) -> Response:
        """Return the leader's response to a request of the raft layer, without error."""
        return self.client.ask_leader(request, asked)

    def _wait(self) -> None:
        left_s = self._throttled_until - time.monotonic()
        if left_s > 0:
            time.sleep(min(left_s, self.client.timeout_s))

    def _note_throttle(self, response: Message) -> None:
        throttle_time_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_time_ms > 0:
            self._throttled_until = time.monotonic() + throttle_time_ms / 1000
