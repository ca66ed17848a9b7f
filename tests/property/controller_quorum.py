"""Three controllers of one log, and the slow twin, which gets the same requests.

Runs everything around requests: turns of the event queue, commits, time, transactions cut anywhere,
loss of leadership at any point, standbys that lag, and the comparisons after each of these.
``controller_requests`` makes the requests.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

from kraft import records
from kraft._core.bytes.batch_records import iterate
from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.decision import ChunkedDecision
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import (
    ControllerOutput,
    DecisionContext,
    OperationResult,
)
from kraft.controller.runtime.quorum_controller import QuorumController
from kraft.controller.runtime.settings import ControllerSettings
from kraft.controller.topics import (
    chunked_planning,
    partition_creation,
    topic_creation,
    topic_deletion,
)
from kraft.image.publishing import ImagePublishing
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid, decode_value
from kraft.records.batches import encode_control_records
from tests.harness.controller import AppendedLog
from tests.property.controller_equality import (
    by_file,
    by_image,
    check_cluster,
    check_image,
    check_indexes,
    decided,
    decided_anew,
    twin_answer_as_codes,
)
from tests.property.controller_watch import Command, OpenTransaction, WatchedQueue
from tests.reference import table_twin
from tests.reference.controller_brokers_twin import Placed, TwinDecision, fence_stale
from tests.reference.controller_state_twin import (
    BROKER,
    ELR,
    METADATA_VERSION,
    MIN_ISR,
    RefusedError,
    Sessions,
    State,
)
from tests.reference.controller_topics_twin import balance_leaders, placed_record

_REGISTRATIONS = (
    records.RegisterBroker,
    records.UnregisterBroker,
    records.BrokerRegistrationChange,
    records.FenceBroker,
    records.UnfenceBroker,
)
NODES = range(3)
# So few that transactions and partial states are frequent.
RECORDS_OF_BATCH = 6
NOT_CONTROLLER, TIMED_OUT = 41, 7
MAX_TRANSACTION_MS = 3_000
AGAIN_MS = 10
PERIODS = {
    "fence stale brokers": 9_000 / 8,
    "balance leaders": 20_000,
    "elect unclean leaders": 15_000,
    "write a no-op record": 4_000,
}


class ModelledQuorum(AppendedLog):
    """Controllers and twin, as in the module's docstring; ``controller`` is the newest leader."""

    def __init__(self, level: int = 30, *, elr: bool = False) -> None:
        self._patches = ExitStack()
        for module, name in (
            (topic_creation, "MAX_RECORDS_PER_BATCH"),
            (partition_creation, "MAX_RECORDS_PER_BATCH"),
            (requests, "MAX_RECORDS_PER_BATCH"),
            (topic_deletion, "MAX_RECORDS_PER_BATCH"),
            (chunked_planning, "MAX_RECORDS_PER_BATCH"),
            (chunked_planning, "_COST_PER_CHUNK"),
            (topic_deletion, "_TOPICS_PER_CHUNK"),
        ):
            self._patches.enter_context(patch.object(module, name, RECORDS_OF_BATCH))
        self.bootstrap: list[Record] = [records.FeatureLevel(METADATA_VERSION, level)]
        if elr:
            self.bootstrap.append(records.FeatureLevel(ELR, 1))
        # Decisions since the last check, by name or as a `Command`.
        self._decided: list[Any] = []
        self._is_exhausted = False
        #: The request that is being decided in steps, with or without records.
        self._in_steps: Command | None = None
        self._numbers = count(1)
        self.controllers = [self._make() for _ in NODES]
        # The end of the snapshot with which a node began.
        self.snapshots = dict.fromkeys(NODES, 0)
        self.publishings = [ImagePublishing(each.cluster, _fail) for each in self.controllers]
        self.leader: int | None = None
        super().__init__(self.controllers[0], 0)
        self.committed = 0
        self.epoch = 0
        self.state = State()
        self.sessions = Sessions(9_000)
        self.queued: dict[int, Command] = {}
        self.pending: list[tuple[int, int, Any]] = []
        self.open: OpenTransaction | None = None
        self.expected: dict[int, Any] = {}
        self.commands: dict[int, Command] = {}
        self.steps = 0

    def close(self) -> None:
        self._patches.close()

    def _make(self) -> QuorumController:
        made = QuorumController(
            MetadataState(journaling=True),
            ControllerSettings(
                max_idle_interval_ms=4_000,
                leader_imbalance_check_interval_ms=20_000,
                unclean_leader_election_interval_ms=15_000,
                max_transaction_ms=MAX_TRANSACTION_MS,
            ),
            placer=StripedPlacer(JavaRandom(7)),
            random_uuid=self.new_id,
            bootstrap=self.bootstrap,
            log_fault=_fail,
        )
        made.queue = WatchedQueue(self._decided)
        return made

    def new_id(self) -> Uuid:
        return Uuid(next(self._numbers).to_bytes(16, "little"))

    # -- leadership

    def lead(self, node: int = 0) -> None:
        """Make a node the leader: all of the log is committed, and the node has applied it."""
        assert self.leader is None
        self.committed = self.end_offset
        self.follow(node, len(self.batches))
        leader = self.controller = self.controllers[node]
        self.leader = node
        self.epoch += 1
        change = records.LeaderChange(leader_id=node)
        control = encode_control_records(
            [change], base_offset=self.end_offset, epoch=self.epoch, timestamp_ms=int(self.now_ms)
        )
        self.publishings[node].note_batches(control)
        leader.control_batch_appended(self.end_offset, memoryview(bytes(control)))
        self.batches.append((self.end_offset, bytes(control)))
        self.end_offset += 1
        self._reorder()
        before = len(self.batches)
        self.take(leader.claim(self.epoch, self.now_ms, self.end_offset))
        self._append(self._activation(), before)
        self.sessions.activate(self.state, self.now_ms)
        due = self._queue().due
        assert due == {name: self.now_ms + period for name, period in PERIODS.items()}
        self.check()

    def _queue(self) -> WatchedQueue:
        queue = self.controller.queue
        assert isinstance(queue, WatchedQueue)
        return queue

    def _reorder(self) -> None:
        """Sort the twin's rows in the leader's order; Kafka does not define an order."""
        order = list(table_twin.plain(self.controller.cluster.table)["partitions"])
        columns = self.controller.cluster.table
        keys = {
            int(row): (columns.topic_name(topic), number)
            for topic in columns.topic_numbers()
            for number, row in enumerate(columns.topic_rows(topic).tolist())
        }
        assert sorted(order) == sorted(keys.values())
        self.state = self.folded(self.end_offset, self._node())
        partitions = self.state.table.partitions
        self.state.table.partitions = {keys[row]: partitions[keys[row]] for row in sorted(keys)}

    def _node(self) -> int:
        return self.controllers.index(self.controller)

    def folded(self, offset: int, node: int | None = None) -> State:
        """Return the state below ``offset``, for a node that may have begun with a snapshot."""
        return self.folded_behind(0 if node is None else self.snapshots[node], offset)

    def folded_behind(self, snapshot_end: int, offset: int) -> State:
        state = State(snapshot_end)
        for at, record in self.state.log:
            if at < offset:
                state.append(at, record)
        return state

    def _activation(self) -> list[Record | Placed]:
        is_open = self.state.transaction_start is not None
        if METADATA_VERSION in self.state.rest["feature"] and not is_open:
            return []
        before = self.folded(
            self.end_offset if not is_open else int(self.state.transaction_start or 0)
        )
        abort: list[Record | Placed] = [records.AbortTransaction()] if is_open else []
        if METADATA_VERSION in before.rest["feature"]:
            return abort
        written: list[Record | Placed] = [*self.bootstrap]
        if len(self.bootstrap) > 1:
            written.append(records.Config(BROKER, "", MIN_ISR, "1"))
        level = self.bootstrap[0]
        assert isinstance(level, records.FeatureLevel)
        if level.feature_level < 13:
            return written
        return [*abort, records.BeginTransaction(), *written, records.EndTransaction()]

    def lose(self, dice: Random, *, failed_append: bool = False) -> None:
        """Depose the leader; the next one may know a part of the uncommitted records."""
        assert self.leader is not None
        node, self.leader = self.leader, None
        lost = self.controller
        kept = [at for at, _ in self.batches if at >= self.committed] + [self.end_offset]
        cut = dice.choice(kept)
        for token in {*self.queued, *(token for _, token, _ in self.pending)}:
            self.expected[token] = RefusedError(NOT_CONTROLLER)
        if self.open is not None:
            self.expected[self.open.command.operation.token] = RefusedError(NOT_CONTROLLER)
        self.queued.clear()
        self.pending.clear()
        self.open = None
        self.take(lost.append_failed(self.now_ms) if failed_append else lost.renounce(self.now_ms))
        self.resigned.clear()
        if failed_append:
            self.take(lost.renounce(self.now_ms))
        assert not lost.is_active
        contacts = list(self.sessions.contacts)
        self.sessions.clear()
        assert all(lost.sessions.last_contact_ms(*each) is None for each in contacts)
        assert lost.sessions.lowest_active_offset() == (1 << 63) - 1
        self._check_answers()
        back = self._back()
        assert lost.cluster.next_offset == lost.committed_offset == back
        check_cluster(lost.cluster, self.folded(back, node))
        self.check_no_trace(node)
        self.batches = [entry for entry in self.batches if entry[0] < cut]
        self.end_offset = cut
        self.state.revert(cut)

    def _back(self) -> int:
        """Return the offset to which a leader reverts.

        The offset is the committed end, unless that is inside a transaction that this leader
        aborted itself.
        """
        start: int | None = None
        for offset, record in self.state.log:
            if isinstance(record, records.BeginTransaction):
                start = offset
            elif isinstance(record, records.AbortTransaction):
                assert start is not None
                if start < self.committed <= offset:
                    return start
        return self.committed

    def follow(self, node: int, batches: int) -> None:
        """Apply some more committed batches on a standby."""
        standby = self.controllers[node]
        assert not standby.is_active
        start = standby.cluster.next_offset
        for base_offset, batch in self.batches:
            if start <= base_offset < self.committed and batches > 0:
                self.publishings[node].note_batches(batch)
                standby.apply_committed(memoryview(batch), self.now_ms)
                batches -= 1
        offset = standby.cluster.next_offset
        assert standby.committed_offset == offset
        check_cluster(standby.cluster, self.folded(offset, node))

    # -- turns

    def ask_both(self, command: Command) -> int:
        operation = command.operation
        operation.token = token = next(self._tokens)
        operation.deadline_ms = command.deadline_ms
        decide = operation.decide

        def noted(context: DecisionContext) -> OperationResult:
            self._decided.append(command)
            outcome = decide(context)
            return self._watched(command, outcome) if isinstance(outcome, Generator) else outcome

        operation.decide = noted
        unchanged = operation.unchanged
        if unchanged is not None:

            def noted_unchanged(context: DecisionContext) -> Any:
                response = unchanged(context)
                if response is not None:
                    self._decided.append(command)
                return response

            operation.unchanged = noted_unchanged
        self.commands[token] = command
        self.queued[token] = command
        return token

    def _watched(self, command: Command, chunks: ChunkedDecision[Any]) -> ChunkedDecision[Any]:
        self._is_exhausted, self._in_steps = False, command
        try:
            return (yield from chunks)
        finally:
            self._is_exhausted, self._in_steps = True, None

    def ask_later(self, command: Command) -> None:
        self.ask_both(command)
        self.take(self.controller.submit(command.operation, self.now_ms))

    def beat(self, command: Command, broker: int, epoch: int) -> None:
        self.ask_both(command)
        self.sessions.touch(broker, epoch, self.now_ms)
        self._decided.clear()
        offset, before = self.end_offset, len(self.batches)
        self.take(self.controller.submit_heartbeat(command.operation, broker, epoch, self.now_ms))
        if self._decided:
            # It was answered without the queue: the twin must find that it changes nothing.
            self._decide(command, offset, before, may_write=False)
            assert command.operation.token not in self.queued
            self._release()
            self._check_answers()

    def turn(self, *, may_append: bool = True) -> ControllerOutput:
        """Run one turn of the leader and of the twin."""
        assert self.leader is not None
        self.steps += 1
        for token, command in list(self.queued.items()):
            if command.deadline_ms <= self.now_ms:
                del self.queued[token]
                self.expected[token] = RefusedError(TIMED_OUT)
        self._decided.clear()
        before = len(self.batches)
        may_write = may_append and self.open is None
        offset = self.end_offset
        ready = self.run_once(may_append=may_append)
        assert len(self._decided) <= 1
        if self._decided:
            self._decide(self._decided[0], offset, before, may_write)
        elif self.open is not None:
            self._go_on(self.open, before, may_append)
        else:
            assert len(self.batches) == before
        self._release()
        self.check()
        return ready

    def _decide(self, what: Command | str, offset: int, before: int, may_write: bool) -> None:
        if isinstance(what, str):
            assert may_write
            queue = self._queue()
            outcome = self._own(what)
            self._append(outcome.records, before)
            wait_ms = AGAIN_MS if outcome.response else PERIODS[what]
            assert queue.due[what] == self.now_ms + wait_ms
            return
        token = what.operation.token
        end_offset, self.end_offset = self.end_offset, offset
        try:
            outcome = what.decide()
        except RefusedError as error:
            del self.queued[token]
            assert len(self.batches) == before, "a rejected request wrote records"
            if self._in_steps is what:
                self.open = OpenTransaction(what, error, [], self.now_ms)
            else:
                self.expected[token] = error
            return
        finally:
            self.end_offset = end_offset
        if self._in_steps is what or outcome.in_chunks:
            del self.queued[token]
            self.open = OpenTransaction(
                what,
                outcome.response,
                outcome.records,
                self.now_ms,
                is_large=outcome.in_chunks,
            )
            assert len(self.batches) == before
            return
        if outcome.records and not may_write:
            assert len(self.batches) == before, "another request wrote records inside a transaction"
            return
        self._append(outcome.records, before)
        outcome.applied(self.end_offset - 1)
        if not outcome.is_partial:
            del self.queued[token]
            reads = what.operation.reads_broker
            is_early = not outcome.records and reads is not None and not self._is_changing(reads)
            self.pending.append((0 if is_early else self._seen(), token, outcome.response))

    def _own(self, name: str) -> TwinDecision:
        if name == "fence stale brokers":
            return fence_stale(self.state, self.sessions, self.now_ms)
        if name == "write a no-op record":
            return TwinDecision([records.NoOp()], False)
        return balance_leaders(self.state, "unclean" if "unclean" in name else "preferred", 1_000)

    def _go_on(self, transaction: OpenTransaction, before: int, may_append: bool) -> None:
        written = self._written(before)
        error: RefusedError | None = None
        if transaction.since_ms + MAX_TRANSACTION_MS <= self.now_ms:
            error = RefusedError(TIMED_OUT)
            self._append([records.AbortTransaction()] if transaction.has_begun else [], before)
        elif not may_append:
            assert not written
            return
        elif self._is_exhausted and not transaction.left:
            self._append([records.EndTransaction()] if transaction.has_begun else [], before)
        elif not written:
            return
        elif not transaction.has_begun and self._is_exhausted:
            # Only the last chunk has records: they are one atomic batch.
            self._append(transaction.left, before)
            transaction.left = []
            return
        elif not transaction.has_begun:
            assert transaction.is_large
            transaction.has_begun = True
            assert transaction.left
            self._append([records.BeginTransaction()], before)
            return
        else:
            assert len(written) <= RECORDS_OF_BATCH
            piece, transaction.left = (
                transaction.left[: len(written)],
                transaction.left[len(written) :],
            )
            self._append(piece, before)
            return
        self.open = None
        answer = transaction.response if error is None else error
        self.pending.append((self._seen(), transaction.command.operation.token, answer))

    def _is_changing(self, broker: int) -> bool:
        """Return whether a record that changes this broker's registration is not committed."""
        return any(
            self._registration(broker, offset) != self._registration(broker, offset + 1)
            for offset, record in self.state.log
            if offset >= self.committed and isinstance(record, _REGISTRATIONS)
        )

    def _registration(self, broker: int, offset: int) -> Any:
        return self.folded(offset, self._node()).rest["broker"].get(broker)

    def _seen(self) -> int:
        start = self.state.transaction_start
        return self.end_offset if start is None else start

    def _written(self, before: int) -> list[tuple[int, Record]]:
        return [
            (record.offset, decode_value(record.value))
            for _, batches in self.batches[before:]
            for batch in iterate(batches)
            for record in batch
            if record.value is not None
        ]

    def _append(self, wanted: list[Record | Placed], before: int) -> None:
        """Check the records against the twin's, and apply them to the twin."""
        written = self._written(before)
        for _, batch in self.batches[before:]:
            self.publishings[self._node()].note_batches(batch)
        assert len(written) == len(wanted), (written, wanted)
        made = []
        for (offset, record), want in zip(written, wanted, strict=True):
            if isinstance(want, Placed):
                assert isinstance(record, records.Partition)
                want = placed_record(self.state, want, record.replicas, by_placer=True)
            if isinstance(want, records.AccessControlEntry):
                # The id of an ACL is random.
                assert isinstance(record, records.AccessControlEntry)
                assert record.id not in self.state.rest["acl"]
                want.id = record.id
            if isinstance(record, records.BeginTransaction | records.AbortTransaction):
                # The texts in these records are for operators, and need not be equal.
                assert type(record) is type(want)
            else:
                assert record == want, (record, want)
            made.append((offset, record))
        for offset, record in made:
            self.state.append(offset, record)

    def settle_both(self) -> None:
        """Run until nothing is due at this time and everything is committed."""
        for _ in range(1_000):
            if self.turn().wake_at_ms > self.now_ms:
                break
        else:
            raise AssertionError("the controller always has more events to run")
        self.commit_both(self.end_offset)

    def commit_both(self, offset: int) -> None:
        self.committed = max(self.committed, offset)
        self.commit(offset)
        self._release()
        self.check()

    def _release(self) -> None:
        for end_offset, token, answer in list(self.pending):
            if end_offset <= self.committed:
                self.pending.remove((end_offset, token, answer))
                self.expected[token] = answer

    # -- what must be equal

    def check(self) -> None:
        self._check_answers()
        if self.leader is None:
            return
        check_cluster(self.controller.cluster, self.state)
        quorum = self.controller.cluster.state.quorum
        assert (quorum.leader_id, quorum.leader_epoch) == (self.leader, self.epoch)
        assert self.controller.committed_offset == self.committed
        assert self.controller.stable_offset == self._stable(self.committed)
        mine = self.controller.sessions
        for (broker, epoch), heard_ms in self.sessions.contacts.items():
            assert mine.last_contact_ms(broker, epoch) == heard_ms
        for broker, known in self.sessions.brokers.items():
            assert mine.metadata_offset(broker) == known["offset"]
            assert mine.is_shutting_down(broker) == (known["shutdown"] >= 0)
        assert mine.lowest_active_offset() == self.sessions.lowest_active_offset()

    def _stable(self, committed: int) -> int:
        """Return the committed end, or the start of a transaction that is open there."""
        start = None
        for offset, record in self.state.log:
            if offset < committed:
                if isinstance(record, records.BeginTransaction):
                    start = offset
                elif isinstance(record, records.EndTransaction | records.AbortTransaction):
                    start = None
        return committed if start is None else start

    def _check_answers(self) -> None:
        assert set(self.answers) == set(self.expected)
        for token, wanted in self.expected.items():
            answer = self.answers[token]
            if isinstance(wanted, RefusedError):
                assert answer.error is not None, (self.commands[token], wanted, answer)
                assert answer.error.kafka_code == wanted.code, (answer.error, wanted)
            else:
                assert answer.error is None, answer.error
                normal = self.commands[token].normal(answer.response)
                assert normal == twin_answer_as_codes(wanted), (
                    normal,
                    twin_answer_as_codes(wanted),
                )
        self.answers.clear()
        self.expected.clear()

    def replayed(self, offset: int, snapshot: MetadataState | None = None) -> MetadataState:
        """Replay all batches below ``offset`` into a new cluster, or after a snapshot."""
        cluster = MetadataState(journaling=True) if snapshot is None else snapshot
        for base_offset, batch in self.batches:
            if cluster.next_offset <= base_offset < offset:
                cluster.apply(batch)
        assert cluster.next_offset == offset
        return cluster

    def check_no_trace(self, node: int) -> None:
        """Check that a reverted cluster decides like one that never applied more."""
        reverted = self.controllers[node].cluster
        if METADATA_VERSION not in reverted.state.features:
            return
        check_indexes(reverted, self.folded(reverted.next_offset, node))
        assert decided(reverted) == decided_anew(reverted)
        if not self.snapshots[node]:
            assert decided(reverted) == decided(self.replayed(reverted.next_offset))

    def check_ways(self, dice: Random) -> None:
        """Check that a replay, the live state, and a snapshot with the later batches are equal."""
        mine = self.controller.cluster
        state = self.state
        if self.leader is None:
            mine = self.replayed(self.end_offset)
        check_indexes(mine, state)
        replayed = self.replayed(self.end_offset)
        check_cluster(replayed, self.folded(self.end_offset))
        assert replayed.state.quorum.leader_epoch == mine.state.quorum.leader_epoch
        assert replayed.state.quorum.leader_id == mine.state.quorum.leader_id
        assert (dict(replayed.state.acls), dict(replayed.state.client_quotas)) == (
            dict(mine.state.acls),
            dict(mine.state.client_quotas),
        )
        if self.leader is not None and not self.snapshots[self.leader]:
            assert decided(mine) == decided(replayed)
        snapshot = self.snapshot(dice)
        if snapshot is None:
            return
        start = snapshot.next_offset
        self.replayed(self.end_offset, snapshot)
        wanted = self.folded_behind(start, self.end_offset)
        check_cluster(snapshot, wanted)
        check_indexes(snapshot, wanted)
        assert snapshot.state.quorum.leader_epoch == mine.state.quorum.leader_epoch

    def snapshot(self, dice: Random) -> MetadataState | None:
        """Write and read a snapshot at some committed offset outside of transactions."""
        if dice.random() < 0.9:
            publishing = dice.choice(self.publishings)
            image = publishing.image
            if image is None or METADATA_VERSION not in image.state.features:
                return None
            assert image.is_batch_aligned, "leaders here write whole batches"
            return by_image(image)
        offsets = [at for at, _ in self.batches if at <= self.committed]
        cluster = self.replayed(dice.choice(offsets))
        has_level = METADATA_VERSION in cluster.state.features
        if cluster.transaction_start is not None or not has_level:
            return None
        return by_file(cluster, use_column_cache=dice.random() < 0.5)

    def restart_from_disk(self, node: int, dice: Random) -> None:
        """Replace the state of a standby that is far behind by a snapshot."""
        standby = self.controllers[node]
        loaded = self.snapshot(dice)
        if loaded is None or loaded.next_offset <= standby.cluster.next_offset:
            return
        standby.replace_cluster(loaded)
        self.publishings[node].replace_cluster(loaded)
        self.snapshots[node] = loaded.next_offset
        check_cluster(loaded, self.folded(loaded.next_offset, node))

    def publish(self, node: int) -> None:
        """Publish a node's committed state, and drop the journal before it."""
        publishing = self.publishings[node]
        publishing.publish(self.controllers[node].committed_offset)
        assert publishing.image is not None
        check_image(publishing.image, self.folded(publishing.image.offset, node))


def _fail(what: str, error: Exception) -> None:
    raise AssertionError(f"{what} failed") from error
