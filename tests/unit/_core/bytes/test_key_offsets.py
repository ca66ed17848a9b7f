"""The map of keys of a compaction: hashes, offsets, and what happens when it is full."""

from __future__ import annotations

import pytest

from kraft._core.bytes.key_offsets import KeyOffsets, key_hash
from kraft.errors import CorruptRecordError
from tests.harness.produced_batches import CONTROL, RawBatch, RawRecord

SECRET = bytes(range(16))


def batch(*keys: bytes | None, base: int = 0, codec: int = 0, attributes: int = 0) -> bytes:
    return RawBatch(
        [RawRecord(key=key) for key in keys], base_offset=base, codec=codec, attributes=attributes
    ).encoded()


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        # The first of the reference's vectors: the message is 00 01 02 ...
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
    ],
)
def test_keys_are_hashed_by_siphash_128(size: int, digest: str) -> None:
    assert key_hash(bytes(range(size)), SECRET).hex() == digest


def test_hashes_depend_on_every_byte_and_on_the_size() -> None:
    keys = [b"", b"\0", b"\0\0", bytes(7), bytes(8), bytes(9), bytes(16), b"a" * 7, b"a" * 8]
    keys += [bytes(at) + b"\1" + bytes(20 - at) for at in range(21)]
    assert len({key_hash(key, SECRET) for key in keys}) == len(keys)
    assert key_hash(b"a", SECRET) != key_hash(b"a", bytes(16))


@pytest.mark.parametrize("codec", range(5))
def test_the_last_offset_of_a_key_counts(codec: int) -> None:
    offsets = KeyOffsets(1 << 16)
    assert offsets.get(b"a") == -1
    assert not offsets.add(batch(b"a", b"b", b"a", None, b"", codec=codec), 0)
    assert [offsets.get(key) for key in (b"a", b"b", b"", b"c")] == [2, 1, 4, -1]
    assert not offsets.add(batch(b"b", b"c", base=9, codec=codec), 0)
    assert [offsets.get(key) for key in (b"a", b"b", b"c")] == [2, 9, 10]
    assert (len(offsets), offsets.latest_offset) == (4, 10)
    offsets.clear()
    assert (len(offsets), offsets.latest_offset, offsets.get(b"a")) == (0, -1, -1)


def test_records_before_the_first_offset_are_left_out() -> None:
    offsets = KeyOffsets(1 << 16)
    offsets.add(batch(b"a", b"b", b"c") + batch(b"d", base=3), 2)
    assert [offsets.get(key) for key in (b"a", b"b", b"c", b"d")] == [-1, -1, 2, 3]
    early = KeyOffsets(1 << 16)
    early.add(batch(b"a", b"b"), 7)
    assert (len(early), early.latest_offset) == (0, -1)
    early.reach(9)
    early.reach(5)
    assert early.latest_offset == 9


def test_control_and_aborted_batches_have_no_keys() -> None:
    offsets = KeyOffsets(1 << 16)
    data = batch(b"a") + batch(b"b", base=1) + batch(b"c", base=2, attributes=CONTROL)
    offsets.add(data, 0, skipped=b"\1\0\0")
    assert [offsets.get(key) for key in (b"a", b"b", b"c")] == [-1, 1, -1]
    assert offsets.latest_offset == 2


def test_a_map_may_become_full_within_a_batch() -> None:
    offsets = KeyOffsets(24 * 10)
    keys = [b"%d" % number for number in range(12)]
    assert offsets.add(batch(*keys[:5]) + batch(*keys[5:], base=5), 0)
    assert (len(offsets), offsets.latest_offset) == (9, 8)
    offsets.clear()
    assert not offsets.add(batch(*keys, base=0), 8)
    assert [offsets.get(key) for key in keys[7:]] == [-1, 8, 9, 10, 11]


def test_a_full_map_has_all_keys_of_the_batches_before() -> None:
    offsets = KeyOffsets(24 * 10)
    assert offsets.slot_count == 10
    keys = [b"%d" % number for number in range(12)]
    data = b"".join(batch(key, base=base) for base, key in enumerate(keys))
    assert offsets.add(data, 0)
    assert len(offsets) == 9
    assert offsets.latest_offset == 8
    assert [offsets.get(key) for key in keys] == [*range(9), -1, -1, -1]


def test_many_keys_share_few_slots() -> None:
    offsets = KeyOffsets(24 * 2_000)
    for start in range(0, 1_800, 100):
        keys = [b"%d" % number for number in range(start, start + 100)]
        assert not offsets.add(batch(*keys, base=start), 0)
    assert all(offsets.get(b"%d" % number) == number for number in range(1_800))
    assert not any(offsets.get(b"%d" % number) >= 0 for number in range(1_800, 2_000))


def test_damage_is_rejected() -> None:
    whole = batch(b"a", b"b")
    for data in (whole[:-1], whole[:30], bytes(70)):
        with pytest.raises(CorruptRecordError):
            KeyOffsets(1 << 16).add(data, 0)
    record = bytearray(whole)
    record[61] = 0x7F
    with pytest.raises(CorruptRecordError, match="a record is malformed"):
        KeyOffsets(1 << 16).add(record, 0)


def test_a_map_needs_room_and_a_secret() -> None:
    with pytest.raises(ValueError, match="no room"):
        KeyOffsets(24)
    with pytest.raises(ValueError, match="secret"):
        KeyOffsets(1 << 16, secret=b"short")
    with pytest.raises(ValueError, match="secret"):
        key_hash(b"a", b"short")
