"""Replica drivers on real logs: replication, ISRs, leader changes, faults of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.replication.messages import (
    LATEST,
    BrokerFetchRequest,
    FetchPartition,
    PartitionId,
    ProducedPartition,
)
from kraft.broker.replication.partition import HostedPartition
from kraft.controller.runtime import requests
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    StorageError,
)
from kraft.protocol.alter_partition import ALTER_PARTITION
from kraft.protocol.api_versions import PeerVersions
from kraft.protocol.headers import Api
from tests.harness.data_brokers import DataBroker, DataCluster, LocalChannel, running, until
from tests.harness.partition_logs import produced

ALL, LEADER = -1, 1
Scenario = Callable[[DataCluster], Awaitable[None]]


def run(path: Path, scenario: Scenario, *ids: int, **fields: Any) -> None:
    async def main() -> None:
        with running(DataCluster(path, *(ids or (1, 2, 3)), **fields)) as cluster:
            await cluster.start()
            await scenario(cluster)

    asyncio.run(asyncio.wait_for(main(), 120))


async def produce(
    broker: DataBroker, id: PartitionId, *, acks: int = ALL, timeout_ms: float = 5_000.0
) -> ProducedPartition:
    return (await broker.driver.produce({id: produced()}, acks, timeout_ms))[id]


async def created(cluster: DataCluster, *replicas: int, **configs: str) -> PartitionId:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    topic_id = await cluster.create("t", list(replicas or (1, 2, 3)), configs=named)
    return PartitionId(bytes(topic_id), 0)


def test_all_replicas_get_what_is_acknowledged(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        for number in range(3):
            answer = await produce(cluster[1], id)
            assert (answer.error, answer.base_offset) == (NONE, number)
        # Followers learn the high watermark by their next fetch.
        await until(lambda: all(cluster[each].partition(id).high_watermark == 3 for each in (2, 3)))
        content = cluster[1].content(id)
        assert len(content) > 300
        assert cluster[2].content(id) == cluster[3].content(id) == content

    run(tmp_path, scenario)


def test_two_requests_whose_time_is_due_set_the_timer_under_uvloop(tmp_path: Path) -> None:
    """uvloop returns a plain handle, without a time, for a call that is due."""

    async def scenario() -> None:
        with running(DataCluster(tmp_path, 1, 2)) as cluster:
            await cluster.start()
            id = await created(cluster, 1, 2)
            cluster.links.cut.update({(2, 1), (1, 2)})
            answers = await asyncio.gather(
                *(produce(cluster[1], id, timeout_ms=timeout_ms) for timeout_ms in (0.1, 0.05))
            )
            assert [answer.error for answer in answers] == [REQUEST_TIMED_OUT] * 2

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 120))


def test_a_replica_that_is_cut_off_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        assert (await produce(cluster[1], id)).error == NONE
        cluster.links.cut.add((3, 1))
        waiting = cluster[1].driver.produce({id: produced()}, ALL, 5_000.0)
        await asyncio.sleep(0.05)
        assert not waiting.done(), "it waits for the replica until the ISR is smaller"
        assert (await waiting)[id].error == NONE
        assert cluster.isr(id) == {1, 2}
        cluster.links.cut.clear()
        await until(lambda: cluster.isr(id) == {1, 2, 3})
        assert cluster[3].content(id) == cluster[1].content(id)
        state = cluster.state_of(id)
        assert state["leader_epoch"] == 0
        assert state["partition_epoch"] == 2

    run(tmp_path, scenario)


def test_too_few_replicas_in_sync_reject_acks_all(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster, min_insync_replicas="3")
        cluster.links.cut.add((3, 1))
        assert (await produce(cluster[1], id, acks=LEADER)).error == NONE
        # The leader itself must have heard of it.
        await until(lambda: cluster[1].partition(id).isr == {1, 2})
        assert (await produce(cluster[1], id)).error == NOT_ENOUGH_REPLICAS
        assert (await produce(cluster[1], id, acks=LEADER)).error == NONE
        assert cluster[1].partition(id).high_watermark == 0

    run(tmp_path, scenario)


def test_a_produce_that_nobody_acknowledges_times_out(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        cluster.links.cut |= {(2, 1), (3, 1), (1, -1)}
        assert (await produce(cluster[1], id, timeout_ms=30)).error == REQUEST_TIMED_OUT

    run(tmp_path, scenario)


def test_a_new_leader_cuts_what_the_old_one_had_alone(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        assert (await produce(cluster[1], id)).error == NONE
        cluster.links.cut |= {(2, 1), (3, 1)}
        assert (await produce(cluster[1], id, acks=LEADER)).base_offset == 1
        cluster.fence(1)
        cluster.links.cut.clear()
        leader = cluster.state_of(id)["leader"]
        assert leader in (2, 3)
        cluster.beat(1)
        await cluster.settle()
        assert (await produce(cluster[leader], id)).base_offset == 1
        await until(lambda: cluster.isr(id) == {1, 2, 3})
        assert cluster[1].content(id) == cluster[2].content(id) == cluster[3].content(id)
        assert cluster[1].manager.fetching.truncation_count == 1
        assert (await produce(cluster[1], id)).error == NOT_LEADER_OR_FOLLOWER

    run(tmp_path, scenario)


def test_a_broker_comes_back_with_its_log_and_its_high_watermark(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        for _ in range(3):
            assert (await produce(cluster[1], id)).error == NONE
        await until(lambda: cluster[3].partition(id).high_watermark == 3)
        cluster[3].stop()
        assert (await produce(cluster[1], id)).error == NONE
        assert cluster.isr(id) == {1, 2}
        cluster.links.cut.add((3, 1))
        await cluster[3].start()
        assert cluster[3].partition(id).high_watermark == 3
        cluster.links.cut.clear()
        await until(lambda: cluster.isr(id) == {1, 2, 3})
        assert cluster[3].content(id) == cluster[1].content(id)

    run(tmp_path, scenario)


def test_a_follower_without_its_leaders_records_starts_again_at_their_offset(
    tmp_path: Path,
) -> None:
    """The leader's log begins after the follower's end: offsets are asked by ListOffsets."""

    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        assert (await produce(cluster[1], id)).error == NONE
        cluster[3].stop()
        for _ in range(4):
            assert (await produce(cluster[1], id)).error == NONE
        assert cluster.isr(id) == {1, 2}
        cluster.fence(3)
        deleted = await cluster[1].driver.delete_records({id: 4}, 5_000.0)
        assert deleted[id] == (NONE, 4)
        await cluster[3].start()
        await until(lambda: cluster.isr(id) == {1, 2, 3})
        log = cluster[3].partition(id).local_log
        assert (log.start_offset, log.end_offset) == (4, 5)
        assert (3, 1, "ListOffsets") in cluster.links.carried

    run(tmp_path, scenario)


def test_a_leader_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        cluster.links.silent.add((2, 1))
        assert (await produce(cluster[1], id)).error == NONE
        assert cluster.isr(id) == {1, 3}
        cluster.links.silent.clear()
        await until(lambda: cluster.isr(id) == {1, 2, 3})
        assert [channel.is_closed for channel in cluster[2].channels] == [True, False]

    run(tmp_path, scenario)


def test_changes_of_isrs_wait_for_a_controller(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        cluster.links.cut |= {(3, 1), (1, -1)}
        await produce(cluster[1], id, acks=LEADER)
        asked = (1, -1, "AlterPartition")
        await until(lambda: cluster.links.carried.count(asked) >= 3)
        assert cluster.isr(id) == {1, 2, 3}
        cluster.links.cut.remove((1, -1))
        await until(lambda: cluster.isr(id) == {1, 2})

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", [2, 3])
def test_an_isr_change_has_the_fields_of_the_controllers_version(
    tmp_path: Path, version: int
) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        channel = cluster[1].isr_channel
        channel.newest[ALTER_PARTITION.key] = version
        channel.versions = PeerVersions(0, {ALTER_PARTITION.key: (2, version)}, {}, {})
        cluster.links.cut.add((3, 1))
        await produce(cluster[1], id, acks=LEADER)
        await until(lambda: cluster.isr(id) == {1, 2})

    run(tmp_path, scenario)


def test_connections_to_a_broker_that_leads_nothing_are_closed(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        assert (await produce(cluster[1], id)).error == NONE
        assert not any(channel.is_closed for channel in cluster[2].channels)
        cluster.ask(requests.delete_topics([TopicToDelete("t")]))
        await cluster.settle()
        assert all(channel.is_closed for channel in cluster[2].channels)
        assert id not in cluster[2].manager.partitions
        assert cluster[2].logs.get("t", 0) is None

    run(tmp_path, scenario)


def test_a_restarted_leader_does_not_lead_in_its_old_epoch(tmp_path: Path) -> None:
    """The metadata before its registration show it as the leader."""

    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        broker = cluster[1]
        broker.stop(is_clean=False)
        assert cluster.state_of(id)["leader"] == 1
        await broker.start()
        assert broker.manager.context.broker_epoch == broker.epoch
        partition = broker.partition(id)
        assert partition.leader_epoch == cluster.state_of(id)["leader_epoch"] > 0
        assert not partition.is_leader

    run(tmp_path, scenario)


def test_a_fetch_waits_for_records(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster, 1)
        driver = cluster[1].driver
        request = BrokerFetchRequest([FetchPartition(id, 0, 1 << 20)], max_wait_ms=5_000)
        waiting = driver.fetch(request)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await produce(cluster[1], id, acks=LEADER)
        (fetched,) = (await waiting).partitions
        assert fetched.size == len(cluster[1].content(id))
        empty = BrokerFetchRequest([FetchPartition(id, 1, 1 << 20)], max_wait_ms=20)
        (fetched,) = (await driver.fetch(empty)).partitions
        assert (fetched.error, fetched.size) == (NONE, 0)

    run(tmp_path, scenario, 1)


def test_a_fetch_that_cannot_read_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer's batch makes the waiting fetch read; the producer is answered in any case."""

    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1], [1])
        first, second = (PartitionId(bytes(topic_id), each) for each in (0, 1))
        driver = cluster[1].driver
        fetches = [FetchPartition(id, 0, 1 << 20) for id in (first, second)]
        waiting = driver.fetch(BrokerFetchRequest(fetches, max_wait_ms=5_000))
        read = PartitionLog.read

        def failing(log: PartitionLog, offset: int, max_bytes: int, end: int) -> Any:
            if log.partition == 0:
                raise StorageError("an unreadable file")
            return read(log, offset, max_bytes, end)

        monkeypatch.setattr(PartitionLog, "read", failing)
        assert (await produce(cluster[1], first, acks=LEADER)).error == NONE
        fetched = {each.id: each.error for each in (await waiting).partitions}
        assert fetched == {first: KAFKA_STORAGE_ERROR, second: NONE}

    run(tmp_path, scenario, 1)


