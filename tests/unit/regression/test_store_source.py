"""The tasks into which an analysis of a store is divided, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

from benchmarks.regress_scale import build
from kraft.regression import store_source
from kraft.regression.analysis import analyse_store
from kraft.regression.settings import AnalysisSettings
from kraft.regression.tasks import IN_PROCESS, Progress, ignore_progress

Task = TypeVar("Task")
Result = TypeVar("Result")
SETTINGS = AnalysisSettings(bootstrap_samples=100)


class CountedTasks:
    """Runs tasks in this process; `counts` has the number of tasks of each job."""

    wanted_tasks = 1

    def __init__(self) -> None:
        self.counts: list[int] = []

    def run(
        self,
        work: Callable[[Task], Iterable[Result]],
        tasks: Sequence[Task],
        on_progress: Progress = ignore_progress,
    ) -> list[Result]:
        self.counts.append(len(tasks))
        return IN_PROCESS.run(work, tasks, on_progress)


def test_more_points_are_more_tasks_and_laws_need_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "store", runs=40, benchmarks=20)
    few, many = CountedTasks(), CountedTasks()
    alone = analyse_store(tmp_path / "store", SETTINGS, tasks=few)
    assert len(alone.scaling) == 4
    monkeypatch.setattr(store_source, "_TASK_POINTS", 20)
    monkeypatch.setattr(store_source, "_LAW_TASK_POINTS", 400)
    assert analyse_store(tmp_path / "store", SETTINGS, tasks=many) == alone
    assert few.counts == [1, 1]
    assert many.counts == [40, 2]
