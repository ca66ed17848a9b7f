"""Kafka's side: compile the Java programs of this package when stale, and exchange lines with
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from tests.harness.kafka_jars import CACHE, QUIET, SMALL_JVM, Jars, compile_all, kafka
from tests.harness.line_process import LineProcess

_SOURCES = Path(__file__).resolve().parent / "java"
PACKAGE = "org.apache.kafka.controller."
# A long run is worth the better compiler.
_JVM = tuple(option for option in SMALL_JVM if "TieredStopAtLevel" not in option)


class HasCase(Protocol):
    """A generated case, and whatever else its generator keeps."""

    case: list[dict[str, Any]]


T = TypeVar("T", bound=HasCase)


def compiled(jars: Jars) -> Path:
    """Compile ``java/*.java`` together; return the directory of the classes."""
    output = CACHE / f"differential-{jars.version}"
    compile_all(sorted(_SOURCES.glob("*.java")), jars.classpath(), output)
    return output


class Kafka:
    """A warm process of the program ``main`` of ``classes``; a context manager.

    Lines go in and come out in order. ``ask`` returns a future at once, so that this side can work
    meanwhile; its ``result()`` is the list of answers.
    """

    def __init__(self, main: str = PACKAGE + "Managers", classes: Path | None = None) -> None:
        jars = kafka()
        classes = compiled(jars) if classes is None else classes
        # Kafka's managers log their work; the log is dropped.
        self._process = LineProcess(jars.command(main, classes=classes, jvm=(*_JVM, *QUIET)))
        # One thread writes and another reads; otherwise both pipes could be full at once.
        self._writer = ThreadPoolExecutor(1)
        self._reader = ThreadPoolExecutor(1)

    def ask(self, lines: list[str]) -> Future[list[str]]:
        """Send lines; the future has one answer per line."""
        self._writer.submit(self._process.send, *lines)
        return self._reader.submit(self._read, len(lines))

    def ask_json(self, questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send JSON objects and wait for the answers."""
        lines = [json.dumps(question) for question in questions]
        return [json.loads(answer) for answer in self.ask(lines).result()]

    def answered(self, cases: Iterable[T]) -> Iterator[tuple[T, list[Any]]]:
        """Ask each case's JSON objects; yield the case with the answers.

        The next case is made while Kafka works on the last.
        """
        waiting = None
        for made in cases:
            asked = self.ask([json.dumps(step) for step in made.case])
            if waiting is not None:
                before, answers = waiting
                yield before, [json.loads(answer) for answer in answers.result()]
            waiting = made, asked
        if waiting is not None:
            before, answers = waiting
            yield before, [json.loads(answer) for answer in answers.result()]

    def _read(self, count: int) -> list[str]:
        return [self._process.read_line() for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Ends what the threads wait for.
        if error is not None:
            self._process.kill()
        self._writer.shutdown()
        self._reader.shutdown()
        self._process.close(timeout_s=60)
