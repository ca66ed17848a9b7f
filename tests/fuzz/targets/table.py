"""``PartitionTable``: apply records with a journal, revert, apply again, and write a snapshot.

The input is cut in two at a batch. The table after the first part is remembered. Reverting the
second part, even if it was rejected on the way, must restore that table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kraft._core.bytes.batch import BatchBuilder, scan
from kraft._core.table.table import PartitionTable
from kraft.errors import KraftError, ReplayError
from tests.fuzz import samples
from tests.reference.random_tables import meaning

PREFIX = 2
HOLDS_BATCHES = True

_INDEXED = 1
_VERIFY_CRC = 2
_WITH_IMAGE = 4
_COMPACTED = 8

_BEHIND_EVERYTHING = (1 << 63) - 1


def seeds() -> Iterator[bytes]:
    for number, log in enumerate(samples.small_logs()):
        yield bytes((number % 16 & ~_VERIFY_CRC, 1)) + log
        yield bytes((_WITH_IMAGE | _INDEXED, 0)) + log


def run(data: bytes) -> None:
    if len(data) < 2:
        return
    flags, cut, buffer = data[0], data[1], data[2:]
    verify_crc = bool(flags & _VERIFY_CRC)
    table = PartitionTable(stride=1 + (flags >> 4) % 8)
    if flags & _INDEXED:
        table.ensure_index()
    table.start_journal(0)
    batches = scan(buffer, verify_crc=False)
    number = cut % (len(batches) + 1)
    position = int(batches.positions[number]) if number < len(batches) else len(buffer)

    reached = _apply(table, buffer[:position], verify_crc)
    if reached is None:
        table.revert(0)
        assert meaning(table) == {}
        assert table.partition_count == 0
        return
    reached = max(reached, 0)
    before = meaning(table)
    _soundness(table, before)
    image = table.image(reached) if flags & _WITH_IMAGE else None
    end = _apply(table, buffer[position:], verify_crc, start_offset=reached)
    after = meaning(table)
    _soundness(table, after)
    if image is not None:
        _image(table, image, before, reached)
        del image
    table.revert(reached)
    assert meaning(table) == before, "the reverted table differs from the earlier one"
    _soundness(table, before)
    assert _apply(table, buffer[position:], verify_crc, start_offset=reached) == end
    assert meaning(table) == after, "applied again, the records lead to another table"
    _snapshot(table, after)
    table.revert(0)
    assert meaning(table) == {}
    if flags & _COMPACTED:
        _compacted(buffer, verify_crc)


def _apply(
    table: PartitionTable, buffer: bytes, verify_crc: bool, start_offset: int = 0
) -> int | None:
    """Return the result of ``apply``, or None if it rejects the records."""
    other: list[tuple[int, bytes]] = []
    try:
        return table.apply(
            buffer,
            start_offset=start_offset,
            verify_crc=verify_crc,
            on_record=lambda offset, value: other.append((offset, value)),
            on_control=lambda offset, epoch, control_type, value: other.append((offset, value)),
            on_topic_removed=lambda offset, name: other.append((offset, name.encode())),
        )
    except KraftError:
        return None


def _soundness(table: PartitionTable, said: dict[str, Any]) -> None:
    """Check the counts and the rows of each broker against the rows themselves."""
    assert table.topic_count == len(said)
    assert table.partition_count == sum(len(partitions) for _, partitions in said.values())
    assert len(table.live_rows()) == table.partition_count
    if not table.is_indexed:
        return
    held: dict[int, list[int]] = {}
    for row in table.live_rows().tolist():
        state = table.state_of(row)
        for broker in {*state["replicas"], *state["isr"], *state["elr"]}:
            held.setdefault(broker, []).append(row)
    for broker, rows in sorted(held.items())[:20]:
        assert table.broker_rows(broker).tolist() == rows, f"rows of broker {broker}"


def _image(table: PartitionTable, image: Any, before: dict[str, Any], reached: int) -> None:
    """Check that an image, and its copy, show the earlier table."""
    topics = {image.topic_name(topic): image.topic_id_of(topic) for topic in image.topic_numbers()}
    assert topics == {name: topic_id for name, (topic_id, _) in before.items()}
    for name in list(before)[:10]:
        topic = image.topic_number(name)
        for partition, state in list(before[name][1].items())[:10]:
            found = image.state_of(image.row_of(topic, partition))
            found["directories"] = [image.directory_id(each) for each in found["directories"]]
            assert found == state, f"{name}-{partition} of the image"
    assert meaning(PartitionTable.from_image(image)) == before
    delta = table.delta(reached, _BEHIND_EVERYTHING)
    changed = delta.rows_changed
    assert (np.diff(changed) > 0).all()
    for topic in delta.topics_removed:
        assert image.topic_name(topic) in before


def _snapshot(table: PartitionTable, said: dict[str, Any]) -> None:
    """Check that the records of a snapshot make an equal table, in every version that allows it."""
    builder = BatchBuilder()
    table.encode_snapshot(builder, version=2)
    written = builder.finish()
    copy = PartitionTable()
    copy.apply(written)
    assert meaning(copy) == said, "the snapshot has another state"
    for version in (0, 1):
        builder = BatchBuilder()
        table.encode_snapshot(builder, version=version)
        older = PartitionTable()
        older.apply(builder.finish())
        assert older.partition_count == table.partition_count


def _compacted(buffer: bytes, verify_crc: bool) -> None:
    """Check that compacting without a journal changes no value."""
    table = PartitionTable()
    _apply(table, buffer, verify_crc)
    said = meaning(table)
    try:
        table.compact()
    except ReplayError:
        return
    assert table.row_count == table.partition_count
    assert meaning(table) == said, "compaction changed the table"
    _soundness(table, said)
    rows = table.live_rows()
    if len(rows):
        builder = BatchBuilder()
        table.encode_partitions(builder, rows[::2], version=2)
        assert builder.record_count == len(rows[::2])
