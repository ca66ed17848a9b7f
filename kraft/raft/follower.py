"""Follower: fetch from the leader, truncate what diverges, download its snapshots.

`FollowerState` is the role of every voter and observer that knows the leader of its epoch. It sends
Fetch and FetchSnapshot, and keeps the leader informed about this voter (UpdateRaftVoter, auto
join). A voter starts an election when its leader is silent for the fetch timeout. Sources: KIP-595,
630, 853, 1186; Kafka's ``FollowerState``, ``KafkaRaftClient`` (``handleFetchResponse``,
``pollFollower``), KAFKA-12460, KAFKA-14618, KAFKA-18723.
"""

from __future__ import annotations

from typing import Any

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, scan
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.errors import (
    DUPLICATE_VOTER,
    NONE,
    POSITION_OUT_OF_RANGE,
    REQUEST_TIMED_OUT,
    SNAPSHOT_NOT_FOUND,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
    CorruptRecordError,
    UnsupportedVersionError,
)
from kraft.raft.connections import NEVER, InFlight
from kraft.raft.epoch_state import EpochState
from kraft.raft.interface import InstallSnapshot, StoreSnapshotChunk
from kraft.raft.outbox import Needs
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogSlice,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    Request,
    SnapshotSlice,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
)
from kraft.raft.snapshot_download import (
    MAX_CHUNKS_IN_FLIGHT,
    MAX_DOWNLOAD_AHEAD,
    SnapshotDownload,
)
from kraft.raft.state import Handover, NodeState
from kraft.raft.transitions import TransitionCause
from kraft.raft.voters import ReplicaKey, VoterNode, place_in

#: The retry backoff doubles with each damaged snapshot of a leader, at most this often; half the
#: fetch timeout bounds it too.
MAX_BACKOFF_DOUBLINGS = 16


