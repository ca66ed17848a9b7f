"""Spark sessions as kraft wants them: quiet, on loopback, and gone when they are over.

Owns how a session is started (memory for a small machine, Java, the interpreter of the workers,
log levels), which data sources it knows, and that its JVM ends with it. Everything else in this
package takes a ``SparkSession`` of any kind and asks nothing of how it came to be.

Spark's own start-up lines (log4j's profile, the incubator module, native libraries) are kept from
stderr; where Spark does not come up at all, they are what the error tells.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraft.errors import MissingPackageError, SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

#: The data sources that `register` makes known, as ``module:class``. A new one adds its line.
DATA_SOURCES: tuple[str, ...] = (
    "kraft.spark.kraft_metadata:KraftMetadataSource",
    "kraft.spark.kraft_trace:KraftTraceSource",
    "kraft.spark.pytest_benchmark:PytestBenchmarkSource",
)

#: Where a session's log level and layout are said; it lies beside this file as package data.
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_GIB = 1 << 30
#: How long a JVM that was told to end may take before it is killed.
_JVM_END_S = 20.0
#: Printed by every JVM that Spark starts; it has no switch.
_INCUBATOR_LINE = b"WARNING: Using incubator modules"


def open_session(
    *,
    master: str | None = "local[*]",
    app_name: str = "kraft",
    memory: str | None = None,
    progress: bool = False,
    config: dict[str, str] | None = None,
) -> SparkSession:
    """A session with kraft's data sources, started with settings for a small machine.

    ``master`` None leaves the choice to Spark's own configuration (spark-submit, spark-defaults).
    ``memory`` is the driver's heap (``"2g"``); by default a quarter of the machine, 1 to 4 GiB.
    ``progress`` shows Spark's own bar for each stage on stderr. ``config`` wins over all of it,
    except that its ``spark.driver.extraJavaOptions`` are added to those given here.

    There is one session a process: where one is active already it is returned as it is. Ends with
    `close_session`, or with the process.

    Raises MissingPackageError without PySpark, MissingJavaError without Java 17, SparkError where
    Spark does not start; the message holds what Spark said.
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingPackageError(
            f"this needs PySpark: pip install 'kraft[spark]' ({error})"
        ) from None

    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)
        return active

    settings = session_settings(
        master=master, app_name=app_name, memory=memory, progress=progress, config=config
    )
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    # The workers run the interpreter that runs this, with the packages that it has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    gateway = SparkContext._gateway
    if gateway is None:
        gateway = _launch(conf, on_loopback=_is_local(master))
    try:
        SparkContext(conf=conf, gateway=gateway)
        spark = SparkSession.builder.getOrCreate()
        register(spark)
    except BaseException as error:
        _end_jvm()
        if isinstance(error, KeyboardInterrupt):
            raise
        raise SparkError(f"Spark did not start: {_first_line(error)}") from error
    return spark


def close_session(spark: SparkSession) -> None:
    """Stops a session and waits for its JVM's end, so that nothing of it is left behind.

    A JVM that was there before Python (spark-submit's) is left to whoever started it.
    """
    try:
        spark.stop()
    finally:
        _end_jvm()


@contextmanager
def spark_session(
    *,
    master: str | None = "local[*]",
    app_name: str = "kraft",
    memory: str | None = None,
    progress: bool = False,
    config: dict[str, str] | None = None,
) -> Iterator[SparkSession]:
    """`open_session` for the length of a block; Ctrl-C in it ends the JVM, too.

    A session that was active before is used and left running.
    """
    was_active = _has_active_session()
    spark = open_session(
        master=master, app_name=app_name, memory=memory, progress=progress, config=config
    )
    try:
        yield spark
    finally:
        if not was_active:
            close_session(spark)


