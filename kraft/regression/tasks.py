"""Where independent tasks run: in this process, or wherever a `TaskRunner` sends them.

The store's ingest and analysis divide their work into tasks and pass them to a runner.
`kraft.spark.tasks` has the one for Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Called with the share of the tasks that is done, 0 to 1.
Progress = Callable[[float], None]


def ignore_progress(share: float) -> None:
    """Do nothing."""


class TaskRunner(Protocol):
    """Runs a function for each task, on any number of processes or machines."""

    @property
    def wanted_tasks(self) -> int:
        """Return the number of tasks that keeps all processes busy."""

    def run(
        self,
        work: Callable[[Task], Iterable[Result]],
        tasks: Sequence[Task],
        on_progress: Progress = ignore_progress,
    ) -> list[Result]:
        """Return the results of all tasks, in any order."""


class InProcess:
    """Runs one task after another in this process."""

    wanted_tasks = 1

    def run(
        self,
        work: Callable[[Task], Iterable[Result]],
        tasks: Sequence[Task],
        on_progress: Progress = ignore_progress,
    ) -> list[Result]:
        """Return the results in the order of the tasks."""
        results: list[Result] = []
        for number, task in enumerate(tasks):
            results += work(task)
            on_progress((number + 1) / len(tasks))
        return results


IN_PROCESS = InProcess()
