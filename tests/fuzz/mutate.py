"""Mutations of record batches that get past the CRC and into the records.

A blind mutation of a batch is almost always rejected because of its CRC or its length. Each input
is therefore, chosen at random,

- mutated blindly, which tests the reading of lengths and CRCs,
- mutated blindly and repaired: lengths are limited to the data, magic and CRCs are corrected,
- split into records, of which one is changed, dropped, doubled, moved or replaced by a value that
  Kafka wrote, and joined again, which tests the reading of records.

Pure functions over bytes, a random number generator and the fuzzer's own ``mutate``.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.bytes.batch_records import iterate
from kraft._core.bytes.checksum import crc32c
from kraft.errors import KraftError

Mutate = Callable[[bytes, int], bytes]

_HEADER_SIZE = 61
_CRC_START = 21
_BLIND = 0.3
_RECORDS = 0.4
_CONTROL = 0x20


def mutated(
    data: bytes,
    max_size: int,
    chance: random.Random,
    mutate: Mutate,
    *,
    prefix: int,
    pool: list[bytes],
) -> bytes:
    """Return one mutation of an input whose batches begin after ``prefix`` bytes."""
    kind = chance.random()
    if kind < _BLIND or len(data) <= prefix + _HEADER_SIZE:
        return mutate(data, max_size)
    head, body = bytearray(data[:prefix]), data[prefix:]
    if prefix and chance.random() < 0.1:
        head[chance.randrange(prefix)] = chance.randrange(256)
    room = max_size - prefix
    if kind < _BLIND + _RECORDS:
        changed = _in_records(body, room, chance, mutate, pool)
        if changed is not None:
            return bytes(head) + changed[:room]
    return bytes(head) + mended(mutate(body, room), chance)


def mended(body: bytes, chance: random.Random) -> bytes:
    """Return the bytes with correct lengths, magic and CRCs, batch by batch, as far as possible."""
    content = bytearray(body)
    position = 0
    while position + _HEADER_SIZE <= len(content):
        size = 12 + int.from_bytes(content[position + 8 : position + 12], "big", signed=True)
        if not _HEADER_SIZE <= size <= len(content) - position:
            following = content.find(b"\x02", position + _HEADER_SIZE + 16)
            size = (following - 16 if following > 0 and chance.random() < 0.5 else len(content)) - (
                position if following > 0 else 0
            )
            size = min(max(size, _HEADER_SIZE), len(content) - position)
            struct.pack_into(">i", content, position + 8, size - 12)
        content[position + 16] = 2
        crc = crc32c(bytes(content[position + _CRC_START : position + size]))
        struct.pack_into(">I", content, position + 17, crc)
        position += size
    return bytes(content)


def _in_records(
    body: bytes, room: int, chance: random.Random, mutate: Mutate, pool: list[bytes]
) -> bytes | None:
    """Return the batches with one record or batch changed, or None if they cannot be read."""
    try:
        batches = [
            (
                (batch.attributes & 0x38, batch.base_offset, batch.partition_leader_epoch),
                [(record.key, record.value) for record in batch],
            )
            for batch in iterate(body, verify_crc=False, budget=1 << 16)
        ]
        if not batches or sum(len(values) for _, values in batches) > 2000:
            return None
        _change(batches, chance, mutate, pool)
        return _built(batches, chance, is_dense=chance.random() < 0.9)[:room]
    except (KraftError, OverflowError):
        return None


Batches = list[tuple[tuple[int, int, int], list[tuple[bytes | None, bytes | None]]]]


def _change(batches: Batches, chance: random.Random, mutate: Mutate, pool: list[bytes]) -> None:
    number = chance.randrange(len(batches))
    header, values = batches[number]
    place = chance.randrange(len(values) + 1)
    key, value = values[place] if place < len(values) else (None, None)
    kind = chance.randrange(10)
    if kind <= 3 and value is not None:
        values[place] = (key, mutate(value, len(value) + 64))
    elif kind == 4:
        values.insert(place, (None, chance.choice(pool)))
    elif kind == 5 and len(values) > 1:
        del values[place : place + chance.randrange(1, 4)]
    elif kind == 6 and value is not None:
        values[place:place] = [(key, value)] * chance.randrange(1, 3)
    elif kind == 7 and len(values) > 1:
        other = chance.randrange(len(values))
        values.insert(other, values.pop(min(place, len(values) - 1)))
    elif kind == 8 and place and place < len(values):
        batches[number : number + 1] = [(header, values[:place]), (header, values[place:])]
    elif kind == 9:
        flag = chance.choice((0, 0x08, 0x10, _CONTROL))
        batches[number] = ((header[0] ^ flag, header[1], header[2] + chance.randrange(2)), values)
        if flag == _CONTROL:
            control = bytes((0, 0, 0, chance.randrange(8)))
            values[:] = [(control, each) for _, each in values]
    elif value is not None and len(value) > 8:
        # A part of another record: ids that Kafka wrote, in other places.
        donor = chance.choice(pool)
        start = chance.randrange(len(value))
        piece = donor[chance.randrange(max(len(donor), 1)) :][: chance.randrange(1, 20)]
        values[place] = (key, value[:start] + piece + value[start + len(piece) :])


def _built(batches: Batches, chance: random.Random, *, is_dense: bool) -> bytes:
    out: list[bytes] = []
    offset = batches[0][0][1]
    for (attributes, base_offset, epoch), values in batches:
        builder = BatchBuilder(offset if is_dense else base_offset, epoch, 1000, attributes)
        for key, value in values:
            builder.append(value, key)
        out.append(bytes(builder.finish()))
        offset = builder.next_offset
        if chance.random() < 0.02:
            offset += chance.randrange(1000)
    return b"".join(out)