def register(spark: SparkSession) -> None:
    """Makes kraft's data sources known to any session: ``spark.read.format(...)``.

    They take filters over from Spark, which PySpark refuses unless the session allows it: that is
    set, too.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for name in DATA_SOURCES:
        module, _, source = name.partition(":")
        found: type[DataSource] = getattr(import_module(module), source)
        spark.dataSource.register(found)


def session_settings(
    *,
    master: str | None,
    app_name: str,
    memory: str | None,
    progress: bool,
    config: dict[str, str] | None,
) -> dict[str, str]:
    """Spark's configuration for these wishes."""
    settings = {
        "spark.app.name": app_name,
        "spark.driver.memory": memory or _default_memory(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(progress).lower(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Tables are never made here; without this Spark leaves a folder where the user stands.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "kraft-warehouse"),
    }
    if master is not None:
        settings["spark.master"] = master
    if _is_local(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # The default of 200 is for clusters; adaptive execution merges what is still too small.
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        }
    given = dict(config or {})
    java_options = [
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        "-XX:+UseParallelGC",  # throughput: nobody waits for this JVM's answer within milliseconds
        given.pop("spark.driver.extraJavaOptions", ""),
    ]
    settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, java_options))
    return settings | given


def _is_local(master: str | None) -> bool:
    return master is not None and master.startswith("local")


def _default_memory() -> str:
    """A quarter of the machine, as the workers' and the system's memory come on top of it."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        there = min(there, int(text))
    return f"{min(max(there // 4, _GIB), 4 * _GIB) >> 20}m"


def _has_active_session() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


# ---------------------------------------------------------------------------------------------
# The JVM


class _Stderr:
    """What a JVM writes to stderr, handed on without the lines that every start brings.

    Up to `opened` whole lines are kept back as well: they are the reason where Spark does not
    start, and noise where it does.
    """

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        self._lines: list[bytes] = []
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._pump, name="spark-stderr", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """The JVM has its end of the pipe; ours would keep the pump waiting for ever."""
        os.close(self.write_end)

    def opened(self) -> None:
        """The JVM is up: from here on everything is handed on."""
        self._is_open.set()

    def said(self) -> str:
        """What the JVM said before it ended."""
        self._thread.join(_JVM_END_S)
        kept = [line for line in self._lines if not line.startswith(_INCUBATOR_LINE)]
        return b"\n".join(kept).decode(errors="replace")

    def _pump(self) -> None:
        rest = b""
        while chunk := os.read(self._read_end, 1 << 16):
            if self._is_open.is_set():
                sys.__stderr__.buffer.write(rest + chunk)  # type: ignore[union-attr]
                sys.__stderr__.flush()  # type: ignore[union-attr]
                rest = b""
                continue
            *lines, rest = (rest + chunk).split(b"\n")
            self._lines += lines
        self._lines.append(rest)
        os.close(self._read_end)


def _launch(conf: Any, *, on_loopback: bool) -> Any:
    """Starts the JVM; its gateway."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    from kraft.spark.java import find_java

    there = {"JAVA_HOME": str(find_java().home)}
    if on_loopback:
        # Spark warns of host names that resolve to loopback, and asks other interfaces otherwise.
        there["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in there}
    os.environ.update(there)
    stderr = _Stderr()
    try:
        launch: Any = launch_gateway  # PySpark's is without types
        gateway = launch(conf, {"stderr": stderr.write_end})
    except PySparkRuntimeError as error:
        stderr.started()
        raise SparkError(
            f"Spark did not start: {stderr.said().strip() or _first_line(error)}"
        ) from None
    else:
        stderr.started()
        stderr.opened()
        atexit.register(_end_jvm)
        return gateway
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _end_jvm() -> None:
    """Ends the JVM that this process started, and waits for it; none is no error."""
    from subprocess import TimeoutExpired

    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.shutdown()
    process.stdin.close()  # the end of its input is what the JVM waits for
    try:
        process.wait(_JVM_END_S)
    except TimeoutExpired:
        process.kill()
        process.wait()
