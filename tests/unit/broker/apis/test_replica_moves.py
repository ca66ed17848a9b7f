"""AlterReplicaLogDirs: moves between log directories, their errors, restarts and faults."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraft.broker import replica_mover
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.replication.messages import PartitionId
from kraft.controller.runtime import requests
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    LOG_DIR_NOT_FOUND,
    NONE,
    REPLICA_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    StorageError,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequestData,
    AlterReplicaLogDirsResponseData,
    AlterReplicaLogDirTopic,
)
from kraft.protocol.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequestData,
    DescribeLogDirsResponseData,
)
from kraft.records import Uuid
from kraft.security.controller_apis import CLUSTER_NAME
from tests.harness.data_brokers import CONTROLLER, DataBroker, DataCluster, until
from tests.harness.data_requests import ALICE, allowing, run
from tests.harness.data_requests import produce as produce_to

#: Topic and partition -> path of the wanted directory.
Wanted = dict[tuple[str, int], str]


async def alter(broker: DataBroker, wanted: Wanted, **sender: Any) -> dict[tuple[str, int], int]:
    """Send the request; return the error of each partition."""
    request = AlterReplicaLogDirsRequestData(
        [
            AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [partition])])
            for (topic, partition), path in wanted.items()
        ]
    )
    answer = await broker.ask(
        ALTER_REPLICA_LOG_DIRS, request, AlterReplicaLogDirsResponseData, **sender
    )
    return {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.results
        for each in topic.partitions
    }


async def produce(broker: DataBroker, topic: str) -> None:
    answer = await produce_to(broker, topic, version=12)
    assert answer.error_code == NONE
    await asyncio.sleep(0)


def home_of(broker: DataBroker, id: PartitionId) -> LogDirectory:
    log = broker.partition(id).log
    assert isinstance(log, PartitionLog)
    return log.directory


def other_than(broker: DataBroker, directory: LogDirectory) -> LogDirectory:
    (other,) = (each for each in broker.logs.directories if each is not directory)
    return other


async def moved(broker: DataBroker, id: PartitionId, directory: LogDirectory) -> None:
    await until(lambda: home_of(broker, id) is directory)


def assigned(broker: DataBroker, id: PartitionId) -> bytes:
    assignment = broker.partition(id).assignment
    assert assignment is not None
    return assignment.directory


def names_in(directory: LogDirectory) -> list[str]:
    return sorted(path.name for path in Path(directory.path).iterdir() if path.is_dir())


def _is_assigned_home(broker: DataBroker, id: PartitionId) -> bool:
    return assigned(broker, id) == home_of(broker, id).id


async def created(cluster: DataCluster, *replicas: int) -> PartitionId:
    id = PartitionId(bytes(await cluster.create("t", list(replicas or (1,)))), 0)
    for broker in replicas or (1,):
        await until(partial(_is_assigned_home, cluster[broker], id))
    return id


def test_a_replica_moves_to_another_directory(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        for _ in range(5):
            await produce(broker, "t")
        source = home_of(broker, id)
        target = other_than(broker, source)
        before = broker.content(id)
        for version in (1, 2):
            assert await alter(broker, {("t", 0): target.path}, version=version) == {("t", 0): NONE}
            await moved(broker, id, target)
            assert assigned(broker, id) == target.id
            assert broker.content(id) == before
            assert broker.partition(id).high_watermark == 4 + version
            assert "t-0" in names_in(target)
            assert [name.endswith("-delete") for name in names_in(source)] == [True] * version
            await produce(broker, "t")
            before = broker.content(id)
            await alter(broker, {("t", 0): source.path})
            await moved(broker, id, source)

    run(tmp_path, scenario, 1, directories=2)


def test_a_replica_that_is_written_to_all_the_time_moves(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        target = other_than(broker, home_of(broker, id))
        sent = 0
        await alter(broker, {("t", 0): target.path})
        while home_of(broker, id) is not target:
            await produce(broker, "t")
            sent += 1
        end = broker.partition(id).local_log.end_offset
        assert end == sent
        await produce(broker, "t")
        assert broker.partition(id).local_log.end_offset == sent + 1

    run(tmp_path, scenario, 1, directories=2)


def test_a_follower_moves_and_goes_on_following(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster, 1, 2)
        follower = cluster[2]
        for _ in range(3):
            await produce(cluster[1], "t")
        target = other_than(follower, home_of(follower, id))
        await alter(follower, {("t", 0): target.path})
        await moved(follower, id, target)
        await produce(cluster[1], "t")
        await until(lambda: follower.content(id) == cluster[1].content(id))
        assert cluster.isr(id) == {1, 2}

    run(tmp_path, scenario, 1, 2, directories=2)


def test_errors_are_those_of_kafka(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        await cluster.create("elsewhere", [2])
        here = home_of(broker, id)
        there = other_than(broker, here)
        long = "t" * 220
        wanted = {
            ("t", 0): f"{there.path}/no",
            ("t", 7): there.path,
            ("none", 0): there.path,
            ("elsewhere", 0): there.path,
            (long, 0): there.path,
        }
        assert await alter(broker, wanted) == {
            ("t", 0): LOG_DIR_NOT_FOUND,
            ("t", 7): UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): UNKNOWN_TOPIC_OR_PARTITION,
            ("elsewhere", 0): REPLICA_NOT_AVAILABLE,
            (long, 0): INVALID_TOPIC_EXCEPTION,
        }
        assert await alter(broker, {("t", 0): here.path}) == {("t", 0): NONE}
        assert not broker.driver.mover.moves
        there.fail(StorageError("no device"))
        assert await alter(broker, {("t", 0): there.path}) == {("t", 0): KAFKA_STORAGE_ERROR}
        assert await alter(broker, {("t", 0): here.path}) == {("t", 0): NONE}

    run(tmp_path, scenario, 1, 2, directories=2)


def test_a_partition_moves_to_no_third_directory_while_one_is_offline(tmp_path: Path) -> None:
    """The offline directory may have another copy of it."""

    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        failed, target = (
            each for each in broker.logs.directories if each is not home_of(broker, id)
        )
        failed.fail(StorageError("no device"))
        assert await alter(broker, {("t", 0): target.path}) == {("t", 0): KAFKA_STORAGE_ERROR}
        await cluster.settle()
        home_of(broker, id).fail(StorageError("no device"))
        await until(lambda: broker.partition(id).log is None)
        assert await alter(broker, {("t", 0): target.path}) == {("t", 0): KAFKA_STORAGE_ERROR}

    run(tmp_path, scenario, 1, directories=3)


def test_clients_without_alter_on_the_cluster_are_rejected(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        target = other_than(broker, home_of(broker, id))
        assert await alter(broker, {("t", 0): target.path}) == {
            ("t", 0): CLUSTER_AUTHORIZATION_FAILED
        }
        assert await alter(broker, {("t", 0): target.path}, principal=ALICE) == {("t", 0): NONE}

    authorizer = allowing((AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    run(tmp_path, scenario, 1, directories=2, authorizer=authorizer)


def test_a_new_replica_is_created_in_the_wanted_directory(tmp_path: Path) -> None:
    """kafka-reassign-partitions asks before it adds the replica."""

    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        for number, directory in enumerate((0, 0, 0, 1, 1)):
            path = broker.logs.directories[directory].path
            topic = f"t{number}"
            errors = await alter(broker, {(topic, 0): path})
            assert errors == {(topic, 0): UNKNOWN_TOPIC_OR_PARTITION}
            await cluster.create(topic, [1])
            assert home_of(broker, broker.id_of(topic)).path == path

    run(tmp_path, scenario, 1, directories=2)


def test_a_directory_that_was_cordoned_since_gets_no_new_replica(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        first, second = broker.logs.directories
        await alter(broker, {("a", 0): second.path, ("b", 0): second.path})
        second.is_cordoned = True
        for topic in ("a", "b"):
            await cluster.create(topic, [1])
            assert home_of(broker, broker.id_of(topic)) is first

    run(tmp_path, scenario, 1, directories=2)


def test_cordoned_directories_take_no_replicas(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        target = other_than(broker, home_of(broker, id))
        target.is_cordoned = True
        errors = await alter(broker, {("t", 0): target.path})
        assert errors == {("t", 0): INVALID_REPLICA_ASSIGNMENT}
        assert not broker.driver.mover.moves
        for topic in ("a", "b", "c"):
            await cluster.create(topic, [1], [1])
        assert len(target.partitions) == 0

    run(tmp_path, scenario, 1, directories=2)


# -- moves that wait for the controller


def hold_assignments(cluster: DataCluster, broker: int = 1) -> None:
    """Let the broker's requests to the controller fail."""
    cluster.links.cut.add((broker, CONTROLLER))


