"""A node's controller: its requests, their order, and the end of the controller."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import ControllerOutput
from kraft.controller.runtime.quorum_controller import ROWS_COPIED_AT_ONCE, QuorumController
from kraft.controller.topics.topic_deletion import TopicToDelete
from kraft.errors import (
    KraftError,
    NotControllerError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
)
from kraft.image.publishing import Image, ImageDelta
from kraft.server import controller as runners
from kraft.server.controller import ControllerRunner
from kraft.server.driver import now_ms
from tests.harness.controller_nodes import (
    Quorum,
    RunScenario,
    beat,
    create,
    hold_disk,
    outcomes,
    register,
    topics,
    until,
)


def test_a_response_comes_once_its_records_are_on_disk(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.create("a", 3)
        assert quorum.running[1].store.log.log_end_offset >= quorum.cluster(1).next_offset - 1
        assert topics(quorum.cluster(1)) == {"a": 3}
        (answer,) = await quorum.ask(requests.delete_topics([TopicToDelete("a")]))
        assert answer.error is None
        assert topics(quorum.cluster(1)) == {}

    run_scenario(scenario, quorum)


def test_a_rejected_request_fails_only_for_its_caller(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        answers = await asyncio.gather(
            *(quorum.ask(create("same")) for _ in range(3)), quorum.ask(create("another"))
        )
        refused = [answer.get("same") for answer in answers[:3]]
        assert sum(isinstance(one, TopicAlreadyExistsError) for one in refused) == 2
        assert topics(quorum.cluster(1)) == {"same": 1, "another": 1}
        with pytest.raises(KraftError):
            await quorum.ask(requests.unregister_broker(77))

    run_scenario(scenario, quorum)


def test_a_heartbeat_overtakes_a_large_transaction(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        runner = quorum.runner(await quorum.active())
        epoch = await register(runner, 0)
        await beat(runner, 0, epoch)
        large = runner.submit(create("large", 100_000))
        answered = 0
        while not large.done():
            # Answered within the request, so that only the pause lets the transaction go on.
            answer = await beat(runner, 0, epoch)
            assert not answer.is_fenced
            answered += 1
            await asyncio.sleep(0)
        assert (await large)["large"].num_partitions == 100_000
        assert answered > 1
        assert topics(runner.controller.cluster) == {"large": 100_000}

    run_scenario(scenario, quorum)


def test_a_rejected_append_ends_the_leadership_but_not_the_node(
    run_scenario: RunScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No NoOpRecord may be an append, in place of a topic: how many depends on the time.
    quorum = Quorum(tmp_path, settings={"metadata.max.idle.interval.ms": "0"})

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.create("before", 10)
        node, runner = quorum.running[1], quorum.runner(1)
        assert node.driver is not None
        epoch = runner.controller.epoch
        gate = hold_disk(node)
        # Hide from the controller that the disk is behind: the raft layer rejects the append.
        run = QuorumController.run
        monkeypatch.setattr(
            QuorumController,
            "run",
            lambda controller, now_ms, next_offset, may_append: run(
                controller, now_ms, next_offset
            ),
        )
        limit = node.driver.node.config.max_unwritten_appends
        asked = [runner.submit(create(f"t-{number}")) for number in range(limit + 10)]
        await until(lambda: not runner.controller.is_active)
        assert {type(one) for one in await outcomes(*asked)} == {NotControllerError}
        assert topics(quorum.cluster(1)) == {"before": 10}
        gate.set()
        await until(lambda: runner.controller.epoch > epoch)
        # The records accepted before were committed.
        names = ["before", *(f"t-{number}" for number in range(limit))]
        assert list(topics(quorum.cluster(1))) == names
        await quorum.create("afterwards", 2)

    run_scenario(scenario, quorum)


def test_requests_behind_a_slow_disk_are_answered_in_order(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
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

    run_scenario(scenario, quorum)


def test_a_stopped_node_fails_waiting_requests(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        runner = quorum.runner(1)
        asked = [runner.submit(create(f"t-{number}", 50_000)) for number in range(5)]
        await asyncio.sleep(0.01)
        await quorum.stop()
        assert {type(one) for one in await outcomes(*asked)} <= {NotControllerError, dict}
        (late,) = await outcomes(runner.submit(create("late")))
        assert isinstance(late, NotControllerError)

    run_scenario(scenario, quorum)


def test_a_stopped_node_takes_no_further_turn(run_scenario: RunScenario, tmp_path: Path) -> None:
    """Otherwise it could begin a snapshot on a disk that is about to be closed."""
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
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

    run_scenario(scenario, quorum)


@pytest.mark.parametrize(
    ("waited_ms", "decided"),
    [(0.0, 2), (4.0, 2), (12.0, 6), (1000.0, 10)],
)
def test_the_turns_of_a_controller_grow_with_those_of_the_network(
    run_scenario: RunScenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waited_ms: float,
    decided: int,
) -> None:
    """Each decision takes a millisecond, and others wait after it."""
    quorum = Quorum(tmp_path)
    clock_ms = [0.0]
    taken: list[float] = []
    runner: ControllerRunner

    def run_for_a_millisecond(*given: Any, **options: Any) -> ControllerOutput:
        taken.append(clock_ms[0])
        ready = QuorumController.run(runner.controller, *given, **options)
        clock_ms[0] += 1.0
        return ready

    async def scenario() -> None:
        nonlocal runner
        await quorum.start()
        await quorum.brokers(0)
        runner = quorum.runner(1)
        await until(lambda: not runner.controller.queue and not runner._is_turn_due)
        # A whole number, so that the sums are exact.
        clock_ms[0] = float(int(now_ms()) + 1)
        monkeypatch.setattr(runners, "now_ms", lambda: clock_ms[0])
        monkeypatch.setattr(runner.controller, "run", run_for_a_millisecond)
        waiting = [runner.submit(create(f"t-{number}")) for number in range(20)]
        clock_ms[0] += waited_ms
        # Not by the loop: after a standstill of the machine it would take another turn as well.
        runner._take_turn()
        assert len(taken) == decided
        await outcomes(*waiting)

    run_scenario(scenario, quorum)


class CountsDeltas:
    """A publisher that counts deltas, and keeps none."""

    name = "counts"
    full = renumbered = 0

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        self.full += delta.is_full
        self.renumbered += delta.is_renumbered


class SlowSlices:
    """Background work of five slices, each of which blocks the loop for 20 ms."""

    def __init__(self) -> None:
        self.times_s: list[tuple[float, float]] = []

    @property
    def has_work(self) -> bool:
        return len(self.times_s) < 5

    def work(self) -> None:
        begun_s = time.monotonic()
        time.sleep(0.02)
        self.times_s.append((begun_s, time.monotonic()))


def test_a_node_rests_between_slices_of_background_work_as_long_as_they_take(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """A thread that never sleeps waits longest for a processor, and its answers with it."""
    quorum, slices = Quorum(tmp_path), SlowSlices()

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.create("a", 1)
        quorum.runner(1).publishing.background.append(slices)
        await quorum.create("b", 1)
        await until(lambda: not slices.has_work)

    run_scenario(scenario, quorum)
    rests_s = [begun - ended for (_, ended), (begun, _) in pairwise(slices.times_s)]
    # A request ends the first rest; timers count whole milliseconds.
    assert min(rests_s[1:]) > 0.015


def test_a_node_has_its_image_while_it_compacts(run_scenario: RunScenario, tmp_path: Path) -> None:
    """ApiVersions and DescribeConfigs answer from it: without it, no feature is finalized."""
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        await quorum.create("kept", 4 * ROWS_COPIED_AT_ONCE)
        await quorum.create("large", 70_000)
        runner, was_seen = quorum.runner(1), False
        deletion = asyncio.ensure_future(
            quorum.ask(requests.delete_topics([TopicToDelete("large")]))
        )
        while not deletion.done() or quorum.cluster(1).table.row_count > 70_000:
            was_seen |= runner.controller.is_compacting
            assert runner.publishing.images.image is not None
            await asyncio.sleep(0)
        assert was_seen
        assert quorum.cluster(1).table.row_count == 4 * ROWS_COPIED_AT_ONCE
        await quorum.create("afterwards", 1)

    run_scenario(scenario, quorum)


def test_compactions_do_not_postpone_a_snapshot(
    run_scenario: RunScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each began to count the bytes of the log anew, so that it could grow without an end."""
    size = "metadata.log.max.record.bytes.between.snapshots"
    quorum = Quorum(tmp_path, settings={size: "300000"})

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        runner = quorum.runner(1)
        deciding = runner.controller
        monkeypatch.setattr(deciding, "settings", replace(deciding.settings, min_dead_rows=1))
        for number in range(4):
            await quorum.create(f"large-{number}", 1_000)
            await quorum.ask(requests.delete_topics([TopicToDelete(f"large-{number}")]))
            await until(lambda: quorum.cluster(1).table.row_count == 0)
        assert deciding.cluster.next_offset < 6_000
        await until(lambda: runner.publishing.latest_size > 0)

    run_scenario(scenario, quorum)


def test_nodes_drop_the_rows_of_deleted_partitions(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(0)
        publisher, images = CountsDeltas(), quorum.runner(1).publishing.images
        images.register(publisher)
        await quorum.create("kept", 3)
        await until(lambda: images.image and images.image.table.topic_number("kept") >= 0)
        image = images.image
        for number in range(2):
            await quorum.create(f"large-{number}", 70_000)
            await quorum.ask(requests.delete_topics([TopicToDelete(f"large-{number}")]))
            await until(lambda: quorum.cluster(1).table.row_count == 3)
        await quorum.create("afterwards", 1)
        assert topics(quorum.cluster(1)) == {"kept": 3, "afterwards": 1}
        assert (publisher.full, publisher.renumbered) == (1, 2)
        assert image is not None
        assert [image.table.topic_name(each) for each in image.table.topic_numbers()] == ["kept"]
        assert image.table.row_count == 3

    run_scenario(scenario, quorum)
