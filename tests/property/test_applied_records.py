"""Apply, revert, read the past, append and reopen in any order: ``Metadata`` equals its slow twin.

The twin keeps the list of single batches and replays them from the first one for each answer.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import kraft
from kraft._core.bytes.batch import BatchBuilder, scan
from kraft._core.log.log import Log
from kraft.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    ReplayError,
)
from kraft.image.replay import MetadataState
from kraft.metadata.facade import Metadata
from kraft.records import (
    AbortTransaction,
    BeginTransaction,
    Config,
    EndTransaction,
    FeatureLevel,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    Topic,
    Uuid,
    encode_value,
)

TOPIC, UNKNOWN, DIRECTORY = Uuid(b"\x0a" * 16), Uuid(b"\xff" * 16), Uuid(b"\x65" * 16)
LEVEL = 30
START: list[Record] = [
    FeatureLevel("metadata.version", LEVEL),
    RegisterBroker(1, broker_epoch=1, fenced=False),
    Topic("orders", TOPIC),
    *(
        Partition(number, TOPIC, [1], [1], leader=1, leader_epoch=0, partition_epoch=0,
                  directories=[DIRECTORY])
        for number in range(3)
    ),
]  # fmt: skip

RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        Config,
        resource_type=st.just(2),
        resource_name=st.sampled_from(["orders", "other"]),
        name=st.sampled_from(["a", "b"]),
        value=st.none() | st.sampled_from(["1", "2", "3"]),
    ),
    st.builds(
        PartitionChange,
        partition_id=st.integers(0, 2),
        topic_id=st.just(TOPIC),
        leader=st.sampled_from([-1, 1]),
    ),
)


def batches_of(records: list[Record], size: int = 2, timestamp_ms: int = 0) -> memoryview:
    """Return batches of ``size`` records, like a decision of more than 10,000 records."""
    builder = BatchBuilder(timestamp_ms=timestamp_ms, max_batch_records=size)
    for record in records:
        builder.append(encode_value(record, metadata_version=LEVEL))
    return builder.finish()


def meaning(cluster: MetadataState) -> tuple[Any, ...]:
    """Return the whole state, to be compared."""
    partitions = Metadata(cluster).partitions
    return (
        cluster.next_offset,
        cluster.state.journaled_maps(),
        {(each.topic, each.partition): each for each in partitions},
    )


def same(one: MetadataState, other: MetadataState) -> None:
    assert one.next_offset == other.next_offset
    assert one.state == other.state
    assert meaning(one)[2] == meaning(other)[2]


class Twin:
    """Single batches with their base offsets, replayed from the first for each answer."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []  # first offset, end offset, bytes
        self.written = 0

    @property
    def next_offset(self) -> int:
        return self.batches[-1][1] if self.batches else 0

    def add(self, batches: memoryview) -> None:
        table = scan(batches)
        for position, size, deltas in zip(
            table.positions, table.sizes, table.last_offset_deltas, strict=True
        ):
            first = self.next_offset
            data = bytearray(batches[position : position + size])
            data[:8] = first.to_bytes(8, "big")
            self.batches.append((first, first + int(deltas) + 1, bytes(data)))

    def latest(self, end_offset: int | None = None) -> MetadataState:
        cluster = MetadataState()
        for _, _, data in self.batches:
            cluster.apply(data, end_offset=self.next_offset if end_offset is None else end_offset)
        return cluster

    def at(self, offset: int) -> MetadataState:
        cluster = self.latest(offset)
        cluster.drop_open_transaction()
        return cluster

    def aborted(self) -> list[tuple[int, int]]:
        """Return the first and last offset of each aborted transaction."""
        found, start = [], -1
        for record in Metadata().records() if not self.batches else self.records():
            if isinstance(record.record, BeginTransaction):
                start = record.offset
            elif isinstance(record.record, AbortTransaction):
                found.append((start, record.offset))
        return found

    def records(self) -> list[Any]:
        from kraft.metadata.log_records import read_records

        return [each for _, _, data in self.batches for each in read_records(memoryview(data))]

    def may_revert(self, offset: int) -> bool:
        starts = {first for first, _, _ in self.batches} | {self.next_offset}
        inside = any(start < offset <= end for start, end in self.aborted())
        return offset >= self.written and offset in starts and not inside