@pytest.mark.parametrize("failing", ["leader", "follower"])
def test_a_directory_that_fails_within_a_request_stops_only_its_own_partitions(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The manager hears of the directory only afterwards, and uses its other logs until then."""

    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", *([1, 2] for _ in range(6)))
        leader, follower = cluster[1], cluster[2]
        broker = leader if failing == "leader" else follower
        ids = [PartitionId(bytes(topic_id), index) for index in range(6)]
        last = broker.partition(ids[-1]).local_log
        assert isinstance(last, PartitionLog)
        directory = last.directory
        kept = [id for id in ids if broker.partition(id).directory != directory.id]
        assert len(kept) == 3
        name = f"append_as_{failing}"
        append = getattr(PartitionLog, name)

        def failing_append(log: PartitionLog, *given: Any) -> Any:
            if log is last:
                directory.fail(StorageError("a failing disk"))
                raise directory.offline_error()
            return append(log, *given)

        monkeypatch.setattr(PartitionLog, name, failing_append)
        batches = {id: produced() for id in ids}
        answers = await leader.driver.produce(batches, LEADER, 5_000.0)
        assert all(answers[id].error == NONE for id in kept)
        await until(lambda: broker.partition(ids[-1]).log is None)
        for id in kept:
            assert (await produce(leader, id)).error == NONE
            assert leader.content(id) == follower.content(id)

    run(tmp_path, scenario, 1, 2, directories=2)
    assert "a request of the replication failed" not in caplog.text


def test_a_log_that_cannot_be_opened_does_not_stop_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: DataCluster) -> None:
        topic_id = await cluster.create("t", [1], [1])
        first, second = (PartitionId(bytes(topic_id), each) for each in (0, 1))
        broker = cluster[1]
        broken = broker.partition(first)
        lead = HostedPartition.become_leader

        def failing(partition: HostedPartition, *given: Any) -> bool:
            if partition is broken:
                raise StorageError("an unreadable file")
            return lead(partition, *given)

        monkeypatch.setattr(HostedPartition, "become_leader", failing)
        cluster.fence(1)
        cluster.beat(1)
        await cluster.settle()
        assert broker.partition(second).leader_epoch == cluster.state_of(second)["leader_epoch"] > 0
        assert (await produce(broker, second, acks=LEADER)).error == NONE

    run(tmp_path, scenario, 1)


def test_a_request_whose_connection_is_gone_disturbs_nobody(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        cluster.links.cut |= {(2, 1), (3, 1)}
        waiting = cluster[1].driver.produce({id: produced()}, ALL, 5_000.0)
        waiting.cancel()
        cluster.links.cut.clear()
        assert (await produce(cluster[1], id)).base_offset == 1

    run(tmp_path, scenario)


def test_a_listener_of_steps_may_produce(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster, 1)
        driver = cluster[1].driver
        seen: list[int] = []
        answers: list[asyncio.Future[Any]] = []

        def step() -> None:
            seen.append(cluster[1].partition(id).high_watermark)
            if len(answers) < 3:
                answers.append(driver.produce({id: produced()}, ALL, 1_000.0))

        driver.after_step.append(step)
        await produce(cluster[1], id)
        assert [(await each)[id].base_offset for each in answers] == [1, 2, 3]
        assert seen[-1] == 4

    run(tmp_path, scenario, 1)


def test_a_listener_that_fails_disturbs_no_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster, 1)
        driver = cluster[1].driver
        seen: list[int] = []

        def failing() -> None:
            raise ValueError("a coordinator without luck")

        driver.after_step += [failing, lambda: seen.append(cluster[1].partition(id).high_watermark)]
        assert (await produce(cluster[1], id)).error == NONE
        assert seen == [1]
        assert "without luck" in caplog.text

    run(tmp_path, scenario, 1)


def test_a_faulty_connection_does_not_end_the_replication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster)
        call = LocalChannel.call
        faults: list[str] = []

        async def faulty(channel: LocalChannel, api: Api, *given: Any, **named: Any) -> Any:
            if len(faults) < 10:
                faults.append(api.name)
                raise ValueError("a bug")
            return await call(channel, api, *given, **named)

        monkeypatch.setattr(LocalChannel, "call", faulty)
        cluster.links.cut.add((3, 1))
        assert (await produce(cluster[1], id)).error == NONE
        assert cluster.isr(id) == {1, 2}
        assert "Fetch" in faults

    run(tmp_path, scenario)


def test_many_partitions_are_handled_in_slices(tmp_path: Path) -> None:
    """Neither new metadata nor a large request holds the loop for long."""

    async def scenario(cluster: DataCluster) -> None:
        count = 300
        turns = 0
        # A pause, so that the threads that create logs have their part of the interpreter.
        pause_s = 0.001

        async def watch() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(pause_s)

        watching = asyncio.ensure_future(watch())
        topic_id = await cluster.create("t", *([1] for _ in range(count)))
        assert len(cluster[1].manager.partitions) == count
        assert turns > 5
        turns, pause_s = 0, 0.0
        await asyncio.sleep(0.002)
        ids = [PartitionId(bytes(topic_id), each) for each in range(count)]
        answers = await cluster[1].driver.produce({id: produced() for id in ids}, ALL, 5_000.0)
        assert [answers[id].error for id in ids] == [NONE] * count
        assert turns >= count // 50
        deleted = await cluster[1].driver.delete_records(dict.fromkeys(ids, -1), 5_000.0)
        assert [deleted[id] for id in ids] == [(NONE, 1)] * count
        watching.cancel()

    run(tmp_path, scenario, 1)


def test_high_watermarks_reach_the_logs(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster, 1)
        await produce(cluster[1], id)
        log = cluster[1].logs.get("t", 0)
        assert log is not None
        assert log.high_watermark == 0
        cluster[1].driver.note_high_watermarks()
        assert log.high_watermark == 1
        assert cluster[1].manager.list_offset(id, LATEST).offset == 1

    run(tmp_path, scenario, 1)