async def assign_unseen(cluster: DataCluster, broker: DataBroker) -> None:
    """Let the controller assign the directories of all moves; the broker does not know it yet."""
    broker.is_held_back = True
    cluster.links.cut.clear()
    left = {id: move.directory for id, move in broker.driver.mover.moves.items()}
    while left:
        await asyncio.sleep(0)
        left = {id: to for id, to in left.items() if assigned_at_controller(cluster, id) != to}


async def waiting_move(cluster: DataCluster) -> tuple[DataBroker, PartitionId, LogDirectory]:
    """Return a broker whose replica has caught up in this directory, and waits."""
    broker, id = cluster[1], await created(cluster)
    await produce(broker, "t")
    target = other_than(broker, home_of(broker, id))
    hold_assignments(cluster)
    await alter(broker, {("t", 0): target.path})
    await until(lambda: broker.driver.mover.moves[id].is_reported)
    return broker, id, target


def test_a_copy_replaces_the_log_only_when_its_directory_is_assigned(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id, target = await waiting_move(cluster)
        for _ in range(3):
            await produce(broker, "t")
        move = broker.driver.mover.moves[id]
        await until(lambda: move.has_caught_up)
        assert home_of(broker, id) is not target
        answer = await broker.ask(
            DESCRIBE_LOG_DIRS, DescribeLogDirsRequestData(None), DescribeLogDirsResponseData
        )
        described = {
            (result.log_dir, each.is_future_key): each.offset_lag
            for result in answer.results
            for topic in result.topics
            for each in topic.partitions
        }
        assert described == {(home_of(broker, id).path, False): 0, (target.path, True): 0}
        cluster.links.cut.clear()
        await moved(broker, id, target)
        assert broker.partition(id).local_log.end_offset == 4

    run(tmp_path, scenario, 1, directories=2)


def test_asking_for_the_present_directory_cancels_the_move(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id, target = await waiting_move(cluster)
        source = home_of(broker, id)
        assert await alter(broker, {("t", 0): source.path}) == {("t", 0): NONE}
        assert not broker.driver.mover.moves
        assert all(name.endswith("-delete") for name in names_in(target))
        cluster.links.cut.clear()
        await produce(broker, "t")
        # Another move back and forth shows that nothing of the first one is left.
        await alter(broker, {("t", 0): target.path})
        await moved(broker, id, target)
        assert assigned(broker, id) == target.id

    run(tmp_path, scenario, 1, directories=2)


def test_a_cancelled_move_takes_its_assignment_back(tmp_path: Path) -> None:
    """The controller has assigned the new directory before the copy replaced the log."""

    async def scenario(cluster: DataCluster) -> None:
        broker, id, _ = await waiting_move(cluster)
        source = home_of(broker, id)
        await assign_unseen(cluster, broker)
        await alter(broker, {("t", 0): source.path})
        broker.is_held_back = False
        cluster.deliver()
        await until(lambda: assigned(broker, id) == source.id)
        assert home_of(broker, id) is source

    run(tmp_path, scenario, 1, directories=2)


@pytest.mark.parametrize("is_assigned", [False, True])
def test_a_second_request_moves_the_replica_elsewhere(tmp_path: Path, is_assigned: bool) -> None:
    """Also if the controller has assigned the first directory by then."""

    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        first, second = (
            each for each in broker.logs.directories if each is not home_of(broker, id)
        )
        await produce(broker, "t")
        hold_assignments(cluster)
        await alter(broker, {("t", 0): first.path})
        await until(lambda: broker.driver.mover.moves[id].is_reported)
        if is_assigned:
            await assign_unseen(cluster, broker)
        assert await alter(broker, {("t", 0): second.path}) == {("t", 0): NONE}
        assert all(name.endswith("-delete") for name in names_in(first))
        broker.is_held_back = False
        cluster.links.cut.clear()
        cluster.deliver()
        await moved(broker, id, second)
        await until(lambda: assigned_at_controller(cluster, id) == second.id)
        assert broker.partition(id).local_log.end_offset == 1

    run(tmp_path, scenario, 1, directories=3)


def test_a_follower_becomes_the_leader_while_it_moves(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        id = await created(cluster, 1, 2)
        broker = cluster[2]
        for _ in range(3):
            await produce(cluster[1], "t")
        await until(lambda: broker.partition(id).local_log.end_offset == 3)
        target = other_than(broker, home_of(broker, id))
        hold_assignments(cluster, 2)
        await alter(broker, {("t", 0): target.path})
        await until(lambda: broker.driver.mover.moves[id].is_reported)
        cluster[1].stop(is_clean=False)
        cluster.fence(1)
        await until(lambda: broker.partition(id).is_leader)
        cluster.links.cut.clear()
        await produce(broker, "t")
        await moved(broker, id, target)
        await produce(broker, "t")
        assert broker.partition(id).local_log.end_offset == 5
        await cluster[1].start()
        await until(lambda: cluster[1].content(id) == broker.content(id))

    run(tmp_path, scenario, 1, 2, directories=2)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_move_goes_on_after_a_restart(tmp_path: Path, is_clean: bool) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id, target = await waiting_move(cluster)
        path = target.path
        before = broker.content(id)
        broker.stop(is_clean=is_clean)
        cluster.links.cut.clear()
        await broker.start()
        (again,) = (each for each in broker.logs.directories if each.path == path)
        await moved(broker, id, again)
        assert broker.content(id) == before

    run(tmp_path, scenario, 1, directories=2)


def test_a_move_is_not_resumed_for_another_topic_of_the_same_name(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id, target = await waiting_move(cluster)
        path = target.path
        broker.stop()
        cluster.links.cut.clear()
        cluster.ask(requests.delete_topics([TopicToDelete(topic_id=Uuid(id.topic_id))]))
        await cluster.create("t", [1])
        await broker.start()
        assert not broker.driver.mover.moves
        assert broker.partition(broker.id_of("t")).local_log.end_offset == 0
        strays = [name for each in broker.logs.directories for name in names_in(each)]
        assert sum(name.endswith("-stray") for name in strays) == 2, path

    run(tmp_path, scenario, 1, directories=2)


def test_a_deleted_topic_takes_its_copy_along(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id, _ = await waiting_move(cluster)
        cluster.ask(requests.delete_topics([TopicToDelete(topic_id=Uuid(id.topic_id))]))
        await cluster.settle()
        assert not broker.driver.mover.moves
        names = [name for each in broker.logs.directories for name in names_in(each)]
        assert len(names) == 2
        assert all(name.endswith("-delete") for name in names)

    run(tmp_path, scenario, 1, directories=2)


def test_a_target_that_fails_ends_the_move(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id, target = await waiting_move(cluster)
        source = home_of(broker, id)
        target.fail(StorageError("no device"))
        await until(lambda: not broker.driver.mover.moves)
        cluster.links.cut.clear()
        await produce(broker, "t")
        assert home_of(broker, id) is source

    run(tmp_path, scenario, 1, directories=2)


def test_a_source_that_fails_leaves_the_replica_offline(tmp_path: Path) -> None:
    """The copy may lack the last records: it must not become the log, nor may an empty one."""

    async def scenario(cluster: DataCluster) -> None:
        broker, id, target = await waiting_move(cluster)
        source = home_of(broker, id)
        await assign_unseen(cluster, broker)
        source.fail(StorageError("no device"))
        await until(lambda: broker.partition(id).log is None)
        broker.is_held_back = False
        cluster.deliver()
        await until(lambda: assigned_at_controller(cluster, id) == source.id)
        assert broker.partition(id).log is None
        assert names_in(target)[0].endswith("-future")

    run(tmp_path, scenario, 1, directories=2)


def assigned_at_controller(cluster: DataCluster, id: PartitionId) -> bytes:
    table = cluster.log.controller.cluster.table
    return table.directory_id(cluster.state_of(id)["directories"][0])


def test_a_stopping_broker_begins_no_move(tmp_path: Path) -> None:
    """Its listener closes after the threads of moves have ended."""

    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        target = other_than(broker, home_of(broker, id))
        broker.driver.close()
        await broker.driver.settled()
        errors = await alter(broker, {("t", 0): target.path})
        assert errors == {("t", 0): REPLICA_NOT_AVAILABLE}
        assert names_in(target) == []

    run(tmp_path, scenario, 1, directories=2)


# -- cuts and quotas


def test_a_cut_of_the_log_cuts_the_copy(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker, id, target = await waiting_move(cluster)
        for _ in range(4):
            await produce(broker, "t")
        move = broker.driver.mover.moves[id]
        await until(lambda: move.copy.end_offset == 5)
        broker.partition(id).truncate_to(2)
        await until(lambda: move.copy.end_offset == 2)
        cluster.links.cut.clear()
        await moved(broker, id, target)
        assert broker.partition(id).local_log.end_offset == 2

    run(tmp_path, scenario, 1, directories=2)


def test_the_quota_bounds_the_copied_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_mover, "PART_BYTES", 1)

    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        for _ in range(40):
            await produce(broker, "t")
        size = len(broker.content(id))
        target = other_than(broker, home_of(broker, id))
        quota = broker.manager.context.quotas.moves
        quota.limit = size / 4
        began = asyncio.get_running_loop().time()
        await alter(broker, {("t", 0): target.path})
        await moved(broker, id, target)
        assert asyncio.get_running_loop().time() - began > 2.0

    run(tmp_path, scenario, 1, directories=2)


# -- turns of the event loop


def test_other_work_runs_while_many_small_segments_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_mover, "PART_BYTES", 1)
    monkeypatch.setattr(replica_mover, "_SMALL_BYTES", 500)

    async def scenario(cluster: DataCluster) -> None:
        broker, id = cluster[1], await created(cluster)
        for _ in range(40):
            await produce(broker, "t")
        assert len(broker.content(id)) > 2_500
        hold_assignments(cluster)
        await alter(broker, {("t", 0): other_than(broker, home_of(broker, id)).path})
        move = broker.driver.mover.moves[id]
        seen = set()
        while move.copy.end_offset < 40:
            seen.add(move.copy.end_offset)
            await asyncio.sleep(0)
        assert len(seen) >= 4, seen

    run(tmp_path, scenario, 1, directories=2)


def test_other_work_runs_between_two_replacements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one waits for the device; the controller may assign thousands of directories at once."""
    monkeypatch.setattr(replica_mover, "_TURN_S", 0.0)

    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        wanted: Wanted = {}
        for topic in "abcdef":
            await cluster.create(topic, [1])
            wanted[topic, 0] = other_than(broker, home_of(broker, broker.id_of(topic))).path
        hold_assignments(cluster)
        await alter(broker, wanted)
        moves = broker.driver.mover.moves
        await until(lambda: all(move.is_reported for move in moves.values()))
        await assign_unseen(cluster, broker)
        broker.is_held_back = False
        cluster.deliver()
        seen = set()
        while moves:
            seen.add(len(moves))
            await asyncio.sleep(0)
        assert seen == {1, 2, 3, 4, 5, 6}

    run(tmp_path, scenario, 1, directories=2)
