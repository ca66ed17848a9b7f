"""Group coordinators on real logs and replica drivers: failures of brokers, restarts, bad disks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from kraft.broker.groups import OFFSETS_TOPIC
from kraft.broker.replica_mover import WantedMove
from kraft.broker.replication.partition import HostedPartition
from kraft.broker.replication.ports import ReplicatedLog
from kraft.protocol.heartbeat import HEARTBEAT, HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.join_group import JOIN_GROUP, JoinGroupResponseData
from kraft.protocol.sync_group import (
    SYNC_GROUP,
    SyncGroupRequestAssignment,
    SyncGroupRequestData,
    SyncGroupResponseData,
)
from tests.harness.data_brokers import until
from tests.harness.group_cluster import GroupCluster
from tests.harness.group_requests import join

PATIENCE_S = 60


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


def test_committed_offsets_survive_brokers_that_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = GroupCluster(tmp_path, 1, 2, 3)
        await cluster.start()
        await cluster.create()
        draw = random.Random(7)
        committed: dict[str, int] = {}
        for turn in range(6):
            for group in ("a", "b", "c"):
                offset = committed.get(group, 0) + 1
                assert await cluster.commit(offset, group) == 0
                committed[group] = offset
            stopped = draw.choice(list(cluster.groups))
            cluster.stop(stopped, is_clean=turn % 2 == 0)
            cluster.data.log.now_ms += 20_000
            for id in cluster.groups:
                cluster.data.log.heartbeat(id)
            cluster.data.log.settle()
            cluster.data.deliver()
            for group, offset in committed.items():
                assert await cluster.offset(group) == offset
            await cluster.restart(stopped)
            cluster.data.beat_all()
        for group, offset in committed.items():
            assert await cluster.offset(group) == offset
        cluster.close()

    run(scenario)


def test_a_stable_group_survives_a_restart_of_its_only_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = GroupCluster(tmp_path, 1)
        await cluster.start()
        await cluster.create()
        first = await cluster.ask("g", JOIN_GROUP, join, JoinGroupResponseData)
        member = first.member_id
        joined = await cluster.ask(
            "g", JOIN_GROUP, lambda: join("g", member), JoinGroupResponseData
        )
        assert joined.error_code == 0

        def sync() -> SyncGroupRequestData:
            given = [SyncGroupRequestAssignment(member, b"all")]
            return SyncGroupRequestData("g", 1, member, None, "consumer", "range", given)

        synced = await cluster.ask("g", SYNC_GROUP, sync, SyncGroupResponseData)
        assert synced.assignment == b"all"
        assert await cluster.commit(5, member=(member, 1)) == 0
        for is_clean in (True, False):
            cluster.stop(1, is_clean=is_clean)
            await cluster.restart(1)
            beat = await cluster.ask(
                "g", HEARTBEAT, lambda: HeartbeatRequestData("g", 1, member), HeartbeatResponseData
            )
            assert beat.error_code == 0
            assert await cluster.offset() == 5
        cluster.close()

    run(scenario)


def _has_other_log(partition: HostedPartition, log: ReplicatedLog) -> bool:
    return partition.local_log is not log


def test_coordinators_keep_their_groups_when_the_log_moves_to_another_directory(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        cluster = GroupCluster(tmp_path, 1, directories=2)
        await cluster.start()
        await cluster.create(1)
        assert await cluster.commit(1) == 0
        broker, groups = cluster.data[1], cluster.groups[1]
        id = broker.id_of(OFFSETS_TOPIC)
        led = dict(groups._led)
        for offset in (2, 3):
            old = broker.partition(id).local_log
            here = broker.partition(id).directory
            (target,) = (each for each in broker.logs.directories if each.id != here)
            wanted = WantedMove(OFFSETS_TOPIC, 0, id, target.path)
            assert await broker.driver.mover.alter([wanted]) == {(OFFSETS_TOPIC, 0): 0}
            await until(partial(_has_other_log, broker.partition(id), old))
            assert await cluster.commit(offset) == 0
            assert await cluster.offset() == offset
        assert groups._led == led
        cluster.close()

    run(scenario)
