"""Real nodes, recorded under load and killed: their disks had what their messages promised."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from kraft.metadata.directory import METADATA_LOG
from kraft.raft.election_state import FILE_NAME as QUORUM_STATE
from kraft.server.disk.store import MetadataStore
from tests.durability.promises import Promise, Promises, election_in, noted, requests_in
from tests.durability.recording import DROP, Call, Kind, Recording, recorded
from tests.durability.replayed_disk import ReplayedDisk
from tests.durability.rules import BrokenRuleError, Rules
from tests.harness.commands import PATIENCE_S, eventually, logged
from tests.harness.crash_disk import Inode, Loss
from tests.harness.nodes import (
    CONTROLLER_LOAD_NODE,
    LOAD_NODE,
    Controller,
    Controllers,
    load_command,
)
from tests.harness.quorum_audit import StoredLog, read_log

SETTINGS = {
    "controller.quorum.append.linger.ms": "0",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
}
#: Without a controller; a controller's batches are larger.
SMALL_SEGMENTS = {"internal.metadata.log.segment.bytes": "30000"}
#: Changes of a node's disk between two crashes.
BETWEEN_CRASHES = 40


class NodeProof:
    """Replays the recording of one node, checks its promises, and crashes it."""

    def __init__(self, node: Controller, replayed: ReplayedDisk, promises: Promises) -> None:
        self._node = node
        self._disk = replayed
        self._directory = f"{replayed.root}/{METADATA_LOG}"
        self._rules = Rules(replayed, self._directory)
        self._promises = promises
        self._random = Random(node.id)
        self._acknowledged = 0
        self._epoch = 0
        self._votes: dict[int, int] = {}
        #: By epoch, -1 for none.
        self._durable_votes: dict[int, int] = {}
        #: By epoch: the farthest durable end of the log.
        self._durable_ends: dict[int, int] = {}
        self.counts: Counter[str] = Counter()

    def run(self, calls: list[Call], best: StoredLog | None) -> None:
        """``best`` is the quorum's log at the end, with all acknowledged records."""
        changes = 0
        for call in calls:
            self._rules.check(call)
            self._disk.take(call)
            self._rules.check_after(call)
            if call.kind is Kind.SYNC_END:
                self._note_durable_vote()
                self._note_durable_end()
            if call.kind is Kind.SEND:
                for promise in self._promises.of(call):
                    self._hold(promise, "sent")
            elif call.kind is Kind.WRITE and self._is_notes(call):
                for promise in noted(call.data):
                    self._hold(promise, "acknowledged")
                    self._acknowledged = max(self._acknowledged, promise.end_offset)
            elif call.kind is not Kind.SYNC_BEGIN:
                changes += 1
                if changes % BETWEEN_CRASHES == 0:
                    self._crash(best)
        self._crash(best)
        assert self._disk.differences() == []

    def _is_notes(self, call: Call) -> bool:
        root = self._disk.directories[self._disk.root]
        return self._disk.inodes.get(call.inode) is root.names.get("notes")

    def _hold(self, promise: Promise, what: str) -> None:
        if promise.epoch >= 0:
            self._epoch = max(self._epoch, promise.epoch)
            epoch, voted_id = self._durable_election()
            self.counts["epochs"] += 1
            assert epoch >= promise.epoch, f"epoch {promise.epoch} was {what}, {epoch} is durable"
            if promise.voted_id is not None:
                self.counts["votes"] += 1
                self._votes[promise.epoch] = promise.voted_id
                # A request may leave late, when its connection is made after another election.
                durable = self._durable_votes.get(promise.epoch, -1)
                assert durable == promise.voted_id, (
                    f"a vote for {promise.voted_id} in epoch {promise.epoch} was {what}; durable "
                    f"was {durable}, and is {voted_id} in epoch {epoch}"
                )
        if promise.end_offset >= 0:
            end = self._rules.durable_log_end()
            self.counts[what] += 1
            # A fetch may leave late, when its connection is made: a node that looks for the leader
            # asks a bootstrap server, finds the leader meanwhile, and truncates its log for it. The
            # leader of that epoch has found that offset to diverge, and does so again.
            end = max(end, self._durable_ends.get(promise.epoch, -1))
            assert end >= promise.end_offset, (
                f"{promise.end_offset} was {what} in epoch {promise.epoch}, {end} is durable"
            )

    def _note_durable_vote(self) -> None:
        epoch, voted_id = self._durable_election()
        before = self._durable_votes.get(epoch, -1)
        assert before in (-1, voted_id), f"the vote of epoch {epoch} was {before}, now {voted_id}"
        self._durable_votes[epoch] = voted_id

    def _note_durable_end(self) -> None:
        epoch, _ = self._durable_election()
        end = self._rules.durable_log_end()
        self._durable_ends[epoch] = max(end, self._durable_ends.get(epoch, -1))

    def _durable_election(self) -> tuple[int, int]:
        directory = self._disk.directories.get(self._directory)
        inode = None if directory is None else directory.durable.get(QUORUM_STATE)
        return election_in(inode.durable if isinstance(inode, Inode) else b"")

    def _crash(self, best: StoredLog | None) -> None:
        for loss in Loss:
            left = self._disk.after_crash(loss, self._random)
            store = MetadataStore.open(self._disk.root, disk=left)
            election, log = store.election, store.log
            assert election.epoch >= self._epoch
            voted = self._votes.get(election.epoch)
            assert voted is None or (election.voted is not None and election.voted.id == voted)
            assert log.log_end_offset >= self._acknowledged
            if best is not None:
                found = b"".join(
                    bytes(log.fetch(segment.base_offset, 1 << 40))
                    for segment in log.segments
                    if segment.size
                )
                wanted = best.data[: best.position_of(self._acknowledged)].tobytes()
                assert found.startswith(wanted)
            self.counts["crashes"] += 1
            store.close()


