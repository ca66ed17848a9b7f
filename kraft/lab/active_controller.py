"""The active controller of a scenario: a quorum of one whose log is on this disk.

Owns the way an operation takes: decided and applied by ``QuorumController``, appended to the log,
fsynced, committed, answered; each turn of the controller is an event of the trace. Time is virtual,
10 microseconds an operation from the last record of the seed on, so that the same seed writes the
same bytes and no broker seems silent for long. Fed by the stages of `million`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kraft._core.log import Log
from kraft._core.placement import PlacementSpec, ReplicaPlacer, UsableBroker
from kraft.controller import requests
from kraft.controller.decision import Records
from kraft.controller.operations import Answer, Operation, Ready
from kraft.controller.quorum_controller import QuorumController
from kraft.controller.sessions import Heartbeat
from kraft.controller.settings import ControllerSettings
from kraft.image.replay import Cluster
from kraft.lab.trace import TraceWriter
from kraft.records import Uuid

#: Of its own accord the controller only looks for silent brokers: the stages say what else happens.
_SETTINGS = ControllerSettings(
    max_idle_interval_ms=None,
    leader_imbalance_check_interval_ms=None,
    unclean_leader_election_interval_ms=None,
)
_STEP_MS = 0.01

#: Times a part of the work by its name.
Part = Callable[[str], AbstractContextManager[None]]


class _TimedController(QuorumController):
    """Tells deciding and applying apart."""

    part: Part = staticmethod(lambda name: nullcontext())

    def _write(self, records: Records) -> None:
        with self.part("apply"):
            super()._write(records)


class TimedPlacer:
    """A placer whose time is a part of its own."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self.part: Part = lambda name: nullcontext()

    def place(self, placement: PlacementSpec, cluster: Sequence[UsableBroker]) -> NDArray[np.int32]:
        with self.part("place"):
            return self._placer.place(placement, cluster)


class ActiveController:
    """Leads ``epoch`` of a log that ends where ``cluster`` does, as of ``now_ms``."""

    def __init__(
        self,
        cluster: Cluster,
        log: Log,
        *,
        epoch: int,
        now_ms: float,
        placer: TimedPlacer,
        random: Random,
        trace: TraceWriter | None = None,
    ) -> None:
        self._log = log
        self._trace = trace
        self._now_ms = now_ms
        self._tokens = count(1)
        self._answers: dict[int, Answer] = {}
        self._controller = _TimedController(
            cluster, _SETTINGS, placer=placer, random_uuid=lambda: Uuid(random.randbytes(16))
        )
        self._placer = placer
        self._controller.claim(epoch, now_ms, cluster.next_offset)

    @property
    def newest_timestamp_ms(self) -> int:
        """That of the last operation."""
        return int(self._now_ms)

    def end_sessions(self) -> None:
        """So much time goes by that no broker counts as alive that was not heard since."""
        self._now_ms += 2 * _SETTINGS.session_timeout_ms

    def ask(self, operation: Operation, part: Part) -> Any:
        """The response, once everything is on disk.

        ``part`` times what it takes beside deciding, and "place", which is within that.

        Raises what the operation is refused with.
        """
        controller, cluster = self._controller, self._controller.cluster
        controller.part = self._placer.part = part
        self._now_ms += _STEP_MS
        operation.token = next(self._tokens)
        ready = self._turn(lambda: controller.submit(operation, self._now_ms))
        while True:
            self._carry_out(ready, part)
            if operation.token in self._answers:
                break
            ready = self._turn(lambda: controller.run(self._now_ms, cluster.next_offset))
        answer = self._answers.pop(operation.token)
        if answer.error is not None:
            raise answer.error
        return answer.response

    def _turn(self, take: Callable[[], Ready]) -> Ready:
        """One turn of the controller, which nothing else can interrupt."""
        if self._trace is None:
            return take()
        offset, began_ns = self._controller.cluster.next_offset, time.perf_counter_ns()
        ready = take()
        duration_ns = time.perf_counter_ns() - began_ns
        records = self._controller.cluster.next_offset - offset
        self._trace.event("controller turn", began_ns, duration_ns, records)
        return ready

    def _carry_out(self, ready: Ready, part: Part) -> None:
        controller = self._controller
        self._answers.update((answer.token, answer) for answer in ready.answers)
        if ready.to_append is not None:
            with part("append"):
                self._log.append(ready.to_append)
                self._log.sync()
            end_offset = controller.cluster.next_offset
            committed = controller.commit(end_offset, self._now_ms)
            self._answers.update((answer.token, answer) for answer in committed.answers)
            # What is on disk is not taken back any more.
            controller.cluster.forget(controller.stable_offset)

    def heartbeat(self, broker_id: int, *, wants_fence: bool = False) -> Operation:
        """Of a broker that has taken up everything: brings it back, or fences it if it wants so."""
        cluster = self._controller.cluster
        epoch = cluster.state.brokers[broker_id].epoch
        beat = Heartbeat(broker_id, epoch, cluster.next_offset, wants_fence=wants_fence)
        return requests.heartbeat(beat)