class FollowerState(EpochState):
    """A node that follows the leader of its epoch."""

    def __init__(self, node: NodeState, handover: Handover) -> None:
        super().__init__(node, handover)
        self.fetch_deadline_ms = node.now_ms + self.config.fetch_timeout_ms
        self.update_voter_at_ms = node.now_ms + self.config.update_voter_period_ms
        #: Whether the leader has sent a valid response since this role began.
        self.has_fetched = False
        #: The connection to the leader has failed since its last response, or it has resigned.
        self.is_without_leader = False
        #: The high watermark of the leader's last response; -1 before the first.
        self.leader_high_watermark = -1
        #: The order of the elections after the leader's resignation; None if it has not resigned,
        #: or if this node has stood since.
        self._preferred_candidates: tuple[ReplicaKey, ...] | None = None
        #: The requests without a response when this node learned of the resignation.
        self._sent_before_resignation: list[Request] = []
        #: Whether the leader knows the voter's endpoints and versions (kraft.version 0).
        self.has_updated_leader = False
        #: The number of damaged snapshots of this leader in a row; after one the node fetches
        #: nothing before ``resume_at_ms``.
        self.rejected_snapshots = 0
        self.resume_at_ms = 0.0

    # -- as time goes by

    def poll(self) -> None:
        node = self.node
        if node.is_shutting_down:
            return
        is_silent = self.fetch_deadline_ms <= node.now_ms
        if is_silent and not node.is_installing and node.is_electable:
            node.enter(TransitionCause.FETCH_TIMEOUT, reason=self._election_reason())
        elif self._has_sent_update(is_silent=is_silent):
            return
        elif is_silent and not node.is_voter and not node.connections.in_flight:
            # An observer keeps following this leader, and asks others for a newer one.
            node.fetch_from_bootstrap(node.fetch_request())
        else:
            self._fetch_from_best_node()

    def _election_reason(self) -> str:
        """Return why this voter starts an election now."""
        leader_id = self.node.leader_id
        if self.node.is_sole_voter:
            return "this node is the only voter"
        if self.has_leader_resigned:
            return f"leader {leader_id} resigned"
        timeout_ms = self.config.fetch_timeout_ms
        return f"leader {leader_id} sent no valid response within {timeout_ms} ms (fetch timeout)"

    def wake_at_ms(self) -> float:
        node = self.node
        wake = NEVER
        if node.is_electable and not node.is_installing:
            wake = self.fetch_deadline_ms
        if node.now_ms < self.resume_at_ms < wake:
            wake = self.resume_at_ms
        return wake

    def may_grant(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        """Grant pre-votes only while the leader is silent, so that it is not disrupted (KIP-996).

        Once the leader has resigned, grant also those of candidates that stand before this node.
        Kafka's follower rejects them (KAFKA-20895): the best candidate, which stands at once, then
        waits for an election timeout and a fetch timeout. A candidate whose turn comes later has to
        wait until this node has stood.

        An observer follows a silent leader on, and may be a voter by a log that is longer than its
        own.
        """
        if not request.is_pre_vote or not is_up_to_date:
            return False
        if self.fetch_deadline_ms <= self.node.now_ms:
            return True
        candidates = self._preferred_candidates
        if candidates is not None:
            own_place = place_in(candidates, self.node.replica)
            return place_in(candidates, request.candidate) < own_place
        return not self.has_fetched

    def note_candidate_is_behind(self, candidate_id: int) -> None:
        """Stand again at once if the leader has resigned and this node has stood already.

        The candidate may have rejected this node while it followed the leader. It follows nobody
        now, and cannot win against this node's vote. A removed voter does not stand again, see
        `ProspectiveState.note_candidate_is_behind`.
        """
        node = self.node
        if self.has_leader_resigned and self._preferred_candidates is None and node.is_voter:
            self.fetch_deadline_ms = node.now_ms

    @property
    def has_leader_resigned(self) -> bool:
        return self.node.resigned_epoch == self.node.epoch

    def _note_leader_alive(self, request: Request | None = None) -> None:
        """Restart the fetch timer after the leader's valid response to ``request``.

        A response to a request from before the leader's resignation does not delay the election. A
        response to a later one shows that the leader leads on: another node, or any client, sent
        EndQuorumEpoch in its name.
        """
        node = self.node
        if node.resigned_epoch == node.epoch:
            if request is None or any(request is sent for sent in self._sent_before_resignation):
                return
            node.resigned_epoch = -1
            self._preferred_candidates = None
        self.fetch_deadline_ms = node.now_ms + self.config.fetch_timeout_ms
        self.has_fetched = True
        self.is_without_leader = False

    # -- fetches

    def _fetch_from_best_node(self) -> None:
        """Fetch from the leader; if it does not answer, ask bootstrap servers for a newer one."""
        node = self.node
        if node.is_installing or self.resume_at_ms > node.now_ms:
            return
        leader_id = node.leader_id
        connection = node.connections.get(leader_id)
        if connection is not None and connection.has_timed_out:
            if connection.in_flight:
                # Requests for the chunks after one that did not arrive: none of them will.
                return
            connection.has_timed_out = False
            node.fetch_from_bootstrap(node.fetch_request())
        elif connection is not None and connection.backoff_until_ms > node.now_ms:
            node.fetch_from_bootstrap(node.fetch_request())
        elif node.download is not None:
            self._request_chunks(node.download)
        elif node.connections.is_reachable(leader_id, node.now_ms):
            # Even while a bootstrap server does not answer: waiting for it would cost the fetch
            # timeout, and thereby an election.
            leader = node.endpoint_of(leader_id)
            node.send_request(leader_id, leader, node.fetch_request(), needs=Needs.LOG)

    def handle_fetch_response(
        self, source: int, request: FetchRequest, response: FetchResponse
    ) -> None:
        node, log = self.node, self.log
        if request.epoch > node.epoch:
            return
        if response.error != NONE:
            node.back_off(source)
            return
        if request.offset != log.end_offset or node.download is not None:
            # The log has changed since the request, but the leader is alive: an observer would
            # otherwise ask bootstrap servers during the whole download.
            self._note_leader_alive(request)
            return
        if response.diverging_epoch is not None:
            is_valid = self._truncate_to_common_end(response.diverging_epoch)
        elif response.snapshot_id is not None:
            is_valid = self._begin_download(response.snapshot_id)
        else:
            records = response.records
            assert not isinstance(records, LogSlice)
            # Damaged records are fetched again (KAFKA-18723).
            is_valid = not len(records) or self._append_fetched(records)
            self.leader_high_watermark = response.high_watermark
            if is_valid and response.high_watermark >= 0:
                node.commit(min(response.high_watermark, log.end_offset))
        if is_valid:
            self._note_leader_alive(request)
        else:
            node.back_off(source)

    def _truncate_to_common_end(self, diverging: EpochEndOffset) -> bool:
        """Truncate what the leader does not have; return False if that is nothing."""
        if diverging.epoch < 0 or diverging.end_offset < 0:
            return False
        own = self.log.end_offset_for_epoch(diverging.epoch)
        if own.epoch == diverging.epoch:
            end_offset = min(own.end_offset, diverging.end_offset)
        else:
            # This log has no record of that epoch: truncate all records of later epochs.
            end_offset = own.end_offset
        if end_offset >= self.log.end_offset:
            return False
        self.node.truncate_log(end_offset)
        return True

    def _append_fetched(self, records: bytes | memoryview) -> bool:
        """Append the valid batches of this or an earlier epoch.

        Returns False if the first batch is damaged or does not follow the end of the log.
        """
        log, node_epoch = self.log, self.node.epoch
        table = scan(records, verify_crc=True)
        end, epoch, next_offset = 0, log.last_epoch, log.end_offset
        appends: list[tuple[int, int, int]] = []
        controls: list[tuple[int, int]] = []
        # All fields of all headers by one call, as a call for each column costs 3 us.
        header: Any
        for header in table.array.tolist():
            _, base_offset, _, _, _, length, batch_epoch, _, delta, _, count, attributes, _, _ = (
                header
            )
            # Offsets leave no gaps: each offset of a batch has a record.
            is_next = base_offset == next_offset and count == delta + 1
            if not (is_next and epoch <= batch_epoch <= node_epoch):
                break
            epoch, next_offset = batch_epoch, base_offset + delta + 1
            appends.append((base_offset, next_offset, batch_epoch))
            if attributes & ATTRIBUTE_CONTROL:
                controls.append((end, end + length + 12))
            end += length + 12
        if not appends:
            return False
        view = memoryview(records)
        first_offset = log.end_offset
        try:
            log.check_control_batches([view[start:stop] for start, stop in controls])
        except (CorruptRecordError, UnsupportedVersionError):
            return False
        for base_offset, end_offset, batch_epoch in appends:
            log.append(base_offset, end_offset, batch_epoch)
        self.node.outbox.write_append(
            first_offset, log.end_offset, view[:end] if end < len(view) else records
        )
        for start, stop in controls:
            log.replay_control_batch(view[start:stop])
        return True

    # -- snapshots

    def _begin_download(self, snapshot_id: OffsetAndEpoch) -> bool:
        if snapshot_id.offset < 0 or snapshot_id.epoch < 0:
            return False
        if snapshot_id in self.log.snapshots or snapshot_id.offset <= self.log.high_watermark:
            # A snapshot never replaces records that are committed here.
            return False
        self.node.download = SnapshotDownload(snapshot_id)
        return True

    def _request_chunks(self, download: SnapshotDownload) -> None:
        """Request the next chunks, several at once after the first has returned the size.

        A fetch names the end of this log, and waits for the disk. The position of a chunk says
        nothing about the disk, so that these requests need not wait for the chunks before to be
        written, up to a bound.
        """
        node = self.node
        sent = node.connections.requests_to(node.leader_id)
        if not sent:
            # Requests for later chunks were given up, or their chunks were not the next.
            download.requested_position = download.position
        elif self._has_update_to_send() or not _is_request_for_next(download, sent[0]):
            # Nothing more is sent before the responses in flight have arrived.
            return
        leader = node.endpoint_of(node.leader_id)
        in_flight = len(sent)
        most = MAX_CHUNKS_IN_FLIGHT if download.size else 1
        most_ahead = max(1, MAX_DOWNLOAD_AHEAD // self.config.fetch_snapshot_max_bytes)
        while (
            in_flight < most
            and in_flight + node.outbox.unwritten_steps < most_ahead
            and (download.requested_position < download.size or not download.size)
        ):
            request = FetchSnapshotRequest(
                self.config.cluster_id,
                node.replica,
                node.epoch,
                download.snapshot_id,
                download.requested_position,
                self.config.fetch_snapshot_max_bytes,
            )
            if not node.send_request(
                node.leader_id, leader, request, needs=Needs.EPOCH, is_next=in_flight > 0
            ):
                return
            download.requested_position += download.chunk_size
            in_flight += 1

    def handle_fetch_snapshot_response(
        self, source: int, request: FetchSnapshotRequest, response: FetchSnapshotResponse
    ) -> None:
        node = self.node
        download = node.download
        if download is None or download.is_installing:
            return
        if request.snapshot_id != download.snapshot_id or request.position != download.position:
            return
        if response.error == SNAPSHOT_NOT_FOUND:
            # The leader has a newer snapshot by now: fetch at once, and learn its id.
            node.drop_download(download)
            self._note_leader_alive(request)
            return
        if response.error != NONE:
            if response.error == POSITION_OUT_OF_RANGE:
                # The leader's file of this id is shorter: it is another file.
                node.drop_download(download)
            node.back_off(source)
            return
        data = response.data
        assert not isinstance(data, SnapshotSlice)
        size = response.size
        if (
            response.snapshot_id != download.snapshot_id
            or response.position != download.position
            or size < download.position + len(data)
            or not len(data)
            # Another file than that of the chunks before.
            or download.size not in (0, size)
        ):
            node.drop_download(download)
            node.back_off(source)
            return
        node.outbox.write(StoreSnapshotChunk(download.snapshot_id, download.position, data))
        download.position += len(data)
        download.size, download.chunk_size = size, len(data)
        if download.position == size:
            download.is_installing = True
            node.outbox.write(InstallSnapshot(download.snapshot_id))
        self._note_leader_alive(request)

    def note_snapshot_installed(self) -> None:
        self.rejected_snapshots = 0
        # The disk was busy, the leader was not silent.
        self._note_leader_alive()

    def note_snapshot_rejected(self) -> None:
        """Keep following this leader: a damaged snapshot does not imply a damaged log.

        The node asks again, later each time, as the leader may have made a better snapshot.
        """
        config = self.config
        doublings = min(self.rejected_snapshots, MAX_BACKOFF_DOUBLINGS)
        backoff_ms = max(1, config.retry_backoff_ms) << doublings
        delay_ms = min(backoff_ms, config.fetch_timeout_ms // 2)
        self.resume_at_ms = self.node.now_ms + delay_ms
        self.rejected_snapshots += 1
        self._note_leader_alive()

    # -- the leader resigns

    def note_leader_resigned(self, request: EndQuorumEpochRequest) -> None:
        node = self.node
        node.resigned_epoch = node.epoch
        self.is_without_leader = True
        # Of all nodes: the leader may be asked as a bootstrap server too.
        in_flight = node.connections.in_flight.values()
        self._sent_before_resignation = [sent.request for sent in in_flight]
        self._preferred_candidates = request.preferred_candidates
        self.fetch_deadline_ms = node.now_ms + self._handover_wait_ms(request.preferred_candidates)

    def _handover_wait_ms(self, candidates: tuple[ReplicaKey, ...]) -> int:
        """Return how long to wait before an election, so that the best candidate wins.

        The best candidate does not wait. Nobody waits if the leader names no candidates, as a
        restarted leader does.
        """
        longest = self.config.election_backoff_max_ms
        place = place_in(candidates, self.node.replica)
        if place == 0:
            return 0
        if place == len(candidates):
            return longest
        shortest = longest >> (len(candidates) - 1)
        return min(longest, shortest << (place - 1))

    # -- reports to the leader: UpdateRaftVoter and auto join

    def _may_join(self) -> bool:
        config = self.config
        return config.auto_join and config.can_vote and self.log.kraft_version >= 1

    def _has_update_to_send(self) -> bool:
        """Return whether it is time for UpdateRaftVoter, or for a request to join the voters."""
        is_due = self.update_voter_at_ms <= self.node.now_ms
        return is_due and (self.node.is_voter or self._may_join())

    def _has_sent_update(self, *, is_silent: bool) -> bool:
        """Periodically send UpdateRaftVoter, or a request to join; return whether one was sent."""
        node = self.node
        if self.update_voter_at_ms > node.now_ms or node.connections.in_flight:
            return False
        # An observer does not ask a silent leader to join: such requests would follow each other
        # for ever, without a fetch in between that could find a newer leader.
        if not node.is_voter and (is_silent or not self._may_join()):
            return False
        self.update_voter_at_ms = node.now_ms + self.config.update_voter_period_ms
        request = self._update_request() if node.is_voter else self._join_request()
        if request is None:
            return False
        leader = node.endpoint_of(node.leader_id)
        return node.send_request(node.leader_id, leader, request, needs=Needs.LOG)

    def _update_request(self) -> UpdateRaftVoterRequest | None:
        """Return the UpdateRaftVoter of this voter; None if the leader's data are up to date."""
        node, config = self.node, self.config
        if self.log.kraft_version == 0:
            if self.has_updated_leader:
                return None
        else:
            entry = node.voters.get(config.node_id)
            own = VoterNode(node.replica, config.endpoints, config.kraft_versions)
            if entry is None or own.is_equivalent(entry):
                return None
        return UpdateRaftVoterRequest(
            config.cluster_id, node.epoch, node.replica, config.endpoints, config.kraft_versions
        )

    def _join_request(self) -> Request:
        """Return the next request of auto join (KIP-853, 4.2).

        It removes the voter with this node's id and an old directory, then adds this node.
        """
        config = self.config
        old = self.node.voters.get(config.node_id)
        if old is not None:
            return RemoveRaftVoterRequest(config.cluster_id, old.key)
        return AddRaftVoterRequest(
            config.cluster_id,
            config.request_timeout_ms,
            self.node.replica,
            config.endpoints,
            ack_when_committed=False,
        )

    def handle_update_voter_response(
        self, request: UpdateRaftVoterRequest, response: UpdateRaftVoterResponse
    ) -> None:
        if request.epoch != self.node.epoch:
            return
        if response.error in (NONE, UNSUPPORTED_VERSION):
            self.has_updated_leader = True
        if response.error == NONE:
            self._note_leader_alive(request)

    def handle_join_response(
        self, source: int, response: AddRaftVoterResponse | RemoveRaftVoterResponse
    ) -> None:
        expected = (NONE, REQUEST_TIMED_OUT, DUPLICATE_VOTER, VOTER_NOT_FOUND)
        if response.error not in expected:
            self.node.back_off(source)

    def handle_request_failed(self, failed: InFlight, *, is_unsupported: bool) -> None:
        if failed.destination == self.node.leader_id:
            self.is_without_leader = True
        if is_unsupported and isinstance(failed.request, UpdateRaftVoterRequest):
            # The leader cannot be updated: there is nothing more to send.
            self.has_updated_leader = True


def _is_request_for_next(download: SnapshotDownload, oldest: Request) -> bool:
    """Return whether the oldest request in flight is for the next chunk of a download."""
    return isinstance(oldest, FetchSnapshotRequest) and (
        (oldest.snapshot_id, oldest.position) == (download.snapshot_id, download.position)
    )
