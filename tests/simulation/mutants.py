"""``make mutants``: faults planted into the state machine and its driver, each to be caught.

Owns the list of the quorum's faults; those of the controller are in `controller_mutants`. Each is a
small change of one rule, made in a process of its own by replacing a method; then seeds are run
until an invariant is violated. A fault that no seed within the bound shows means that the
simulation is blind there: the run fails.
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
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from kraft._core.epoch_cache import EpochEndOffset
from kraft.raft import node as node_module
from kraft.raft.election_state import ElectionState
from kraft.raft.elections import Elections
from kraft.raft.following import Following
from kraft.raft.leadership import Leading
from kraft.raft.log_view import LogView
from kraft.raft.messages import FetchResponse, VoteRequest
from kraft.raft.node import Node
from kraft.raft.ready import Role, SnapshotRefused, Write
from kraft.raft.reconfiguration import Reconfiguration
from kraft.raft.roles import Candidacy
from kraft.raft.state import NodeState
from kraft.raft.voters import VoterSet
from kraft.simulation.log_storage import CrashingFile
from kraft.simulation.replays import CONTROLLERS, QUORUM, Replay
from kraft.simulation.shrinking import Shrunk, shrink
from kraft.simulation.storage import Storage
from tests.mutant_table import table
from tests.scenarios.script import Scenario, ScenarioFailedError
from tests.simulation.controller_mutants import CONTROLLER_MUTANTS
from tests.simulation.quorum_mutants import QUORUM_MUTANTS, SHOWN_BY_SCENARIOS

SEED_LIMIT = 300
#: A seed of a whole cluster goes through more.
WHOLE_SEED_LIMIT = 60
EVENT_LIMIT = 3000

MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[plant.__name__] = plant
    return plant


# -- what is durable


@mutant
def answers_before_the_disk_has_it() -> None:
    """KAFKA-10533: nothing waits for the sync."""
    NodeState._send = lambda self, send, is_leaders: self._ready.to_send.append(send)  # type: ignore


@mutant
def fetches_reach_beyond_what_is_durable() -> None:
    """What was handed to the disk counts as being on it, for others as well."""
    write_append = NodeState.write_append

    def eager(self: NodeState, base_offset: int, end_offset: int, batches: Any) -> None:
        write_append(self, base_offset, end_offset, batches)
        self.log.durable_end_offset = end_offset

    NodeState.write_append = eager  # type: ignore[method-assign]


@mutant
def votes_leave_before_quorum_state_is_written() -> None:
    send = NodeState._send

    def eager(self: NodeState, message: Any, is_leaders: bool) -> None:
        if type(message).__name__ == "SendResponse" and hasattr(message.response, "is_granted"):
            self._ready.to_send.append(message)
        else:
            send(self, message, is_leaders)

    NodeState._send = eager  # type: ignore[method-assign]


@mutant
def the_sync_is_skipped() -> None:
    """The driver says that all is durable, and a crash takes the last batches."""
    crash = Storage.crash

    def losing(self: Storage, writes: list[Write], random: Random) -> None:
        crash(self, writes, random)
        self._keep(max(0, len(self.entries) - int(random.random() * 8)))

    Storage.crash = losing  # type: ignore[method-assign, assignment]


@mutant
def the_disk_does_not_sync() -> None:
    """The real log asks for a sync, and gets none (the seeds that have it)."""
    CrashingFile.sync = lambda self: None  # type: ignore[method-assign]


@mutant
def a_torn_tail_takes_more_than_the_tail() -> None:
    """Recovery cuts at the first batch of the last epoch (the hazard of KAFKA's row 26)."""
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
    choose: Callable[[Node, list[int]], int], *, has_own: bool = False
) -> Callable[[Node], None]:
    """``advance_high_watermark`` with another choice among the sorted ends of the voters."""

    def advance(self: Node) -> None:
        leadership = self.leadership
        if leadership is None:
            return
        ends = []
        for voter in self.voters:
            if voter.id == self.config.node_id:
                continue
            progress = leadership.replicas.get(voter.key)
            ends.append(-1 if progress is None else progress.end_offset)
        if self.is_voter or has_own:
            ends.append(self.log.durable_end_offset)
        ends.sort(reverse=True)
        candidate = min(choose(self, ends), self.log.durable_end_offset)
        if candidate > max(leadership.epoch_start_offset, leadership.high_watermark):
            leadership.high_watermark = candidate
            leadership.is_active = True
            self.commit(candidate)
            self.answer_waiting(is_moved=True)
            self.note_committed(candidate)

    return advance


