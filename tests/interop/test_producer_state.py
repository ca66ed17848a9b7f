"""Idempotent producers, followed by kraft and by Apache Kafka's state manager, and their files."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kraft._core.bytes.batch_records import RecordBatch, iterate
from kraft._core.log.disk import OsDisk
from kraft.broker.producer_snapshots import ProducerSnapshots, decode_snapshot, encode_snapshot
from kraft.broker.producer_state import (
    BatchMetadata,
    ProducerStateEntry,
    ProducerStates,
    SequencedBatch,
)
from kraft.errors import KraftError
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests
from tests.harness.produced_batches import CONTROL, NOW_MS, TRANSACTIONAL, RawBatch, RawRecord
from tests.interop.produce_oracle import produce_oracle

pytestmark = pytest.mark.interop

RUNS = 40
STEPS = 60
#: The same cases in every run: a rare one must not fail the check of an unrelated change.
SEED = int(os.environ.get("SEED", "1"))
EXPIRATION_MS = 50_000


@pytest.fixture(scope="module")
def kafka_producers(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JsonRequests]:
    with produce_oracle(jars, tmp_path_factory.mktemp("producers")) as oracle:
        yield oracle


def described(entry: ProducerStateEntry) -> list[Any]:
    *fields, batches = entry
    return [*fields, [list(batch) for batch in batches]]


def state_of(states: ProducerStates) -> dict[str, Any]:
    undecided = states.first_undecided_offset
    return {
        "entries": sorted(described(entry) for entry in states.producers.values()),
        "end": states.end_offset,
        "undecided": -1 if undecided is None else undecided,
    }


def sorted_state(answer: dict[str, Any]) -> dict[str, Any]:
    if "entries" in answer:
        answer["entries"].sort()
    return answer


def from_client(states: ProducerStates, data: bytes) -> dict[str, Any]:
    """Return kraft's answer to a batch of a client, in the form of the oracle's."""
    batch: RecordBatch
    (batch,) = iterate(data)
    duplicate = states.duplicate_of(
        batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count
    )
    if duplicate is not None:
        return {"duplicate": list(duplicate)}
    one = SequencedBatch(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
        batch.is_transactional,
    )
    try:
        states.put(states.next_entry(one), one.last_offset + 1)
    except KraftError as error:
        return {"code": error.kafka_code}
    return state_of(states)


def replayed(states: ProducerStates, data: bytes) -> dict[str, Any]:
    try:
        states.replay(data)
    except KraftError as error:
        return {"code": error.kafka_code}
    return state_of(states)


def generated(dice: Random, states: ProducerStates, offset: int, now_ms: int) -> RawBatch:
    """Return a batch of one of a few producers that mostly follows its last batch."""
    producer_id = dice.choice((1, 2, 3, 2**40))
    entry = states.producers.get(producer_id) or ProducerStateEntry(producer_id)
    epoch = max(entry.producer_epoch, 0)
    count = dice.choice((1, 1, 2, 5))
    sequence = (entry.last_sequence + 1) % 2**31
    kind = dice.random()
    if kind < 0.1:
        near = ((sequence + 1) % 2**31, max(sequence - 1, 0))
        sequence = dice.choice((0, *near, 2**31 - 1, 2**31 - 2))
    elif kind < 0.2:
        epoch, sequence = epoch + 1, dice.choice((0, 0, 3))
    elif kind < 0.25 and epoch:
        epoch -= 1
    elif kind < 0.4 and entry.batches:
        again = dice.choice(entry.batches)
        sequence, count = again.first_sequence, again.offset_delta + 1
    if entry.transaction_offset >= 0 or dice.random() < 0.1:
        attributes = TRANSACTIONAL if dice.random() < 0.95 else 0
    else:
        attributes = 0
    return RawBatch(
        [RawRecord()] * count,
        base_offset=offset,
        base_timestamp=now_ms - dice.choice((0, 1, 60_000)),
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def generated_marker(dice: Random, states: ProducerStates, offset: int, now_ms: int) -> RawBatch:
    opened = [one for one in states.producers.values() if one.transaction_offset >= 0]
    entry = dice.choice(opened) if opened else ProducerStateEntry(9, 4)
    key = struct.pack(">hh", 0, dice.choice((0, 1)))
    value = struct.pack(">hi", 0, dice.choice((0, 3, 5)))
    return RawBatch(
        [RawRecord(key=key, value=value)],
        base_offset=offset,
        base_timestamp=now_ms,
        attributes=CONTROL | TRANSACTIONAL,
        producer_id=entry.producer_id,
        producer_epoch=max(entry.producer_epoch + dice.choice((0, 0, 1)), 0),
    )


def test_generated_sequences_are_followed_as_by_kafka(
    kafka_producers: JsonRequests, tmp_path: Path
) -> None:
    dice = Random(SEED)
    found: Counter[str] = Counter()
    for run in range(RUNS):
        directory = tmp_path / str(run)
        directory.mkdir()
        snapshots = ProducerSnapshots(OsDisk(), directory)
        states = ProducerStates("t-0", expiration_ms=EXPIRATION_MS, takes_transactions=True)
        snapshots.load(states, 0, 0, now_ms=NOW_MS)
        kafka_producers("producers", expiration=EXPIRATION_MS)
        now_ms, offset = NOW_MS, 0
        for _ in range(STEPS):
            now_ms += dice.choice((0, 10, 1000))
            kind = dice.random()
            if kind < 0.7:
                data = generated(dice, states, offset, now_ms).encoded()
                step = dice.choice(("client", "client", "replica"))
                told = f"seed {SEED}, {step} {data.hex()}"
                answer = sorted_state(kafka_producers(step, batch=data.hex()))
                answer.pop("message", None)
                mine = from_client(states, data) if step == "client" else replayed(states, data)
            elif kind < 0.8:
                step, data = "marker", generated_marker(dice, states, offset, now_ms).encoded()
                told = f"seed {SEED}, marker {data.hex()}"
                answer = sorted_state(kafka_producers("replica", batch=data.hex()))
                mine = replayed(states, data)
            elif kind < 0.85:
                step = told = "expire"
                now_ms += dice.choice((0, EXPIRATION_MS // 2))
                answer = sorted_state(kafka_producers("expire", now=now_ms))
                states.expire(now_ms)
                mine = state_of(states)
            elif kind < 0.95:
                step = told = "snapshot"
                file = kafka_producers("snapshot")
                assert snapshots.take(states) == (file is not None)
                if file is not None:
                    name, content = file
                    written = (directory / name).read_bytes()
                    assert sorted(rows(written)) == sorted(rows(bytes.fromhex(content)))
                    assert len(written) == len(content) // 2
                continue
            else:
                step = "reload"
                start = dice.randrange(offset // 2 + 1)
                end = dice.choice((offset, dice.randrange(start, offset + 1)))
                told = f"seed {SEED}, reload {start} {end}"
                if end == states.end_offset:
                    continue
                answer = sorted_state(kafka_producers("reload", start=start, end=end, now=now_ms))
                snapshots.load(states, start, end, now_ms=now_ms)
                mine, offset = state_of(states), states.end_offset
            assert mine == answer, told
            found[step] += 1
            found[next(iter(mine))] += 1
            if "code" in mine:
                found[f"code {mine['code']}"] += 1
            offset = states.end_offset
    print(f"seed {SEED}: {dict(found)}")
    for expected in ("client", "replica", "marker", "expire", "reload", "duplicate"):
        assert found[expected], expected
    assert all(found[f"code {code}"] for code in (45, 47, 48))


def rows(snapshot: bytes) -> list[list[Any]]:
    return [described(entry) for entry in decode_snapshot(snapshot)]


def test_kafka_reads_the_snapshots_of_kraft(kafka_producers: JsonRequests, tmp_path: Path) -> None:
    dice = Random(SEED)
    entries = []
    for _ in range(500):
        timestamp = dice.randrange(-1, 2**50)
        delta = dice.randrange(1000)
        batches = (BatchMetadata(dice.randrange(2**31), 5000 + delta, delta, timestamp),)
        entries.append(
            ProducerStateEntry(
                dice.randrange(2**63),
                dice.randrange(2**15),
                dice.randrange(-1, 2**31),
                timestamp,
                dice.choice((-1, dice.randrange(2**62))),
                batches if dice.random() < 0.9 else (),
            )
        )
    path = tmp_path / "00000000000000009000.snapshot"
    path.write_bytes(encode_snapshot(entries))
    assert kafka_producers("entries", file=str(path)) == [described(one) for one in entries]
