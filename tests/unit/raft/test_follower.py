"""A follower: fetches, truncations, its requests, and responses that it ignores."""

from typing import Any

import pytest

from kraft._core.bytes.batch import ATTRIBUTE_CONTROL, BatchBuilder
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.raft.interface import (
    AppendBatches,
    RequestFailed,
    Role,
    SendRequest,
    TruncateLog,
)
from kraft.raft.rpc import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode
from kraft.records.batches import encode_control_records
from tests.harness.raft_nodes import (
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
    static,
    unattached,
)

# -- records


def test_a_fetch_names_the_log_end_and_the_high_watermark() -> None:
    request = fetch_of(follower()).request
    assert request == FetchRequest("cluster", key(1), EPOCH, 6, 2, 500, 8 << 20, -1)


def test_fetched_records_are_appended_and_committed() -> None:
    node = follower()
    fetched(node, answer(records=batch(6, EPOCH, b"a", b"b"), high_watermark=100))
    assert [type(write) for write in node.written] == [AppendBatches]
    assert (node.node.log.end_offset, node.node.log.high_watermark) == (8, 8)
    assert fetch_of(node).request.offset == 8


def test_an_unknown_high_watermark_changes_nothing() -> None:
    node = follower()
    fetched(node, answer(high_watermark=6))
    fetched(node, answer(high_watermark=-1))
    assert node.node.log.high_watermark == 6


def test_batches_of_a_later_epoch_are_left_for_a_later_fetch() -> None:
    """KAFKA-18723: the leader's log may have changed while the response was in flight."""
    node = follower()
    records = batch(6, EPOCH) + batch(7, EPOCH + 1)
    fetched(node, answer(records=records))
    assert node.node.log.end_offset == 7
    assert bytes(node.written[0].batches) == batch(6, EPOCH)  # type: ignore[union-attr]


