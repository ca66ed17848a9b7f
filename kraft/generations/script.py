"""The script that every mode runs, over a `GenerationCluster`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kraft.errors import KraftError
from kraft.fleet.fleet import FleetTimeoutError
from kraft.fleet.samples import use_of
from kraft.generations.measures import Deadline, Outcome, RunResult, RunTimeoutError, ScriptStep


class GenerationCluster(Protocol):
    """A cluster of one mode. Each step returns its measures in seconds.

    A step ends only when every running broker knows what it caused: that is its check. Waits raise
    RunTimeoutError or FleetTimeoutError.
    """

    def start(self, deadline: Deadline) -> None:
        """Start everything; return when all brokers are in service."""

    def create(self, partitions: int, deadline: Deadline) -> Mapping[str, float]: ...
    def shut_down_broker(self, deadline: Deadline) -> Mapping[str, float]: ...
    def crash_broker(self, deadline: Deadline) -> Mapping[str, float]: ...
    def fail_over(self, deadline: Deadline) -> Mapping[str, float]: ...
    def restart_all(self, deadline: Deadline) -> Mapping[str, float]: ...

    def bring_back(self, deadline: Deadline) -> None:
        """Start the brokers that are down; return when every replica is in sync."""

    def controller_processes(self) -> list[int]:
        """Return the ids of the processes of controllers, and of ZooKeeper."""


def run_script(
    cluster: GenerationCluster,
    result: RunResult,
    deadline: Deadline,
    on_step: Callable[[str], object] = lambda step: None,
) -> None:
    """Run all steps and note their measures in ``result``, also if one does not end.

    Errors of the cluster end the run, and are its reason; KeyboardInterrupt is raised.
    """

    current = "start"

    def begin(step: str) -> None:
        nonlocal current
        current = step
        on_step(step)

    def measure(step: ScriptStep, carry_out: Callable[[], Mapping[str, float]]) -> None:
        begin(step.value)
        before = {pid: use_of([pid]).cpu_s for pid in cluster.controller_processes()}
        found = carry_out()
        result.seconds |= {(step, name): value for name, value in found.items()}
        result.cpu_s[step] = sum(
            use_of([pid]).cpu_s - before.get(pid, 0.0) for pid in cluster.controller_processes()
        )

    def bring_back() -> None:
        begin("bring back")
        cluster.bring_back(deadline)

    try:
        begin("start")
        cluster.start(deadline)
        measure(ScriptStep.CREATE, lambda: cluster.create(result.partitions, deadline))
        measure(ScriptStep.SHUTDOWN, lambda: cluster.shut_down_broker(deadline))
        bring_back()
        measure(ScriptStep.CRASH, lambda: cluster.crash_broker(deadline))
        bring_back()
        measure(ScriptStep.FAILOVER, lambda: cluster.fail_over(deadline))
        measure(ScriptStep.RESTART, lambda: cluster.restart_all(deadline))
    except (RunTimeoutError, FleetTimeoutError) as error:
        result.outcome = Outcome.TIMED_OUT
        result.reason = f"{current}: {error}"
    except (KraftError, OSError) as error:
        result.outcome = Outcome.FAILED
        result.reason = f"{current}: {error}"
