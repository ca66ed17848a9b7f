"""Read the metadata of a quorum from a simulated leader that serves files recorded from Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kraft
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft._core.log.log import Log
from kraft.errors import (
    FENCED_LEADER_EPOCH,
    SNAPSHOT_NOT_FOUND,
    CorruptRecordError,
    KraftError,
)
from kraft.metadata import quorum_observer
from kraft.metadata.facade import Metadata
from kraft.metadata.quorum_reader import metadata_requests
from kraft.network.quorum_client import QuorumRefusedError, QuorumUnreachableError
from kraft.raft import rpc as m

DATA = Path(__file__).parents[2] / "data"
CONTROLLER = DATA / "kafka-4.3" / "controller-101"
TRANSACTION = DATA / "kafka-4.3-transaction" / "controller-201-open"
LOG = "__cluster_metadata-0"
EPOCH = 9
PART = 5000


class RecordedLeader:
    """A leader that answers requests from the recorded log and snapshot in ``directory``.

    A test sets ``before`` to return other responses.
    """

    def __init__(self, directory: Path, *, has_snapshot: bool = True) -> None:
        self.log = Log.open(directory / LOG, read_only=True)
        files = sorted((directory / LOG).glob("*.checkpoint"))
        self.snapshot = files[-1].read_bytes() if has_snapshot else b""
        self.snapshot_id = m.OffsetAndEpoch(*map(int, files[-1].stem.split("-")))
        self.high_watermark = self.log.log_end_offset
        #: How many bytes of the next batch follow the last whole batch of a response.
        self.rest = 0
        self.asked: list[m.Request] = []
        self.before: Callable[[m.Request], m.Response | None] = lambda request: None

    def answer(self, request: m.Request) -> m.Response:
        self.asked.append(request)
        answer = self.before(request)
        if answer is not None:
            return answer
        if isinstance(request, m.DescribeQuorumRequest):
            return m.DescribeQuorumResponse(0, EPOCH, 1, (), self.high_watermark)
        if isinstance(request, m.FetchSnapshotRequest):
            data = self.snapshot[request.position : request.position + PART]
            size = len(self.snapshot)
            return m.FetchSnapshotResponse(
                0, EPOCH, 1, (), self.snapshot_id, size, request.position, data
            )
        assert isinstance(request, m.FetchRequest)
        assert (request.replica.id, request.epoch, request.cluster_id) == (-1, EPOCH, None)
        response = m.FetchResponse(0, EPOCH, 1, (), self.high_watermark, 0)
        if request.offset == 0 and self.snapshot:
            response.snapshot_id = self.snapshot_id
        else:
            size = len(self.log.fetch(request.offset, PART))
            response.records = bytes(self.log.fetch(request.offset, 1 << 30)[: size + self.rest])
        return response


def read(leader: RecordedLeader, seen: list[float] | None = None) -> Metadata:
    reading = metadata_requests(None if seen is None else seen.append)
    request = next(reading)
    while True:
        try:
            request = reading.send(
                leader.answer(request) if isinstance(request, m.Request) else None
            )
        except StopIteration as end:
            return Metadata(end.value)


def assert_recorded(read_state: Metadata, directory: Path, at: int | None = None) -> None:
    expected = kraft.open_metadata(directory, at=at)
    assert read_state.next_offset == expected.next_offset
    assert not list(kraft.diff(expected, read_state))
    assert read_state.epoch == expected.epoch


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_the_state_is_that_of_the_files(has_snapshot: bool) -> None:
    seen: list[float] = []
    leader = RecordedLeader(CONTROLLER, has_snapshot=has_snapshot)
    assert_recorded(read(leader, seen), CONTROLLER)
    assert seen[-1] == 1.0
    assert all(0 < fraction <= 1 for fraction in seen)
    kinds = [type(request) for request in leader.asked]
    assert (m.FetchSnapshotRequest in kinds) == has_snapshot
    # A user of the library can change the state and revert it.
    state = read(leader)
    first = state.apply(state.fence_broker(1))
    state.revert(first)
    assert_recorded(state, CONTROLLER)


def test_uncommitted_records_are_not_applied() -> None:
    leader = RecordedLeader(CONTROLLER)
    leader.high_watermark = 1936
    batches = list(leader.log.batches(1936))
    assert batches[0].base_offset == 1936, "the high watermark is between two batches"
    assert_recorded(read(leader), CONTROLLER, at=1936)


@pytest.mark.parametrize("rest", [5, 20, 100])
def test_a_batch_that_the_leader_cuts_short_is_fetched_again(rest: int) -> None:
    """Kafka's leader fills its responses to the byte limit, also with a part of a batch."""
    leader = RecordedLeader(CONTROLLER)
    leader.rest = rest
    assert_recorded(read(leader), CONTROLLER)


