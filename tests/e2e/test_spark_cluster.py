"""Spark on a cluster: the findings of one thread, and sweeps whose executors share no files.

The cluster is a standalone Spark cluster: a master and two workers, processes on loopback, from the
jars in PySpark.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraft.errors import MissingJavaError
from tests.harness.recorded_fleet import RECORDED, ROOT

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")

from kraft.java import find_java

#: Settings of executors that the cluster's small workers can start.
_CONFIG = """
config = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "3",
}
"""
#: A program that carries out a sweep of generated runs, and prints the runs in their order with
#: their machines and outcomes as JSON.
_SWEEP = f"""
import json, sys
from pathlib import Path
from kraft.fleet.library import named_scenario
from kraft.fleet.sweep_grid import SweepSettings, grid
from kraft.spark.fleet_sweep import carry_out_runs
from kraft.spark.session import close_session, open_session
{_CONFIG}
master, work, root, *program = sys.argv[1:]
# The executors' directory is another one, and another kraft may be installed.
config["spark.executorEnv.PYTHONPATH"] = root
settings = SweepSettings(named_scenario("start"), quorum_settings={{"fail.brokers": "20"}})
ended = []
spark = open_session(master=master, memory="512m", config=config)
runs = grid("10,20,40", "100", "0", "kraft")
carry_out_runs(spark, runs, settings, ended.append, work=Path(work), program=program)
close_session(spark)
json.dump([[each.run.name, each.outcome, each.reason, sorted(each.files)] for each in ended],
          sys.stdout)
"""
#: A program that analyses the same points with each Spark master in turn, in one JVM, and prints
#: the findings of each as JSON.
_ANALYSE = f"""
import json, sys
from kraft.regression.json_report import as_json
from kraft.regression.settings import AnalysisSettings
from kraft.spark.analysis import analyse
from kraft.spark.session import close_session, open_session

points, *masters = sys.argv[1:]
{_CONFIG}
results = []
for master in masters:
    spark = open_session(master=master, memory="512m", config=config)
    settings = AnalysisSettings(bootstrap_samples=200)
    found = analyse(spark.read.parquet(points), settings, kept_runs=80)
    executors = len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1
    histories = {{
        each.key.benchmark: each.series.value.tolist() for each in found.series if each.series
    }}
    results.append({{"found": as_json(found), "histories": histories, "executors": executors}})
    spark.stop()
close_session(spark)
json.dump(results, sys.stdout)
"""
_STARTS_WITHIN_S = 120
#: Options of Java processes that live for seconds: no C2 compiler, one thread for collections.
_BRIEF_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def _daemon(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of Spark's own processes; end it by its pid."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _BRIEF_JVM,
        "SPARK_LAUNCHER_OPTS": _BRIEF_JVM,
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(words: str, log: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait until the log of a process contains these words; return the log."""
    until = time.monotonic() + _STARTS_WITHIN_S
    while words not in (said := log.read_text(errors="replace")):
        assert process.poll() is None, f"ended with {process.returncode}: {said[-2000:]}"
        assert time.monotonic() < until, f"no {words!r} within {_STARTS_WITHIN_S} s: {said[-2000:]}"
        time.sleep(0.1)
    return said


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the master's address, once two workers have joined it."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    try:
        find_java()
    except MissingJavaError as error:
        pytest.skip(f"needs Java 17 or newer: {error}")
    deploy = "org.apache.spark.deploy"
    log = tmp_path / "master.log"
    at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with ExitStack() as ends:
        master = ends.enter_context(_daemon(f"{deploy}.master.Master", *at, log=log))
        said = _wait_for("New state: ALIVE", log, master)
        started = re.search(r"Starting Spark master at (spark://[\d.]+:\d+)", said)
        assert started is not None, said
        address = started[1]
        workers = []
        for number in (1, 2):
            own = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "512m"]
            folder = ["--work-dir", str(tmp_path / f"worker-{number}")]
            worker_log = tmp_path / f"worker-{number}.log"
            workers.append(
                ends.enter_context(
                    _daemon(f"{deploy}.worker.Worker", *own, *folder, address, log=worker_log)
                )
            )
        for number, worker in enumerate(workers, 1):
            _wait_for(
                "Successfully registered with master", tmp_path / f"worker-{number}.log", worker
            )
        yield address


def _write_points(path: Path) -> None:
    """Write histories of several kinds, spread over files in random order."""
    import pyarrow.parquet as pq

    from tests.harness.histories import table

    rows = table()
    path.mkdir()
    for part in range(3):
        pq.write_table(
            rows.take(list(range(part, rows.num_rows, 3))[::-1]), path / f"{part}.parquet"
        )


def _printed(program: str, *arguments: str) -> list[Any]:
    """Return what a program prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[Any] = json.loads(done.stdout)
    return results


@pytest.mark.spark
def test_the_same_findings_on_one_thread_on_two_and_on_a_cluster(
    cluster: str, tmp_path: Path
) -> None:
    _write_points(tmp_path / "points")
    one, two, many = _printed(_ANALYSE, str(tmp_path / "points"), "local[1]", "local[2]", cluster)
    assert [each.pop("executors") for each in (one, two, many)] == [0, 0, 2]
    assert one["found"]["summary"]["changed"] == 2
    assert one["histories"].keys() == {"slower", "faster"}
    assert two == one
    assert many == one


@pytest.mark.spark
def test_executors_carry_out_a_sweep_one_run_at_a_time_on_a_machine(
    cluster: str, tmp_path: Path
) -> None:
    """Both executors are on this machine: one waits for the slot while the other has it."""
    ended = _printed(_SWEEP, cluster, str(tmp_path), str(ROOT), *RECORDED)
    assert sorted(name for name, *_ in ended) == sorted(
        f"kraft-b{brokers}-p100-s0" for brokers in (10, 20, 40)
    )
    for name, outcome, reason, files in ended:
        if "-b20-" in name:
            assert (outcome, reason) == ("failed", "6 brokers do not fit on this machine")
        else:
            assert (outcome, reason) == ("finished", ""), name
            assert files == ["benchmark.json", "report.json", "run.json", "trace.jsonl"]
    # No run is left, and no second slot was used.
    (home,) = tmp_path.iterdir()
    assert [path.name for path in home.iterdir()] == ["slot-0.lock"]
