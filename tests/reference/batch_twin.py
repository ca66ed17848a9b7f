"""Slow reference implementation of record batches v2: dataclasses, one value at a time.

For the property tests of ``kraft._core.bytes.batch``, ``batch_records`` and ``batch_columns``, with
which it shares no code; the CRC is computed byte by byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

HEADER = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == 61


class TwinError(Exception):
    """The bytes are not a valid batch."""


@dataclass
class TwinRecord:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    attributes: int = 0


@dataclass
class TwinBatch:
    base_offset: int
    partition_leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: list[TwinRecord]


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def zigzag(value: int) -> int:
    return value * 2 if value >= 0 else -value * 2 - 1


def uvarint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def varint(value: int) -> bytes:
    return uvarint(zigzag(value))


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: TwinRecord, batch: TwinBatch) -> bytes:
    body = struct.pack(">b", record.attributes)
    body += varint(record.timestamp_ms - batch.base_timestamp)
    body += varint(record.offset - batch.base_offset)
    body += sized(record.key) + sized(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += sized(name) + sized(value)
    return varint(len(body)) + body


def encode(batch: TwinBatch) -> bytes:
    records = b"".join(encode_record(record, batch) for record in batch.records)
    covered = struct.pack(
        ">hiqqqhii",
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(batch.records),
    )
    covered += records
    return (
        struct.pack(
            ">qiibI",
            batch.base_offset,
            9 + len(covered),
            batch.partition_leader_epoch,
            2,
            crc32c(covered),
        )
        + covered
    )


class TwinReader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.data) - self.at:
            raise TwinError("cut short")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int) -> int:
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits + 6:
                raise TwinError("a varint that does not end")
        if raw >= 1 << bits:
            raise TwinError("a varint too large")
        return (raw >> 1) ^ -(raw & 1)

    def sized(self) -> bytes | None:
        size = self.varint(32)
        if size < -1:
            raise TwinError("negative size")
        return None if size == -1 else self.take(size)


def wrapped(value: int) -> int:
    """Wrap an integer to signed 64 bits (two's complement)."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def decode_records(data: bytes, batch: TwinBatch, count: int) -> list[TwinRecord]:
    records = []
    reader = TwinReader(data)
    previous = -1
    for _ in range(count):
        inner = TwinReader(reader.take(reader.varint(32)))
        (attributes,) = struct.unpack(">b", inner.take(1))
        timestamp = wrapped(batch.base_timestamp + inner.varint(64))
        delta = inner.varint(32)
        if not previous < delta <= batch.last_offset_delta:
            raise TwinError("offset delta out of order")
        previous = delta
        key, value = inner.sized(), inner.sized()
        headers = []
        header_count = inner.varint(32)
        if header_count < 0:
            raise TwinError("negative count")
        for _ in range(header_count):
            name = inner.sized()
            if name is None:
                raise TwinError("a header without a name")
            headers.append((name, inner.sized()))
        if inner.at != len(inner.data):
            raise TwinError("bytes left over in a record")
        records.append(
            TwinRecord(batch.base_offset + delta, timestamp, key, value, headers, attributes)
        )
    if reader.at != len(data):
        raise TwinError("bytes left over in a batch")
    return records


def decode(data: bytes) -> list[TwinBatch]:
    batches = []
    at = 0
    while at < len(data):
        if len(data) - at < HEADER.size:
            raise TwinError("a header cut short")
        fields = HEADER.unpack_from(data, at)
        base_offset, length, epoch, magic, crc, attributes, last_delta = fields[:7]
        end = at + 12 + length
        if length < 49 or end > len(data) or magic != 2:
            raise TwinError("no whole batch of magic 2")
        count = fields[12]
        if count < 0 or base_offset < 0 or last_delta < max(count - 1, 0):
            raise TwinError("offsets")
        if base_offset + last_delta + 1 >= 1 << 63:
            raise TwinError("offsets past 64 bits")
        if attributes & 7:
            raise TwinError("the twin reads no codecs")
        if crc32c(data[at + 21 : end]) != crc:
            raise TwinError("crc")
        batch = TwinBatch(base_offset, epoch, attributes, last_delta, *fields[7:12], records=[])
        batch.records = decode_records(data[at + 61 : end], batch, count)
        batches.append(batch)
        at = end
    return batches
