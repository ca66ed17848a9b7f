"""The group driver over real replica managers and logs: loading, leaders, commits, shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft import records
from kraft._core.codec.message_schema import Uuid
from kraft.broker import group_driver
from kraft.broker.groups import ClientContext, GroupError, GroupReply, partition_of_group
from kraft.broker.groups.requests import GroupRequest
from kraft.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    UNKNOWN_MEMBER_ID,
    StorageError,
)
from kraft.protocol.heartbeat import HeartbeatRequestData
from kraft.protocol.join_group import JoinGroupRequestData, JoinGroupResponseData
from kraft.protocol.offset_fetch import OffsetFetchRequestGroup
from kraft.protocol.sync_group import SyncGroupRequestAssignment, SyncGroupRequestData
from tests.harness.group_requests import commit, join
from tests.unit.broker.offsets_brokers import (
    OFFSETS_ID,
    OffsetsBroker,
    OffsetsBrokers,
)

CONTEXT = ClientContext("c", "/host", 9)
PATIENCE_S = 120


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


async def answer(broker: OffsetsBroker, request: GroupRequest) -> Any:
    return await broker.groups.handle(CONTEXT, request)


async def offset_of(broker: OffsetsBroker, group: str = "g", topic: str = "t") -> int | None:
    """Return the committed offset of a partition, None without one; the error is negative."""
    request = OffsetFetchRequestGroup(group)
    response = await broker.groups.fetch_offsets(request, require_stable=False)
    if response.error_code:
        return -response.error_code
    found = {one.name: one.partitions[0].committed_offset for one in response.topics}
    return found.get(topic)


def commit_code(response: Any) -> int:
    code: int = response.topics[0].partitions[0].error_code
    return code


async def stable_member(broker: OffsetsBroker, group: str) -> str:
    """Make a stable group of one member; return its id."""
    first = await answer(broker, join(group))
    joined = await answer(broker, join(group, first.member_id))
    assert joined.error_code == 0
    given = [SyncGroupRequestAssignment(first.member_id, b"all")]
    synced = await answer(
        broker,
        SyncGroupRequestData(group, joined.generation_id, first.member_id, assignments=given),
    )
    assert synced.error_code == 0
    member_id: str = first.member_id
    return member_id


def state(broker: OffsetsBroker, group: str) -> str:
    return broker.groups.describe_group(group, 6).group_state


def test_a_group_lives_on_one_broker() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1)
        await brokers.create_offsets_topic(1)
        broker = brokers[1]
        member = await stable_member(broker, "g")
        assert state(broker, "g") == "Stable"
        # The member's id is the client's with a random part.
        assert member.startswith("c-")
        assert len(member) == len("c-") + 36
        response = await answer(broker, commit(5, generation=1, member_id=member))
        assert commit_code(response) == 0
        assert await offset_of(broker) == 5
        assert [one.group_id for one in broker.groups.list_groups((), ())] == ["g"]
        brokers.close()

    run(scenario)


def test_the_partition_count_is_the_topics() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, offsets_topic_num_partitions=3)
        assert brokers[1].groups.partition_of("g") == partition_of_group("g", 3)
        brokers.partition_count = 7
        await brokers.create_offsets_topic(1)
        assert brokers[1].groups.partition_of("g") == partition_of_group("g", 7)
        # A broker keeps the count that it has read: groups stay where their offsets are.
        brokers.append(
            records.Partition(partition_id=7, topic_id=OFFSETS_ID, replicas=[1], isr=[1], leader=1)
        )
        assert brokers[1].groups.partition_of("g") == partition_of_group("g", 7)
        # The topic of another id has another log.
        assert commit_code(await answer(brokers[1], commit(5))) == 0
        brokers.append(records.RemoveTopic(topic_id=OFFSETS_ID))
        assert brokers[1].groups.partition_of("g") == partition_of_group("g", 3)
        assert await offset_of(brokers[1]) == -NOT_COORDINATOR
        brokers.close()

    run(scenario)


def test_a_response_waits_for_the_high_watermark() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        call = brokers[1].groups.handle(CONTEXT, commit(5))
        assert not call.done()
        assert await offset_of(brokers[1]) is None
        brokers.replicate(2)
        assert commit_code(await call) == 0
        assert await offset_of(brokers[1]) == 5
        brokers.close()

    run(scenario)


def test_a_commit_that_followers_do_not_get_times_out_and_counts_later() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2, offsets_commit_timeout_ms=20)
        await brokers.create_offsets_topic(1)
        response = await answer(brokers[1], commit(5))
        assert commit_code(response) == COORDINATOR_NOT_AVAILABLE
        brokers.replicate(2)
        assert await offset_of(brokers[1]) == 5
        brokers.close()

    run(scenario)


def test_an_isr_below_its_minimum_takes_no_commits() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2, min_isr=2)
        await brokers.create_offsets_topic(1, isr=[1])
        log = brokers[1].log(brokers[1].groups.partition_of("g"))
        response = await answer(brokers[1], commit(5))
        assert commit_code(response) == COORDINATOR_NOT_AVAILABLE
        assert log.end_offset == 0
        assert await offset_of(brokers[1]) is None
        brokers.close()

    run(scenario)


def test_groups_of_every_state_move_to_another_broker() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2, offsets_topic_num_partitions=1)
        await brokers.create_offsets_topic(1, isr=[1])
        old, new = brokers[1], brokers[2]
        # Stable, and a simple group.
        member = await stable_member(old, "stable")
        assert commit_code(await answer(old, commit(7, group="simple"))) == 0
        # CompletingRebalance: the leader has not sent the assignment, another member waits for it.
        ids = [(await answer(old, join("completing"))).member_id for _ in range(2)]
        calls = [old.groups.handle(CONTEXT, join("completing", one)) for one in ids]
        joined: Any = [await call for call in calls]
        generation = joined[0].generation_id
        follower = next(one for one in ids if one != joined[0].leader)
        waiting_sync = old.groups.handle(
            CONTEXT, SyncGroupRequestData("completing", generation, follower)
        )
        assert state(old, "completing") == "CompletingRebalance"
        # PreparingRebalance: a second member joins, and the first one does not rejoin.
        await stable_member(old, "preparing")
        second = (await answer(old, join("preparing"))).member_id
        waiting_join = old.groups.handle(CONTEXT, join("preparing", second))
        assert state(old, "preparing") == "PreparingRebalance"
        # Empty: its only member has left.
        brokers.replicate(2)
        assert not waiting_join.done()
        assert not waiting_sync.done()

        await brokers.lead(2, isr=[2])
        moved: Any = await waiting_join
        assert moved.error_code == NOT_COORDINATOR
        assert moved.member_id == second
        synced: Any = await waiting_sync
        assert synced.error_code == NOT_COORDINATOR
        late = await answer(old, HeartbeatRequestData("stable", 1, member))
        assert late.error_code == NOT_COORDINATOR
        assert state(old, "stable") == ""

        assert state(new, "stable") == "Stable"
        assert state(new, "simple") == "Empty"
        beat = await answer(new, HeartbeatRequestData("stable", 1, member))
        assert beat.error_code == 0
        assert await offset_of(new, "simple") == 7
        # The generation that was not complete is not in the log; the one before "preparing" is.
        assert state(new, "preparing") == "Stable"
        unknown = await answer(new, HeartbeatRequestData("completing", generation, follower))
        assert unknown.error_code == UNKNOWN_MEMBER_ID
        brokers.close()

    run(scenario)


def test_committed_offsets_survive_moves_in_both_directions() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        leader, follower = 1, 2
        for offset in range(1, 7):
            call = brokers[leader].groups.handle(CONTEXT, commit(offset))
            brokers.replicate(follower)
            assert commit_code(await call) == 0
            leader, follower = follower, leader
            await brokers.lead(leader)
            # A follower that has not heard of the high watermark: the records are not committed
            # for the new leader until its follower fetches.
            brokers.replicate(follower)
            assert await offset_of(brokers[leader]) == offset
            assert await offset_of(brokers[follower]) == -NOT_COORDINATOR
        brokers.close()

    run(scenario)


def test_a_new_leader_commits_what_its_followers_fetch() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        waiting = brokers[1].groups.handle(CONTEXT, commit(1))
        # The follower gets the record, and does not hear that it is committed.
        brokers.joined.replicate(2, rounds=1)
        await brokers.lead(2)
        assert commit_code(await waiting) == NOT_COORDINATOR
        assert await offset_of(brokers[2]) is None
        brokers.replicate(1)
        assert await offset_of(brokers[2]) == 1
        brokers.close()

    run(scenario)


def test_the_high_watermark_may_rise_while_a_coordinator_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        first = brokers[1].groups.handle(CONTEXT, commit(1))
        replicas = brokers[1].replicas
        produce = replicas.produce

        def produce_late(*given: Any) -> Any:
            brokers.replicate(2)
            return produce(*given)

        monkeypatch.setattr(replicas, "produce", produce_late)
        second = brokers[1].groups.handle(CONTEXT, commit(2))
        assert commit_code(await first) == 0
        assert not second.done()
        brokers.replicate(2)
        assert commit_code(await second) == 0
        brokers.close()

    run(scenario)


def test_leaders_are_followed_when_the_replicas_have_the_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1, isr=[1])
        assert commit_code(await answer(brokers[1], commit(1))) == 0
        brokers.replicate(2)
        # The replica manager of broker 2 applies the metadata later than they are published.
        joined, replicas = brokers[2].joined, brokers[2].replicas
        held: list[Any] = []
        monkeypatch.setattr(joined, "on_metadata_update", lambda *given: held.append(given))
        replicas.is_settled.clear()
        brokers.change(leader=2, isr=[2])
        await asyncio.sleep(0)
        assert await offset_of(brokers[2]) == -NOT_COORDINATOR
        monkeypatch.undo()
        for given in held:
            joined.on_metadata_update(*given)
        replicas.is_settled.set()
        await brokers[2].loaded()
        assert await offset_of(brokers[2]) == 1
        brokers.close()

    run(scenario)


def test_an_uncommitted_offset_is_lost_with_its_leader() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        call = brokers[1].groups.handle(CONTEXT, commit(1))
        brokers.replicate(2)
        assert commit_code(await call) == 0
        lost = brokers[1].groups.handle(CONTEXT, commit(2))
        await brokers.lead(2)
        assert commit_code(await lost) == NOT_COORDINATOR
        brokers.replicate(1)
        assert await offset_of(brokers[2]) == 1
        brokers.close()

    run(scenario)


def test_a_new_epoch_of_the_same_leader_keeps_the_groups() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1, isr=[1])
        await stable_member(brokers[1], "g")
        second = (await answer(brokers[1], join("g"))).member_id
        waiting = brokers[1].groups.handle(CONTEXT, join("g", second))
        await brokers.lead(1)
        assert not waiting.done()
        assert state(brokers[1], "g") == "PreparingRebalance"
        brokers.close()
        left: Any = await waiting
        assert left.error_code == NOT_COORDINATOR

    run(scenario)


def test_a_loading_partition_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1, isr=[1])
        for group in ("a", "b"):
            assert commit_code(await answer(brokers[1], commit(3, group=group))) == 0
        brokers.replicate(2)
        brokers.change(leader=2, isr=[2])
        assert commit_code(await answer(brokers[2], commit(4, group="a"))) == (
            COORDINATOR_LOAD_IN_PROGRESS
        )
        assert await offset_of(brokers[2], "a") == -COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(GroupError) as loading:
            brokers[2].groups.list_groups((), ())
        assert loading.value.kafka_code == COORDINATOR_LOAD_IN_PROGRESS
        # A topic is deleted meanwhile; its offsets go when the partition is loaded.
        brokers.create_topic("t", Uuid(b"t1" * 8))
        brokers.append(records.RemoveTopic(topic_id=Uuid(b"t1" * 8)))
        await brokers[2].loaded()
        assert await offset_of(brokers[2], "a") is None
        brokers.close()

    run(scenario)


def test_only_partitions_with_groups_are_logged_when_loaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kraft.broker.group_driver")

    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1, isr=[1])
        assert not [one for one in caplog.messages if one.startswith("loaded ")]
        assert commit_code(await answer(brokers[1], commit(3))) == 0
        brokers.replicate(2)
        await brokers.lead(2, isr=[2])
        (line,) = [one for one in caplog.messages if one.startswith("loaded ")]
        assert line.startswith("loaded 1 groups of __consumer_offsets-1 in ")
        brokers.close()

    run(scenario)


def test_a_move_while_loading_ends_the_loading(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1, isr=[1])
        assert commit_code(await answer(brokers[1], commit(3))) == 0
        brokers.replicate(2)
        brokers.change(leader=2, isr=[2])
        await asyncio.sleep(0)
        await brokers.lead(1, isr=[1])
        assert await offset_of(brokers[2]) == -NOT_COORDINATOR
        assert await offset_of(brokers[1]) == 3
        await brokers.lead(2, isr=[2])
        assert await offset_of(brokers[2]) == 3
        assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
        brokers.close()

    run(scenario)


def test_a_partition_that_does_not_load_is_tried_again_in_the_next_epoch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2, offsets_topic_num_partitions=1)
        await brokers.create_offsets_topic(1, isr=[1])
        assert commit_code(await answer(brokers[1], commit(3))) == 0
        brokers.replicate(2)

        def fail(*_: Any) -> None:
            raise StorageError("the disk is gone")

        log = brokers[2].log()
        monkeypatch.setattr(log, "read", fail)
        with caplog.at_level(logging.ERROR):
            await brokers.lead(2, isr=[2])
        assert "cannot load the groups of __consumer_offsets-0" in caplog.text
        assert await offset_of(brokers[2]) == -NOT_COORDINATOR
        assert brokers[2].groups.list_groups((), ()) == []
        # Other changes of the metadata do not load it again.
        brokers.create_topic("u", Uuid(b"u" * 16))
        monkeypatch.undo()
        assert await offset_of(brokers[2]) == -NOT_COORDINATOR
        await brokers.lead(2, isr=[2])
        assert await offset_of(brokers[2]) == 3
        brokers.close()

    run(scenario)


def test_loading_leaves_turns_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(
            1, 2, offsets_topic_num_partitions=1, offsets_load_buffer_size=40_000
        )
        await brokers.create_offsets_topic(1, isr=[1])
        for number in range(3_000):
            brokers[1].groups.handle(CONTEXT, commit(number, group=f"g{number}"))
        brokers.replicate(2)
        monkeypatch.setattr(group_driver, "_TURN_S", 0.0)
        turns = 0
        brokers.change(leader=2, isr=[2])
        while state(brokers[2], "g0") == "":
            turns += 1
            await asyncio.sleep(0)
        # A turn for each 500 records, for the chunks of the file, and for 500 and 200 groups.
        assert turns >= 3_000 // 500 * 2 + 3_000 // 200
        assert await offset_of(brokers[2], "g2999") == 2999
        brokers.close()

    run(scenario)


def test_a_session_ends_by_the_timer() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, offsets_topic_num_partitions=1)
        await brokers.create_offsets_topic(1)
        broker = brokers[1]
        # The id that it gets is forgotten after a session, too: not that soon.
        first = await answer(broker, join())
        joined = await answer(broker, join("g", first.member_id, session_ms=30))
        assert joined.error_code == 0
        while state(broker, "g") != "Empty":
            await asyncio.sleep(0.005)
        brokers.close()

    run(scenario)


def test_many_due_timers_leave_turns_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        count = 8
        brokers = OffsetsBrokers(
            1, offsets_topic_num_partitions=count, offsets_retention_check_interval_ms=20
        )
        await brokers.create_offsets_topic(1)
        broker = brokers[1]
        # Every partition has its cleanup at the same time; each turn of the timer does one.
        monkeypatch.setattr(group_driver, "_TURN_S", 0.0)
        expired: list[int] = []

        def count_expirations(index: int) -> None:
            coordinator = broker.groups._led[index].coordinator
            expire = coordinator.expire

            def counted(now_ms: int) -> list[GroupReply]:
                expired.append(index)
                return expire(now_ms)

            monkeypatch.setattr(coordinator, "expire", counted)

        for index in range(count):
            count_expirations(index)
        while len(set(expired)) < count:
            before = len(expired)
            await asyncio.sleep(0)
            assert len(expired) <= before + 1
        brokers.close()

    run(scenario)


def test_offsets_of_deleted_topics_are_removed() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1)
        await brokers.create_offsets_topic(1)
        broker = brokers[1]
        brokers.create_topic("t", Uuid(b"t1" * 8))
        brokers.create_topic("u", Uuid(b"u1" * 8))
        for topic in ("t", "u"):
            assert commit_code(await answer(broker, commit(3, topic))) == 0
        brokers.append(records.RemoveTopic(topic_id=Uuid(b"t1" * 8)))
        assert await offset_of(broker, topic="t") is None
        assert await offset_of(broker, topic="u") == 3
        # A snapshot that lacks the topic: the next delta is full.
        broker.joined.images.forget_image()
        brokers.append(records.RemoveTopic(topic_id=Uuid(b"u1" * 8)))
        assert await offset_of(broker, topic="u") is None
        brokers.close()

    run(scenario)


def test_a_compaction_of_the_table_changes_no_coordinator() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1)
        brokers.create_topic("gone", Uuid(b"g1" * 8))
        await brokers.create_offsets_topic(1)
        brokers.create_topic("t", Uuid(b"t1" * 8))
        broker = brokers[1]
        assert commit_code(await answer(broker, commit(3, "t"))) == 0
        led = broker.groups._led[0]
        brokers.append(records.RemoveTopic(topic_id=Uuid(b"g1" * 8)))
        broker.joined.compact()
        assert broker.groups._led[0] is led
        assert await offset_of(broker, topic="t") == 3
        brokers.append(records.RemoveTopic(topic_id=Uuid(b"t1" * 8)))
        assert await offset_of(broker, topic="t") is None
        brokers.close()

    run(scenario)


def test_a_failed_directory_resigns() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        broker = brokers[1]
        waiting = broker.groups.handle(CONTEXT, commit(3))
        partition = broker.groups._led[broker.groups.partition_of("g")].partition
        broker.replicas.manager.directory_failed(partition.directory, 0.0)
        broker.replicas.step()
        assert commit_code(await waiting) == NOT_COORDINATOR
        assert commit_code(await answer(broker, commit(4))) == NOT_COORDINATOR
        brokers.close()

    run(scenario)


def test_a_stop_answers_everything_once() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, 2)
        await brokers.create_offsets_topic(1)
        broker = brokers[1]
        waiting = [
            broker.groups.handle(CONTEXT, commit(3)),
            broker.groups.handle(CONTEXT, join("h")),
        ]
        brokers.replicate(2)
        await asyncio.gather(*waiting)
        broker.groups.handle(CONTEXT, commit(3)).cancel()  # a client that is gone
        commits = [broker.groups.handle(CONTEXT, commit(3)) for _ in range(3)]
        fetch = broker.groups.fetch_offsets(OffsetFetchRequestGroup("g"), require_stable=True)
        deletion = broker.groups.delete_group("g")
        brokers.close()
        brokers.close()
        assert [commit_code(await one) for one in commits] == [NOT_COORDINATOR] * 3
        assert (await fetch).error_code == NOT_COORDINATOR
        assert (await deletion).error_code == NOT_COORDINATOR
        # A replica that goes on after the coordinators have stopped.
        brokers.replicate(2)
        brokers.create_topic("u", Uuid(b"u" * 16))

        assert commit_code(await answer(broker, commit(3))) == COORDINATOR_NOT_AVAILABLE
        joined: JoinGroupResponseData = await answer(broker, JoinGroupRequestData("g", 10_000))
        assert joined.error_code == COORDINATOR_NOT_AVAILABLE
        assert await offset_of(broker) == -COORDINATOR_NOT_AVAILABLE
        assert (await broker.groups.delete_group("g")).error_code == COORDINATOR_NOT_AVAILABLE
        assert broker.groups.describe_group("g", 6).error_code == COORDINATOR_NOT_AVAILABLE
        with pytest.raises(GroupError) as stopped:
            broker.groups.list_groups((), ())
        assert stopped.value.kafka_code == COORDINATOR_NOT_AVAILABLE
        broker.groups.create_offsets_topic()
        await asyncio.sleep(0)
        assert broker.controller.requests == []

    run(scenario)


def test_batches_are_compressed_as_configured() -> None:
    async def scenario() -> None:
        brokers = OffsetsBrokers(1, offsets_topic_compression_codec=4)
        await brokers.create_offsets_topic(1)
        broker = brokers[1]
        assert commit_code(await answer(broker, commit(3))) == 0
        (batch,) = broker.log(broker.groups.partition_of("g")).batches
        assert batch.header.attributes & 7 == 4
        assert await offset_of(broker) == 3
        brokers.close()

    run(scenario)
