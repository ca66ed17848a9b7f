"""Runs of partition records: fast and general decoding agree, for any form and any damage.

A table with an index of its brokers decodes every record by the general code. So the same bytes are
applied to a table without an index and to one with it: both must have the same rows, or raise the
same error.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.table.table import PartitionTable
from kraft.errors import KraftError
from kraft.records import Record, Uuid
from kraft.records.values import encode_value

TOPIC = Uuid(b"\7" * 16)
COLUMNS = (
    *("topic", "partition", "leader", "leader_epoch", "partition_epoch", "leader_recovery_state"),
    *("replicas", "directories", "isr", "elr", "last_known_elr"),
)
HEADER = 61


def directory(broker: int) -> Uuid:
    return Uuid((2**100 + 77 * broker).to_bytes(16, "big"))


def partition(number: int, version: int, replicas: list[int], form: str) -> Record:
    """Return a partition in one of the forms that occur in an older cluster."""
    isr = {
        "rotated": replicas[1:] + replicas[:1],
        "short": replicas[:-1],
        "empty": [],
        "foreign": [*replicas[:-1], 999],
    }.get(form, replicas)
    tagged = version == 2 and form in ("short", "empty")
    return records.Partition(
        partition_id=number,
        topic_id=TOPIC,
        replicas=replicas,
        isr=isr,
        removing_replicas=replicas[:1] if form == "moving" else [],
        adding_replicas=replicas[-1:] if form == "moving" else [],
        leader=isr[0] if isr else -1,
        leader_recovery_state=1 if form == "recovering" else 0,
        leader_epoch=3 + number % 7,
        partition_epoch=300 + number % 7,
        directories=[directory(broker) for broker in replicas] if version else [],
        eligible_leader_replicas=replicas[-1:] if tagged else None,
        last_known_elr=replicas[:1] if tagged and form == "empty" else None,
        version=version,
    )


FORMS = ("full", "full", "rotated", "short", "empty", "recovering", "foreign", "moving")


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    """Return topics of partitions that mostly follow each other in one form, and other records."""
    log: list[Record] = [records.NoOp()] * draw(st.sampled_from([0, 0, 55, 62]))
    log.append(records.Topic(name="a", topic_id=TOPIC))
    number = draw(st.sampled_from([0, 0, 0, 1, 2**31 - 3]))
    version, factor = draw(st.integers(0, 2)), draw(st.integers(0, 9))
    for form in draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=14)):
        if draw(st.integers(0, 9)) == 9:
            version, factor = draw(st.integers(0, 2)), draw(st.integers(0, 9))
        if draw(st.integers(0, 19)) == 19:
            log.append(records.NoOp())
        first = draw(st.sampled_from([0, 0, 1, 40]))
        replicas = [first + slot for slot in range(factor)]
        if draw(st.integers(0, 19)) == 19 and replicas:
            replicas[-1] = draw(st.sampled_from([-5, replicas[0]]))
        log.append(partition(number, version, replicas, form))
        number = min(number + 1, 2**31 - 1)
    return log


def batch_of(log: list[Record]) -> bytearray:
    builder = BatchBuilder(100, 1)
    for record in log:
        builder.append(encode_value(record))
    return bytearray(builder.finish())


def outcome(batch: bytes, stride: int, capacity: int, *, journaling: bool, indexed: bool) -> object:
    """Return a table's columns after the batch, and the batch's error."""
    table = PartitionTable(stride=stride, capacity=capacity)
    if journaling:
        table.start_journal(50)
    if indexed:
        table.ensure_index()
    refused = None
    try:
        table.apply(batch, verify_crc=False, on_record=lambda *_: None)
    except KraftError as error:
        refused = type(error), str(error)
    columns = [table.column(name).tobytes() for name in COLUMNS]
    counts = table.row_count, table.partition_count, table.irregular_count, table.counts_by_key
    if journaling:
        table.revert(110)
        counts = (*counts, table.row_count)
        table.revert(100)
        counts = (*counts, table.row_count)
    return refused, columns, counts


def check(batch: bytes, stride: int, capacity: int = 16, journaling: bool = False) -> None:
    short_way = outcome(batch, stride, capacity, journaling=journaling, indexed=False)
    assert short_way == outcome(batch, stride, capacity, journaling=journaling, indexed=True)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    log=runs(),
    stride=st.sampled_from([1, 3, 3, 5, 8]),
    capacity=st.sampled_from([0, 4, 16, 16]),
    journaling=st.booleans(),
    flips=st.lists(st.tuples(st.integers(0, 100_000), st.integers(1, 255)), max_size=2),
    cut=st.integers(0, 300) | st.just(0),
)
def test_the_fast_path_reads_any_run_as_the_general_path(
    log: list[Record],
    stride: int,
    capacity: int,
    journaling: bool,
    flips: list[tuple[int, int]],
    cut: int,
) -> None:
    batch = batch_of(log)
    for place, mask in flips:
        batch[HEADER + place % (len(batch) - HEADER)] ^= mask
    if cut:
        # Cut the last record short; the batch's length field is correct.
        del batch[max(len(batch) - cut, HEADER + 8) :]
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    check(bytes(batch), stride, capacity, journaling)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("factor", [0, 1, 2, 3, 4, 5])
def test_the_fast_path_checks_every_byte_of_a_record(version: int, factor: int) -> None:
    """Change every byte of a record in the middle of a run: lowest bit, highest bit, all bits."""
    for form in ("full", "short", "empty", "recovering"):
        log: list[Record] = [records.Topic(name="a", topic_id=TOPIC)]
        for number in range(5):
            # The same brokers in turn: all of their directories are known from the third record on.
            replicas = [(number + slot) % factor for slot in range(factor)]
            log.append(partition(number, version, replicas, form if number == 2 else "full"))
        batch = bytes(batch_of(log))
        first = len(batch_of(log[:3]))
        behind = len(batch_of(log[:4]))
        for place in range(first, behind):
            for mask in (0x01, 0x80, 0xFF):
                broken = bytearray(batch)
                broken[place] ^= mask
                check(bytes(broken), 5)
