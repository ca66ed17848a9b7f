"""JoinGroup: `GroupMetadataManager.classicGroupJoin` of Kafka 4.3, KIP-134, KIP-345, KIP-394."""

from __future__ import annotations

import pytest

from kraft.broker.groups.records import GroupMetadataKey, GroupMetadataValue
from kraft.errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NOT_ENOUGH_REPLICAS,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from kraft.protocol.join_group import JoinGroupResponseData
from kraft.protocol.sync_group import SyncGroupRequestData, SyncGroupResponseData
from tests.harness.group_requests import commit, join
from tests.unit.broker.groups.driving import Driver


def joined(driver: Driver, call: int) -> JoinGroupResponseData:
    return driver.response(call, JoinGroupResponseData)


def test_a_new_member_is_given_an_id_to_join_with() -> None:
    driver = Driver()
    response = driver.answer(join(), JoinGroupResponseData)
    assert (response.error_code, response.member_id) == (MEMBER_ID_REQUIRED, "c-id1")
    # The group exists from this record on, without the member.
    [(key, value)] = driver.log.records()
    assert key == GroupMetadataKey(group="g")
    assert isinstance(value, GroupMetadataValue)
    assert (value.members, value.generation, value.protocol_type) == ([], 0, "")
    assert value.protocol is value.leader is None


@pytest.mark.parametrize("version", [0, 3])
def test_before_version_4_a_new_member_joins_at_once(version: int) -> None:
    driver = Driver()
    call = driver.send(join(rebalance_ms=-1 if version == 0 else 60_000), version)
    driver.advance(3_000)
    assert (joined(driver, call).error_code, joined(driver, call).member_id) == (0, "c-id1")


def test_version_0_has_the_session_timeout_as_rebalance_timeout() -> None:
    driver = Driver()
    driver.send(join(rebalance_ms=-1, session_ms=6_000), 0)
    driver.advance(3_000)
    driver.advance(6_001)  # no SyncGroup within it
    assert driver.coordinator.listing.describe("g", 6).members == []


def test_the_first_rebalance_waits_for_more_members() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3_000)
    first = driver.send(join(member_id=driver.new_member_id()))
    driver.advance(2_999)
    assert first not in driver.replies
    second = driver.send(join(member_id=driver.new_member_id()))
    driver.advance(2)
    assert first not in driver.replies  # a member joined within the delay: another delay
    driver.advance(3_000)
    assert joined(driver, first).generation_id == joined(driver, second).generation_id == 1
    assert {len(joined(driver, call).members) for call in (first, second)} == {0, 2}


def test_the_first_rebalance_never_lasts_longer_than_the_rebalance_timeout() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3_000)
    first = driver.send(join(member_id=driver.new_member_id(), rebalance_ms=7_000))
    for _ in range(4):
        driver.advance(2_000)
        driver.send(join(member_id=driver.new_member_id(), rebalance_ms=7_000))
    assert first in driver.replies
    assert joined(driver, first).error_code == 0


def test_the_generation_has_the_protocol_with_the_most_votes() -> None:
    driver = Driver()
    offers = (("a", "b", "c"), ("b", "a"), ("b", "a", "d"))
    calls = [
        driver.send(join(member_id=driver.new_member_id(names=names), names=names))
        for names in offers
    ]
    driver.advance(6_000)
    assert {joined(driver, call).protocol_name for call in calls} == {"b"}


@pytest.mark.parametrize(
    ("kind", "names"), [("connect", ("range",)), ("consumer", ("other",)), ("consumer", ())]
)
def test_a_member_without_a_common_protocol_is_rejected(kind: str, names: tuple[str, ...]) -> None:
    driver = Driver()
    driver.stable_group()
    response = driver.answer(join(kind=kind, names=names), JoinGroupResponseData)
    assert response.error_code == INCONSISTENT_GROUP_PROTOCOL


def test_session_timeouts_have_bounds() -> None:
    driver = Driver(group_min_session_timeout_ms=10, group_max_session_timeout_ms=20)
    for timeout_ms, code in ((9, INVALID_SESSION_TIMEOUT), (10, 79), (20, 79), (21, 26)):
        response = driver.answer(join(session_ms=timeout_ms), JoinGroupResponseData)
        assert response.error_code == code


def test_a_group_needs_an_id() -> None:
    response = Driver().answer(join("", "m"), JoinGroupResponseData)
    assert (response.error_code, response.member_id) == (INVALID_GROUP_ID, "m")


def test_an_unknown_member_is_rejected_with_and_without_a_group() -> None:
    driver = Driver()
    assert driver.answer(join(member_id="m"), JoinGroupResponseData).error_code == UNKNOWN_MEMBER_ID
    driver.stable_group()
    assert driver.answer(join(member_id="m"), JoinGroupResponseData).error_code == UNKNOWN_MEMBER_ID


