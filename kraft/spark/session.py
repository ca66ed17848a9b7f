"""Open and close Spark sessions: quiet, on loopback, with a JVM that ends with the session.

This module configures a session (memory for a small machine, Java, the workers' interpreter, log
levels), registers the data sources, and ends the JVM. All other modules of this package accept any
``SparkSession``, however it was started.

Spark's start-up messages (log4j profile, incubator module, native libraries) are not printed; if
Spark does not start, the error contains them, without Java's stack.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraft.errors import InvalidConfigError, MissingPackageError, SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

#: The data sources that `register` registers, as ``module:class``.
DATA_SOURCES: tuple[str, ...] = (
    "kraft.spark.fleet_traces:KraftFleetSource",
    "kraft.spark.kraft_metadata:KraftMetadataSource",
    "kraft.spark.kraft_trace:KraftTraceSource",
    "kraft.spark.pytest_benchmark:PytestBenchmarkSource",
)

#: Log level and layout of a session; package data beside this file.
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_GIB = 1 << 30
#: Time for a JVM to end before it is killed.
_JVM_END_S = 20.0
#: Printed by every JVM that Spark starts; no option disables it.
_INCUBATOR_LINE = b"WARNING: Using incubator modules"
_ADDRESS = r"([^:/,\[\s]+|\[[0-9a-fA-F:.]+\]):\d+"
#: The masters of Spark 4. `SparkContext` checks them only after the JVM has started, which takes
#: seconds, and then prints a Java stack.
_MASTER = re.compile(
    r"local(\[(\*|0*[1-9]\d*)(\s*,\s*\d+)?\])?"
    r"|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    rf"|spark://{_ADDRESS}(,{_ADDRESS})*"
    r"|k8s://\S+"
    r"|yarn"
)
#: What precedes the message of an exception in Java's output, and of a line of Spark's log (the
#: pattern in `_LOG_SETTINGS`).
_EXCEPTION = re.compile(
    r'(Exception in thread "[\w-]+" |Caused by: )?[a-z][\w.$]+(Exception|Error): '
)
_LOGGED = re.compile(r"spark: \w+ \w+: ")


def open_session(
    *,
    master: str | None = "local[*]",
    app_name: str = "kraft",
    memory: str | None = None,
    progress: bool = False,
    config: dict[str, str] | None = None,
) -> SparkSession:
    """Return a session with kraft's data sources and settings for a small machine.

    ``master`` None uses Spark's own configuration (spark-submit, spark-defaults). ``memory`` is the
    driver's heap (``"2g"``), by default a quarter of the machine's memory, 1 to 4 GiB. ``progress``
    shows Spark's progress bar of each stage on stderr. ``config`` overrides all settings, except
    that its ``spark.driver.extraJavaOptions`` are appended to those set here.

    A process has one session: if one is active, it is returned unchanged. It ends with
    `close_session` or with the process.

    Raises MissingPackageError without PySpark, MissingJavaError without Java 17,
    InvalidConfigError for a master that Spark does not know, SparkError if Spark does not start;
    the message contains Spark's output.
    """
    if master is not None and not _MASTER.fullmatch(master):
        raise InvalidConfigError(
            f"{master!r} is not a Spark master: expected local[2] (two cores of this machine), "
            "local[*] (all), spark://host:7077, yarn or k8s://https://host:6443"
        )
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
    # The workers use this interpreter, and so have its packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    gateway = SparkContext._gateway
    stderr = None
    if gateway is None:
        gateway, stderr = _launch(conf, on_loopback=_is_local(master))
    try:
        SparkContext(conf=conf, gateway=gateway)
        spark = SparkSession.builder.getOrCreate()
        register(spark)
    except BaseException as error:
        first_line = _first_line(error)  # of a Java exception, it is read from the JVM
        _end_jvm()
        if isinstance(error, KeyboardInterrupt):
            raise
        said = _reason(stderr.output()) if stderr is not None else ""
        raise SparkError(f"Spark did not start: {said or first_line}") from error
    if stderr is not None:
        stderr.opened()
    return spark


def close_session(spark: SparkSession) -> None:
    """Stop a session and wait until its JVM has ended.

    A JVM that started before Python (by spark-submit) is left running.
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
    """Open a session for the length of a block; an interrupt in it also ends the JVM.

    A session that was already active is used and left running.
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
    """Register kraft's data sources with a session: ``spark.read.format(...)``.

    Also enables filter pushdown to Python sources, without which PySpark rejects sources that
    implement it.
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
    """Return Spark's configuration for these arguments."""
    settings = {
        "spark.app.name": app_name,
        "spark.driver.memory": memory or _default_memory(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(progress).lower(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # kraft creates no tables; without this setting, Spark creates a folder in the working
        # directory.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "kraft-warehouse"),
    }
    if master is not None:
        settings["spark.master"] = master
    if _is_local(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # The default of 200 is for clusters; adaptive execution merges small partitions.
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
            "spark.python.daemon.module": "kraft.spark.worker_daemon",
        }
    given = dict(config or {})
    java_options = [
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        "-XX:+UseParallelGC",  # throughput; this JVM has no latency requirement
        given.pop("spark.driver.extraJavaOptions", ""),
    ]
    settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, java_options))
    return settings | given


