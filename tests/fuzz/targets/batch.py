"""Record batches: scan, validate, iterate, read as columns, rebuild, split, recompress.

All ways to read a buffer must agree: if ``validate`` accepts it, the others accept it too, and read
the same records.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft._core.bytes.batch import assign_offsets, deflate, inflate, scan, split
from kraft._core.bytes.batch_check import validate
from kraft._core.bytes.batch_columns import BatchColumns
from kraft._core.bytes.batch_records import iterate
from kraft.errors import CorruptRecordError, KraftError
from tests.fuzz import samples

PREFIX = 1
HOLDS_BATCHES = True

# The inflated size of a compressed batch: far below the fuzzer's memory limit.
BUDGET = 1 << 20

_VERIFY_CRC = 1
_RECOMPRESS = 2


def seeds() -> Iterator[bytes]:
    for run in samples.log_runs():
        yield b"\x01" + run
    small = next(samples.log_runs())
    for codec in (1, 2, 3, 4):
        yield bytes((_VERIFY_CRC | _RECOMPRESS | codec << 2,)) + bytes(deflate(small, codec))


def run(data: bytes) -> None:
    if not data:
        return
    flags, buffer = data[0], data[1:]
    verify_crc = bool(flags & _VERIFY_CRC)
    table = scan(buffer, verify_crc=verify_crc)
    assert 0 <= table.tail_position <= len(buffer)
    assert (table.tail_reason is None) == (table.tail_position == len(buffer))
    assert int(table.sizes.sum()) == table.tail_position
    for max_size in (1, 200, 1 << 20):
        _split(buffer, max_size)
    valid = _validated(buffer, verify_crc)
    read = _records(buffer, verify_crc)
    columns = _columns(buffer, verify_crc)
    if valid:
        assert read is not None, "validate accepts a batch that iterate rejects"
        assert columns is not None, "validate accepts a batch that BatchColumns.read rejects"
    if read is not None and columns is not None:
        _agree(read, columns)
    if flags & _RECOMPRESS and valid and verify_crc:
        _recompressed(buffer, flags >> 2)
    if valid:
        _stamped(buffer)


def _split(buffer: bytes, max_size: int) -> None:
    try:
        runs = split(buffer, max_size)
    except KraftError:
        return
    assert b"".join(runs) == buffer


def _validated(buffer: bytes, verify_crc: bool) -> bool:
    """Return whether ``validate`` accepts it; with ``dense`` it must accept no more."""
    dense = _refusal(buffer, verify_crc, dense=True)
    refused = _refusal(buffer, verify_crc, dense=False)
    assert dense is not None or refused is None
    if isinstance(refused, CorruptRecordError):
        assert -1 <= refused.position <= len(buffer)
    return refused is None


def _refusal(buffer: bytes, verify_crc: bool, *, dense: bool) -> KraftError | None:
    try:
        validate(buffer, verify_crc=verify_crc, dense=dense, budget=BUDGET)
    except KraftError as error:
        return error
    return None


Row = tuple[int, int, bytes | None, bytes | None, int]


def _records(buffer: bytes, verify_crc: bool) -> list[Row] | None:
    rows: list[Row] = []
    try:
        for batch in iterate(buffer, verify_crc=verify_crc, budget=BUDGET):
            made = batch.records()
            assert len(made) == len(batch)
            for record in made:
                key, value, headers = record.key, record.value, record.headers
                assert (key is None) == (record.key_view is None)
                assert (value is None) == (record.value_view is None)
                assert batch.is_control or record.control_type is None
                rows.append((record.offset, record.timestamp_ms, key, value, len(headers)))
            assert batch.delete_horizon_ms in (None, batch.base_timestamp)
    except KraftError:
        return None
    return rows


def _columns(buffer: bytes, verify_crc: bool) -> BatchColumns | None:
    try:
        columns = BatchColumns.read(buffer, verify_crc=verify_crc, budget=BUDGET)
    except KraftError:
        return None
    try:
        built = columns.build()
    except KraftError:
        return columns
    again = BatchColumns.read(built, budget=BUDGET)
    assert len(again) == len(columns)
    assert (again.offsets == columns.offsets).all()
    assert (again.timestamps == columns.timestamps).all()
    assert bytes(again.build()) == bytes(built), "a rebuilt batch has other bytes"
    return columns


def _agree(rows: list[Row], columns: BatchColumns) -> None:
    """Check that records one by one and as columns are the same."""
    view = memoryview(columns.buffer).cast("B")
    names = ("key_positions", "key_lengths", "value_positions", "value_lengths", "header_counts")
    lists = [getattr(columns, name).tolist() for name in ("offsets", "timestamps", *names)]
    assert len(rows) == len(columns)
    for row, from_lists in zip(rows, zip(*lists, strict=True), strict=True):
        offset, timestamp, key_at, key_size, value_at, value_size, header_count = from_lists
        key = None if key_size < 0 else bytes(view[key_at : key_at + key_size])
        value = None if value_size < 0 else bytes(view[value_at : value_at + value_size])
        assert row == (offset, timestamp, key, value, header_count)


def _recompressed(buffer: bytes, codec: int) -> None:
    try:
        plain = inflate(buffer, budget=BUDGET)
        packed = deflate(plain, codec % 6)
    except KraftError:
        return
    assert len(scan(packed)) == len(scan(plain))
    assert bytes(inflate(packed, budget=BUDGET)) == bytes(inflate(plain, budget=BUDGET))


def _stamped(buffer: bytes) -> None:
    writable = bytearray(buffer)
    try:
        end = assign_offsets(writable, 1000, 3)
    except KraftError:
        assert writable == buffer, "a rejected buffer was changed"
        return
    stamped = scan(writable, verify_crc=False)
    assert set(stamped.partition_leader_epochs.tolist()) <= {3}
    assert len(stamped) == 0 or int(stamped.last_offsets[-1]) + 1 == end
