"""Progress of the replicas that a leader serves, its high watermark and its check-quorum timer.

The fetches of voters and observers report their progress; the high watermark is the offset that a
majority of the voters has on disk. A leader that no majority fetches from resigns (KAFKA-15489).
`leader` calls `Replicas` for each fetch, `reconfiguration` when the voters change. Source: Kafka's
``LeaderState``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.raft.observers import Observers
from kraft.raft.rpc import DescribedReplica, FetchRequest
from kraft.raft.state import NodeState
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterSet
from kraft.records import Uuid

#: How often the observers whose session is over are forgotten.
_FORGET_INTERVAL_MS = 10_000
#: A new voter must have caught up within this time (Kafka's AddVoterHandler).
CAUGHT_UP_WITHIN_MS = 3_600_000


@dataclass(slots=True)
class ReplicaProgress:
    """The progress that another replica's fetches report; -1 for unknown."""

    key: ReplicaKey
    end_offset: int = -1
    last_fetch_ms: float = -1.0
    last_caught_up_ms: float = -1.0
    #: The leader's log end at the last fetch.
    leader_end_at_last_fetch: int = -1


class Replicas:
    """The voters and observers of one leader, other than the leader itself."""

    def __init__(self, node: NodeState) -> None:
        config = node.config
        self._node = node
        self._log = node.log
        self._node_id = config.node_id
        self.progress: dict[ReplicaKey, ReplicaProgress] = {}
        self.observers = Observers(config.observer_session_ms)
        self.forget_observers_at_ms = 0.0
        #: Of this epoch: -1 until its LeaderChange record is committed.
        self.high_watermark = -1
        self.check_quorum_deadline_ms = node.now_ms + config.check_quorum_timeout_ms
        #: The voters that fetched since the check-quorum timer was set.
        self.seen: set[int] = set()
        #: What static voters reported by UpdateRaftVoter (kraft.version 0), by id.
        self.reported_versions: dict[int, KRaftVersionRange] = {}
        self.reported_directories: dict[int, tuple[Uuid, tuple[Endpoint, ...]]] = {}

    # -- fetches

    def note_fetch(self, request: FetchRequest) -> bool:
        """Record the progress that a fetch reports; return whether a voter has advanced."""
        key = request.replica
        if key.id < 0 or key.id == self._node_id:
            return False
        node = self._node
        voters, now_ms, end_offset = node.voters, node.now_ms, self._log.end_offset
        voter = voters.get(key.id)
        if voter is not None and voters.is_voter(key):
            reported = self.reported_directories.get(key.id)
            if reported is not None and reported[0] != key.directory_id:
                # The report is about a disk that was replaced. The voter reports its new one.
                del self.reported_directories[key.id]
            key = voter.key
        is_voter = voter is not None and key == voter.key
        if not is_voter:
            evicted = self.observers.note_fetch(key, now_ms)
            if evicted is not None:
                self._forget_observer(evicted)
        progress = self.progress.get(key)
        if progress is None:
            progress = self.progress[key] = ReplicaProgress(key)
        if request.offset >= end_offset:
            progress.last_caught_up_ms = now_ms
        elif 0 <= progress.leader_end_at_last_fetch <= request.offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        progress.last_fetch_ms = now_ms
        progress.leader_end_at_last_fetch = end_offset
        is_ahead = request.offset > progress.end_offset
        progress.end_offset = request.offset
        if is_voter:
            self.note_voter_seen(key.id)
        return is_voter and is_ahead

    def note_voter_seen(self, id: int) -> None:
        """Restart the check-quorum timer once enough voters have fetched (KAFKA-15489)."""
        node = self._node
        voters = node.voters
        if id not in voters.ids or id == self._node_id:
            return
        self.seen.add(id)
        # Voters that were removed meanwhile do not count.
        self.seen &= voters.ids
        needed = voters.majority - (1 if node.is_voter else 0)
        if len(self.seen) >= needed:
            self.seen.clear()
            self.restart_check_quorum()

    def restart_check_quorum(self) -> None:
        timeout_ms = self._node.config.check_quorum_timeout_ms
        self.check_quorum_deadline_ms = self._node.now_ms + timeout_ms

    # -- questions of the leader

    def majority_end_offset(self) -> int:
        """Return the offset up to which a majority of the voters has the log on disk; -1: none."""
        node = self._node
        own_id = self._node_id if node.is_voter else -1
        ends = []
        for voter in node.voters:
            key = voter.key
            if key.id == own_id:
                ends.append(self._log.durable_end_offset)
            else:
                ends.append(self.end_offset_of(key))
        if not ends:
            return -1
        ends.sort(reverse=True)
        return ends[len(ends) // 2]

    def end_offset_of(self, key: ReplicaKey) -> int:
        progress = self.progress.get(key)
        return -1 if progress is None else progress.end_offset

    def has_fetched_since(self, key: ReplicaKey, time_ms: float) -> bool:
        progress = self.progress.get(key)
        return progress is not None and progress.last_fetch_ms > time_ms

    def is_caught_up(self, key: ReplicaKey) -> bool:
        """Return whether a replica has caught up with the log within `CAUGHT_UP_WITHIN_MS`."""
        progress = self.progress.get(key)
        return (
            progress is not None
            and progress.last_caught_up_ms >= 0
            and progress.last_caught_up_ms >= self._node.now_ms - CAUGHT_UP_WITHIN_MS
        )

    def describe(self, key: ReplicaKey) -> DescribedReplica:
        if key.id == self._node_id:
            now_ms = int(self._node.now_ms)
            return DescribedReplica(key, self._log.durable_end_offset, now_ms, now_ms)
        progress = self.progress.get(key) or ReplicaProgress(key)
        return DescribedReplica(
            key,
            progress.end_offset,
            int(progress.last_fetch_ms),
            int(progress.last_caught_up_ms),
        )

    def observer_keys(self) -> list[ReplicaKey]:
        """Return the observers by id, this node included if it does not vote."""
        voter_keys = {voter.key for voter in self._node.voters}
        keys = [key for key in self.progress if key not in voter_keys]
        if not self._node.is_voter:
            keys.append(self._node.replica)
        return sorted(keys, key=lambda key: key.id)

    # -- observers and changes of the voters

    def forget_silent_observers(self) -> None:
        """Forget the observers whose session is over."""
        now_ms = self._node.now_ms
        self.forget_observers_at_ms = now_ms + _FORGET_INTERVAL_MS
        for key in self.observers.expire(now_ms):
            self._forget_observer(key)

    def _forget_observer(self, key: ReplicaKey) -> None:
        # An observer that became a voter keeps its progress.
        if not self._node.voters.is_voter(key):
            self.progress.pop(key, None)

    def note_removed_voters(self, before: VoterSet) -> None:
        """Count former voters, those only in ``before``, as observers from now on."""
        node = self._node
        for voter in before:
            if voter.key in self.progress and not node.voters.is_voter(voter.key):
                evicted = self.observers.note_fetch(voter.key, node.now_ms)
                if evicted is not None:
                    self._forget_observer(evicted)

    def rename_static_voters(self, voters: VoterSet) -> None:
        """Keep the progress of static voters under their keys with directory ids."""
        for voter in voters:
            progress = self.progress.pop(ReplicaKey(voter.id), None)
            if progress is not None:
                progress.key = voter.key
                self.progress[voter.key] = progress
