"""Sweeps of the fleet on Spark: each task carries out one run with a quorum of its own.

The driver submits a job for each run, so that it keeps the files of a run as soon as the run has
ended; executors need kraft, but no common file system. `kraft.fleet.swept_run` carries out a run,
`kraft.fleet.sweep_directory` keeps its files. The measures of all finished runs then become a
DataFrame, to whose groups Spark's workers fit the laws of `kraft.spark.fleet_scaling`.
"""

from __future__ import annotations

import pickle
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kraft.errors import StorageError
from kraft.fleet.run_slot import await_slots
from kraft.fleet.scaling import Point
from kraft.fleet.scaling_report import DECIDED_BY_SCENARIO, ScalingReport
from kraft.fleet.sweep_directory import SweepDirectory
from kraft.fleet.sweep_grid import SweepSettings, SweptRun
from kraft.fleet.swept_run import ERROR_FILE, SweptRunOutcome, SweptRunResult, carry_out
from kraft.fleet.traces import read_run
from kraft.spark.fleet_scaling import scaling_of_measures
from kraft.spark.fleet_traces import TABLES, table_of_run
from kraft.spark.source_options import arrow_schema
from kraft.spark.tasks import collect_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The tables of a sweep.
SWEEP_TABLES = ("events", "measures", "runs")
#: Jobs that wait for an executor of a cluster at a time.
_MOST_JOBS = 64
#: How long a task waits for a slot of its machine before another machine may take the run.
_SLOT_WAIT_S = 20.0
_LOOK_S = 0.5
#: The last line of a traceback: ``ModuleNotFoundError: No module named 'kraft'``.
_PYTHON_ERROR = re.compile(r"[\w.]*(?:Error|Exception): ")
#: How long the runs of this machine may take to end after an interrupt.
_END_TIMEOUT_S = 90.0


def carry_out_runs(
    spark: SparkSession,
    runs: Sequence[SweptRun],
    settings: SweepSettings,
    on_end: Callable[[SweptRunResult], object],
    on_wait: Callable[[SweptRun], object] = lambda run: None,
    *,
    work: Path | None = None,
    runs_at_once: int = 1,
    program: Sequence[str] | None = None,
) -> None:
    """Carry out runs, at most ``runs_at_once`` at a time on a machine; call ``on_end`` with each.

    ``work`` is the directory of each machine for the files of running runs, by default the one for
    temporary files. ``program`` is the command ``kraft`` of the executors. ``on_end`` is called in
    this thread, in the order in which the runs end. ``on_wait`` is called in another thread where
    other sweeps have all slots of this machine, again and again until one is free.

    If ``on_end`` raises, or at Ctrl-C, the runs are cancelled, and those of this machine have ended
    when this function raises.
    """
    if not runs:
        return
    owner, is_over = uuid4().hex, Event()
    is_local = str(spark.sparkContext.master).startswith("local")
    jobs = min(len(runs), runs_at_once if is_local else _MOST_JOBS)
    place = None if work is None else str(work)
    here = Path(place or tempfile.gettempdir())
    command = {} if program is None else {"program": tuple(program)}

    def task(run: SweptRun) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def in_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                result = carry_out(
                    run,
                    settings,
                    Path(place or tempfile.gettempdir()),  # the executor's
                    owner=owner,
                    runs_at_once=runs_at_once,
                    wait_s=_SLOT_WAIT_S,
                    **command,
                )
                # A trace is a tenth of its size then.
                packed = zlib.compress(pickle.dumps(result), 1)
                yield pa.RecordBatch.from_pydict({"result": [packed]})

        return in_worker

    def submit(run: SweptRun) -> SweptRunResult:
        while not is_over.is_set():
            try:
                (row,) = collect_rows(spark, 1, task(run), "result binary", group=owner)
            except (PySparkException, Py4JError) as error:
                files = {ERROR_FILE: str(error).encode()}
                reason = f"Spark gave up: {_last_error(str(error))}"
                return SweptRunResult(run, SweptRunOutcome.FAILED, reason, files=files)
            result: SweptRunResult = pickle.loads(zlib.decompress(row["result"]))
            if result.outcome is not SweptRunOutcome.WAITING:
                return result
            # On a cluster a run waits as a rule: Spark does not know of the slots.
            if is_local:
                on_wait(run)
        return SweptRunResult(run, SweptRunOutcome.WAITING)

    with ThreadPoolExecutor(jobs, thread_name_prefix="kraft-sweep") as pool:
        futures = [pool.submit(submit, run) for run in runs]
        try:
            for future in as_completed(futures):
                on_end(future.result())
        except BaseException as error:
            is_over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            _cancel(spark, owner, futures)
            held = await_slots(here, owner, timeout_s=_END_TIMEOUT_S)
            if held:
                error.add_note(f"{held} runs of this machine have not ended")
            raise


def _cancel(spark: SparkSession, group: str, futures: Sequence[Future[SweptRunResult]]) -> None:
    """Cancel the jobs of this group until the threads that submit them have ended."""
    # Not `wait` alone: it never counts a future that was cancelled before its thread began it.
    while left := [each for each in futures if not each.done()]:
        # Again and again: a thread may have been about to submit its job.
        with suppress(Py4JError):
            spark.sparkContext.cancelJobGroup(group)
        wait(left, timeout=_LOOK_S)


def _last_error(text: str) -> str:
    """Return the line of a Spark exception that says what was wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (errors or lines or ["no reason is known"])[-1 if errors else 0]


def write_tables(directory: SweepDirectory, name: str) -> None:
    """Write the tables of a finished run that do not exist yet. Raises FleetRunError."""
    paths = {table: directory.table_directory(table) / f"{name}.parquet" for table in SWEEP_TABLES}
    missing = {table: path for table, path in paths.items() if not path.exists()}
    if not missing:
        return
    run = read_run(directory.run_directory(name))
    for table, path in missing.items():
        # Readers of the folder leave out files whose names begin with a dot.
        fresh = path.with_name(f".{path.name}")
        pq.write_table(table_of_run(run, table), fresh)
        fresh.replace(path)


def laws_of_sweep(
    spark: SparkSession, directory: SweepDirectory
) -> tuple[ScalingReport, list[Point]]:
    """Return the laws of the finished runs, and the points that they are fitted to.

    Raises FleetRunError for a run that cannot be read, StorageError for a table that cannot, and
    Spark's exceptions if the job fails.
    """
    names = sorted(directory.finished())
    for name in names:
        write_tables(directory, name)
    schema = arrow_schema(TABLES["measures"], TABLES["measures"])
    files = [str(directory.table_directory("measures") / f"{name}.parquet") for name in names]
    try:
        measures = ds.dataset(files, schema, format="parquet").to_table() if files else None
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(f"cannot read the tables of {directory.path}: {error}") from None
    if measures is None:
        return ScalingReport(0, (), ()), []
    report = scaling_of_measures(spark.createDataFrame(measures), len(names))
    points = [
        Point(**{name: row[name] for name in Point._fields})
        for row in measures.to_pylist()
        if row["is_complete"] and row["name"] not in DECIDED_BY_SCENARIO
    ]
    return report, points