def test_a_pending_member_delays_the_rebalance_until_its_session_ends() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    driver.new_member_id()
    call = driver.send(join(member_id=member))  # the leader rejoins
    assert call not in driver.replies
    driver.advance(10_000)
    assert joined(driver, call).generation_id == 2


def test_group_max_size_rejects_new_members() -> None:
    driver = Driver(group_max_size=2)
    driver.stable_group(None, None)
    response = driver.answer(join(), JoinGroupResponseData)
    assert (response.error_code, response.member_id) == (GROUP_MAX_SIZE_REACHED, "")


def test_a_follower_that_rejoins_unchanged_gets_the_present_generation() -> None:
    driver = Driver()
    members = driver.stable_group(None, None)
    leader = driver.coordinator._groups.get("g")
    assert leader is not None
    [follower] = [one for one in members if one != leader.leader_id]
    response = driver.answer(join(member_id=follower), JoinGroupResponseData)
    assert (response.generation_id, response.members) == (1, [])
    assert driver.state() == "Stable"


@pytest.mark.parametrize("is_leader", [True, False])
def test_the_leader_and_changed_members_cause_a_rebalance(is_leader: bool) -> None:
    driver = Driver()
    members = driver.stable_group(None, None)
    group = driver.coordinator._groups.get("g")
    assert group is not None
    [member] = [one for one in members if (one == group.leader_id) == is_leader]
    names = ("range",) if is_leader else ("range", "sticky")
    driver.send(join(member_id=member, names=names))
    assert driver.state() == "PreparingRebalance"


def test_members_that_do_not_rejoin_are_removed_at_the_rebalance_timeout() -> None:
    driver = Driver()
    first, second = driver.stable_group(None, None)
    call = driver.send(join(member_id=first, names=("range", "sticky")))
    for _ in range(10):
        driver.advance(6_000)
        if call not in driver.replies:
            assert driver.heartbeat(second) == REBALANCE_IN_PROGRESS
    assert joined(driver, call).generation_id == 2
    assert driver.heartbeat(second, 2) == UNKNOWN_MEMBER_ID


def test_a_new_member_that_nobody_answers_is_given_up_after_five_minutes() -> None:
    driver = Driver(new_member_join_timeout_ms=20_000)
    driver.stable_group("i")  # a static member that does not rejoin keeps the group waiting
    call = driver.send(join(member_id=driver.new_member_id(), session_ms=1_800_000))
    assert call not in driver.replies
    driver.advance(20_000)
    assert call in driver.replies


# Static members.


def test_a_restarted_static_member_takes_its_place_without_a_rebalance() -> None:
    driver = Driver()
    old, other = driver.stable_group("i", None)
    response = driver.answer(join(instance="i"), JoinGroupResponseData)
    assert (response.error_code, response.generation_id) == (0, 1)
    assert response.member_id not in (old, other)
    assert driver.heartbeat(old, 1, "i") == FENCED_INSTANCE_ID
    assert driver.heartbeat(response.member_id, 1, "i") == 0
    value = driver.log.records()[-1][1]
    assert isinstance(value, GroupMetadataValue)
    assert {one.member_id for one in value.members} == {response.member_id, other}
    assert {one.assignment for one in value.members} == {old.encode(), other.encode()}


def test_a_restarted_static_leader_is_told_to_skip_the_assignment() -> None:
    """KIP-814."""
    driver = Driver()
    [old] = driver.stable_group("i")
    response = driver.answer(join(instance="i"), JoinGroupResponseData, version=9)
    assert response.skip_assignment
    assert response.leader == response.member_id
    assert len(response.members) == 1
    # Older clients are told of another leader, so that they do not assign partitions.
    newer = response.member_id
    response = driver.answer(join(instance="i"), JoinGroupResponseData, version=8)
    assert (response.leader, response.members, response.skip_assignment) == (newer, [], False)
    assert old != newer


def test_a_restarted_static_member_with_another_protocol_causes_a_rebalance() -> None:
    driver = Driver()
    driver.stable_group("i")
    group = driver.coordinator._groups.get("g")
    assert group is not None
    group.protocol_name = "sticky"  # as if the member had supported it before
    call = driver.send(join(instance="i"))
    assert joined(driver, call).generation_id == 2


def test_a_static_member_that_joins_twice_fences_its_first_request() -> None:
    driver = Driver()
    first = driver.send(join(instance="i"))
    second = driver.send(join(instance="i"))
    assert joined(driver, first).error_code == FENCED_INSTANCE_ID
    driver.advance(6_000)
    assert joined(driver, second).error_code == 0


