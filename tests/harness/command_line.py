"""The ``kraft`` command in this process; `tests.harness.commands` runs it as a process."""

from __future__ import annotations

import json
import traceback
from typing import Any, NamedTuple

from typer.testing import CliRunner

from kraft.cli.commands import app


class Ran(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run_command(*arguments: object) -> Ran:
    """Run a command line, as ``run_command("open", path)``. Raises what the command raises."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    error = result.exception
    while error is not None:
        # The result refers to the error's frames, whose variables would keep files mapped.
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)
