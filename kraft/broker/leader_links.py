"""The connections of a follower's fetches: two for each leader broker.

Fetch waits at the leader for up to replica.fetch.wait.max.ms, so offset queries have a connection
of their own. A connection that fails is dropped: the next request asks for a new one, since the
leader may be back at another address. Used by ``replica_driver``. Source: Kafka's
``RemoteLeaderEndPoint``, ``BrokerBlockingSender`` (4.3.1).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.broker.replication.messages import ListedOffset, PartitionId, ReceivedFetch
from kraft.broker.replication.partition import HostedPartition
from kraft.broker.replication.replica_fetching import FetchToSend, OffsetQuery
from kraft.broker.replication_rpcs import (
    fetch_request,
    list_offsets_request,
    listed_offset,
    received_fetch,
)
from kraft.broker.request_channels import BrokerChannel
from kraft.errors import KraftError
from kraft.network.throttled_log import DEAD_NODE_INTERVAL_S, ThrottledLog
from kraft.protocol.fetch import FETCH, FetchResponseData
from kraft.protocol.headers import Api
from kraft.protocol.list_offsets import LIST_OFFSETS, ListOffsetsResponseData

Answer = TypeVar("Answer", bound=Message)
logger = logging.getLogger(__name__)


class LinkUse(Enum):
    """What a connection is for."""

    FETCH = "fetch"
    QUERY = "query"


class LeaderLinks:
    """The connections of broker ``broker_id`` to the leaders of its followers.

    ``channels`` returns a new connection to a broker, None while its address is unknown.
    ``partitions`` names the topics of queries.
    """

    def __init__(
        self,
        channels: Callable[[int], BrokerChannel | None],
        broker_id: int,
        partitions: Mapping[PartitionId, HostedPartition],
        timeout_ms: float,
    ) -> None:
        self._new_channel = channels
        self._broker_id = broker_id
        self._partitions = partitions
        self._timeout_ms = timeout_ms
        self._open: dict[tuple[int, LinkUse], BrokerChannel] = {}
        self._warnings = ThrottledLog(logger, time.monotonic, DEAD_NODE_INTERVAL_S)

    @property
    def leaders(self) -> set[int]:
        """The brokers with a connection."""
        return {leader_id for leader_id, _ in self._open}

    async def fetch(self, fetch: FetchToSend) -> ReceivedFetch | None:
        """Return the leader's response, None without one."""
        response = await self._call(
            fetch.leader_id,
            LinkUse.FETCH,
            FETCH,
            fetch_request(fetch.request),
            FetchResponseData,
            fetch.request.max_wait_ms + self._timeout_ms,
        )
        return None if response is None else received_fetch(response)

    async def list_offset(self, query: OffsetQuery) -> ListedOffset | None:
        """Return the leader's answer to an offset query, None without one."""
        partition = self._partitions.get(query.id)
        if partition is None:
            return None
        response = await self._call(
            query.leader_id,
            LinkUse.QUERY,
            LIST_OFFSETS,
            list_offsets_request(self._broker_id, partition.topic, [query]),
            ListOffsetsResponseData,
            self._timeout_ms,
        )
        try:
            return None if response is None else listed_offset(response)
        except KraftError as error:
            self._warn(query.leader_id, error)
            return None

    async def _call(
        self,
        leader_id: int,
        use: LinkUse,
        api: Api,
        request: Message,
        answer: type[Answer],
        timeout_ms: float,
    ) -> Answer | None:
        channel = self._open.get((leader_id, use))
        if channel is None:
            channel = self._new_channel(leader_id)
            if channel is None:
                return None
            self._open[leader_id, use] = channel
        try:
            return await channel.call(api, request, answer, timeout_ms=timeout_ms)
        except Exception as error:
            # Also a bug must not end the fetches from this leader.
            if not isinstance(error, (KraftError, OSError)):
                logger.exception("a request to broker %d failed", leader_id)
            if self._open.get((leader_id, use)) is channel:
                del self._open[leader_id, use]
                self._warn(leader_id, error)
            channel.close()
            return None

    def _warn(self, leader_id: int, error: Exception) -> None:
        self._warnings.warn(
            f"requests to broker {leader_id} failed",
            f"broker {leader_id} did not answer a follower: {error}",
        )

    def close_unused(self, leaders: Collection[int]) -> None:
        """Close the connections to brokers that are not in ``leaders``."""
        for key in [key for key in self._open if key[0] not in leaders]:
            self._open.pop(key).close()

    def close(self) -> None:
        self.close_unused(())
