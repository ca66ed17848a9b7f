"""Leading: the epoch's first batch, appends, answering fetches, the high watermark, stepping down.

Owns the leader's side of Fetch, FetchSnapshot, DescribeQuorum, and the resigned leader's
EndQuorumEpoch. Sources: KIP-595, 630, 836, 1166; Kafka's ``LeaderState``, ``KafkaRaftClient``
(``onBecomeLeader``, ``tryCompleteFetchRequest``, ``pollLeader``); KAFKA-10533, 12619, 15489.
"""

from __future__ import annotations

import heapq

from kraft.errors import RecordTooLargeError
from kraft.raft.accumulator import Accumulator, is_control
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT
from kraft.raft.messages import (
    BROKER_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    POSITION_OUT_OF_RANGE,
    SNAPSHOT_NOT_FOUND,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_LEADER_EPOCH,
    BeginQuorumEpochRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogSlice,
    ReplicaState,
    SnapshotSlice,
)
from kraft.raft.observers import Observers
from kraft.raft.ready import Append, Appended, RequestAbandoned, Role
from kraft.raft.roles import Candidacy, Leadership, ReplicaProgress, WaitingFetch
from kraft.raft.state import NodeState
from kraft.raft.transitions import Cause
from kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from kraft.records import Record, control

#: How often the observers whose session is over are forgotten.
_FORGET_INTERVAL_MS = 10_000


