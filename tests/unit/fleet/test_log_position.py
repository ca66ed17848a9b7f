"""Where a light broker's copy of the metadata log ends, over commits and truncations."""

from __future__ import annotations

import pytest

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.errors import CorruptRecordError
from kraft.fleet.log_position import LogPosition


def position_at(end_offset: int, *epochs: tuple[int, int], committed: int = 0) -> LogPosition:
    position = LogPosition()
    position.append(end_offset, list(epochs))
    position.commit(committed)
    return position


def test_an_empty_log_fetches_offset_0_in_epoch_0() -> None:
    position = LogPosition()
    assert (position.end_offset, position.last_epoch, position.committed_offset) == (0, 0, 0)


def test_only_fetched_records_are_committed() -> None:
    position = position_at(10, (1, 0))
    assert position.commit(25)
    assert position.committed_offset == 10
    position.append(30, [(1, 10)])
    assert position.committed_offset == 25
    assert not position.commit(20)
    assert position.committed_offset == 25


def test_a_diverging_log_is_cut_where_the_leaders_epoch_ends() -> None:
    position = position_at(30, (1, 0), (4, 20), committed=15)
    position.truncate(EpochEndOffset(4, 24))
    assert (position.end_offset, position.last_epoch) == (24, 4)


def test_records_of_an_epoch_that_the_leader_does_not_know_are_dropped() -> None:
    position = position_at(30, (1, 0), (4, 20), committed=15)
    position.truncate(EpochEndOffset(2, 28))
    assert (position.end_offset, position.last_epoch) == (20, 1)


def test_a_leader_that_lacks_a_committed_record_is_rejected() -> None:
    position = position_at(30, (1, 0), committed=25)
    with pytest.raises(CorruptRecordError, match="below the committed offset 25"):
        position.truncate(EpochEndOffset(1, 24))


def test_a_restarted_broker_keeps_its_log_and_learns_the_high_watermark_again() -> None:
    position = position_at(30, (1, 0), committed=25)
    position.restart()
    assert (position.end_offset, position.committed_offset) == (30, 0)
    assert position.commit(26)


def test_a_broker_may_begin_with_the_committed_log_of_another() -> None:
    """Records behind the high watermark are fetched: another may still need their bytes."""
    first = position_at(30, (1, 0), (4, 20), committed=15)
    copy = first.committed_copy()
    assert (copy.end_offset, copy.last_epoch, copy.committed_offset) == (15, 1, 15)
    copy.append(40, [(5, 15)])
    assert (first.end_offset, first.last_epoch) == (30, 4)
    assert (copy.end_offset, copy.last_epoch, copy.committed_offset) == (40, 5, 15)


def test_records_whose_bytes_are_gone_are_fetched_again() -> None:
    position = position_at(30, (1, 0), (4, 20), committed=15)
    position.cut(20)
    assert (position.end_offset, position.last_epoch) == (20, 1)


def test_a_log_begins_behind_its_snapshot() -> None:
    position = LogPosition()
    position.begin_at(100, 3)
    assert (position.end_offset, position.last_epoch, position.committed_offset) == (100, 3, 100)


def test_a_log_is_caught_up_once_it_has_all_that_is_committed() -> None:
    log = LogPosition()
    assert not log.is_caught_up
    log.append(10, [(1, 0)])
    assert not log.is_caught_up
    log.commit(12)
    assert not log.is_caught_up
    log.append(12, [])
    assert log.is_caught_up
    log.restart()
    assert not log.is_caught_up


def test_a_log_is_not_caught_up_by_a_snapshot_alone() -> None:
    """The leader may have committed 173,000 records behind its snapshot by the time that an
    observer has downloaded it.
    """
    log = LogPosition()
    log.begin_at(100, 3)
    assert not log.is_caught_up
    log.commit(112)
    assert not log.is_caught_up
    log.append(112, [(3, 100)])
    assert log.is_caught_up
    log.restart()
    assert (log.is_caught_up, log.committed_offset) == (False, 100)
