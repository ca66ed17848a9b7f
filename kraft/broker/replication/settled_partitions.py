"""Settled partitions: those of fetch sessions of which the next fetch has nothing to read.

A partition of a session is settled when its reader has all that it may read and knows its
watermarks. `SettledPartitions.changed` ends that for all sessions. So a fetch costs the partitions
that changed, and not all of its session; Kafka's broker reads all (`FetchSession`, KIP-227).

Invariants: a settled partition would be answered as before, and a fetch of it would change nothing
but the times of its follower's progress. These are noted when the partition stops being settled.
Called by `fetch_sessions` and `broker_fetches`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kraft.broker.replication.messages import BrokerFetchRequest, PartitionId
from kraft.broker.replication.partition import HostedPartition

if TYPE_CHECKING:
    from kraft.broker.replication.fetch_sessions import BrokerFetchSession, SessionPartition


class SettledPartitions:
    """The settled partitions of all sessions.

    ``is_awaited`` returns whether a request waits for what the followers of a partition fetch.
    """

    def __init__(
        self,
        partitions: Mapping[PartitionId, HostedPartition],
        is_awaited: Callable[[PartitionId], bool],
    ) -> None:
        self._partitions = partitions
        self._is_awaited = is_awaited
        self._sessions: dict[PartitionId, dict[int, BrokerFetchSession]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def settle(
        self, session: BrokerFetchSession, known: SessionPartition, request: BrokerFetchRequest
    ) -> None:
        """Settle a partition that was read without an error or records, if the rules allow it."""
        id = known.fetch.id
        if self._is_settled(known, request):
            del session.unread[id]
            self._sessions.setdefault(id, {})[session.id] = session

    def _is_settled(self, known: SessionPartition, request: BrokerFetchRequest) -> bool:
        partition = self._partitions.get(known.fetch.id)
        if partition is None or partition.log is None:
            return False
        log, high_watermark = partition.log, partition.high_watermark
        # It may have risen by this fetch.
        if known.high_watermark != high_watermark:
            return False
        offset = known.fetch.fetch_offset
        if not request.is_from_follower:
            return offset >= high_watermark
        # A follower that may join the ISR, or hold the high watermark back, is looked at each time.
        leading = partition.leading
        return (
            leading is not None
            and request.replica_id in leading.isr
            and offset == high_watermark == log.end_offset
            and not self._is_awaited(known.fetch.id)
        )

    def changed(self, id: PartitionId) -> None:
        """Let every session read a partition again; call it before the change of a leadership."""
        sessions = self._sessions.pop(id, None)
        if sessions is not None:
            for session in sessions.values():
                self._end(session, session.partitions[id])

    def fetched(self, id: PartitionId, replica_id: int) -> None:
        """Let other sessions of a follower read a partition that it fetches outside of them."""
        sessions = self._sessions.get(id)
        if sessions is not None:
            for session in list(sessions.values()):
                if session.replica_id == replica_id:
                    self.unsettle(session, id)

    def unsettle(self, session: BrokerFetchSession, id: PartitionId) -> None:
        """Let a session read a partition again."""
        sessions = self._sessions.get(id)
        if sessions is not None and sessions.pop(session.id, None) is not None:
            if not sessions:
                del self._sessions[id]
            self._end(session, session.partitions[id])

    def unsettle_all(self, session: BrokerFetchSession) -> None:
        """Let a session read all its partitions again."""
        if len(session.unread) < len(session.partitions):
            for id in session.partitions:
                self.unsettle(session, id)

    def _end(self, session: BrokerFetchSession, known: SessionPartition) -> None:
        id = known.fetch.id
        session.unread[id] = known
        partition = self._partitions.get(id)
        if session.replica_id >= 0 and partition is not None and partition.leading is not None:
            follower = partition.leading.followers.get(session.replica_id)
            if follower is not None:
                follower.fetched_again(session.fetched_ms)
        for wait in session.waits:
            wait(known.fetch)

    def changed_start_offsets(self) -> list[PartitionId]:
        """Return the settled partitions whose log start offset is not the one that readers know."""
        found = []
        for id, sessions in self._sessions.items():
            partition = self._partitions.get(id)
            if partition is not None and partition.log is not None:
                start = partition.log.start_offset
                if any(each.partitions[id].log_start_offset != start for each in sessions.values()):
                    found.append(id)
        return found