class Leading(NodeState):
    """The duties of the leader, and of one that has resigned."""

    # -- the epoch's begin

    def become_leader(self, candidacy: Candidacy) -> None:
        self.transition(
            Cause.WON, leader_id=self.config.node_id, leader_endpoints=self.config.endpoints
        )
        config, log = self.config, self.log
        accumulator = Accumulator(
            self.epoch, log.end_offset, config.append_linger_ms, config.max_batch_size
        )
        self.leadership = Leadership(
            epoch_start_offset=log.end_offset,
            accumulator=accumulator,
            check_quorum_deadline_ms=self.now_ms + config.check_quorum_timeout_ms,
            begin_epoch_at_ms=self.now_ms,
            observers=Observers(config.observer_session_ms),
        )
        accumulator.append_control(self._first_records(candidacy), self.now_ms)
        self.drain()

    def _first_records(self, candidacy: Candidacy) -> list[Record]:
        """LeaderChange; the voters too where the log does not hold them as they are."""
        log, node_id = self.log, self.config.node_id
        records: list[Record] = [
            control.LeaderChange(
                leader_id=node_id,
                voters=[control.Voter(voter_id=id) for id in sorted(self.voters.ids)],
                granting_voters=[control.Voter(voter_id=id) for id in sorted(candidacy.granted)],
            )
        ]
        if log.kraft_version >= 1:
            own = Voter(self.replica, self.config.endpoints, self.config.kraft_versions)
            entry = self.voters.get(node_id) if self.is_voter else None
            is_stale = entry is not None and not own.says_same_as(entry)
            # A snapshot that was made of a log was made of one that held them.
            is_only_bootstrapped = log.voters_offset < 0 and (
                log.latest_snapshot in (None, BOOTSTRAP_SNAPSHOT)
            )
            if is_only_bootstrapped or is_stale:
                voters = self.voters.with_voter(own) if is_stale else self.voters
                records.append(control.KRaftVersion(kraft_version=log.kraft_version))
                records.append(voters.to_record())
        return records

    def send_begin_quorum_epochs(self, leadership: Leadership) -> None:
        """To every voter that has not fetched lately (KAFKA-16926)."""
        if leadership.begin_epoch_at_ms > self.now_ms:
            return
        interval_ms = self.config.begin_quorum_epoch_interval_ms
        leadership.begin_epoch_at_ms = self.now_ms + interval_ms
        for voter in self.voters:
            if voter.id == self.config.node_id:
                continue
            progress = leadership.replicas.get(voter.key)
            if progress is not None and progress.last_fetch_ms > self.now_ms - interval_ms:
                continue
            self.send_request(
                voter.id,
                self.endpoint_of(voter.id),
                BeginQuorumEpochRequest(
                    self.config.cluster_id,
                    self.epoch,
                    self.config.node_id,
                    voter.key,
                    self.config.endpoints,
                ),
                is_leaders=True,
            )

    # -- appends

    def handle_append(self, event: Append) -> None:
        leadership = self.leadership
        error, last_offset = NONE, -1
        if leadership is None or event.epoch != self.epoch or leadership.is_resign_requested:
            error = NOT_LEADER_OR_FOLLOWER
        elif self._is_disk_behind():
            error = THROTTLING_QUOTA_EXCEEDED
        else:
            try:
                if event.batches is not None:
                    last_offset = leadership.accumulator.append_batches(event.batches, self.now_ms)
                else:
                    last_offset = leadership.accumulator.append_values(event.values, self.now_ms)
            except RecordTooLargeError:
                error = MESSAGE_TOO_LARGE
        self._ready.appended.append(Appended(event.token, last_offset, error))

    @property
    def next_append_offset(self) -> int:
        """Where the next record that is appended goes; the log's end where another node leads."""
        leadership = self.leadership
        return self.log.end_offset if leadership is None else leadership.accumulator.next_offset

    @property
    def may_append(self) -> bool:
        """Whether an append would not be refused as the disk is behind."""
        return not self._is_disk_behind()

    def _is_disk_behind(self) -> bool:
        """As many batches wait for the disk as Kafka lets wait in its accumulator's pool."""
        return len(self._unwritten_ends) >= self.config.max_unwritten_appends

    def drain(self) -> None:
        """Hands what was collected to the log."""
        leadership = self.leadership
        assert leadership is not None
        for base_offset, end_offset, batches in leadership.accumulator.drain():
            self.log.append(base_offset, end_offset, self.epoch)
            self.write_append(base_offset, end_offset, batches)
            if is_control(batches):
                self.log.replay_control_batch(batches)

    def append_control_records(self, records: list[Record]) -> int:
        """Appends control records at once, behind whatever lingers; the offset of the first."""
        assert self.leadership is not None
        first_offset = self.leadership.accumulator.append_control(records, self.now_ms)
        self.drain()
        return first_offset

    # -- fetches

    def leader_error(self, epoch: int) -> int:
        """Why a request for the leader of ``epoch`` is refused; the order is Kafka's."""
        if epoch < self.epoch:
            return FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return UNKNOWN_LEADER_EPOCH
        if self.role is not Role.LEADER:
            return NOT_LEADER_OR_FOLLOWER
        if self.is_shutting_down():
            return BROKER_NOT_AVAILABLE
        return NONE

    def handle_fetch(self, request: FetchRequest, reply_to: int) -> None:
        if self.is_foreign_cluster(request.cluster_id):
            self.respond(reply_to, FetchResponse(INCONSISTENT_CLUSTER_ID))
            return
        if (
            request.max_wait_ms < 0
            or request.offset < 0
            or not 0 <= request.last_fetched_epoch <= request.epoch
        ):
            self.respond(reply_to, self._empty_fetch(INVALID_REQUEST))
            return
        response = self._answer_fetch(request, is_new=True)
        if (
            self.leadership is not None
            and response.error == NONE
            and not response.records
            and request.max_wait_ms
            and response.diverging_epoch is None
            and response.snapshot_id is None
            and request.high_watermark >= response.high_watermark
        ):
            # A follower that waited longer would have given its leader up; whoever names a longer
            # time just asks again.
            wait_ms = min(request.max_wait_ms, self.config.fetch_timeout_ms)
            deadline_ms = self.now_ms + wait_ms
            self.leadership.waiting[reply_to] = WaitingFetch(request, deadline_ms)
            heapq.heappush(self.leadership.waiting_deadlines, (deadline_ms, reply_to))
            return
        self.respond(reply_to, response, is_leaders=True)

    def _empty_fetch(self, error: int) -> FetchResponse:
        return FetchResponse(error, self.epoch, self.leader_id, self.endpoints_of(self.leader_id))

    def _answer_fetch(self, request: FetchRequest, *, is_new: bool) -> FetchResponse:
        """The answer as things stand. Only a request that ``is_new`` says anything of its sender:
        one that waited may be from before it went silent.
        """
        error = self.leader_error(request.epoch)
        response = self._empty_fetch(error)
        if error != NONE:
            return response
        log, leadership = self.log, self.leadership
        assert leadership is not None
        response.log_start_offset = log.start_offset
        latest = log.latest_snapshot
        is_first = request.offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT
        if is_first or log.is_snapshot_needed(request.offset, request.last_fetched_epoch):
            response.snapshot_id = latest
        elif request.offset or log.start_offset:
            end = log.end_offset_for_epoch(request.last_fetched_epoch)
            if end.epoch != request.last_fetched_epoch or end.end_offset < request.offset:
                response.diverging_epoch = end
        if response.snapshot_id is None and response.diverging_epoch is None:
            if is_new:
                self._note_fetch(leadership, request)
            # What is not yet on this disk is not shown to others (KAFKA-10533).
            if request.offset < log.durable_end_offset:
                response.records = LogSlice(
                    request.offset, log.durable_end_offset, request.max_bytes
                )
        response.high_watermark = leadership.high_watermark
        return response

    def _note_fetch(self, leadership: Leadership, request: FetchRequest) -> None:
        key = request.replica
        if key.id < 0 or key.id == self.config.node_id:
            return
        voter = self.voters.get(key.id)
        if voter is not None and self.voters.is_voter(key):
            told = leadership.told_directories.get(key.id)
            if told is not None and told[0] != key.directory_id:
                # What it told is of a disk that it has no more. It has forgotten that, and tells
                # anew.
                del leadership.told_directories[key.id]
            key = voter.key
        if voter is None or key != voter.key:
            evicted = leadership.observers.note_fetch(key, self.now_ms)
            if evicted is not None:
                self._forget_observer(leadership, evicted)
        progress = leadership.replicas.get(key)
        if progress is None:
            progress = leadership.replicas[key] = ReplicaProgress(key)
        now_ms, end_offset = self.now_ms, self.log.end_offset
        if request.offset >= end_offset:
            progress.last_caught_up_ms = now_ms
        elif 0 <= progress.leader_end_at_last_fetch <= request.offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        progress.last_fetch_ms = now_ms
        progress.leader_end_at_last_fetch = end_offset
        is_ahead = request.offset > progress.end_offset
        progress.end_offset = request.offset
        if voter is not None and key == voter.key:
            self.note_voter_seen(leadership, key.id)
            if is_ahead:
                self.advance_high_watermark()

    def note_voter_seen(self, leadership: Leadership, id: int) -> None:
        """Check quorum: the timer starts anew once enough voters were heard (KAFKA-15489)."""
        voters = self.voters
        if id not in voters.ids or id == self.config.node_id:
            return
        leadership.seen.add(id)
        # Who was removed meanwhile no longer counts.
        leadership.seen &= voters.ids
        needed = voters.majority - (1 if self.is_voter else 0)
        if len(leadership.seen) >= needed:
            leadership.seen.clear()
            leadership.check_quorum_deadline_ms = self.now_ms + self.config.check_quorum_timeout_ms

    def advance_high_watermark(self) -> None:
        """What a majority has on disk is committed, once it reaches into this epoch (KAFKA-12619).

        Never back: after a change of voters the majority may have less for a while.
        """
        leadership = self.leadership
        if leadership is None:
            return
        replicas = leadership.replicas
        own_id = self.config.node_id if self.is_voter else -1
        ends = []
        for voter in self.voters:
            key = voter.key
            if key.id == own_id:
                ends.append(self.log.durable_end_offset)
            else:
                progress = replicas.get(key)
                ends.append(-1 if progress is None else progress.end_offset)
        if not ends:
            return
        ends.sort(reverse=True)
        candidate = min(ends[len(ends) // 2], self.log.durable_end_offset)
        if candidate <= leadership.epoch_start_offset or candidate <= leadership.high_watermark:
            return
        leadership.high_watermark = candidate
        leadership.is_active = True
        self.commit(candidate)
        self.answer_waiting(is_moved=True)
        self.note_committed(candidate)

    def answer_waiting(self, *, is_moved: bool) -> None:
        """Answers the fetches that have something to learn: records, or the high watermark."""
        leadership = self.leadership
        if leadership is None or not leadership.waiting:
            return
        durable_end_offset = self.log.durable_end_offset
        for reply_to, waiting in list(leadership.waiting.items()):
            if is_moved or waiting.request.offset < durable_end_offset:
                self._answer_waiting_fetch(leadership, reply_to)

    def answer_late_fetches(self, leadership: Leadership) -> None:
        """Answer the waiting fetches whose time is over; costs nothing for the others."""
        while leadership.next_fetch_deadline_ms <= self.now_ms:
            _, reply_to = heapq.heappop(leadership.waiting_deadlines)
            self._answer_waiting_fetch(leadership, reply_to)

    def _answer_waiting_fetch(self, leadership: Leadership, reply_to: int) -> None:
        waiting = leadership.waiting.pop(reply_to, None)
        if waiting is not None:
            response = self._answer_fetch(waiting.request, is_new=False)
            self.respond(reply_to, response, is_leaders=True)

    def handle_abandoned(self, event: RequestAbandoned) -> None:
        """Forget a fetch that waits: the connection of its sender is gone."""
        if self.leadership is not None:
            self.leadership.waiting.pop(event.reply_to, None)

    def handle_fetch_snapshot(self, request: FetchSnapshotRequest, reply_to: int) -> None:
        if self.is_foreign_cluster(request.cluster_id):
            self.respond(reply_to, FetchSnapshotResponse(INCONSISTENT_CLUSTER_ID))
            return
        error = self.leader_error(request.epoch)
        snapshot_id = request.snapshot_id
        size = self.log.snapshots.get(snapshot_id, 0)
        if error == NONE:
            if snapshot_id not in self.log.snapshots or snapshot_id == BOOTSTRAP_SNAPSHOT:
                error = SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < size:
                error = POSITION_OUT_OF_RANGE
        response = FetchSnapshotResponse(
            error, self.epoch, self.leader_id, self.endpoints_of(self.leader_id), snapshot_id
        )
        if error == NONE:
            assert self.leadership is not None
            max_size = max(0, min(request.max_bytes, self.config.fetch_snapshot_max_bytes))
            response.size, response.position = size, request.position
            response.data = SnapshotSlice(snapshot_id, request.position, max_size)
            if self.voters.is_voter(request.replica):
                self.note_voter_seen(self.leadership, request.replica.id)
        self.respond(reply_to, response, is_leaders=True)

    # -- stepping down

    def resign(self) -> None:
        """The leader steps down and says who is best placed to follow it."""
        leadership = self.leadership
        assert leadership is not None
        others = [voter.key for voter in self.voters if voter.id != self.config.node_id]

        def end_offset(key: ReplicaKey) -> int:
            progress = leadership.replicas.get(key)
            return -1 if progress is None else progress.end_offset

        self.preferred_candidates = tuple(sorted(others, key=end_offset, reverse=True))
        self.unacked_resignation = {key.id for key in others}
        self.transition(Cause.RESIGNED)

    def _leave_leadership(self) -> None:
        leadership = self.leadership
        assert leadership is not None
        self.leadership = None
        self.fail_voter_change(leadership)
        for reply_to in leadership.waiting:
            self.respond(reply_to, self._empty_fetch(NOT_LEADER_OR_FOLLOWER), is_leaders=True)

    def send_end_quorum_epochs(self) -> None:
        for id in sorted(self.unacked_resignation):
            self.send_request(
                id,
                self.endpoint_of(id),
                EndQuorumEpochRequest(
                    self.config.cluster_id,
                    self.epoch,
                    self.config.node_id,
                    self.preferred_candidates,
                    self.config.endpoints,
                ),
                is_leaders=True,
            )

    # -- describing

    def handle_describe_quorum(self, reply_to: int) -> None:
        leadership = self.leadership
        if leadership is None:
            response = DescribeQuorumResponse(
                NOT_LEADER_OR_FOLLOWER,
                self.epoch,
                self.leader_id,
                self.endpoints_of(self.leader_id),
            )
            self.respond(reply_to, response)
            return
        now_ms, node_id = int(self.now_ms), self.config.node_id

        def state(key: ReplicaKey) -> ReplicaState:
            if key.id == node_id:
                return ReplicaState(key, self.log.durable_end_offset, now_ms, now_ms)
            progress = leadership.replicas.get(key) or ReplicaProgress(key)
            return ReplicaState(
                key,
                progress.end_offset,
                int(progress.last_fetch_ms),
                int(progress.last_caught_up_ms),
            )

        self.forget_silent_observers(leadership)
        voter_keys = {voter.key for voter in self.voters}
        observers = [key for key in leadership.replicas if key not in voter_keys]
        if not self.is_voter:
            observers.append(self.replica)
        nodes: dict[int, tuple[Endpoint, ...]] = {
            voter.id: voter.endpoints for voter in self.voters
        }
        response = DescribeQuorumResponse(
            NONE,
            self.epoch,
            self.leader_id,
            self.config.endpoints,
            leadership.high_watermark,
            tuple(state(voter.key) for voter in self.voters),
            tuple(state(key) for key in sorted(observers, key=lambda key: key.id)),
            nodes,
        )
        self.respond(reply_to, response, is_leaders=True)

    def forget_silent_observers(self, leadership: Leadership) -> None:
        """Forget the observers whose session is over."""
        leadership.forget_observers_at_ms = self.now_ms + _FORGET_INTERVAL_MS
        for key in leadership.observers.expire(self.now_ms):
            self._forget_observer(leadership, key)

    def _forget_observer(self, leadership: Leadership, key: ReplicaKey) -> None:
        # An observer that became a voter keeps its progress.
        if not self.voters.is_voter(key):
            leadership.replicas.pop(key, None)

    def note_removed_voters(self, before: VoterSet) -> None:
        """Count those of ``before`` that vote no more as observers, from now on."""
        leadership = self.leadership
        assert leadership is not None
        for voter in before:
            if voter.key in leadership.replicas and not self.voters.is_voter(voter.key):
                evicted = leadership.observers.note_fetch(voter.key, self.now_ms)
                if evicted is not None:
                    self._forget_observer(leadership, evicted)
