"""A coordinator's life, loading and commits, and all coordinators of a broker."""

from __future__ import annotations

import pytest

from kraft._core.bytes.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BatchBuilder,
    assign_offsets,
)
from kraft.broker.groups import (
    ClientContext,
    CoordinatorState,
    GroupCoordinator,
    GroupCoordinatorConfig,
    GroupCoordinators,
    GroupError,
    partition_of_group,
)
from kraft.broker.groups.partitioning import java_hash
from kraft.broker.groups.records import (
    OffsetCommitValue,
    group_tombstone,
    offset_key,
    offset_record,
)
from kraft.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_ID_NOT_FOUND,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    CorruptRecordError,
)
from kraft.protocol.delete_groups import DeletableGroupResult
from kraft.protocol.describe_groups import DescribedGroup
from kraft.protocol.heartbeat import HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import JoinGroupResponseData
from kraft.protocol.list_groups import ListedGroup
from kraft.protocol.offset_commit import OffsetCommitResponseData
from kraft.protocol.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from tests.harness.group_log import MemoryLog, load_coordinator
from tests.harness.group_requests import commit, join
from tests.unit.broker.groups.driving import Driver

CONTEXT = ClientContext("c", "/host", 9)


def test_a_loading_coordinator_only_answers_heartbeats() -> None:
    coordinator = GroupCoordinator(GroupCoordinatorConfig(), MemoryLog())
    assert coordinator.state is CoordinatorState.LOADING
    [(call, response)] = coordinator.fetch_offsets(7, OffsetFetchRequestGroup("g"), 0)
    loading = OffsetFetchResponseGroup("g", error_code=COORDINATOR_LOAD_IN_PROGRESS)
    assert (call, response) == (7, loading)
    [(_, alive)] = coordinator.handle(8, CONTEXT, HeartbeatRequestData("g", 1, "m"), 0)
    assert alive == HeartbeatResponseData()
    with pytest.raises(GroupError, match="loading"):
        coordinator.listing.list()


def test_a_coordinator_is_loaded_from_the_log_of_another() -> None:
    driver = Driver()
    members = driver.stable_group("i", None)
    driver.commit_offset(5, generation=1, member_id=members[1])
    driver.commit_offset(6, group="simple")
    driver.commit_offset(7, "u", group="deleted")
    driver.commit_offset(7, "u", group="simple")
    driver.take(driver.coordinator.delete_topics({"u": commit(1).topics[0].topic_id}, 0))
    driver.new_member_id("empty")
    before = driver.coordinator
    again = Driver(log=driver.log)
    after = again.coordinator
    assert after.offset_count == before.offset_count == 2
    assert again.offsets() == {("t", 0): 5}
    assert again.offsets("simple") == {("t", 0): 6}
    for group in ("g", "simple", "empty"):
        assert after.listing.describe(group, 6) == before.listing.describe(group, 6)
    # Sessions begin when the group is loaded.
    again.advance(9_999)
    assert again.heartbeat(members[0], 1, "i") == 0
    again.advance(2)
    assert again.heartbeat(members[1]) == 25


def test_a_group_without_offsets_is_loaded_until_its_tombstone() -> None:
    """`cleanupGroupMetadata` deletes it; until then it exists, with a record of its own or not."""
    log = MemoryLog()
    log.batches = [plain(0, 0, 5), plain(1, 0, None)]
    assert Driver(log=log).state() == "Empty"
    log.batches.append(group_deleted(2))
    assert Driver(log=log).state() == "Dead"
    log.batches.append(plain(3, 0, None))
    assert Driver(log=log).state() == "Dead"
    log.batches.append(plain(4, 0, 6))
    again = Driver(log=log)
    assert (again.state(), again.offsets()) == ("Empty", {("t", 0): 6})


def test_what_is_not_committed_is_loaded_and_seen_when_it_is() -> None:
    """A new leader's log may go beyond the high watermark; nothing of it is lost while it leads."""
    driver = Driver()
    driver.stable_group()
    driver.commit_offset(5, group="old")
    driver.commit_offset(6, group="deleted")
    high_watermark = driver.log.end_offset
    driver.commit_offset(7, group="old")
    driver.commit_offset(8, group="new")
    driver.delete_group("deleted")
    again = Driver(log=driver.log, high_watermark=high_watermark, commits=False)
    assert again.offsets("old") == {("t", 0): 5}
    assert again.offsets("deleted") == {("t", 0): 6}
    assert again.offsets("new") == {}
    assert [again.state(group) for group in ("new", "deleted")] == ["Dead", "Empty"]
    call = again.delete_group("deleted")
    assert call not in again.replies  # its result rests on what is not committed
    again.commit()
    assert again.response(call, DeletableGroupResult).error_code == GROUP_ID_NOT_FOUND
    assert again.offsets("old") == {("t", 0): 7}
    assert [again.state(group) for group in ("new", "deleted")] == ["Empty", "Dead"]


