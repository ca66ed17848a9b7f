"""Kafka's tools read this package's files without complaints, and show the same state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kraft
from kraft._core.log.log import Log
from kraft.controller.brokers.broker_lifecycle import fence_broker
from kraft.metadata.log_records import read_records
from kraft.records import Config, FeatureLevel, NoOp, ProducerIds
from tests.harness.kafka_jars import KAFKA_3, KAFKA_4, Jars, kafka
from tests.harness.metadata_files import read_text
from tests.interop import agreement, keep, tools
from tests.interop.tool_text import dumped_batches, tree
from tests.interop.tools import check_indexes

pytestmark = pytest.mark.interop

DATA = Path(__file__).resolve().parent.parent / "data"
SETS = [pytest.param("kafka-4.3", KAFKA_4, id="4.3"), pytest.param("kafka-3.9", KAFKA_3, id="3.9")]
WHOLE_LOG = f"{keep.METADATA_LOG}/{0:020}.log"


def dumped(jars: Jars, path: Path) -> str:
    """Return the output of kafka-dump-log for one file; raise if it reports an error."""
    (said,) = tools.dump(jars, path.parent, [Path(path.name)]).values()
    return said


def check_dumped(jars: Jars, path: Path) -> None:
    said = dumped(jars, path)
    batches = dumped_batches(said)
    assert batches
    assert all(batch["is_valid"] for batch in batches)
    agreement.check_dump(list(read_records(memoryview(path.read_bytes()))), said)


def without_place(said: str) -> dict[str, Any]:
    """Return the shell's tree without its source, and without the parts that 3.9 cannot show."""
    image: dict[str, Any] = tree(said)["image"]
    return {
        part: held for part, held in image.items() if part not in ("provenance", "clientQuotas")
    }


@pytest.mark.parametrize(("name", "release"), SETS)
def test_kafkas_tools_read_a_snapshot_of_a_real_cluster(
    name: str, release: str, tmp_path: Path
) -> None:
    jars, node = kafka(release), DATA / name / "broker-1"
    metadata = kraft.open_metadata(node)

    path = metadata.write_snapshot(tmp_path)

    check_dumped(jars, path)
    said = tools.tree(jars, path)
    agreement.check_tree(metadata, said)
    # Kafka's tools show the same for Kafka's own log.
    of_kafka = read_text(DATA / name / "text" / "broker-1" / f"{WHOLE_LOG}.tree.txt")
    assert without_place(said) == without_place(of_kafka)


@pytest.mark.parametrize(("name", "release"), SETS)
def test_kafkas_tools_read_a_log_that_kraft_continued(
    name: str, release: str, tmp_path: Path
) -> None:
    jars, node = kafka(release), DATA / name / "broker-1"
    directory = tmp_path / keep.METADATA_LOG
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes((node / WHOLE_LOG).read_bytes())
    metadata = kraft.open_metadata(tmp_path)

    metadata.apply(fence_broker(metadata.cluster, 2).records)
    metadata.apply(
        [
            Config(2, "orders", "retention.ms", "1"),
            Config(2, "payments", "min.insync.replicas", None),
            ProducerIds(1, metadata.brokers[1].epoch, metadata.next_producer_id + 1000),
            FeatureLevel("group.version", 0),
            NoOp(),
        ]
    )
    with Log.open(directory) as log:
        metadata.append(log)

    check_dumped(jars, directory / f"{0:020}.log")
    said = tools.tree(jars, directory / f"{0:020}.log")
    agreement.check_tree(metadata, said)
    assert metadata.brokers[2].fenced


def test_kafkas_tools_read_a_log_of_several_segments_after_a_snapshot(tmp_path: Path) -> None:
    jars = kafka(KAFKA_4)
    metadata = kraft.open_metadata(DATA / "kafka-4.3" / "controller-103")
    directory = tmp_path / keep.METADATA_LOG
    with Log.open(directory, segment_bytes=16000) as log:
        log.truncate_fully_and_start_at(metadata.next_offset)
        snapshot = metadata.write_snapshot(directory)
        for number in range(200):
            names = ("retention.ms", "retention.bytes", "segment.ms", "segment.bytes")
            metadata.apply([Config(2, "orders", name, str(number)) for name in names])
            metadata.append(log)
    segments = sorted(directory.glob("*.log"))
    assert len(segments) >= 3

    for path in (snapshot, *segments):
        check_dumped(jars, path)
    check_indexes(jars, directory)
    assert kraft.open_metadata(tmp_path).configs.topic("orders")["retention.ms"] == "199"
