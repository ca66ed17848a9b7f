"""Replica fetching: this broker's followers fetch from their leaders, truncate and append.

`ReplicaFetching` owns one `LeaderFetcher` for each leader broker. It applies a response only to
partitions that still are where the request found them. A partition whose log or leader rejects it
for good is failed: it is fetched again when its leader epoch changes.

Invariants: records are appended at the log's end; none has an epoch above the leader's that was
asked (KAFKA-18723); truncation follows the leader's epochs, never the high watermark (KIP-101).
Rules: Kafka's ``AbstractFetcherThread``, ``ReplicaFetcherThread``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView
from typing import NamedTuple

import numpy as np
from typing_extensions import Buffer

from kraft._core.bytes.batch import scan
from kraft.broker.replication.context import ReplicationContext
from kraft.broker.replication.leader_fetcher import FetcherSettings, FetchPosition, LeaderFetcher
from kraft.broker.replication.messages import (
    EARLIEST,
    LATEST,
    BrokerFetchRequest,
    ListedOffset,
    PartitionId,
    ReceivedFetch,
    ReceivedPartition,
)
from kraft.broker.replication.partition import HostedPartition
from kraft.broker.replication.truncation import truncation_offset
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
    CorruptRecordError,
    KraftError,
    error_name,
)


class FetchToSend(NamedTuple):
    """A Fetch request for a leader; the response goes to `ReplicaFetching.fetched`."""

    leader_id: int
    number: int
    request: BrokerFetchRequest


class OffsetQuery(NamedTuple):
    """A ListOffsets request to a leader, as a replica; the response goes to ``offset_listed``."""

    leader_id: int
    id: PartitionId
    timestamp_ms: int
    leader_epoch: int


class ReplicaFetching:
    """The followers on this broker. ``advanced(partition)`` is called when one has new records,
    a higher high watermark or a higher log start offset.
    """

    def __init__(
        self,
        context: ReplicationContext,
        partitions: dict[PartitionId, HostedPartition],
        settings: FetcherSettings,
        advanced: Callable[[HostedPartition], None],
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._settings = settings
        self._advanced = advanced
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._leader_of: dict[PartitionId, int] = {}
        #: The partitions that failed, with the reason; a new leader epoch removes them.
        self.failed: dict[PartitionId, str] = {}
        #: How far each replica that is behind was behind its leader's high watermark.
        self.lags: dict[PartitionId, int] = {}
        self._queries: list[OffsetQuery] = []
        self._last_number = 0
        self.truncation_count = 0

    # -- which partitions

    def follow(self, partition: HostedPartition) -> None:
        """Fetch a partition from its leader, in its present leader epoch, from the log's end."""
        self.stop(partition.id)
        self.failed.pop(partition.id, None)
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is None:
            fetcher = LeaderFetcher(
                partition.leader_id, self._settings, self._log_start_of, self._must_wait
            )
            # Numbers of an earlier fetcher of this leader are not used again.
            fetcher.request_number = self._last_number
            self._fetchers[partition.leader_id] = fetcher
        log = partition.local_log
        fetcher.add(
            FetchPosition(partition.id, partition.leader_epoch, log.end_offset, log.latest_epoch)
        )
        self._leader_of[partition.id] = partition.leader_id

    def stop(self, id: PartitionId) -> None:
        """Stop fetching a partition."""
        leader_id = self._leader_of.pop(id, None)
        self.lags.pop(id, None)
        if leader_id is not None:
            self._fetchers[leader_id].remove(id)

    def remove_idle_fetchers(self) -> None:
        for leader_id in [id for id, each in self._fetchers.items() if not each.positions]:
            self._last_number = max(self._last_number, self._fetchers[leader_id].request_number)
            del self._fetchers[leader_id]

    @property
    def leaders(self) -> KeysView[int]:
        """The brokers from which partitions are fetched."""
        return self._fetchers.keys()

    def leader_of(self, id: PartitionId) -> int | None:
        """Return the broker from which a partition is fetched, None if it is not."""
        return self._leader_of.get(id)

    def _must_wait(self, position: FetchPosition, now_ms: float) -> bool:
        """Return whether the quota of followers holds a partition back: one that is not in sync."""
        quota = self._context.quotas.follower
        return not position.is_in_sync and quota.holds_back(
            self._partitions[position.id].topic, position.id, now_ms
        )

    def _log_start_of(self, id: PartitionId) -> int:
        return self._partitions[id].local_log.start_offset

    def _find(self, id: PartitionId) -> tuple[LeaderFetcher, FetchPosition] | None:
        leader_id = self._leader_of.get(id)
        if leader_id is None:
            return None
        fetcher = self._fetchers[leader_id]
        return fetcher, fetcher.positions[id]

    # -- requests

    @property
    def wake_at_ms(self) -> float:
        return min((each.wake_at_ms for each in self._fetchers.values()), default=float("inf"))

    def requests(self, now_ms: float) -> list[FetchToSend]:
        """Return the requests of all fetchers that have none in flight."""
        context = self._context
        ready = []
        for fetcher in self._fetchers.values():
            request = fetcher.next_request(context.broker_id, context.broker_epoch, now_ms)
            if request is not None:
                ready.append(FetchToSend(fetcher.leader_id, fetcher.request_number, request))
        return ready

    def queries(self) -> list[OffsetQuery]:
        """Return the offset queries since the last call."""
        queries, self._queries = self._queries, []
        return queries

    # -- responses

    def fetched(
        self, leader_id: int, number: int, response: ReceivedFetch | None, now_ms: float
    ) -> None:
        """Apply the response to a Fetch request, None: the connection failed, or it timed out."""
        for _ in self.fetched_steps(leader_id, number, response, now_ms):
            pass

    def fetched_steps(
        self, leader_id: int, number: int, response: ReceivedFetch | None, now_ms: float
    ) -> Iterator[None]:
        """Apply a response; yield after each partition.

        Metadata and requests may be handled between two steps; the next request to the leader is
        built after the last one.
        """
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None or not fetcher.is_in_flight or fetcher.request_number != number:
            return
        if not fetcher.received(response, now_ms):
            return
        assert response is not None
        fetcher.is_in_flight = True
        try:
            for received in response.partitions:
                position = fetcher.positions.get(received.id)
                if (
                    position is not None
                    and not position.is_resetting
                    and position.ready_at_ms <= now_ms
                    and fetcher.fetch_offset_of(received.id) == position.offset
                    and fetcher.fetch_epoch_of(received.id) == position.leader_epoch
                ):
                    self._take(fetcher, position, received, now_ms)
                yield
        finally:
            fetcher.is_in_flight = False

    def _take(
        self,
        fetcher: LeaderFetcher,
        position: FetchPosition,
        received: ReceivedPartition,
        now_ms: float,
    ) -> None:
        error = received.error
        if error == NONE:
            partition = self._partitions[position.id]
            try:
                if received.diverging_epoch is not None:
                    offset = truncation_offset(partition.local_log, received.diverging_epoch)
                    self._truncate(partition, position, offset)
                else:
                    self._append(partition, position, received)
            except CorruptRecordError:
                fetcher.delay(position, now_ms)
            except KraftError as failure:
                self._fail(position.id, str(failure))
            else:
                size = len(memoryview(received.records))
                if size and self._context.quotas.follower.is_throttled(
                    partition.topic, position.id
                ):
                    self._context.quotas.follower.record(size, now_ms)
                position.is_in_sync = position.offset >= received.high_watermark
                if self._must_wait(position, now_ms):
                    fetcher.hold_back(position, now_ms)
                else:
                    fetcher.moved(position)
        elif error == OFFSET_OUT_OF_RANGE:
            position.is_resetting = True
            fetcher.moved(position)
            self._query(fetcher, position, LATEST)
        elif error == FENCED_LEADER_EPOCH:
            # The metadata of a newer epoch is on its way.
            self._fail(position.id, error_name(error))
        else:
            fetcher.delay(position, now_ms)

    def _append(
        self, partition: HostedPartition, position: FetchPosition, received: ReceivedPartition
    ) -> None:
        log = partition.local_log
        if position.offset != log.end_offset:
            raise KraftError(
                f"{partition} was fetched from {position.offset}, which is not its log's end"
            )
        records = up_to_epoch(received.records, position.leader_epoch)
        has_records = len(records) > 0
        if has_records:
            first = int.from_bytes(records[:8], "big", signed=True)
            if first < log.end_offset and log.end_offset == log.start_offset:
                # The leader's log starts within its first batch, after DeleteRecords.
                partition.restart_at(first)
                self._advanced(partition)
            log.append_as_follower(records)
            self._context.traffic.replication_bytes_in += len(records)
            position.offset = log.end_offset
            position.last_fetched_epoch = log.latest_epoch
        lag = received.high_watermark - log.end_offset
        if lag > 0:
            self.lags[position.id] = lag
        elif self.lags:
            self.lags.pop(position.id, None)
        has_risen = partition.follow_high_watermark(received.high_watermark)
        has_moved = partition.raise_start_offset(received.log_start_offset)
        if has_records or has_risen or has_moved:
            self._advanced(partition)

    def _truncate(self, partition: HostedPartition, position: FetchPosition, offset: int) -> None:
        self.truncation_count += 1
        partition.truncate_to(offset)
        log = partition.local_log
        position.offset = log.end_offset
        position.last_fetched_epoch = log.latest_epoch
        self._advanced(partition)

    def _fail(self, id: PartitionId, reason: str) -> None:
        self.stop(id)
        self.failed[id] = reason

    # -- offsets that are out of the leader's range

    def _query(self, fetcher: LeaderFetcher, position: FetchPosition, timestamp_ms: int) -> None:
        self._queries.append(
            OffsetQuery(fetcher.leader_id, position.id, timestamp_ms, position.leader_epoch)
        )

    def offset_listed(self, query: OffsetQuery, listed: ListedOffset | None, now_ms: float) -> None:
        """Apply the answer to an offset query, None: none arrived.

        A leader whose log ends before this one's is the result of an unclean election: this log is
        cut there. If the leader's log begins after this one's end, this log begins again there.
        """
        found = self._find(query.id)
        if found is None:
            return
        fetcher, position = found
        if not position.is_resetting or (fetcher.leader_id, position.leader_epoch) != (
            query.leader_id,
            query.leader_epoch,
        ):
            return
        if listed is not None and listed.error == FENCED_LEADER_EPOCH:
            self._fail(position.id, error_name(listed.error))
        elif listed is None or listed.error:
            position.is_resetting = False
            fetcher.delay(position, now_ms)
        else:
            self._reset(fetcher, position, query, listed.offset)

    def _reset(
        self, fetcher: LeaderFetcher, position: FetchPosition, query: OffsetQuery, offset: int
    ) -> None:
        partition = self._partitions[position.id]
        log = partition.local_log
        try:
            if query.timestamp_ms == LATEST:
                if offset >= log.end_offset:
                    self._query(fetcher, position, EARLIEST)
                    return
                self._truncate(partition, position, offset)
            elif offset > log.end_offset:
                self.truncation_count += 1
                partition.restart_at(offset)
        except KraftError as failure:
            self._fail(position.id, str(failure))
            return
        position.is_resetting = False
        position.offset = log.end_offset
        position.last_fetched_epoch = log.latest_epoch
        fetcher.moved(position)
        self._advanced(partition)


def up_to_epoch(records: Buffer, leader_epoch: int) -> memoryview:
    """Return the batches before the first one of an epoch above ``leader_epoch``.

    Also without a last batch that is cut short.
    """
    view = memoryview(records).cast("B")
    if not len(view):
        return view
    table = scan(view, verify_crc=False)
    later = np.flatnonzero(table.partition_leader_epochs > leader_epoch)
    return view[: int(table.positions[later[0]]) if len(later) else table.tail_position]
