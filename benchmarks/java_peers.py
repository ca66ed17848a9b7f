"""Compile and run the Java peers of `peers/`: the same work on Apache Kafka's released jars.

Maven copies the jars to `peers/target/lib` once; `javac` compiles the classes if they are older
than their source. Every program runs in its own JVM, so that compilation and garbage collection of
one do not affect another; it prints one line of JSON per measured work and runs at most once per
session.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.harness.kafka_jars import compile_all, fetch, java, javac

MODULE = Path(__file__).resolve().parent / "peers"
LIBRARIES = MODULE / "target" / "lib"
CLASSES = MODULE / "target" / "classes"
TIMEOUT_S = 900

Line = dict[str, Any]


def build() -> None:
    """Fetch jars and compile classes if needed; `MissingToolError` names the missing tool."""
    javac()
    pom = MODULE / "pom.xml"
    if not LIBRARIES.is_dir() or LIBRARIES.stat().st_mtime < pom.stat().st_mtime:
        fetch(pom, LIBRARIES)
    sources = sorted((MODULE / "src" / "main" / "java").rglob("*.java"))
    compile_all(sources, f"{LIBRARIES}/*", CLASSES)


def command(*arguments: str, jvm: tuple[str, ...]) -> list[str]:
    """Return the argument vector that runs a program of `Peers.java`."""
    path = f"{CLASSES}{os.pathsep}{LIBRARIES}/*"
    return [str(java()), *jvm, "-cp", path, "kraft.peers.Peers", *arguments]


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
        jvm = (f"-Xms{heap}", f"-Xmx{heap}", "-XX:+AlwaysPreTouch", "-XX:+UseParallelGC")
        result = subprocess.run(
            command(*given, jvm=jvm),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(given)}:\n{result.stdout}\n{result.stderr}")
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        for line in lines:
            line["heap"] = heap
        return {line["work"]: line for line in lines}
