"""A node's controller at its start: the bootstrap, the log, snapshots and damage."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kraft import records
from kraft._core.snapshot.snapshot_file import SnapshotReader
from kraft.controller.runtime import requests
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    NotControllerError,
    ReplayError,
)
from kraft.image.replay import MetadataState
from kraft.raft.node import Node
from kraft.raft.rpc import LogSlice
from kraft.records import Uuid
from kraft.records.values import encode_value
from kraft.records.versions import LATEST_PRODUCTION
from kraft.server import controller as runners
from tests.harness.controller_nodes import (
    SMALL_SNAPSHOTS,
    Quorum,
    RunScenario,
    are_alike,
    create,
    cut_log,
    log_of,
    outcomes,
    snapshot_ids,
    snapshot_of_all,
    topics,
    until,
)


def test_an_empty_log_begins_with_the_bootstrap_records(
    run_scenario: RunScenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = Quorum(tmp_path)
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        await quorum.start()
        runner = quorum.runner(await quorum.active())
        await until(lambda: runner.controller.committed_offset == quorum.cluster(1).next_offset)
        state = quorum.cluster(1).state
        assert state.metadata_version == LATEST_PRODUCTION
        assert state.features["group.version"] == 1
        assert "the controller is active in epoch 1, from offset " in caplog.text
        assert "the log was empty: wrote metadata.version " in caplog.text
        # The bootstrap records are written once: the next leader finds them in the log.
        caplog.clear()
        end = quorum.cluster(1).next_offset
        await quorum.stop()
        await quorum.start()
        await quorum.active()
        assert quorum.cluster(1).state.metadata_version == LATEST_PRODUCTION
        names = [type(record).__name__ for record in log_of(quorum, 1, end)]
        assert set(names) <= {"LeaderChange", "NoOp"}
        assert "the controller is active in epoch 2, from offset " in caplog.text
        assert "an empty log" not in caplog.text

    run_scenario(scenario, quorum)


def test_a_restart_finds_the_state_in_the_log(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0, 1)
        for number in range(20):
            await quorum.create(f"t-{number}", number + 1)
        before = quorum.cluster(1)
        await quorum.stop()
        await quorum.start()
        await quorum.active()
        assert snapshot_ids(quorum, 1) == [(0, 0)]
        assert are_alike(before, quorum.cluster(1))
        await quorum.create("afterwards")

    run_scenario(scenario, quorum)


def test_a_slow_replay_continues_with_smaller_reads(
    run_scenario: RunScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        for number in range(12):
            await quorum.create(f"t-{number}", 1000)
        before = quorum.cluster(1)
        await quorum.stop()
        monkeypatch.setattr(runners, "TURN_MS", 0.001)
        await quorum.start()
        await quorum.active()
        assert are_alike(before, quorum.cluster(1))
        assert quorum.runner(1).read_size < 1 << 20

    run_scenario(scenario, quorum)


def test_a_restart_finds_the_state_in_the_latest_snapshot_and_what_follows(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=SMALL_SNAPSHOTS)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0, 1)
        await snapshot_of_all(quorum, 1)
        await cut_log(quorum, 1)
        await quorum.create("in-the-tail", 3)
        before = quorum.cluster(1)
        await quorum.stop()
        await quorum.start()
        await quorum.active()
        latest = quorum.running[1].store.latest_snapshot()
        assert latest is not None
        assert latest.id.offset > 0
        assert are_alike(before, quorum.cluster(1))
        await quorum.create("afterwards")

    run_scenario(scenario, quorum)


def test_a_snapshot_has_the_state_of_the_log(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, settings=SMALL_SNAPSHOTS)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0, 1, 2)
        for number in range(5):
            await quorum.create(f"t-{number}", 12)
        await quorum.ask(requests.delete_topics([TopicToDelete("t-2")]))
        await snapshot_of_all(quorum, 1)
        store = quorum.running[1].store
        replayed = MetadataState(journaling=True)
        made = [id for id in snapshot_ids(quorum, 1) if id.offset > 0]
        assert made
        for id in made:
            snapshot = store.snapshot(id)
            assert snapshot is not None
            loaded = MetadataState(journaling=True)
            with loaded.loading_snapshot(id.offset) as callbacks:
                SnapshotReader(snapshot.data).read(loaded.table, **callbacks)
            replayed.apply(store.read(LogSlice(replayed.next_offset, id.offset, 1 << 30)))
            assert replayed.next_offset == loaded.next_offset == id.offset
            assert are_alike(replayed, loaded)

    run_scenario(scenario, quorum)


def test_an_open_transaction_is_aborted_first(
    run_scenario: RunScenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.create("before", 2)
        runner = quorum.runner(1)
        large = runner.submit(create("large", 200_000))
        await until(lambda: runner.controller.cluster.transaction_start is not None)
        opened = runner.controller.cluster.transaction_start
        await until(lambda: runner.controller.committed_offset > (opened or 0) + 10_000)
        await quorum.stop()
        assert isinstance((await outcomes(large))[0], NotControllerError)
        await quorum.start()
        await quorum.active()
        assert f"aborting the transaction that is open since offset {opened}" in caplog.text
        assert topics(quorum.cluster(1)) == {"before": 2}
        await quorum.create("large", 3)

    run_scenario(scenario, quorum)


def test_a_record_that_cannot_be_applied_ends_the_process_with_its_offset(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.stop()
        # Append a partition of an unknown topic, bypassing the controller.
        await quorum.start(has_controller=False)
        driver = quorum.running[1].driver
        assert driver is not None
        await until(lambda: driver.node.role_state.is_active)
        stray = records.Partition(topic_id=Uuid(b"?" * 16), replicas=[0], isr=[0])
        offset = await driver.append((encode_value(stray),))
        await quorum.stop()
        await quorum.start()
        await until(lambda: quorum.ended)
        ((what, error),) = quorum.ended
        assert what == "the controller cannot continue"
        assert isinstance(error, ReplayError)
        assert f"offset {offset}" in str(error)
        assert quorum.cluster(1).next_offset <= offset
        assert not quorum.runner(1).controller.is_active

    run_scenario(scenario, quorum)


def test_an_event_that_arrives_after_the_end_is_dropped(
    run_scenario: RunScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, a follower wrote the response to its last fetch to the closed log."""
    quorum = Quorum(tmp_path)

    def step(*_: object) -> None:
        raise AssertionError("a step after the end")

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        await quorum.stop()
        monkeypatch.setattr(Node, "step", step)
        raft = node.transport.listener.raft
        assert raft is not None
        raft.deliver(None)

    run_scenario(scenario, quorum)
