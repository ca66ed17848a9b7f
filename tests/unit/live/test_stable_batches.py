"""Batches of an open metadata transaction are held back until it ends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

import kraft
from kraft._core.log.log import Log
from kraft.image.replay import MetadataState
from kraft.live.stable_batches import StableBatches
from kraft.metadata.facade import Metadata
from kraft.records import (
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    NoOp,
    Partition,
    Record,
    Topic,
    Uuid,
)
from kraft.records.batches import encode_records

DATA = Path(__file__).parents[2] / "data"


def topic(number: int) -> list[Record]:
    topic_id = Uuid(number.to_bytes(16))
    partition = Partition(
        partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, directories=[topic_id]
    )
    return [Topic(name=f"topic-{number}", topic_id=topic_id), partition]


BEGIN, END, ABORT = BeginTransaction(), EndTransaction(), AbortTransaction()


def encoded(*batches: Sequence[Record]) -> list[memoryview]:
    """Return one log: each argument as a batch of its own."""
    offset, made = 0, []
    for records in batches:
        made.append(memoryview(encode_records(records, base_offset=offset)))
        offset += len(records)
    return made


def passed_through(pieces: Sequence[memoryview]) -> list[list[str]]:
    """Return the topics of a state after each piece, which is never inside of a transaction."""
    stable, state, seen = StableBatches(), MetadataState(), []
    state.start_journal()
    for piece in pieces:
        batches = stable.add(piece)
        if batches is not None:
            state.apply(batches)
        assert state.stable_at(state.next_offset) == state.next_offset, "a transaction is open"
        table = state.table
        seen.append(sorted(table.topic_name(number) for number in table.topic_numbers()))
    return seen


@pytest.mark.parametrize(
    ("end", "topics"), [(END, ["topic-1", "topic-2"]), (ABORT, []), (None, [])]
)
def test_a_transaction_is_seen_as_a_whole_or_not_at_all(
    end: Record | None, topics: list[str]
) -> None:
    last = [end] if end is not None else [NoOp()]
    pieces = encoded([BEGIN], topic(1), topic(2), last)
    assert passed_through(pieces) == [[], [], [], topics]


def test_what_follows_a_transaction_is_not_held_back() -> None:
    pieces = encoded(topic(1), [BEGIN, *topic(2)], [ABORT, *topic(3)], topic(4))
    one, other, last = ["topic-1"], ["topic-1", "topic-3"], ["topic-1", "topic-3", "topic-4"]
    assert passed_through(pieces) == [one, one, other, last]


def test_a_batch_that_ends_a_transaction_and_begins_another_is_held_back() -> None:
    """Kafka's controller and ours put the records of several requests into one batch."""
    pieces = encoded([BEGIN, *topic(1)], [END, BEGIN, *topic(2)], [END, *topic(3)])
    assert passed_through(pieces)[:2] == [[], []]
    assert passed_through(pieces)[2] == ["topic-1", "topic-2", "topic-3"]
    in_one_piece = memoryview(b"".join(pieces[:2]))
    assert passed_through([in_one_piece, pieces[2]]) == [[], ["topic-1", "topic-2", "topic-3"]]


def test_kafkas_recorded_transaction_is_held_back() -> None:
    directory = DATA / "kafka-4.3-transaction" / "controller-201-open"
    log = Log.open(directory / "__cluster_metadata-0", read_only=True)
    raw = memoryview(bytes(log.fetch(0, 1 << 30)))
    expected = kraft.open_metadata(directory)
    stable, state = StableBatches(), MetadataState()
    batches = stable.add(raw)
    assert batches is not None
    state.apply(batches)
    assert expected.cluster.dropped_transaction is not None
    assert state.transaction_start is None
    assert list(kraft.diff(expected, Metadata(state))) == []


def test_a_snapshot_replaces_what_is_held_back() -> None:
    stable = StableBatches()
    begin, records, end = encoded([BEGIN], topic(1), [END])
    assert stable.add(begin) is stable.add(records) is None
    stable.drop()
    assert stable.add(end) == end


@pytest.mark.parametrize("seed", range(40))
def test_no_batch_is_lost_or_reordered(seed: int) -> None:
    """Over random transactions, batches and pieces."""
    dice = random.Random(seed)
    records: list[Record] = []
    wanted: list[str] = []
    for number in range(40):
        kind = dice.choice(("alone", "committed", "aborted"))
        inside = topic(number)
        if kind == "alone":
            records += inside
        else:
            records += [BEGIN, *inside, END if kind == "committed" else ABORT]
        if kind != "aborted":
            wanted.append(f"topic-{number}")
    batches: list[list[Record]] = []
    while records:
        size = dice.randint(1, 6)
        batches.append(records[:size])
        records = records[size:]
    raw = encoded(*batches)
    pieces = []
    while raw:
        size = dice.randint(1, 4)
        pieces.append(memoryview(b"".join(raw[:size])))
        raw = raw[size:]
    seen = passed_through(pieces)
    assert seen[-1] == sorted(wanted)
    assert all(set(before) <= set(after) for before, after in pairwise(seen))
    # The state changes before the last piece: not everything is held back.
    assert any(seen[: len(seen) // 2])
