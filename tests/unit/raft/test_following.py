"""A follower: what it fetches and cuts, whom it asks, and which answers it does not believe."""

from typing import Any

import pytest

from kraft._core.batch import ATTRIBUTE_CONTROL, BatchBuilder
from kraft._core.epoch_cache import EpochEndOffset
from kraft.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
)
from kraft.raft.ready import (
    AppendBatches,
    RequestFailed,
    Role,
    SendRequest,
    TruncateLog,
)
from kraft.raft.voters import Endpoint, ReplicaKey, VersionRange, Voter
from kraft.records.batches import encode_control_records
from tests.unit.raft.nodes import (
    EPOCH,
    Driver,
    answer,
    batch,
    dynamic,
    endpoint,
    fetch_of,
    fetched,
    follower,
    key,
    leader,
    unattached,
)

# -- records


def test_a_fetch_says_where_the_log_ends_and_what_is_committed() -> None:
    request = fetch_of(follower()).request
    assert request == FetchRequest("cluster", key(1), EPOCH, 6, 2, 500, 8 << 20, -1)


def test_records_are_appended_and_committed_as_far_as_they_are_there() -> None:
    node = follower()
    fetched(node, answer(records=batch(6, EPOCH, b"a", b"b"), high_watermark=100))
    assert [type(write) for write in node.written] == [AppendBatches]
    assert (node.node.log.end_offset, node.node.log.high_watermark) == (8, 8)
    assert fetch_of(node).request.offset == 8


def test_a_leader_that_knows_no_high_watermark_changes_none() -> None:
    node = follower()
    fetched(node, answer(high_watermark=6))
    fetched(node, answer(high_watermark=-1))
    assert node.node.log.high_watermark == 6


def test_batches_of_a_later_epoch_are_left_for_a_later_fetch() -> None:
    """KAFKA-18723: a leader's log may have moved on while the answer was under way."""
    node = follower()
    records = batch(6, EPOCH) + batch(7, EPOCH + 1)
    fetched(node, answer(records=records))
    assert node.node.log.end_offset == 7
    assert bytes(node.written[0].batches) == batch(6, EPOCH)  # type: ignore[union-attr]