@mutant
def the_high_watermark_is_one_too_high() -> None:
    commit = NodeState.commit

    def beyond(self: NodeState, high_watermark: int) -> None:
        commit(self, min(high_watermark + 1, self.log.end_offset))

    NodeState.commit = beyond  # type: ignore[method-assign]


@mutant
def the_leader_commits_before_a_majority_has_it() -> None:
    Leading.advance_high_watermark = advance_to(  # type: ignore[method-assign, assignment]
        lambda node, ends: ends[0]
    )


@mutant
def half_of_the_voters_are_enough_to_commit() -> None:
    """Of four voters two are no majority."""
    Leading.advance_high_watermark = advance_to(  # type: ignore[method-assign, assignment]
        lambda node, ends: ends[(len(ends) - 1) // 2]
    )


@mutant
def a_removed_leader_counts_itself() -> None:
    Leading.advance_high_watermark = advance_to(  # type: ignore[method-assign, assignment]
        lambda node, ends: ends[len(node.voters) // 2], has_own=True
    )


@mutant
def the_high_watermark_moves_before_the_epochs_own_record() -> None:
    """KAFKA-12619, and the reason for it: Raft's figure 8."""
    become_leader = Leading.become_leader

    def forgetful(self: Leading, candidacy: Candidacy) -> None:
        become_leader(self, candidacy)
        assert self.leadership is not None
        self.leadership.epoch_start_offset = -1

    Leading.become_leader = forgetful  # type: ignore[method-assign]


# -- elections


@mutant
def votes_twice_in_an_epoch() -> None:
    def may_grant(self: Elections, request: VoteRequest) -> bool:
        mine = (self.log.last_epoch, self.log.end_offset)
        return self.role is not Role.LEADER and (request.last_epoch, request.last_offset) >= mine

    Elections._may_grant = may_grant  # type: ignore[method-assign]


@mutant
def votes_for_a_shorter_log() -> None:
    may_grant = Elections._may_grant

    def lenient(self: Elections, request: VoteRequest) -> bool:
        longest = VoteRequest(
            request.cluster_id,
            request.epoch,
            request.candidate,
            request.voter,
            1 << 30,
            1 << 60,
            request.is_pre_vote,
        )
        return may_grant(self, longest)

    Elections._may_grant = lenient  # type: ignore[method-assign]


@mutant
def pre_votes_count_as_votes() -> None:
    become_candidate = Elections.become_candidate

    def hasty(self: Elections) -> None:
        granted = set(self.candidacy.granted) if self.candidacy is not None else set()
        become_candidate(self)
        if self.role is Role.CANDIDATE and self.candidacy is not None:
            for id in sorted(granted):
                self.candidacy.record(id, True)
            if self.candidacy.is_won():
                self.become_leader(self.candidacy)

    Elections.become_candidate = hasty  # type: ignore[method-assign]


@mutant
def half_of_the_voters_are_enough_to_elect() -> None:
    VoterSet.majority = property(lambda self: max(1, len(self) // 2))  # type: ignore


def start_with(change: Callable[[ElectionState, LogView], ElectionState]) -> None:
    """Nodes begin with something else than what their disk says."""
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
def a_restarted_leader_leads_on() -> None:
    """KAFKA-10527."""
    start = Node._start

    def resume(self: Node, election: ElectionState) -> None:
        start(self, election)
        if self.role is Role.RESIGNED:
            self.role = Role.CANDIDATE
            self.become_leader(Candidacy(self.voters, is_pre_vote=False))

    Node._start = resume  # type: ignore[method-assign]


@mutant
def an_isolated_leader_leads_on() -> None:
    """KAFKA-15489."""
    poll = node_module._POLLS[Role.LEADER]

    def for_ever(self: Node) -> None:
        assert self.leadership is not None
        self.leadership.check_quorum_deadline_ms = self.now_ms + 1e9
        poll(self)

    node_module._POLLS[Role.LEADER] = for_ever


@mutant
def a_lost_election_is_never_tried_again() -> None:
    node_module._POLLS[Role.CANDIDATE] = Node.send_vote_requests


@mutant
def a_lost_request_is_waited_for_for_ever() -> None:
    NodeState.give_up_late_requests = lambda self: None  # type: ignore[method-assign]


@mutant
def a_refused_snapshot_is_waited_for_for_ever() -> None:
    """As if the disk were still at it: nothing is fetched any more."""
    node_module._HANDLERS[SnapshotRefused] = lambda self, event: None


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
    """KAFKA-12460: the whole last epoch goes instead of what diverges."""

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
    """A leader answers with what comes next, whatever the fetcher's last epoch was."""
    LogView.end_offset_for_epoch = (  # type: ignore[method-assign]
        lambda self, epoch: EpochEndOffset(epoch, 1 << 60)
    )


@mutant
def a_follower_does_not_truncate() -> None:
    Following._truncate_to_common_end = (  # type: ignore[method-assign]
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
    take = Following.handle_fetch_snapshot_response

    def lax(self: Following, source: int, request: Any, response: Any) -> None:
        if self.download is not None and len(response.data):
            self.download.position = response.position = request.position + 1
            request.position = response.position
        take(self, source, request, response)

    Following.handle_fetch_snapshot_response = lax  # type: ignore[method-assign]


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
    Reconfiguration._begin_change = (  # type: ignore[method-assign]
        lambda self, change: setattr(self.leadership, "change", change)
    )
    Reconfiguration._change_gate = (  # type: ignore[method-assign]
        lambda self, level: (
            (0, None)
            if self.leadership is not None and self.log.kraft_version >= level
            else (6, None)
        )
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
    """KIP-853: a voter set holds from the moment that it is in the log."""

    def voters(self: LogView) -> VoterSet:
        for at in reversed(self._voters):
            if at.offset < max(self.high_watermark, 0):
                return at.voters
        return self._voters[0].voters if self._voters else self.static_voters

    LogView.voters = property(voters)  # type: ignore[method-assign, assignment]


@mutant
def any_candidate_is_told_what_is_not_committed() -> None:
    """The high watermark that a leader tells is its log's end."""
    answer = Leading._answer_fetch

    def boasting(self: Leading, *given: Any, **named: Any) -> FetchResponse:
        response = answer(self, *given, **named)
        if response.error == 0:
            response.high_watermark = self.log.durable_end_offset
        return response

    Leading._answer_fetch = boasting  # type: ignore[method-assign]


MUTANTS |= QUORUM_MUTANTS


# -- the command


SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"


def scenario_that_fails() -> str | None:
    """Run every script of `tests/scenarios`; return the name of the first that fails."""
    for path in sorted(SCENARIOS.glob("*.txt")):
        with TemporaryDirectory() as workspace:
            try:
                Scenario(path, Path(workspace)).run()
            except ScenarioFailedError:
                return path.stem
    return None


class Caught(NamedTuple):
    """How a mutant was found out; ``invariant`` is None where it was not."""

    name: str
    invariant: str | None
    seed: int
    event: int
    seconds: float
    #: What the seed shrinks to, where that was asked for.
    shrunk: Shrunk | None = None

    @property
    def how(self) -> str | None:
        """The invariant, and where it was violated unless a scenario showed it."""
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

    What no seed is likely to show in this time is shown by a scenario.
    """
    is_of_the_quorum = name in MUTANTS
    kind = QUORUM if is_of_the_quorum else CONTROLLERS
    (MUTANTS if is_of_the_quorum else CONTROLLER_MUTANTS)[name]()
    start = perf_counter()
    if name in SHOWN_BY_SCENARIOS:
        failing = scenario_that_fails()
        return Caught(name, failing and f"scenario {failing}", 0, 0, perf_counter() - start)
    limit = SEED_LIMIT if is_of_the_quorum else WHOLE_SEED_LIMIT
    for seed in range(first, first + limit):
        outcome = kind.run_seed(seed, EVENT_LIMIT)
        if outcome.violation is not None:
            invariant: str | None = outcome.violation.invariant
            if invariant == "no_exception_escapes":
                # The mutant no longer fits the code that it changes: that proves nothing.
                print(f"{name}: {outcome.violation}", file=sys.stderr)
                invariant = None
            seconds = perf_counter() - start
            shrunk = shrink(Replay(kind, seed, EVENT_LIMIT)) if is_shrunk and invariant else None
            return Caught(name, invariant, seed, outcome.events, seconds, shrunk)
    return Caught(name, None, limit, 0, perf_counter() - start)


def main() -> int:
    every = [*MUTANTS, *CONTROLLER_MUTANTS]
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=every, help="these alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--shrink", action="store_true", help="the seeds that show them, too")
    given = parser.parse_args()
    names = given.only or every
    start = perf_counter()
    # One process a mutant: what is planted is never taken back.
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
