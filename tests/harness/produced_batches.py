"""Record batches as producers send them, each field at will: valid, wrong and hostile ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from kraft._core.bytes.compression import CODEC_NAMES, compress
from kraft._core.bytes.crc32c import crc32c

NOW_MS = 1_750_000_000_000
HOUR_MS = 3_600_000
APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = 21


def varint(value: int) -> bytes:
    """Return a zig-zag varint of any width."""
    raw = (value << 1) if value >= 0 else ((-value << 1) - 1)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes((*out, raw))


def _field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


@dataclass
class RawRecord:
    """One record; `offset_delta` None is its place in the batch."""

    timestamp_delta: int = 0
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    offset_delta: int | None = None
    attributes: int = 0

    def encoded(self, place: int) -> bytes:
        delta = place if self.offset_delta is None else self.offset_delta
        body = bytes((self.attributes,)) + varint(self.timestamp_delta) + varint(delta)
        body += _field(self.key) + _field(self.value) + varint(len(self.headers))
        for name, value in self.headers:
            body += varint(len(name)) + name + _field(value)
        return varint(len(body)) + body


@dataclass
class RawBatch:
    """One batch; a field that is None is computed from the records."""

    records: Sequence[RawRecord] = field(default_factory=lambda: [RawRecord()])
    base_offset: int = 0
    length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    attributes: int = 0
    last_offset_delta: int | None = None
    base_timestamp: int = NOW_MS
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None
    codec: int = 0
    #: Bytes after the records, inside the (compressed) payload.
    rest: bytes = b""
    #: The whole payload instead of the records'.
    payload: bytes | None = None

    def encoded(self) -> bytes:
        plain = b"".join(record.encoded(i) for i, record in enumerate(self.records)) + self.rest
        payload = self.payload
        if payload is None:
            payload = compress(self.codec, plain) if self.codec else plain
        latest = self.max_timestamp
        if latest is None:
            deltas = [record.timestamp_delta for record in self.records]
            latest = self.base_timestamp + max(deltas, default=0)
            latest = max(-(2**63), min(latest, 2**63 - 1))
        header = _HEADER.pack(
            self.base_offset,
            _HEADER.size - 12 + len(payload) if self.length is None else self.length,
            self.leader_epoch,
            self.magic,
            0,
            self.attributes | self.codec,
            len(self.records) - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.base_timestamp,
            latest,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(self.records) if self.count is None else self.count,
        )
        whole = bytearray(header + payload)
        crc = crc32c(memoryview(whole)[_AFTER_CRC:]) if self.crc is None else self.crc
        whole[17:21] = crc.to_bytes(4, "big")
        return bytes(whole)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zig-zag varint and the position after it."""
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at


Content = tuple[int, bytes | None, bytes | None, list[tuple[bytes | None, bytes | None]]]


def read_content(batch: bytes) -> list[Content]:
    """Return (timestamp delta, key, value, headers) of a plain batch with any offset deltas."""
    count, at = int.from_bytes(batch[57:61], "big"), _HEADER.size

    def number() -> int:
        nonlocal at
        value, at = read_varint(batch, at)
        return value

    def taken() -> bytes | None:
        nonlocal at
        size = number()
        at += max(size, 0)
        return None if size < 0 else batch[at - size : at]

    rows: list[Content] = []
    for _ in range(count):
        number()
        at += 1
        timestamp = number()
        number()
        key, value = taken(), taken()
        rows.append((timestamp, key, value, [(taken(), taken()) for _ in range(number())]))
    return rows


def sealed(batch: bytes) -> bytes:
    """Return the batch with the CRC of its bytes."""
    return batch[:17] + crc32c(batch[_AFTER_CRC:]).to_bytes(4, "big") + batch[_AFTER_CRC:]