def corrupt(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


def batch_with(field: slice, value: int, *, signed: bool = True) -> bytes:
    """Return a batch with one header field changed and a matching CRC."""
    from kraft._core.bytes.checksum import crc32c

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
def test_a_batch_that_does_not_continue_the_log_is_fetched_again(records: bytes) -> None:
    """After a damaged response the node backs off; its log is unchanged (KAFKA-18723)."""
    node = follower()
    fetched(node, answer(records=records))
    assert node.written == []
    assert (node.node.log.end_offset, node.role) == (6, Role.FOLLOWER)
    # The node asks a bootstrap server; after its failure and the backoff, the leader again.
    for send in node.requests(FetchRequest):
        node.step(RequestFailed(send.correlation))
    node.wait(20)
    assert {send.request.offset for send in node.requests(FetchRequest)} == {6}


def test_valid_batches_before_a_damaged_one_are_kept() -> None:
    node = follower()
    fetched(node, answer(records=batch(6, EPOCH) + corrupt(batch(7, EPOCH), 70)))
    assert node.node.log.end_offset == 7


@pytest.mark.parametrize(
    "diverging",
    [EpochEndOffset(-1, 3), EpochEndOffset(2, -1), EpochEndOffset(-5, -5)],
)
def test_an_invalid_diverging_epoch_truncates_nothing(diverging: EpochEndOffset) -> None:
    node = follower()
    fetched(node, answer(diverging_epoch=diverging))
    assert node.written == []
    assert node.node.log.end_offset == 6


def test_a_response_to_an_older_log_end_is_ignored() -> None:
    node = follower()
    send = fetch_of(node)
    node.node.truncate_log(4)
    node.step()
    node.reply(send, answer(records=batch(6, EPOCH)))
    assert node.node.log.end_offset == 4


# -- truncations


@pytest.mark.parametrize(
    ("diverging", "end_offset"),
    [
        (EpochEndOffset(2, 5), 5),  # The leader's epoch 2 ended earlier.
        (EpochEndOffset(2, 9), 6),  # This node's epoch 2 ended earlier: the leader has all of it.
        (EpochEndOffset(1, 3), 3),
        (EpochEndOffset(1, 4), 4),  # The leader has no record of epoch 2.
        (EpochEndOffset(0, 0), 0),
    ],
)
def test_the_log_is_truncated_to_the_common_end(diverging: EpochEndOffset, end_offset: int) -> None:
    node = follower()
    fetched(node, answer(diverging_epoch=diverging))
    assert node.node.log.end_offset == end_offset
    assert node.written == ([TruncateLog(end_offset)] if end_offset < 6 else [])
    assert fetch_of(node).request.offset == end_offset


def test_an_unknown_epoch_ends_with_the_epoch_before_it() -> None:
    node = follower(log=((1, 4), (3, 6)))
    fetched(node, answer(diverging_epoch=EpochEndOffset(2, 5)))
    assert (node.node.log.end_offset, node.node.log.last_epoch) == (4, 1)


def test_committed_records_are_never_truncated() -> None:
    node = follower()
    fetched(node, answer(high_watermark=6))
    with pytest.raises(AssertionError, match="below high watermark 6"):
        fetched(node, answer(diverging_epoch=EpochEndOffset(2, 5)))


def test_a_truncation_restores_the_voters_before() -> None:
    node = follower(voters=dynamic(1, 2), kraft_version=1)
    record = encode_control_records([dynamic(1, 2, 3).to_record()], base_offset=6, epoch=EPOCH)
    fetched(node, answer(records=bytes(record)))
    assert node.node.voters.ids == {1, 2, 3}
    fetched(node, answer(diverging_epoch=EpochEndOffset(2, 6)))
    assert node.node.voters.ids == {1, 2}


# -- finding the leader


def test_a_new_leader_is_fetched_from_although_a_request_is_in_flight() -> None:
    """A change of role clears the connections; a silent server once cost the fetch timeout."""
    node = unattached()
    (send,) = node.requests(FetchRequest)
    assert send.destination == 3, "the silent server"
    node.ask(BeginQuorumEpochRequest("cluster", EPOCH, 2, key(1), (endpoint(2),)))
    assert fetch_of(node).destination == 2


def test_the_leader_that_a_response_names_is_fetched_from_at_once() -> None:
    node = unattached()
    (send,) = node.requests(FetchRequest)
    node.reply(send, FetchResponse(74, EPOCH + 1, 3, (endpoint(3),)))
    assert (node.role, node.node.epoch) == (Role.FOLLOWER, EPOCH + 1)
    assert fetch_of(node).destination == 3


def test_a_bootstrap_server_that_knows_no_leader_is_not_asked_during_the_backoff() -> None:
    node = unattached()
    (send,) = node.requests(FetchRequest)
    node.reply(send, FetchResponse(6, EPOCH, -1))
    assert fetch_of(node).destination == 2
    node.reply(fetch_of(node), FetchResponse(6, EPOCH, -1))
    assert node.requests() == []
    node.wait(20)
    assert len(node.requests()) == 1


def test_bootstrap_servers_are_asked_when_the_leader_fails() -> None:
    node = follower()
    node.step(RequestFailed(fetch_of(node).correlation))
    assert fetch_of(node).destination == 3


def test_a_leader_without_an_endpoint_is_not_followed() -> None:
    """The node adopts only the epoch."""
    node = unattached()
    node.ask(BeginQuorumEpochRequest("cluster", EPOCH + 1, 9, key(1)))
    assert (node.role, node.node.epoch) == (Role.UNATTACHED, EPOCH + 1)


@pytest.mark.parametrize("leads", [False, True])
def test_a_request_that_names_another_leader_of_the_epoch_is_rejected(leads: bool) -> None:
    """Any client can send such a request; the node keeps its role, epoch and leader."""
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


def test_a_response_that_names_another_leader_of_the_epoch_is_ignored() -> None:
    """The node backs off before its next request to the leader, and asks another server."""
    node = follower()
    node.reply(fetch_of(node), FetchResponse(6, EPOCH, 3, (endpoint(3),)))
    assert (node.role, node.node.epoch, node.node.leader_id) == (Role.FOLLOWER, EPOCH, 2)
    assert fetch_of(node).destination != 2


@pytest.mark.parametrize("epoch", [(1 << 31) - 1, (1 << 31) - 1000])
def test_the_highest_possible_epoch_is_ignored(epoch: int) -> None:
    """If a node adopted it, the quorum would soon run out of epochs for elections."""
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


def test_a_response_of_an_old_epoch_changes_nothing() -> None:
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
        ((), 0),  # A restarted leader names no candidates: all voters begin at once.
        ((key(3), key(1)), 500),
        ((key(3), key(4), key(1), key(5), key(6)), 124),
        ((key(3), key(4), key(5), key(6), key(1)), 496),
        ((key(3),), 1000),
        ((key(1, 7), key(3)), 1000),  # The same id with another directory.
    ],
)
def test_preferred_candidates_begin_one_after_the_other(
    candidates: tuple[ReplicaKey, ...], wait_ms: int
) -> None:
    node = follower(has_fetched=True)
    assert node.ask(end_epoch(*candidates)).error == 0
    if wait_ms:
        node.wait(wait_ms - 1)
        assert node.role is Role.FOLLOWER
        node.wait(1)
    assert node.role is Role.PROSPECTIVE


