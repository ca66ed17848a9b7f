"""Committed offsets: `OffsetMetadataManager` of Kafka 4.3, KIP-211, KIP-496."""

from __future__ import annotations

import pytest

from kraft._core.codec.message_schema import Uuid
from kraft.broker.groups.records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from kraft.errors import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    NON_EMPTY_GROUP,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    OFFSET_METADATA_TOO_LARGE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from kraft.protocol.delete_groups import DeletableGroupResult
from kraft.protocol.join_group import JoinGroupResponseData
from kraft.protocol.offset_commit import OffsetCommitResponseData
from kraft.protocol.offset_delete import (
    OffsetDeleteRequestData,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponseData,
)
from kraft.protocol.offset_fetch import (
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
)
from tests.harness.group_requests import commit, join
from tests.unit.broker.groups.driving import Driver

FIRST, SECOND = Uuid(b"1" * 16), Uuid(b"2" * 16)
MINUTE_MS = 60_000


def delete_offsets(driver: Driver, *topics: str) -> list[int]:
    partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(1)]
    request = OffsetDeleteRequestData(
        "g", [OffsetDeleteRequestTopic(topic, partitions) for topic in topics]
    )
    response = driver.answer(request, OffsetDeleteResponseData)
    if response.error_code:
        return [response.error_code]
    return [one.error_code for topic in response.topics for one in topic.partitions]


def delete_group(driver: Driver, group: str = "g") -> int:
    return driver.response(driver.delete_group(group), DeletableGroupResult).error_code


def fetched(driver: Driver, *topics: OffsetFetchRequestTopic) -> list[OffsetFetchResponsePartition]:
    response = driver.response(driver.fetch("g", list(topics)), OffsetFetchResponseGroup)
    return response.topics[0].partitions


def test_anybody_commits_to_a_group_without_members() -> None:
    driver = Driver()
    assert driver.commit_offset(5) == 0
    assert driver.commit_offset(6) == 0
    assert driver.commit_offset(7, partition=1) == 0
    assert driver.offsets() == {("t", 0): 6, ("t", 1): 7}
    assert driver.state() == "Empty"


def test_the_records_are_those_of_4_3() -> None:
    driver = Driver()
    driver.commit_offset(5, topic_id=FIRST)
    driver.commit_offset(6, retention_ms=100)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    value = OffsetCommitValue(offset=5, commit_timestamp=1_000, topic_id=FIRST)
    old = OffsetCommitValue(offset=6, commit_timestamp=1_000, expire_timestamp=1_100)
    assert driver.log.records() == [(key, value), (key, old)]


def test_a_commit_needs_a_member_of_the_present_generation() -> None:
    driver = Driver()
    assert driver.commit_offset(1, generation=0, member_id="m") == GROUP_ID_NOT_FOUND
    request = commit(1, generation=0, member_id="m")
    old = driver.answer(request, OffsetCommitResponseData, version=8)
    assert old.topics[0].partitions[0].error_code == ILLEGAL_GENERATION
    [member] = driver.stable_group()
    assert driver.commit_offset(1, generation=1, member_id=member) == 0
    assert driver.commit_offset(1, generation=2, member_id=member) == ILLEGAL_GENERATION
    assert driver.commit_offset(1, generation=1, member_id="m") == UNKNOWN_MEMBER_ID
    assert driver.commit_offset(1) == UNKNOWN_MEMBER_ID


def test_a_commit_keeps_the_session_of_its_member() -> None:
    driver = Driver()
    [member] = driver.stable_group()
    for _ in range(3):
        driver.advance(9_999)
        assert driver.commit_offset(1, generation=1, member_id=member) == 0


