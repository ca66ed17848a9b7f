"""``ControllerChannel``: requests of a broker to the active controller, whichever node that is.

A broker has one for each purpose, as Kafka: heartbeats never wait behind forwarded requests or
changes of ISRs. A request goes to the present leader of the quorum; where there is none, where the
connection fails and where the node no longer leads, it is sent again, until its time is over.
Source: Kafka's ``NodeToControllerChannelManagerImpl`` (4.3.1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraft._core.codec.metadata_codec import Message
from kraft.errors import NONE, NOT_CONTROLLER, RequestTimedOutError
from kraft.network.authentication import ListenerSecurity
from kraft.network.channel import Answer, Channel
from kraft.network.throttled_log import ThrottledLog
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.headers import Api
from kraft.raft.voters import Endpoint

#: Pause before a request is sent again, or a leader is looked for again.
RETRY_S = 0.02


class ControllerChannel:
    """A connection to the active controller.

    ``leader`` returns the address of the present leader, None without a known one.
    ``attempt_timeout_ms`` is the time after which an unanswered request is sent again
    (controller.quorum.request.timeout.ms). Create it on the event loop.
    """

    def __init__(
        self,
        leader: Callable[[], Endpoint | None],
        client_id: str,
        security: ListenerSecurity,
        warnings: ThrottledLog,
        *,
        attempt_timeout_ms: float,
    ) -> None:
        self._leader = leader
        self._client_id = client_id
        self._security = security
        self._warnings = warnings
        self._attempt_timeout_ms = attempt_timeout_ms
        self._channel: Channel | None = None
        self._is_closed = False

    @property
    def versions(self) -> PeerVersions | None:
        """The ApiVersions response of the connected controller; None without a connection."""
        return None if self._channel is None else self._channel.versions

    async def call(
        self, api: Api, request: Message, answer: type[Answer], *, timeout_ms: float
    ) -> Answer:
        """Return the response of the active controller.

        Raises RequestTimedOutError if there is none within ``timeout_ms``, UnsupportedVersionError
        if the controller serves no version of the API that can carry the request.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        reason = "the broker is stopping"
        while not self._is_closed:
            left_ms = (deadline - loop.time()) * 1000
            if left_ms <= 0:
                break
            channel = self._channel_to_leader()
            if channel is None:
                reason = "the quorum has no leader"
            else:
                attempt_ms = min(left_ms, self._attempt_timeout_ms)
                try:
                    response = await channel.call(api, request, answer, timeout_ms=attempt_ms)
                except ConnectionError as error:
                    reason = str(error)
                else:
                    if getattr(response, "error_code", NONE) != NOT_CONTROLLER:
                        return response
                    reason = f"{channel.endpoint!r} is not the active controller"
            await asyncio.sleep(RETRY_S)
        raise RequestTimedOutError(f"{api.name} has no answer after {timeout_ms:.0f} ms: {reason}")

    def _channel_to_leader(self) -> Channel | None:
        endpoint = self._leader()
        channel = self._channel
        if channel is not None and endpoint is not None and channel.endpoint != endpoint:
            channel.close()
            channel = None
        if channel is None and endpoint is not None:
            channel = Channel(endpoint, self._client_id, self._security, self._warnings)
        self._channel = channel
        return channel if endpoint is not None else None

    def close(self) -> None:
        """Close the connection; requests without a response fail."""
        self._is_closed = True
        if self._channel is not None:
            self._channel.close()
