"""Resolve Apache Kafka's released jars by Maven, and run their classes by Java.

The jars of a release are resolved once, by Maven, from `pom.xml`, into `.interop/<set>` in the
project (git-ignored); later runs need no network and no Maven. The few Java classes of
`tests/interop/java` are compiled against them when their source is newer.

`MissingToolError` names a missing tool and the remedy.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
INTEROP = PROJECT / "tests" / "interop"
CACHE = PROJECT / ".interop"

KAFKA_4 = "4.3.1"  # the pinned release
KAFKA_3 = "3.9.2"  # the second set of real metadata
KAFKA_1 = "1.1.1"  # brokers under the controller of 2018
KAFKA_0_8 = "0.8.2.2"  # brokers under that of 0.8
#: The Scala of brokers that need ZooKeeper, which their artifact's name has.
SCALA_OF = {KAFKA_0_8: "2.10", KAFKA_1: "2.12"}
SCHEMAS_ONLY = "4.4.0"  # no tools at Maven Central; its schemas are compared, its controller runs
#: The releases in mixed quorums that CI runs: static voters and no pre-vote, dynamic voters and
#: pre-vote. The others are in `make interop-matrix`.
MIXED_IN_CI = ("3.7.2", "4.1.1")
MIXED_MATRIX = ("3.7.2", "3.9.2", "4.0.2", "4.1.1", "4.2.0", "4.3.1", "4.4.0")


def mixed_releases() -> tuple[str, ...]:
    """Return the releases in INTEROP_RELEASES (separated by spaces, or `all`); else those of CI."""
    asked = os.environ.get("INTEROP_RELEASES", "")
    return MIXED_MATRIX if asked == "all" else tuple(asked.split()) or MIXED_IN_CI


OLDEST_JAVA = 17

# The tests share two cores with other processes: a small heap, the serial collector, no C2.
SMALL_JVM = (
    "-Xms48m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
)
#: Drops the log of Kafka's classes.
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)


class MissingToolError(RuntimeError):
    """Java or Maven is missing, or Kafka's jars cannot be resolved."""


def java() -> Path:
    """Return the `java` of JAVA_HOME if set, else the one on PATH; it must be 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise MissingToolError(
            f"Java {OLDEST_JAVA} or newer is needed to run Apache Kafka: no `java` on PATH and no "
            "JAVA_HOME. Install a JDK (Debian: apt-get install openjdk-17-jdk-headless)."
        )
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise MissingToolError(
            f"Java {OLDEST_JAVA} or newer is needed to run Apache Kafka; {found} says: "
            f"{said.splitlines()[0] if said else 'nothing'}"
        )
    return Path(found)


def javac() -> Path:
    """Return the compiler that belongs to `java()`."""
    found = java().resolve().with_name("javac")
    if not found.exists():
        raise MissingToolError(
            f"A JDK is needed, not only a runtime: {found.parent} has no javac. "
            "Install a JDK (Debian: apt-get install openjdk-17-jdk-headless)."
        )
    return found


@contextmanager
def cache_lock() -> Iterator[None]:
    """Let one process at a time fill `CACHE`: all workers of pytest-xdist need the same jars."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compile_all(sources: list[Path], classpath: str, output: Path) -> None:
    """Compile the files together into ``output``, unless its classes are newer."""
    stamp = output / "compiled"
    newest = max(source.stat().st_mtime for source in sources)
    with cache_lock():
        if not stamp.exists() or stamp.stat().st_mtime < newest:
            output.mkdir(parents=True, exist_ok=True)
            _compile(sources, classpath, output)
            stamp.touch()


def _compile(sources: list[Path], classpath: str, output: Path) -> None:
    options = ("-nowarn", "-Xlint:none", "-cp", classpath, "-d", str(output))
    subprocess.run([str(javac()), *options, *map(str, sources)], check=True)


