"""Invariants of the quorum, checked after every event.

`InvariantChecks` has the checks of roles, votes, high watermarks and messages; those of batches are
in `batch_tree`, those of a disk in `storage`. Each looks only at what has changed. By name:

at_most_one_leader_per_epoch, epoch_never_goes_back, vote_once_per_epoch, leader_has_all_committed,
leaders_are_voters, high_watermark_never_goes_back, high_watermark_at_batch_end,
high_watermark_waits_for_the_epoch, majority_holds_committed, committed_never_lost_or_changed,
acknowledged_is_committed, logs_match, sent_only_after_durable, leader_never_loads_a_snapshot,
snapshot_at_log_start, snapshot_is_whole, one_voter_change_at_a_time, an_isolated_leader_resigns,
voters_are_those_of_the_log, the_real_log_equals_its_model, invalid_requests_change_nothing,
each_request_has_one_response, a_leader_in_contact_does_not_resign,
a_follower_gives_up_a_silent_leader, every_request_is_answered, voters_support_the_kraft_version,
commit_within_10_seconds, everyone_catches_up_within_10_seconds, no_assertion_fails,
no_exception_escapes.

`cluster` calls it before any write or message leaves a machine.
"""

from __future__ import annotations

from collections import Counter

from kraft.errors import NONE, SNAPSHOT_NOT_FOUND
from kraft.raft.interface import (
    DropSnapshotDownload,
    Event,
    InstallSnapshot,
    RequestReceived,
    ResponseReceived,
    Role,
    RoleChange,
    SnapshotRejected,
    SnapshotStored,
    StoreSnapshotChunk,
    Write,
)
from kraft.raft.rpc import (
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    LogSlice,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from kraft.raft.voters import ReplicaKey
from kraft.simulation.batch_tree import BatchTree, Entry, Violation
from kraft.simulation.damage import DamagedFetchResponse
from kraft.simulation.machine import Asked, Machine

#: The longest time to a response: a change of the voters has the request timeout (2 s), and a slow
#: disk adds seconds.
LONGEST_RESPONSE_MS = 6_000.0


class InvariantChecks:
    """The checks of one cluster."""

    def __init__(self, tree: BatchTree, machines: dict[int, Machine], counts: Counter[str]) -> None:
        self.tree = tree
        self.machines = machines
        self.counts = counts
        self._leaders: dict[int, int] = {}
        self._named_leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, bytes, int], ReplicaKey] = {}

    # -- roles

    def role_changed(self, machine: Machine, change: RoleChange, now: float = 0.0) -> None:
        epoch, counts = change.epoch, self.counts
        if epoch < machine.epoch:
            raise Violation(
                "epoch_never_goes_back", f"{machine} went from {machine.epoch} to {change}"
            )
        if change.leader_id >= 0:
            named = self._named_leaders.setdefault(epoch, change.leader_id)
            if named != change.leader_id:
                raise Violation(
                    "at_most_one_leader_per_epoch",
                    f"{machine} follows {change.leader_id} in epoch {epoch}, others {named}",
                )
        if change.role is Role.LEADER and machine.role is not Role.LEADER:
            leader_id = self._leaders.setdefault(epoch, machine.id)
            # An election whose result was never durable does not count.
            if leader_id != machine.id or machine.storage.led_epoch >= epoch:
                raise Violation(
                    "at_most_one_leader_per_epoch",
                    f"{machine} becomes leader of epoch {epoch}, which n{leader_id} has led",
                )
            committed = self.tree.committed_before(epoch)
            if not machine.queued and not machine.writing and not machine.storage.holds(committed):
                raise Violation(
                    "leader_has_all_committed",
                    f"{machine} leads epoch {epoch} with a log that ends at "
                    f"{machine.storage.last}; committed is {committed}",
                )
            self._check_may_lead(machine, committed)
            counts["elections"] += 1
            machine.led_since = now
            machine.heard.clear()
            machine.served.clear()
        elif change.role is not machine.role:
            counts["became_" + change.role.name.lower()] += 1
        if machine.role is Role.LEADER and change.role is not Role.LEADER:
            machine.waiting_acks.clear()
            if change.role is Role.RESIGNED and not (
                machine.is_asked_to_leave or machine.is_shutting_down
            ):
                voters = machine.node.log.voters
                is_voter = voters.is_voter(machine.config.replica)
                counts["check_quorum_resignations" if is_voter else "removed_leaders"] += 1
                self._check_resignation(machine, now)
            machine.is_asked_to_leave = False
        machine.role, machine.epoch, machine.leader_id = change.role, epoch, change.leader_id

    def _check_may_lead(self, machine: Machine, committed: Entry) -> None:
        """Check that a leader is a voter by its log or by the committed log.

        Its removal may be uncommitted.
        """
        replica = machine.config.replica
        if machine.queued or machine.writing or machine.config.static_voters.is_voter(replica):
            return
        voter_sets = (machine.storage.last.voters, committed.voters)
        if not any(voters is not None and voters.is_voter(replica) for voters in voter_sets):
            raise Violation(
                "leaders_are_voters",
                f"{machine} leads, its log ends with {voter_sets[0]}, committed are "
                f"{voter_sets[1]} up to {committed}",
            )

    def _check_resignation(self, machine: Machine, now: float) -> None:
        """Check that a leader does not resign while voters fetch from it and it is not removed."""
        voters, config = machine.node.log.voters, machine.config
        changed = machine.storage.last.voters_entry
        if not voters.is_voter(config.replica) and changed is not None and changed.is_committed:
            return
        since = now - config.check_quorum_timeout_ms / 2 / machine.clock_rate
        needed = voters.majority - voters.is_voter(config.replica)
        if machine.served_voters is voters and needed > 0:
            served = sum(machine.served.get(id, since) > since for id in voters.ids)
            if served >= needed:
                raise Violation(
                    "a_leader_in_contact_does_not_resign",
                    f"{machine} resigns in epoch {machine.epoch}, served {served} of {voters} in "
                    f"the last moments, its removal {changed} is not committed",
                )

    def check_silent_leader(self, machine: Machine, event: Event, now: float) -> None:
        """Check that a follower starts an election after the fetch timeout without valid responses.

        Errors and damaged records are not valid. Checked against the messages that were delivered.
        """
        node = machine.node
        following = node.role_state
        end_offset = node.log.end_offset
        is_news = following is not machine.followed or end_offset != machine.followed_end
        if type(event) is ResponseReceived:
            response = event.response
            if type(response) is DamagedFetchResponse:
                # A response to a fetch from an old offset only shows that the leader is alive.
                is_news |= response.asked_offset != machine.followed_end
            else:
                is_news |= getattr(response, "error", -1) in (NONE, SNAPSHOT_NOT_FOUND)
        elif type(event) is RequestReceived:
            is_news |= type(event.request) is EndQuorumEpochRequest
        elif type(event) in (SnapshotStored, SnapshotRejected):
            is_news = True
        if is_news or not node.is_electable or node.is_installing:
            machine.followed, machine.followed_end = following, end_offset
            machine.good_news_at = now
            return
        silent_ms = (now - machine.good_news_at) * machine.clock_rate
        if silent_ms > machine.config.fetch_timeout_ms + 1.0 and not machine.is_shutting_down:
            raise Violation(
                "a_follower_gives_up_a_silent_leader",
                f"{machine} follows {node.leader_id} in epoch {machine.epoch}, of which nothing "
                f"good came for {silent_ms:.0f} ms",
            )

    def check_response_times(self, machine: Machine, now: float) -> None:
        """Check that every request is answered in time; a change of voters waits longest (2 s)."""
        for asked in machine.asked.values():
            if max(asked.at, machine.paused_until_at_most) < now - LONGEST_RESPONSE_MS:
                raise Violation(
                    "every_request_is_answered",
                    f"{machine} has not answered {asked.request!r} of {asked.at:.0f} at {now:.0f}",
                )
            return

    def check_quorum(self, machine: Machine, now: float) -> None:
        """Check that a leader resigns if no majority fetches for two periods (KAFKA-15489).

        Two, because the timer restarts when the last voter of a majority fetches; the first one may
        have been silent since the beginning of the period.
        """
        voters = machine.node.log.voters
        if voters is not machine.heard_voters:
            # Until now other voters counted.
            machine.heard_voters, machine.led_since = voters, now
        needed = voters.majority - voters.is_voter(machine.config.replica)
        heard = machine.heard
        since = [
            heard.get(voter.id, machine.led_since) for voter in voters if voter.id != machine.id
        ]
        if needed <= 0 or len(since) < needed:
            return
        since.sort(reverse=True)
        silent_ms = (now - max(since[needed - 1], machine.led_since)) * machine.clock_rate
        if silent_ms > 2 * machine.config.check_quorum_timeout_ms + 1.0:
            raise Violation(
                "an_isolated_leader_resigns",
                f"{machine} leads epoch {machine.epoch}, and has not heard of {needed} others "
                f"among {voters} for {silent_ms:.0f} ms",
            )

    # -- what is committed

    def committed(self, machine: Machine, high_watermark: int) -> None:
        if high_watermark < machine.high_watermark:
            raise Violation(
                "high_watermark_never_goes_back",
                f"{machine} went from {machine.high_watermark} to {high_watermark}",
            )
        machine.high_watermark = high_watermark
        self.verify(machine)
        waiting = machine.waiting_acks
        while waiting and waiting[0][0] < high_watermark:
            last_offset, epoch, value = waiting.popleft()
            entry = machine.storage.entry_at(last_offset)
            if entry is None or entry.epoch != epoch or value not in entry.data:
                raise Violation(
                    "acknowledged_is_committed",
                    f"{machine} took an append to {last_offset} in epoch {epoch}: {entry}",
                )
            self.counts["acknowledged"] += 1

    def verify(self, machine: Machine) -> None:
        """Compare the machine's log below its high watermark with the committed batches."""
        high_watermark, storage = machine.high_watermark, machine.storage
        if machine.verified_offset >= high_watermark:
            return
        entries = storage.entries
        index = storage.index_of(machine.verified_offset)
        count = len(entries)
        newest: Entry | None = None
        new = []
        while index < count:
            entry = entries[index]
            if entry.end_offset > high_watermark:
                if entry.base_offset < high_watermark:
                    raise Violation(
                        "high_watermark_at_batch_end",
                        f"{high_watermark} of {machine} is within {entry}",
                    )
                break
            if not entry.is_committed:
                new.append(entry)
            newest = entry
            index += 1
        if new:
            self._check_new_commit(machine, new[-1])
            for entry in new:
                self.tree.commit(entry, machine.epoch)
        if newest is not None:
            machine.verified_offset = newest.end_offset
        if machine.role is Role.LEADER and machine.verified_offset < high_watermark:
            raise Violation(
                "sent_only_after_durable",
                f"{machine} commits up to {high_watermark}, its disk ends at {storage.end_offset}",
            )

    def _check_new_commit(self, machine: Machine, entry: Entry) -> None:
        if machine.role is not Role.LEADER:
            raise Violation(
                "majority_holds_committed", f"{machine}, no leader, was first to commit {entry}"
            )
        if entry.epoch != machine.epoch:
            raise Violation(
                "high_watermark_waits_for_the_epoch",
                f"{machine}, leader of epoch {machine.epoch}, committed {entry}",
            )
        voters = machine.node.log.voters
        holding = 0
        for voter in voters:
            other = self.machines.get(voter.key.id)
            if other is None:
                continue
            disk = other.disk_of(voter.key)
            if disk is None:
                continue
            # An older leader may still have a node truncate it that does not know this epoch.
            holding += disk.election.epoch >= machine.epoch and disk.holds(entry)
        if holding * 2 <= len(voters):
            raise Violation(
                "majority_holds_committed",
                f"{machine} committed {entry}, which {holding} of {voters} hold",
            )
        self.counts["commits"] += 1

    def check_voters(self, machine: Machine) -> None:
        """Check that the node acts by the voters of its log, once all of it is on disk."""
        last = machine.storage.last
        if machine.checked_voters is last.voters:
            return
        machine.checked_voters = last.voters
        voters = machine.node.log.voters
        if last.voters is not None and voters.ids and voters != last.voters:
            raise Violation(
                "voters_are_those_of_the_log",
                f"{machine} acts by {voters}, its log ends at {last} with {last.voters}",
            )

    # -- writes and messages

    def writes(self, machine: Machine, writes: list[Write]) -> None:
        for write in writes:
            if type(write) is InstallSnapshot or type(write) is StoreSnapshotChunk:
                if machine.role is Role.LEADER:
                    raise Violation("leader_never_loads_a_snapshot", f"{machine}: {write!r}")
                self.counts["snapshot_chunks"] += 1
            elif type(write) is DropSnapshotDownload:
                self.counts["interrupted_downloads"] += 1

    def request(self, machine: Machine, request: Request) -> None:
        storage = machine.storage
        if type(request) is FetchRequest:
            if request.epoch > storage.election.epoch or request.offset > storage.end_offset:
                self._not_durable(machine, request)
        elif type(request) is VoteRequest:
            if request.epoch > storage.election.epoch or request.last_offset > storage.end_offset:
                self._not_durable(machine, request)
            if not request.is_pre_vote:
                self._vote(machine, request.epoch, machine.config.replica, request)
                self.counts["vote_requests"] += 1
            else:
                self.counts["pre_vote_requests"] += 1
        elif (
            type(request) is BeginQuorumEpochRequest or type(request) is FetchSnapshotRequest
        ) and request.epoch > storage.election.epoch:
            self._not_durable(machine, request)

    def _note_served(self, machine: Machine, replica: ReplicaKey, asked: Asked) -> None:
        voters = machine.node.log.voters
        if machine.served_voters is not voters:
            machine.served_voters = voters
            machine.served.clear()
        if asked.voters is not voters:
            # A new voter asked as an observer, which does not count: nor does it in Kafka.
            return
        if replica.id != machine.id and voters.is_voter(replica):
            machine.served[replica.id] = max(machine.served.get(replica.id, 0.0), asked.at)

    def response(self, machine: Machine, asked: Asked, response: Response) -> None:
        storage, request = machine.storage, asked.request
        if type(response) is FetchResponse:
            if response.epoch > storage.election.epoch:
                self._not_durable(machine, response)
            if response.high_watermark > self.tree.committed.end_offset:
                raise Violation(
                    "acknowledged_is_committed",
                    f"{machine} reports the high watermark {response.high_watermark}, "
                    f"committed is {self.tree.committed}",
                )
            if type(response.records) is LogSlice:
                response.records = storage.read(response.records)
            if response.diverging_epoch is not None:
                self.counts["diverging_fetches"] += 1
            elif response.snapshot_id is not None:
                self.counts["snapshot_fetches"] += 1
            elif response.error == NONE and machine.role is Role.LEADER:
                assert type(request) is FetchRequest
                self._note_served(machine, request.replica, asked)
        elif type(response) is VoteResponse:
            if response.epoch > storage.election.epoch:
                self._not_durable(machine, response)
            assert type(request) is VoteRequest
            if request.is_pre_vote:
                self.counts[
                    "pre_votes_granted" if response.is_granted else "pre_votes_refused"
                ] += 1
            elif response.is_granted:
                self.counts["votes_granted"] += 1
                self._vote(machine, request.epoch, request.candidate, request)
            else:
                self.counts["votes_refused"] += 1
        elif (
            type(response) is not AddRaftVoterResponse
            and getattr(response, "epoch", -1) > storage.election.epoch
        ):
            self._not_durable(machine, response)

    def _vote(
        self, machine: Machine, epoch: int, candidate: ReplicaKey, request: VoteRequest
    ) -> None:
        """Check that a vote is durable and the only one of this replica in the epoch."""
        election = machine.storage.election
        if election.epoch < epoch or (
            election.epoch == epoch
            and (election.voted is None or election.voted.id != candidate.id)
        ):
            raise Violation(
                "sent_only_after_durable",
                f"{machine} votes for {candidate} in {epoch}, its disk says {election}",
            )
        key = (machine.id, machine.config.directory_id, epoch)
        voted = self._votes.setdefault(key, candidate)
        if voted != candidate:
            raise Violation(
                "vote_once_per_epoch", f"{machine} voted for {voted} and {candidate} in {epoch}"
            )

    def _not_durable(self, machine: Machine, message: object) -> None:
        storage = machine.storage
        raise Violation(
            "sent_only_after_durable",
            f"{machine} says {message!r}; on disk are {storage.election} and {storage.last}",
        )
