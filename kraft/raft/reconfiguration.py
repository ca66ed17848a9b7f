"""Changes of the voters and of kraft.version, one at a time, as the leader decides them.

`VoterChanges` handles AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter and the upgrade of
kraft.version from 0 to 1. New voters are in force from the moment their record is appended; the
response waits until that record is committed. Sources: KIP-853, KIP-1186, KAFKA-16538; Kafka's
``AddVoterHandler``, ``RemoveVoterHandler``, ``UpdateVoterHandler``, ``KRaftVersionUpgrade``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kraft.errors import (
    DUPLICATE_VOTER,
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
)
from kraft.raft.connections import NEVER
from kraft.raft.outbox import Needs
from kraft.raft.replicas import Replicas
from kraft.raft.rpc import (
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
)
from kraft.raft.state import NodeState, pick_endpoint
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Record, control

#: An error code, and its message for the client.
Rejection = tuple[int, str | None]


@dataclass(slots=True)
class VoterChange:
    """The one change of the voters, or of kraft.version, that may be under way."""

    #: The request that waits for the response; None if it was answered or expects none.
    reply_to: int | None
    deadline_ms: float
    request: AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateKRaftVersionRequest | None
    #: The offset of the record; -1 while the new voter has not answered ApiVersions.
    offset: int = -1
    #: The correlation of the ApiVersions request to the new voter.
    correlation: int = -1


class LeaderLog(Protocol):
    """The part of the leader that a change of the voters uses."""

    def append_control_records(self, records: list[Record]) -> int:
        """Append control records at once."""

    def advance_high_watermark(self) -> None:
        """Commit what a majority of the present voters has on disk."""


class VoterChanges:
    """The changes of the voters in one leader's epoch."""

    def __init__(self, node: NodeState, replicas: Replicas, leader_log: LeaderLog) -> None:
        self._node = node
        self._log = node.log
        self._config = node.config
        self._replicas = replicas
        self._leader_log = leader_log
        self.change: VoterChange | None = None

    # -- one change at a time

    def _change_gate(self, level: int) -> Rejection:
        """Return why no change may begin now; ``level`` is the kraft.version that it needs."""
        log = self._log
        if self.change is not None:
            return REQUEST_TIMED_OUT, "another change of the voters is under way"
        if self._replicas.high_watermark < 0:
            return REQUEST_TIMED_OUT, "the leader does not know its high watermark yet"
        if log.kraft_version < level:
            return (
                UNSUPPORTED_VERSION,
                f"kraft.version is {log.kraft_version}: voters are static until it is "
                f"upgraded to {level}",
            )
        if not log.is_voters_committed():
            return REQUEST_TIMED_OUT, "the last change of the voters is not committed yet"
        return NONE, None

    def _has_default_listener(self, endpoints: tuple[Endpoint, ...]) -> bool:
        return any(endpoint.name == self._config.listener for endpoint in endpoints)

    def _begin_change(self, change: VoterChange) -> None:
        assert self.change is None, "one change of the voters at a time"
        self.change = change

    def _request_deadline_ms(self) -> float:
        return self._node.now_ms + self._config.request_timeout_ms

    def _append_voters(self, change: VoterChange, voters: VoterSet) -> None:
        before = self._node.voters
        assert voters.has_overlapping_majority(before), (voters, before)
        if len(before) == 1:
            # A sole voter's timer was not restarted by fetches: the second voter gets a whole
            # period.
            self._replicas.restart_check_quorum()
        self._append_change(change, [voters.to_record()])
        self._replicas.note_removed_voters(before)

    def _append_change(self, change: VoterChange, records: list[Record]) -> None:
        """Append the records of a change, which is in force from now on (KIP-853)."""
        self._leader_log.append_control_records(records)
        change.offset = self._log.end_offset - 1
        change.deadline_ms = self._request_deadline_ms()
        self._leader_log.advance_high_watermark()

    # -- AddRaftVoter

    def handle_add_voter(
        self, request: AddRaftVoterRequest, reply_to: int, rejection: Rejection
    ) -> None:
        """Ask the new voter for its versions, unless ``rejection`` or a gate has an error."""
        node = self._node
        error, message = rejection
        if error == NONE:
            error, message = self._add_voter_gate(request)
        if error == NONE:
            endpoint = pick_endpoint(request.endpoints, self._config.listener)
            id, ask = request.voter.id, ApiVersionsRequest()
            if node.send_request(id, endpoint, ask, needs=Needs.EPOCH):
                timeout_ms = max(0, min(request.timeout_ms, self._config.request_timeout_ms))
                change = VoterChange(reply_to, node.now_ms + timeout_ms, request)
                change.correlation = node.connections.last_correlation
                self._begin_change(change)
                return
            error, message = REQUEST_TIMED_OUT, "the new voter is unreachable now; try again"
        node.outbox.respond(reply_to, AddRaftVoterResponse(error, message))

    def _add_voter_gate(self, request: AddRaftVoterRequest) -> Rejection:
        if not _is_complete(request.voter):
            return INVALID_REQUEST, "the voter needs an id and a directory id"
        if not self._has_default_listener(request.endpoints):
            return (
                INVALID_REQUEST,
                f"the new voter's endpoints lack the listener {self._config.listener}",
            )
        error, message = self._change_gate(1)
        voter = self._node.voters.get(request.voter.id)
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
        """Add the voter that answered, or reject it; None if it did not answer."""
        change = self.change
        if change is None or change.correlation != correlation:
            return
        request = change.request
        if not isinstance(request, AddRaftVoterRequest):
            return
        versions = response.kraft_versions if response is not None else None
        level = self._log.kraft_version
        if response is None or response.error != NONE:
            self._end_change(change, REQUEST_TIMED_OUT, "the new voter did not answer ApiVersions")
        elif versions is None or level not in versions:
            self._end_change(
                change, INVALID_REQUEST, f"the new voter does not support kraft.version {level}"
            )
        elif not self._replicas.is_caught_up(request.voter):
            self._end_change(
                change, REQUEST_TIMED_OUT, "the new voter has not caught up with the log"
            )
        else:
            voter = VoterNode(request.voter, request.endpoints, versions)
            self._append_voters(change, self._node.voters.with_voter(voter))
            if not request.ack_when_committed and change.reply_to is not None:
                self._node.outbox.respond(change.reply_to, AddRaftVoterResponse(NONE))
                change.reply_to = None

    # -- RemoveRaftVoter

    def handle_remove_voter(
        self, request: RemoveRaftVoterRequest, reply_to: int, rejection: Rejection
    ) -> None:
        """Remove a voter, unless ``rejection`` or a gate has an error."""
        error, message = rejection
        if error == NONE:
            error, message = self._remove_voter_gate(request)
        if error != NONE:
            self._node.outbox.respond(reply_to, RemoveRaftVoterResponse(error, message))
            return
        change = VoterChange(reply_to, self._request_deadline_ms(), request)
        self._begin_change(change)
        self._append_voters(change, self._node.voters.without(request.voter.id))

    def _remove_voter_gate(self, request: RemoveRaftVoterRequest) -> Rejection:
        if not _is_complete(request.voter):
            return INVALID_REQUEST, "the voter needs an id and a directory id"
        error, message = self._change_gate(1)
        if error != NONE:
            return error, message
        voters = self._node.voters
        voter = voters.get(request.voter.id)
        if voter is None or voter.key != request.voter:
            return VOTER_NOT_FOUND, f"{request.voter!r} is not a voter"
        if len(voters) == 1:
            return VOTER_NOT_FOUND, "the last voter cannot be removed"
        return NONE, None

    # -- UpdateRaftVoter

    def update_voter(self, request: UpdateRaftVoterRequest) -> int:
        """Update a voter's endpoints and versions; return the error of the response."""
        entry = self._node.voters.get(request.voter.id)
        error = self._update_voter_error(request, entry)
        if error != NONE or entry is None or request.voter.directory_id is None:
            return error
        self._replicas.note_voter_seen(request.voter.id)
        if self._log.kraft_version == 0:
            # Static voters have no record. The leader keeps their reports for the upgrade to
            # kraft.version 1.
            self._replicas.reported_versions[request.voter.id] = request.kraft_versions
            self._replicas.reported_directories[request.voter.id] = (
                request.voter.directory_id,
                request.endpoints,
            )
            return NONE
        voter = VoterNode(entry.key, request.endpoints, request.kraft_versions)
        if not voter.is_equivalent(entry):
            change = VoterChange(None, self._request_deadline_ms(), None)
            self._begin_change(change)
            self._append_voters(change, self._node.voters.with_voter(voter))
        return NONE

    def _update_voter_error(self, request: UpdateRaftVoterRequest, entry: VoterNode | None) -> int:
        versions = request.kraft_versions
        if (
            not _is_complete(request.voter)
            or not self._has_default_listener(request.endpoints)
            or not 0 <= versions.min <= versions.max
        ):
            return INVALID_REQUEST
        level = self._log.kraft_version
        error, _ = self._change_gate(level)
        if error != NONE:
            return error
        if level not in versions:
            return INVALID_REQUEST
        if entry is None or (level >= 1 and entry.key != request.voter):
            return VOTER_NOT_FOUND
        return NONE

    # -- kraft.version 0 -> 1

    def handle_update_kraft_version(
        self, request: UpdateKRaftVersionRequest, reply_to: int, rejection: Rejection
    ) -> None:
        """Upgrade kraft.version, unless ``rejection`` or a gate has an error."""
        error, message = rejection
        voters = self._node.voters
        if error == NONE:
            error, message, voters = self._upgrade_gate(request)
        if error != NONE or request.level == self._log.kraft_version or request.validate_only:
            self._node.outbox.respond(reply_to, UpdateKRaftVersionResponse(error, message))
            return
        change = VoterChange(reply_to, self._request_deadline_ms(), request)
        self._begin_change(change)
        self._replicas.rename_static_voters(voters)
        records: list[Record] = [control.KRaftVersion(kraft_version=request.level)]
        records.append(voters.to_record())
        self._append_change(change, records)

    def _upgrade_gate(self, request: UpdateKRaftVersionRequest) -> tuple[int, str | None, VoterSet]:
        """Return why the upgrade is rejected, and the voters with their directory ids."""
        level, voters, config = self._log.kraft_version, self._node.voters, self._config
        error, message = self._change_gate(0)
        if error != NONE or request.level == level:
            return error, message, voters
        if request.level < level or not request.is_upgrade:
            return INVALID_UPDATE_VERSION, "kraft.version cannot be downgraded", voters
        if request.level not in config.kraft_versions:
            return (
                INVALID_UPDATE_VERSION,
                f"kraft.version {request.level} is not supported by node {config.node_id}",
                voters,
            )
        upgraded = []
        for voter in voters:
            if voter.id == config.node_id:
                own = VoterNode(self._node.replica, config.endpoints, config.kraft_versions)
                upgraded.append(own)
                continue
            versions = self._replicas.reported_versions.get(voter.id, KRaftVersionRange())
            directory = self._replicas.reported_directories.get(voter.id)
            if request.level not in versions or directory is None:
                return (
                    INVALID_UPDATE_VERSION,
                    f"voter {voter.id} has not reported that it supports "
                    f"kraft.version {request.level}",
                    voters,
                )
            directory_id, endpoints = directory
            upgraded.append(VoterNode(ReplicaKey(voter.id, directory_id), endpoints, versions))
        return NONE, None, VoterSet(upgraded)

    # -- the end of a change

    def note_committed(self, high_watermark: int) -> None:
        """End the change if its record is committed."""
        change = self.change
        if change is not None and 0 <= change.offset < high_watermark:
            self._end_change(change, NONE, None)

    def expire(self) -> None:
        """Answer a request whose time is over.

        A change in the log is not cancelled, and blocks the next change until it is committed.
        """
        change = self.change
        if change is None or change.deadline_ms > self._node.now_ms:
            return
        change.deadline_ms = NEVER
        if change.offset < 0:
            self._end_change(change, REQUEST_TIMED_OUT, "the new voter did not answer in time")
        elif change.reply_to is not None:
            self._answer_change(
                change, REQUEST_TIMED_OUT, "not committed in time; it may still be committed"
            )
            change.reply_to = None

    def fail(self) -> None:
        """Answer the request of the change under way, as this node does not lead any more."""
        if self.change is not None:
            self._end_change(self.change, NOT_LEADER_OR_FOLLOWER, "the leader lost its leadership")

    def _end_change(self, change: VoterChange, error: int, message: str | None) -> None:
        self.change = None
        if isinstance(change.request, AddRaftVoterRequest):
            # Any client can name any id in such a request.
            self._node.forget_connection(change.request.voter.id)
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
        self._node.outbox.respond(change.reply_to, response, needs=Needs.EPOCH)


def _is_complete(key: ReplicaKey) -> bool:
    """Return whether a key names one replica: an id, and the directory of its log."""
    return key.id >= 0 and key.directory_id is not None