def test_a_late_candidate_waits_longer_than_its_own_timer() -> None:
    """EndQuorumEpoch may also prolong the timer, so that better candidates win."""
    node = follower(has_fetched=True)
    node.wait(1900)
    node.ask(end_epoch(key(3)))
    node.wait(500)
    assert node.role is Role.FOLLOWER


def pre_vote(candidate: ReplicaKey, last_offset: int = 6) -> VoteRequest:
    """Return a pre-vote of a log that ends at this offset; this node's log ends at 6."""
    return VoteRequest("cluster", EPOCH, candidate, key(1), 2, last_offset, True)


def test_a_follower_grants_the_pre_vote_of_a_candidate_that_stands_before_it() -> None:
    """KAFKA-20895: else the best candidate waits for an election and then a fetch timeout."""
    node = follower(has_fetched=True)
    assert not node.ask(pre_vote(key(3))).is_granted
    node.ask(end_epoch(key(3), key(1)))
    assert node.ask(pre_vote(key(3))).is_granted
    assert not node.ask(pre_vote(key(3), last_offset=5)).is_granted
    assert node.role is Role.FOLLOWER


@pytest.mark.parametrize(
    "candidates",
    [
        (key(3), key(1), key(4)),
        (key(3), key(1)),
        (key(3), key(1), key(4, 7)),  # The same id with another directory.
    ],
)
def test_a_follower_rejects_the_pre_vote_of_a_later_candidate_until_its_own_turn(
    candidates: tuple[ReplicaKey, ...],
) -> None:
    node = follower(has_fetched=True, voters=static(1, 2, 3, 4))
    node.ask(end_epoch(*candidates))
    wait_ms = 1000 >> (len(candidates) - 1)
    node.wait(wait_ms - 1)
    assert not node.ask(pre_vote(key(4))).is_granted
    node.wait(1)
    assert node.role is Role.PROSPECTIVE
    assert node.ask(pre_vote(key(4))).is_granted


def test_a_follower_that_the_resigned_leader_does_not_name_grants_only_named_candidates() -> None:
    node = follower(has_fetched=True, voters=static(1, 2, 3, 4))
    node.ask(end_epoch(key(3)))
    assert node.ask(pre_vote(key(3))).is_granted
    assert not node.ask(pre_vote(key(4))).is_granted


def test_a_candidate_is_known_by_its_id_where_a_directory_is_unknown() -> None:
    node = follower(has_fetched=True)
    node.ask(end_epoch(ReplicaKey(3), ReplicaKey(1)))
    assert node.ask(pre_vote(key(3))).is_granted
    node = follower(has_fetched=True)
    node.ask(end_epoch(key(3), key(1)))
    assert node.ask(pre_vote(ReplicaKey(3))).is_granted


def test_a_late_response_of_a_resigned_leader_does_not_restart_the_fetch_timer() -> None:
    node = follower(has_fetched=True)
    fetch = fetch_of(node)
    node.ask(end_epoch(key(3), key(1)))
    node.wait(100)
    node.reply(fetch, answer(high_watermark=6))
    assert node.node.log.high_watermark == 6
    node.wait(399)
    assert node.role is Role.FOLLOWER
    node.wait(1)
    assert node.role is Role.PROSPECTIVE


def test_a_leader_that_answers_later_fetches_has_not_resigned() -> None:
    """Any client can send EndQuorumEpoch in its name: one such message disrupts only once."""
    node = follower(has_fetched=True)
    fetch = fetch_of(node)
    node.ask(end_epoch(key(3), key(1)))
    node.reply(fetch, answer())
    fetched(node, answer())
    assert not node.ask(pre_vote(key(3))).is_granted
    node.wait(1999)
    assert node.role is Role.FOLLOWER


def test_a_candidate_that_lost_follows_a_leader_that_has_not_resigned() -> None:
    node = follower(has_fetched=True)
    node.ask(end_epoch(key(1), key(3)))
    node.answer_votes(is_granted=False)
    fetched(node, answer())
    assert not node.ask(pre_vote(key(3))).is_granted
    assert not node.ask(pre_vote(key(3), last_offset=5)).is_granted
    assert node.role is Role.FOLLOWER


def test_a_candidate_that_lost_stands_again_when_a_voter_with_a_shorter_log_stands() -> None:
    """The voter rejected while it followed the leader: EndQuorumEpoch had not reached it."""
    node = follower(has_fetched=True)
    node.ask(end_epoch(key(1), key(3)))
    node.answer_votes(is_granted=False)
    assert node.role is Role.FOLLOWER
    assert not node.ask(pre_vote(key(3), last_offset=5)).is_granted
    assert node.role is Role.PROSPECTIVE
    assert 3 in [send.destination for send in node.requests(VoteRequest)]


