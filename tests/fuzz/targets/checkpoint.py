"""Snapshots in Kafka's format, and column checkpoints with changed bytes.

No fuzzer would guess the CRCs over a column checkpoint's header and sections. So an input for it is
a list of patches of a valid file, whose CRCs are then corrected: this tests everything after the
checksums. Such a file may differ from the snapshot (it is trusted then), but must never make the
process read past its end or crash::

    section u8 (of SECTIONS; any other number: the header) | position u16 | size u8 | bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgpack

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, BatchBuilder, scan, split
from kraft._core.bytes.batch_check import validate
from kraft._core.bytes.checksum import crc32c
from kraft._core.snapshot.column_checkpoint import (
    MAGIC,
    SECTIONS_START,
    ColumnCheckpoint,
    columns_path,
    load_columns,
    save_columns,
)
from kraft._core.snapshot.snapshot_file import (
    SnapshotReader,
    SnapshotWriter,
    read_snapshot,
    write_snapshot,
)
from kraft._core.table.table import PartitionTable
from kraft.errors import KraftError
from kraft.image.replay import MetadataState
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
    cluster = MetadataState()
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
    """Check that batches copied into a snapshot are valid, with the same number of records."""
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
    """Return a valid snapshot with its columns: the snapshot's path, the columns' bytes."""
    directory = scratch(f"columns-{number}")
    table = random_table(number, topics=3 + number)
    path = _write(directory, 100 + number, table)
    save_columns(path, table, records=b"records of other kinds")
    return path, Path(columns_path(path)).read_bytes()


def _columns(patches: bytes, *, verify: bool, number: int) -> None:
    path, sound = _sound(number)
    columns = Path(columns_path(path))
    columns.unlink(missing_ok=True)
    # A file of this kind is never written in place, because it may still be mapped.
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
    """Read topics and single rows, which is allowed before all rows were checked."""
    for topic in table.topic_numbers()[:40]:
        table.topic_number(table.topic_name(topic))
        table.topic_number_by_id(table.topic_id_of(topic))
        for partition in range(40):
            row = table.row_of(topic, partition)
            if row >= 0:
                table.state_of(row)


def _go_on(table: PartitionTable) -> None:
    """Use the table: run all operations over its rows and all changes."""
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
    """Return every row as stored; look-ups by name may fail in a patched hash table."""
    states: list[object] = []
    for row in table.live_rows().tolist():
        state = table.state_of(row)
        state["directories"] = [table.directory_id(each) for each in state["directories"]]
        states.append(state)
    return states


def patched(sound: bytes, patches: bytes) -> bytes:
    """Return the file with patches and correct CRC-32Cs, as far as its header is valid."""
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
