"""The controller's queue: order, delays, `Expire`, and faults of the program."""

from __future__ import annotations

import threading

import pytest

from kraft.zookeeper.event_loop import ControllerEventLoop
from kraft.zookeeper.events import (
    BrokerChange,
    BrokerModifications,
    ControllerEvent,
    Expire,
    Reelect,
    Startup,
    TopicDeletion,
)


class Processor:
    def __init__(self, awaited: ControllerEvent) -> None:
        self.seen: list[ControllerEvent] = []
        self.done = threading.Event()
        self.step_downs = 0
        self.awaited = awaited

    def process(self, event: ControllerEvent) -> None:
        self.seen.append(event)
        if event == self.awaited:
            self.done.set()
        if isinstance(event, TopicDeletion):
            raise KeyError("a fault of the program")

    def step_down(self) -> None:
        self.step_downs += 1


def run(loop: ControllerEventLoop, awaited: ControllerEvent) -> Processor:
    processor = Processor(awaited)
    loop.start(processor)
    assert processor.done.wait(60)
    loop.stop()
    return processor


def test_events_come_in_order_and_delayed_ones_later() -> None:
    loop = ControllerEventLoop()
    loop.put(Reelect(), 200)
    for event in (Startup(), BrokerChange(), BrokerModifications(1)):
        loop.put(event)
    assert run(loop, Reelect()).seen == [
        Startup(),
        BrokerChange(),
        BrokerModifications(1),
        Reelect(),
    ]


def test_expire_replaces_all_that_waits() -> None:
    loop = ControllerEventLoop()
    for event in (Startup(), BrokerChange(), Expire(), Reelect()):
        loop.put(event)
    assert run(loop, Reelect()).seen == [Expire(), Reelect()]


def test_a_fault_of_the_program_makes_the_controller_resign(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = ControllerEventLoop()
    for event in (TopicDeletion(), Reelect()):
        loop.put(event)
    processor = run(loop, Reelect())
    assert processor.step_downs == 1
    assert "failed to process TopicDeletion()" in caplog.text
