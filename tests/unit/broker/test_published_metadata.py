"""What a running broker does with published metadata, and what it tells its controller of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from kraft.controller.runtime import requests
from kraft.controller.topics.topic_creation import NewTopic
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import NONE
from kraft.metadata.identifiers import random_uuid
from kraft.raft.interface import Role, RoleChange
from kraft.server.controller import ControllerRunner
from tests.harness.controller_nodes import until
from tests.unit.broker.broker_nodes import Client, LocalNodes, controller_of, play, running


async def create(controller: ControllerRunner, replicas: list[int]) -> None:
    topic = NewTopic("t", random_uuid(), assignments={0: replicas})
    await controller.submit(requests.create_topics([topic]))


def test_publishers_are_called_in_kafkas_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``BrokerMetadataPublisher``: the cache, replicas, coordinators, all else; then heartbeats."""
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True)

    async def scenario() -> None:
        await nodes.start()
        images = controller_of(nodes, 1).publishing.images
        names = [publisher.name for _, publisher in images._publishers]
        assert names[:5] == [
            "MetadataCache",
            "ChangedSettings",
            "TopicSettings",
            "ReplicaManager",
            "GroupCoordinator",
        ]
        assert names[-2:] == ["BrokerLifecycle", "BrokerLoaded"]

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_a_heartbeat_waits_for_the_replicas_but_the_metadata_cache_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker in controlled shutdown waits until the others lead in its place: until this."""
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True)

    async def scenario() -> None:
        await nodes.start()
        broker, controller = running(nodes, 1), controller_of(nodes, 1)
        assert broker.lifecycle is not None
        may_go = Event()
        store = broker.replicas._store
        make = store.create_missing

        def held(partitions: Any) -> None:
            assert may_go.wait(60)
            make(partitions)

        monkeypatch.setattr(store, "create_missing", held)
        before = controller.controller.committed_offset
        await create(controller, [1])
        created = controller.controller.committed_offset
        image = controller.publishing.images
        await until(lambda: image.image is not None and image.image.offset >= created)
        assert broker.cache._image.table.topic_number("t") >= 0
        assert not broker.replicas.manager.partitions
        assert broker.lifecycle.facts.offset <= before
        may_go.set()
        await broker.replicas.settled()
        assert len(broker.replicas.manager.partitions) == 1
        assert broker.lifecycle.facts.offset >= created

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


class HeldCommits:
    """A controller that learns of commits up to an offset only, ``most``."""

    def __init__(self, controller: ControllerRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        self._controller = controller
        self._commit = controller.committed
        self._most = controller.controller.committed_offset
        #: What the quorum has committed.
        self.reached = self._most
        monkeypatch.setattr(controller, "committed", self._committed)

    def _committed(self, high_watermark: int) -> None:
        self.reached = max(self.reached, high_watermark)
        self._commit(min(self.reached, self._most))

    def allow(self, most: int) -> None:
        self._most = most
        self._committed(self.reached)

    async def decide_replicas(self, replicas: list[int] | None) -> int:
        """Decide a reassignment, None ends it; return the end of its committed records."""
        cluster = self._controller.controller.cluster
        end = cluster.next_offset
        reassignment = requests.alter_partition_reassignments({("t", 0): replicas})
        asked = asyncio.ensure_future(self._controller.submit(reassignment))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        await until(lambda: cluster.next_offset > end)
        end = cluster.next_offset
        await until(lambda: self.reached >= end)
        return end


@pytest.mark.parametrize("is_leadership_lost", [False, True])
def test_a_broker_beside_the_active_controller_sees_committed_records_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_leadership_lost: bool
) -> None:
    """The controller has already decided to remove the replica that is added; without its
    leadership it reverts that, and learns from the log whether it was committed.
    """
    nodes = LocalNodes(tmp_path, 1, 2, is_combined=True)

    async def scenario() -> None:
        await nodes.start()
        broker, controller = running(nodes, 1), controller_of(nodes, 1)
        deciding = controller.controller
        assert deciding.is_active
        epoch = deciding.epoch
        (other,) = (id for id in nodes.running if id != 1)
        await create(controller, [other])
        await asyncio.sleep(0)
        held = HeldCommits(controller, monkeypatch)
        added = await held.decide_replicas([other, 1])
        await held.decide_replicas(None)
        hosted = broker.replicas.manager.partitions
        assert not hosted
        held.allow(added)
        await until(lambda: len(hosted) == 1)
        if is_leadership_lost:
            controller.role_changed(RoleChange(Role.RESIGNED, epoch, -1))
            assert deciding.cluster.next_offset == added
            # The next image comes from the reverted state.
            image = controller.publishing.images.image
            controller.publish_soon()
            await asyncio.sleep(0.05)
            assert controller.publishing.images.image is image
            assert len(hosted) == 1
        held.allow(1 << 60)
        await until(lambda: not hosted)
        if is_leadership_lost:
            driver = nodes.broker(1).quorum.driver
            assert driver is not None
            # A leader becomes active when all records before are committed.
            await until(lambda: held.reached == driver.node.next_append_offset)
            controller.role_changed(RoleChange(Role.LEADER, epoch, 1, is_active=True))
            await until(lambda: deciding.is_active)

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []


def test_rows_of_deleted_topics_are_dropped_beside_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's images keep the old rows; it goes on with the new ones."""
    nodes = LocalNodes(tmp_path, 1, 1, is_combined=True)

    async def scenario() -> None:
        await nodes.start()
        broker, controller = running(nodes, 1), controller_of(nodes, 1)
        caplog.set_level("INFO")
        deciding = controller.controller
        monkeypatch.setattr(deciding, "settings", replace(deciding.settings, min_dead_rows=1))
        client = Client(nodes.node(1))
        offsets = count(1)
        for name in ("kept", "t"):
            assert await client.leader(name) == 1
        assert await client.produce("kept", b"a") == (NONE, 0)
        for name in ("t", "u", "v"):
            await client.leader(name)
            await controller.submit(requests.delete_topics([TopicToDelete(name)]))
            assert await client.produce("kept", name.encode()) == (NONE, next(offsets))
        table = deciding.cluster.table
        await until(lambda: table.row_count == table.partition_count == 1)
        # All goes on with the new numbers of rows.
        assert await client.leader("kept") == 1
        assert "dropped the rows of" in caplog.text
        # A heartbeat names the last record that the broker has applied.
        last = deciding.committed_offset - 1
        await until(lambda: deciding.sessions.metadata_offset(1) >= last)
        assert await client.produce("kept", b"b") == (NONE, next(offsets))
        assert await client.fetch("kept") == [b"a", b"t", b"u", b"v", b"b"]
        assert await client.leader("w") == 1
        assert await client.produce("w", b"c") == (NONE, 0)
        client.close()
        await broker.replicas.settled()
        assert {each.topic for each in broker.replicas.manager.partitions.values()} == {"kept", "w"}

    play(nodes, scenario, monkeypatch)
    assert nodes.ended == []