@dataclass(frozen=True)
class Jars:
    """The resolved jars of one Kafka release."""

    version: str
    directory: Path

    def classpath(self, *more: Path) -> str:
        """Return the class path: the directories of `more`, then all jars by a wildcard."""
        return os.pathsep.join([*map(str, more), str(self.directory / "*")])

    def compiled(self, *sources: str) -> Path:
        """Compile `tests/interop/java/<source>.java` if stale; return the directory of classes."""
        output = CACHE / f"classes-{self.version}"
        with cache_lock():
            output.mkdir(exist_ok=True)
            stale = [
                source
                for source in (INTEROP / "java" / f"{name}.java" for name in sources)
                if not (made := output / f"{source.stem}.class").exists()
                or made.stat().st_mtime < source.stat().st_mtime
            ]
            if stale:
                _compile(stale, self.classpath(output), output)
        return output

    def command(
        self,
        main: str,
        *arguments: str | Path,
        classes: Path | None = None,
        jvm: tuple[str, ...] = SMALL_JVM,
    ) -> list[str]:
        """Return the argument vector that runs the class `main` of this release."""
        path = self.classpath(*([classes] if classes else []))
        return [str(java()), *jvm, "-cp", path, main, *map(str, arguments)]

    def oracle(self, name: str, package: str = "") -> list[str]:
        """Return the argument vector that runs `tests/interop/java/<name>.java` without logging."""
        return self.command(package + name, classes=self.compiled(name), jvm=(*SMALL_JVM, *QUIET))

    def run(
        self,
        main: str,
        *arguments: str | Path,
        classes: Path | None = None,
        cwd: Path | None = None,
        jvm: tuple[str, ...] = SMALL_JVM,
        timeout_s: float = 120,
        check: bool = True,
        log_level: str = "off",
    ) -> subprocess.CompletedProcess[str]:
        """Run the class until it ends. With `check`, a failed run raises an error with its output.

        Log messages of `log_level` and above go to standard error.
        """
        quiet = (f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",)
        result = subprocess.run(
            self.command(main, *arguments, classes=classes, jvm=jvm + quiet),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=cwd,
            check=False,
        )
        if check and result.returncode != 0:
            raise RuntimeError(
                f"{main} {' '.join(map(str, arguments))} -> {result.returncode}\n"
                f"{result.stdout}\n{result.stderr}"
            )
        return result


def kafka(version: str = KAFKA_4) -> Jars:
    """Return brokers, controllers and tools (none for 4.4.0) of `version`, fetched on first use."""
    profile = "core" if version == SCHEMAS_ONLY else "everything"
    return _resolve(version, f"kafka-{version}", profile)


def zookeeper_era(version: str = KAFKA_1) -> Jars:
    """Return brokers of a release that needs ZooKeeper, fetched on first use."""
    name = f"zookeeper-era-{version}"
    return _resolve(version, name, "zookeeper-era", f"-Dkafka.scala={SCALA_OF[version]}")


def applications(version: str = KAFKA_4) -> Jars:
    """Return Kafka Streams and Connect of `version`, fetched on first use."""
    return _resolve(version, f"applications-{version}", "applications")


def schemas(version: str = SCHEMAS_ONLY) -> Jars:
    """Return the jars of `version` that the schema check needs, fetched on first use."""
    return _resolve(version, f"schemas-{version}", "schemas")


def _resolve(version: str, name: str, profile: str, *more: str) -> Jars:
    directory = CACHE / name
    with cache_lock():
        if not directory.is_dir():
            options = (f"-P{profile}", f"-Dkafka.version={version}", *more)
            fetch(INTEROP / "pom.xml", directory, *options)
    return Jars(version, directory)


def fetch_if_changed(pom: Path, directory: Path) -> None:
    """Fetch the jars of a Maven project, unless ``directory`` holds those of the same file."""
    fetched = directory / "pom.xml"
    with cache_lock():
        if not fetched.exists() or fetched.read_bytes() != pom.read_bytes():
            fetch(pom, directory)
            shutil.copyfile(pom, fetched)


def fetch(pom: Path, directory: Path, *options: str) -> None:
    """Replace ``directory`` by the jars of a Maven project. Raises MissingToolError."""
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingToolError(
            f"The jars of Apache Kafka are not in {directory.relative_to(PROJECT)} yet, and "
            "fetching them needs Maven: no `mvn` on PATH (Debian: apt-get install maven)."
        )
    # Maven fills a temporary directory, renamed when complete: a failed run leaves nothing.
    partial = directory.with_name(f"{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    arguments = [
        *("-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"),
        *(*options, f"-DoutputDirectory={partial}"),
    ]
    # Offline first: jars in Maven's cache need no network.
    for attempt in (["-o"], []):
        result = subprocess.run(
            [maven, *attempt, *arguments], capture_output=True, text=True, check=False
        )
        if result.returncode == 0:
            shutil.rmtree(directory, ignore_errors=True)
            partial.rename(directory)
            return
    raise MissingToolError(
        f"Maven could not fetch the jars for {directory.relative_to(PROJECT)} (is Maven Central, "
        f"or a mirror of it, reachable?):\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
    )
