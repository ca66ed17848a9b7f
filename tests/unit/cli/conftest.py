"""Run the ``kraft`` command in this process, on metadata recorded from Kafka or generated."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from kraft._core.log.log import Log
from kraft.cli import app
from kraft.records import Record
from kraft.records.batches import encode_records

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3"
CONTROLLER = DATA / "controller-101"
BROKER = DATA / "broker-1"
SETS = ("kafka-4.3", "kafka-4.3-transaction", "kafka-3.9",
        "kafka-3.7", "kafka-4.0", "kafka-4.1", "kafka-4.2")  # fmt: skip
METADATA_LOG = "__cluster_metadata-0"
MOMENTS: dict[str, int] = json.loads((DATA / "manifest.json").read_text())["moments"]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Ran]


@pytest.fixture
def kraft() -> Run:
    """Return a function that runs a command line, as ``kraft("open", path)``.

    It returns the exit code and the output.
    """

    def run(*arguments: object) -> Ran:
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        error = result.exception
        while error is not None:
            # The result refers to the error's frames, whose variables would keep files mapped.
            traceback.clear_frames(error.__traceback__)
            error = error.__context__
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


def write_log(directory: Path, *batches: Sequence[Record]) -> Path:
    """Write a metadata directory with these batches from offset 0 on; return its only segment."""
    metadata_dir = directory / METADATA_LOG
    with Log.open(metadata_dir) as log:
        for records in batches:
            log.append(
                encode_records(
                    records,
                    base_offset=log.log_end_offset,
                    epoch=1,
                    timestamp_ms=1000 + log.log_end_offset,
                ),
                sync=True,
            )
    return metadata_dir / f"{0:020d}.log"
