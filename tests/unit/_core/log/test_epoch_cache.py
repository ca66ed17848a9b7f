"""Leader epochs: their start and end offsets, and their checkpoint file."""

from __future__ import annotations

import pytest

from kraft._core.log.epoch_cache import EpochCache, EpochEndOffset
from kraft.errors import CorruptRecordError


@pytest.fixture
def cache() -> EpochCache:
    return EpochCache([(1, 10), (3, 20), (4, 35)])


def test_the_end_of_an_epoch_is_the_start_of_the_next(cache: EpochCache) -> None:
    assert cache.end_offset_for(1, 50) == EpochEndOffset(1, 20)
    assert cache.end_offset_for(3, 50) == EpochEndOffset(3, 35)
    assert cache.end_offset_for(4, 50) == EpochEndOffset(4, 50)


def test_an_epoch_without_records_ends_where_the_one_before_it_ends(cache: EpochCache) -> None:
    assert cache.end_offset_for(2, 50) == EpochEndOffset(1, 20)


def test_an_epoch_below_the_first_ends_where_the_log_begins(cache: EpochCache) -> None:
    assert cache.end_offset_for(0, 50) == EpochEndOffset(0, 10)


def test_an_unknown_or_undefined_epoch_has_no_end(cache: EpochCache) -> None:
    assert cache.end_offset_for(5, 50) is None
    assert cache.end_offset_for(-1, 50) is None
    assert EpochCache().end_offset_for(0, 0) is None


def test_the_epoch_of_an_offset(cache: EpochCache) -> None:
    assert [cache.epoch_at(offset) for offset in (9, 10, 19, 20, 34, 35, 99)] == [
        *(-1, 1, 1, 3, 3, 4, 4)
    ]


def test_cutting_the_end_drops_epochs_that_begin_there(cache: EpochCache) -> None:
    cache.truncate_from_end(35)
    assert cache.entries == [(1, 10), (3, 20)]
    cache.truncate_from_end(15)
    assert cache.entries == [(1, 10)]


def test_cutting_the_start_moves_the_epoch_that_spans_it(cache: EpochCache) -> None:
    cache.truncate_from_start(25)
    assert cache.entries == [(3, 25), (4, 35)]
    cache.truncate_from_start(5)
    assert cache.entries == [(3, 25), (4, 35)]
    cache.truncate_from_start(35)
    assert cache.entries == [(4, 35)]


def test_a_new_epoch_drops_what_contradicts_it(cache: EpochCache) -> None:
    cache.assign(4, 30)
    assert cache.entries == [(1, 10), (3, 20), (4, 30)]
    cache.assign(6, 20)
    assert cache.entries == [(1, 10), (6, 20)]


def test_the_file_is_kafkas_text_and_reads_back(cache: EpochCache) -> None:
    assert cache.to_bytes() == b"0\n3\n1 10\n3 20\n4 35\n"
    assert EpochCache.from_bytes(cache.to_bytes()).entries == cache.entries
    assert EpochCache.from_bytes(b"").entries == []
    assert EpochCache.from_bytes(b"0\n0\n").entries == []


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n2\n1 10\n", b"0\n1\n1 ten\n", b"0\n1\n1 2 3\n", b"\xff\n0\n"]
)
def test_a_malformed_file_is_rejected(content: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        EpochCache.from_bytes(content)