def test_a_group_over_its_maximum_size_rebalances_when_it_is_loaded() -> None:
    driver = Driver()
    driver.stable_group(None, None, None)
    assert Driver(log=driver.log, group_max_size=2).state() == "PreparingRebalance"


def test_a_closed_coordinator_sends_all_that_waits_elsewhere() -> None:
    driver = Driver()
    driver.stable_group()
    joining = driver.send(join(member_id=driver.new_member_id()))
    driver.commits = False
    driver.send(commit(1, group="other"))
    replies = dict(driver.coordinator.close())
    response = replies[joining]
    assert isinstance(response, JoinGroupResponseData)
    assert response.error_code == NOT_COORDINATOR
    [committed] = [one for one in replies.values() if isinstance(one, OffsetCommitResponseData)]
    assert committed.topics[0].partitions[0].error_code == NOT_COORDINATOR
    assert driver.coordinator.next_deadline_ms() is None
    [(_, late)] = driver.coordinator.fetch_offsets(99, OffsetFetchRequestGroup("g"), 0)
    assert late == OffsetFetchResponseGroup("g", error_code=NOT_COORDINATOR)
    [(_, late)] = driver.coordinator.delete_group(100, "g", 0)
    assert late == DeletableGroupResult("g", NOT_COORDINATOR)


def test_a_damaged_log_closes_the_coordinator() -> None:
    builder = BatchBuilder()
    builder.append(b"\0\4\0", offset_key("g", "t", 0))
    coordinator = GroupCoordinator(GroupCoordinatorConfig(), MemoryLog())
    with pytest.raises(CorruptRecordError):
        list(coordinator.load(builder.finish(), 1))
    assert coordinator.state is CoordinatorState.CLOSED


def test_records_without_keys_and_of_other_kinds() -> None:
    builder = BatchBuilder()
    builder.append(b"value", b"\0\3\0\1g")  # a group of KIP-848
    coordinator = GroupCoordinator(GroupCoordinatorConfig(), MemoryLog())
    list(coordinator.load(builder.finish(), 1))
    builder = BatchBuilder()
    builder.append(b"value", None)
    with pytest.raises(CorruptRecordError, match="no key"):
        list(coordinator.load(builder.finish(), 1))


def test_a_group_appears_when_its_record_is_committed() -> None:
    driver = Driver(commits=False)
    driver.send(join())
    assert driver.coordinator.listing.list() == []
    driver.commit()
    assert driver.coordinator.listing.list() == [ListedGroup("g", "", "Empty", "classic")]


def test_a_failed_append_takes_back_only_its_own_changes() -> None:
    driver = Driver(commits=False)
    driver.send(commit(1, group="a"))
    driver.log.fails_with = NOT_ENOUGH_REPLICAS
    driver.send(commit(1, group="b"))
    driver.log.fails_with = None
    driver.commit()
    assert [one.group_id for one in driver.coordinator.listing.list()] == ["a"]


def test_groups_are_listed_by_state_and_type() -> None:
    """KIP-518, KIP-848."""
    driver = Driver()
    driver.stable_group()
    driver.commit_offset(1, group="other")
    listing = driver.coordinator.listing
    stable = ListedGroup("g", "consumer", "Stable", "classic")
    empty = ListedGroup("other", "", "Empty", "classic")
    assert listing.list() == listing.list((), ("Classic",)) == [stable, empty]
    assert listing.list(("stable",)) == [stable]
    assert listing.list((" EMPTY", "Dead")) == [empty]
    assert listing.list((), ("consumer",)) == []


def test_a_group_is_described_with_its_members() -> None:
    driver = Driver()
    [member] = driver.stable_group("i")
    described = driver.coordinator.listing.describe("g", 6)
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    [one] = described.members
    assert (one.member_id, one.group_instance_id, one.client_host) == (member, "i", "/host")
    assert one.member_assignment == member.encode()
    driver.send(join())
    driver.send(join(member_id=member, instance="i"))
    described = driver.coordinator.listing.describe("g", 6)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert described.members[0].member_metadata == b""


def test_a_group_that_does_not_exist_is_dead() -> None:
    """KIP-1043: an error from version 6 on."""
    listing = Driver().coordinator.listing
    assert listing.describe("x", 5) == DescribedGroup(group_id="x", group_state="Dead")
    described = listing.describe("x", 6)
    assert (described.error_code, described.error_message) == (
        GROUP_ID_NOT_FOUND,
        "Group x not found.",
    )


# Transactions in a log of Apache Kafka.


