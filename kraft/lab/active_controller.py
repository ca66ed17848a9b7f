"""The active controller of a scenario: a quorum of one node with its log on the local disk.

An operation is decided and applied by ``QuorumController``, appended to the log, fsynced,
committed, answered. Each turn of the controller is an event of the trace. Time is virtual: 10
microseconds an operation from the last record of the seed on, so that one seed always writes the
same bytes and no broker's session expires by itself. Called by the stages of `million`.
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

from kraft._core.decide.placement import PlacementSpec, ReplicaPlacer, UsableBroker
from kraft._core.log.log import Log
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.decision import Records
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Answer, ControllerOutput, Operation
from kraft.controller.runtime.quorum_controller import QuorumController
from kraft.controller.runtime.settings import ControllerSettings
from kraft.image.replay import MetadataState
from kraft.lab.trace import TraceWriter
from kraft.records import Uuid

#: The controller itself only expires sessions; the stages request everything else.
_SETTINGS = ControllerSettings(
    max_idle_interval_ms=None,
    leader_imbalance_check_interval_ms=None,
    unclean_leader_election_interval_ms=None,
)
_STEP_MS = 0.01

#: Measures a named part of the work.
Part = Callable[[str], AbstractContextManager[None]]


class _TimedController(QuorumController):
    """A controller that measures applying records separately from deciding."""

    part: Part = staticmethod(lambda name: nullcontext())

    def _write(self, records: Records) -> None:
        with self.part("apply"):
            super()._write(records)


class TimedPlacer:
    """A placer that measures placement separately."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self.part: Part = lambda name: nullcontext()

    def place(self, placement: PlacementSpec, cluster: Sequence[UsableBroker]) -> NDArray[np.int32]:
        with self.part("place"):
            return self._placer.place(placement, cluster)


class ActiveController:
    """The leader of ``epoch`` over a log that ends at the offset of ``cluster``, at time
    ``now_ms``.
    """

    def __init__(
        self,
        cluster: MetadataState,
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
        """The time of the last operation, in ms."""
        return int(self._now_ms)

    def end_sessions(self) -> None:
        """Advance time so far that every broker's session expires."""
        self._now_ms += 2 * _SETTINGS.session_timeout_ms

    def ask(self, operation: Operation, part: Part) -> Any:
        """Run an operation; return its response once its records are on disk.

        ``part`` measures its parts other than deciding, and "place", which happens during deciding.
        Raises the error with which the controller rejects the operation.
        """
        controller, cluster = self._controller, self._controller.cluster
        controller.part = self._placer.part = part
        self._now_ms += _STEP_MS
        operation.token = next(self._tokens)
        output = self._turn(lambda: controller.submit(operation, self._now_ms))
        while True:
            self._write_and_commit(output, part)
            if operation.token in self._answers:
                break
            output = self._turn(lambda: controller.run(self._now_ms, cluster.next_offset))
        answer = self._answers.pop(operation.token)
        if answer.error is not None:
            raise answer.error
        return answer.response

    def _turn(self, take: Callable[[], ControllerOutput]) -> ControllerOutput:
        """Return the result of one uninterrupted turn of the controller."""
        if self._trace is None:
            return take()
        offset, began_ns = self._controller.cluster.next_offset, time.perf_counter_ns()
        output = take()
        duration_ns = time.perf_counter_ns() - began_ns
        records = self._controller.cluster.next_offset - offset
        self._trace.event("controller turn", began_ns, duration_ns, records)
        return output

    def _write_and_commit(self, output: ControllerOutput, part: Part) -> None:
        controller = self._controller
        self._answers.update((answer.token, answer) for answer in output.answers)
        if output.to_append is not None:
            with part("append"):
                self._log.append(output.to_append)
                self._log.sync()
            end_offset = controller.cluster.next_offset
            committed = controller.commit(end_offset, self._now_ms)
            self._answers.update((answer.token, answer) for answer in committed.answers)
            # Records on disk are never reverted.
            controller.cluster.forget(controller.stable_offset)

    def heartbeat(self, broker_id: int, *, wants_fence: bool = False) -> Operation:
        """Return the heartbeat of a caught-up broker: it unfences the broker, or fences it on
        request.
        """
        cluster = self._controller.cluster
        epoch = cluster.state.brokers[broker_id].epoch
        beat = Heartbeat(broker_id, epoch, cluster.next_offset, wants_fence=wants_fence)
        return requests.broker_heartbeat(beat)
