"""The log view of a node, compared with a simple model (the twin) that stores every record."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kraft.errors import CorruptRecordError
from kraft.raft.log_view import LogView
from kraft.raft.rpc import OffsetAndEpoch
from kraft.records import control
from kraft.records.batches import encode_control_records
from tests.harness.raft_nodes import dynamic, static
from tests.reference.log_view_twin import LogViewTwin


class LogViewBesideItsTwin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.view = LogView(static_voters=static(1, 2, 3))
        self.twin = LogViewTwin(frozenset({1, 2, 3}))

    @rule(count=st.integers(1, 5), later=st.integers(0, 2))
    def append(self, count: int, later: int) -> None:
        epoch = max(1, self.twin.last_epoch + later)
        self.view.append(self.view.end_offset, self.view.end_offset + count, epoch)
        self.twin.append(count, epoch)

    @rule(ids=st.sets(st.integers(1, 9), min_size=1, max_size=5))
    def append_voters(self, ids: set[int]) -> None:
        epoch, offset = max(1, self.twin.last_epoch), self.view.end_offset
        record = dynamic(*ids).to_record()
        self.view.append(offset, offset + 1, epoch)
        self.view.replay_control_batch(
            encode_control_records([record], base_offset=offset, epoch=epoch)
        )
        self.twin.append(1, epoch)
        self.twin.append_voters(offset, frozenset(ids))

    def floor(self) -> int:
        """Return the lowest offset to which a truncation is allowed."""
        snapshots = [offset for offset, _ in self.twin.snapshots]
        return max(self.twin.high_watermark, self.twin.start_offset, *snapshots, 0)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        end_offset = self.floor() + round(part * (self.twin.end_offset - self.floor()))
        self.view.truncate(end_offset)
        self.twin.truncate(end_offset)

    @rule(below=st.integers(1, 9))
    def truncate_too_much(self, below: int) -> None:
        with pytest.raises(AssertionError, match="truncation to"):
            self.view.truncate(self.floor() - below)

    @rule(part=st.floats(0, 1))
    def commit(self, part: float) -> None:
        floor = self.floor()
        self.view.high_watermark = floor + round(part * (self.twin.end_offset - floor))
        self.twin.high_watermark = self.view.high_watermark

    @precondition(lambda self: self.twin.high_watermark > self.twin.start_offset)
    @rule()
    def snapshot(self) -> None:
        self.view.add_snapshot(OffsetAndEpoch(*self.twin.snapshot()), 100)

    @precondition(lambda self: self.twin.snapshots)
    @rule(which=st.integers(0, 9), before=st.integers(0, 3))
    def clean(self, which: int, before: int) -> None:
        earliest = self.twin.snapshots[which % len(self.twin.snapshots)]
        start_offset = max(self.twin.start_offset, earliest[0] - before)
        self.view.clean(start_offset, OffsetAndEpoch(*earliest))
        self.twin.clean(start_offset, earliest)

    @rule(ahead=st.integers(1, 5), later=st.integers(0, 2))
    def begin_at(self, ahead: int, later: int) -> None:
        id = (self.twin.end_offset + ahead, max(1, self.twin.last_epoch + later))
        self.view.begin_at(OffsetAndEpoch(*id), 100)
        self.view.load_snapshot_voters(dynamic(7), 1)
        self.twin.begin_at(*id)
        self.twin.voter_sets = [(-1, frozenset({7}))]

    @invariant()
    def agrees(self) -> None:
        view, twin = self.view, self.twin
        assert (view.start_offset, view.end_offset) == (twin.start_offset, twin.end_offset)
        assert list(view.snapshots) == twin.snapshots
        assert view.voters.ids == twin.voters
        assert view.last_epoch == twin.last_epoch
        if twin.epochs:
            assert view.epochs.entries == twin.epoch_starts()
            for epoch in range(twin.epochs[-1] + 2):
                assert tuple(view.end_offset_for_epoch(epoch)) == twin.end_offset_for_epoch(epoch)


TestLogViewBesideItsTwin = LogViewBesideItsTwin.TestCase
TestLogViewBesideItsTwin.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_batches_follow_each_other() -> None:
    log = LogView()
    log.append(0, 3, 1)
    for base_offset, end_offset, epoch in ((2, 4, 1), (4, 5, 1), (3, 3, 1), (3, 4, 0)):
        with pytest.raises(AssertionError):
            log.append(base_offset, end_offset, epoch)


def test_a_snapshot_holds_committed_records_only() -> None:
    log = LogView()
    log.append(0, 3, 1)
    log.high_watermark = 2
    with pytest.raises(AssertionError):
        log.add_snapshot(OffsetAndEpoch(3, 1), 10)


def test_the_log_starts_at_or_before_a_snapshot() -> None:
    log = LogView()
    log.append(0, 5, 1)
    log.high_watermark = 5
    log.add_snapshot(OffsetAndEpoch(3, 1), 10)
    for start_offset, earliest in ((4, OffsetAndEpoch(3, 1)), (2, OffsetAndEpoch(2, 1))):
        with pytest.raises(AssertionError):
            log.clean(start_offset, earliest)
    assert (log.start_offset, list(log.snapshots)) == (0, [OffsetAndEpoch(3, 1)])


def test_records_of_a_snapshot_are_not_truncated_after_a_restart() -> None:
    """No high watermark is known then, but the records of a snapshot are committed."""
    log = LogView(snapshots={OffsetAndEpoch(3, 1): 10})
    log.append(0, 5, 1)
    with pytest.raises(AssertionError, match="or below 3, which a snapshot covers"):
        log.truncate(2)
    log.truncate(3)


def test_a_truncation_undoes_kraft_version() -> None:
    log = LogView(static_voters=static(1))
    log.append(0, 1, 1)
    records = [control.KRaftVersion(kraft_version=1), dynamic(1).to_record()]
    log.append(1, 3, 1)
    log.replay_control_batch(encode_control_records(records, base_offset=1, epoch=1))
    assert (log.kraft_version, log.voters, log.voters_offset) == (1, dynamic(1), 2)
    assert not log.is_voters_committed()
    log.high_watermark = 0
    log.truncate(2)
    assert (log.kraft_version, log.voters) == (1, static(1))
    log.truncate(1)
    assert log.kraft_version == 0


def test_the_removal_of_a_voter_is_found_until_it_is_committed() -> None:
    log = LogView(snapshots={OffsetAndEpoch(0, 0): 10})
    log.load_snapshot_voters(dynamic(1, 2, 3), 1)
    log.append(0, 2, 1)
    removal = encode_control_records([dynamic(2, 3).to_record()], base_offset=2, epoch=4)
    log.append(2, 3, 4)
    log.replay_control_batch(removal)
    log.append(3, 4, 5)
    gone, *others = (voter.key for voter in dynamic(1, 2, 3))
    assert log.removal_offset(gone) == 2
    assert [log.removal_offset(key) for key in others] == [None, None]
    assert log.end_before(2) == OffsetAndEpoch(2, 1)
    assert log.end_before(0) == OffsetAndEpoch(0, 0)
    # A later record with the same voters does not hide the removal.
    again = encode_control_records([dynamic(2, 3).to_record()], base_offset=4, epoch=5)
    log.append(4, 5, 5)
    log.replay_control_batch(again)
    assert log.removal_offset(gone) == 2
    log.high_watermark = 5
    assert log.removal_offset(gone) is None


def test_a_malformed_control_record_is_found_before_any_is_applied() -> None:
    damaged = bytearray(encode_control_records([dynamic(1).to_record()], epoch=1))
    with pytest.raises(CorruptRecordError):
        LogView.check_control_batches([memoryview(bytes(damaged[:-4]))])
