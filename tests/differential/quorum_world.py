"""This side of a quorum: two controllers on one log in memory, driven step by step.

Holds the log (batches, high watermark, leader) and the clock of a sequence. A *step* is a JSON
object; ``java/Quorum.java`` takes the same. Steps that are no request:

- ``lead`` (node, epoch, control_records): the node becomes the leader; uncommitted records are
  truncated. The leader may be a node of another process (`OTHER_NODE`), or none (-1).
- ``depose`` (epoch): the same, but the old leader does not know it yet: its appends are rejected.
- ``write`` (batches): the other process, as the leader, writes batches that are committed at once.
- ``commit`` (to): everything below the offset is committed.
- ``advance`` (ms); ``hold`` and ``release``: requests pile up in the leader's queue in between.
  With ``is_disk`` this side's leader runs and may not append; Kafka's queue has no such state.
- ``snapshot`` and ``snapshot_end``: make a snapshot of the records committed at the first step, in
  slices until the second. ``restart`` (node): load the last snapshot and the log.
- ``pause`` and ``resume`` (node): disconnect a standby; it continues with the last snapshot if that
  is ahead of it.
- ``fail_publisher``: one publisher fails at the next image.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from kraft import records
from kraft._core.bytes.batch import BatchBuilder, assign_offsets
from kraft._core.bytes.batch_records import iterate
from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.brokers.sessions import BrokerSessions
from kraft.controller.decision import ChunkedDecision
from kraft.controller.features import LocalFeatures
from kraft.controller.runtime.operations import ControllerOutput, DecisionContext
from kraft.controller.runtime.operations import Operation as Asked
from kraft.controller.runtime.quorum_controller import QuorumController
from kraft.controller.runtime.settings import ControllerSettings
from kraft.controller.state import DecisionSettings
from kraft.errors import (
    InvalidUpdateVersionError,
    KraftError,
    NotControllerError,
    RequestTimedOutError,
)
from kraft.image import BrokerRegistration
from kraft.image.publishing import Image, ImageDelta, ImagePublishing
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SliceSize, SnapshotGeneration
from kraft.records import Record, Uuid, control, decode_value
from kraft.records.batches import encode_control_records
from tests.differential.heartbeats import SendHeartbeat
from tests.differential.operation import Request
from tests.differential.quorum_policies import refuse_config, topic_rules
from tests.differential.registry import OPERATIONS
from tests.differential.world import KAFKA_FEATURES, View, drawn_id, text_of

NODES = (3000, 3001)
OTHER_NODE = 3002
_NOBODY = -1
#: Steps after which a node's publishers are notified of everything.
STARTS_ANEW = ("restart", "resume")
_VOTERS = [control.Voter(id) for id in NODES]
#: For this many turns after a large request, the disk is behind at every second turn.
_SLOW_TURNS = 12
#: So small that a snapshot takes many slices.
_SLICE_SIZE = SliceSize(steps=3, records=2, bytes=200, keys=2)


class _Batch(NamedTuple):
    """The finished batches of one append; ``end`` is the offset after them."""

    base: int
    end: int
    content: bytes


@dataclass
class _Draw:
    """The random bytes that a request drew here; ``response`` is None if it was rejected."""

    kind: Request
    ids: list[Uuid]
    response: Any = None


class _Changes:
    """A publisher that records its notifications, by topic id and broker."""

    name = "changes"

    def __init__(self) -> None:
        self.topics_changed: set[str] = set()
        self.topics_deleted: set[str] = set()
        self.brokers: set[int] = set()

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        table = image.table
        numbers = set(delta.topics_added)
        ranges = [range(first, end) for first, end in delta.rows_added]
        for row in chain(delta.rows_changed.tolist(), *ranges):
            numbers.add(int(table.column("topic")[row]))
        self.topics_changed |= {text_of(table.topic_id_of(number)) for number in numbers}
        if delta.before is not None:
            before = delta.before.table
            self.topics_deleted |= {
                text_of(before.topic_id_of(number)) for number in delta.topics_removed
            }
        self.brokers |= {int(str(key)) for key in delta.changes.get("broker", {})}

    def take(self) -> list[list[Any]]:
        """Return the changed topics, deleted topics and changed brokers since the last call,
        sorted.
        """
        found: list[list[Any]] = [
            sorted(self.topics_changed),
            sorted(self.topics_deleted),
            sorted(self.brokers),
        ]
        for each in (self.topics_changed, self.topics_deleted, self.brokers):
            each.clear()
        return found


class _Failing:
    """A publisher that fails at the next image when ordered to, before the others are notified."""

    name = "failing"

    def __init__(self) -> None:
        self.is_failing = False

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        if self.is_failing:
            self.is_failing = False
            raise ValueError("a publisher that fails")


class _Node:
    """One controller with its images."""

    def __init__(
        self, cluster: MetadataState, controller: QuorumController, log_fault: Callable[..., None]
    ) -> None:
        self.controller = controller
        self.images = ImagePublishing(cluster, log_fault)
        self.changes = _Changes()
        self.failing = _Failing()
        self.images.register(self.failing)
        self.images.register(self.changes)
        self.is_paused = False


class QuorumWorld(View):
    """The log, the nodes and the clock of one sequence. ``now_ms`` is the clock of all nodes."""

    def __init__(self, setup: dict[str, Any]) -> None:
        static = setup["static_config"]
        self.setup = setup
        self.settings = DecisionSettings(
            min_insync_replicas=int(static.get("min.insync.replicas", "1")),
            unclean_leader_election_enable=static.get("unclean.leader.election.enable") == "true",
            num_partitions=setup["num_partitions"],
            default_replication_factor=setup["default_replication_factor"],
        )
        self.now_ms = 1_000_000
        self.log: list[_Batch] = []
        self.end_offset = 0
        self.committed_offset = 0
        self.leader, self.epoch = _NOBODY, 0
        self.is_held = False
        #: Whether the leader's disk is behind, so that it may not append.
        self.is_behind = False
        if setup["policies"]:
            self.creation_rules, self.config_policy = topic_rules(), refuse_config
        self.kraft_version = setup["kraft_version"]
        #: The last snapshot: the offset after it, and its bytes.
        self.snapshot: tuple[int, bytes] | None = None
        self._generation: SnapshotGeneration | None = None
        self._pieces = b""
        self._slow_turns = 0
        self._drawn: list[_Draw] = []
        self._uuids: Callable[[], Uuid] = lambda: drawn_id(random.Random(0))
        self._waiting: dict[int, Request] = {}
        self._outcome: dict[str, Any] = {}
        self._op = ""
        self.nodes = {id: self._start(id) for id in setup["nodes"]}

    # -- the view of generators

    @property
    def active(self) -> _Node | None:
        return next((one for one in self.nodes.values() if one.controller.is_active), None)

    @property
    def _looked_at(self) -> _Node:
        return self.active or next(iter(self.nodes.values()))

    @property
    def cluster(self) -> MetadataState:  # type: ignore[override]
        return self._looked_at.controller.cluster

    @property
    def sessions(self) -> BrokerSessions:  # type: ignore[override]
        return self._looked_at.controller.sessions

    @property
    def batch_ends(self) -> list[int]:
        """The offsets up to which more can be committed."""
        return [batch.end for batch in self.log if batch.end > self.committed_offset]

    @property
    def has_tokens(self) -> bool:
        """Whether there are delegation tokens, committed or not, or were some before all is
        committed.
        """
        image = self._looked_at.images.image
        published = 0 if image is None else len(image.state.delegation_tokens)
        return bool(published or self.cluster.state.delegation_tokens)

    @property
    def is_making_snapshot(self) -> bool:
        return self._generation is not None

    @property
    def committed_brokers(self) -> list[BrokerRegistration]:
        """The brokers of which publishers were notified."""
        image = self._looked_at.images.image
        return [] if image is None else list(image.state.brokers.values())

    # -- steps

    def take(self, step: dict[str, Any]) -> dict[str, Any]:
        """Run the step and return its outcome, in the form of Kafka's side.

        Notes in ``step`` the random bytes that Kafka has to draw.
        """
        self._outcome = outcome = {"appended": [], "answers": {}, "resigned": [], "faults": []}
        self._drawn = []
        self._op = step["op"]
        step.pop("random", None)
        getattr(self, _METHODS.get(step["op"], "_ask"))(step)
        self._settle()
        if self._drawn:
            # An operation in chunks has drawn all its random bytes only now.
            given = (one.kind.random(self, one.response, b"".join(one.ids)) for one in self._drawn)
            step["random"] = b"".join(given).hex()
        outcome["active"] = [id for id, one in self.nodes.items() if one.controller.is_active]
        self._publish()
        return outcome

    def _advance(self, step: dict[str, Any]) -> None:
        self.now_ms += step["ms"]

    def _hold(self, step: dict[str, Any]) -> None:
        self.is_behind = step.get("is_disk", False)
        self.is_held = not self.is_behind

    def _release(self, step: dict[str, Any]) -> None:
        self.is_held = self.is_behind = False

    def _depose(self, step: dict[str, Any]) -> None:
        self.leader, self.epoch = _NOBODY, step["epoch"]
        self._cut()

    def _lead(self, step: dict[str, Any]) -> None:
        leader, self.epoch = step["node"], step["epoch"]
        self.leader = leader
        self._cut()
        for id, node in self.nodes.items():
            if node.controller.is_active:
                self._carry_out(id, node.controller.renounce(self.now_ms))
                self._stepped_down(id)
            elif id != leader:
                self._carry_out(id, node.controller.renounce(self.now_ms))
        if leader == _NOBODY:
            return
        first: list[Record] = [records.LeaderChange(leader, _VOTERS, _VOTERS)]
        if step["control_records"] == 2:
            first.append(records.KRaftVersion(kraft_version=1))
        batch = encode_control_records(first, timestamp_ms=self.now_ms)
        base = self.end_offset
        self._append(batch)
        if leader in self.nodes:
            self.nodes[leader].controller.control_batch_appended(base, batch)
        self._commit({"to": self.end_offset})
        if leader in self.nodes:
            claim = self.nodes[leader].controller.claim
            self._carry_out(leader, claim(self.epoch, self.now_ms, self.end_offset))

    def _stepped_down(self, id: int) -> None:
        """Note that a leader has lost its leadership and reverted to the committed state."""

    def _write(self, step: dict[str, Any]) -> None:
        for values in step["batches"]:
            builder = BatchBuilder()
            for value in values:
                builder.append(bytes.fromhex(value))
            self._append(builder.finish())
        self._commit({"to": self.end_offset})

    def _commit(self, step: dict[str, Any]) -> None:
        self.committed_offset = max(self.committed_offset, min(step["to"], self.end_offset))
        for id, node in self.nodes.items():
            if node.controller.is_active:
                ready = node.controller.commit(self.committed_offset, self.now_ms)
                self._carry_out(id, ready)
            else:
                self._feed(id, node)

    def _make_snapshot(self, step: dict[str, Any]) -> None:
        image = self._looked_at.images.image
        assert image is not None
        self._generation = SnapshotGeneration(
            image, timestamp_ms=self.now_ms, slice_size=_SLICE_SIZE
        )
        self._pieces = b""

    def _write_slice(self) -> bool:
        """Write a slice; return whether the snapshot is unfinished. False if none is being made."""
        generation = self._generation
        made = None if generation is None else generation.next_slice()
        self._pieces += b"".join(made or ())
        return made is not None

    def _end_snapshot(self, step: dict[str, Any]) -> None:
        while self._write_slice():
            pass
        assert self._generation is not None, "no snapshot is being made"
        self.snapshot = self._generation.end_offset, self._pieces
        self._generation = None
        self._outcome["snapshot"] = [
            (record.value or b"").hex()
            for batch in iterate(self._pieces)
            for record in batch
            if not record.is_control
        ]

    def _pause(self, step: dict[str, Any]) -> None:
        node = self.nodes[step["node"]]
        node.is_paused, node.failing.is_failing = True, False

    def _resume(self, step: dict[str, Any]) -> None:
        id = step["node"]
        node = self.nodes[id]
        node.is_paused = False
        if self.snapshot is not None and self.snapshot[0] > node.controller.committed_offset:
            cluster = self._loaded_from(self.snapshot)
            node.controller.replace_cluster(cluster)
            node.images.replace_cluster(cluster)
        self._feed(id, node)

    def _fail_publisher(self, step: dict[str, Any]) -> None:
        for node in self.nodes.values():
            node.failing.is_failing = not node.is_paused

    def _restart(self, step: dict[str, Any]) -> None:
        id = step["node"]
        self.nodes[id] = self._start(id)
        self._feed(id, self.nodes[id])

    def _ask(self, step: dict[str, Any]) -> None:
        kind = OPERATIONS[step["op"]]
        assert isinstance(kind, Request)
        id = step.get("node", self._id_of(self._looked_at))
        self.local_features = LocalFeatures(id, NODES, KAFKA_FEATURES)
        asked = self._watched(kind, kind.asked(self, step), step)
        asked.token = step["token"]
        asked.deadline_ms = self.now_ms + step.get("timeout_ms", float("inf"))
        self._waiting[asked.token] = kind
        self._slow_turns = _SLOW_TURNS if step.get("is_large") else 0
        controller = self.nodes[id].controller
        if isinstance(kind, SendHeartbeat):
            beat = kind.beat(step)
            # Kafka's response also waits until all earlier records are committed.
            asked.reads_broker = None
            ready = controller.submit_heartbeat(
                asked, beat.broker_id, beat.broker_epoch, self.now_ms
            )
        else:
            ready = controller.submit(asked, self.now_ms)
        self._carry_out(id, ready)

    # -- helpers

    def _watched(self, kind: Request, asked: Asked, step: dict[str, Any]) -> Asked:
        """Wrap the operation so that it notes the random bytes that Kafka has to draw."""
        decide = asked.decide

        def watched(context: DecisionContext) -> Any:
            dice, drawn = random.Random(step.get("seed")), []

            def random_uuid() -> Uuid:
                drawn.append(drawn_id(dice))
                return drawn[-1]

            def noted(chunks: ChunkedDecision[Any]) -> ChunkedDecision[Any]:
                decision = yield from chunks
                note.response = decision.response
                return decision

            self._uuids = random_uuid
            note = _Draw(kind, drawn)
            self._drawn.append(note)
            outcome = decide(context)
            if isinstance(outcome, Generator):
                return noted(outcome)
            note.response = getattr(outcome, "response", None)
            return outcome

        asked.decide = watched
        return asked

    def _start(self, id: int) -> _Node:
        setup = self.setup
        cluster = self._loaded_from(self.snapshot)
        controller = QuorumController(
            cluster,
            ControllerSettings(
                self.settings._replace(node_id=id),
                session_timeout_ms=setup["session_timeout_ms"],
                max_idle_interval_ms=setup["max_idle_interval_ms"],
                leader_imbalance_check_interval_ms=setup["leader_imbalance_check_interval_ms"],
                unclean_leader_election_interval_ms=setup["unclean_leader_election_interval_ms"],
                delegation_token_expiry_check_interval_ms=setup[
                    "delegation_token_expiry_check_interval_ms"
                ],
            ),
            placer=StripedPlacer(JavaRandom(setup["seed"] + id)),
            random_uuid=lambda: self._uuids(),
            bootstrap=[decode_value(bytes.fromhex(value)) for value in setup["bootstrap"]],
            log_fault=self._fault,
        )
        return _Node(cluster, controller, self._fault)

    @staticmethod
    def _loaded_from(snapshot: tuple[int, bytes] | None) -> MetadataState:
        """Return the state in a snapshot, or an empty one without a snapshot."""
        cluster = MetadataState()
        if snapshot is not None:
            end_offset, content = snapshot
            cluster.apply_snapshot(content, end_offset=end_offset)
        cluster.start_journal()
        return cluster

    def _fault(self, what: str, error: Exception) -> None:
        self._outcome["faults"].append(f"{what}: {error!r}")

    def _id_of(self, node: _Node) -> int:
        return next(id for id, one in self.nodes.items() if one is node)

    def _cut(self) -> None:
        self.log = [batch for batch in self.log if batch.end <= self.committed_offset]
        self.end_offset = self.committed_offset

    def _append(self, batches: memoryview) -> None:
        end = assign_offsets(batches, self.end_offset, self.epoch, self.now_ms)
        self.log.append(_Batch(self.end_offset, end, bytes(batches)))
        self.end_offset = end

    def _feed(self, id: int, node: _Node) -> None:
        """Apply committed records on a standby; after a loss of leadership some of them again."""
        if node.is_paused:
            return
        for batch in self.log:
            if node.controller.committed_offset < batch.end <= self.committed_offset:
                node.images.note_batches(batch.content)
                ready = node.controller.apply_committed(memoryview(batch.content), self.now_ms)
                self._carry_out(id, ready)

    def _settle(self) -> None:
        if self.is_held:
            return
        for id, node in self.nodes.items():
            wake_at_ms = self._turn(id, node)
            while wake_at_ms <= self.now_ms and not self.is_behind:
                wake_at_ms = self._turn(id, node)
            if not node.controller.is_active:
                self._feed(id, node)
        if self._generation is not None:
            self._write_slice()

    def _turn(self, id: int, node: _Node) -> float:
        """Run one event; return the time at which the controller wants to run again."""
        ready = self._run(node)
        self._carry_out(id, ready)
        # The raft layer's response may have queued an event.
        return min(ready.wake_at_ms, node.controller.queue.wake_at_ms())

    def _run(self, node: _Node) -> ControllerOutput:
        controller = node.controller
        # A leader that was deposed and does not know it continues at its own log end.
        offset = controller.cluster.next_offset if controller.is_active else self.end_offset
        self._slow_turns = max(self._slow_turns - 1, 0)
        may_append = not self.is_behind and self._slow_turns % 2 == 0
        return controller.run(self.now_ms, offset, may_append=may_append)

    def _carry_out(self, id: int, ready: ControllerOutput) -> None:
        node = self.nodes[id]
        if ready.to_append is not None:
            if self.leader == id and self.epoch == ready.epoch:
                assert ready.base_offset == self.end_offset
                node.images.note_batches(ready.to_append)
                self._append(ready.to_append)
                self._outcome["appended"] += list(_shown(ready.to_append))
            else:
                self._carry_out(id, node.controller.append_failed(self.now_ms))
                self._stepped_down(id)
        for asked in ready.kraft_version_upgrades:
            # A raft leader that does not know what a voter supports rejects it too.
            is_refused = any(each.is_paused for each in self.nodes.values())
            error = InvalidUpdateVersionError("a voter is silent") if is_refused else None
            if not error and not asked.validate_only and asked.level > self.kraft_version:
                self._upgrade(node, asked.level)
            self._carry_out(
                id, node.controller.kraft_version_answered(asked.number, error, self.now_ms)
            )
        for answer in ready.answers:
            kind = self._waiting.pop(answer.token)
            answered = _answered(kind, answer)
            # Kafka's queue answers nothing before it is released.
            answered["is_early"] = answered.get("is_early", self.is_behind)
            self._outcome["answers"][str(answer.token)] = answered
        if ready.resign_epoch == self.epoch:
            self._outcome["resigned"].append(ready.resign_epoch)

    def _upgrade(self, node: _Node, level: int) -> None:
        """Raise kraft.version as the raft leader, which commits everything before it as well."""
        self.kraft_version = level
        voters = [control.KRaftVoter(id, drawn_id(random.Random(id))) for id in NODES]
        upgrade = [records.KRaftVersion(kraft_version=level), control.KRaftVoters(voters)]
        batch = encode_control_records(upgrade, timestamp_ms=self.now_ms)
        base = self.end_offset
        self._append(batch)
        node.controller.control_batch_appended(base, batch)
        self._commit({"to": self.end_offset})

    def _publish(self) -> None:
        """Publish committed records on every node; all nodes must send equal notifications."""
        notified = []
        for node in self.nodes.values():
            if node.is_paused:
                continue
            node.images.publish(node.controller.committed_offset)
            image = node.images.image
            # Kafka publishes nothing before the first record that is not of the raft layer.
            has_begun = image is not None and "metadata.version" in image.state.features
            notified.append((image.offset - 1 if image and has_begun else -1, node.changes.take()))
        self._outcome["image"], self._outcome["changed"] = notified[0]
        # A publisher that starts again is notified of everything.
        parts = slice(0, 1) if self._op in STARTS_ANEW else slice(0, 2)
        assert all(each[parts] == notified[0][parts] for each in notified), notified


def _shown(batches: memoryview) -> Iterator[list[Any]]:
    for batch in iterate(batches, verify_crc=False):
        values = [(record.value or b"").hex() for record in batch]
        yield [batch.base_offset, batch.partition_leader_epoch, batch.max_timestamp, values]


def _answered(kind: Request, answer: Any) -> dict[str, Any]:
    error: KraftError | None = answer.error
    if error is None:
        return {"error": 0, "response": kind.answer(answer.response)}
    # The queue returns these errors for every request.
    is_of_queue = isinstance(error, (NotControllerError, RequestTimedOutError))
    refusal = None if is_of_queue else kind.refusal(error)
    if refusal is not None:
        return {"error": 0, "response": refusal, "is_early": True}
    return {"error": error.kafka_code, "message": f"{type(error).__name__}: {error}"}


#: By step that is no request: the method of `QuorumWorld` that runs it.
_METHODS = {
    "advance": "_advance",
    "hold": "_hold",
    "release": "_release",
    "depose": "_depose",
    "lead": "_lead",
    "write": "_write",
    "commit": "_commit",
    "snapshot": "_make_snapshot",
    "snapshot_end": "_end_snapshot",
    "pause": "_pause",
    "resume": "_resume",
    "fail_publisher": "_fail_publisher",
    "restart": "_restart",
}
