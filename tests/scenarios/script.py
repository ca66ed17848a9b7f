"""The language of the scenarios, one command per line; ``#`` begins a comment.

Nodes
    voters 1 2 3            static voters (kraft.version 0)
    voters 1 2 3 dynamic    the same in a bootstrap snapshot (kraft.version 1)
    observers 4 5           nodes with the controller role that do not vote
    brokers 6               nodes that never vote
    set NAME VALUE          a setting of every node (`RaftSettings`); set 4 NAME VALUE: of one
    draw 1 0.0              the result of node 1's random draws, in [0, 1): an election timeout of
                            1000 ms * (1 + result); default 0.1 * its position in the list
    unknown 3 PreVote       an RPC that node 3 does not support
    disk 1 KEY VALUE...     before its start: `quorum-state JSON`, `log EPOCH:COUNT...` (batches
                            of that many records), `snapshot OFFSET-EPOCH`, `forget-snapshots`

Events (nodes also act by themselves as time passes)
    start [1 2]             nodes start, all by default
    run 500                 let 500 ms pass
    run until PATTERN       until such a line is in the trace, 20 s at most
    append 1 a b            the controller of node 1 appends records in one batch
    batch 1 a b             the same as a finished batch
    crash 1 [torn]          lose unsynced writes; torn: half of a batch is left
    restart 1 [wiped]       start the node from its disk; wiped: from an empty disk
    stall 1 | unstall 1     its disk stops syncing; it syncs again
    forget                  a majority was wiped: stop comparing committed records
    cut 1 > 2 | cut 1 2|3   lose messages, one way or both ways; heal: deliver them again
    lose PATTERN            lose these messages; deliver: deliver them again
    resign 1 | shutdown 1   the controller of node 1 resigns; the node shuts down
    snapshot 1 [OFFSET] [size N]   make a snapshot that ends at OFFSET, or the high watermark
    clean 1 START OFFSET-EPOCH     remove snapshots before that one, and the log before START
    damage 1 OFFSET         flip one bit of that batch on its disk
    rot 1 OFFSET-EPOCH      flip one bit of that snapshot on its disk
    ask 1 REQUEST           send a request of a client (see `asked`)

Expectations
    see PATTERN             the trace has such a line after the line that was seen last
    never PATTERN           the trace has no such line since the last `mark`
    mark                    the next `see` and `never` start here
    expect 1 is Leader, epoch 1, hw 4     the present state of the node

Patterns are globs over whole trace lines.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_type_hints

from kraft._core.bytes.batch import BatchBuilder
from kraft.raft.config import RaftSettings
from kraft.raft.interface import Append, Resign, Shutdown
from kraft.raft.rpc import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    OffsetAndEpoch,
    RemoveRaftVoterRequest,
    Request,
    UpdateKRaftVersionRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from tests.harness.raft_nodes import LISTENER, directory, dynamic, endpoint, static
from tests.scenarios import wording
from tests.scenarios.cluster import Member, ScenarioCluster
from tests.scenarios.disk import Disk, Snapshot, split_batches


class ScenarioFailedError(AssertionError):
    """An expectation failed; the message ends with the whole trace."""


class Scenario:
    """Runs one script."""

    def __init__(self, path: Path, workspace: Path) -> None:
        self.path = path
        self.cluster = ScenarioCluster(workspace)
        self.line_number = 0
        self._seen = 0
        self._mark = 0
        self._are_deaths_seen = 0
        self._token = 0

    def run(self) -> None:
        for number, line in enumerate(self.path.read_text().splitlines(), start=1):
            self.line_number = number
            words = line.partition("#")[0].split()
            if not words:
                continue
            command = getattr(self, f"do_{words[0]}", None)
            if command is None:
                self.fail(f"no such command: {words[0]}")
            try:
                command(*words[1:])
            except (AssertionError, KeyError, ValueError, TypeError) as error:
                if isinstance(error, ScenarioFailedError):
                    raise
                self.fail(f"{type(error).__name__}: {error}")
            if self.cluster.failures:
                self.fail("; ".join(self.cluster.failures))
        deaths = sum(" dies: " in line for line in self.cluster.trace)
        if deaths > self._are_deaths_seen:
            self.fail("a node died and nothing expected it")

    def fail(self, why: str) -> None:
        trace = "\n".join(f"  {line}" for line in without_repetitions(self.cluster.trace))
        raise ScenarioFailedError(f"{self.path.name}:{self.line_number}: {why}\ntrace:\n{trace}")

    # -- nodes

    def do_voters(self, *words: str) -> None:
        is_dynamic = words[-1] == "dynamic"
        ids = [int(word) for word in words if word != "dynamic"]
        voters = dynamic(*ids) if is_dynamic else static(*ids)
        if is_dynamic:
            self.cluster.settings["bootstrap"] = ids
        else:
            self.cluster.static_voters = voters
        for id in ids:
            self._add(id)
            if is_dynamic:
                bootstrap = Snapshot(b"bootstrap", voters, 1)
                self.cluster.members[id].disk.snapshots[OffsetAndEpoch(0, 0)] = bootstrap

    def _add(self, id: int, **settings: Any) -> Member:
        members = self.cluster.members
        members[id] = Member(id, settings=settings, draw=0.1 * len(members))
        return members[id]

    def do_observers(self, *ids: str) -> None:
        for id in ids:
            self._add(int(id))

    def do_brokers(self, *ids: str) -> None:
        for id in ids:
            self._add(int(id), can_vote=False)

    def do_set(self, *words: str) -> None:
        settings = self.cluster.settings
        if words[0].isdigit():
            settings, words = self.cluster.members[int(words[0])].settings, words[1:]
        name, value = words
        kind = get_type_hints(RaftSettings)[name]
        if kind is KRaftVersionRange:
            settings[name] = KRaftVersionRange(*map(int, value.split("-")))
        elif name == "endpoints":
            host, _, port = value.partition(":")
            settings[name] = (Endpoint(LISTENER, host, int(port)),)
        else:
            settings[name] = value == "true" if kind is bool else kind(value)

    def do_draw(self, id: str, value: str) -> None:
        self.cluster.members[int(id)].draw = float(value)

    def do_unknown(self, id: str, *names: str) -> None:
        self.cluster.members[int(id)].unknown = set(names)

    def do_disk(self, id: str, what: str, *words: str) -> None:
        disk = self.cluster.members[int(id)].disk
        if what == "quorum-state":
            disk.quorum_state = json.dumps(json.loads(" ".join(words))).encode()
        elif what == "forget-snapshots":
            disk.snapshots.clear()
        elif what == "snapshot":
            disk.snapshots[self._snapshot_id(words[0])] = Snapshot(b"a snapshot", None, 0)
        else:
            for word in words:
                epoch, records = map(int, word.split(":"))
                builder = BatchBuilder(disk.end_offset, epoch)
                for number in range(records):
                    builder.append(b"%d/%d" % (disk.end_offset + number, epoch))
                disk.batches += split_batches(bytes(builder.finish()))

    # -- events

    def do_start(self, *ids: str) -> None:
        for id in map(int, ids) if ids else list(self.cluster.members):
            self.cluster.start_from_disk(id)

    def do_run(self, *words: str) -> None:
        cluster = self.cluster
        if words[0] != "until":
            cluster.run(cluster.now_ms + float(words[0]))
            return
        pattern, begin = " ".join(words[1:]), len(cluster.trace)

        def is_there() -> bool:
            return any(fnmatchcase(line, pattern) for line in cluster.trace[begin:])

        if not cluster.run(cluster.now_ms + 20_000, is_there):
            self.fail(f"20 seconds went by without: {pattern}")

    def do_append(self, id: str, *values: str) -> None:
        self._append(int(id), values=tuple(value.encode() for value in values))

    def do_batch(self, id: str, *values: str) -> None:
        builder = BatchBuilder()
        for value in values:
            builder.append(value.encode())
        self._append(int(id), batches=builder.finish())

    def _append(self, id: int, **content: Any) -> None:
        self._token += 1
        epoch = self.cluster.members[id].running.epoch
        self.cluster.append(id, Append(self._token, epoch, **content))

    def do_crash(self, id: str, *how: str) -> None:
        self.cluster.stop(self.cluster.members[int(id)], is_torn=how == ("torn",))

    def do_restart(self, id: str, *how: str) -> None:
        member = self.cluster.members[int(id)]
        if how == ("wiped",):
            member.disk = Disk()
            member.directory = 1
        self.cluster.start_from_disk(int(id))

    def do_forget(self) -> None:
        self.cluster.forget_committed()

    def do_stall(self, id: str) -> None:
        self.cluster.members[int(id)].disk.is_stalled = True

    def do_unstall(self, id: str) -> None:
        member = self.cluster.members[int(id)]
        member.disk.is_stalled = False
        if member.disk.written:
            self.cluster.sync_later(member)

    def do_cut(self, *words: str) -> None:
        cluster = self.cluster
        if words[1:2] == (">",):
            cluster.cut.add((int(words[0]), int(words[2])))
            return
        sides = [[int(id) for id in side.split()] for side in " ".join(words).split("|")]
        for one in sides[0]:
            for other in sides[1]:
                cluster.cut |= {(one, other), (other, one)}

    def do_heal(self) -> None:
        self.cluster.cut.clear()

    def do_lose(self, *pattern: str) -> None:
        self.cluster.lost.append(" ".join(pattern))

    def do_deliver(self) -> None:
        self.cluster.lost.clear()

    def do_resign(self, id: str) -> None:
        member = self.cluster.members[int(id)]
        self.cluster.step(member, Resign(member.running.epoch))

    def do_shutdown(self, id: str) -> None:
        self.cluster.step(self.cluster.members[int(id)], Shutdown())

    def do_snapshot(self, id: str, *words: str) -> None:
        member, options, size = self.cluster.members[int(id)], list(words), 250
        if "size" in options:
            at = options.index("size")
            size = int(options[at + 1])
            del options[at : at + 2]
        offset = int(options[0]) if options else member.running.log.high_watermark
        self.cluster.snapshot(int(id), offset, size)

    def do_clean(self, id: str, start_offset: str, snapshot_id: str) -> None:
        self.cluster.clean(int(id), int(start_offset), self._snapshot_id(snapshot_id))

    def _snapshot_id(self, word: str) -> OffsetAndEpoch:
        offset, epoch = word.split("-")
        return OffsetAndEpoch(int(offset), int(epoch))

    def do_damage(self, id: str, offset: str) -> None:
        disk = self.cluster.members[int(id)].disk
        (at,) = [i for i, b in enumerate(disk.batches) if b.base_offset == int(offset)]
        data = bytearray(disk.batches[at].data)
        data[-1] ^= 1
        disk.batches[at] = disk.batches[at]._replace(data=bytes(data))

    def do_rot(self, id: str, snapshot_id: str) -> None:
        snapshots = self.cluster.members[int(id)].disk.snapshots
        snapshot = snapshots[self._snapshot_id(snapshot_id)]
        data = bytearray(snapshot.data)
        data[len(data) // 2] ^= 1
        snapshots[self._snapshot_id(snapshot_id)] = snapshot._replace(data=bytes(data))

    def do_ask(self, id: str, *words: str) -> None:
        self.cluster.ask(self.cluster.members[int(id)], asked(int(id), words))

    # -- expectations

    def do_mark(self) -> None:
        self._seen = self._mark = len(self.cluster.trace)

    def do_see(self, *words: str) -> None:
        pattern, trace = " ".join(words), self.cluster.trace
        for at in range(self._seen, len(trace)):
            if fnmatchcase(trace[at], pattern):
                self._are_deaths_seen += " dies: " in trace[at]
                self._seen = at + 1
                return
        self.fail(f"not seen behind line {self._seen}: {pattern}")

    def do_never(self, *words: str) -> None:
        pattern = " ".join(words)
        for line in self.cluster.trace[self._mark :]:
            if fnmatchcase(line, pattern):
                self.fail(f"was not to be: {line}")

    def do_expect(self, id: str, *words: str) -> None:
        actual = self._facts(self.cluster.members[int(id)])
        for fact in " ".join(words).split(","):
            name, _, value = fact.strip().partition(" ")
            if actual.get(name) != value.strip():
                self.fail(f"{id} {name} is {actual.get(name)}, not {value}; all: {actual}")

    def _facts(self, member: Member) -> dict[str, str]:
        node = member.node
        if node is None:
            return {"is": "down"}
        log, state = node.log, member.disk.quorum_state
        stored = {} if state is None else json.loads(state)
        return {
            "is": node.role.name.capitalize(),
            "epoch": str(node.epoch),
            "leader": wording.some(node.leader_id),
            "voted": "none" if node.voted is None else str(node.voted.id),
            "log": f"{log.start_offset}..{log.end_offset}",
            "durable": str(log.durable_end_offset),
            "hw": wording.some(log.high_watermark),
            "voters": wording.ids(log.voters).replace(",", " "),
            "kraft.version": str(log.kraft_version),
            "snapshots": " ".join(map(wording.snapshot, log.snapshots)) or "none",
            "epochs": " ".join(f"{epoch}@{start}" for epoch, start in log.epochs.entries),
            "file": " ".join(
                str(stored.get(name)) for name in ("leaderEpoch", "leaderId", "votedId")
            ),
            "data_version": str(stored.get("data_version")),
        }


def without_repetitions(trace: list[str]) -> list[str]:
    """Return the trace with repeated lines collapsed to the first and their number."""
    lines: list[str] = []
    skipped = 0
    for at, line in enumerate(trace):
        if line in trace[max(0, at - 20) : at]:
            skipped += 1
            continue
        if skipped:
            lines.append(f"({skipped} lines that were there just before)")
        lines.append(line)
        skipped = 0
    return lines


# -- requests of clients


def asked(target: int, words: tuple[str, ...]) -> Request:
    """Parse a request: its name, then pairs of field and value.

    Vote [pre] from 9 epoch 3 log 4/2 [voter 1] | BeginQuorumEpoch epoch 2 leader 3
    EndQuorumEpoch epoch 2 leader 3 successors 1,2 | DescribeQuorum
    Fetch from 9 epoch 2 at 4/1 [wait 500] | FetchSnapshot from 9 epoch 2 id 5-1 position 0
    AddRaftVoter 4 [directory b] [timeout 500] [ack append] | RemoveRaftVoter 3
    UpdateRaftVoter 3 epoch 2 [versions 0-1] [host h:1] | UpdateKRaftVersion 1 [validate only]
    and cluster NAME with any of them.
    """
    name, *rest = words
    flags = {"pre"} & set(rest)
    rest = [word for word in rest if word not in flags]
    first = rest.pop(0) if len(rest) % 2 else ""
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    cluster_id = given.get("cluster", "cluster")
    epoch = int(given.get("epoch", 0))

    def key(id: str) -> ReplicaKey:
        name = given.get("directory", "a")
        return ReplicaKey(int(id), directory(int(id), ord(name) - ord("a")))

    def endpoints(id: int) -> tuple[Endpoint, ...]:
        if "host" in given:
            host, _, port = given["host"].partition(":")
            return (Endpoint(LISTENER, host, int(port)),)
        return (endpoint(id),)

    if name == "Vote":
        offset, last_epoch = map(int, given["log"].split("/"))
        voter = key(given.get("voter", str(target)))
        return VoteRequest(
            cluster_id, epoch, key(given["from"]), voter, last_epoch, offset, bool(flags)
        )
    if name == "BeginQuorumEpoch":
        leader = int(given["leader"])
        return BeginQuorumEpochRequest(cluster_id, epoch, leader, None, (endpoint(leader),))
    if name == "EndQuorumEpoch":
        leader = int(given["leader"])
        successors = tuple(key(id) for id in given["successors"].split(",") if id != "none")
        return EndQuorumEpochRequest(cluster_id, epoch, leader, successors, (endpoint(leader),))
    if name == "Fetch":
        offset, last_epoch = map(int, given["at"].split("/"))
        wait_ms = int(given.get("wait", 0))
        return FetchRequest(
            cluster_id, key(given["from"]), epoch, offset, last_epoch, max_wait_ms=wait_ms
        )
    if name == "FetchSnapshot":
        offset, last_epoch = map(int, given["id"].split("-"))
        return FetchSnapshotRequest(
            cluster_id,
            key(given["from"]),
            epoch,
            OffsetAndEpoch(offset, last_epoch),
            int(given["position"]),
        )
    if name == "DescribeQuorum":
        return DescribeQuorumRequest()
    if name == "AddRaftVoter":
        return AddRaftVoterRequest(
            cluster_id,
            int(given.get("timeout", 10_000)),
            key(first),
            endpoints(int(first)),
            given.get("ack") != "append",
        )
    if name == "RemoveRaftVoter":
        return RemoveRaftVoterRequest(cluster_id, key(first))
    if name == "UpdateRaftVoter":
        low, high = map(int, given.get("versions", "0-1").split("-"))
        return UpdateRaftVoterRequest(
            cluster_id, epoch, key(first), endpoints(int(first)), KRaftVersionRange(low, high)
        )
    assert name == "UpdateKRaftVersion", name
    return UpdateKRaftVersionRequest(int(first), validate_only="validate" in given)
