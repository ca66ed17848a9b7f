"""``kraft topics describe`` prints what ``kafka-topics --describe`` printed as of that offset."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kraft.records import Config, FeatureLevel, Partition, Topic, Uuid
from tests.harness.metadata_files import read_text
from tests.unit.cli.conftest import CONTROLLER, DATA, MOMENTS, Run, write_log

FILTERS = (
    *("under-replicated-partitions", "unavailable-partitions"),
    *("under-min-isr-partitions", "at-min-isr-partitions"),
)
ORDERS = Uuid(b"orders----------")


def normal(text: str) -> list[str]:
    """Return the lines sorted, with sorted configs: Kafka prints both in hash map order."""
    return sorted(map(_with_configs_in_order, text.splitlines()))


def _with_configs_in_order(line: str) -> str:
    head, found, configs = line.partition("Configs: ")
    # A value may contain commas; a name cannot.
    settings = sorted(re.split(r",(?=[a-z.]+=)", configs))
    return head + found + ",".join(settings)


def moments() -> list[tuple[str, str, int]]:
    """Return recording, name and end offset of each recorded output of Kafka's tool."""
    return [
        (recorded, moment, offset)
        for recorded in ("kafka-4.3", "kafka-3.9")
        for moment, offset in json.loads((DATA.parent / recorded / "manifest.json").read_text())[
            "moments"
        ].items()
    ]


@pytest.mark.parametrize(("recorded", "moment", "offset"), moments())
@pytest.mark.parametrize("name", ["", *FILTERS])
def test_the_description_equals_that_of_kafka_topics(
    kraft: Run, recorded: str, moment: str, offset: int, name: str
) -> None:
    directory = DATA.parent / recorded
    options = ("--from", directory / "controller-101", "--at", offset)
    ran = kraft("topics", "describe", *options, *([f"--{name}"] if name else []))
    assert ran.code == 0
    file = f"topics-{name}.txt" if name else "topics.txt"
    assert normal(ran.out) == normal(read_text(directory / "text" / moment / file))


def test_topics_are_sorted_by_name_and_partitions_by_id(kraft: Run) -> None:
    documents = kraft("topics", "describe", "--from", CONTROLLER, "--json").json
    names = [each["topic"] for each in documents]
    assert names == sorted(names)
    for each in documents:
        ids = [partition["partition"] for partition in each["partitions"]]
        assert ids == list(range(each["partitionCount"]))


def test_one_topic_is_found_by_name_and_by_id(kraft: Run) -> None:
    (by_name,) = kraft(
        "topics", "describe", "--from", CONTROLLER, "--topic", "payments", "--json"
    ).json
    assert by_name["topic"] == "payments"
    assert by_name["configs"]["min.insync.replicas"] == "2"
    (by_id,) = kraft(
        "topics", "describe", "--from", CONTROLLER, "--topic", by_name["topicId"], "--json"
    ).json
    assert by_id == by_name


def test_json_with_a_filter_holds_only_the_partitions_that_pass(kraft: Run) -> None:
    at = ("--at", MOMENTS["end"], "--unavailable-partitions")
    ran = kraft("topics", "describe", "--from", CONTROLLER, *at, "--json")
    lines = kraft("topics", "describe", "--from", CONTROLLER, *at).lines
    found = [
        (each["topic"], partition["partition"])
        for each in ran.json
        for partition in each["partitions"]
    ]
    assert len(found) == len(lines) > 0
    assert all(partition["leader"] == -1 for each in ran.json for partition in each["partitions"])


def test_an_unknown_topic_is_an_error_in_kafkas_words(kraft: Run) -> None:
    ran = kraft("topics", "describe", "--from", CONTROLLER, "--topic", "nope")
    assert ran.code == 1
    assert ran.err == "error: Topic 'nope' does not exist as expected\n"


def test_two_filters_at_once_are_wrong_usage(kraft: Run) -> None:
    filters = ("--unavailable-partitions", "--at-min-isr-partitions")
    ran = kraft("topics", "describe", "--from", CONTROLLER, *filters)
    assert ran.code == 2
    assert "only one" in ran.err


def test_a_cluster_wide_default_shows_under_its_topic_name(kraft: Run, tmp_path: Path) -> None:
    write_log(
        tmp_path,
        [
            FeatureLevel("metadata.version", 30),
            Topic("orders", ORDERS),
            Partition(0, ORDERS, [1, 2], [1], leader=1, leader_epoch=0, partition_epoch=0),
            Config(4, "", "log.retention.ms", "5"),
            Config(4, "", "min.insync.replicas", "2"),
            Config(4, "", "background.threads", "9"),
        ],
    )
    (topic,) = kraft("topics", "describe", "--from", tmp_path, "--json").json
    assert topic["configs"] == {"min.insync.replicas": "2", "retention.ms": "5"}
    under = kraft("topics", "describe", "--from", tmp_path, "--under-min-isr-partitions")
    assert len(under.lines) == 1


def test_the_topics_own_setting_wins_over_the_default(kraft: Run, tmp_path: Path) -> None:
    write_log(
        tmp_path,
        [
            FeatureLevel("metadata.version", 30),
            Topic("orders", ORDERS),
            Partition(0, ORDERS, [1, 2], [1], leader=1, leader_epoch=0, partition_epoch=0),
            Config(4, "", "min.insync.replicas", "2"),
            Config(2, "orders", "min.insync.replicas", "1"),
        ],
    )
    at_min = kraft("topics", "describe", "--from", tmp_path, "--at-min-isr-partitions")
    assert at_min.lines == [
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\tElr: \tLastKnownElr: "
    ]
    assert not kraft("topics", "describe", "--from", tmp_path, "--under-min-isr-partitions").out


def test_while_replicas_are_added_the_old_factor_counts(kraft: Run, tmp_path: Path) -> None:
    def partition(number: int, isr: list[int]) -> Partition:
        moving = {"adding_replicas": [3], "removing_replicas": [1]}
        return Partition(
            number, ORDERS, [3, 2, 1], isr, leader=2, leader_epoch=0, partition_epoch=0, **moving
        )

    write_log(
        tmp_path,
        [
            FeatureLevel("metadata.version", 30),
            Topic("orders", ORDERS),
            partition(0, [2, 1]),
            partition(1, [2]),
        ],
    )
    (line,) = kraft("topics", "describe", "--from", tmp_path, "--under-replicated-partitions").lines
    assert "Partition: 1" in line
    assert "Adding Replicas: 3\tRemoving Replicas: 1\tElr: " in line
    header = kraft("topics", "describe", "--from", tmp_path).lines[0]
    assert "ReplicationFactor: 2" in header
