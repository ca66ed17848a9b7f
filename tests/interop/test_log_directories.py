"""Kafka's tools on log directories that kraft wrote."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kraft.broker.log.settings import LogSettings
from tests.harness.kafka_jars import Jars
from tests.harness.partition_logs import TOPIC_ID, Logs, produced
from tests.interop.tools import check_indexes, dump_log_class

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of three partitions after a clean shutdown."""
    home = tmp_path_factory.mktemp("logs")
    dice = Random(3)
    logs = Logs(home, settings=LogSettings(segment_bytes=20_000, index_interval_bytes=500))
    for partition in range(3):
        log = logs.manager.create("t", partition, TOPIC_ID)
        sequence = 0
        for number in range(200):
            count = dice.choice((1, 4))
            batch = produced(
                count, size=dice.randrange(300), producer_id=partition + 1, sequence=sequence
            )
            sequence += count
            log.append_as_leader(batch, 1 + number // 50)
        log.truncate_to(log.end_offset - 30)
        log.high_watermark = log.end_offset
        log.raise_start_offset(100)
        log.apply_retention(logs.now_ms)
    logs.manager.close(broker_epoch=9)
    return home


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"t-*/*{suffix}"))


def test_the_dump_tool_reads_every_record(jars: Jars, directory: Path) -> None:
    paths = ",".join(map(str, files(directory, ".log")))
    dumped = jars.run(dump_log_class(jars), "--deep-iteration", "--files", paths).stdout
    assert "isvalid: false" not in dumped
    assert "corrupt" not in dumped.lower()
    for partition in range(3):
        log = Logs(directory).manager.get("t", partition)
        assert log is not None
        assert f"baseOffset: {list(log.core.batches())[-1].base_offset} " in dumped


@pytest.mark.parametrize("partition", range(3))
def test_the_dump_tool_finds_no_fault_in_an_index(
    jars: Jars, directory: Path, partition: int
) -> None:
    check_indexes(jars, directory / f"t-{partition}")


def test_the_dump_tool_reads_the_producers(jars: Jars, directory: Path) -> None:
    paths = ",".join(map(str, files(directory, ".snapshot")))
    dumped = jars.run(dump_log_class(jars), "--files", paths).stdout
    for producer_id in (1, 2, 3):
        assert f"producerId: {producer_id} " in dumped
