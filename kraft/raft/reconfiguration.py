"""Voters come, go and move; kraft.version rises from 0 to 1. One change at a time.

Owns AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter and the upgrade of kraft.version, as the leader
decides them. A new voter set holds from the moment when it is appended; the answer waits until it
is committed. Sources: KIP-853, KIP-1186, KAFKA-16538; Kafka's ``AddVoterHandler``,
``RemoveVoterHandler``, ``UpdateVoterHandler``, ``KRaftVersionUpgrade``.
"""

from __future__ import annotations

from kraft.raft.leadership import Leading
from kraft.raft.messages import (
    BROKER_NOT_AVAILABLE,
    DUPLICATE_VOTER,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    Response,
    UpdateKRaftVersionRequest,
    UpdateKRaftVersionResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from kraft.raft.roles import Leadership, VoterChange
from kraft.raft.state import pick_endpoint
from kraft.raft.voters import Endpoint, ReplicaKey, VersionRange, Voter, VoterSet
from kraft.records import Record, control

#: A new voter must have caught up within this time (Kafka's AddVoterHandler).
CAUGHT_UP_WITHIN_MS = 3_600_000


class Reconfiguration(Leading):
    """The leader's duties when its voters change."""

    def _leader_gate(self, cluster_id: str | None) -> tuple[int, str | None]:
        """Whether this is the cluster and the leader that the request is for."""
        if self.is_foreign_cluster(cluster_id):
            return INCONSISTENT_CLUSTER_ID, "the request is of another cluster"
        if self.leadership is None:
            return NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum"
        if self.is_shutting_down():
            return BROKER_NOT_AVAILABLE, "the leader is shutting down"
        return NONE, None

    def _change_gate(self, level: int) -> tuple[int, str | None]:
        """What a leader asks for before every change."""
        leadership = self.leadership
        assert leadership is not None
        if leadership.change is not None:
            return REQUEST_TIMED_OUT, "another change of the voters is under way"
        if leadership.high_watermark < 0:
            return REQUEST_TIMED_OUT, "the leader does not know its high watermark yet"
        if self.log.kraft_version < level:
            return (
                UNSUPPORTED_VERSION,
                f"kraft.version is {self.log.kraft_version}: voters are static until it is "
                f"upgraded to {level}",
            )
        if not self.log.is_voters_committed():
            return REQUEST_TIMED_OUT, "the last change of the voters is not committed yet"
        return NONE, None

    def _has_default_listener(self, endpoints: tuple[Endpoint, ...]) -> bool:
        return any(endpoint.name == self.config.listener for endpoint in endpoints)

    def _begin_change(self, change: VoterChange) -> None:
        assert self.leadership is not None
        assert self.leadership.change is None, "one change of the voters at a time"
        self.leadership.change = change

    def _append_voters(self, change: VoterChange, voters: VoterSet) -> None:
        before = self.voters
        assert voters.has_overlapping_majority(before), (voters, before)
        assert self.leadership is not None
        if len(before) == 1:
            # Nobody's fetches renewed it: the second voter has a whole period to be heard from.
            timeout_ms = self.config.check_quorum_timeout_ms
            self.leadership.check_quorum_deadline_ms = self.now_ms + timeout_ms
        self._append_change(change, [voters.to_record()])
        self.note_removed_voters(before)

    def _append_change(self, change: VoterChange, records: list[Record]) -> None:
        """Appends, and takes effect at once (KIP-853)."""
        assert self.leadership is not None
        self.append_control_records(records)
        change.offset = self.log.end_offset - 1
        change.deadline_ms = self.now_ms + self.config.request_timeout_ms
        self.advance_high_watermark()

    # -- a voter comes

    def handle_add_voter(self, request: AddRaftVoterRequest, reply_to: int) -> None:
        error, message = self._add_voter_gate(request)
        if error != NONE:
            self.respond(reply_to, AddRaftVoterResponse(error, message))
            return
        assert self.leadership is not None
        endpoint = pick_endpoint(request.endpoints, self.config.listener)
        change = VoterChange(reply_to, self.now_ms + self._timeout_ms(request), request)
        if not self.send_request(request.voter.id, endpoint, ApiVersionsRequest(), is_leaders=True):
            self.respond(
                reply_to,
                AddRaftVoterResponse(
                    REQUEST_TIMED_OUT, "the new voter cannot be reached now, try again"
                ),
            )
            return
        change.correlation = self._last_correlation
        self._begin_change(change)

    def _timeout_ms(self, request: AddRaftVoterRequest) -> int:
        return max(0, min(request.timeout_ms, self.config.request_timeout_ms))

    def _add_voter_gate(self, request: AddRaftVoterRequest) -> tuple[int, str | None]:
        error, message = self._leader_gate(request.cluster_id)
        if error != NONE:
            return error, message
        if not _is_complete(request.voter):
            return INVALID_REQUEST, "a voter has an id and a directory id"
        if not self._has_default_listener(request.endpoints):
            return (
                INVALID_REQUEST,
                f"the new voter's endpoints lack the listener {self.config.listener}",
            )
        error, message = self._change_gate(1)
        voter = self.voters.get(request.voter.id)
        if error == NONE and voter is not None:
            return (
                DUPLICATE_VOTER,
                f"node {voter.id} is a voter already, with the directory id "
                f"{voter.key.directory_id!s}",
            )
        return error, message

    def handle_api_versions_response(
        self, correlation: int, response: ApiVersionsResponse | None
    ) -> None:
        """What the new voter says of itself; None where it did not answer."""
        leadership = self.leadership
        change = leadership.change if leadership is not None else None
        if leadership is None or change is None or change.correlation != correlation:
            return
        request = change.request
        assert isinstance(request, AddRaftVoterRequest)
        versions = response.kraft_versions if response is not None else None
        if response is None or response.error != NONE:
            self._end_change(
                leadership, REQUEST_TIMED_OUT, "the new voter did not say what it supports"
            )
        elif versions is None or self.log.kraft_version not in versions:
            self._end_change(
                leadership,
                INVALID_REQUEST,
                f"the new voter does not support kraft.version {self.log.kraft_version}",
            )
        elif not self._is_caught_up(leadership, request.voter):
            self._end_change(
                leadership, REQUEST_TIMED_OUT, "the new voter has not caught up with the log"
            )
        else:
            voter = Voter(request.voter, request.endpoints, versions)
            self._append_voters(change, self.voters.with_voter(voter))
            if not request.ack_when_committed and change.reply_to is not None:
                self.respond(change.reply_to, AddRaftVoterResponse(NONE))
                change.reply_to = None

    def _is_caught_up(self, leadership: Leadership, key: ReplicaKey) -> bool:
        progress = leadership.replicas.get(key)
        return (
            progress is not None
            and progress.last_caught_up_ms >= 0
            and progress.last_caught_up_ms >= self.now_ms - CAUGHT_UP_WITHIN_MS
        )

    # -- a voter goes

    def handle_remove_voter(self, request: RemoveRaftVoterRequest, reply_to: int) -> None:
        error, message = self._remove_voter_gate(request)
        if error != NONE:
            self.respond(reply_to, RemoveRaftVoterResponse(error, message))
            return
        deadline_ms = self.now_ms + self.config.request_timeout_ms
        change = VoterChange(reply_to, deadline_ms, request.voter)
        self._begin_change(change)
        self._append_voters(change, self.voters.without(request.voter.id))

    def _remove_voter_gate(self, request: RemoveRaftVoterRequest) -> tuple[int, str | None]:
        error, message = self._leader_gate(request.cluster_id)
        if error != NONE:
            return error, message
        if not _is_complete(request.voter):
            return INVALID_REQUEST, "a voter has an id and a directory id"
        error, message = self._change_gate(1)
        if error != NONE:
            return error, message
        voter = self.voters.get(request.voter.id)
        if voter is None or voter.key != request.voter:
            return VOTER_NOT_FOUND, f"{request.voter!r} is not a voter"
        if len(self.voters) == 1:
            return VOTER_NOT_FOUND, "the last voter cannot be removed"
        return NONE, None

    # -- a voter moves

    def handle_update_voter(self, request: UpdateRaftVoterRequest, reply_to: int) -> None:
        error = self._update_voter_error(request)
        if error == NONE:
            leadership = self.leadership
            assert leadership is not None
            entry = self.voters.get(request.voter.id)
            assert entry is not None
            self.note_voter_seen(leadership, request.voter.id)
            if self.log.kraft_version == 0:
                # Static voters have no record: what they say is remembered while this node leads,
                # for the upgrade to kraft.version 1.
                assert request.voter.directory_id is not None
                leadership.told_versions[request.voter.id] = request.kraft_versions
                leadership.told_directories[request.voter.id] = (
                    request.voter.directory_id,
                    request.endpoints,
                )
            else:
                voter = Voter(entry.key, request.endpoints, request.kraft_versions)
                if not voter.says_same_as(entry):
                    deadline_ms = self.now_ms + self.config.request_timeout_ms
                    change = VoterChange(None, deadline_ms, voter.key)
                    self._begin_change(change)
                    self._append_voters(change, self.voters.with_voter(voter))
        leader_id, endpoints = self.leader_id, self.endpoints_of(self.leader_id)
        if error == INCONSISTENT_CLUSTER_ID:
            self.respond(reply_to, UpdateRaftVoterResponse(error))
        else:
            response = UpdateRaftVoterResponse(error, self.epoch, leader_id, endpoints)
            self.respond(reply_to, response)

    def _update_voter_error(self, request: UpdateRaftVoterRequest) -> int:
        if self.is_foreign_cluster(request.cluster_id):
            return INCONSISTENT_CLUSTER_ID
        error = self.leader_error(request.epoch)
        if error != NONE:
            return error
        versions = request.kraft_versions
        if (
            not _is_complete(request.voter)
            or not self._has_default_listener(request.endpoints)
            or not 0 <= versions.min <= versions.max
        ):
            return INVALID_REQUEST
        level = self.log.kraft_version
        error, _ = self._change_gate(level)
        if error != NONE:
            return error
        if level not in versions:
            return INVALID_REQUEST
        entry = self.voters.get(request.voter.id)
        if entry is None or (level >= 1 and entry.key != request.voter):
            return VOTER_NOT_FOUND
        return NONE

    # -- kraft.version 0 -> 1

    def handle_update_kraft_version(
        self, request: UpdateKRaftVersionRequest, reply_to: int
    ) -> None:
        error, message, voters = self._upgrade_gate(request)
        if error != NONE or request.level == self.log.kraft_version or request.validate_only:
            self.respond(reply_to, UpdateKRaftVersionResponse(error, message))
            return
        deadline_ms = self.now_ms + self.config.request_timeout_ms
        change = VoterChange(reply_to, deadline_ms, request)
        self._begin_change(change)
        assert self.leadership is not None
        for voter in voters:
            # The same replicas under the keys that they have from now on.
            progress = self.leadership.replicas.pop(ReplicaKey(voter.id), None)
            if progress is not None:
                progress.key = voter.key
                self.leadership.replicas[voter.key] = progress
        records: list[Record] = [control.KRaftVersion(kraft_version=request.level)]
        records.append(voters.to_record())
        self._append_change(change, records)

    def _upgrade_gate(self, request: UpdateKRaftVersionRequest) -> tuple[int, str | None, VoterSet]:
        level, voters = self.log.kraft_version, self.voters
        error, message = self._leader_gate(None)
        if error == NONE:
            error, message = self._change_gate(0)
        if error != NONE:
            return error, message, voters
        leadership = self.leadership
        assert leadership is not None
        if request.level == level:
            return NONE, None, voters
        if request.level < level or not request.is_upgrade:
            return INVALID_UPDATE_VERSION, "kraft.version cannot be downgraded", voters
        if request.level not in self.config.kraft_versions:
            return (
                INVALID_UPDATE_VERSION,
                f"kraft.version {request.level} is not supported by node {self.config.node_id}",
                voters,
            )
        told = []
        for voter in voters:
            if voter.id == self.config.node_id:
                told.append(Voter(self.replica, self.config.endpoints, self.config.kraft_versions))
                continue
            versions = leadership.told_versions.get(voter.id, VersionRange())
            directory = leadership.told_directories.get(voter.id)
            if request.level not in versions or directory is None:
                return (
                    INVALID_UPDATE_VERSION,
                    f"voter {voter.id} has not said that it supports kraft.version {request.level}",
                    voters,
                )
            directory_id, endpoints = directory
            told.append(Voter(ReplicaKey(voter.id, directory_id), endpoints, versions))
        return NONE, None, VoterSet(told)

    # -- how a change ends

    def note_committed(self, high_watermark: int) -> None:
        leadership = self.leadership
        if leadership is None:
            return
        change = leadership.change
        if change is not None and 0 <= change.offset < high_watermark:
            self._end_change(leadership, NONE, None)
        if not self.is_voter and self.log.is_voters_committed():
            # The leader was removed, and that is committed: somebody else leads on.
            leadership.is_resign_requested = True

    def expire_change(self, leadership: Leadership) -> None:
        """Answers who has waited too long. What is in the log goes on, and blocks other changes
        until it is committed.
        """
        change = leadership.change
        if change is None or change.deadline_ms > self.now_ms:
            return
        change.deadline_ms = float("inf")
        if change.offset < 0:
            self._end_change(leadership, REQUEST_TIMED_OUT, "the new voter did not answer in time")
        elif change.reply_to is not None:
            self._answer_change(change, REQUEST_TIMED_OUT, "not committed in time; it still may be")
            change.reply_to = None

    def fail_voter_change(self, leadership: Leadership) -> None:
        if leadership.change is not None:
            self._end_change(leadership, NOT_LEADER_OR_FOLLOWER, "leadership was lost meanwhile")

    def _end_change(self, leadership: Leadership, error: int, message: str | None) -> None:
        change, leadership.change = leadership.change, None
        assert change is not None
        if isinstance(change.request, AddRaftVoterRequest):
            # Anybody may name any id here.
            self.forget_connection(change.request.voter.id)
        self._answer_change(change, error, message)

    def _answer_change(self, change: VoterChange, error: int, message: str | None) -> None:
        if change.reply_to is None:
            return
        response: Response
        if isinstance(change.request, AddRaftVoterRequest):
            response = AddRaftVoterResponse(error, message)
        elif isinstance(change.request, UpdateKRaftVersionRequest):
            response = UpdateKRaftVersionResponse(error, message)
        else:
            response = RemoveRaftVoterResponse(error, message)
        self.respond(change.reply_to, response, is_leaders=True)


def _is_complete(key: ReplicaKey) -> bool:
    """Whether it names one replica: an id, and the directory of its log."""
    return key.id >= 0 and key.directory_id is not None
