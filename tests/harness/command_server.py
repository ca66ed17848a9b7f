"""Run many ``kraft`` commands without a new interpreter for each: most of their time is imports.

A process that has imported the modules of the commands forks for each one. The fork is the command:
it has its own output, working directory and exit code, and ends as an interpreter does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module

from kraft.cli import main
from tests.harness.line_process import LineProcess

#: What most commands import once they run; each other module is imported by the fork.
_IMPORTED = (
    *("kraft.cli.commands", "kraft.admin.client", "kraft.preflight.gathering"),
    *("typer.completion", "typer.rich_utils", "pydantic"),
)


class CommandServer:
    """One server for each thread that runs commands; ends with its thread's process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._servers = threading.local()

    def run(self, arguments: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Return the exit code and the output of a command.

        One that takes longer than the timeout ends by SIGALRM.
        """
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            asked = {
                "arguments": list(arguments),
                "directory": os.getcwd(),
                "timeout_s": timeout_s,
                "files": [f"/proc/{os.getpid()}/fd/{each.fileno()}" for each in (output, errors)],
            }
            code = int(self._server().ask(json.dumps(asked)))
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(arguments, code, output.read(), errors.read())

    def _server(self) -> LineProcess:
        server: LineProcess | None = getattr(self._servers, "process", None)
        if server is None or not server.is_running:
            program = [sys.executable, "-m", "tests.harness.command_server"]
            server = self._servers.process = LineProcess(program, environment=self._environment)
        return server


def _serve() -> bool:
    """Fork for each request until the input ends; return whether this process is a command."""
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_REAL, asked["timeout_s"])
            for number, file in enumerate(asked["files"], start=1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(asked["directory"])
            sys.argv = ["kraft", *asked["arguments"]]
            return True
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return False


if __name__ == "__main__":
    for name in _IMPORTED:
        with suppress(ImportError):
            import_module(name)
    if _serve():
        main()
