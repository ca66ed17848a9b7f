"""Leader fetcher: a follower's fetches from one leader broker, one request in flight.

`LeaderFetcher` keeps where each partition continues (`FetchPosition`), builds the requests through
a fetch session, and keeps partitions with an error back for a while. `replica_fetching` owns the
fetchers and applies the responses. Rules: Kafka's ``AbstractFetcherThread`` and
``RemoteLeaderEndPoint``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from kraft.broker.replication.messages import (
    BrokerFetchRequest,
    FetchPartition,
    PartitionId,
    ReceivedFetch,
)
from kraft.broker.replication.session_client import FetchSessionClient

#: The pause of a partition that a quota holds back, in ms, if the backoff is shorter.
_LEAST_HELD_MS = 10.0


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """Settings of a follower, with Kafka's defaults (ms, bytes)."""

    #: replica.fetch.wait.max.ms
    max_wait_ms: int = 500
    #: replica.fetch.min.bytes
    min_bytes: int = 1
    #: replica.fetch.max.bytes, for one partition
    partition_max_bytes: int = 1 << 20
    #: replica.fetch.response.max.bytes
    max_bytes: int = 10 << 20
    #: replica.fetch.backoff.ms
    backoff_ms: float = 1_000.0


class FetchPosition:
    """Where the fetches of one partition continue."""

    __slots__ = (
        "id",
        "is_in_sync",
        "is_resetting",
        "last_fetched_epoch",
        "leader_epoch",
        "offset",
        "ready_at_ms",
    )

    def __init__(
        self, id: PartitionId, leader_epoch: int, offset: int, last_fetched_epoch: int
    ) -> None:
        self.id = id
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.last_fetched_epoch = last_fetched_epoch
        #: Not fetched before this time, after an error.
        self.ready_at_ms = 0.0
        #: Whether the last response brought this replica to the leader's high watermark.
        self.is_in_sync = False
        #: The leader has been asked for its offsets: this position is out of its log's range.
        self.is_resetting = False


class LeaderFetcher:
    """The fetches from one broker; ``log_start_of`` returns a partition's log start offset.

    ``must_wait`` returns whether a quota holds a partition back: it is then not fetched for one
    backoff.
    """

    __slots__ = (
        "_delayed",
        "_log_start_of",
        "_must_wait",
        "_session",
        "_settings",
        "is_in_flight",
        "leader_id",
        "positions",
        "ready_at_ms",
        "request_number",
    )

    def __init__(
        self,
        leader_id: int,
        settings: FetcherSettings,
        log_start_of: Callable[[PartitionId], int],
        must_wait: Callable[[FetchPosition, float], bool] = lambda position, now_ms: False,
    ) -> None:
        self.leader_id = leader_id
        self._must_wait = must_wait
        self._settings = settings
        self._log_start_of = log_start_of
        self._session = FetchSessionClient()
        self.positions: dict[PartitionId, FetchPosition] = {}
        self._delayed: list[tuple[float, PartitionId]] = []
        self.is_in_flight = False
        #: No request is sent before this time, after one without a response.
        self.ready_at_ms = 0.0
        #: Responses to earlier requests are ignored.
        self.request_number = 0

    # -- partitions

    def add(self, position: FetchPosition) -> None:
        self.positions[position.id] = position
        self._session.changed(position.id)

    def remove(self, id: PartitionId) -> None:
        if self.positions.pop(id, None) is not None:
            self._session.changed(id)

    def moved(self, position: FetchPosition) -> None:
        """Note that a position changed."""
        self._session.changed(position.id)

    def delay(self, position: FetchPosition, now_ms: float) -> None:
        """Fetch a partition again only after the backoff."""
        self._fetch_from(position, now_ms + self._settings.backoff_ms)

    def hold_back(self, position: FetchPosition, now_ms: float) -> None:
        """Ask after the backoff whether a quota still holds a partition back."""
        self._fetch_from(position, now_ms + max(self._settings.backoff_ms, _LEAST_HELD_MS))

    def _fetch_from(self, position: FetchPosition, at_ms: float) -> None:
        position.ready_at_ms = at_ms
        heappush(self._delayed, (at_ms, position.id))
        self._session.changed(position.id)

    def fetch_offset_of(self, id: PartitionId) -> int | None:
        """Return the offset that the last request named for a partition, None if it named none."""
        fetch = self._session.in_session.get(id)
        return None if fetch is None else fetch.fetch_offset

    def fetch_epoch_of(self, id: PartitionId) -> int:
        return self._session.in_session[id].leader_epoch

    # -- requests

    @property
    def wake_at_ms(self) -> float:
        """When to call `next_request` again; infinity if only a response helps."""
        session = self._session
        if self.is_in_flight:
            return float("inf")
        if session.has_changes or session.in_session:
            return self.ready_at_ms
        return max(self.ready_at_ms, self._delayed[0][0]) if self._delayed else float("inf")

    def next_request(
        self, replica_id: int, replica_epoch: int, now_ms: float
    ) -> BrokerFetchRequest | None:
        """Return the next Fetch request and count it as sent; None if there is nothing to fetch."""
        if self.is_in_flight or now_ms < self.ready_at_ms:
            return None
        while self._delayed and self._delayed[0][0] <= now_ms:
            id = heappop(self._delayed)[1]
            held = self.positions.get(id)
            if held is not None and held.ready_at_ms <= now_ms and self._must_wait(held, now_ms):
                self.hold_back(held, now_ms)
            else:
                self._session.changed(id)
        settings = self._settings

        def wanted(id: PartitionId) -> FetchPartition | None:
            position = self.positions.get(id)
            if position is None or position.is_resetting or position.ready_at_ms > now_ms:
                return None
            return FetchPartition(
                id,
                position.offset,
                settings.partition_max_bytes,
                position.leader_epoch,
                position.last_fetched_epoch,
                self._log_start_of(id),
            )

        built = self._session.build(list(self.positions), wanted)
        if built is None:
            return None
        self.is_in_flight = True
        self.request_number += 1
        return BrokerFetchRequest(
            built.partitions,
            replica_id,
            replica_epoch,
            settings.max_wait_ms,
            settings.min_bytes,
            settings.max_bytes,
            built.session_id,
            built.session_epoch,
            built.forgotten,
        )

    def received(self, response: ReceivedFetch | None, now_ms: float) -> bool:
        """Take a response, None: none arrived; return whether its partitions are valid."""
        self.is_in_flight = False
        if response is None:
            self._session.failed()
            self.ready_at_ms = now_ms + self._settings.backoff_ms
            return False
        return self._session.received(response)
