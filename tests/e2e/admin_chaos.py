"""A quorum under admin requests whose processes are killed, paused, stopped and cut off.

``python -m tests.e2e.admin_chaos [--cycles 30] [--nodes 3] [--seed N] [--fault NAME]``. Clients
change topics and configurations over the network (`admin_load`), at Kafka's default timeouts. Each
cycle applies a fault, and measures the time until a write is accepted that was requested after the
fault. Then the fault ends, and another write has to be accepted. Every few cycles the clients stop:
all nodes must have the same state, and the history that ends with this state must be linearizable.
The seed decides the faults; timing depends on the machine.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

import kraft
from kraft.metadata.facade import Metadata
from kraft.metadata.verification import verify
from kraft.metadata.verification_findings import Severity
from tests.e2e.admin_load import KEY, TOPIC, AdminClient, History, Names, create_topics
from tests.e2e.proxied_quorum import ProxiedQuorum
from tests.harness.linearizability import Operation, RegisterModel, Topic, TopicModel, check
from tests.harness.network_links import Link
from tests.harness.nodes import Controller

CLIENTS = 6
TOPICS = 12
CONFIGURED = 3
CYCLES_AN_AUDIT = 10
#: Far above the time on a busy machine; slower progress counts as a standstill.
PROGRESS_TIMEOUT_S = 180.0
#: The methods of `AdminChaos` that apply a fault, with their weights.
FAULTS = {
    "kill_leader": 6,
    "stop_leader": 5,
    "kill_follower": 2,
    "kill_all": 1,
    "pause_leader": 3,
    "pause_follower": 1,
    "isolate_leader": 3,
    "isolate_follower": 1,
    "silence_leader": 2,
    "deafen_leader": 2,
    "cut_one_link": 2,
    "cut_followers_apart": 1,
}
#: The longest failovers, at the 99th percentile.
CRASH_BAR_S, STOP_BAR_S = 5.0, 1.0
#: The 99th percentile of fewer is the worst of them, and one pause of a busy machine exceeds a bar.
FEWEST_FAILOVERS = 100
#: Long enough for another leader: a follower waits 2 s, and an election takes up to 2 s.
_PAUSE_S = 5.0
_LOOK_EVERY_S = 0.005
#: Results that change nothing.
REFUSALS = ("exists", "unknown", "invalid")


class AdminChaos:
    """One run; ``failovers`` has the seconds until the first accepted write, by fault."""

    def __init__(
        self,
        quorum: ProxiedQuorum,
        seed: int,
        report: Callable[[str], None],
        faults: Sequence[str] = (),
    ) -> None:
        """``faults``: names of the faults to apply; all if empty."""
        self.quorum = quorum
        self.draw = random.Random(seed)
        self.report = report
        self.history = History()
        self.clients = [
            AdminClient(quorum.addresses, self.history, number, seed) for number in range(CLIENTS)
        ]
        self.failovers: defaultdict[str, list[float]] = defaultdict(list)
        self.done: Counter[str] = Counter()
        self.operations = 0
        #: Responses without a change that only a deposed leader's state explains, by kind.
        self.stale: Counter[str] = Counter()
        self._round = 0
        #: The state of objects of earlier rounds, which must stay.
        self._kept: dict[tuple[str, str], Topic | str | None] = {}
        self._faults: dict[str, int] = {name: FAULTS[name] for name in faults or FAULTS}

    def run(self, cycles: int) -> None:
        self.quorum.await_brokers(PROGRESS_TIMEOUT_S)
        self._begin_round()
        for cycle in range(1, cycles + 1):
            (fault,) = self.draw.choices(list(self._faults), list(self._faults.values()))
            self.done[fault] += 1
            getattr(self, fault)()
            self._recover()
            if cycle % CYCLES_AN_AUDIT == 0 or cycle == cycles:
                self._end_round()
                self.report(
                    f"cycle {cycle}: {self.history.acknowledged} acknowledged, all there; "
                    f"{self.operations} operations in linearizable histories"
                )
                for line in failover_lines(self.failovers):
                    self.report(f"  {line}")
                if cycle < cycles:
                    self._begin_round()
        self._stop_all()

    # -- faults

    def kill_leader(self) -> None:
        leader = self.leader()
        leader.stop(signal.SIGKILL)
        self._measure("crash")

    def stop_leader(self) -> None:
        leader = self.leader()
        begin = time.monotonic()
        self._begin_measuring()
        assert leader.running is not None
        code = leader.stop(signal.SIGTERM)
        assert code == 0, f"SIGTERM ended node {leader.id} with exit code {code}"
        self._measure("SIGTERM", begin)

    def kill_follower(self) -> None:
        self.follower().stop(signal.SIGKILL)
        self._measure("a follower's crash")

    def kill_all(self) -> None:
        for node in self.draw.sample(list(self.quorum.nodes.values()), len(self.quorum.nodes)):
            node.stop(signal.SIGKILL)

    def pause_leader(self) -> None:
        self._pause(self.leader(), "SIGSTOP")

    def pause_follower(self) -> None:
        self._pause(self.follower(), "a follower's SIGSTOP")

    def isolate_leader(self) -> None:
        leader = self.leader()
        self._cut("partition", self._links(leader, to=True, of=True))

    def isolate_follower(self) -> None:
        self._cut("a follower's partition", self._links(self.follower(), to=True, of=True))

    def silence_leader(self) -> None:
        """Nothing that the leader sends arrives."""
        self._cut("a leader not heard", self._links(self.leader(), of=True))

    def deafen_leader(self) -> None:
        """Nothing that others send to the leader arrives."""
        self._cut("a leader that hears nothing", self._links(self.leader(), to=True))

    def cut_one_link(self) -> None:
        leader, other = self.leader(), self.follower()
        link = (leader.id, other.id)
        self._cut("one link", {link if self.draw.random() < 0.5 else link[::-1]})

    def cut_followers_apart(self) -> None:
        leader = self.leader().id
        others = [id for id in self.quorum.nodes if id != leader]
        self._cut("followers apart", {(one, two) for one in others for two in others if one != two})

    def _links(self, node: Controller, *, to: bool = False, of: bool = False) -> set[Link]:
        others = [id for id in self.quorum.nodes if id != node.id]
        return {(id, node.id) for id in others if to} | {(node.id, id) for id in others if of}

    def _cut(self, name: str, links: set[Link]) -> None:
        begin = time.monotonic()
        self._begin_measuring()
        self.quorum.links.cut(links)
        self._measure(name, begin)
        # At random until the deposed leader has noticed, or earlier.
        time.sleep(self.draw.random() * _PAUSE_S)

    def _pause(self, node: Controller, name: str) -> None:
        begin = time.monotonic()
        self._begin_measuring()
        self.quorum.signal(node, signal.SIGSTOP)
        self._measure(name, begin)
        if self.draw.random() < 0.25:
            node.stop(signal.SIGKILL)
        else:
            self.quorum.signal(node, signal.SIGCONT)

    # -- progress

    def leader(self) -> Controller:
        return self.quorum.nodes[self.quorum.described().leader_id]

    def follower(self) -> Controller:
        leader = self.quorum.described().leader_id
        return self.quorum.nodes[self.draw.choice([id for id in self.quorum.nodes if id != leader])]

    def _begin_measuring(self) -> None:
        self.history.begin_waiting(time.monotonic())

    def _measure(self, name: str, begin: float | None = None) -> None:
        """Note the time from ``begin``, by default now, until a later request is accepted."""
        if begin is None:
            begin = time.monotonic()
            self._begin_measuring()
        seconds = self._await_write() - begin
        self.failovers[name].append(seconds)

    def _await_write(self) -> float:
        """Return when the first write since `_begin_measuring` was accepted."""
        give_up = time.monotonic() + PROGRESS_TIMEOUT_S
        while (accepted := self.history.first_accepted()) is None:
            self._check()
            assert time.monotonic() < give_up, "progress: no write is accepted"
            time.sleep(_LOOK_EVERY_S)
        return accepted

    def _check(self) -> None:
        self.quorum.check_alive()
        for client in self.clients:
            if client.failure is not None:
                raise AssertionError("a client failed") from client.failure

    def _recover(self) -> None:
        """End all faults, and wait until a write is accepted."""
        self.quorum.links.mend()
        stopped = [node for node in self.quorum.nodes.values() if node.running is None]
        for node in stopped:
            node.launch()
        for node in stopped:
            node.await_port()
        self._begin_measuring()
        self._await_write()

    def slow_failovers(self) -> list[str]:
        """Return a line for each kind of failover above its bar at the 99th percentile.

        A run of 30 cycles has too few of a kind to judge; one of 1,000 cycles has enough.
        """
        bars = {"crash": CRASH_BAR_S, "SIGTERM": STOP_BAR_S}
        found = {
            name: float(np.percentile(self.failovers[name], 99))
            for name in bars
            if len(self.failovers[name]) >= FEWEST_FAILOVERS
        }
        return [
            f"too slow: {name}: p99 {seconds:.2f} s, the bar is {bars[name]} s"
            for name, seconds in found.items()
            if seconds > bars[name]
        ]

    # -- rounds: a history from its first operation to the state at its end

    def _begin_round(self) -> None:
        self._round += 1
        names = Names(f"r{self._round}", TOPICS)
        configured = [f"r{self._round}-c{number}" for number in range(CONFIGURED)]
        create_topics(self.quorum.addresses, configured)
        for client in self.clients:
            client.start(names, configured)
        self._begin_measuring()
        self._await_write()

    def _end_round(self) -> None:
        for client in self.clients:
            client.stop()
        for client in self.clients:
            client.join()
        self._check()
        taken = self.history.take()
        state = self._common_state()
        for (kind, name), seen in self._kept.items():
            assert seen == read(state, kind, name), f"{kind} {name}: it was {seen} a round ago"
        for (kind, name), operations in taken.items():
            seen = read(state, kind, name)
            self._kept[kind, name] = seen
            self._check_history(kind, name, operations, seen)

    def _check_history(
        self, kind: str, name: str, operations: list[Operation], seen: Topic | str | None
    ) -> None:
        now = time.monotonic()
        whole = [*operations, Operation(now, now + 1, "read", None, ("ok", seen))]
        self.operations += len(operations)
        if kind == "config":
            violation = check(whole, RegisterModel())
        else:
            violation = check(whole, TopicModel(whole))
            if violation is not None and violation.operation.result[0] in REFUSALS:
                violation = self._check_without_stale(whole)
        assert violation is None, f"{kind} {name}: {violation}"

    def _check_without_stale(self, whole: list[Operation]) -> object:
        """Leave out refusals that no order explains: a deposed leader may have answered them.

        A request that changes nothing needs no commit, in Kafka's controller either: until a leader
        that is cut off has noticed, it answers from its state.
        """
        while True:
            violation = check(whole, TopicModel(whole))
            if violation is None or violation.operation.result[0] not in REFUSALS:
                return violation
            self.stale[violation.operation.kind] += 1
            whole.remove(violation.operation)

    def _common_state(self) -> Metadata:
        """Return the committed state; every node must have the same."""
        give_up = time.monotonic() + PROGRESS_TIMEOUT_S
        while True:
            said = self.quorum.described()
            ends = [each.log_end_offset for each in said.voters]
            if len(ends) == len(self.quorum.nodes) and min(ends) >= said.high_watermark > 0:
                break
            assert time.monotonic() < give_up, f"a voter stays behind: {said}"
            time.sleep(0.05)
        states = [
            kraft.open_metadata(node.metadata_log, at=said.high_watermark)
            for node in self.quorum.nodes.values()
        ]
        for other in states[1:]:
            differences = kraft.diff(states[0], other)
            assert not differences, f"the nodes' states differ: {differences}"
        return states[0]

    def _stop_all(self) -> None:
        """Stop the nodes; their directories must not contradict each other."""
        for node in self.quorum.nodes.values():
            code = node.stop(signal.SIGTERM)
            assert code == 0, f"SIGTERM ended node {node.id} with exit code {code}"
        result = verify([node.metadata_log for node in self.quorum.nodes.values()])
        bad = [each for each in result.findings if each.severity is Severity.CONTRADICTION]
        assert not bad, "\n".join(map(str, bad))


def read(state: Metadata, kind: str, name: str) -> Topic | str | None:
    """Return a topic, or the value of a topic's configuration; None where there is none."""
    if kind == "config":
        return state.configs.get((TOPIC, name), {}).get(KEY)
    topic = state.topics.get(name)
    return None if topic is None else Topic(str(topic.id), len(topic.rows))