class RecordedQuorum:
    """Three nodes that make their own load; see ``tests.e2e``."""

    def __init__(self, place: Path, recorder: Path, program: str, **settings: str) -> None:
        self.place = place
        self._recorder = recorder
        self._program = program
        self._settings = settings
        self._lives = 0
        small = SMALL_SEGMENTS if program == LOAD_NODE else {}
        self.controllers = Controllers(place, 3, {**SETTINGS, **small})
        self.nodes = self.controllers.all
        self.controllers.lay_out(self.nodes)
        self.disks = {node.id: ReplayedDisk(str(node.data)) for node in self.nodes}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, node: Controller) -> None:
        # No two processes write the same numbers.
        self._lives += 1
        self.processes[node.id] = logged(
            load_command(self._program, node.file, node.data / "notes", self._lives),
            node.output,
            env=recorded(self._recorder, node.data, self.calls(node), **self._settings),
            has_input=True,
        )

    def calls(self, node: Controller) -> Path:
        return self.place / f"calls-{node.id}"

    def notes(self, kind: bytes) -> int:
        """Return the number of notes of this kind of all nodes."""
        return sum(
            line.startswith(kind)
            for node in self.nodes
            if (node.data / "notes").exists()
            for line in (node.data / "notes").read_bytes().splitlines()
        )

    def leader(self) -> Controller:
        """Return the node whose note has the latest leader epoch."""
        epochs = {}
        for node in self.nodes:
            lines = (node.data / "notes").read_bytes().splitlines()
            epochs[node.id] = max((int(at[2:-1]) for at in lines if at[:2] == b"L "), default=-1)
        return max(self.nodes, key=lambda node: epochs[node.id])

    def kill(self, node: Controller) -> None:
        """Kill a node; the recorder ends the process at once and loses no call."""
        with self.processes.pop(node.id) as process:
            process.send_signal(signal.SIGUSR2)
            assert process.wait(PATIENCE_S) == 128 + signal.SIGKILL

    def end(self) -> None:
        for node in self.nodes:
            if node.id in self.processes:
                self.kill(node)

    def prove(self, best: StoredLog | None) -> Counter[str]:
        calls = {node.id: list(Recording(self.calls(node)).new()) for node in self.nodes}
        ports = {node.port for node in self.nodes}
        asked = {}
        for each in calls.values():
            asked.update(requests_in(each, ports))
        total: Counter[str] = Counter()
        for node in self.nodes:
            promises = Promises(node.id, node.port, asked)
            proof = NodeProof(node, self.disks[node.id], promises)
            proof.run(calls[node.id], best)
            total += proof.counts
        return total


@contextmanager
def quorum(place: Path, recorder: Path, program: str, **settings: str) -> Iterator[RecordedQuorum]:
    made = RecordedQuorum(place, recorder, program, **settings)
    try:
        yield made
    finally:
        for process in made.processes.values():
            with process:
                process.kill()


def work(quorum: RecordedQuorum, kind: bytes, count: int) -> None:
    """Make load, kill the leader, start it again, and make load."""
    for node in quorum.nodes:
        quorum.start(node)
    eventually(lambda: quorum.notes(kind), until=lambda many: many >= count)
    leader = quorum.leader()
    quorum.kill(leader)
    quorum.start(leader)
    done = quorum.notes(kind)
    eventually(lambda: quorum.notes(kind), until=lambda many: many >= done + count)
    quorum.end()


def test_nodes_send_and_acknowledge_only_what_their_disks_have(place: Path, recorder: Path) -> None:
    with quorum(place, recorder, LOAD_NODE) as nodes:
        work(nodes, b"A", 200)
        logs = [read_log(node.id, node.metadata_log) for node in nodes.nodes]
        counts = nodes.prove(max(logs, key=lambda log: (log.last_epoch, log.end_offset)))
    assert counts["votes"] >= 4
    assert counts["sent"] > 100
    assert counts["acknowledged"] >= 400
    assert counts["crashes"] > 100


def test_controllers_that_write_snapshots_lose_no_acknowledged_record(
    place: Path, recorder: Path
) -> None:
    with quorum(place, recorder, CONTROLLER_LOAD_NODE) as nodes:
        work(nodes, b"C", 60)
        snapshots = [
            path for node in nodes.nodes for path in node.metadata_log.glob("*.checkpoint")
        ]
        assert len(snapshots) > 3
        counts = nodes.prove(None)
    assert counts["votes"] >= 4
    assert counts["sent"] > 50
    assert counts["crashes"] > 100


@pytest.mark.parametrize("dropped", ["s:.log", "s:quorum-state", "d:quorum-state"])
def test_the_proof_of_nodes_finds_omitted_syncs(dropped: str, place: Path, recorder: Path) -> None:
    with quorum(place, recorder, LOAD_NODE, **{DROP: dropped}) as nodes:
        for node in nodes.nodes:
            nodes.start(node)
        eventually(lambda: nodes.notes(b"A"), until=lambda many: many >= 20)
        nodes.end()
        with pytest.raises((AssertionError, BrokenRuleError)):
            nodes.prove(None)
