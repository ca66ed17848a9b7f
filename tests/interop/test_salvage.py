"""Salvaged directories: Kafka's tools read them, and Kafka's controller starts on one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kraft
from kraft._core.bytes.batch import scan
from kraft.metadata.log_records import read_records
from kraft.metadata.salvage import salvage
from tests.harness.kafka_jars import KAFKA_3, KAFKA_4, kafka
from tests.harness.metadata_files import overwrite
from tests.interop import agreement, keep, tools
from tests.interop.cluster import Cluster, wait_for
from tests.interop.tool_text import dumped_batches
from tests.interop.tools import check_indexes

pytestmark = pytest.mark.interop

DATA = Path(__file__).resolve().parent.parent / "data"
CLUSTER_ID = "Q0vYpQe8T9C3p1dB8mYxXg"


@pytest.mark.parametrize(
    ("node", "release"),
    [("kafka-4.3/broker-1", KAFKA_4), ("kafka-3.9/controller-101", KAFKA_3)],
)
def test_kafkas_tools_read_a_salvaged_directory(node: str, release: str, tmp_path: Path) -> None:
    """The log has a gap at offset 1600, which no valid snapshot covers."""
    jars, damaged = kafka(release), tmp_path / "damaged"
    shutil.copytree(DATA / node, damaged)
    directory = damaged / keep.METADATA_LOG
    newest = max(directory.glob("*.checkpoint"))
    older = sorted(directory.glob("*.checkpoint"))[-2]
    if "3.9" not in node:
        overwrite(newest, 700, b"????")
    segment = max(path for path in directory.glob("*.log") if int(path.stem) <= 1600)
    headers = scan(segment.read_bytes())
    number = int((headers.base_offsets < 1600).sum())
    overwrite(segment, int(headers.positions[number]) + 30, b"?")

    done = salvage(damaged, tmp_path / "sound")

    assert (
        done.end_offset
        == headers.base_offsets[number]
        < kraft.open_metadata(DATA / node).next_offset
    )
    sound = tmp_path / "sound" / keep.METADATA_LOG
    assert older.name in done.snapshots
    files = [Path(path.name) for path in (*sound.glob("*.log"), *sound.glob("*.checkpoint"))]
    for name, said in tools.dump(jars, sound, files).items():
        assert all(batch["is_valid"] for batch in dumped_batches(said))
        content = memoryview((sound / name.name).read_bytes())
        agreement.check_dump(list(read_records(content)), said)
    check_indexes(jars, sound)
    snapshot = max(sound.glob("*.checkpoint"))
    agreement.check_tree(kraft.open_metadata(snapshot), tools.tree(jars, snapshot))


def test_kafkas_controller_starts_on_a_salvaged_directory(tmp_path: Path) -> None:
    """A single controller with a lost quorum-state and one corrupted base offset in its log."""
    damaged = tmp_path / "damaged"
    shutil.copytree(DATA / "kafka-4.3-transaction" / "controller-201", damaged)
    (damaged / keep.METADATA_LOG / "quorum-state").write_bytes(b"{")
    segment = damaged / keep.METADATA_LOG / f"{0:020}.log"
    headers = scan(segment.read_bytes())
    overwrite(segment, int(headers.positions[-3]), (1 << 40).to_bytes(8, "big"))
    cluster = Cluster(kafka(), tmp_path / "cluster", CLUSTER_ID)
    cluster.reserve_controllers(201)
    node = cluster.add_controller(201)
    node.write_properties()

    done = salvage(damaged, node.metadata_directory)

    assert done.end_offset == headers.base_offsets[-3]
    before = kraft.open_metadata(node.metadata_directory)
    try:
        node.start()
        node.wait_until_listening()
        ask = cluster.driver(to_controllers=True)
        quorum = wait_for("a leader", lambda: ask("quorum"))
        assert quorum["leader"] == 201
        cluster.freeze()
    finally:
        cluster.kill()
    after = kraft.open_metadata(node.metadata_directory)
    assert after.epoch > before.epoch
    assert after.next_offset > before.next_offset
    assert after.scram_credentials == before.scram_credentials
    assert after.features == before.features
