"""SyncGroup, Heartbeat and LeaveGroup: `GroupMetadataManager` of Kafka 4.3."""

from __future__ import annotations

from kraft.broker.groups.records import GroupMetadataValue
from kraft.errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    NOT_ENOUGH_REPLICAS,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from kraft.protocol.heartbeat import HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import JoinGroupResponseData
from kraft.protocol.leave_group import LeaveGroupRequestData, LeaveGroupResponseData, LeavingMember
from kraft.protocol.sync_group import (
    SyncGroupRequestAssignment,
    SyncGroupRequestData,
    SyncGroupResponseData,
)
from tests.harness.group_requests import join
from tests.unit.broker.groups.driving import Driver


def completing_group(driver: Driver, count: int = 2) -> tuple[str, list[str]]:
    """Return the leader and the followers of a group that waits for its assignment."""
    calls = [driver.send(join(member_id=driver.new_member_id())) for _ in range(count)]
    driver.advance(6_000)
    responses = [driver.response(call, JoinGroupResponseData) for call in calls]
    leader = responses[0].leader
    return leader, [one.member_id for one in responses if one.member_id != leader]


def synced(driver: Driver, call: int) -> SyncGroupResponseData:
    return driver.response(call, SyncGroupResponseData)


def test_followers_wait_for_the_leaders_assignment_to_be_committed() -> None:
    driver = Driver()
    leader, [follower] = completing_group(driver)
    waiting = driver.sync(follower)
    assert waiting not in driver.replies
    driver.commits = False
    call = driver.sync(leader, {leader: b"L", follower: b"F"})
    assert not {waiting, call} & set(driver.replies)
    driver.commit()
    assert (synced(driver, waiting).assignment, synced(driver, call).assignment) == (b"F", b"L")
    assert synced(driver, call).protocol_name == "range"
    assert driver.state() == "Stable"
    value = driver.log.records()[-1][1]
    assert isinstance(value, GroupMetadataValue)
    assert {one.member_id: one.assignment for one in value.members} == {
        leader: b"L",
        follower: b"F",
    }


def test_a_stable_group_answers_with_the_assignment_at_once() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    assert synced(driver, driver.sync(member)).assignment == member.encode()


def test_a_member_without_an_assignment_gets_an_empty_one() -> None:
    driver = Driver()
    leader, [follower] = completing_group(driver)
    driver.sync(leader, {leader: b"L", "stranger": b"S"})
    assert synced(driver, driver.sync(follower)).assignment == b""


def test_sync_is_rejected_for_other_members_generations_and_protocols() -> None:
    driver = Driver()
    leader, _ = completing_group(driver)
    for request, code in (
        (SyncGroupRequestData("", 1, leader), INVALID_GROUP_ID),
        (SyncGroupRequestData("other", 1, leader), UNKNOWN_MEMBER_ID),
        (SyncGroupRequestData("g", 1, "nobody"), UNKNOWN_MEMBER_ID),
        (SyncGroupRequestData("g", 1, leader, "i"), UNKNOWN_MEMBER_ID),
        (SyncGroupRequestData("g", 2, leader), ILLEGAL_GENERATION),
        (SyncGroupRequestData("g", 1, leader, None, "connect"), INCONSISTENT_GROUP_PROTOCOL),
        (SyncGroupRequestData("g", 1, leader, None, "consumer", "x"), INCONSISTENT_GROUP_PROTOCOL),
    ):
        assert driver.answer(request, SyncGroupResponseData).error_code == code


def test_a_new_member_interrupts_those_who_wait_for_their_assignment() -> None:
    driver = Driver()
    _, [follower] = completing_group(driver)
    waiting = driver.sync(follower)
    driver.send(join(member_id=driver.new_member_id()))
    assert synced(driver, waiting).error_code == REBALANCE_IN_PROGRESS
    assert synced(driver, driver.sync(follower)).error_code == REBALANCE_IN_PROGRESS


def test_members_that_do_not_sync_in_time_are_removed() -> None:
    """KAFKA-9752: a member that vanishes between its two requests must not block the group."""
    driver = Driver()
    leader, [follower] = completing_group(driver)
    driver.sync(leader, {leader: b"L"})
    for _ in range(12):
        assert driver.heartbeat(leader) == 0
        assert driver.heartbeat(follower) == 0  # it lives, but does not sync
        driver.advance(5_000)
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(follower) == UNKNOWN_MEMBER_ID


def test_a_group_of_pending_members_alone_ends_its_rebalance_at_once() -> None:
    """Its rebalance timeout is 0 without members."""
    driver = Driver()
    completing_group(driver, 1)
    driver.new_member_id()
    driver.now_ms += 60_000  # nobody has synced
    driver.take(driver.coordinator.expire(driver.now_ms))
    driver.commit()
    assert driver.state() == "Empty"


def test_an_assignment_that_cannot_be_stored_causes_a_rebalance() -> None:
    driver = Driver()
    leader, [follower] = completing_group(driver)
    waiting = driver.sync(follower)
    driver.log.fails_with = NOT_ENOUGH_REPLICAS
    call = driver.sync(leader)
    assert synced(driver, waiting).error_code == COORDINATOR_NOT_AVAILABLE
    assert synced(driver, call).error_code == COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "PreparingRebalance"


