"""``kraft doctor``: check this machine for everything that kraft can use, with advice for the rest.

Each check takes a fraction of a second and leaves no files; only ``--spark`` takes longer, as it
starts a session. Required are Python, numpy, the compiled core and a writable directory. Everything
else is optional; its check says what needs it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated

import typer

from kraft.cli.exit_codes import EPILOG, FAILED
from kraft.cli.options import JsonOption
from kraft.errors import KraftError

app = typer.Typer(add_completion=False, epilog=EPILOG)

_GIB = 1 << 30
_OLDEST_PYTHON = (3, 11)
_OLDEST_NUMPY = 2
#: The ports of brokers and controllers in Kafka's own examples.
_PORTS = (9092, 9093)
_SYNCS = 20
#: Above this median, every commit of a controller is slow.
_SLOW_SYNC_S = 0.02
_TOOL_TIMEOUT_S = 30
#: The purpose of each extra; the package's metadata lists the packages it needs.
_EXTRAS = {
    "arrow": "partitions as Arrow tables",
    "codecs": "logs compressed with snappy, lz4 or zstd",
    "lab": "sweeps and explorations with compiled kernels",
    "report": "reports with plots",
    "spark": "benchmark histories, sweeps and metadata in Spark",
    "uvloop": "a faster event loop for servers",
    "zookeeper": "clusters on ZooKeeper",
}


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class DoctorCheck:
    """The result of one check. ``advice`` says what to do where it is not ok."""

    name: str
    status: Status
    found: str
    purpose: str
    advice: str = ""
    required: bool = False


@app.command(epilog=EPILOG)
def doctor(
    directory: Annotated[
        Path,
        typer.Option("--dir", metavar="DIR", help="Check the disk of this directory."),
    ] = Path(),
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Also start a small Spark session and count to 10 in it."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check what kraft can use on this machine, and print what to do about the rest.

    Exit code 4: a requirement is missing: Python, numpy, the compiled core, a writable directory; with --spark also Java and PySpark.

    [bold]Examples[/bold]

      kraft doctor

      kraft doctor --spark --dir /var/lib/kafka

      kraft doctor --json | jq '.checks[] | select(.status != "ok")'
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.output import Output, progress

    checks: list[DoctorCheck] = []
    groups = _check_groups(directory, spark=spark)
    with progress("checking", len(groups), shown=not as_json) as advance:
        for done, group in enumerate(groups, 1):
            checks += group()
            advance(done)
    failed = [each for each in checks if each.required and each.status is Status.MISSING]
    output = Output(as_json=as_json)
    if as_json:
        output.document({"ready": not failed, "checks": [asdict(each) for each in checks]})
    else:
        output.table(
            "",
            ("check", "status", "found", "purpose"),
            [(each.name, each.status.value, each.found, each.purpose) for each in checks],
        )
        output.fields(
            "What to do",
            [(each.name, each.advice) for each in checks if each.status is not Status.OK],
        )
    if failed:
        names = ", ".join(each.name for each in failed)
        print(f"error: required and missing: {names}", file=sys.stderr)
        raise typer.Exit(FAILED)


def _check_groups(directory: Path, *, spark: bool) -> list[Callable[[], list[DoctorCheck]]]:
    return [
        lambda: [_python(), _numpy(), _core()],
        lambda: [_java(required=spark), _pyspark(required=spark)],
        *([lambda: [_spark_session()]] if spark else []),
        lambda: list(_tools()),
        lambda: list(_ports()),
        lambda: list(_disk(directory)),
        lambda: [_memory()],
        lambda: list(_extras()),
    ]


def _python() -> DoctorCheck:
    is_new = sys.version_info >= _OLDEST_PYTHON
    return DoctorCheck(
        "Python",
        Status.OK if is_new else Status.MISSING,
        f"{platform.python_implementation()} {platform.python_version()}",
        "everything",
        "" if is_new else f"Python {'.'.join(map(str, _OLDEST_PYTHON))} or newer",
        required=True,
    )


def _numpy() -> DoctorCheck:
    purpose, advice = "the columns of metadata", "pip install 'numpy>=2.0'"
    try:
        import numpy as np
    except ImportError as error:
        return DoctorCheck("numpy", Status.MISSING, str(error), purpose, advice, required=True)
    is_new = int(np.__version__.split(".")[0]) >= _OLDEST_NUMPY
    status = Status.OK if is_new else Status.MISSING
    return DoctorCheck(
        "numpy", status, np.__version__, purpose, "" if is_new else advice, required=True
    )


def _core() -> DoctorCheck:
    """Import every module of the core: this fails if it was built for another Python."""
    import kraft._core

    purpose = "logs, records, elections"
    (folder,) = map(Path, kraft._core.__path__)
    names = sorted(
        ".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.pyi")
    )
    failures = []
    for name in names:
        try:
            import_module(f"kraft._core.{name}")
        except ImportError as error:
            failures.append(f"{name} ({error})")
    if failures:
        found = f"{len(failures)} of {len(names)} modules do not import: {failures[0]}"
        advice = "run `make build` in a source tree, or install kraft again"
        return DoctorCheck("compiled core", Status.MISSING, found, purpose, advice, required=True)
    if _is_traced():
        return DoctorCheck(
            "compiled core",
            Status.WARNING,
            f"{len(names)} modules, debug build",
            purpose,
            "run `make build`: a debug build is many times slower",
            required=True,
        )
    return DoctorCheck(
        "compiled core", Status.OK, f"{len(names)} modules, release build", purpose, required=True
    )


def _is_traced() -> bool:
    """Return whether the core is a debug build: only those report calls to a profiler."""
    from kraft._core.decide.placement import default_directory

    files: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: files.append(frame.f_code.co_filename))
    try:
        default_directory(())
    finally:
        sys.setprofile(before)
    return any(file.endswith(".pyx") for file in files)


def _java(*, required: bool) -> DoctorCheck:
    from kraft.errors import MissingJavaError
    from kraft.java import ADVICE, find_java

    purpose = "Spark: benchmark histories, sweeps"
    try:
        java = find_java()
    except MissingJavaError as error:
        found = str(error).split("found: ")[-1].removesuffix(f". {ADVICE}")
        return DoctorCheck("Java", Status.MISSING, found, purpose, ADVICE, required)
    found = f"Java {java.version}, {java.origin}: {java.home}"
    if java.has_launcher:
        found += " (started without the vector module, which it lacks)"
    if java.rejected:
        advice = f"unsuitable: {'; '.join(java.rejected)}"
        return DoctorCheck("Java", Status.WARNING, found, purpose, advice, required)
    return DoctorCheck("Java", Status.OK, found, purpose, required=required)


def _pyspark(*, required: bool) -> DoctorCheck:
    purpose = "`kraft bench`, `kraft regress`, `kraft sweep`"
    advice = "pip install 'kraft[spark]'"
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return DoctorCheck("PySpark", Status.MISSING, "not installed", purpose, advice, required)
    if int(version.split(".")[0]) < 4:
        return DoctorCheck("PySpark", Status.MISSING, version, purpose, advice, required)
    return DoctorCheck("PySpark", Status.OK, version, purpose, required=required)


def _spark_session() -> DoctorCheck:
    purpose = "Java and PySpark together"
    started = time.monotonic()
    try:
        from kraft.spark.session import spark_session

        with spark_session(master="local[1]", memory="1g") as session:
            count = session.range(10).count()
    except KraftError as error:
        advice = "install Java 17 or 21; PySpark 4.3 also runs on Java 25"
        return DoctorCheck(
            "Spark session", Status.MISSING, str(error), purpose, advice, required=True
        )
    took_s = time.monotonic() - started
    assert count == 10, f"Spark counted {count} of 10"
    found = f"counted to 10 in {took_s:.1f} s, including start and stop"
    return DoctorCheck("Spark session", Status.OK, found, purpose, required=True)


def _tools() -> Iterator[DoctorCheck]:
    compiler = os.environ.get("CC", "cc").split()[0]
    yield _tool(
        "C compiler",
        compiler,
        "building the core from source",
        "install one (Debian: apt-get install build-essential)",
    )
    yield _tool(
        "Maven",
        "mvn",
        "tests and benchmarks against Apache Kafka's own classes",
        "install it for `make interop` (Debian: apt-get install maven)",
    )
    yield _tool(
        "valgrind",
        "valgrind",
        "instruction counts of benchmarks, which are free of noise",
        "install it for `make bench-instructions` (Debian: apt-get install valgrind)",
    )


def _tool(name: str, command: str, purpose: str, advice: str) -> DoctorCheck:
    path = shutil.which(command)
    if path is None:
        return DoctorCheck(name, Status.MISSING, f"no {command} on PATH", purpose, advice)
    try:
        version_text = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_TOOL_TIMEOUT_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return DoctorCheck(name, Status.WARNING, f"{path} fails: {error}", purpose, advice)
    # Maven colours its first line even into a pipe.
    lines = re.sub(r"\x1b\[[0-9;]*m", "", version_text).splitlines() or [path]
    return DoctorCheck(name, Status.OK, lines[0].strip(), purpose)


def _ports() -> Iterator[DoctorCheck]:
    purpose = "nodes on this machine: `kraft server start`, `kraft up`"
    try:
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
    except OSError as error:
        advice = "allow programs to listen on 127.0.0.1"
        yield DoctorCheck("loopback", Status.MISSING, str(error), purpose, advice)
        return
    yield DoctorCheck("loopback", Status.OK, "ports of 127.0.0.1 can be bound", purpose)
    taken = [port for port in _PORTS if not _is_free(port)]
    listed = " and ".join(map(str, _PORTS))
    if taken:
        names = " and ".join(map(str, taken))
        yield DoctorCheck(
            "Kafka's ports",
            Status.WARNING,
            f"another process listens on {names}",
            "brokers and controllers with default ports",
            "stop that process, or set other ports in listeners",
        )
    else:
        purpose = "brokers and controllers with default ports"
        yield DoctorCheck("Kafka's ports", Status.OK, f"{listed} are free", purpose)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a connection in TIME_WAIT does not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _disk(directory: Path) -> Iterator[DoctorCheck]:
    purpose = "logs, snapshots, stores of results"
    try:
        latencies_s = _sync_latencies_s(directory)
        free = shutil.disk_usage(directory).free
    except OSError as error:
        advice = "name a writable directory: --dir DIR"
        yield DoctorCheck("disk", Status.MISSING, str(error), purpose, advice, required=True)
        return
    is_ample = free >= _GIB
    yield DoctorCheck(
        "disk",
        Status.OK if is_ample else Status.WARNING,
        f"{free / _GIB:,.1f} GiB free in {directory.absolute()}",
        purpose,
        "" if is_ample else "free some space: logs, snapshots and stores grow",
        required=True,
    )
    median_s, worst_s = latencies_s[len(latencies_s) // 2], latencies_s[-1]
    is_fast = median_s <= _SLOW_SYNC_S
    yield DoctorCheck(
        "fsync",
        Status.OK if is_fast else Status.WARNING,
        f"median {median_s * 1e3:.2f} ms, worst {worst_s * 1e3:.2f} ms of {_SYNCS}",
        "the commit latency of a controller",
        "" if is_fast else "use a faster disk for metadata.log.dir: every commit waits for fsync",
    )


def _sync_latencies_s(directory: Path) -> list[float]:
    """Return how long each write and fsync of 4 KiB took, in seconds, shortest first."""
    latencies_s = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            latencies_s.append(time.perf_counter() - started)
    return sorted(latencies_s)


def _memory() -> DoctorCheck:
    total, available = _memory_sizes()
    is_ample = available >= 2 * _GIB
    advice = "stop other processes: Spark's driver and large clusters need 1 GiB or more"
    return DoctorCheck(
        "memory",
        Status.OK if is_ample else Status.WARNING,
        f"{available / _GIB:.1f} GiB of {total / _GIB:.1f} GiB available, {os.cpu_count()} cores",
        "millions of partitions; Spark's driver",
        "" if is_ample else advice,
    )


def _memory_sizes() -> tuple[int, int]:
    """Return total and available bytes, within the limit of the container if there is one."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = available = page * os.sysconf("SC_PHYS_PAGES")
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        given = re.search(r"^MemAvailable: +(\d+) kB", meminfo.read_text(), re.MULTILINE)
        available = int(given[1]) * 1024 if given else available
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no such group, or "max": no limit
        return total, available
    return min(total, limit), min(available, max(limit - used, 0))


def _extras() -> Iterator[DoctorCheck]:
    """Yield a check for each extra: whether its packages are installed."""
    try:
        wanted = metadata.requires("kraft") or []
    except metadata.PackageNotFoundError:
        yield DoctorCheck(
            "extras",
            Status.WARNING,
            "the package's metadata is missing: it runs from a source tree",
            "; ".join(_EXTRAS.values()),
            "pip install -e '.[spark]'",
        )
        return
    for extra, purpose in _EXTRAS.items():
        packages = [
            found[0]
            for each in wanted
            if f'extra == "{extra}"' in each and (found := re.match(r"[\w.-]+", each))
        ]
        absent = [package for package in packages if not _is_installed(package)]
        name = f"kraft[{extra}]"
        if absent:
            listed = f"not installed: {', '.join(absent)}"
            yield DoctorCheck(name, Status.MISSING, listed, purpose, f"pip install '{name}'")
        else:
            versions = [f"{package} {metadata.version(package)}" for package in packages]
            yield DoctorCheck(name, Status.OK, ", ".join(versions), purpose)


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
