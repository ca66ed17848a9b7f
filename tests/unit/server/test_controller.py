"""A node's controller on its loop: real logs, snapshots and quorums, all in this process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraft import records
from kraft._core.batch_records import iterate
from kraft._core.snapshot_file import SnapshotReader
from kraft.controller import (
    FeatureUpdate,
    LocalFeatures,
    TopicToDelete,
    UpdatedFeatures,
    requests,
)
from kraft.controller.operations import Operation
from kraft.controller.settings import ControllerSettings
from kraft.errors import (
    InvalidUpdateVersionError,
    KraftError,
    NotControllerError,
    ReplayError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
)
from kraft.image.replay import Cluster
from kraft.image.snapshot_generation import SnapshotPolicy
from kraft.raft.messages import LogSlice, OffsetAndEpoch
from kraft.raft.node import Node
from kraft.raft.ready import Role, RoleChange
from kraft.records import Uuid, decode_control, decode_value
from kraft.records.values import encode_value
from kraft.records.versions import LATEST_PRODUCTION
from kraft.server import controller as runners
from kraft.server.controller import ControllerRunner
from kraft.server.disk.store import MetadataStore
from kraft.server.process import QuorumNode
from tests.unit.server.controller_nodes import (
    PATIENCE_S,
    Quorum,
    are_alike,
    beat,
    create,
    register,
    run,
    topics,
    until,
)
from tests.unit.server.disk.test_store import append, begin_epoch, make_snapshot, open_store

Story = Callable[[Callable[[], Awaitable[None]], Quorum], None]
SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "4000"}


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Story:
    return lambda story, quorum: run(story, quorum, monkeypatch)


async def outcomes(*asked: asyncio.Future[Any]) -> list[Any]:
    return await asyncio.gather(*asked, return_exceptions=True)


def snapshot_ids(quorum: Quorum, id: int) -> list[OffsetAndEpoch]:
    return list(quorum.running[id].store.view.snapshots)


async def cut_log(quorum: Quorum, id: int) -> int:
    """What the latest snapshot of a node holds is given up in its log; where that begins."""
    node = quorum.running[id]
    assert node.driver is not None
    node.driver.clean(0, -1)
    latest = snapshot_ids(quorum, id)[-1].offset
    await until(lambda: node.store.view.start_offset == latest)
    return latest


async def snapshot_of_all(quorum: Quorum, id: int) -> OffsetAndEpoch:
    """Topics are created until a node has a snapshot of as much as there was at the start."""
    end = quorum.cluster(id).next_offset
    number = 0
    while not (ids := snapshot_ids(quorum, id)) or ids[-1].offset < end:
        number += 1
        await quorum.create(f"filler-{end}-{number}", 20)
        await asyncio.sleep(0.002)
    return ids[-1]


def hold_disk(node: QuorumNode) -> threading.Event:
    """What is written from now on waits until the event is set."""
    gate = threading.Event()

    def wait() -> None:
        assert gate.wait(PATIENCE_S)

    node.writer.run(wait)
    return gate


# -- one node


def test_an_empty_log_begins_with_what_formatting_left(
    tell: Story, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = Quorum(tmp_path)
    caplog.set_level(logging.INFO)

    async def story() -> None:
        await quorum.start()
        runner = quorum.runner(await quorum.active())
        await until(lambda: runner.controller.committed_offset == quorum.cluster(1).next_offset)
        state = quorum.cluster(1).state
        assert state.metadata_version == LATEST_PRODUCTION
        assert state.features["group.version"] == 1
        assert "the controller is active in epoch 1, from offset " in caplog.text
        assert "an empty log begins: metadata.version " in caplog.text
        # Once: the next leader finds them.
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

    tell(story, quorum)


def log_of(quorum: Quorum, id: int, since: int) -> list[records.Record]:
    """The records of a node's log from an offset on."""
    store = quorum.running[id].store
    return [
        decode_value(record.value or b"")
        if record.control_type is None
        else decode_control(record.control_type, record.value or b"")
        for batch in iterate(store.read(LogSlice(since, store.log.log_end_offset, 1 << 30)))
        for record in batch
    ]


