"""Run the ``kraft`` command in this process, on metadata recorded from Kafka or generated."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kraft._core.log.log import Log
from kraft.records import Record
from kraft.records.batches import encode_records
from tests.harness.command_line import Ran, run_command

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3"
CONTROLLER = DATA / "controller-101"
BROKER = DATA / "broker-1"
SETS = ("kafka-4.3", "kafka-4.3-transaction", "kafka-3.9",
        "kafka-3.7", "kafka-4.0", "kafka-4.1", "kafka-4.2")  # fmt: skip
METADATA_LOG = "__cluster_metadata-0"
MOMENTS: dict[str, int] = json.loads((DATA / "manifest.json").read_text())["moments"]


Run = Callable[..., Ran]


@pytest.fixture
def kraft() -> Run:
    """Return `run_command`."""
    return run_command


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
