"""Kafka's dump tool on the directories of replicated brokers that clients have produced to."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kraft.broker.replication.messages import PartitionId
from kraft.errors import NONE
from tests.harness.data_brokers import DataCluster, until
from tests.harness.data_requests import batch, produce, run
from tests.harness.kafka_jars import Jars
from tests.interop.tools import check_indexes, dump_log_class

pytestmark = pytest.mark.interop

BATCHES = 60
#: Enough that the index of the last segment has entries.
LATER_BATCHES = 5


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of two brokers: all codecs, small segments, a truncated follower."""
    home = tmp_path_factory.mktemp("brokers")
    dice = Random(5)

    async def scenario(cluster: DataCluster) -> None:
        configs = {"internal.segment.bytes": "4000", "index.interval.bytes": "200"}
        id = PartitionId(bytes(await cluster.create("t", [1, 2], configs=configs)), 0)
        sequence = 0
        for number in range(BATCHES):
            values = [dice.randbytes(10) * dice.randrange(40) for _ in range(dice.choice((1, 5)))]
            records = batch(
                *values,
                codec=number % 5,
                producer_id=7,
                producer_epoch=0,
                base_sequence=sequence,
            )
            sequence += len(values)
            answer = await produce(cluster[1], "t", records, version=12)
            assert (answer.error_code, answer.error_message) == (NONE, None)
        # The leader has a batch alone, and has to drop it.
        cluster.links.cut.add((2, 1))
        await produce(cluster[1], "t", acks=1, version=12)
        cluster.fence(1)
        cluster.links.cut.clear()
        cluster.beat(1)
        for number in range(LATER_BATCHES):
            assert (await produce(cluster[2], "t", version=12)).base_offset == sequence + number
        end = sequence + LATER_BATCHES
        await until(lambda: cluster[1].partition(id).high_watermark == end)
        for broker in cluster.brokers.values():
            broker.stop()

    run(home, scenario, 1, 2)
    return home


@pytest.mark.parametrize("broker", [1, 2])
def test_the_dump_tool_reads_what_was_produced(jars: Jars, brokers: Path, broker: int) -> None:
    directory = brokers / f"broker-{broker}" / "0" / "t-0"
    files = sorted(directory.glob("*.log"))
    assert len(files) > 1
    dumped = jars.run(
        dump_log_class(jars), "--deep-iteration", "--files", ",".join(map(str, files))
    ).stdout
    assert "isvalid: false" not in dumped
    assert dumped.count("baseOffset: ") == BATCHES + LATER_BATCHES
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec} " in dumped
    check_indexes(jars, directory)


def test_both_replicas_have_the_same_bytes(brokers: Path) -> None:
    contents = [
        b"".join(
            path.read_bytes()
            for path in sorted((brokers / f"broker-{broker}" / "0" / "t-0").glob("*.log"))
        )
        for broker in (1, 2)
    ]
    assert contents[0] == contents[1] != b""
