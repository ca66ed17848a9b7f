"""Child processes that answer lines on their standard output to lines on their standard input."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self


class EndedError(RuntimeError):
    """The process ended before it answered."""


class RejectedError(RuntimeError):
    """The process rejected a request; ``answer`` is what it said, ``error`` the message."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        super().__init__(answer["error"])


class LineProcess:
    """A running process with pipes for lines; a context manager.

    Leaving the block closes the process's input, at which it should end; an error kills it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        errors: IO[Any] | int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Send standard error to ``errors``; it and ``environment`` are inherited by default."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
            encoding="utf-8",
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, *lines: str) -> None:
        self._input.write("".join(f"{line}\n" for line in lines))
        self._input.flush()

    def lines(self) -> Iterator[str]:
        """Yield the printed lines until the process ends its output."""
        for line in self._output:
            yield line.rstrip("\n")

    def read_line(self) -> str:
        """Wait for the next line. Raises EndedError."""
        for line in self.lines():
            return line
        raise EndedError("the process has ended; see its standard error")

    def ask(self, line: str) -> str:
        """Send one line and wait for one line. Raises EndedError."""
        self.send(line)
        return self.read_line()

    def close(self, timeout_s: float = 30) -> None:
        """Close the input and wait for the end; kill a process that does not end in time."""
        # The pipe of a process that has ended is broken.
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.kill()


class JsonRequests:
    """Requests as lines of JSON, ``{"do": VERB, ...}``, answered by ``ok`` or ``error``."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    def __call__(self, verb: str, **fields: Any) -> Any:
        """Return the answer. Raises RejectedError with the process's message, EndedError."""
        answer = json.loads(self._process.ask(json.dumps({"do": verb, **fields})))
        if "error" in answer:
            raise RejectedError(answer)
        return answer["ok"]


def answers(command: Sequence[str], questions: Sequence[str]) -> list[str]:
    """Run a process to its end; return its answers, one line for each question."""
    done = subprocess.run(
        command,
        input="".join(f"{question}\n" for question in questions),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=True,
    )
    found = done.stdout.splitlines()
    assert len(found) == len(questions)
    return found