def generated_records(dice: Random, most: int = 12, *, with_keys: bool = False) -> list[RawRecord]:
    """Return valid records with a timestamp near the base timestamp."""
    records = []
    for _ in range(dice.randint(1, most)):
        keyed = with_keys or dice.random() < 0.5
        records.append(
            RawRecord(
                timestamp_delta=dice.choice((0, 0, dice.randrange(-5000, 5000))),
                key=dice.randbytes(dice.choice((0, 1, 8, 70))) if keyed else None,
                value=None
                if dice.random() < 0.1
                else bytes((dice.randrange(256),)) * dice.choice((0, 1, 63, 64, 200, 9000)),
                headers=[
                    (dice.choice((b"", b"a", b"trace-id")), dice.choice((None, b"", b"x" * 20)))
                    for _ in range(dice.choice((0, 0, 1, 3)))
                ],
            )
        )
    return records


def generated_batch(dice: Random, *, with_keys: bool = False) -> RawBatch:
    """Return a valid batch of any codec, of a producer with an id or without."""
    batch = RawBatch(
        generated_records(dice, with_keys=with_keys),
        base_timestamp=NOW_MS - dice.choice((0, 1, 10_000)),
        codec=dice.randrange(len(CODEC_NAMES)),
    )
    if dice.random() < 0.5:
        batch.producer_id = dice.randrange(2**40)
        batch.producer_epoch = dice.randrange(100)
        batch.base_sequence = dice.choice((0, 7, 2**31 - 3))
        if dice.random() < 0.3:
            batch.attributes |= TRANSACTIONAL
    return batch


def with_wrong_field(dice: Random, batch: RawBatch) -> RawBatch:
    """Change one field of a batch, or of one of its records, to a wrong or unusual value."""
    count = len(batch.records)
    record = dice.choice(batch.records)
    choices: list[tuple[str, object]] = [
        ("base_offset", dice.choice((1, -1, 2**40))),
        ("leader_epoch", dice.choice((0, 77, -5))),
        ("magic", dice.choice((0, 1, 3, -1))),
        ("crc", 12345),
        ("length", dice.choice((0, -1, 13, 14, 30, 48, 49, 60, 10**6, 2**31 - 1))),
        ("last_offset_delta", dice.choice((-1, count, count + 5, -(2**31), 2**31 - 1))),
        ("count", dice.choice((0, -1, count + 1, max(0, count - 1), 2**31 - 1))),
        ("max_timestamp", dice.choice((-1, 0, NOW_MS + HOUR_MS + 1, NOW_MS - 1, 2**63 - 1))),
        ("base_timestamp", dice.choice((0, -1, NOW_MS - HOUR_MS, NOW_MS + 2 * HOUR_MS))),
        ("base_timestamp", dice.choice((2**62, 2**63 - 9000, -(2**63) + 9000))),
        ("producer_id", dice.choice((-2, 0, 2**63 - 1))),
        ("base_sequence", dice.choice((-1, -2, 2**31 - 1))),
        ("attributes", dice.choice((APPEND_TIME, CONTROL, HORIZON, TRANSACTIONAL, 0x80, 0x4700))),
        ("rest", dice.choice((b"\0", b"more", RawRecord().encoded(count)))),
    ]
    if batch.codec:
        choices += [("payload", dice.choice((b"", b"\0", b"no compressed bytes at all")))]
    name, value = dice.choice(choices)
    if dice.random() < 0.4:
        choices = [
            ("timestamp_delta", dice.choice((-2 * HOUR_MS, 2 * HOUR_MS, 2**40, -NOW_MS - 1))),
            ("offset_delta", dice.choice((0, 1, count, -1, 2**31 - 1))),
            ("attributes", 1),
            ("key", None),
        ]
        record_name, record_value = dice.choice(choices)
        setattr(record, record_name, record_value)
        return batch
    setattr(batch, name, value)
    return batch


def mutated(dice: Random, data: bytes) -> bytes:
    """Return the bytes with a few changes, mostly with a right CRC afterwards."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 5))):
        kind = dice.randrange(4)
        at = dice.randrange(len(changed)) if changed else 0
        if kind == 0 and changed:
            changed[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            changed[at:at] = dice.randbytes(dice.randrange(1, 4))
        elif kind == 2:
            del changed[at : at + dice.randrange(1, 4)]
        elif changed:
            changed[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
    if len(changed) > 61 and dice.random() < 0.8:
        changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
        return sealed(bytes(changed))
    return bytes(changed)
