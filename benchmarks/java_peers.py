"""Compile and run the Java peers of `peers/`: the same work on Apache Kafka's released jars.

Maven copies the jars to `peers/target/lib` once; `javac` compiles the classes if they are older
than their source. Every program runs in its own JVM, so that compilation and garbage collection of
one do not affect another; it prints one line of JSON per measured work and runs at most once per
session.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.interop.kafka_jars import MissingToolError, java, javac

MODULE = Path(__file__).resolve().parent / "peers"
LIBRARIES = MODULE / "target" / "lib"
CLASSES = MODULE / "target" / "classes"
TIMEOUT_S = 900

Line = dict[str, Any]


def build() -> None:
    """Fetch jars and compile classes if needed; `MissingToolError` names the missing tool."""
    compiler = javac()
    if not LIBRARIES.is_dir() or LIBRARIES.stat().st_mtime < (MODULE / "pom.xml").stat().st_mtime:
        _fetch_jars()
    sources = sorted((MODULE / "src" / "main" / "java").rglob("*.java"))
    newest = max(source.stat().st_mtime for source in sources)
    stamp = CLASSES / "kraft" / "peers" / "Peers.class"
    if stamp.exists() and stamp.stat().st_mtime >= newest:
        return
    shutil.rmtree(CLASSES, ignore_errors=True)
    CLASSES.mkdir(parents=True)
    options = ("-nowarn", "-Xlint:none", "-cp", f"{LIBRARIES}/*", "-d", str(CLASSES))
    subprocess.run([str(compiler), *options, *map(str, sources)], check=True)


def _fetch_jars() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingToolError(
            "Kafka's jars are not all in benchmarks/peers/target/lib yet, and fetching them needs "
            "Maven: no `mvn` on PATH (Debian: apt-get install maven)."
        )
    partial = LIBRARIES.with_name("lib.partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [
        *(maven, "-q", "-B", "-f", str(MODULE / "pom.xml"), "dependency:copy-dependencies"),
        *("-DincludeScope=runtime", f"-DoutputDirectory={partial}"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise MissingToolError(
            "Maven could not fetch Kafka's jars (is Maven Central, or a mirror of it, "
            f"reachable?):\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
        )
    shutil.rmtree(LIBRARIES, ignore_errors=True)
    partial.rename(LIBRARIES)
    LIBRARIES.touch()


def heap_gib() -> int:
    """Return a sufficient heap for the peer: two fifths of the memory, from 2 to 10 GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(2, min(10, int(memory * 0.4 / 2**30)))


class Peers:
    """Runs the programs of one session and keeps every line that they print."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._runs: dict[tuple[str, ...], dict[str, Line]] = {}

    def run(self, program: str, **arguments: object) -> dict[str, Line]:
        """Return the lines of one program by work; `Peers.java` lists the programs."""
        given = (program, *(f"{name}={value}" for name, value in sorted(arguments.items())))
        if given not in self._runs:
            build()
            self._runs[given] = self._launch(given)
            self.lines += self._runs[given].values()
        return self._runs[given]

    def _launch(self, given: tuple[str, ...]) -> dict[str, Line]:
        heap = f"{heap_gib()}g"
        command = [
            *(
                str(java()),
                f"-Xms{heap}",
                f"-Xmx{heap}",
                "-XX:+AlwaysPreTouch",
                "-XX:+UseParallelGC",
            ),
            *("-cp", f"{CLASSES}{os.pathsep}{LIBRARIES}/*", "kraft.peers.Peers", *given),
        ]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(given)}:\n{result.stdout}\n{result.stderr}")
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        for line in lines:
            line["heap"] = heap
        return {line["work"]: line for line in lines}
