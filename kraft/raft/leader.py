"""Leader: append records, answer fetches, raise the high watermark, resign.

`LeaderState` handles appends of the controller, Fetch, FetchSnapshot and DescribeQuorum, sends
BeginQuorumEpoch, and passes changes of the voters to `reconfiguration`. Sources: KIP-595, 630, 836,
1166; Kafka's ``LeaderState``, ``KafkaRaftClient`` (``onBecomeLeader``, ``tryCompleteFetchRequest``,
``pollLeader``); KAFKA-10533, 12619, 15489.
"""

from __future__ import annotations

from kraft.errors import (
    BROKER_NOT_AVAILABLE,
    INCONSISTENT_CLUSTER_ID,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    POSITION_OUT_OF_RANGE,
    SNAPSHOT_NOT_FOUND,
    THROTTLING_QUOTA_EXCEEDED,
    RecordTooLargeError,
)
from kraft.raft.accumulator import Accumulator, is_control
from kraft.raft.connections import NEVER
from kraft.raft.epoch_state import EpochState
from kraft.raft.fetch_purgatory import FetchPurgatory
from kraft.raft.interface import Append, Appended
from kraft.raft.log_view import BOOTSTRAP_SNAPSHOT
from kraft.raft.observer_purgatory import ObserverPurgatory
from kraft.raft.outbox import Needs
from kraft.raft.reconfiguration import VoterChanges
from kraft.raft.replicas import Replicas
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    DescribeQuorumResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogSlice,
    RemoveRaftVoterRequest,
    SnapshotSlice,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kraft.raft.state import Handover, NodeState
from kraft.raft.transitions import TransitionCause
from kraft.raft.voters import ReplicaKey, VoterNode
from kraft.records import Record, control


