"""The report of a run: its rows and its JSON document have the same values."""

from __future__ import annotations

import json

from kraft.lab.report import HEADINGS, LoadCheck, Report, Stage, duration, size
from kraft.lab.state_comparison import StateDifference

SETTINGS = {"partitions": 5000, "replicationFactor": 3, "brokers": 12, "racks": 3}


def report() -> Report:
    made = Report(SETTINGS)
    made.stages.append(
        Stage(
            name="create",
            count=4000,
            unit="partitions",
            seconds=2.0,
            records=4010,
            parts={"decide": 1.5, "place": 0.5, "apply": 0.25},
            bytes_written=3 * 1024 * 1024,
            resident_size=5 * 1024 * 1024,
            table_size=320_000,
            partitions=5000,
        )
    )
    return made


def test_a_row_has_count_time_rate_and_sizes() -> None:
    (row,) = report().rows()
    assert dict(zip(HEADINGS, row, strict=True)) == {
        "STAGE": "create",
        "COUNT": "4,000 partitions",
        "TIME": "2.00 s",
        "PER SECOND": "2,000",
        "WRITTEN": "3.0 MiB",
        "RSS": "5.0 MiB",
        "B/PARTITION": "64.0",
    }


def test_a_part_of_a_stage_becomes_a_stage() -> None:
    made = report()
    made.split_off("place", within="decide")
    place, create = made.stages
    assert (place.name, place.seconds, place.count, place.records) == ("place", 0.5, 4000, 0)
    assert (create.name, create.seconds, create.records) == ("create", 1.5, 4010)
    assert create.parts == {"decide": 1.0, "apply": 0.25}


def test_the_document_is_json_with_the_parts() -> None:
    document = json.loads(json.dumps(report().as_dict()))
    (stage,) = document["stages"]
    assert stage["perSecond"] == 2000
    assert stage["bytesAPartition"] == 64
    assert stage["parts"]["decide"] == 1.5


def test_a_run_without_a_check_is_not_equal() -> None:
    assert not report().is_equal


def test_one_difference_makes_the_whole_run_different() -> None:
    made = report()
    made.checks.append(LoadCheck("the snapshot", 5000, None))
    assert made.is_equal
    made.checks.append(
        LoadCheck("the columns", 5000, StateDifference("isr", "orders-1", [1, 2], [2, 1]))
    )
    assert not made.is_equal
    texts = [text for name, text in made.closing() if name == "check"]
    assert texts[0].startswith("equal")
    assert texts[1] == (
        "DIFFERENT, loaded from the columns: isr of orders-1: dropped [1, 2], loaded [2, 1]"
    )
    assert made.as_dict()["checks"][1]["firstDifference"]["before"] == [1, 2]


def test_durations_and_sizes_have_readable_units() -> None:
    assert [size(999), size(2048), size(5 << 30)] == ["999 B", "2.0 KiB", "5.00 GiB"]
    assert [duration(0.0123), duration(61.5)] == ["12.3 ms", "61.50 s"]