def test_a_commit_between_join_and_sync_is_rejected() -> None:
    driver = Driver()
    call = driver.send(join(member_id=driver.new_member_id()))
    driver.advance(3_000)
    member = driver.response(call, JoinGroupResponseData).member_id
    assert driver.commit_offset(1, generation=1, member_id=member) == REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 10, 0),
        ("x" * 11, OFFSET_METADATA_TOO_LARGE),
        ("ä" * 10, 0),
        ("\U0001f600" * 5, 0),
        ("\U0001f600" * 6, OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_has_a_maximum_size_in_chars_of_java(metadata: str, code: int) -> None:
    driver = Driver(offset_metadata_max_bytes=10)
    response = driver.answer(commit(1, metadata=metadata), OffsetCommitResponseData)
    assert response.topics[0].partitions[0].error_code == code
    assert bool(driver.offsets()) == (code == 0)


def test_a_fetch_sees_only_committed_offsets() -> None:
    driver = Driver()
    driver.commit_offset(5)
    driver.commits = False
    driver.send(commit(6))
    driver.send(commit(1, partition=1))
    assert driver.offsets() == {("t", 0): 5}
    stable = driver.fetch(stable=True)
    assert stable not in driver.replies
    driver.commit()
    assert driver.offsets() == {("t", 0): 6, ("t", 1): 1}
    partitions = driver.response(stable, OffsetFetchResponseGroup).topics[0].partitions
    assert [one.committed_offset for one in partitions] == [6, 1]


def test_missing_offsets_are_minus_one() -> None:
    driver = Driver()
    topic = OffsetFetchRequestTopic("t", partition_indexes=[0])
    missing = OffsetFetchResponsePartition(0, committed_offset=-1, metadata="")
    assert fetched(driver, topic) == [missing]
    assert driver.offsets() == {}
    driver.commit_offset(5, partition=1)
    assert fetched(driver, topic) == [missing]


def test_an_offset_of_another_topic_of_that_name_is_not_returned() -> None:
    driver = Driver()
    driver.commit_offset(5, topic_id=FIRST)
    for topic_id, offset in ((FIRST, 5), (SECOND, -1), (Uuid(), 5)):
        [partition] = fetched(driver, OffsetFetchRequestTopic("t", topic_id, [0]))
        assert partition.committed_offset == offset


def test_a_commit_that_cannot_be_appended_changes_nothing() -> None:
    driver = Driver()
    driver.log.fails_with = NOT_ENOUGH_REPLICAS
    assert driver.commit_offset(5) == COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "Dead"
    driver.log.fails_with = None
    assert driver.offsets() == {}


def test_a_stable_fetch_behind_lost_records_sends_the_client_elsewhere() -> None:
    """Consumers before 3.9 do not retry COORDINATOR_NOT_AVAILABLE here."""
    driver = Driver(commits=False)
    driver.send(commit(1))
    fetch = driver.fetch(stable=True)
    driver.advance(5_000)
    response = driver.response(1, OffsetCommitResponseData)
    assert response.topics[0].partitions[0].error_code == COORDINATOR_NOT_AVAILABLE
    assert driver.response(fetch, OffsetFetchResponseGroup).error_code == NOT_COORDINATOR


# Deleting.


def test_offsets_of_topics_that_nobody_is_subscribed_to_are_deleted() -> None:
    driver = Driver()
    assert delete_offsets(driver, "t") == [GROUP_ID_NOT_FOUND]
    [member] = driver.stable_group()  # subscribed to t
    for topic in ("t", "u"):
        driver.commit_offset(1, topic, generation=1, member_id=member)
    assert delete_offsets(driver, "t", "u") == [GROUP_SUBSCRIBED_TO_TOPIC] * 2 + [0, 0]
    assert driver.offsets() == {("t", 0): 1}
    key, value = driver.log.records()[-1]
    assert (key, value) == (OffsetCommitKey(group="g", topic="u", partition=0), None)


def test_offsets_of_other_groups_with_members_are_not_deleted() -> None:
    driver = Driver()
    driver.send(join(member_id="", kind="connect"), version=3)
    assert delete_offsets(driver, "t") == [NON_EMPTY_GROUP]


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    driver = Driver()
    assert delete_group(driver) == GROUP_ID_NOT_FOUND
    [member] = driver.stable_group()
    driver.commit_offset(1, generation=1, member_id=member)
    assert delete_group(driver) == NON_EMPTY_GROUP
    driver.leave((member, None))
    driver.commits = False
    call = driver.delete_group()
    assert driver.state() == "Empty"  # until the tombstones are committed
    assert driver.offsets() == {("t", 0): 1}
    driver.commit()
    assert driver.response(call, DeletableGroupResult).error_code == 0
    assert driver.state() == "Dead"
    assert driver.offsets() == {}
    assert [value for _, value in driver.log.records()[-2:]] == [None, None]
    assert driver.coordinator.offset_count == driver.coordinator.group_count == 0


def test_the_result_of_a_group_that_is_not_deleted_waits_for_records_before_it() -> None:
    driver = Driver(commits=False)
    driver.send(commit(1))
    call = driver.delete_group("other")
    assert call not in driver.replies
    driver.commit()
    assert driver.response(call, DeletableGroupResult).error_code == GROUP_ID_NOT_FOUND


def test_a_group_that_could_not_be_deleted_still_gives_up_its_pending_members() -> None:
    """Otherwise it would wait for them in every rebalance."""
    driver = Driver()
    driver.new_member_id()
    driver.log.fails_with = NOT_ENOUGH_REPLICAS
    assert delete_group(driver) == COORDINATOR_NOT_AVAILABLE
    driver.log.fails_with = None
    driver.advance(10_000)
    group = driver.coordinator._groups.get("g")
    assert group is not None
    assert not group.pending_join


def test_deleted_topics_take_their_offsets_with_them() -> None:
    driver = Driver()
    driver.commit_offset(1, "t", 0, topic_id=FIRST)
    driver.commit_offset(2, "t", 1, topic_id=SECOND)
    driver.commit_offset(3, "t", 2)
    driver.commit_offset(4, "u")
    driver.take(driver.coordinator.delete_topics({"t": FIRST}, driver.now_ms))
    driver.commit()
    assert driver.offsets() == {("t", 1): 2, ("u", 0): 4}


# Expiration.


def expiring(cleanup_slice: int = 1_000, max_batch_bytes: int = 1_000_000) -> Driver:
    return Driver(
        offsets_retention_ms=20 * MINUTE_MS,
        offsets_retention_check_interval_ms=MINUTE_MS,
        cleanup_slice=cleanup_slice,
        max_batch_bytes=max_batch_bytes,
    )


def test_offsets_of_a_simple_group_expire_after_their_commit_and_the_group_with_them() -> None:
    driver = expiring()
    driver.commit_offset(1)
    driver.advance(10 * MINUTE_MS)
    driver.commit_offset(2, partition=1)
    driver.advance(10 * MINUTE_MS)
    assert driver.offsets() == {("t", 1): 2}
    driver.advance(10 * MINUTE_MS)
    assert driver.state() == "Dead"
    assert driver.log.records()[-1] == (GroupMetadataKey(group="g"), None)


def test_offsets_of_a_group_expire_after_its_last_member_left() -> None:
    driver = expiring()
    [member] = driver.stable_group()
    driver.commit_offset(1, generation=1, member_id=member)
    for _ in range(200):
        driver.advance(9_000)
        driver.heartbeat(member)
    assert driver.offsets() == {("t", 0): 1}
    driver.leave((member, None))
    driver.advance(20 * MINUTE_MS - 1)
    assert driver.offsets() == {("t", 0): 1}
    driver.advance(MINUTE_MS)
    assert driver.state() == "Dead"


def test_a_stable_group_loses_offsets_of_topics_that_it_is_not_subscribed_to() -> None:
    driver = expiring()
    [member] = driver.stable_group()
    for topic in ("t", "u"):
        driver.commit_offset(1, topic, generation=1, member_id=member)
    for _ in range(150):
        driver.advance(9_000)
        driver.heartbeat(member)
    assert driver.offsets() == {("t", 0): 1}


def test_an_explicit_retention_time_counts_instead() -> None:
    driver = expiring()
    driver.commit_offset(1, retention_ms=30 * MINUTE_MS)
    driver.commit_offset(2, partition=1, retention_ms=MINUTE_MS)
    driver.advance(2 * MINUTE_MS)
    assert driver.offsets() == {("t", 0): 1}
    driver.advance(27 * MINUTE_MS)
    assert driver.offsets() == {("t", 0): 1}
    driver.advance(3 * MINUTE_MS)
    assert driver.offsets() == {}


def test_a_cleanup_that_is_not_committed_is_not_followed_by_another_at_once() -> None:
    driver = expiring()
    driver.commit_offset(1)
    driver.advance(20 * MINUTE_MS - 1)
    driver.commits = False
    driver.advance(1 + 6_000)
    [deadline_ms] = {driver.coordinator.next_deadline_ms()}
    assert deadline_ms == 1_000 + 20 * MINUTE_MS + 5_000 + MINUTE_MS


def test_many_groups_are_looked_through_in_slices() -> None:
    driver = expiring(cleanup_slice=2)
    for number in range(7):
        driver.commit_offset(1, group=f"g{number}")
    driver.advance(21 * MINUTE_MS)
    assert driver.coordinator.group_count == 0


def test_tombstones_do_not_need_to_fit_into_one_batch() -> None:
    driver = expiring(max_batch_bytes=200)
    for partition in range(20):
        driver.commit_offset(1, partition=partition)
    driver.advance(21 * MINUTE_MS)
    assert driver.coordinator.offset_count == 0
    assert max(len(batch) for batch in driver.log.batches) <= 200


def test_a_group_that_is_too_large_for_one_batch_is_not_deleted() -> None:
    driver = Driver(max_batch_bytes=200)
    for partition in range(20):
        driver.commit_offset(1, partition=partition)
    assert delete_group(driver) == -1
    assert len(driver.offsets()) == 20