def test_an_open_transaction_is_not_part_of_the_state() -> None:
    leader = RecordedLeader(TRANSACTION, has_snapshot=False)
    state = read(leader)
    assert_recorded(state, TRANSACTION)
    assert state.cluster.dropped_transaction is not None


def test_another_leader_continues_where_the_first_one_ended() -> None:
    leader = RecordedLeader(CONTROLLER)
    failures = iter([*[None] * 7, FENCED_LEADER_EPOCH])

    def fails(request: m.Request) -> m.Response | None:
        error = next(failures, None)
        return None if error is None else m.FetchResponse(error, EPOCH, 1)

    leader.before = fails
    assert_recorded(read(leader), CONTROLLER)
    kinds = [type(request) for request in leader.asked]
    assert kinds.count(m.DescribeQuorumRequest) == 2
    # No part of the snapshot is downloaded twice.
    positions = [each.position for each in leader.asked if isinstance(each, m.FetchSnapshotRequest)]
    assert len(set(positions)) == len(positions)


def test_a_deleted_snapshot_is_replaced_by_the_next() -> None:
    leader = RecordedLeader(CONTROLLER)
    gone = iter([None, None, None, SNAPSHOT_NOT_FOUND])

    def fails(request: m.Request) -> m.Response | None:
        error = next(gone, None)
        return None if error is None else m.FetchSnapshotResponse(error, EPOCH, 1)

    leader.before = fails
    assert_recorded(read(leader), CONTROLLER)


def test_a_quorum_that_commits_nothing_is_an_error() -> None:
    leader = RecordedLeader(CONTROLLER)
    leader.high_watermark = -1
    with pytest.raises(QuorumUnreachableError, match="committed nothing"):
        read(leader)
    assert len(leader.asked) < 200


def answered(
    leader: RecordedLeader, kind: type[m.Request], change: Callable[[m.Response], object]
) -> None:
    """Change the leader's responses to requests of this type."""

    def before(request: m.Request) -> m.Response | None:
        if not isinstance(request, kind):
            return None
        leader.before = lambda request: None
        response = leader.answer(request)
        leader.before = before
        change(response)
        return response

    leader.before = before


def test_false_responses_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupt(response: m.Response) -> None:
        assert isinstance(response, m.FetchResponse)
        assert isinstance(response.records, bytes)
        if response.records:
            damaged = bytearray(response.records)
            damaged[70] ^= 1
            response.records = bytes(damaged)

    def empty(response: m.Response) -> None:
        assert isinstance(response, m.FetchSnapshotResponse)
        response.data = b""

    def elsewhere(response: m.Response) -> None:
        assert isinstance(response, m.FetchSnapshotResponse)
        response.position += 1

    def shorter(response: m.Response) -> None:
        assert isinstance(response, m.FetchSnapshotResponse)
        response.size -= 1

    def diverging(response: m.Response) -> None:
        assert isinstance(response, m.FetchResponse)
        response.diverging_epoch = EpochEndOffset(1, 3)

    def noise(response: m.Response) -> None:
        assert isinstance(response, m.FetchResponse)
        response.records = b"\xff" * 100

    snapshot, fetch = m.FetchSnapshotRequest, m.FetchRequest
    for kind, change in ((fetch, corrupt), (snapshot, empty), (snapshot, elsewhere),
                         (snapshot, shorter), (fetch, diverging)):  # fmt: skip
        leader = RecordedLeader(CONTROLLER)
        answered(leader, kind, change)
        with pytest.raises(CorruptRecordError):
            read(leader)
    leader = RecordedLeader(CONTROLLER, has_snapshot=False)
    answered(leader, fetch, noise)
    with pytest.raises(CorruptRecordError, match="begin with no batch"):
        read(leader)
    leader = RecordedLeader(CONTROLLER)
    answered(leader, fetch, lambda response: setattr(response, "error", 31))
    with pytest.raises(QuorumRefusedError, match="CLUSTER_AUTHORIZATION_FAILED"):
        read(leader)
    monkeypatch.setattr(quorum_observer, "MAX_SNAPSHOT_BYTES", 1000)
    with pytest.raises(KraftError, match="at most 1000 are read"):
        read(RecordedLeader(CONTROLLER))
