"""The package reads every recording in `tests/data` with the same result as Kafka's tools.

Needs no Java: the tools' output is kept with the recordings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft
from kraft.metadata.log_records import read_records
from kraft.records import METADATA_VERSION, FeatureLevel, MetadataVersion
from kraft.records.values import decode_value, encode_value
from tests.harness.metadata_files import read_text, record_values
from tests.interop import agreement
from tests.interop.end_agreement import check_end
from tests.reference.kafka_schemas import kept

DATA = Path(__file__).resolve().parent.parent / "data"
SETS = sorted(path.parent for path in DATA.glob("kafka-*/manifest.json"))
NODES = sorted(path.parent for path in DATA.glob("kafka-*/*/meta.properties"))
FILES = sorted(
    path for node in NODES for path in node.rglob("*") if path.suffix in (".log", ".checkpoint")
)
TREES = sorted(DATA.glob("kafka-*/text/*/*/*.tree.txt*"))
SMALL_SETS = ("3.7", "4.0", "4.1", "4.2")
FILTERS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)


def name_of(path: Path) -> str:
    return "-".join(path.relative_to(DATA).parts)


def moments() -> Iterator[tuple[Path, str, int]]:
    """Return each node that has the whole log, with each moment of its recording."""
    for one in SETS:
        for moment, end in json.loads((one / "manifest.json").read_text())["moments"].items():
            for node in NODES:
                if node.parent == one and (node / "__cluster_metadata-0" / f"{0:020}.log").exists():
                    yield node, moment, end


MOMENTS = [pytest.param(*one, id=f"{name_of(one[0])}-{one[1]}") for one in moments()]


def test_all_recordings_exist() -> None:
    names = ["3.7", "3.9", "4.0", "4.1", "4.2", "4.3", "4.3-transaction"]
    assert [one.name for one in SETS] == [f"kafka-{name}" for name in names]
    assert len(MOMENTS) == 10 + len(SMALL_SETS) * 4
    assert len(TREES) == 8 + len(SMALL_SETS) * 4
    for name in SMALL_SETS:
        files = [path for path in (DATA / f"kafka-{name}").rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 1_000_000
        release = json.loads((DATA / f"kafka-{name}" / "manifest.json").read_text())["kafka"]
        assert release.startswith(f"{name}.")


@pytest.mark.parametrize("name", SMALL_SETS)
def test_a_small_set_begins_at_one_level_and_ends_at_the_newest_of_its_release(name: str) -> None:
    node = DATA / f"kafka-{name}" / "controller-101"
    log = node / "__cluster_metadata-0" / f"{0:020}.log"
    levels = [
        record.feature_level
        for one in read_records(memoryview(log.read_bytes()))
        if isinstance(record := one.record, FeatureLevel) and record.name == METADATA_VERSION
    ]
    newest = MetadataVersion.from_text(name)
    assert len(levels) == 2
    assert levels[0] < levels[1] == newest
    metadata = kraft.open_metadata(node)
    assert metadata.quorum.kraft_version == (0 if name == "3.7" else 1)
    # A broker registers the newest level that its release supports.
    assert {one.features[METADATA_VERSION].max for one in metadata.brokers.values()} == {newest}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_each_record_is_read_as_kafka_dump_log_prints_it(path: Path) -> None:
    one = path.relative_to(DATA)
    text = read_text(DATA / one.parts[0] / "text" / Path(*one.parts[1:-1]) / f"{path.name}.txt")
    agreement.check_dump(list(read_records(memoryview(path.read_bytes()))), text)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_each_record_is_written_back_as_the_same_bytes(path: Path) -> None:
    for value in record_values(path.read_bytes()):
        if value[0] == 1:  # control records begin with the two zero bytes of their version
            record = decode_value(value)
            assert encode_value(record) == value


@pytest.mark.parametrize(("node", "moment", "end"), MOMENTS)
def test_the_topics_are_as_kafka_topics_described_them(node: Path, moment: str, end: int) -> None:
    metadata = kraft.open_metadata(node, at=end)
    text = node.parent / "text" / moment
    agreement.check_topics(metadata, read_text(text / "topics.txt"))
    for one in FILTERS:
        agreement.check_filter(metadata, one, read_text(text / f"topics-{one}.txt"))


@pytest.mark.parametrize(
    ("node", "moment", "end"), [one for one in MOMENTS if one.values[1] == "end"]
)
def test_everything_else_is_as_the_tools_printed_at_the_end(
    node: Path, moment: str, end: int
) -> None:
    metadata = kraft.open_metadata(node, at=end)
    text = node.parent / "text" / moment
    is_4 = node.parent.name.startswith("kafka-4")
    check_end(metadata, lambda name: read_text(text / f"{name}.txt"), is_4=is_4)


def test_every_record_of_kafka_is_in_the_recordings_in_every_version() -> None:
    seen = {
        (type(one.record).__name__, one.record.version)
        for path in FILES
        for one in read_records(memoryview(path.read_bytes()))
    }
    for one in kept("4.3.1")["record_types"]:
        name = one["class"].removesuffix("Record")
        for version in range(one["lowest"], one["highest"] + 1):
            assert (name, version) in seen


@pytest.mark.parametrize("path", TREES, ids=name_of)
def test_the_state_is_what_kafka_metadata_shell_shows(path: Path) -> None:
    one = path.relative_to(DATA)
    file = one.name.partition(".tree")[0]
    metadata = kraft.open_metadata(DATA / one.parts[0] / Path(*one.parts[2:-1]) / file)
    agreement.check_tree(metadata, read_text(path.with_name(f"{file}.tree.txt")))