def corrupt(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


def batch_with(field: slice, value: int, *, signed: bool = True) -> bytes:
    """A batch with one header field changed, and a CRC that fits."""
    from kraft._core.checksum import crc32c

    data = bytearray(batch(6, EPOCH))
    data[field] = value.to_bytes(field.stop - field.start, "big", signed=signed)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def control_batch(key_type: int, value: bytes) -> bytes:
    builder = BatchBuilder(6, EPOCH, 0, ATTRIBUTE_CONTROL)
    builder.append(value, key=b"\0\0" + key_type.to_bytes(2, "big"))
    return bytes(builder.finish())


@pytest.mark.parametrize(
    "records",
    [
        corrupt(batch(6, EPOCH), 70),
        corrupt(batch(6, EPOCH), 8),
        batch(6, EPOCH)[:-1],
        batch(6, EPOCH)[:20],
        b"\0",
        b"\xff" * 100,
        batch(7, EPOCH),
        batch(5, EPOCH),
        batch(6, 1),
        batch(6, EPOCH + 1),
        batch_with(slice(23, 27), -1),
        batch_with(slice(23, 27), (1 << 31) - 1),
        batch_with(slice(57, 61), 0),
        control_batch(6, b"\0\0\xff\xff"),
        control_batch(6, b""),
        control_batch(5, b"\0\0"),
        control_batch(5, b"\0\x63\0\1"),
    ],
    ids=[
        "flipped bit",
        "flipped length",
        "cut short",
        "header only",
        "a byte",
        "noise",
        "a gap",
        "an overlap",
        "an earlier epoch",
        "a later epoch",
        "no records by its delta",
        "more records than offsets",
        "no records by its count",
        "voters that are none",
        "empty voters",
        "cut kraft.version",
        "unknown record version",
    ],
)
def test_what_is_not_the_next_batch_is_asked_for_again(records: bytes) -> None:
    """A damaged answer costs a backoff; neither the log nor the node takes harm (KAFKA-18723)."""
    node = follower()
    fetched(node, answer(records=records))
    assert node.written == []
    assert (node.node.log.end_offset, node.role) == (6, Role.FOLLOWER)
    # A server is asked meanwhile, and then the leader again.
    for send in node.requests(FetchRequest):
        node.step(RequestFailed(send.correlation))
    node.wait(20)
    assert {send.request.offset for send in node.requests(FetchRequest)} == {6}


def test_the_sound_batches_before_a_damaged_one_are_kept() -> None:
    node = follower()
    fetched(node, answer(records=batch(6, EPOCH) + corrupt(batch(7, EPOCH), 70)))
    assert node.node.log.end_offset == 7


@pytest.mark.parametrize(
    "diverging",
    [EpochEndOffset(-1, 3), EpochEndOffset(2, -1), EpochEndOffset(-5, -5)],
)
def test_a_diverging_epoch_that_is_none_cuts_nothing(diverging: EpochEndOffset) -> None:
    node = follower()
    fetched(node, answer(diverging_epoch=diverging))
    assert node.written == []
    assert node.node.log.end_offset == 6


def test_an_answer_to_an_older_state_of_the_log_is_passed_over() -> None:
    node = follower()
    send = fetch_of(node)
    node.node.truncate_log(4)
    node.step()
    node.reply(send, answer(records=batch(6, EPOCH)))
    assert node.node.log.end_offset == 4


# -- cutting


@pytest.mark.parametrize(
    ("diverging", "end_offset"),
    [
        (EpochEndOffset(2, 5), 5),  # The leader's epoch 2 ended earlier.
        (EpochEndOffset(2, 9), 6),  # Ours did: nothing of it is foreign.
        (EpochEndOffset(1, 3), 3),
        (EpochEndOffset(1, 4), 4),  # The leader has nothing of epoch 2.
        (EpochEndOffset(0, 0), 0),
    ],
)
def test_the_log_is_cut_to_the_common_end(diverging: EpochEndOffset, end_offset: int) -> None:
    node = follower()
    fetched(node, answer(diverging_epoch=diverging))
    assert node.node.log.end_offset == end_offset
    assert node.written == ([TruncateLog(end_offset)] if end_offset < 6 else [])
    assert fetch_of(node).request.offset == end_offset


def test_an_epoch_that_this_log_does_not_know_ends_with_the_one_before_it() -> None:
    node = follower(log=((1, 4), (3, 6)))
    fetched(node, answer(diverging_epoch=EpochEndOffset(2, 5)))
    assert (node.node.log.end_offset, node.node.log.last_epoch) == (4, 1)


def test_committed_records_are_never_cut() -> None:
    node = follower()
    fetched(node, answer(high_watermark=6))
    with pytest.raises(AssertionError, match="below high watermark 6"):
        fetched(node, answer(diverging_epoch=EpochEndOffset(2, 5)))


def test_voters_that_were_cut_off_no_longer_vote() -> None:
    node = follower(voters=dynamic(1, 2), kraft_version=1)
    record = encode_control_records([dynamic(1, 2, 3).to_record()], base_offset=6, epoch=EPOCH)
    fetched(node, answer(records=bytes(record)))
    assert node.node.voters.ids == {1, 2, 3}
    fetched(node, answer(diverging_epoch=EpochEndOffset(2, 6)))
    assert node.node.voters.ids == {1, 2}


# -- the leader, or who else knows of one


def test_the_next_leader_is_asked_at_once_though_another_owes_an_answer() -> None:
    """A server that never answers cost the fetch timeout: connections begin anew with a role."""
    node = unattached()
    (send,) = node.requests(FetchRequest)
    assert send.destination == 3, "a server that is silent"
    node.ask(BeginQuorumEpochRequest("cluster", EPOCH, 2, key(1), (endpoint(2),)))
    assert fetch_of(node).destination == 2


def test_the_leader_that_an_answer_names_is_asked_at_once() -> None:
    node = unattached()
    (send,) = node.requests(FetchRequest)
    node.reply(send, FetchResponse(74, EPOCH + 1, 3, (endpoint(3),)))
    assert (node.role, node.node.epoch) == (Role.FOLLOWER, EPOCH + 1)
    assert fetch_of(node).destination == 3


def test_a_server_that_knows_no_more_is_left_alone_for_a_while() -> None:
    node = unattached()
    (send,) = node.requests(FetchRequest)
    node.reply(send, FetchResponse(6, EPOCH, -1))
    assert fetch_of(node).destination == 2
    node.reply(fetch_of(node), FetchResponse(6, EPOCH, -1))
    assert node.requests() == []
    node.wait(20)
    assert len(node.requests()) == 1


def test_a_leader_that_fails_is_sought_elsewhere() -> None:
    node = follower()
    node.step(RequestFailed(fetch_of(node).correlation))
    assert fetch_of(node).destination == 3


def test_a_leader_without_an_endpoint_is_not_followed() -> None:
    """Nobody could fetch from it; the epoch counts."""
    node = unattached()
    node.ask(BeginQuorumEpochRequest("cluster", EPOCH + 1, 9, key(1)))
    assert (node.role, node.node.epoch) == (Role.UNATTACHED, EPOCH + 1)


@pytest.mark.parametrize("leads", [False, True])
def test_a_request_that_names_another_leader_of_the_epoch_is_refused(leads: bool) -> None:
    """Anybody can send one: the node lives on as it was."""
    node = leader() if leads else follower()
    epoch, leader_id = node.node.epoch, node.node.leader_id
    before = (node.role, epoch, leader_id)
    for request in (
        BeginQuorumEpochRequest("cluster", epoch, 3, key(1), (endpoint(3),)),
        EndQuorumEpochRequest("cluster", epoch, 3, (), (endpoint(3),)),
    ):
        refusal = node.ask(request)
        assert (refusal.error, refusal.epoch, refusal.leader_id) == (42, epoch, leader_id)
        assert (node.role, node.node.epoch, node.node.leader_id) == before


def test_an_answer_that_names_another_leader_of_the_epoch_is_not_believed() -> None:
    """Nor is it asked again at once."""
    node = follower()
    node.reply(fetch_of(node), FetchResponse(6, EPOCH, 3, (endpoint(3),)))
    assert (node.role, node.node.epoch, node.node.leader_id) == (Role.FOLLOWER, EPOCH, 2)
    assert fetch_of(node).destination != 2


@pytest.mark.parametrize("epoch", [(1 << 31) - 1, (1 << 31) - 1000])
def test_an_epoch_that_leaves_no_room_for_elections_is_not_believed(epoch: int) -> None:
    """It would be written down, and the quorum could never elect again."""
    node = follower()
    fetch = fetch_of(node)
    for request in (
        BeginQuorumEpochRequest("cluster", epoch, 3, key(1), (endpoint(3),)),
        EndQuorumEpochRequest("cluster", epoch, 3, (), (endpoint(3),)),
        VoteRequest("cluster", epoch, key(3), key(1), EPOCH, 100),
        VoteRequest("cluster", epoch, key(3), key(1), EPOCH, 100, True),
    ):
        assert node.ask(request).error == 42
        assert (node.role, node.node.epoch, node.node.leader_id) == (Role.FOLLOWER, EPOCH, 2)
    node.reply(fetch, FetchResponse(74, epoch, 3, (endpoint(3),)))
    assert (node.role, node.node.epoch, node.node.leader_id) == (Role.FOLLOWER, EPOCH, 2)


def test_the_last_epochs_are_reached_one_by_one() -> None:
    epoch = (1 << 31) - 5
    node = follower(epoch)
    request = BeginQuorumEpochRequest("cluster", epoch + 1, 3, key(1), (endpoint(3),))
    assert node.ask(request).error == 0
    assert (node.node.epoch, node.node.leader_id) == (epoch + 1, 3)


def test_an_answer_of_an_old_epoch_changes_nothing() -> None:
    node = follower()
    fetched(node, FetchResponse(0, EPOCH - 1, 3, high_watermark=6, records=batch(6, 2)))
    assert (node.node.log.end_offset, node.node.log.high_watermark) == (6, -1)


# -- handover


def end_epoch(*candidates: ReplicaKey) -> EndQuorumEpochRequest:
    return EndQuorumEpochRequest("cluster", EPOCH, 2, candidates, (endpoint(2),))


@pytest.mark.parametrize(
    ("candidates", "wait_ms"),
    [
        ((key(1), key(3)), 0),
        ((ReplicaKey(1), key(3)), 0),
        ((), 0),  # A restarted leader does not know who is best: all begin.
        ((key(3), key(1)), 500),
        ((key(3), key(4), key(1), key(5), key(6)), 124),
        ((key(3), key(4), key(5), key(6), key(1)), 496),
        ((key(3),), 1000),
        ((key(1, 7), key(3)), 1000),  # The id, but another directory.
    ],
)
def test_successors_begin_one_after_the_other(
    candidates: tuple[ReplicaKey, ...], wait_ms: int
) -> None:
    node = follower(has_fetched=True)
    assert node.ask(end_epoch(*candidates)).error == 0
    if wait_ms:
        node.wait(wait_ms - 1)
        assert node.role is Role.FOLLOWER
        node.wait(1)
    assert node.role is Role.PROSPECTIVE


def test_who_is_far_back_waits_longer_than_its_own_timer() -> None:
    """The timer is set, not only shortened: the better placed are to win."""
    node = follower(has_fetched=True)
    node.wait(1900)
    node.ask(end_epoch(key(3)))
    node.wait(500)
    assert node.role is Role.FOLLOWER


def test_a_refused_successor_falls_back_to_the_old_leader_and_grants_others() -> None:
    node = follower(has_fetched=True)
    node.ask(end_epoch(key(1)))
    node.answer_votes(is_granted=False)
    assert (node.role, node.node.leader_id) == (Role.FOLLOWER, 2)
    assert node.ask(VoteRequest("cluster", EPOCH, key(3), key(1), 2, 6, True)).is_granted
    node.wait(1999)
    assert node.role is Role.FOLLOWER


# -- what it says of itself


def update_of(node: Driver) -> SendRequest:
    (send,) = node.requests(UpdateRaftVoterRequest)
    return send


def period(node: Driver, **given: Any) -> Driver:
    """One update-voter period goes by, in which the leader answers fetches."""
    for _ in range(4):
        node.now_ms += 500
        fetched(node, answer(high_watermark=0))
    return node


def test_a_static_voter_tells_each_leader_once_what_it_supports() -> None:
    node = period(follower())
    assert update_of(node).request == UpdateRaftVoterRequest(
        "cluster", EPOCH, key(1), (endpoint(1),), VersionRange(0, 1)
    )
    node.reply(update_of(node), UpdateRaftVoterResponse(0, EPOCH, 2, (endpoint(2),)))
    assert period(node).requests(UpdateRaftVoterRequest) == []


def test_it_tells_again_where_the_leader_was_not_ready() -> None:
    node = period(follower())
    node.reply(update_of(node), UpdateRaftVoterResponse(7, EPOCH, 2, (endpoint(2),)))
    assert update_of(period(node))


def test_a_leader_that_does_not_know_the_request_is_not_told_again() -> None:
    node = period(follower())
    node.step(RequestFailed(update_of(node).correlation, is_unsupported=True))
    for send in node.requests():
        node.step(RequestFailed(send.correlation))
    node.wait(20)
    assert period(node).requests(UpdateRaftVoterRequest) == []


def test_a_voter_of_the_log_tells_only_what_differs() -> None:
    node = period(follower(voters=dynamic(1, 2, 3), kraft_version=1))
    assert node.requests(UpdateRaftVoterRequest) == []
    moved = follower(voters=dynamic(1, 2, 3), kraft_version=1, endpoints=(endpoint(11),))
    assert update_of(period(moved)).request.endpoints == (endpoint(11),)  # type: ignore[union-attr]


def test_another_order_of_endpoints_is_no_news() -> None:
    """A Kafka leader writes them as its map has them, and would write them anew each time."""
    other = Endpoint("OTHER", "host1", 9101)
    listed = Voter(key(1), (other, endpoint(1)), VersionRange(0, 1))
    node = follower(
        voters=dynamic(2, 3).with_voter(listed), kraft_version=1, endpoints=(endpoint(1), other)
    )
    assert period(node).requests(UpdateRaftVoterRequest) == []


def test_an_update_that_was_taken_is_a_sign_of_life() -> None:
    node = period(follower())
    node.now_ms += 1900
    node.reply(update_of(node), UpdateRaftVoterResponse(0, EPOCH, 2, (endpoint(2),)))
    node.wait(1900)
    assert node.role is Role.FOLLOWER
