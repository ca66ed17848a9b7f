"""Snapshots of Kafka's format, and column checkpoints with any of their bytes changed.

A column checkpoint has a CRC over its header and over each section, which no fuzzer would guess. So
the input for one is a list of patches on a sound file, and the CRCs are put right behind them: what
is tested is everything that stands behind the checksums. Such a file may say something else than
the snapshot (it is trusted then), and must still never be read past its end, or make the process
stop::

    section u8 (of SECTIONS; any other number: the header) | position u16 | size u8 | bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgpack

from kraft._core.batch import ATTRIBUTE_CONTROL, BatchBuilder, scan, split
from kraft._core.batch_check import validate
from kraft._core.checksum import crc32c
from kraft._core.column_checkpoint import (
    MAGIC,
    SECTIONS_START,
    ColumnCheckpoint,
    columns_path,
    load_columns,
    save_columns,
)
from kraft._core.snapshot_file import SnapshotReader, SnapshotWriter, read_snapshot, write_snapshot
from kraft._core.table import PartitionTable
from kraft.errors import KraftError
from kraft.image.replay import Cluster
from kraft.records.values import encode_value
from tests.fuzz import samples
from tests.fuzz.scratch import scratch
from tests.reference.random_tables import batches_of, meaning, random_records, random_table

PREFIX = 1
HOLDS_BATCHES = True

_COLUMNS = 1
_VERIFY = 2

_TABLES = 4


def seeds() -> Iterator[bytes]:
    for path in samples.files("*.checkpoint"):
        yield b"\x00" + path.read_bytes()
    for table in range(_TABLES):
        for section in range(24):
            for verify in (0, _VERIFY):
                patch = struct.pack(">BHB", section, 8 * table, 4) + bytes(4)
                yield bytes((_COLUMNS | verify | table << 2,)) + patch


def run(data: bytes) -> None:
    if not data:
        return
    flags, rest = data[0], data[1:]
    if flags & _COLUMNS:
        _columns(rest, verify=bool(flags & _VERIFY), number=(flags >> 2) % _TABLES)
    else:
        _snapshot(rest)


def _snapshot(content: bytes) -> None:
    _written_from_batches(content)
    cluster = Cluster()
    try:
        reader = SnapshotReader(content)
        with cluster.loading_snapshot(100) as callbacks:
            info = reader.read(cluster.table, **callbacks)
    except KraftError:
        return
    assert info.size == len(content)
    assert b"".join(split(content, 100)) == content
    said = meaning(cluster.table)
    path = _write(scratch(), 100, cluster.table)
    save_columns(path, cluster.table)
    again = PartitionTable()
    read_snapshot(path, again)
    assert meaning(again) == said
    loaded = load_columns(path)
    assert isinstance(loaded, ColumnCheckpoint), loaded
    assert meaning(loaded.table) == said


def _written_from_batches(content: bytes) -> None:
    """Batches taken over into a snapshot are sound, and as many records as there were."""
    with SnapshotWriter(
        scratch(), 100, 1, last_contained_log_timestamp_ms=1, timestamp_ms=2
    ) as writer:
        try:
            for batch in split(content, 1):
                if not scan(batch, verify_crc=False).attributes[0] & ATTRIBUTE_CONTROL:
                    writer.append_batches(batch)
        except KraftError:
            return
        path = writer.finish()
    written = validate(Path(path).read_bytes(), dense=True)
    expected = scan(content, verify_crc=False)
    is_data = expected.attributes & ATTRIBUTE_CONTROL == 0
    assert SnapshotReader(path).info.record_count == expected.record_counts[is_data].sum()
    assert written.record_counts.sum() == expected.record_counts[is_data].sum() + 2


def _write(directory: Path, end_offset: int, table: PartitionTable) -> str:
    return write_snapshot(
        directory,
        end_offset,
        7,
        table,
        partition_version=2,
        last_contained_log_timestamp_ms=1,
        timestamp_ms=2,
    )


@cache
def _sound(number: int) -> tuple[str, bytes]:
    """A snapshot with its columns: the path of one, the bytes of the other."""
    directory = scratch(f"columns-{number}")
    table = random_table(number, topics=3 + number)
    path = _write(directory, 100 + number, table)
    save_columns(path, table, records=b"records of other kinds")
    return path, Path(columns_path(path)).read_bytes()


def _columns(patches: bytes, *, verify: bool, number: int) -> None:
    path, sound = _sound(number)
    columns = Path(columns_path(path))
    columns.unlink(missing_ok=True)
    # A file of this kind is never written in place: one that is mapped may still be looked at.
    columns.write_bytes(patched(sound, patches))
    loaded = load_columns(path, verify=verify)
    if not isinstance(loaded, ColumnCheckpoint):
        assert loaded.reason
        return
    table = loaded.table
    bytes(loaded.records)
    try:
        if verify:
            _written_again(table)
        else:
            _look_around(table)
        _go_on(table)
    except KraftError:
        return


def _written_again(table: PartitionTable) -> None:
    builder = BatchBuilder()
    table.encode_snapshot(builder, version=2)
    copy = PartitionTable()
    copy.apply(builder.finish())
    assert copy.partition_count == table.partition_count


def _look_around(table: PartitionTable) -> None:
    """Topics and single rows: what may be asked before all rows were checked."""
    for topic in table.topic_numbers()[:40]:
        table.topic_number(table.topic_name(topic))
        table.topic_number_by_id(table.topic_id_of(topic))
        for partition in range(40):
            row = table.row_of(topic, partition)
            if row >= 0:
                table.state_of(row)


def _go_on(table: PartitionTable) -> None:
    """The table in use: everything that goes over its rows, and everything that changes them."""
    made = random_records(8, topics=3, first=1000)
    log = batches_of([encode_value(record) for record in made + samples.changes_of(made)])
    table.ensure_index()
    for broker in range(20):
        table.broker_rows(broker)
    before = _states(table)
    table.start_journal(0)
    table.apply(log)
    table.revert(0)
    assert _states(table) == before
    table.stop_journal()
    table.apply(log)
    table.compact()
    _states(table)


def _states(table: PartitionTable) -> list[object]:
    """Every row as it lies there; a hash table that was patched may find none by name."""
    states: list[object] = []
    for row in table.live_rows().tolist():
        state = table.state_of(row)
        state["directories"] = [table.directory_id(each) for each in state["directories"]]
        states.append(state)
    return states


def patched(sound: bytes, patches: bytes) -> bytes:
    """The file with the patches in it and every CRC-32C put right, as far as its header is one."""
    content = bytearray(sound)
    header_size = int.from_bytes(sound[8:12], "little")
    sections = msgpack.unpackb(sound[16 : 16 + header_size])["sections"]
    at = 0
    while at + 4 <= len(patches):
        section, position, size = struct.unpack_from(">BHB", patches, at)
        patch = patches[at + 4 : at + 4 + size]
        at += 4 + size
        start, room = 16, header_size
        if section < len(sections):
            start, room = sections[section][3], sections[section][4]
        if room:
            position %= room
            patch = patch[: room - position]
            content[start + position : start + position + len(patch)] = patch
    packed = _with_crcs(content, header_size)
    content[: 16 + len(packed)] = MAGIC + struct.pack("<II", len(packed), crc32c(packed)) + packed
    return bytes(content)


def _with_crcs(content: bytearray, header_size: int) -> bytes:
    packed = bytes(content[16 : 16 + header_size])
    try:
        header = msgpack.unpackb(packed)
        for section in header["sections"]:
            section[5] = crc32c(bytes(content[section[3] : section[3] + section[4]]))
        packed = msgpack.packb(header)
    except (ValueError, LookupError, TypeError, OverflowError, msgpack.UnpackException):
        return bytes(content[16 : 16 + header_size])
    return packed if len(packed) <= SECTIONS_START - 16 else bytes(header_size)