def test_an_assignment_that_is_not_committed_in_time_causes_a_rebalance() -> None:
    driver = Driver(commits=True, offsets_commit_timeout_ms=5_000)
    leader, [follower] = completing_group(driver)
    waiting = driver.sync(follower)
    driver.commits = False
    call = driver.sync(leader)
    driver.advance(4_999)
    assert not {waiting, call} & set(driver.replies)
    driver.advance(1)
    assert synced(driver, waiting).error_code == COORDINATOR_NOT_AVAILABLE
    assert synced(driver, call).error_code == COORDINATOR_NOT_AVAILABLE
    driver.commit()  # too late
    assert driver.state() == "PreparingRebalance"


def test_a_member_that_leaves_while_it_waits_for_its_assignment_is_answered() -> None:
    """Kafka keeps no trace of this call; a listener would wait for its response forever."""
    driver = Driver()
    _, [follower] = completing_group(driver)
    waiting = driver.sync(follower)
    assert driver.leave((follower, None)) == [0]
    assert synced(driver, waiting).error_code == UNKNOWN_MEMBER_ID


# Heartbeats.


def test_heartbeats_keep_a_session_and_their_absence_ends_it() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    for _ in range(5):
        driver.advance(9_999)
        assert driver.heartbeat(member) == 0
    driver.advance(10_000)
    assert driver.heartbeat(member) == UNKNOWN_MEMBER_ID
    assert driver.state() == "Empty"
    value = driver.log.records()[-1][1]
    assert isinstance(value, GroupMetadataValue)
    assert (value.members, value.generation, value.protocol) == ([], 2, None)


def test_heartbeats_are_rejected_for_other_members_generations_and_groups() -> None:
    driver = Driver()
    [member] = driver.stable_group("i")
    assert driver.heartbeat("nobody") == UNKNOWN_MEMBER_ID
    assert driver.heartbeat("nobody", 1, "i") == FENCED_INSTANCE_ID
    assert driver.heartbeat(member, 1, "other") == UNKNOWN_MEMBER_ID
    assert driver.heartbeat(member, 2, "i") == ILLEGAL_GENERATION
    for group, code in (("", INVALID_GROUP_ID), ("other", UNKNOWN_MEMBER_ID)):
        request = HeartbeatRequestData(group, 1, member)
        assert driver.answer(request, HeartbeatResponseData).error_code == code


def test_a_heartbeat_waits_for_records_before_it() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    driver.commits = False
    driver.send(join("other"))
    call = driver.send(HeartbeatRequestData("g", 1, member))
    assert call not in driver.replies
    driver.commit()
    assert driver.response(call, HeartbeatResponseData).error_code == 0


# Leaving.


def test_the_last_member_leaves_an_empty_group() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    assert driver.leave((member, None)) == [0]
    assert driver.state() == "Empty"
    assert driver.leave((member, None)) == [UNKNOWN_MEMBER_ID]


def test_several_members_leave_at_once_and_each_has_its_result() -> None:
    """KIP-345: an administrator removes static members by their instance ids."""
    driver = Driver()
    first, second, third = driver.stable_group("i", "j", None)
    assert driver.leave(
        ("", "i"), ("", "x"), ("", None), ("wrong", "j"), (second, "j"), (third, "j"), (third, None)
    ) == [0, 25, 25, FENCED_INSTANCE_ID, 0, UNKNOWN_MEMBER_ID, 0]
    assert driver.state() == "Empty"
    assert first


def test_a_pending_member_leaves() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    pending = driver.new_member_id()
    call = driver.send(join(member_id=member))
    assert call not in driver.replies
    assert driver.leave((pending, None)) == [0]
    assert driver.response(call, JoinGroupResponseData).generation_id == 2


def test_a_leave_of_a_group_that_does_not_exist_fails_by_member() -> None:
    request = LeaveGroupRequestData("other", members=[LeavingMember("m", "i")])
    response = Driver().answer(request, LeaveGroupResponseData)
    assert (response.error_code, response.members[0].error_code) == (0, UNKNOWN_MEMBER_ID)
    request = LeaveGroupRequestData("", members=[LeavingMember("m")])
    assert Driver().answer(request, LeaveGroupResponseData).error_code == INVALID_GROUP_ID


def test_the_group_waits_for_the_others_when_its_leader_leaves() -> None:
    driver = Driver()
    members = driver.stable_group(None, None, None)
    group = driver.coordinator._groups.get("g")
    assert group is not None
    assert group.leader_id is not None
    leader = group.leader_id
    others = [one for one in members if one != leader]
    driver.leave((leader, None))
    assert driver.state() == "PreparingRebalance"
    calls = [driver.send(join(member_id=one)) for one in others]
    responses = [driver.response(call, JoinGroupResponseData) for call in calls]
    assert {one.generation_id for one in responses} == {2}
    assert responses[0].leader in others


def test_assignments_of_unknown_members_are_not_stored() -> None:
    driver = Driver()
    leader, _ = completing_group(driver, 1)
    given = [SyncGroupRequestAssignment("stranger", b"S"), SyncGroupRequestAssignment(leader, b"L")]
    driver.send(SyncGroupRequestData("g", 1, leader, assignments=given))
    value = driver.log.records()[-1][1]
    assert isinstance(value, GroupMetadataValue)
    assert [one.member_id for one in value.members] == [leader]
