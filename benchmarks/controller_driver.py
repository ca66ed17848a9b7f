"""An active controller and its log, for the controller's benchmarks.

`ActiveController` does what a node does around ``QuorumController``: it runs it until no event is
due, tracks the end of the log, and times each event, during which nothing else can run. The log
stores nothing, like the peer's buffer. Uncommitted changes are reverted as when another node
becomes the leader.
"""

from __future__ import annotations

import gc
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from benchmarks import generate
from kraft._core.bytes.batch import assign_offsets
from kraft._core.bytes.batch_columns import BatchColumns
from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.brokers.broker_lifecycle import fence_broker, unfence_broker
from kraft.controller.brokers.sessions import SESSION_TIMEOUT_MS
from kraft.controller.decision import ChunkedDecision, Decision, Records
from kraft.controller.runtime.operations import Answer, Operation
from kraft.controller.runtime.quorum_controller import QuorumController
from kraft.controller.runtime.settings import ControllerSettings
from kraft.controller.topics.isr_changes import expand_isrs
from kraft.image.replay import MetadataState
from kraft.records import Uuid
from kraft.server.process import GC_THRESHOLDS

#: Only session checks run; other periodic work would disturb the figures.
SETTINGS = ControllerSettings(
    session_timeout_ms=SESSION_TIMEOUT_MS,
    max_idle_interval_ms=None,
    leader_imbalance_check_interval_ms=None,
    unclean_leader_election_interval_ms=None,
)


