"""CRC-32C by the CPU's instruction: as the ``crc32c`` package's at every size and position."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c as expected

from kraft._core.bytes.crc32c import crc32c

#: Around no byte, a word of 8 bytes, and one and two blocks of three lanes.
SIZES = (*range(20), *range(3060, 3090), *range(6130, 6160), 100_003)


def test_the_known_value_of_the_digits() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("offset", range(9))
def test_every_size_at_every_alignment_gives_the_checksum_of_the_package(offset: int) -> None:
    data = random.Random(offset).randbytes(max(SIZES) + offset)
    for size in SIZES:
        part = memoryview(data)[offset : offset + size]
        assert crc32c(part) == expected(part), size


def test_a_flipped_bit_in_any_lane_changes_the_checksum() -> None:
    data = bytearray(random.Random(1).randbytes(5000))
    sound = crc32c(data)
    for at in range(0, len(data), 97):
        data[at] ^= 1 << at % 8
        assert crc32c(data) != sound, at
        data[at] ^= 1 << at % 8