def transactional(offset: int, producer_id: int, *commits: tuple[int, int]) -> bytearray:
    builder = BatchBuilder(
        offset,
        attributes=ATTRIBUTE_TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    for partition, value in commits:
        key, encoded = offset_record("g", "t", partition, OffsetCommitValue(offset=value))
        builder.append(encoded, key)
    return bytearray(builder.finish())


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytearray:
    builder = BatchBuilder(
        offset,
        attributes=ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL,
        producer_id=producer_id,
        producer_epoch=0,
    )
    builder.append(bytes(6), bytes([0, 0, 0, is_commit]))
    return bytearray(builder.finish())


def plain(offset: int, partition: int, value: int | None) -> bytearray:
    builder = BatchBuilder(offset)
    key, encoded = offset_record("g", "t", partition, OffsetCommitValue(offset=value or 0))
    builder.append(encoded if value is not None else None, key)
    return bytearray(builder.finish())


def group_deleted(offset: int) -> bytearray:
    builder = BatchBuilder(offset)
    builder.append(None, group_tombstone("g").key)
    return bytearray(builder.finish())


def loaded(*batches: bytearray) -> dict[tuple[str, int], int]:
    log = MemoryLog()
    log.batches = list(batches)
    return Driver(log=log).offsets()


def test_offsets_of_a_transaction_count_from_its_commit_on() -> None:
    sent = transactional(0, 7, (0, 10), (1, 11))
    assert loaded(sent) == {}
    assert loaded(sent, marker(2, 7, is_commit=False)) == {}
    assert loaded(sent, marker(2, 8, is_commit=True)) == {}
    assert loaded(sent, marker(2, 7, is_commit=True)) == {("t", 0): 10, ("t", 1): 11}


def test_the_later_of_a_plain_and_a_transactional_commit_counts() -> None:
    """Compaction may keep either record first: the one with the higher offset counts."""
    sent, end = transactional(1, 7, (0, 10)), marker(3, 7, is_commit=True)
    assert loaded(plain(0, 0, 5), sent, end) == {("t", 0): 10}
    assert loaded(sent, plain(2, 0, 5), end) == {("t", 0): 5}
    assert loaded(sent, plain(2, 0, None), end) == {}


# All coordinators of a broker.


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_is_javas(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_the_partition_of_a_group() -> None:
    assert partition_of_group("polygenelubricants", 50) == 0
    assert partition_of_group("a", 50) == 47
    assert all(0 <= partition_of_group(f"g{number}", 50) < 50 for number in range(1_000))


def test_a_broker_coordinates_the_groups_of_its_partitions() -> None:
    coordinators = GroupCoordinators(GroupCoordinatorConfig(), 2)
    assert [coordinators.partition_of(group) for group in "ab"] == [1, 0]
    log = MemoryLog()
    coordinator, replies = coordinators.elect(0, 1, log)
    assert replies == []
    assert coordinators.describe_group("b", 6).error_code == COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(GroupError):
        coordinators.list_groups()
    load_coordinator(coordinator, (), 0, 0)
    assert coordinators.elect(0, 1, log) == (coordinator, [])
    [(_, elsewhere)] = coordinators.handle(1, CONTEXT, HeartbeatRequestData("a", 1, "m"), 0)
    assert elsewhere == HeartbeatResponseData(error_code=NOT_COORDINATOR)
    [(_, elsewhere)] = coordinators.fetch_offsets(1, OffsetFetchRequestGroup("a"), 0)
    assert elsewhere == OffsetFetchResponseGroup("a", error_code=NOT_COORDINATOR)
    [(_, elsewhere)] = coordinators.delete_group(1, "a", 0)
    assert elsewhere == DeletableGroupResult("a", NOT_COORDINATOR)
    assert coordinators.describe_group("a", 6).error_code == NOT_COORDINATOR
    assert coordinators.handle(2, CONTEXT, commit(1, group="b"), 0) == []
    [(call, _)] = coordinators.advance(0, log.end_offset, 0)
    assert call == 2
    assert [one.group_id for one in coordinators.list_groups()] == ["b"]
    [(_, fetched)] = coordinators.fetch_offsets(2, OffsetFetchRequestGroup("b"), 0)
    assert isinstance(fetched, OffsetFetchResponseGroup)
    assert fetched.topics[0].partitions[0].committed_offset == 1
    [(_, missing)] = coordinators.delete_group(2, "d", 0)
    assert missing == DeletableGroupResult("d", GROUP_ID_NOT_FOUND)
    assert coordinators.next_deadline_ms() == 600_000
    assert coordinators.expire(1) == []
    assert coordinators.delete_topics({}, 1) == []
    coordinators.handle(3, CONTEXT, commit(2, group="b"), 1)
    _, replies = coordinators.elect(0, 2, log)
    assert [call for call, _ in replies] == [3]
    assert coordinators.resign(0) == coordinators.resign(0) == []
    assert coordinators.get(0) is None
    assert coordinators.advance(0, 5, 1) == []


def test_batches_have_the_time_of_the_decision() -> None:
    log = MemoryLog()
    driver = Driver(log=log)
    driver.now_ms = 12_345
    driver.commit_offset(1)
    copy = bytes(log.batches[0])
    again = bytearray(copy)
    assign_offsets(again, 0, 1, 12_345)
    assert again == copy