@contextmanager
def collected_as_in_a_node() -> Iterator[None]:
    """Configure the garbage collector as ``kraft.server.process.run``; restore it afterwards."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def chunks_of(chunks: ChunkedDecision[Any]) -> Iterator[Records]:
    """Yield all chunks of a request, the last one too."""
    last = yield from chunks
    yield last.records


def brokers_alone(brokers: int) -> bytes:
    """Return the first batch of an otherwise empty cluster: features, registrations."""
    values = generate.prefix_values(brokers)
    return generate.small_batch(0, [generate.record(i, None, v) for i, v in enumerate(values)])


class ActiveController:
    """The active controller of ``cluster``; at ``now_ms`` its log ends at ``end_offset``."""

    def __init__(self, cluster: MetadataState) -> None:
        self.controller = QuorumController(
            cluster,
            SETTINGS,
            placer=StripedPlacer(JavaRandom(42)),
            random_uuid=lambda: Uuid(os.urandom(16)),
        )
        self.now_ms = 1_000.0
        self.end_offset = cluster.next_offset
        #: Batches written since the last `revert`, if they are kept.
        self.written: list[memoryview] | None = None
        self.bytes_written = 0
        self.answers: list[Answer] = []
        #: The longest event since the last `revert`.
        self.longest_s = 0.0
        self._claim()

    @property
    def cluster(self) -> MetadataState:
        return self.controller.cluster

    def _claim(self) -> None:
        epoch = max(generate.LEADER_EPOCH, self.cluster.state.quorum.leader_epoch) + 1
        ready = self.controller.claim(epoch, self.now_ms, self.end_offset)
        assert ready.to_append is None, "the log goes on where it ended"

    def submit(self, operation: Operation) -> None:
        operation.token = 1
        self.controller.submit(operation, self.now_ms)

    def run(self, for_ms: float = 0.0) -> None:
        """Run all events due within ``for_ms``; virtual time advances."""
        end_ms = self.now_ms + for_ms
        run, clock = self.controller.run, perf_counter
        while True:
            begin = clock()
            ready = run(self.now_ms, self.end_offset)
            self.longest_s = max(self.longest_s, clock() - begin)
            self.answers += ready.answers
            if ready.to_append is not None:
                self.end_offset = self.cluster.next_offset
                self.bytes_written += len(ready.to_append)
                if self.written is not None:
                    self.written.append(ready.to_append)
            if ready.wake_at_ms > end_ms:
                return
            self.now_ms = max(self.now_ms, ready.wake_at_ms)

    def silence_below(self, silent: int) -> None:
        """Receive heartbeats of all brokers but those below this id, until the others' sessions
        expire.
        """
        self.now_ms += SESSION_TIMEOUT_MS
        for id, broker in self.cluster.state.brokers.items():
            if id >= silent:
                self.controller.sessions.touch(id, broker.epoch, self.now_ms)
        self.now_ms += 1

    def revert(self) -> None:
        """Revert all uncommitted changes; this node becomes the leader again."""
        committed = self.controller.committed_offset
        self.controller.renounce(self.now_ms)
        assert self.cluster.next_offset == committed
        self.end_offset = committed
        self.answers.clear()
        self.written, self.bytes_written, self.longest_s = None, 0, 0.0
        self._claim()

    def commit(self) -> list[Answer]:
        """Commit everything written; it can no longer be reverted."""
        begin = perf_counter()
        ready = self.controller.commit(self.end_offset, self.now_ms)
        self.longest_s = max(self.longest_s, perf_counter() - begin)
        answers = self.answers + ready.answers
        self.answers.clear()
        return answers

    def response(self) -> Any:
        """Return the response to the one operation, once all its records are committed."""
        (answer,) = self.commit()
        assert answer.error is None, answer.error
        return answer.response


def values_check(batches: list[memoryview]) -> tuple[int, int, int]:
    """Return the number of values in the batches, their bytes, and the sum of their CRC-32s."""
    count = size = check = 0
    for part in batches:
        columns = BatchColumns.read(part)
        raw = memoryview(columns.buffer)
        places = columns.value_positions.tolist()
        for at, length in zip(places, columns.value_lengths.tolist(), strict=True):
            check += zlib.crc32(raw[at : at + length])
            size += length
        count += len(places)
    return count, size, check


# -- changes to clusters, as the last records of a log


class _RecordedDecisions:
    """Decisions that are applied to ``cluster``; their batches are the end of a log."""

    def __init__(self, cluster: MetadataState) -> None:
        self.cluster = cluster
        self.batches: list[bytes] = []

    def write(self, decision: Decision[Any]) -> None:
        batches, cluster = decision.records.batches, self.cluster
        assign_offsets(batches, cluster.next_offset, generate.LEADER_EPOCH)
        cluster.apply(batches, verify_crc=False)
        self.batches.append(bytes(batches))

    def done(self) -> bytes:
        """Return the batches and commit them."""
        self.cluster.start_journal()
        return b"".join(self.batches)


def leaders_moved_off(cluster: MetadataState, brokers: range) -> bytes:
    """Return the changes after these brokers were away: in sync again, leading nothing."""
    tail = _RecordedDecisions(cluster)
    for broker in brokers:
        tail.write(fence_broker(cluster, broker))
    for broker in brokers:
        tail.write(unfence_broker(cluster, broker))
    tail.write(expand_isrs(cluster))
    return tail.done()


def left_alone(cluster: MetadataState, others: tuple[int, ...]) -> bytes:
    """Return the changes after all others were away: in no ISR; these brokers lead."""
    tail = _RecordedDecisions(cluster)
    for broker in others:
        tail.write(fence_broker(cluster, broker))
    for broker in others:
        tail.write(unfence_broker(cluster, broker))
    return tail.done()


def alter_partition_body(cluster: MetadataState, broker: int) -> bytes:
    """Return the AlterPartition request, version 3, of a broker with all replicas in its ISRs."""
    table, registered = cluster.table, cluster.state.brokers
    by_topic: dict[int, list[bytes]] = {}
    for row in table.broker_rows(broker).tolist():
        state = table.state_of(row)
        assert state["leader"] == broker
        assert state["isr"] == [broker]
        isr = [struct.pack(">iqx", each, registered[each].epoch) for each in state["replicas"]]
        partition = int(table.column("partition")[row])
        by_topic.setdefault(int(table.column("topic")[row]), []).append(
            struct.pack(">ii", partition, state["leader_epoch"])
            + generate.uvarint(len(isr) + 1)
            + b"".join(isr)
            + struct.pack(">bix", 0, state["partition_epoch"])
        )
    body = struct.pack(">iq", broker, registered[broker].epoch)
    body += generate.uvarint(len(by_topic) + 1)
    for topic, partitions in by_topic.items():
        body += table.topic_id_of(topic) + generate.uvarint(len(partitions) + 1)
        body += b"".join(partitions) + b"\0"
    return body + b"\0"
