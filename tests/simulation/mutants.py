"""``make mutants``: plant faults into the state machine and its driver; the simulation finds each.

Here are faults of the quorum; `quorum_mutants` has more, `controller_mutants` those of the
controller, `replication_mutants` those of the brokers' replication. Each changes one rule by
replacing a method, in its own process; then seeds run until an invariant is violated. If no seed
within the limit finds a fault, the simulation is blind there, and the command fails.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from random import Random
from time import perf_counter
from typing import Any, NamedTuple

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.raft import epoch_requests
from kraft.raft import node as node_module
from kraft.raft.candidate import CandidateState, ProspectiveState
from kraft.raft.connections import Connections
from kraft.raft.election_state import ElectionState
from kraft.raft.follower import FollowerState
from kraft.raft.interface import Role, SnapshotRejected, Write
from kraft.raft.leader import LeaderState
from kraft.raft.log_view import LogView
from kraft.raft.node import Node
from kraft.raft.outbox import Needs, Outbox
from kraft.raft.reconfiguration import VoterChanges
from kraft.raft.rpc import FetchResponse, VoteRequest
from kraft.raft.state import NodeState
from kraft.raft.voters import VoterSet
from kraft.simulation.log_storage import CrashingFile
from kraft.simulation.replays import CONTROLLERS, QUORUM, REPLICATION, Replay, SimulationKind
from kraft.simulation.shrinking import Shrunk, shrink
from kraft.simulation.storage import Storage
from tests.mutant_table import table
from tests.simulation.controller_mutants import CONTROLLER_MUTANTS
from tests.simulation.quorum_mutants import (
    QUORUM_MUTANTS,
    SHOWN_BY_SCENARIOS,
    scenario_that_fails,
)
from tests.simulation.replication_mutants import (
    REPLICATION_MUTANTS,
    REPLICATION_SHOWN_BY_TESTS,
    unit_test_that_fails,
)

#: For the quorum a third of what `make simulate` runs: the rarest mutants show in about one seed of
#: 350. A seed of a whole cluster covers more.
SEED_LIMITS = {QUORUM.name: 700, CONTROLLERS.name: 200, REPLICATION.name: 30}
EVENT_LIMIT = 3000

MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[plant.__name__] = plant
    return plant


# -- durability


@mutant
def answers_before_the_records_are_durable() -> None:
    """KAFKA-10533: no message waits for the sync."""
    Outbox.send = lambda self, send, needs: self.ready.to_send.append(send)  # type: ignore


@mutant
def fetches_return_records_that_are_not_durable() -> None:
    """Unsynced records count as durable."""
    write_append = Outbox.write_append

    def eager(self: Outbox, base_offset: int, end_offset: int, batches: Any) -> None:
        write_append(self, base_offset, end_offset, batches)
        self._log.durable_end_offset = end_offset

    Outbox.write_append = eager  # type: ignore[method-assign]


@mutant
def votes_leave_before_quorum_state_is_written() -> None:
    send = Outbox.send

    def eager(self: Outbox, message: Any, needs: Needs) -> None:
        if type(message).__name__ == "SendResponse" and hasattr(message.response, "is_granted"):
            self.ready.to_send.append(message)
        else:
            send(self, message, needs)

    Outbox.send = eager  # type: ignore[method-assign]


@mutant
def no_message_waits_for_quorum_state() -> None:
    """As if every write of it named another leader only, and changed neither epoch nor vote."""
    write = Outbox.write_election_state
    Outbox.write_election_state = lambda self, state, *, is_awaited: write(  # type: ignore
        self, state, is_awaited=False
    )


@mutant
def the_sync_is_skipped() -> None:
    """The driver reports writes as durable, and a crash removes the last batches."""
    crash = Storage.crash

    def losing(self: Storage, writes: list[Write], random: Random) -> None:
        crash(self, writes, random)
        self._keep(max(0, len(self.entries) - int(random.random() * 8)))

    Storage.crash = losing  # type: ignore[method-assign, assignment]


@mutant
def the_disk_does_not_sync() -> None:
    """The sync of the real log does nothing (in the seeds that use it)."""
    CrashingFile.sync = lambda self: None  # type: ignore[method-assign]


@mutant
def a_torn_tail_takes_more_than_the_tail() -> None:
    """Recovery truncates at the first batch of the last epoch."""
    crash = Storage.crash

    def cutting(self: Storage, writes: list[Write], random: Random) -> None:
        torn = self.torn_writes
        crash(self, writes, random)
        if self.torn_writes > torn:
            last = self.last.epoch
            count = len(self.entries)
            while count and self.entries[count - 1].epoch == last:
                count -= 1
            self._keep(count)

    Storage.crash = cutting  # type: ignore[method-assign, assignment]


# -- the high watermark


def advance_to(
    choose: Callable[[NodeState, list[int]], int], *, has_own: bool = False
) -> Callable[[LeaderState], None]:
    """Return an ``advance_high_watermark`` with another choice among the sorted voters' ends."""

    def advance(self: LeaderState) -> None:
        node, replicas = self.node, self.replicas
        ends = [
            replicas.end_offset_of(voter.key)
            for voter in node.voters
            if voter.id != self.config.node_id
        ]
        if node.is_voter or has_own:
            ends.append(self.log.durable_end_offset)
        ends.sort(reverse=True)
        candidate = min(choose(node, ends), self.log.durable_end_offset)
        if candidate > max(self.epoch_start_offset, replicas.high_watermark):
            self.raise_high_watermark(candidate)

    return advance