def test_a_follower_waits_for_its_turn_when_a_better_candidate_has_a_shorter_log() -> None:
    """Several voters that stand at once can split the votes."""
    node = follower(has_fetched=True)
    node.ask(end_epoch(key(3), key(1)))
    assert not node.ask(pre_vote(key(3), last_offset=5)).is_granted
    node.wait(499)
    assert node.role is Role.FOLLOWER


def test_a_removed_voter_that_lost_does_not_stand_at_once_again() -> None:
    """It names an earlier log end than its own: both could reject each other without a pause."""
    node = follower(has_fetched=True, voters=dynamic(1, 2, 3), kraft_version=1)
    record = encode_control_records([dynamic(2, 3).to_record()], base_offset=6, epoch=EPOCH)
    fetched(node, answer(records=bytes(record)))
    assert not node.node.is_voter
    node.ask(end_epoch(key(1), key(3)))
    node.answer_votes(is_granted=False)
    assert node.role is not Role.PROSPECTIVE
    assert not node.ask(pre_vote(key(3))).is_granted
    assert node.role is not Role.PROSPECTIVE


def test_a_rejected_candidate_follows_the_old_leader_and_grants_others() -> None:
    node = follower(has_fetched=True)
    node.ask(end_epoch(key(1)))
    node.answer_votes(is_granted=False)
    assert (node.role, node.node.leader_id) == (Role.FOLLOWER, 2)
    assert node.ask(VoteRequest("cluster", EPOCH, key(3), key(1), 2, 6, True)).is_granted
    node.wait(1999)
    assert node.role is Role.FOLLOWER


# -- updates of its leader


def update_of(node: Driver) -> SendRequest:
    (send,) = node.requests(UpdateRaftVoterRequest)
    return send


def period(node: Driver, **given: Any) -> Driver:
    """Wait one update-voter period in which the leader answers fetches."""
    for _ in range(4):
        node.now_ms += 500
        fetched(node, answer(high_watermark=0))
    return node


def test_a_static_voter_sends_each_leader_its_versions_once() -> None:
    node = period(follower())
    assert update_of(node).request == UpdateRaftVoterRequest(
        "cluster", EPOCH, key(1), (endpoint(1),), KRaftVersionRange(0, 1)
    )
    node.reply(update_of(node), UpdateRaftVoterResponse(0, EPOCH, 2, (endpoint(2),)))
    assert period(node).requests(UpdateRaftVoterRequest) == []


def test_a_voter_repeats_its_update_if_the_leader_was_not_ready() -> None:
    node = period(follower())
    node.reply(update_of(node), UpdateRaftVoterResponse(7, EPOCH, 2, (endpoint(2),)))
    assert update_of(period(node))


def test_no_update_is_sent_to_a_leader_that_does_not_support_it() -> None:
    node = period(follower())
    node.step(RequestFailed(update_of(node).correlation, is_unsupported=True))
    for send in node.requests():
        node.step(RequestFailed(send.correlation))
    node.wait(20)
    assert period(node).requests(UpdateRaftVoterRequest) == []


def test_a_dynamic_voter_sends_an_update_only_if_its_data_differ() -> None:
    node = period(follower(voters=dynamic(1, 2, 3), kraft_version=1))
    assert node.requests(UpdateRaftVoterRequest) == []
    moved = follower(voters=dynamic(1, 2, 3), kraft_version=1, endpoints=(endpoint(11),))
    assert update_of(period(moved)).request.endpoints == (endpoint(11),)  # type: ignore[union-attr]


def test_another_order_of_endpoints_needs_no_update() -> None:
    """A Kafka leader writes endpoints in a map's order: each update would append a record."""
    other = Endpoint("OTHER", "host1", 9101)
    listed = VoterNode(key(1), (other, endpoint(1)), KRaftVersionRange(0, 1))
    node = follower(
        voters=dynamic(2, 3).with_voter(listed), kraft_version=1, endpoints=(endpoint(1), other)
    )
    assert period(node).requests(UpdateRaftVoterRequest) == []


def test_a_successful_update_restarts_the_fetch_timer() -> None:
    node = period(follower())
    node.now_ms += 1900
    node.reply(update_of(node), UpdateRaftVoterResponse(0, EPOCH, 2, (endpoint(2),)))
    node.wait(1900)
    assert node.role is Role.FOLLOWER
