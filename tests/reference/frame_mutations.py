"""Mutations of request frames: what a hostile or broken client may send on one connection.

Each mutation returns the bytes of a whole connection, usually with the size field repaired, because
a wrong size alone hides everything behind it. Pure functions over bytes and a random state.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

#: The bytes of a frame before the client id: size, API key, version, correlation id.
_HEADER = 12
_EXTREMES_32 = (0x7FFFFFFF, -1, -2, 0x7FFFFF, 0x10000, -0x80000000)
_EXTREMES_16 = (0x7FFF, -1, -2, 0x4000, -0x8000)
_SIZES = (-1, -0x80000000, 0x7FFFFFFF, 100 * 1024 * 1024 + 1, 0, 1, 9, 10, 0x7FFFFF)
#: Varints: too long, the largest, above 32 and 64 bits, 2^31-1 as a compact length, and null.
_VARINTS = (
    b"\xff" * 10,
    b"\xff" * 9 + b"\x01",
    b"\x80" * 9 + b"\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x08",
    b"\x80\x00",
    b"\x00",
)
#: Sections of tagged fields in the place of an empty one: duplicate, descending, oversized.
_TAGS = (
    b"\x02\x00\x01a\x00\x01a",
    b"\x02\x05\x01a\x05\x01a",
    b"\x02\x05\x01a\x03\x01a",
    b"\x01\x05\xff\xff\xff\xff\x07",
    b"\x01\xff\xff\xff\xff\x0f\x00",
    b"\xff\xff\xff\xff\x07",
    b"\x01\x00\x00",
    b"\x01\x01\x00",
)

Mutation = Callable[[bytes, random.Random, list[bytes]], bytes]


def sized(content: bytes) -> bytes:
    """Return a frame with the size of its content."""
    return struct.pack(">i", len(content)) + content


def mutated_stream(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """Return the bytes of one connection, made of this frame and at times of other frames."""
    stream = frame
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        stream = chance.choice(MUTATIONS)(stream, chance, others)
    return stream


def _place(frame: bytes, chance: random.Random, size: int = 1) -> int:
    """Return a position behind the fixed part of the header, if the frame is long enough."""
    first = _HEADER if len(frame) > _HEADER + size else 0
    return chance.randrange(first, max(len(frame) - size, first) + 1)


def _replaced(frame: bytes, at: int, size: int, new: bytes) -> bytes:
    return sized((frame[:at] + new + frame[at + size :])[4:])


def flip_bits(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    changed = bytearray(frame)
    for _ in range(chance.choice((1, 1, 2, 8))):
        changed[min(_place(frame, chance), len(frame) - 1)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def truncate(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    return sized(frame[4 : _place(frame, chance)])


def end_early(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """Cut the frame without a change of its size: the connection ends within it."""
    return frame[: max(_place(frame, chance), 1)]


def extend(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    return sized(frame[4:] + chance.randbytes(chance.choice((1, 4, 100))))


def extreme_int32(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    new = struct.pack(">i", chance.choice(_EXTREMES_32))
    return _replaced(frame, _place(frame, chance, 4), 4, new)


def extreme_int16(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    new = struct.pack(">h", chance.choice(_EXTREMES_16))
    return _replaced(frame, _place(frame, chance, 2), 2, new)


def varint(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    return _replaced(frame, _place(frame, chance), 1, chance.choice(_VARINTS))


def tags(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """Replace an empty section of tagged fields, of the body's end or of any zero byte."""
    zeros = [at for at in range(_HEADER, len(frame)) if frame[at] == 0] or [len(frame)]
    at = chance.choice((zeros[-1], chance.choice(zeros)))
    return _replaced(frame, at, 1, chance.choice(_TAGS))


def api_key(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    new = struct.pack(">h", chance.choice((-1, 0, 3, 4, 60, 71, 95, 0x7FFF, chance.randrange(95))))
    return frame[:4] + new + frame[6:]


def version(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    new = struct.pack(">h", chance.choice((-1, 0, 1, 2, 3, 5, 7, 9, 12, 19, 0x7FFF)))
    return frame[:6] + new + frame[8:]


def correlation(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    return frame[:8] + chance.randbytes(4) + frame[12:]


def frame_size(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    size = chance.choice((*_SIZES, len(frame) - 5, len(frame) - 3))
    return struct.pack(">i", size) + frame[4:]


def repeat_part(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    at = _place(frame, chance)
    part = frame[at : at + chance.choice((1, 2, 4, 16, 60))]
    return _replaced(frame, at, 0, part * chance.choice((1, 2, 50)))


def remove_part(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    return _replaced(frame, _place(frame, chance), chance.choice((1, 2, 4, 16)), b"")


def splice(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    other = chance.choice(others)
    return sized((frame[: _place(frame, chance)] + other[_place(other, chance) :])[4:])


def pipeline(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """Send other requests before and behind, without reading an answer."""
    before = b"".join(chance.choices(others, k=chance.choice((0, 1, 5))))
    return before + frame + b"".join(chance.choices(others, k=chance.choice((1, 3, 10))))


def garbage(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    return chance.choice(
        (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01", chance.randbytes(80))
    )


MUTATIONS: tuple[Mutation, ...] = (
    *(flip_bits, truncate, end_early, extend, extreme_int32, extreme_int16, varint, tags),
    *(api_key, version, correlation, frame_size, repeat_part, remove_part, splice, pipeline),
    *(garbage, flip_bits, extreme_int32, varint),
)