@mutant
def the_high_watermark_is_one_too_high() -> None:
    commit = NodeState.commit

    def beyond(self: NodeState, high_watermark: int) -> None:
        commit(self, min(high_watermark + 1, self.log.end_offset))

    NodeState.commit = beyond  # type: ignore[method-assign]


@mutant
def the_leader_commits_before_a_majority_has_the_records() -> None:
    LeaderState.advance_high_watermark = advance_to(  # type: ignore[method-assign]
        lambda node, ends: ends[0]
    )


@mutant
def half_of_the_voters_are_enough_to_commit() -> None:
    """The leader commits with two of four voters, which are no majority."""
    LeaderState.advance_high_watermark = advance_to(  # type: ignore[method-assign]
        lambda node, ends: ends[(len(ends) - 1) // 2]
    )


@mutant
def a_removed_leader_counts_itself() -> None:
    LeaderState.advance_high_watermark = advance_to(  # type: ignore[method-assign]
        lambda node, ends: ends[len(node.voters) // 2], has_own=True
    )


@mutant
def the_high_watermark_moves_before_the_epochs_own_record() -> None:
    """KAFKA-12619; the reason is figure 8 of the Raft paper."""
    begin = LeaderState.begin

    def forgetful(self: LeaderState) -> None:
        begin(self)
        self.epoch_start_offset = -1

    LeaderState.begin = forgetful  # type: ignore[method-assign]


# -- elections


@mutant
def votes_twice_in_an_epoch() -> None:
    def may_grant(node: NodeState, request: VoteRequest) -> bool:
        mine = (node.log.last_epoch, node.log.end_offset)
        return node.role is not Role.LEADER and (request.last_epoch, request.last_offset) >= mine

    epoch_requests._may_grant = may_grant


@mutant
def votes_for_a_shorter_log() -> None:
    may_grant = epoch_requests._may_grant

    def lenient(node: NodeState, request: VoteRequest) -> bool:
        longest = VoteRequest(
            request.cluster_id,
            request.epoch,
            request.candidate,
            request.voter,
            1 << 30,
            1 << 60,
            request.is_pre_vote,
        )
        return may_grant(node, longest)

    epoch_requests._may_grant = lenient


@mutant
def pre_votes_count_as_votes() -> None:
    win = ProspectiveState.win

    def hasty(self: ProspectiveState) -> None:
        win(self)
        candidate = self.node.role_state
        if isinstance(candidate, CandidateState):
            for id in sorted(self.election.granted):
                candidate.election.record(id, True)
            candidate.begin()

    ProspectiveState.win = hasty  # type: ignore[method-assign]


@mutant
def half_of_the_voters_are_enough_to_elect() -> None:
    VoterSet.majority = property(lambda self: max(1, len(self) // 2))  # type: ignore


def start_with(change: Callable[[ElectionState, LogView], ElectionState]) -> None:
    """Start nodes with another election state than that of their disk."""
    begin = Node.__init__

    def forgetful(
        self: Node, config: Any, log: LogView, election: ElectionState, draw: Any, now_ms: float
    ) -> None:
        begin(self, config, log, change(election, log), draw, now_ms)

    Node.__init__ = forgetful  # type: ignore[method-assign]


@mutant
def the_vote_is_forgotten_at_a_restart() -> None:
    start_with(lambda election, log: ElectionState(election.epoch))


@mutant
def the_epoch_is_forgotten_at_a_restart() -> None:
    start_with(lambda election, log: ElectionState(log.last_epoch))


@mutant
def a_restarted_leader_keeps_leading() -> None:
    """KAFKA-10527."""
    start = Node._start

    def resume(self: Node, election: ElectionState) -> None:
        start(self, election)
        if self.role is Role.RESIGNED:
            self.start_role(Role.CANDIDATE)
            assert isinstance(self.role_state, CandidateState)
            self.role_state.win()

    Node._start = resume  # type: ignore[method-assign]


@mutant
def an_isolated_leader_keeps_leading() -> None:
    """KAFKA-15489."""
    poll = LeaderState.poll

    def for_ever(self: LeaderState) -> None:
        self.replicas.check_quorum_deadline_ms = self.node.now_ms + 1e9
        poll(self)

    LeaderState.poll = for_ever  # type: ignore[method-assign]


@mutant
def a_lost_election_is_never_tried_again() -> None:
    CandidateState.poll = CandidateState.send_vote_requests  # type: ignore[method-assign]


@mutant
def a_lost_request_never_times_out() -> None:
    Connections.give_up_late = lambda self, now_ms: None  # type: ignore[method-assign]


@mutant
def a_rejected_snapshot_is_never_requested_again() -> None:
    """After a rejected snapshot the node waits for its installation and fetches nothing."""
    node_module._HANDLERS[SnapshotRejected] = lambda self, event: None


# -- the log


@mutant
def the_epoch_cache_is_not_truncated() -> None:
    """KAFKA-10706."""
    truncate = LogView.truncate

    def forgetful(self: LogView, end_offset: int) -> None:
        entries = self.epochs.entries
        truncate(self, end_offset)
        for epoch, start_offset in entries[len(self.epochs.epochs) :]:
            self.epochs.epochs.append(epoch)
            self.epochs.start_offsets.append(start_offset)

    LogView.truncate = forgetful  # type: ignore[method-assign]


@mutant
def truncation_goes_below_the_high_watermark() -> None:
    """KAFKA-12460: a truncation removes the whole last epoch."""

    def truncate_log(self: NodeState, end_offset: int) -> None:
        log = self.log
        if log.epochs.start_offsets:
            end_offset = min(end_offset, log.epochs.start_offsets[-1])
        log.high_watermark = min(log.high_watermark, end_offset)
        truncate(self, end_offset)

    truncate = NodeState.truncate_log
    NodeState.truncate_log = truncate_log  # type: ignore[method-assign]


@mutant
def divergence_is_not_noticed() -> None:
    """A leader ignores the last epoch of the fetch."""
    LogView.end_offset_for_epoch = (  # type: ignore[method-assign]
        lambda self, epoch: EpochEndOffset(epoch, 1 << 60)
    )


@mutant
def a_follower_does_not_truncate() -> None:
    FollowerState._truncate_to_common_end = (  # type: ignore[method-assign]
        lambda self, diverging: True
    )


@mutant
def a_snapshots_end_is_read_as_inclusive() -> None:
    """KAFKA-14618."""
    begin_at = LogView.begin_at

    def one_further(self: LogView, snapshot_id: Any, size: int) -> None:
        begin_at(self, snapshot_id, size)
        self.start_offset = self.end_offset = self.durable_end_offset = snapshot_id.offset + 1

    LogView.begin_at = one_further  # type: ignore[method-assign]


@mutant
def a_fetcher_before_the_log_start_is_not_sent_a_snapshot() -> None:
    LogView.is_snapshot_needed = lambda self, *given: False  # type: ignore[method-assign]


@mutant
def the_voters_of_a_snapshot_are_not_taken_over() -> None:
    load = LogView.load_snapshot_voters

    def at_the_start_only(self: LogView, voters: VoterSet | None, level: int) -> None:
        if self.high_watermark < 0:
            load(self, voters, level)

    LogView.load_snapshot_voters = at_the_start_only  # type: ignore[method-assign]


@mutant
def a_download_takes_chunks_in_any_order() -> None:
    take = FollowerState.handle_fetch_snapshot_response

    def lax(self: FollowerState, source: int, request: Any, response: Any) -> None:
        download = self.node.download
        if download is not None and len(response.data):
            download.position = response.position = request.position + 1
            request.position = response.position
        take(self, source, request, response)

    FollowerState.handle_fetch_snapshot_response = lax  # type: ignore[method-assign]


@mutant
def the_log_start_goes_past_the_snapshot() -> None:
    """KAFKA-14238."""
    clean = Storage.clean

    def retention(self: Storage, keep: int, start_offset: int) -> Any:
        earliest = clean(self, keep, start_offset)
        if self.entries:
            self.start_offset = self.entries[-1].base_offset
        return earliest

    Storage.clean = retention  # type: ignore[method-assign]


# -- voters


@mutant
def two_voter_changes_at_once() -> None:
    VoterChanges._begin_change = (  # type: ignore[method-assign]
        lambda self, change: setattr(self, "change", change)
    )
    VoterChanges._change_gate = (  # type: ignore[method-assign]
        lambda self, level: (0, None) if self._log.kraft_version >= level else (6, None)
    )


@mutant
def truncated_voters_stay_in_force() -> None:
    truncate = LogView.truncate

    def forgetful(self: LogView, end_offset: int) -> None:
        voters = list(self._voters)
        truncate(self, end_offset)
        self._voters = voters

    LogView.truncate = forgetful  # type: ignore[method-assign]


@mutant
def new_voters_count_once_they_are_committed() -> None:
    """KIP-853: a voter set applies as soon as it is in the log; here only once it is committed."""

    def voters(self: LogView) -> VoterSet:
        for at in reversed(self._voters):
            if at.offset < max(self.high_watermark, 0):
                return at.voters
        return self._voters[0].voters if self._voters else self.static_voters

    LogView.voters = property(voters)  # type: ignore[method-assign, assignment]


@mutant
def any_candidate_gets_uncommitted_voters() -> None:
    """A leader sends its log end as the high watermark."""
    answer = LeaderState._answer_fetch

    def boasting(self: LeaderState, *given: Any, **named: Any) -> FetchResponse:
        response = answer(self, *given, **named)
        if response.error == 0:
            response.high_watermark = self.log.durable_end_offset
        return response

    LeaderState._answer_fetch = boasting  # type: ignore[method-assign]


MUTANTS |= QUORUM_MUTANTS


# -- the command


#: The mutants of each kind of simulation.
KINDS_OF_MUTANTS: tuple[tuple[SimulationKind, dict[str, Callable[[], None]]], ...] = (
    (QUORUM, MUTANTS),
    (CONTROLLERS, CONTROLLER_MUTANTS),
    (REPLICATION, REPLICATION_MUTANTS),
)


class Caught(NamedTuple):
    """How the simulation found a mutant; ``invariant`` is None if it did not."""

    name: str
    invariant: str | None
    seed: int
    event: int
    seconds: float
    #: The minimised seed, if requested.
    shrunk: Shrunk | None = None

    @property
    def how(self) -> str | None:
        """Return the violated invariant, with seed and event unless a scenario found the mutant."""
        if self.invariant is None or not self.event:
            return self.invariant
        return f"{self.invariant} (seed {self.seed}, event {self.event})"

    def as_dict(self) -> dict[str, Any]:
        figures = self._asdict()
        del figures["shrunk"]
        if self.shrunk is not None:
            shrunk = self.shrunk
            figures |= {
                "replay": str(shrunk.replay),
                "before": asdict(shrunk.before),
                "after": asdict(shrunk.after),
                "runs": shrunk.runs,
            }
        return figures


def hunt(name: str, is_shrunk: bool = False, first: int = 0) -> Caught:
    """Plant the fault in this process, and run seeds until an invariant is violated.

    A scenario finds a mutant that no seed is likely to find in this time.
    """
    kind, mutants = next(entry for entry in KINDS_OF_MUTANTS if name in entry[1])
    mutants[name]()
    start = perf_counter()
    if name in REPLICATION_SHOWN_BY_TESTS:
        failing = unit_test_that_fails()
        return Caught(name, failing and f"test {failing}", 0, 0, perf_counter() - start)
    if name in SHOWN_BY_SCENARIOS:
        failing = scenario_that_fails()
        return Caught(name, failing and f"scenario {failing}", 0, 0, perf_counter() - start)
    limit = SEED_LIMITS[kind.name]
    for seed in range(first, first + limit):
        outcome = kind.run_seed(seed, EVENT_LIMIT)
        if outcome.violation is not None:
            invariant: str | None = outcome.violation.invariant
            if invariant == "no_exception_escapes":
                # The mutant does not fit the code that it changes: that proves nothing.
                print(f"{name}: {outcome.violation}", file=sys.stderr)
                invariant = None
            seconds = perf_counter() - start
            shrunk = shrink(Replay(kind, seed, EVENT_LIMIT)) if is_shrunk and invariant else None
            return Caught(name, invariant, seed, outcome.events, seconds, shrunk)
    if kind is REPLICATION and (failing := unit_test_that_fails()) is not None:
        return Caught(name, f"test {failing}", limit, 0, perf_counter() - start)
    return Caught(name, None, limit, 0, perf_counter() - start)


def main() -> int:
    every = [name for _, mutants in KINDS_OF_MUTANTS for name in mutants]
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=every, help="run these mutants only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--shrink", action="store_true", help="minimise the seeds that find them")
    given = parser.parse_args()
    names = given.only or every
    start = perf_counter()
    # One process per mutant: a planted fault is never removed.
    context = multiprocessing.get_context("fork")
    with context.Pool(min(given.jobs, len(names)), maxtasksperchild=1) as pool:
        caught = pool.map(partial(hunt, is_shrunk=given.shrink), names, chunksize=1)
    survivors = [found.name for found in caught if found.invariant is None]
    seconds = perf_counter() - start
    if given.json:
        print(
            json.dumps(
                {"mutants": [found.as_dict() for found in caught], "seconds": round(seconds, 1)},
                indent=1,
            )
        )
    else:
        print(
            table(((found.name, found.how, str(found.shrunk or "")) for found in caught), seconds)
        )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
