"""The script over a cluster that answers at once: order, time limit, failures."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraft.errors import KraftError
from kraft.fleet.fleet import FleetTimeoutError
from kraft.generations.measures import (
    MEASURES,
    Deadline,
    Outcome,
    RunResult,
    RunTimeoutError,
    ScriptStep,
    failover_measures,
)
from kraft.generations.script import run_script


class ScriptedCluster:
    """Implements `script.GenerationCluster`; raises ``errors`` in the calls of these names."""

    def __init__(self, errors: Mapping[str, BaseException] | None = None) -> None:
        self.calls: list[str] = []
        self._errors = errors or {}

    def _called(self, name: str, *measures: str) -> dict[str, float]:
        self.calls.append(name)
        if name in self._errors:
            raise self._errors[name]
        return {measure: float(len(self.calls)) for measure in measures}

    def start(self, deadline: Deadline) -> None:
        self._called("start")

    def create(self, partitions: int, deadline: Deadline) -> Mapping[str, float]:
        return self._called(f"create {partitions}", "known")

    def shut_down_broker(self, deadline: Deadline) -> Mapping[str, float]:
        return self._called("shut down", "answered", "known")

    def crash_broker(self, deadline: Deadline) -> Mapping[str, float]:
        return self._called("crash", "detected", "known")

    def fail_over(self, deadline: Deadline) -> Mapping[str, float]:
        return self._called("fail over", "detected", "first_write", "known", "total")

    def restart_all(self, deadline: Deadline) -> Mapping[str, float]:
        return self._called("restart", "known")

    def bring_back(self, deadline: Deadline) -> None:
        self._called("bring back")

    def controller_processes(self) -> list[int]:
        return []


def test_every_step_is_measured_in_order() -> None:
    cluster, result = ScriptedCluster(), RunResult("kraft", 50)
    steps: list[str] = []
    run_script(cluster, result, Deadline(60), steps.append)
    assert cluster.calls == [
        *("start", "create 50", "shut down", "bring back", "crash", "bring back", "fail over"),
        "restart",
    ]
    assert steps == [
        *("start", "create", "shutdown", "bring back", "crash", "bring back", "failover"),
        "restart",
    ]
    assert list(result.seconds) == list(MEASURES)
    assert result.seconds[ScriptStep.FAILOVER, "known"] == 7.0
    assert (result.outcome, result.reason) == (Outcome.MEASURED, "")
    assert set(result.cpu_s) == set(ScriptStep)


@pytest.mark.parametrize("kind", [RunTimeoutError, FleetTimeoutError])
def test_a_time_limit_keeps_the_steps_before_it(kind: type[KraftError]) -> None:
    cluster, result = ScriptedCluster({"crash": kind("after 9 s nothing")}), RunResult("kraft", 50)
    run_script(cluster, result, Deadline(60))
    assert result.outcome is Outcome.TIMED_OUT
    assert result.reason == "crash: after 9 s nothing"
    assert {step for step, _ in result.seconds} == {ScriptStep.CREATE, ScriptStep.SHUTDOWN}


@pytest.mark.parametrize("error", [KraftError("broker 3 is gone"), OSError("broker 3 is gone")])
def test_a_failure_is_the_reason(error: Exception) -> None:
    cluster, result = ScriptedCluster({"bring back": error}), RunResult("kraft", 50)
    run_script(cluster, result, Deadline(60))
    assert (result.outcome, result.reason) == (Outcome.FAILED, "bring back: broker 3 is gone")
    assert cluster.calls[-1] == "bring back"


def test_an_interrupt_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_script(
            ScriptedCluster({"fail over": KeyboardInterrupt()}), RunResult("x", 1), Deadline(9)
        )


@pytest.mark.parametrize(
    ("detected_s", "accepted_s", "known_s", "measures"),
    [
        # As things happen.
        (14.0, 14.5, 15.0, (4.0, 4.5, 1.0, 5.0)),
        # Who leads was answered after the write, or never: the time of the write stays.
        (14.8, 14.5, 15.0, (4.5, 4.5, 0.5, 5.0)),
        (None, 14.5, 15.0, (4.5, 4.5, 0.5, 5.0)),
        # A broker knew the write before its answer came, also before the session's end was seen.
        (14.0, 15.5, 15.0, (4.0, 5.0, 1.0, 5.0)),
        (15.2, 15.5, 15.0, (5.0, 5.0, 0.0, 5.0)),
    ],
)
def test_a_failover_is_timed_from_the_kill(
    detected_s: float | None,
    accepted_s: float,
    known_s: float,
    measures: tuple[float, float, float, float],
) -> None:
    names = ("detected", "first_write", "known", "total")
    assert failover_measures(10.0, detected_s, accepted_s, known_s) == dict(
        zip(names, measures, strict=True)
    )


def test_a_time_limit_that_is_over() -> None:
    assert 0 < Deadline(60).left_s() <= 60
    with pytest.raises(RunTimeoutError, match=r"the time limit of 0\.5 s is over"):
        Deadline(-1e-9 + 0.5).__class__.left_s(_over(0.5))


def _over(seconds: float) -> Deadline:
    """Return a time limit that ended long ago."""
    deadline = Deadline(-1000.0)
    deadline.seconds = seconds
    return deadline
