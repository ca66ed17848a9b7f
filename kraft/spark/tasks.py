"""Run Python functions as tasks in Spark's workers.

`SparkTasks` is the task runner of `kraft.regression`; `collect_rows` runs the tasks of sweeps.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kraft.errors import SparkError
from kraft.regression.tasks import Progress, ignore_progress

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Minimum number of Spark tasks, which balances the cores; each task has a start-up cost.
_LEAST_TASKS = 16
_PROGRESS_S = 0.25
#: What `SparkContext.setJobGroup` sets for this thread.
_GROUP_PROPERTIES = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
)


class SparkTasks:
    """Runs each task in a worker of a session; see `kraft.regression.tasks.TaskRunner`.

    Tasks and results are pickled, so that the workers need the same version of kraft.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def wanted_tasks(self) -> int:
        return max(_LEAST_TASKS, 2 * self._spark.sparkContext.defaultParallelism)

    def run(
        self,
        work: Callable[[Task], Iterable[Result]],
        tasks: Sequence[Task],
        on_progress: Progress = ignore_progress,
    ) -> list[Result]:
        """Return the results of all tasks. Raises SparkError if Spark gives up."""
        if not tasks:
            return []
        tasks = list(tasks)

        def in_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    result = pickle.dumps(list(work(tasks[number])))
                    yield pa.RecordBatch.from_pydict({"result": [result]})

        numbers = self._spark.range(0, len(tasks), 1, min(len(tasks), self.wanted_tasks))
        try:
            with _reporting_progress(self._spark, on_progress):
                rows = numbers.mapInArrow(in_worker, "result binary").collect()
        except (PySparkException, Py4JError) as error:
            raise SparkError(f"Spark gave up: {str(error).strip()}") from error
        return [result for row in rows for result in pickle.loads(row.result)]


@contextmanager
def _reporting_progress(spark: SparkSession, on_progress: Progress) -> Iterator[None]:
    """Report the share of finished tasks of the running stage, from a thread."""
    tracker = spark.sparkContext.statusTracker()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_PROGRESS_S):
            for stage_id in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None and stage.numTasks:
                    on_progress(stage.numCompletedTasks / stage.numTasks)

    watcher = threading.Thread(target=watch, name="kraft-progress", daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        spark.sparkContext.cancelAllJobs()
        raise
    finally:
        is_over.set()
        watcher.join()


def collect_rows(
    spark: SparkSession,
    count: int,
    run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
    *,
    group: str | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of ``count`` tasks, each of which gets its number; an interrupt cancels them.

    ``group`` is a job group by which another thread may cancel them (`SparkContext.cancelJobGroup`;
    Spark 4.3 ignores `SparkSession.interruptTag` for these jobs). Raises Spark's exceptions if the
    job fails.
    """
    context = spark.sparkContext
    group = group or f"kraft-{uuid4().hex}"
    before: dict[str, Any] = {name: context.getLocalProperty(name) for name in _GROUP_PROPERTIES}
    context.setJobGroup(group, group)
    try:
        rows: list[dict[str, Any]] = (
            spark.range(0, count, 1, count).mapInArrow(run, schema).toArrow().to_pylist()
        )
        return rows
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)