class LeaderState(EpochState):
    """The leadership of one epoch."""

    def __init__(self, node: NodeState, handover: Handover) -> None:
        super().__init__(node, handover)
        config, log = node.config, node.log
        self._granting_voters = handover.granting_voters
        self.epoch_start_offset = log.end_offset
        self.accumulator = Accumulator(
            node.epoch, log.end_offset, config.append_linger_ms, config.max_batch_size
        )
        self.replicas = Replicas(node)
        self.voter_changes = VoterChanges(node, self.replicas, self)
        #: The waiting fetches of the other voters, and of all others.
        self.voters_purgatory = FetchPurgatory()
        self.observers_purgatory = ObserverPurgatory(self.epoch_start_offset)
        self.is_active = False
        self.is_resign_requested = False
        self._begin_epoch_at_ms = node.now_ms

    # -- the beginning of the epoch

    def begin(self) -> None:
        self.accumulator.append_control(self._first_records(), self.node.now_ms)
        self.drain()

    def _first_records(self) -> list[Record]:
        """Return LeaderChange, and the voters if the log does not hold their present state."""
        node, log, node_id = self.node, self.log, self.config.node_id
        voters = node.voters
        records: list[Record] = [
            control.LeaderChange(
                leader_id=node_id,
                voters=[control.Voter(voter_id=id) for id in sorted(voters.ids)],
                granting_voters=[
                    control.Voter(voter_id=id) for id in sorted(self._granting_voters)
                ],
            )
        ]
        if log.kraft_version >= 1:
            own = VoterNode(node.replica, self.config.endpoints, self.config.kraft_versions)
            entry = voters.get(node_id) if node.is_voter else None
            is_stale = entry is not None and not own.is_equivalent(entry)
            # A snapshot of a log was made of a log that held the voters.
            is_only_bootstrapped = log.voters_offset < 0 and (
                log.latest_snapshot in (None, BOOTSTRAP_SNAPSHOT)
            )
            if is_only_bootstrapped or is_stale:
                if is_stale:
                    voters = voters.with_voter(own)
                records.append(control.KRaftVersion(kraft_version=log.kraft_version))
                records.append(voters.to_record())
        return records

    def _send_begin_quorum_epochs(self) -> None:
        """Send BeginQuorumEpoch to every voter that has not fetched lately (KAFKA-16926).

        It need not wait for this node's disk: a majority's votes are durable, so that no other node
        can lead this epoch. The responses to fetches wait.
        """
        node, config = self.node, self.config
        if self._begin_epoch_at_ms > node.now_ms:
            return
        interval_ms = config.begin_quorum_epoch_interval_ms
        self._begin_epoch_at_ms = node.now_ms + interval_ms
        for voter in node.voters:
            is_silent = not self.replicas.has_fetched_since(voter.key, node.now_ms - interval_ms)
            if voter.id != config.node_id and is_silent:
                request = BeginQuorumEpochRequest(
                    config.cluster_id, node.epoch, config.node_id, voter.key, config.endpoints
                )
                endpoint = node.endpoint_of(voter.id)
                node.send_request(voter.id, endpoint, request, needs=Needs.NOTHING)

    # -- as time goes by

    def poll(self) -> None:
        node, replicas = self.node, self.replicas
        now_ms = node.now_ms
        is_isolated = replicas.check_quorum_deadline_ms <= now_ms
        if is_isolated and node.is_sole_voter:
            is_isolated = False
            replicas.restart_check_quorum()
        if is_isolated or self.is_resign_requested or node.is_shutting_down:
            self._resign(self._resignation_reason(is_isolated=is_isolated))
            return
        self.voter_changes.expire()
        if self.accumulator.drain_at_ms <= now_ms:
            self.drain()
        for purgatory in (self.voters_purgatory, self.observers_purgatory):
            if purgatory.waiting:
                for reply_to, request in purgatory.pop_late(now_ms):
                    self._answer_waiting(reply_to, request)
        if self.observers_purgatory.round_at_ms(replicas.high_watermark) <= now_ms:
            waiting = self.observers_purgatory.begin_round(replicas.high_watermark, now_ms)
            self._answer_fetches(self.observers_purgatory, waiting)
        if replicas.forget_observers_at_ms <= now_ms:
            replicas.forget_silent_observers()
        self._send_begin_quorum_epochs()

    def wake_at_ms(self) -> float:
        change = self.voter_changes.change
        return min(
            self.replicas.check_quorum_deadline_ms,
            self._begin_epoch_at_ms,
            self.accumulator.drain_at_ms,
            self.voters_purgatory.next_deadline_ms,
            self.observers_purgatory.next_deadline_ms,
            self.observers_purgatory.round_at_ms(self.replicas.high_watermark),
            NEVER if change is None else change.deadline_ms,
        )

    def may_grant(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return False

    # -- appends

    def handle_append(self, event: Append) -> None:
        node = self.node
        error, last_offset = NONE, -1
        if event.epoch != node.epoch or self.is_resign_requested:
            error = NOT_LEADER_OR_FOLLOWER
        elif not node.may_append:
            error = THROTTLING_QUOTA_EXCEEDED
        else:
            try:
                if event.batches is not None:
                    last_offset = self.accumulator.append_batches(event.batches, node.now_ms)
                else:
                    last_offset = self.accumulator.append_values(event.values, node.now_ms)
            except RecordTooLargeError:
                error = MESSAGE_TOO_LARGE
        node.outbox.ready.appended.append(Appended(event.token, last_offset, error))

    @property
    def next_append_offset(self) -> int:
        return self.accumulator.next_offset

    def drain(self) -> None:
        """Append the collected batches to the log."""
        log, node = self.log, self.node
        for base_offset, end_offset, batches in self.accumulator.drain():
            log.append(base_offset, end_offset, node.epoch)
            node.outbox.write_append(base_offset, end_offset, batches)
            if is_control(batches):
                log.replay_control_batch(batches)
                self._regroup_fetches()

    def append_control_records(self, records: list[Record]) -> int:
        """Append control records at once, after the records that linger; return their offset."""
        first_offset = self.accumulator.append_control(records, self.node.now_ms)
        self.drain()
        return first_offset

    # -- fetches

    def leadership_error(self) -> int:
        return BROKER_NOT_AVAILABLE if self.node.is_shutting_down else NONE

    def serve_fetch(self, request: FetchRequest, reply_to: int) -> None:
        node, observers = self.node, self.observers_purgatory
        response = self._answer_fetch(request, is_new=True)
        if (
            response.error == NONE
            and request.max_wait_ms
            and response.diverging_epoch is None
            and response.snapshot_id is None
        ):
            purgatory = self._purgatory_of(request)
            if purgatory is observers:
                has_news = observers.is_behind(request)
            else:
                has_news = bool(response.records) or (
                    request.high_watermark < response.high_watermark
                )
            if not has_news:
                # A follower that waited longer would have given up its leader. A client that asks
                # for a longer time has to fetch again.
                wait_ms = min(request.max_wait_ms, self.config.fetch_timeout_ms)
                purgatory.add(reply_to, request, node.now_ms + wait_ms)
                return
            if purgatory is observers:
                observers.note_answers(1, node.now_ms)
        node.outbox.respond(reply_to, response, needs=Needs.EPOCH)

    def _purgatory_of(self, request: FetchRequest) -> FetchPurgatory:
        is_voter = self.node.voters.is_voter(request.replica)
        return self.voters_purgatory if is_voter else self.observers_purgatory

    def _answer_fetch(self, request: FetchRequest, *, is_new: bool) -> FetchResponse:
        """Return the response to a fetch at this moment.

        Only a request that ``is_new`` reports the progress of its sender: the sender of one that
        waited may be silent since.
        """
        error = self.leader_error(request.epoch)
        response = self.empty_fetch(error)
        if error != NONE:
            return response
        log = self.log
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
            if is_new and self.replicas.note_fetch(request):
                self.advance_high_watermark()
            # Others see only what is durable here (KAFKA-10533).
            if request.offset < log.durable_end_offset:
                response.records = LogSlice(
                    request.offset, log.durable_end_offset, request.max_bytes
                )
        response.high_watermark = self.replicas.high_watermark
        return response

    def note_durable(self) -> None:
        self.advance_high_watermark()
        voters = self.voters_purgatory
        if voters.waiting:
            self._answer_fetches(voters, voters.with_records_before(self.log.durable_end_offset))

    def advance_high_watermark(self) -> None:
        """Commit what a majority has on disk, once that includes a record of this epoch.

        Never back: after a change of the voters a majority may have less for a while. Source:
        KAFKA-12619.
        """
        log, replicas = self.log, self.replicas
        high_watermark = min(replicas.majority_end_offset(), log.durable_end_offset)
        if high_watermark > max(self.epoch_start_offset, replicas.high_watermark):
            self.raise_high_watermark(high_watermark)

    def raise_high_watermark(self, high_watermark: int) -> None:
        node = self.node
        self.replicas.high_watermark = high_watermark
        self.is_active = True
        node.commit(high_watermark)
        if self.voters_purgatory.waiting:
            self._answer_fetches(self.voters_purgatory, list(self.voters_purgatory.waiting))
        self.note_committed(high_watermark)

    def note_committed(self, high_watermark: int) -> None:
        self.voter_changes.note_committed(high_watermark)
        if not self.node.is_voter and self.log.is_voters_committed():
            # This leader was removed, and the removal is committed: another voter leads on.
            self.is_resign_requested = True

    def _answer_fetches(self, purgatory: FetchPurgatory, waiting: list[int]) -> None:
        # A thousand observers wait at the same place, and get the same response.
        responses: dict[tuple[int, int, int, int], FetchResponse] = {}
        for reply_to in waiting:
            request = purgatory.pop(reply_to)
            if request is None:
                continue
            place = request.epoch, request.offset, request.last_fetched_epoch, request.max_bytes
            response = responses.get(place)
            if response is None:
                response = responses[place] = self._answer_fetch(request, is_new=False)
            self.node.outbox.respond(reply_to, response, needs=Needs.EPOCH)

    def _answer_waiting(self, reply_to: int, request: FetchRequest) -> None:
        response = self._answer_fetch(request, is_new=False)
        self.node.outbox.respond(reply_to, response, needs=Needs.EPOCH)

    def _regroup_fetches(self) -> None:
        """Let the fetches of new voters wait as those of voters, and those of former ones not."""
        for purgatory in (self.voters_purgatory, self.observers_purgatory):
            for reply_to, (request, deadline_ms) in list(purgatory.waiting.items()):
                right = self._purgatory_of(request)
                if right is not purgatory:
                    purgatory.pop(reply_to)
                    right.add(reply_to, request, deadline_ms)

    def handle_abandoned(self, reply_to: int) -> None:
        self.voters_purgatory.pop(reply_to)
        self.observers_purgatory.pop(reply_to)

    def serve_fetch_snapshot(
        self, request: FetchSnapshotRequest, response: FetchSnapshotResponse
    ) -> None:
        snapshot_id, snapshots = request.snapshot_id, self.log.snapshots
        if response.error != NONE:
            return
        if snapshot_id not in snapshots or snapshot_id == BOOTSTRAP_SNAPSHOT:
            response.error = SNAPSHOT_NOT_FOUND
            return
        size = snapshots[snapshot_id]
        if not 0 <= request.position < size:
            response.error = POSITION_OUT_OF_RANGE
            return
        max_size = max(0, min(request.max_bytes, self.config.fetch_snapshot_max_bytes))
        response.size, response.position = size, request.position
        response.data = SnapshotSlice(snapshot_id, request.position, max_size)
        if self.node.voters.is_voter(request.replica):
            self.replicas.note_voter_seen(request.replica.id)

    def handle_describe_quorum(self, reply_to: int) -> None:
        node, replicas = self.node, self.replicas
        replicas.forget_silent_observers()
        response = DescribeQuorumResponse(
            NONE,
            node.epoch,
            node.leader_id,
            self.config.endpoints,
            replicas.high_watermark,
            tuple(replicas.describe(voter.key) for voter in node.voters),
            tuple(replicas.describe(key) for key in replicas.observer_keys()),
            {voter.id: voter.endpoints for voter in node.voters},
        )
        node.outbox.respond(reply_to, response, needs=Needs.EPOCH)

    # -- changes of the voters

    def change_error(self, cluster_id: str | None) -> tuple[int, str | None]:
        if self.node.is_foreign_cluster(cluster_id):
            return INCONSISTENT_CLUSTER_ID, "the request names another cluster id"
        if self.node.is_shutting_down:
            return BROKER_NOT_AVAILABLE, "the leader is shutting down"
        return NONE, None

    def handle_add_voter(self, request: AddRaftVoterRequest, reply_to: int) -> None:
        error = self.change_error(request.cluster_id)
        self.voter_changes.handle_add_voter(request, reply_to, error)

    def handle_remove_voter(self, request: RemoveRaftVoterRequest, reply_to: int) -> None:
        error = self.change_error(request.cluster_id)
        self.voter_changes.handle_remove_voter(request, reply_to, error)

    def serve_update_voter(self, request: UpdateRaftVoterRequest) -> int:
        error = self.leader_error(request.epoch)
        return self.voter_changes.update_voter(request) if error == NONE else error

    def handle_update_kraft_version(
        self, request: UpdateKRaftVersionRequest, reply_to: int
    ) -> None:
        self.voter_changes.handle_update_kraft_version(request, reply_to, self.change_error(None))

    def handle_api_versions_response(
        self, correlation: int, response: ApiVersionsResponse | None
    ) -> None:
        self.voter_changes.handle_api_versions_response(correlation, response)

    # -- stepping down

    def handle_resign(self) -> None:
        self.is_resign_requested = True

    def _resignation_reason(self, *, is_isolated: bool) -> str:
        if is_isolated:
            timeout_ms = self.config.check_quorum_timeout_ms
            return f"no majority of the voters fetched within {timeout_ms} ms (check quorum)"
        if self.node.is_shutting_down:
            return "this leader shuts down"
        if not self.node.is_voter:
            return "this leader was removed from the voters"
        return "the controller of this leader gave up"

    def _resign(self, reason: str) -> None:
        """Resign, and name the voters with the longest logs as the best next leaders."""
        node, replicas = self.node, self.replicas
        others: list[ReplicaKey] = [
            voter.key for voter in node.voters if voter.id != self.config.node_id
        ]
        others.sort(key=replicas.end_offset_of, reverse=True)
        if others:
            reason += f"; preferred next leaders: {', '.join(str(key.id) for key in others)}"
        handover = Handover(preferred_candidates=tuple(others))
        node.transition(TransitionCause.RESIGNED, handover=handover, reason=reason)

    def leave(self) -> None:
        self.voter_changes.fail()
        for reply_to in (*self.voters_purgatory.waiting, *self.observers_purgatory.waiting):
            response = self.empty_fetch(NOT_LEADER_OR_FOLLOWER)
            self.node.outbox.respond(reply_to, response, needs=Needs.EPOCH)
