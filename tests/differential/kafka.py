"""Kafka's side: compile the Java programs of this package when stale, and exchange lines with
them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.interop.kafka_jars import CACHE, SMALL_JVM, Jars, javac, kafka

_SOURCES = Path(__file__).resolve().parent / "java"
PACKAGE = "org.apache.kafka.controller."
# Kafka's managers log their work; the log is dropped.
_QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)
# A long run is worth the better compiler.
_JVM = tuple(option for option in SMALL_JVM if "TieredStopAtLevel" not in option)


def compiled(jars: Jars) -> Path:
    """Compile ``java/*.java`` together; return the directory of the classes."""
    output = CACHE / f"differential-{jars.version}"
    output.mkdir(parents=True, exist_ok=True)
    stamp = output / "compiled"
    sources = sorted(_SOURCES.glob("*.java"))
    newest = max(source.stat().st_mtime for source in sources)
    if not stamp.exists() or stamp.stat().st_mtime < newest:
        options = ("-nowarn", "-Xlint:none", "-cp", jars.classpath(), "-d", str(output))
        subprocess.run([str(javac()), *options, *map(str, sources)], check=True)
        stamp.touch()
    return output


class Kafka:
    """A warm process of the program ``main`` of ``classes``; a context manager.

    Lines go in and come out in order. ``ask`` returns a future at once, so that this side can work
    meanwhile; its ``result()`` is the list of answers.
    """

    def __init__(self, main: str = PACKAGE + "Managers", classes: Path | None = None) -> None:
        jars = kafka()
        classes = compiled(jars) if classes is None else classes
        command = jars.command(main, classes=classes, jvm=(*_JVM, *_QUIET))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        # One thread writes and another reads; otherwise both pipes could be full at once.
        self._writer = ThreadPoolExecutor(1)
        self._reader = ThreadPoolExecutor(1)

    def ask(self, lines: list[str]) -> Future[list[str]]:
        """Send lines; the future has one answer per line."""
        self._writer.submit(self._write, "".join(line + "\n" for line in lines))
        return self._reader.submit(self._read, len(lines))

    def ask_json(self, questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send JSON objects and wait for the answers."""
        lines = [json.dumps(question) for question in questions]
        return [json.loads(answer) for answer in self.ask(lines).result()]

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def _read(self, count: int) -> list[str]:
        assert self._process.stdout is not None
        answers = []
        for _ in range(count):
            answer = self._process.stdout.readline()
            if not answer:
                raise RuntimeError("Kafka's side has ended; see what it said above")
            answers.append(answer)
        return answers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        if error is not None:
            self._process.kill()
        self._writer.shutdown()
        self._reader.shutdown()
        self._process.stdin.close()
        self._process.wait(timeout=60)
