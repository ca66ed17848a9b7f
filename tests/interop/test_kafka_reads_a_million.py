"""Kafka's tools read the log and the snapshot of a million partitions, and see the same state.

The files are those of `kraft lab million`, with a seed that Kafka 4.3.1 wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kraft
from kraft.lab.million import run
from kraft.lab.scenario import ScenarioSettings
from kraft.metadata.directory import METADATA_LOG
from kraft.metadata.facade import Metadata
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.interop.plain_partitions import PlainPartition, PlainPartitions, from_dump
from tests.interop.tools import LARGE_JVM, MetadataShell, dump_lines

pytestmark = pytest.mark.interop

SEED = Path(__file__).resolve().parent.parent / "data" / "kafka-4.3" / "controller-101"
PARTITIONS = 1_000_000
TOPIC = re.compile(r'"TOPIC_RECORD".*"topicId":"([\w-]{22})"')
RECORD = re.compile(r'^\| offset: (\d+) .*? payload: {"type":"(\w+)_RECORD"')


@contextmanager
def no_bar(description: str, total: float | None) -> Iterator[Callable[[float], None]]:
    yield lambda done: None


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the log and the snapshots that the lab wrote."""
    directory = tmp_path_factory.mktemp("million")
    report = run(ScenarioSettings(SEED, partitions=PARTITIONS, directory=directory), no_bar)
    assert all(check.difference is None for check in report.checks)
    return directory / METADATA_LOG


@pytest.fixture(scope="module")
def snapshot(million: Path) -> Path:
    return max(million.glob("*.checkpoint"))


@pytest.fixture(scope="module")
def state(snapshot: Path) -> Metadata:
    metadata = kraft.open_metadata(snapshot, use_column_cache=False)
    assert len(metadata.partitions) >= PARTITIONS - 1000  # one topic was deleted
    return metadata


def test_kafka_dump_log_reads_the_snapshot(snapshot: Path, state: Metadata) -> None:
    plain = PlainPartitions(state)
    said: list[PlainPartition] = []
    topics: list[str] = []

    def check_topic() -> None:
        if topics:
            assert said == plain.of(state.topics.by_id(topics[-1]))
            said.clear()

    for line in dump_lines(kafka(KAFKA_4), snapshot):
        if '"PARTITION_RECORD"' in line:
            said.append(from_dump(line))
        elif begun := TOPIC.search(line):
            check_topic()
            topics.append(begun[1])
        elif line.startswith("baseOffset"):
            assert line.endswith(" isvalid: true\n"), line
    check_topic()
    assert sorted(topics) == sorted(str(topic.id) for topic in state.topics.values())


def test_kafka_metadata_shell_shows_the_snapshots_state(snapshot: Path, state: Metadata) -> None:
    plain = PlainPartitions(state)
    shown: dict[str, dict[int, str]] = {}
    with MetadataShell(kafka(KAFKA_4), snapshot, LARGE_JVM) as shell:
        topic = key = ""
        for line in shell.ask("tree /image/topics/byName"):
            # Every second line is a registration; the indent of the others gives their kind.
            if line.startswith("    ") and topic and key.isdigit():
                shown.setdefault(topic, {})[int(key)] = line.lstrip()
            elif line.startswith("  "):
                key = line.strip(" :")
            else:
                topic = line.rstrip(":")
        brokers = set(shell.ask("ls /image/cluster/brokers"))
    assert shown.keys() == set(state.topics)
    for name, partitions in shown.items():
        ours = plain.of(state.topics[name])
        assert partitions == {one.partition: one.as_registration() for one in ours}
    assert set(" ".join(brokers).split()) == {str(broker) for broker in state.brokers}


def test_kafka_dump_log_reads_the_log(million: Path) -> None:
    """Every record of every segment: none is missing, and no other types appear."""
    metadata = kraft.open_metadata(million)
    offset = int(min(million.glob("*.log")).stem)
    types: Counter[str] = Counter()
    for segment in sorted(million.glob("*.log")):
        for line in dump_lines(kafka(KAFKA_4), segment):
            if record := RECORD.match(line):
                assert int(record[1]) == offset
                offset += 1
                types[record[2]] += 1
            elif line.startswith("baseOffset"):
                assert line.endswith(" isvalid: true\n"), line
    assert offset == metadata.next_offset
    assert types["PARTITION"] >= PARTITIONS - 1000
    assert types["REMOVE_TOPIC"] == 1
