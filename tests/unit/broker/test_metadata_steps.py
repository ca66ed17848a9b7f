"""Metadata in steps: order, new logs beside the loop, failures, strays, topics created again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import pytest

from kraft.broker import metadata_steps
from kraft.broker.replication.messages import PartitionId
from kraft.controller.runtime import requests
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import NONE, StorageError
from tests.harness.data_brokers import DataBroker, DataCluster, until
from tests.harness.data_requests import run
from tests.harness.partition_logs import produced


async def append(broker: DataBroker, id: PartitionId) -> None:
    assert (await broker.driver.produce({id: produced()}, 1, 1_000.0))[id].error == NONE


def names(broker: DataBroker) -> set[str]:
    """Return the names of the directories of partitions, without what makes them unique."""
    found = (each.name for each in (broker.path / "0").iterdir() if each.is_dir())
    return {name.split(".")[0] + name[name.rfind("-") :] * ("." in name) for name in found}


def test_logs_are_created_in_a_thread_and_metadata_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        may_go = Event()
        create = broker.store.create_missing

        def held(partitions: Any) -> None:
            assert current_thread() is not main_thread()
            assert may_go.wait(60)
            create(partitions)

        monkeypatch.setattr(broker.store, "create_missing", held)
        first = asyncio.ensure_future(cluster.create("a", [1]))
        await asyncio.sleep(0.01)
        assert not broker.manager.partitions
        # The next delta changes what the first one creates.
        cluster.ask(requests.delete_topics([TopicToDelete("a")]))
        second = asyncio.ensure_future(cluster.create("b", [1]))
        await asyncio.sleep(0.01)
        assert not first.done()
        may_go.set()
        await asyncio.gather(first, second)
        assert {each.topic for each in broker.manager.partitions.values()} == {"b"}
        assert names(broker) == {"a-0-delete", "b-0"}

    run(tmp_path, scenario)


def test_a_close_waits_for_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        may_go, is_done = Event(), Event()

        def held(partitions: Any) -> None:
            assert may_go.wait(60)
            is_done.set()

        monkeypatch.setattr(broker.store, "create_missing", held)
        creating = asyncio.ensure_future(cluster.create("a", [1]))
        await asyncio.sleep(0.01)
        broker.driver.close()
        settled = asyncio.ensure_future(broker.driver.settled())
        await asyncio.sleep(0.01)
        assert not settled.done()
        may_go.set()
        await settled
        assert is_done.is_set()
        await creating
        assert not broker.manager.partitions

    run(tmp_path, scenario)


def test_after_a_failure_all_metadata_are_applied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        monkeypatch.setattr(broker.manager, "_lead", None)
        await cluster.create("a", [1])
        assert "metadata were not applied" in caplog.text
        assert not broker.manager.partitions
        monkeypatch.undo()
        await cluster.create("b", [1])
        assert {each.topic for each in broker.manager.partitions.values()} == {"a", "b"}

    run(tmp_path, scenario)


def test_a_slice_ends_after_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_steps, "TURN_MS", 0.0)

    async def scenario(cluster: DataCluster) -> None:
        id = PartitionId(bytes(await cluster.create("a", [1, 2], [1, 2])), 0)
        await append(cluster[1], id)
        cluster.fence(1)
        # The change of leaders of two partitions takes two turns.
        assert not cluster[2].driver._metadata.is_idle
        await cluster.settle()
        assert all(each.is_leader for each in cluster[2].manager.partitions.values())

    run(tmp_path, scenario, 1, 2)


def test_partitions_that_moved_away_meanwhile_are_set_aside(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        kept = PartitionId(bytes(await cluster.create("kept", [1])), 0)
        await cluster.create("gone", [1])
        await append(broker, kept)
        broker.stop()
        cluster.ask(requests.delete_topics([TopicToDelete("gone")]))
        await broker.start()
        await until(lambda: "gone-0-stray" in names(broker))
        await cluster.settle()
        assert names(broker) == {"kept-0", "gone-0-stray"}
        assert broker.partition(kept).local_log.end_offset == 1

    run(tmp_path, scenario)


def test_a_topic_that_was_created_again_begins_with_an_empty_log(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        await append(broker, PartitionId(bytes(await cluster.create("t", [1])), 0))
        broker.stop()
        cluster.ask(requests.delete_topics([TopicToDelete("t")]))
        new = PartitionId(bytes(await cluster.create("t", [1])), 0)
        await broker.start()
        assert broker.partition(new).local_log.end_offset == 0
        assert names(broker) == {"t-0", "t-0-stray"}

    run(tmp_path, scenario, 1)


def test_replicas_are_assigned_to_the_directories_that_have_them(tmp_path: Path) -> None:
    """The controller assigned the first directory; the log is in the second one (KIP-858)."""

    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        id = PartitionId(bytes(await cluster.create("t", [1])), 0)
        broker.stop()
        first, second = broker.path / "0", broker.path / "1"
        place = first if (first / "t-0").exists() else second
        other = second if place is first else first
        (place / "t-0").rename(other / "t-0")
        await broker.start()
        directory = broker.partition(id).directory
        assert directory == next(
            each.id for each in broker.logs.directories if each.path == str(other)
        )
        table = cluster.log.controller.cluster.table
        await until(lambda: table.directory_id(cluster.state_of(id)["directories"][0]) == directory)
        assert (1, -1, "AssignReplicasToDirs") in cluster.links.carried

    run(tmp_path, scenario, directories=2)


def test_new_logs_are_spread_over_the_directories(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        await cluster.create("t", *([1] for _ in range(9)))
        sizes = sorted(len(each.partitions) for each in cluster[1].logs.directories)
        assert sizes == [3, 3, 3]

    run(tmp_path, scenario, directories=3)


def test_a_directory_that_fails_takes_its_replicas_offline(tmp_path: Path) -> None:
    async def scenario(cluster: DataCluster) -> None:
        broker = cluster[1]
        id = PartitionId(bytes(await cluster.create("t", [1], [1])), 0)
        partition = broker.partition(id)
        failed = broker.logs.directories
        (directory,) = (each for each in failed if each.id == partition.directory)
        directory.fail(StorageError("a failing disk"))
        await until(lambda: partition.log is None)
        other = PartitionId(id.topic_id, 1)
        await append(broker, other)
        # A new replica goes to the other directory.
        new = PartitionId(bytes(await cluster.create("u", [1])), 0)
        assert broker.partition(new).directory == broker.partition(other).directory

    run(tmp_path, scenario, directories=2)