def _is_local(master: str | None) -> bool:
    return master is not None and master.startswith("local")


def _default_memory() -> str:
    """Return a quarter of the machine's memory; workers and system need the rest."""
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
    text = ""
    with suppress(OSError):  # the JVM that has the text may have ended
        text = str(error).strip().partition("\n")[0]
    return text or type(error).__name__


# ---------------------------------------------------------------------------------------------
# The JVM


class _Stderr:
    """The JVM's stderr, forwarded without the lines of every start.

    Complete lines are held back until `opened`: they are the reason if Spark does not start.
    Otherwise they are noise, except for those of Spark's log (``log4j2.properties``).
    """

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        self._lines: list[bytes] = []
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._pump, name="spark-stderr", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """Close this process's end of the pipe: the JVM has its own, and the pump would wait for
        ever.
        """
        os.close(self.write_end)

    def opened(self) -> None:
        """Forward all further output: the session is up."""
        self._is_open.set()
        for line in self._lines:
            if _LOGGED.match(line.decode(errors="replace")):
                self._forward(line + b"\n")

    def output(self) -> str:
        """Return the output of a JVM that has ended."""
        self._thread.join(_JVM_END_S)
        kept = [line for line in self._lines if not line.startswith(_INCUBATOR_LINE)]
        return b"\n".join(kept).decode(errors="replace")

    def _pump(self) -> None:
        rest = b""
        while chunk := os.read(self._read_end, 1 << 16):
            if self._is_open.is_set():
                self._forward(rest + chunk)
                rest = b""
                continue
            *lines, rest = (rest + chunk).split(b"\n")
            self._lines += lines
        self._lines.append(rest)
        os.close(self._read_end)

    @staticmethod
    def _forward(output: bytes) -> None:
        sys.__stderr__.buffer.write(output)  # type: ignore[union-attr]
        sys.__stderr__.flush()  # type: ignore[union-attr]


def _reason(output: str) -> str:
    """Return why a JVM ended, as one line: its exceptions, else its log, else all it printed."""
    lines = [line.strip() for line in output.splitlines() if not line.startswith("\t")]
    for prefix in (_EXCEPTION, _LOGGED):
        if messages := [prefix.sub("", line) for line in lines if prefix.match(line)]:
            return "; ".join(dict.fromkeys(messages))
    return "; ".join(filter(None, lines))


def _launch(conf: Any, *, on_loopback: bool) -> tuple[Any, _Stderr]:
    """Start the JVM; return its gateway and its stderr."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    from kraft.java import find_java

    there = {"JAVA_HOME": str(find_java().home)}
    if on_loopback:
        # Otherwise Spark warns if the host name resolves to loopback, and queries other interfaces.
        there["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in there}
    os.environ.update(there)
    stderr = _Stderr()
    try:
        launch: Any = launch_gateway  # PySpark's function has no types
        gateway = launch(conf, {"stderr": stderr.write_end})
    except PySparkRuntimeError as error:
        stderr.started()
        raise SparkError(
            f"Spark did not start: {_reason(stderr.output()) or _first_line(error)}"
        ) from None
    else:
        stderr.started()
        atexit.register(_end_jvm)
        return gateway, stderr
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _end_jvm() -> None:
    """End the JVM that this process started, if any, and wait for it."""
    from subprocess import TimeoutExpired

    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.shutdown()
    process.stdin.close()  # the JVM exits at the end of its input
    try:
        process.wait(_JVM_END_S)
    except TimeoutExpired:
        process.kill()
        process.wait()
