"""A real quorum under load whose processes are killed, paused and stopped at random.

``python -m tests.e2e.quorum_chaos [--cycles 30] [--nodes 3] [--seed N] [--controllers]``. Each
cycle applies a fault to some of the nodes, starts the stopped ones, and waits for progress: the
acknowledgement of a later request. Every few cycles all nodes are killed at once and `quorum_audit`
checks their logs. The seed decides the faults and the nodes; timing depends on the machine.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kraft.server.local_quorum import LocalNode, LocalQuorum
from tests.harness.commands import logged
from tests.harness.controller_load_node import IN_FLIGHT as OPERATIONS_IN_FLIGHT
from tests.harness.load_node import IN_FLIGHT
from tests.harness.nodes import CONTROLLER_LOAD_NODE, LOAD_NODE, load_command
from tests.harness.quorum_audit import Audit, Notes

#: Short timeouts, so that many elections happen in little time.
SETTINGS = {
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.fetch.timeout.ms": "400",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.request.timeout.ms": "400",
    "controller.quorum.append.linger.ms": "1",
}
CYCLES_AN_AUDIT = 10
#: Far above the time on a busy machine; slower progress counts as a standstill. While a disk takes
#: longer to sync than the short timeouts, no leader is elected for long.
PROGRESS_TIMEOUT_S = 180.0
_LOOK_EVERY_S = 0.005


class LoadedQuorum(LocalQuorum):
    """Nodes that make load while they lead, and write notes of the acknowledgements."""

    def __init__(self, directory: Path, count: int, *, has_controllers: bool = False) -> None:
        # A batch of a large topic does not fit into small segments.
        size = 4 * 1024 * 1024 if has_controllers else 256 * 1024
        settings = SETTINGS | {"internal.metadata.log.segment.bytes": str(size)}
        if has_controllers:
            # Snapshots are frequent; the log is retained, as the audit reads all of it.
            settings["metadata.log.max.record.bytes.between.snapshots"] = "300000"
        super().__init__(directory / "nodes", count, settings)
        self.has_controllers = has_controllers
        self._lives = 0
        self._notes_directory = directory
        self.notes = {node.id: Notes(self.notes_path(node)) for node in self.nodes}
        self.expected_dead: set[int] = set()

    def notes_path(self, node: LocalNode) -> Path:
        return self._notes_directory / f"notes-{node.id}"

    def start_node(self, node: LocalNode) -> None:
        assert not node.is_running, node
        self._lives += 1
        self.expected_dead.discard(node.id)
        program = CONTROLLER_LOAD_NODE if self.has_controllers else LOAD_NODE
        command = load_command(program, node.config_path, self.notes_path(node), self._lives)
        node.process = logged(command, node.log_path, has_input=True)

    def kill(self, *nodes: LocalNode) -> None:
        self.expected_dead.update(node.id for node in nodes or self.nodes)
        super().kill(*nodes)

    def signal(self, node: LocalNode, number: signal.Signals) -> None:
        assert node.process is not None
        node.process.send_signal(number)

    def read_notes(self) -> None:
        for notes in self.notes.values():
            notes.read_on()

    def check_alive(self) -> None:
        """Fail if a node ended by itself."""
        for node in self.nodes:
            if node.process is None or node.id in self.expected_dead or node.is_running:
                continue
            tail = "\n  ".join(node.log_path.read_text(errors="replace").splitlines()[-20:])
            raise AssertionError(
                f"node {node.id} ended by itself, exit code {node.process.returncode}:\n  {tail}"
            )


class Chaos:
    """One run; ``done`` counts the applied faults by name."""

    def __init__(self, quorum: LoadedQuorum, seed: int) -> None:
        self.quorum = quorum
        self.draw = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.slowest_progress_s = 0.0
        self.audit = Audit(
            {
                node.id: node.config_path.parent / "data" / "__cluster_metadata-0"
                for node in quorum.nodes
            },
            quorum.notes,
            is_metadata=quorum.has_controllers,
        )
        self._faults: list[tuple[Callable[[], None], int]] = [
            (self.kill_one, 5),
            (self.kill_leader, 5),
            (self.kill_two, 2),
            (self.kill_all, 1),
            (self.kill_while_starting, 3),
            (self.pause_one, 2),
            (self.pause_leader, 3),
            (self.stop_leader, 2),
        ]
        if len(quorum.nodes) > 1:
            self._faults.append((self.pause_leader_and_kill_another, 2))

    def run(self, cycles: int, report: Callable[[str], None] = lambda line: None) -> None:
        self.quorum.start()
        self.await_progress()
        for cycle in range(1, cycles + 1):
            (fault,) = self.draw.choices(*zip(*self._faults, strict=True))
            self.done[fault.__name__] += 1
            fault()
            self.start_dead()
            self.await_progress()
            if cycle % CYCLES_AN_AUDIT == 0 or cycle == cycles:
                self.audit_what_is_left()
                report(f"cycle {cycle}: {self.audit.acknowledged} acknowledged, all there")
                if cycle < cycles:
                    self.quorum.start()
                    self.await_progress()

    def audit_what_is_left(self) -> None:
        self.quorum.check_alive()
        for node in self.quorum.nodes:
            self.quorum.kill(node)
        self.audit.check()

    # -- faults

    def kill_one(self) -> None:
        self.quorum.kill(self.any_node())
        self.wait_or_ask_for_progress()

    def kill_leader(self) -> None:
        self.quorum.kill(self.leader())
        self.wait_or_ask_for_progress()

    def kill_two(self) -> None:
        for node in self.draw.sample(self.quorum.nodes, min(2, len(self.quorum.nodes))):
            self.quorum.kill(node)
        self.wait(0.5)

    def kill_all(self) -> None:
        for node in self.draw.sample(self.quorum.nodes, len(self.quorum.nodes)):
            self.quorum.kill(node)

    def kill_while_starting(self) -> None:
        """Interrupt the recovery of nodes, several times."""
        node = self.any_node()
        self.quorum.kill(node)
        for _ in range(self.draw.randint(1, 3)):
            self.quorum.start_node(node)
            self.wait(0.8)
            self.quorum.kill(node)

    def pause_one(self) -> None:
        self.pause(self.any_node())

    def pause_leader(self) -> None:
        """Pause the leader: it resumes after another was elected, or is killed while paused."""
        self.pause(self.leader())

    def pause_leader_and_kill_another(self) -> None:
        leader = self.leader()
        self.quorum.signal(leader, signal.SIGSTOP)
        other = self.draw.choice([node for node in self.quorum.nodes if node is not leader])
        self.quorum.kill(other)
        self.wait(0.6)
        self.quorum.signal(leader, signal.SIGCONT)
        self.wait(0.2)

    def stop_leader(self) -> None:
        leader = self.leader()
        assert leader.process is not None
        assert leader.process.stdin is not None
        self.quorum.expected_dead.add(leader.id)
        leader.process.terminate()
        code = leader.process.wait(PROGRESS_TIMEOUT_S)
        leader.process.stdin.close()
        assert code == 0, f"node {leader.id}: SIGTERM ended it with exit code {code}"

    def pause(self, node: LocalNode) -> None:
        self.quorum.signal(node, signal.SIGSTOP)
        self.wait(1.5)
        if self.draw.random() < 0.3:
            self.quorum.kill(node)
        else:
            self.quorum.signal(node, signal.SIGCONT)

    # -- waiting

    def any_node(self) -> LocalNode:
        return self.draw.choice(self.quorum.nodes)

    def leader(self) -> LocalNode:
        """Return the node that led last."""
        self.quorum.read_notes()
        notes = self.quorum.notes
        return max(self.quorum.nodes, key=lambda node: max(notes[node.id].epochs_led, default=-1))

    def wait(self, at_most_s: float) -> None:
        time.sleep(self.draw.random() * at_most_s)

    def wait_or_ask_for_progress(self) -> None:
        """Wait while one node is stopped: at random for progress of the others, or a short time."""
        if self.draw.random() < 0.5 and len(self.quorum.nodes) >= 3:
            self.await_progress()
        else:
            self.wait(0.3)

    def start_dead(self) -> None:
        for node in self.draw.sample(self.quorum.nodes, len(self.quorum.nodes)):
            if not node.is_running:
                self.quorum.start_node(node)
                self.wait(0.1)

    def await_progress(self) -> None:
        """Wait for an acknowledgement of a request sent after this call."""
        in_flight = OPERATIONS_IN_FLIGHT if self.quorum.has_controllers else IN_FLIGHT
        wanted = self.draw.randint(in_flight + 1, 9 * in_flight)
        begin = time.monotonic()
        self.quorum.read_notes()
        before = {id: notes.acknowledged_count for id, notes in self.quorum.notes.items()}
        while True:
            self.quorum.check_alive()
            self.quorum.read_notes()
            if any(
                notes.acknowledged_count >= before[id] + wanted
                for id, notes in self.quorum.notes.items()
            ):
                break
            assert time.monotonic() < begin + PROGRESS_TIMEOUT_S, (
                "progress: nothing is acknowledged"
            )
            time.sleep(_LOOK_EVERY_S)
        self.slowest_progress_s = max(self.slowest_progress_s, time.monotonic() - begin)


def run(
    directory: Path,
    *,
    cycles: int,
    nodes: int,
    seed: int,
    report: Callable[[str], None],
    has_controllers: bool = False,
) -> Chaos:
    """Raises AssertionError for a failed check; the directory then has all files."""
    report(f"seed {seed}, {nodes} nodes, {cycles} cycles")
    with LoadedQuorum(directory, nodes, has_controllers=has_controllers) as quorum:
        chaos = Chaos(quorum, seed)
        try:
            chaos.run(cycles, report)
        finally:
            # A paused process does not handle SIGTERM.
            for node in quorum.nodes:
                quorum.kill(node)
    return chaos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--controllers",
        action="store_true",
        help="topics are created and deleted by the controllers, instead of records written",
    )
    given = parser.parse_args()
    begin = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - begin:8.1f} s  {line}", flush=True)

    # After a failed check the directory is kept.
    directory = Path(tempfile.mkdtemp(prefix="quorum-chaos-"))
    report(f"in {directory}")
    chaos = run(
        directory,
        cycles=given.cycles,
        nodes=given.nodes,
        seed=given.seed,
        report=report,
        has_controllers=given.controllers,
    )
    shutil.rmtree(directory)
    report(", ".join(f"{name} {count}" for name, count in sorted(chaos.done.items())))
    epochs = set().union(*(notes.epochs_led for notes in chaos.quorum.notes.values()))
    report(
        f"0 of {chaos.audit.acknowledged} acknowledged lost; {len(epochs)} epochs led, "
        f"{chaos.audit.snapshots} snapshots as the log has it, the slowest progress "
        f"{chaos.slowest_progress_s:.2f} s"
    )


if __name__ == "__main__":
    main()
