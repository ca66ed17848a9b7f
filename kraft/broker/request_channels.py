"""Ports of the connections to other nodes, as the parts of a broker see them.

``kraft.network.channel`` and ``kraft.broker.controller_channel`` implement them; tests connect
brokers of one process. A channel sends one request after the other, in the newest version that both
sides support.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.headers import Api

Answer = TypeVar("Answer", bound=Message)


class RequestChannel(Protocol):
    """A connection to one node, or to the node that leads at present."""

    async def call(
        self, api: Api, request: Message, answer: type[Answer], *, timeout_ms: float
    ) -> Answer:
        """Return the response to a request.

        Raises ConnectionError if the connection is lost or the time is over,
        `UnsupportedVersionError` if no common version can carry the request.
        """


class BrokerChannel(RequestChannel, Protocol):
    """A connection to another broker, opened by the first request."""

    def close(self) -> None:
        """Close the connection; requests without a response fail."""


class ActiveControllerChannel(RequestChannel, Protocol):
    """A connection to the active controller; it follows the leader of the quorum.

    `call` raises `RequestTimedOutError` if no controller answers in time.
    """

    @property
    def versions(self) -> PeerVersions | None:
        """The versions of the connected controller, None without a connection."""