class Journeys(RuleBasedStateMachine):
    @initialize(size=st.integers(1, 4))
    def begin(self, size: int) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.metadata = Metadata()
        self.twin = Twin()
        self.apply(START, size)

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "directory", ""), ignore_errors=True)

    def apply(self, records: list[Record], size: int) -> None:
        batches = batches_of(records, size)
        self.twin.add(batches)
        first = self.metadata.next_offset
        assert self.metadata.apply(bytes(batches)) == first

    @rule(records=st.lists(RECORDS, min_size=1, max_size=7), size=st.integers(1, 3))
    def apply_records(self, records: list[Record], size: int) -> None:
        self.apply(records, size)

    @rule(
        records=st.lists(RECORDS, max_size=3),
        size=st.integers(1, 3),
        ending=st.sampled_from([EndTransaction, AbortTransaction]),
    )
    def step_transaction(self, records: list[Record], size: int, ending: type[Record]) -> None:
        """Begin a metadata transaction, or end the open one."""
        step = BeginTransaction() if self.twin.latest().transaction_start is None else ending()
        self.apply([step, *records], size)

    @rule(records=st.lists(RECORDS, max_size=4), size=st.integers(1, 3), aborts=st.booleans())
    def apply_a_contradiction(self, records: list[Record], size: int, aborts: bool) -> None:
        bad: list[Record] = [*records, PartitionChange(0, UNKNOWN, leader=1)]
        if aborts and self.twin.latest().transaction_start is not None:
            bad.insert(0, AbortTransaction())
        with pytest.raises(ReplayError):
            self.metadata.apply(bytes(batches_of(bad, size)))

    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        # Every later record refers to the entities of the first ones, so those stay.
        end = self.twin.next_offset
        offset = data.draw(st.integers(max(end - 12, len(START)), end + 1))
        if self.twin.may_revert(offset):
            self.metadata.revert(offset)
            self.twin.batches = [each for each in self.twin.batches if each[0] < offset]
        else:
            with pytest.raises(OffsetOutOfRangeError):
                self.metadata.revert(offset)

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.twin.next_offset))
        past = self.metadata.at(offset)
        same(past.cluster, self.twin.at(offset))
        earlier = data.draw(st.integers(0, offset))
        same(past.at(earlier).cluster, self.twin.at(earlier))
        assert past.pending == max(offset - self.twin.written, 0)
        with pytest.raises(ReplayError):
            past.apply([Config(2, "orders", "c", "1"), PartitionChange(0, UNKNOWN, leader=1)])
        same(past.cluster, self.twin.at(offset))
        past.apply(Config(2, "orders", "c", "1"))
        assert past.configs.topic("orders")["c"] == "1"
        # A past state that is written to disk is the same when loaded from there.
        if self.twin.written == 0 and past.cluster.dropped_transaction is None:
            with tempfile.TemporaryDirectory() as directory:
                with Log.open(Path(directory) / "__cluster_metadata-0") as log:
                    past.append(log)
                same(kraft.open_metadata(directory).cluster, past.cluster)

    @rule()
    def snapshot(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            if self.twin.latest().transaction_start is not None:
                with pytest.raises(InvalidRequestError):
                    self.metadata.write_snapshot(directory)
                return
            again = kraft.open_metadata(self.metadata.write_snapshot(directory))
            same(again.cluster, self.metadata.cluster)

    @rule(reopen=st.booleans())
    def append(self, reopen: bool) -> None:
        with Log.open(self.directory / "__cluster_metadata-0") as log:
            written = self.metadata.append(log)
        if written is None:
            assert self.twin.written == self.twin.next_offset
        else:
            assert written == (self.twin.written, self.twin.next_offset - 1)
        self.twin.written = self.twin.next_offset
        again = kraft.open_metadata(self.directory)
        same(again.cluster, self.twin.at(self.twin.next_offset))
        # After an open transaction the two differ: the reopened one omits it.
        if reopen and self.twin.latest().transaction_start is None:
            self.metadata = again

    @rule()
    def all_records(self) -> None:
        offsets = [each.offset for each in self.metadata.records()]
        assert offsets == list(range(self.twin.next_offset))

    @invariant()
    def is_the_twins(self) -> None:
        if hasattr(self, "twin"):
            same(self.metadata.cluster, self.twin.latest())
            assert self.metadata.pending == self.twin.next_offset - self.twin.written


TestJourneys = Journeys.TestCase
TestJourneys.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