def failover_lines(failovers: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the percentiles in ms, one line for each fault."""
    lines = []
    for name, seconds in sorted(failovers.items()):
        middle, high = np.percentile(seconds, (50, 99)) * 1000
        worst = max(seconds) * 1000
        lines.append(
            f"{name}: {len(seconds)} times, first accepted write after {middle:.0f} ms (p50), "
            f"{high:.0f} ms (p99), {worst:.0f} ms (worst)"
        )
    return lines


def run(
    directory: Path,
    *,
    cycles: int,
    nodes: int,
    seed: int,
    report: Callable[[str], None],
    faults: Sequence[str] = (),
) -> AdminChaos:
    """Raises AssertionError for a failed check; the directory then has all files."""
    report(f"seed {seed}, {nodes} nodes, {cycles} cycles")
    with ProxiedQuorum(directory, nodes) as quorum:
        chaos = AdminChaos(quorum, seed, report, faults)
        try:
            chaos.run(cycles)
        finally:
            for client in chaos.clients:
                client.stop()
    return chaos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--fault",
        action="append",
        choices=FAULTS,
        default=[],
        help="apply this fault only; may be repeated (default: all faults)",
    )
    given = parser.parse_args()
    begin = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - begin:8.1f} s  {line}", flush=True)

    # After a failed check the directory is kept.
    directory = Path(tempfile.mkdtemp(prefix="admin-chaos-"))
    report(f"in {directory}")
    chaos = run(
        directory,
        cycles=given.cycles,
        nodes=given.nodes,
        seed=given.seed,
        report=report,
        faults=given.fault,
    )
    shutil.rmtree(directory)
    report(", ".join(f"{name} {count}" for name, count in sorted(chaos.done.items())))
    history = chaos.history
    report(
        f"0 of {history.acknowledged} acknowledged writes lost; {chaos.operations} operations, "
        f"{history.without_response} of them attempts without a response; stale refusals "
        f"{dict(chaos.stale)}, rejected {dict(history.rejected)}"
    )
    slow = chaos.slow_failovers()
    for line in slow:
        report(line)
    sys.exit(bool(slow))


if __name__ == "__main__":
    main()
