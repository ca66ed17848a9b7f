"""``Channel``: requests to one node over one connection that stays open, for callers on the loop.

A channel is a `Peer` with coroutines in front: the first request opens the connection, and one
request is in flight at a time. `Transport` owns the raft node's connections; the other parts of a
node have a channel for each purpose, so that none of their requests waits behind a slow one of
another kind.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.errors import UnsupportedVersionError
from kraft.network.authentication import ListenerSecurity
from kraft.network.connections import Peer, PeerCall
from kraft.network.framing import Buffer
from kraft.network.throttled_log import ThrottledLog
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.headers import Api
from kraft.raft.interface import Event
from kraft.raft.voters import Endpoint

Answer = TypeVar("Answer", bound=Message)


class Channel:
    """A connection to ``endpoint``, opened when needed and again after it was lost.

    Create it on the event loop.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        security: ListenerSecurity,
        warnings: ThrottledLog,
    ) -> None:
        self.endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._peer = Peer(self._loop, endpoint, client_id, _no_event, warnings, security)

    async def call(
        self, api: Api, request: Message, answer: type[Answer], *, timeout_ms: float
    ) -> Answer:
        """Send the request once the ones before it are answered; return its response.

        Raises ConnectionError if the connection fails or there is no response within
        ``timeout_ms``; the connection is closed then. Raises UnsupportedVersionError if the node
        serves no version of the API that can carry the request.
        """
        done: asyncio.Future[Answer] = self._loop.create_future()

        def decode(frame: Buffer, version: int, body_at: int) -> Answer:
            return answer.decode(frame, version, body_at)

        def answered(response: Answer) -> None:
            if not done.done():
                done.set_result(response)

        def failed(is_unsupported: bool) -> None:
            if done.done():
                return
            if is_unsupported:
                done.set_exception(
                    UnsupportedVersionError(
                        f"{self.endpoint!r} does not serve {api.name} in a version that can carry "
                        "the request"
                    )
                )
            else:
                done.set_exception(ConnectionError(f"{self.endpoint!r} did not answer {api.name}"))

        timer = self._loop.call_later(timeout_ms / 1000, self._peer.close)
        try:
            self._peer.call(
                PeerCall(api, request.encode, decode, answered, failed), timeout_ms / 1000
            )
            return await done
        finally:
            timer.cancel()

    @property
    def versions(self) -> PeerVersions | None:
        """The node's ApiVersions response; None while there is no connection."""
        return self._peer.versions

    def close(self) -> None:
        """Close the connection; requests without a response fail."""
        self._peer.close()


def _no_event(event: Event) -> None:
    """Take the events of a raft node, of which a channel has none."""
