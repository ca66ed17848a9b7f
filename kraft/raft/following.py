"""Following: fetch from the leader, cut what diverges, take its snapshot where the log ends too
early.

Owns the follower's and observer's side of Fetch and FetchSnapshot, BeginQuorumEpoch and
EndQuorumEpoch as they are received, and what a follower tells its leader of itself
(UpdateRaftVoter, auto join). Sources: KIP-595, 630, 853, 1186; Kafka's ``KafkaRaftClient``
(``handleFetchResponse``, ``pollFollower``), KAFKA-12460, KAFKA-14618, KAFKA-18723.
"""

from __future__ import annotations

from typing import Any

from kraft._core.batch import ATTRIBUTE_CONTROL, scan
from kraft._core.epoch_cache import EpochEndOffset
from kraft.errors import CorruptRecordError, UnsupportedVersionError
from kraft.raft.messages import (
    DUPLICATE_VOTER,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    POSITION_OUT_OF_RANGE,
    REQUEST_TIMED_OUT,
    SNAPSHOT_NOT_FOUND,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
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
)
from kraft.raft.messages import FENCED_LEADER_EPOCH as FENCED
from kraft.raft.ready import (
    DropSnapshotDownload,
    InstallSnapshot,
    Role,
    SnapshotRefused,
    SnapshotStored,
    StoreSnapshotChunk,
)
from kraft.raft.roles import SnapshotDownload
from kraft.raft.state import NodeState
from kraft.raft.voters import Voter

#: Bytes of a snapshot that may wait for the disk while more of it is asked for.
MAX_DOWNLOAD_AHEAD = 6 * 1024 * 1024
#: Chunks that are asked for before the first of them is there: while one is on its way the leader
#: reads the next, and this node writes the one before.
MAX_CHUNKS_IN_FLIGHT = 3
#: Of the retry backoff, while a leader's snapshots are refused; half the fetch timeout bounds it.
MAX_BACKOFF_DOUBLINGS = 16