def test_a_fenced_request_is_not_answered_again_when_records_before_it_are_lost() -> None:
    driver = Driver()
    driver.new_member_id()
    driver.commits = False
    driver.send(commit(1, group="other"))
    first = driver.send(join(instance="i"))
    driver.send(join(instance="i"))
    assert joined(driver, first).error_code == FENCED_INSTANCE_ID
    driver.advance(5_000)  # the driver fails if a call is answered twice


def test_a_static_member_stays_through_a_rebalance_until_its_session_ends() -> None:
    driver = Driver()
    _, second = driver.stable_group("i", None)
    call = driver.send(join(member_id=second, names=("range", "sticky")))
    if call not in driver.replies:
        driver.advance(10_000)  # the session of i ends
    assert len(joined(driver, call).members) == 1


def test_an_unknown_instance_is_rejected() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    response = driver.answer(join(member_id=member, instance="x"), JoinGroupResponseData)
    assert (response.error_code, response.protocol_name) == (UNKNOWN_MEMBER_ID, None)


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_a_rebalance_timeout_of_nothing_does_not_stop_the_time(timeout_ms: int) -> None:
    """A static member that does not rejoin prolongs the rebalance by that timeout each time."""
    driver = Driver()
    driver.stable_group("i", "j")
    group = driver.coordinator._groups.get("g")
    assert group is not None
    for member in group.members.values():
        member.rebalance_timeout_ms = timeout_ms
    driver.leave(("", "j"))
    assert driver.state() == "PreparingRebalance"
    driver.advance(10_000)
    assert driver.state() == "Empty"  # the session of i has ended


# Failures of the log.


def test_a_group_whose_record_cannot_be_appended_does_not_exist() -> None:
    driver = Driver()
    driver.log.fails_with = NOT_ENOUGH_REPLICAS
    response = driver.answer(join(), JoinGroupResponseData, version=3)
    assert response.error_code == COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "Dead"
    assert driver.coordinator.group_count == 0
    driver.log.fails_with = None
    driver.stable_group()


def test_the_late_failure_of_a_deleted_group_leaves_the_next_group_of_its_id_alone() -> None:
    driver = Driver(commits=False)
    driver.send(join())
    driver.delete_group()
    driver.now_ms += 4_000
    call = driver.send(join(), version=3)
    driver.now_ms += 1_000  # the first group's record is not committed in time
    driver.take(driver.coordinator.expire(driver.now_ms))
    driver.commit()
    driver.advance(2_000)  # the first rebalance of the next group ends as it should
    assert joined(driver, call).generation_id == 1


def test_a_static_member_that_cannot_be_stored_is_not_replaced() -> None:
    driver = Driver()
    [old] = driver.stable_group("i")
    driver.log.fails_with = NOT_ENOUGH_REPLICAS
    response = driver.answer(join(instance="i", names=("range", "x")), JoinGroupResponseData)
    assert (response.error_code, response.member_id) == (COORDINATOR_NOT_AVAILABLE, "")
    assert driver.heartbeat(old, 1, "i") == 0


def test_a_static_member_that_is_taken_back_is_fenced_if_it_waits_for_its_assignment() -> None:
    driver = Driver()
    driver.stable_group("i")
    driver.commits = False
    driver.send(join(instance="i"))  # not committed in time
    driver.now_ms += 2_000
    group = driver.coordinator._groups.get("g")
    assert group is not None
    assert group.leader_id is not None
    driver.send(join(member_id=group.leader_id, instance="i"))  # generation 2
    request = SyncGroupRequestData("g", 2, group.leader_id, "i")
    call = driver.send(request)
    driver.advance(3_000)
    assert driver.response(call, SyncGroupResponseData).error_code == FENCED_INSTANCE_ID


def test_a_call_that_a_newer_one_replaces_is_answered() -> None:
    """Kafka keeps no trace of the older call; a listener would wait for its response forever."""
    driver = Driver()
    first, _ = driver.stable_group(None, None)
    calls = [driver.send(join(member_id=first, names=("range", name))) for name in "ab"]
    assert joined(driver, calls[0]).error_code == REBALANCE_IN_PROGRESS
    assert calls[1] not in driver.replies


def test_a_join_that_waits_behind_lost_records_fails_after_the_commit_timeout() -> None:
    driver = Driver()
    driver.stable_group()
    pending = driver.new_member_id()
    driver.commits = False
    driver.send(commit(1, group="other"))
    call = driver.send(join(member_id=pending))
    driver.advance(4_999)
    assert call not in driver.replies
    driver.advance(1)
    assert joined(driver, call).error_code == COORDINATOR_NOT_AVAILABLE