def test_an_answer_comes_once_it_is_on_the_disk(tell: Story, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.create("a", 3)
        assert quorum.running[1].store.log.log_end_offset >= quorum.cluster(1).next_offset - 1
        assert topics(quorum.cluster(1)) == {"a": 3}
        (answer,) = await quorum.ask(requests.delete([TopicToDelete("a")]))
        assert answer.error is None
        assert topics(quorum.cluster(1)) == {}

    tell(story, quorum)


def test_what_is_refused_is_told_to_whoever_asked_and_to_nobody_else(
    tell: Story, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
        await quorum.start()
        await quorum.brokers(0)
        answers = await asyncio.gather(
            *(quorum.ask(create("same")) for _ in range(3)), quorum.ask(create("another"))
        )
        refused = [answer.get("same") for answer in answers[:3]]
        assert sum(isinstance(one, TopicAlreadyExistsError) for one in refused) == 2
        assert topics(quorum.cluster(1)) == {"same": 1, "another": 1}
        with pytest.raises(KraftError):
            await quorum.ask(requests.unregister(77))

    tell(story, quorum)


def test_a_restart_finds_the_state_in_the_log(tell: Story, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
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

    tell(story, quorum)


def test_what_takes_long_to_take_up_is_taken_up_in_smaller_bites(
    tell: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
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

    tell(story, quorum)


def test_a_restart_finds_the_state_in_the_latest_snapshot_and_what_follows(
    tell: Story, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=SMALL_SNAPSHOTS)

    async def story() -> None:
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

    tell(story, quorum)


def test_a_snapshot_holds_what_the_log_says(tell: Story, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, settings=SMALL_SNAPSHOTS)

    async def story() -> None:
        await quorum.start()
        await quorum.brokers(0, 1, 2)
        for number in range(5):
            await quorum.create(f"t-{number}", 12)
        await quorum.ask(requests.delete([TopicToDelete("t-2")]))
        await snapshot_of_all(quorum, 1)
        store = quorum.running[1].store
        replayed = Cluster(journaling=True)
        made = [id for id in snapshot_ids(quorum, 1) if id.offset > 0]
        assert made
        for id in made:
            snapshot = store.snapshot(id)
            assert snapshot is not None
            loaded = Cluster(journaling=True)
            with loaded.loading_snapshot(id.offset) as callbacks:
                SnapshotReader(snapshot.data).read(loaded.table, **callbacks)
            replayed.apply(store.read(LogSlice(replayed.next_offset, id.offset, 1 << 30)))
            assert replayed.next_offset == loaded.next_offset == id.offset
            assert are_alike(replayed, loaded)

    tell(story, quorum)


def test_a_heartbeat_passes_a_large_transaction(tell: Story, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
        await quorum.start()
        runner = quorum.runner(await quorum.active())
        epoch = await register(runner, 0)
        await beat(runner, 0, epoch)
        large = runner.submit(create("large", 100_000))
        answered = 0
        while not large.done():
            answer = await beat(runner, 0, epoch)
            assert not answer.is_fenced
            answered += 1
        assert (await large)["large"].num_partitions == 100_000
        assert answered > 1
        assert topics(runner.controller.cluster) == {"large": 100_000}

    tell(story, quorum)


def test_a_transaction_that_was_left_open_is_aborted_first(
    tell: Story, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
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
        assert f"the transaction that is open since offset {opened} is aborted" in caplog.text
        assert topics(quorum.cluster(1)) == {"before": 2}
        await quorum.create("large", 3)

    tell(story, quorum)


def test_what_the_raft_layer_does_not_take_ends_the_leadership_and_not_the_node(
    tell: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.create("before", 10)
        node, runner = quorum.running[1], quorum.runner(1)
        assert node.driver is not None
        epoch = runner.controller.epoch
        gate = hold_disk(node)
        # It says that it would take more, and does not.
        monkeypatch.setattr(Node, "may_append", True)
        limit = node.driver.node.config.max_unwritten_appends
        asked = [runner.submit(create(f"t-{number}")) for number in range(limit + 10)]
        await until(lambda: not runner.controller.is_active)
        assert {type(one) for one in await outcomes(*asked)} == {NotControllerError}
        assert topics(quorum.cluster(1)) == {"before": 10}
        gate.set()
        await until(lambda: runner.controller.epoch > epoch)
        # What had been taken was on its way to the disk, and came to be committed.
        # A NoOp may have had one of the places.
        names = ["before", *(f"t-{number}" for number in range(limit))]
        found = list(topics(quorum.cluster(1)))
        assert found in (names, names[:-1])
        await quorum.create("afterwards", 2)

    tell(story, quorum)


def test_a_record_that_cannot_be_applied_ends_the_process_and_names_its_offset(
    tell: Story, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.stop()
        # Something that is no controller writes a partition of a topic that is not there.
        await quorum.start(has_controller=False)
        driver = quorum.running[1].driver
        assert driver is not None
        await until(lambda: driver.node.leadership is not None and driver.node.leadership.is_active)
        stray = records.Partition(topic_id=Uuid(b"?" * 16), replicas=[0], isr=[0])
        offset = await driver.append((encode_value(stray),))
        await quorum.stop()
        await quorum.start()
        await until(lambda: quorum.ended)
        ((what, error),) = quorum.ended
        assert what == "the controller cannot go on"
        assert isinstance(error, ReplayError)
        assert f"offset {offset}" in str(error)
        assert quorum.cluster(1).next_offset <= offset
        assert not quorum.runner(1).controller.is_active

    tell(story, quorum)


def test_what_is_asked_behind_a_slow_disk_waits_and_is_answered_in_its_order(
    tell: Story, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
        await quorum.start()
        await quorum.brokers(0)
        node, runner = quorum.running[1], quorum.runner(1)
        assert node.driver is not None
        limit = node.driver.node.config.max_unwritten_appends
        gate = hold_disk(node)
        answered: list[int] = []

        def note(number: int, done: asyncio.Future[Any]) -> None:
            answered.append(number)

        asked = []
        for number in range(limit + 50):
            future = runner.submit(create(f"t-{number}"))
            future.add_done_callback(partial(note, number))
            asked.append(future)
        late = runner.submit(create("too-late"), timeout_ms=50)
        raft = node.driver.node
        await until(lambda: not raft.may_append)
        with pytest.raises(RequestTimedOutError):
            await late
        assert not answered
        gate.set()
        for future in asked:
            await future
        await asyncio.sleep(0)
        assert answered == list(range(limit + 50))
        assert len(topics(quorum.cluster(1))) == limit + 50

    tell(story, quorum)


def test_a_node_that_stops_tells_whoever_waits(tell: Story, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def story() -> None:
        await quorum.start()
        await quorum.brokers(0)
        runner = quorum.runner(1)
        asked = [runner.submit(create(f"t-{number}", 50_000)) for number in range(5)]
        await asyncio.sleep(0.01)
        await quorum.stop()
        assert {type(one) for one in await outcomes(*asked)} <= {NotControllerError, dict}
        (late,) = await outcomes(runner.submit(create("late")))
        assert isinstance(late, NotControllerError)

    tell(story, quorum)


def test_a_node_that_stops_takes_no_further_turn(tell: Story, tmp_path: Path) -> None:
    """Else it could begin a snapshot on a disk that is about to be given back."""
    quorum = Quorum(tmp_path)

    async def story() -> None:
        await quorum.start()
        await quorum.brokers(0)
        runner, store = quorum.runner(1), quorum.running[1].store
        gate = hold_disk(quorum.running[1])
        on_its_way = runner.submit(create("on-its-way"))
        await until(lambda: "on-its-way" in topics(runner.controller.cluster))
        waits = runner.submit(create("waits"))
        runner.close()
        image, end = runner.publishing.images.image, store.view.high_watermark
        gate.set()
        await outcomes(on_its_way, waits)
        await until(lambda: store.view.high_watermark > end)
        await asyncio.sleep(0.02)
        assert runner.publishing.images.image is image

    tell(story, quorum)


# -- several nodes


def test_standbys_have_the_same_state_and_take_over(tell: Story, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, 3)

    async def story() -> None:
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

    tell(story, quorum)


def test_leadership_that_is_lost_takes_back_what_was_not_committed(
    tell: Story, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3)

    async def story() -> None:
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
        # What the lost leader had in its log may have come to be committed; all say the same.
        assert all(are_alike(runner.controller.cluster, quorum.cluster(id)) for id in others)
        assert {"committed", "afterwards"} <= topics(runner.controller.cluster).keys()

    tell(story, quorum)


def test_leadership_that_comes_and_goes_between_two_turns_was_never_there(
    tell: Story, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3)

    async def story() -> None:
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

    tell(story, quorum)


@pytest.mark.parametrize("is_wiped", [False, True], ids=["lags", "is-wiped"])
def test_the_snapshot_of_a_leader_replaces_the_state_of_a_follower(
    is_wiped: bool, tell: Story, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3, settings=SMALL_SNAPSHOTS)

    async def story() -> None:
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
        await quorum.ask(requests.delete([TopicToDelete("before")]))
        for id in tuple(quorum.running):
            await snapshot_of_all(quorum, id)
            await cut_log(quorum, id)
        await quorum.start(away)
        await quorum.create("afterwards", 7)
        await quorum.agree()
        assert quorum.running[away].store.view.start_offset > 0, "it came by a snapshot"
        assert are_alike(quorum.cluster(leader), quorum.cluster(away))
        assert "before" not in topics(quorum.cluster(away))
        image = quorum.runner(away).publishing.images.image
        assert image is not None
        assert image.table.topic_numbers()
        # It goes on, also as the one that decides.
        await quorum.stop(*(id for id in tuple(quorum.running) if id not in (away, leader)))
        await quorum.stop(leader)
        await quorum.start(*(id for id in quorum.layout if id not in (away, leader)))
        await quorum.create("with-it", 3)

    tell(story, quorum)


# -- a snapshot of a leader, and what comes between


def test_of_two_snapshots_the_later_one_counts_however_they_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read beside the loop, and the first may take longer than the second."""
    gate, begun = threading.Event(), threading.Event()
    load = runners.load_latest

    def load_the_first_slowly(store: MetadataStore) -> Cluster:
        cluster = load(store)
        if not begun.is_set():
            begun.set()
            assert gate.wait(PATIENCE_S)
        return cluster

    async def story() -> None:
        store = open_store(tmp_path)
        begin_epoch(store, 1)
        failures: list[BaseException] = []
        runner = ControllerRunner(
            store, ControllerSettings(), SnapshotPolicy(0), on_failure=failures.append
        )
        monkeypatch.setattr(runners, "load_latest", load_the_first_slowly)
        for offset in (1, 11):
            make_snapshot(store, OffsetAndEpoch(offset, 1))
            store.add_snapshot(OffsetAndEpoch(offset, 1))
            runner.snapshot_installed(OffsetAndEpoch(offset, 1))
            await until(begun.is_set)
            append(store)
        await until(lambda: runner.controller.cluster.next_offset == 11)
        gate.set()
        # Whatever is still to be told on the loop is told.
        await asyncio.get_running_loop().shutdown_default_executor()
        await asyncio.sleep(0.01)
        assert runner.controller.cluster.next_offset == 11
        assert not failures
        store.close()

    asyncio.run(story())


def test_a_snapshot_that_cannot_be_loaded_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is that goes wrong: else the node would wait for it for good."""

    async def story() -> None:
        store = open_store(tmp_path)
        begin_epoch(store, 1)
        make_snapshot(store, OffsetAndEpoch(1, 1))
        store.add_snapshot(OffsetAndEpoch(1, 1))
        failures: list[BaseException] = []
        runner = ControllerRunner(
            store, ControllerSettings(), SnapshotPolicy(0), on_failure=failures.append
        )

        def run_out_of_memory(store: MetadataStore) -> Cluster:
            raise MemoryError("none is left")

        monkeypatch.setattr(runners, "load_latest", run_out_of_memory)
        runner.snapshot_installed(OffsetAndEpoch(1, 1))
        await until(lambda: failures)
        assert isinstance(failures[0], MemoryError)
        store.close()

    asyncio.run(story())


def finalize(*updates: FeatureUpdate, validate_only: bool = False) -> Operation:
    local = LocalFeatures(1)
    return requests.finalize(updates, local, validate_only=validate_only)


def test_update_features_raises_kraft_version_by_way_of_the_raft_layer(
    tell: Story, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, is_static=True)

    async def story() -> None:
        await quorum.start()
        await quorum.active()
        raise_it = FeatureUpdate("kraft.version", 1)
        node = quorum.running[1].driver.node
        checked = await quorum.ask(finalize(raise_it, validate_only=True))
        assert checked == UpdatedFeatures({}, 1)
        assert node.log.kraft_version == 0
        with pytest.raises(InvalidUpdateVersionError, match="supports 0 to 1"):
            await quorum.ask(finalize(FeatureUpdate("kraft.version", 2)))
        both = await quorum.ask(finalize(raise_it, FeatureUpdate("group.version", 0, 2)))
        assert both == UpdatedFeatures({"group.version": 0}, 1)
        assert node.log.kraft_version == 1
        state = quorum.cluster(1).state
        assert state.quorum.kraft_version == 1
        assert [voter.id for voter in state.quorum.voters] == [1]
        assert "group.version" not in state.features
        assert await quorum.ask(finalize(raise_it)) == UpdatedFeatures({}, 1)
        with pytest.raises(InvalidUpdateVersionError, match="downgrade"):
            await quorum.ask(finalize(FeatureUpdate("kraft.version", 0, 3)))
        await quorum.stop()
        await quorum.start()
        await quorum.active()
        assert quorum.running[1].driver.node.log.kraft_version == 1

    tell(story, quorum)


def test_the_raft_layers_refusal_of_kraft_version_is_the_answer(
    tell: Story, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3, is_static=True)

    async def story() -> None:
        await quorum.start(1, 2)
        active = await quorum.active()
        with pytest.raises(
            InvalidUpdateVersionError, match=r"has not said that it supports kraft\.version 1"
        ):
            await quorum.ask(
                finalize(FeatureUpdate("kraft.version", 1), FeatureUpdate("group.version", 0, 2))
            )
        assert quorum.cluster(active).state.features["group.version"] == 1

    tell(story, quorum)
