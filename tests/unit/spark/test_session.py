"""Sessions: configuration and shutdown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraft.errors import InvalidConfigError
from kraft.spark.session import open_session, session_settings
from tests.harness.commands import heed_interrupts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_works_and_knows_utc(spark: SparkSession) -> None:
    (row,) = spark.sql("select count(*) n, timestamp_seconds(0) t from range(10)").collect()
    assert row.n == 10
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    def prefix(_: int) -> str:
        import sys

        return sys.prefix

    assert spark.sparkContext.parallelize([0], 1).map(prefix).collect() == [sys.prefix]


def test_a_second_session_of_a_process_is_the_first(spark: SparkSession) -> None:
    assert open_session(master="local[1]") is spark


def test_a_local_driver_listens_on_loopback_only() -> None:
    settings = session_settings(
        master="local[*]", app_name="kraft", memory=None, progress=False, config=None
    )
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"
    assert 1024 <= int(settings["spark.driver.memory"].removesuffix("m")) <= 4096


def test_a_cluster_master_keeps_its_own_network_configuration() -> None:
    settings = session_settings(
        master="spark://far:7077", app_name="kraft", memory="3g", progress=True, config={"a": "b"}
    )
    assert "spark.driver.host" not in settings
    assert settings["spark.driver.memory"] == "3g"
    assert settings["a"] == "b"


def test_jvm_options_of_the_user_are_appended() -> None:
    settings = session_settings(
        master="local[1]",
        app_name="kraft",
        memory=None,
        progress=False,
        config={"spark.driver.extraJavaOptions": "-Dmine=1"},
    )
    options = settings["spark.driver.extraJavaOptions"].split()
    assert options[-1] == "-Dmine=1"
    assert any(option.startswith("-Dlog4j2.configurationFile=file:") for option in options)


def processes_of(marker: str) -> list[int]:
    """Return the Java processes whose command line contains a marker."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"java" in Path(os.fsdecode(words[0])).name.encode() and any(
            marker.encode() in word for word in words
        ):
            found.append(int(process.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_an_interrupt_leaves_no_jvm_and_a_start_is_silent(spark: SparkSession) -> None:
    marker = f"kraft-test-{os.getpid()}"
    program = f"""
import time
from kraft.spark.session import spark_session
with spark_session(master="local[1]", memory="1g", app_name="{marker}") as spark:
    print(spark.range(3).count(), flush=True)
    time.sleep(600)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "3\n"
    assert len(processes_of(marker)) == 1
    os.killpg(child.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    _, said = child.communicate(timeout=300)
    assert processes_of(marker) == []
    assert said.splitlines()[-1] == "KeyboardInterrupt"
    assert said.startswith("Traceback")  # no output of Spark before it


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_the_jvm_ends_with_a_killed_driver(spark: SparkSession) -> None:
    marker = f"kraft-test-killed-{os.getpid()}"
    program = f"""
import time
from kraft.spark.session import open_session
open_session(master="local[1]", memory="1g", app_name="{marker}")
print("up", flush=True)
time.sleep(600)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    child.kill()
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 300
    while processes_of(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(marker) == []


@pytest.mark.parametrize(
    "master",
    [
        "foo://bar",
        "local[0]",
        "local[x]",
        "local[2",
        "spark://nowhere",
        "spark://a:x",
        "yarn-client",
    ],
)
def test_a_wrong_master_is_rejected_before_java_starts(master: str, spark: SparkSession) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        open_session(master=master)
    assert str(raised.value).startswith(f"{master!r} is not a Spark master: expected local[2]")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[12]", "local[*, 3]", "local-cluster[2, 1, 1024]", "yarn"),
        *("spark://head:7077", "spark://one:7077,[::1]:7078", "k8s://https://10.0.0.1:6443"),
    ],
)
def test_the_masters_that_spark_knows_are_accepted(master: str, spark: SparkSession) -> None:
    assert open_session(master=master) is spark


def test_if_spark_does_not_start_the_error_has_javas_reason(spark: SparkSession) -> None:
    program = """
from kraft.errors import SparkError
from kraft.spark.session import open_session
for given in ({"memory": "plenty"}, {"master": "yarn"}, {"config": {"spark.master": "local[x]"}}):
    try:
        open_session(**given)
    except SparkError as error:
        print(error)
"""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=environment,
    )
    memory, hadoop, master = done.stdout.splitlines()
    assert "Invalid maximum heap size: -Xmxplenty" in memory
    assert hadoop == (
        "Spark did not start: When running with master 'yarn' either HADOOP_CONF_DIR or "
        "YARN_CONF_DIR must be set in the environment."
    )
    assert master == "Spark did not start: Could not parse Master URL: 'local[x]'"
    assert done.stderr == ""


def test_a_missing_pyspark_is_reported_with_the_install_command() -> None:
    program = """
import sys
sys.modules["pyspark"] = None
from kraft.errors import MissingPackageError
from kraft.spark.session import open_session
try:
    open_session()
except MissingPackageError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert "pip install 'kraft[spark]'" in done.stdout