class Following(NodeState):
    """The duties of whoever does not lead."""

    # -- fetching

    def fetch_request(self) -> FetchRequest:
        return FetchRequest(
            self.config.cluster_id,
            self.replica,
            self.epoch,
            self.log.end_offset,
            self.log.last_epoch,
            self.config.fetch_max_wait_ms,
            self.config.fetch_max_bytes,
            self.log.high_watermark,
        )

    def fetch_from_best_node(self) -> None:
        """From the leader; from any bootstrap server while the leader does not answer, to find a
        newer one.
        """
        download, following = self.download, self.following
        assert following is not None
        if download is not None and download.is_installing:
            return
        if following.resume_at_ms > self.now_ms:
            return
        connection = self._connections.get(self.leader_id)
        if connection is not None and connection.has_timed_out:
            if connection.in_flight:
                # Of the chunks behind the one that did not come: none will.
                return
            connection.has_timed_out = False
            self.fetch_from_bootstrap(self.fetch_request())
        elif connection is not None and connection.backoff_until_ms > self.now_ms:
            self.fetch_from_bootstrap(self.fetch_request())
        elif download is not None:
            self._ask_for_chunks(download)
        elif self.is_reachable(self.leader_id):
            # Whatever another server keeps waiting, the leader is asked: a silent one would else
            # cost the fetch timeout, and an election with it.
            leader = self.endpoint_of(self.leader_id)
            self.send_request(self.leader_id, leader, self.fetch_request(), is_leaders=False)

    def _ask_for_chunks(self, download: SnapshotDownload) -> None:
        """Asks for the next chunks, several of them at once where the first has told the size.

        A fetch says how far this log reaches; where a download goes on says nothing of the disk, so
        that it need not wait for the chunks before it to be written, up to a bound.
        """
        sent = self.in_flight_to(self.leader_id)
        if not sent:
            # What else was asked for has been given up, or was not the next.
            download.asked_position = download.position
        elif self._has_something_to_tell() or not self._is_next_on_its_way(download, sent[0]):
            # Nothing more goes before what is on its way has come.
            return
        leader = self.endpoint_of(self.leader_id)
        in_flight = len(sent)
        most = MAX_CHUNKS_IN_FLIGHT if download.size else 1
        most_ahead = max(1, MAX_DOWNLOAD_AHEAD // self.config.fetch_snapshot_max_bytes)
        while (
            in_flight < most
            and in_flight + self._unwritten() < most_ahead
            and (download.asked_position < download.size or not download.size)
        ):
            request = FetchSnapshotRequest(
                self.config.cluster_id,
                self.replica,
                self.epoch,
                download.snapshot_id,
                download.asked_position,
                self.config.fetch_snapshot_max_bytes,
            )
            if not self.send_request(
                self.leader_id, leader, request, is_leaders=True, is_next=in_flight > 0
            ):
                return
            download.asked_position += download.chunk_size
            in_flight += 1

    def _is_next_on_its_way(self, download: SnapshotDownload, oldest: Request) -> bool:
        """Whether the chunk that is wanted next is what the oldest request in flight asks for."""
        return isinstance(oldest, FetchSnapshotRequest) and (
            (oldest.snapshot_id, oldest.position) == (download.snapshot_id, download.position)
        )

    def _has_something_to_tell(self) -> bool:
        """Whether it is time to tell the leader of this voter, or that it would be one."""
        following, config = self.following, self.config
        assert following is not None
        return following.update_voter_at_ms <= self.now_ms and (
            self.is_voter or (config.auto_join and config.can_vote and self.log.kraft_version >= 1)
        )

    def _unwritten(self) -> int:
        """How many Readys with writes, this step's included, the disk has not done yet."""
        in_hand = 1 if self._ready.to_write else 0
        return self._write_sequence + in_hand - self._written_sequence

    def note_leader_alive(self) -> None:
        """A good answer of the leader came in: the fetch timer starts anew."""
        following = self.following
        if following is not None:
            following.fetch_deadline_ms = self.now_ms + self.config.fetch_timeout_ms
            following.has_fetched = True

    def handle_fetch_response(
        self, source: int, request: FetchRequest, response: FetchResponse
    ) -> None:
        if self.role is not Role.FOLLOWER or request.epoch > self.epoch:
            return
        if response.error != NONE:
            self.back_off(source)
            return
        log = self.log
        if request.offset != log.end_offset or self.download is not None:
            # The log has changed since the question was asked, but the leader is there: an
            # observer in mid-download would else ask around for ever.
            self.note_leader_alive()
            return
        if response.diverging_epoch is not None:
            if not self._truncate_to_common_end(response.diverging_epoch):
                self.back_off(source)
                return
        elif response.snapshot_id is not None:
            if not self._begin_download(response.snapshot_id):
                self.back_off(source)
                return
        else:
            records = response.records
            assert not isinstance(records, LogSlice)
            if len(records) and not self._append_fetched(records):
                # Damaged on its way, or not what was asked for: asked for again (KAFKA-18723).
                self.back_off(source)
                return
            if response.high_watermark >= 0:
                self.commit(min(response.high_watermark, log.end_offset))
        self.note_leader_alive()

    def _truncate_to_common_end(self, diverging: EpochEndOffset) -> bool:
        """Cuts what the leader does not have; False where that is nothing."""
        if diverging.epoch < 0 or diverging.end_offset < 0:
            return False
        own = self.log.end_offset_for_epoch(diverging.epoch)
        if own.epoch == diverging.epoch:
            end_offset = min(own.end_offset, diverging.end_offset)
        else:
            # This log has nothing of that epoch: what is later than the epochs before it goes.
            end_offset = own.end_offset
        if end_offset >= self.log.end_offset:
            return False
        self.truncate_log(end_offset)
        return True

    def _append_fetched(self, records: bytes | memoryview) -> bool:
        """Appends the sound batches of this epoch or earlier; False where the first is not sound
        or not the next.
        """
        log = self.log
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
            # Offsets leave no gaps, and one that is claimed without a record is none.
            is_next = base_offset == next_offset and count == delta + 1
            if not (is_next and epoch <= batch_epoch <= self.epoch):
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
        self.write_append(first_offset, log.end_offset, view[:end] if end < len(view) else records)
        for start, stop in controls:
            log.replay_control_batch(view[start:stop])
        return True

    # -- snapshots

    def _begin_download(self, snapshot_id: OffsetAndEpoch) -> bool:
        if snapshot_id.offset < 0 or snapshot_id.epoch < 0:
            return False
        if snapshot_id in self.log.snapshots or snapshot_id.offset <= self.log.high_watermark:
            # Nothing that is committed here is given up for what the leader has.
            return False
        self.download = SnapshotDownload(snapshot_id)
        return True

    def handle_fetch_snapshot_response(
        self, source: int, request: FetchSnapshotRequest, response: FetchSnapshotResponse
    ) -> None:
        self.renew_deadlines(source)
        download = self.download
        if self.role is not Role.FOLLOWER or download is None or download.is_installing:
            return
        if request.snapshot_id != download.snapshot_id or request.position != download.position:
            return
        if response.error != NONE:
            if response.error == SNAPSHOT_NOT_FOUND:
                # The leader has made a newer one meanwhile: it is asked for that at once.
                self._drop_download()
                self.note_leader_alive()
            else:
                if response.error == POSITION_OUT_OF_RANGE:
                    # What the leader has under this id is shorter: another file.
                    self._drop_download()
                self.back_off(source)
            return
        data = response.data
        assert not isinstance(data, SnapshotSlice)
        size = response.size
        if (
            response.snapshot_id != download.snapshot_id
            or response.position != download.position
            or size < download.position + len(data)
            or not len(data)
            # The file is another one than that which the chunks before this one are of.
            or download.size not in (0, size)
        ):
            self._drop_download()
            self.back_off(source)
            return
        self.write(StoreSnapshotChunk(download.snapshot_id, download.position, data))
        download.position += len(data)
        download.size, download.chunk_size = size, len(data)
        if download.position == size:
            download.is_installing = True
            self.write(InstallSnapshot(download.snapshot_id))
        self.note_leader_alive()

    def _drop_download(self) -> None:
        assert self.download is not None
        self.write(DropSnapshotDownload(self.download.snapshot_id))
        self.download = None

    def handle_snapshot_stored(self, event: SnapshotStored) -> None:
        log = self.log
        if not event.is_installed:
            if event.snapshot_id not in log.snapshots:
                log.add_snapshot(event.snapshot_id, event.size)
            return
        assert self.role is not Role.LEADER, "a leader never loads a snapshot"
        download = self.download
        assert download is not None, event
        assert download.snapshot_id == event.snapshot_id, event
        self.download = None
        log.begin_at(event.snapshot_id, event.size)
        log.load_snapshot_voters(event.voters, event.kraft_version)
        self._cut_unwritten(event.snapshot_id.offset)
        self._ready.committed = log.high_watermark
        if self.following is not None:
            self.following.refused_snapshots = 0
        # The disk was busy, not the leader silent.
        self.note_leader_alive()

    def handle_snapshot_refused(self, event: SnapshotRefused) -> None:
        """What the leader gave is no sound snapshot: it is asked again, later each time, as it may
        have made a better one. It leads on, since what is rotten need not be its log.
        """
        download = self.download
        assert download is not None, event
        assert download.is_installing, event
        assert download.snapshot_id == event.snapshot_id, event
        self.download = None
        following, config = self.following, self.config
        if following is not None:
            doublings = min(following.refused_snapshots, MAX_BACKOFF_DOUBLINGS)
            backoff_ms = max(1, config.retry_backoff_ms) << doublings
            delay_ms = min(backoff_ms, config.fetch_timeout_ms // 2)
            following.resume_at_ms = self.now_ms + delay_ms
            following.refused_snapshots += 1
        self.note_leader_alive()

    # -- what leaders say

    def handle_begin_quorum_epoch(self, request: BeginQuorumEpochRequest, reply_to: int) -> None:
        error = NONE
        if self.is_foreign_cluster(request.cluster_id):
            self.respond(reply_to, BeginQuorumEpochResponse(INCONSISTENT_CLUSTER_ID))
            return
        if request.epoch < self.epoch:
            error = FENCED
        elif request.leader_id < 0 or self.contradicts(request.epoch, request.leader_id):
            error = INVALID_REQUEST
        else:
            self.see_epoch(request.epoch, request.leader_id, request.leader_endpoints)
            if request.voter is not None and not self.is_me(request.voter):
                error = INVALID_VOTER_KEY
        self.respond(
            reply_to,
            BeginQuorumEpochResponse(
                error, self.epoch, self.leader_id, self.endpoints_of(self.leader_id)
            ),
        )

    def handle_end_quorum_epoch(self, request: EndQuorumEpochRequest, reply_to: int) -> None:
        error = NONE
        if self.is_foreign_cluster(request.cluster_id):
            self.respond(reply_to, EndQuorumEpochResponse(INCONSISTENT_CLUSTER_ID))
            return
        if request.epoch < self.epoch:
            error = FENCED
        elif request.leader_id < 0 or self.contradicts(request.epoch, request.leader_id):
            error = INVALID_REQUEST
        else:
            self.see_epoch(request.epoch, request.leader_id, request.leader_endpoints)
            following = self.following
            if following is not None and self.leader_id == request.leader_id:
                following.fetch_deadline_ms = self.now_ms + self._handover_wait_ms(request)
        self.respond(
            reply_to,
            EndQuorumEpochResponse(
                error, self.epoch, self.leader_id, self.endpoints_of(self.leader_id)
            ),
        )

    def _handover_wait_ms(self, request: EndQuorumEpochRequest) -> int:
        """The best candidate begins at once, the others wait so that it may win; all begin at
        once where the leader names nobody, as one that was restarted does.
        """
        longest = self.config.election_backoff_max_ms
        candidates = request.preferred_candidates
        position = 0
        while position < len(candidates) and not self.is_me(candidates[position]):
            position += 1
        if position == 0:
            return 0
        if position == len(candidates):
            return longest
        shortest = longest >> (len(candidates) - 1)
        return min(longest, shortest << (position - 1))

    # -- what a follower says of itself

    def tell_leader_of_voter(self) -> bool:
        """UpdateRaftVoter where the leader's picture of this voter is old; whether it was sent."""
        assert self.following is not None
        if self.log.kraft_version == 0:
            if self.following.has_updated_leader:
                return False
        else:
            entry = self.voters.get(self.config.node_id)
            own = Voter(self.replica, self.config.endpoints, self.config.kraft_versions)
            if entry is None or own.says_same_as(entry):
                return False
        request = UpdateRaftVoterRequest(
            self.config.cluster_id,
            self.epoch,
            self.replica,
            self.config.endpoints,
            self.config.kraft_versions,
        )
        leader = self.endpoint_of(self.leader_id)
        return self.send_request(self.leader_id, leader, request, is_leaders=False)

    def handle_update_voter_response(
        self, source: int, request: UpdateRaftVoterRequest, response: UpdateRaftVoterResponse
    ) -> None:
        if self.following is None or request.epoch != self.epoch:
            return
        if response.error in (NONE, UNSUPPORTED_VERSION):
            self.following.has_updated_leader = True
        if response.error == NONE:
            self.note_leader_alive()

    def join_voters(self) -> bool:
        """Auto join (KIP-853, 4.2): an old directory of this id goes, then this one comes."""
        old = self.voters.get(self.config.node_id)
        request: RemoveRaftVoterRequest | AddRaftVoterRequest
        if old is not None:
            request = RemoveRaftVoterRequest(self.config.cluster_id, old.key)
        else:
            request = AddRaftVoterRequest(
                self.config.cluster_id,
                self.config.request_timeout_ms,
                self.replica,
                self.config.endpoints,
                ack_when_committed=False,
            )
        leader = self.endpoint_of(self.leader_id)
        return self.send_request(self.leader_id, leader, request, is_leaders=False)

    def handle_join_response(
        self, source: int, response: AddRaftVoterResponse | RemoveRaftVoterResponse
    ) -> None:
        expected = (NONE, REQUEST_TIMED_OUT, DUPLICATE_VOTER, VOTER_NOT_FOUND)
        if response.error not in expected:
            self.back_off(source)
