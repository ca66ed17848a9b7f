"""Controllers of several nodes: standbys, lost leaderships and a leader's snapshots."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kraft.controller.runtime import requests
from kraft.controller.runtime.settings import ControllerSettings
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    NotControllerError,
)
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SnapshotPolicy
from kraft.raft.interface import Role, RoleChange
from kraft.raft.rpc import OffsetAndEpoch
from kraft.server import controller as runners
from kraft.server.controller import ControllerRunner
from kraft.server.disk.store import MetadataStore
from tests.harness.controller_nodes import (
    PATIENCE_S,
    SMALL_SNAPSHOTS,
    Quorum,
    RunScenario,
    are_alike,
    create,
    cut_log,
    outcomes,
    snapshot_of_all,
    topics,
    until,
)
from tests.harness.metadata_store import append, begin_epoch, make_snapshot, open_store


def test_standbys_have_the_same_state_and_become_active(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0, 1)
        for number in range(5):
            await quorum.create(f"t-{number}", 10)
        await quorum.create("large", 11_000)
        await quorum.agree()
        first = await quorum.active()
        before = quorum.cluster(first)
        standbys = [id for id in quorum.running if id != first]
        assert all(are_alike(before, quorum.cluster(id)) for id in standbys)
        for id in standbys:
            with pytest.raises(NotControllerError):
                await quorum.runner(id).submit(create("nowhere"))
        await quorum.stop(first)
        assert await quorum.active() in standbys
        await quorum.create("afterwards")
        await quorum.start(first)
        await quorum.agree()
        assert are_alike(quorum.cluster(first), quorum.cluster(standbys[0]))

    run_scenario(scenario, quorum)


def test_a_lost_leadership_reverts_uncommitted_records(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.create("committed", 3)
        leader = await quorum.active()
        others = [id for id in quorum.running if id != leader]
        await quorum.stop(*others)
        runner = quorum.runner(leader)
        asked = [runner.submit(create("alone", 5)), runner.submit(create("large", 20_000))]
        assert [type(one) for one in await outcomes(*asked)] == [NotControllerError] * 2
        assert not runner.controller.is_active
        assert topics(runner.controller.cluster) == {"committed": 3}
        await quorum.start(*others)
        await quorum.create("afterwards", 2)
        await quorum.agree()
        # All nodes agree whether the old leader's records are committed.
        assert all(are_alike(runner.controller.cluster, quorum.cluster(id)) for id in others)
        assert {"committed", "afterwards"} <= topics(runner.controller.cluster).keys()

    run_scenario(scenario, quorum)


def test_a_leadership_that_ends_before_the_next_turn_has_no_effect(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.agree()
        leader = await quorum.active()
        standby = next(id for id in quorum.running if id != leader)
        runner, epoch = quorum.runner(standby), quorum.runner(leader).controller.epoch
        runner.role_changed(RoleChange(Role.LEADER, epoch + 1, standby))
        runner.role_changed(RoleChange(Role.LEADER, epoch + 1, standby, is_active=True))
        runner.role_changed(RoleChange(Role.FOLLOWER, epoch + 2, leader))
        await asyncio.sleep(0.01)
        assert not runner.controller.is_active
        await quorum.create("afterwards", 2)
        await quorum.agree()
        assert are_alike(quorum.cluster(leader), quorum.cluster(standby))

    run_scenario(scenario, quorum)


@pytest.mark.parametrize("is_wiped", [False, True], ids=["lags", "is-wiped"])
def test_the_snapshot_of_a_leader_replaces_the_state_of_a_follower(
    is_wiped: bool, run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3, settings=SMALL_SNAPSHOTS)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0, 1)
        await quorum.create("before", 10)
        await quorum.agree()
        leader = await quorum.active()
        away = next(id for id in quorum.running if id != leader)
        await quorum.stop(away)
        if is_wiped:
            for path in quorum.metadata_dir(away).iterdir():
                path.unlink()
        await quorum.ask(requests.delete_topics([TopicToDelete("before")]))
        for id in tuple(quorum.running):
            await snapshot_of_all(quorum, id)
            await cut_log(quorum, id)
        await quorum.start(away)
        await quorum.create("afterwards", 7)
        await quorum.agree()
        assert quorum.running[away].store.view.start_offset > 0, "loaded from a snapshot"
        assert are_alike(quorum.cluster(leader), quorum.cluster(away))
        assert "before" not in topics(quorum.cluster(away))
        image = quorum.runner(away).publishing.images.image
        assert image is not None
        assert image.table.topic_numbers()
        # The node continues, even if it becomes the active controller.
        await quorum.stop(*(id for id in tuple(quorum.running) if id not in (away, leader)))
        await quorum.stop(leader)
        await quorum.start(*(id for id in quorum.layout if id not in (away, leader)))
        await quorum.create("with-it", 3)

    run_scenario(scenario, quorum)


def test_of_two_snapshots_the_later_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads read the snapshots, and the first may take longer than the second."""
    gate, begun = threading.Event(), threading.Event()
    load = runners.load_latest_snapshot

    def load_the_first_slowly(store: MetadataStore) -> MetadataState:
        cluster = load(store)
        if not begun.is_set():
            begun.set()
            assert gate.wait(PATIENCE_S)
        return cluster

    async def scenario() -> None:
        store = open_store(tmp_path)
        begin_epoch(store, 1)
        failures: list[BaseException] = []
        runner = ControllerRunner(
            store, ControllerSettings(), SnapshotPolicy(0), on_failure=failures.append
        )
        monkeypatch.setattr(runners, "load_latest_snapshot", load_the_first_slowly)
        for offset in (1, 11):
            make_snapshot(store, OffsetAndEpoch(offset, 1))
            store.add_snapshot(OffsetAndEpoch(offset, 1))
            runner.snapshot_installed(OffsetAndEpoch(offset, 1))
            await until(begun.is_set)
            append(store)
        await until(lambda: runner.controller.cluster.next_offset == 11)
        gate.set()
        # Let all callbacks on the loop run.
        await asyncio.get_running_loop().shutdown_default_executor()
        await asyncio.sleep(0.01)
        assert runner.controller.cluster.next_offset == 11
        assert not failures
        store.close()

    asyncio.run(scenario())


def test_a_snapshot_that_cannot_be_loaded_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any exception ends the process: otherwise the node would wait forever."""

    async def scenario() -> None:
        store = open_store(tmp_path)
        begin_epoch(store, 1)
        make_snapshot(store, OffsetAndEpoch(1, 1))
        store.add_snapshot(OffsetAndEpoch(1, 1))
        failures: list[BaseException] = []
        runner = ControllerRunner(
            store, ControllerSettings(), SnapshotPolicy(0), on_failure=failures.append
        )

        def run_out_of_memory(store: MetadataStore) -> MetadataState:
            raise MemoryError("none is left")

        monkeypatch.setattr(runners, "load_latest_snapshot", run_out_of_memory)
        runner.snapshot_installed(OffsetAndEpoch(1, 1))
        await until(lambda: failures)
        assert isinstance(failures[0], MemoryError)
        store.close()

    asyncio.run(scenario())
