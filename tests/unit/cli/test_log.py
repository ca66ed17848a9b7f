"""``kraft log dump`` prints what ``kafka-dump-log`` prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kraft import open_metadata
from kraft.records import Config, NoOp, Partition, PartitionChange, RemoveTopic, Topic, Uuid
from tests.harness.metadata_files import read_text
from tests.unit.cli.conftest import BROKER, CONTROLLER, DATA, METADATA_LOG, SETS, Run, write_log

ORDERS, OTHER = Uuid(b"orders----------"), Uuid(b"other-----------")


def dumpable() -> list[Path]:
    return [
        path.relative_to(DATA.parent)
        for name in SETS
        for path in sorted((DATA.parent / name).glob("*/**/*"))
        if path.suffix in (".log", ".checkpoint") and path.stat().st_size
    ]


@pytest.mark.parametrize("name", dumpable(), ids=str)
def test_a_file_is_printed_to_the_letter_as_kafka_prints_it(kraft: Run, name: Path) -> None:
    ran = kraft("log", "dump", DATA.parent / name, "--show-secrets")
    assert ran.code == 0
    assert ran.lines[0] == f"Dumping {DATA.parent / name}"
    recorded, *inside = name.parts
    kafka = read_text(DATA.parent / recorded / "text" / f"{'/'.join(inside)}.txt").splitlines()
    ours = ran.lines
    if recorded in ("kafka-3.7", "kafka-3.9", "kafka-4.0"):
        # The tools before 4.1 print only the type of a LeaderChange.
        ours = [re.sub(r"LeaderChange: .*", "controlType: LEADER_CHANGE(2)", line) for line in ours]
    assert ours[1:] == kafka[1:]


def test_secrets_are_hidden_by_default(kraft: Run) -> None:
    hidden, shown = (kraft("log", "dump", BROKER, *more) for more in ([], ["--show-secrets"]))
    credentials = [
        json.loads(line.partition("payload: ")[2])["data"]
        for line in shown.lines
        if "USER_SCRAM_CREDENTIAL_RECORD" in line and "REMOVE" not in line
    ]
    assert credentials
    for credential in credentials:
        for secret in ("salt", "storedKey", "serverKey"):
            assert credential[secret] not in hidden.out
    different = [a for a, b in zip(hidden.lines, shown.lines, strict=True) if a != b]
    assert len(different) == len(credentials)


def test_json_is_one_object_a_record(kraft: Run) -> None:
    ran = kraft("log", "dump", BROKER, "--json")
    records = [json.loads(line) for line in ran.lines]
    assert [each["offset"] for each in records] == list(range(len(records)))
    assert len(records) == open_metadata(BROKER).next_offset
    assert records[0]["type"] == "LeaderChange"
    assert records[0]["isControl"] is True
    assert {"file", "position", "CreateTime", "partitionLeaderEpoch", "version", "data"} <= set(
        records[0]
    )


def test_a_directory_of_many_segments_is_one_log(kraft: Run) -> None:
    ran = kraft("log", "dump", CONTROLLER)
    segments = sorted((CONTROLLER / METADATA_LOG).glob("*.log"))
    dumped = [line.removeprefix("Dumping ") for line in ran.lines if line.startswith("Dumping ")]
    assert dumped == [str(path) for path in segments if path.stat().st_size]
    offsets = [int(line.split()[2]) for line in ran.lines if line.startswith("| offset: ")]
    assert offsets == list(range(open_metadata(CONTROLLER).source.log_end_offset))  # type: ignore[union-attr]


def test_only_a_range_of_offsets_is_printed(kraft: Run) -> None:
    ran = kraft("log", "dump", CONTROLLER, "--since", 600, "--until", 640, "--json")
    assert [json.loads(line)["offset"] for line in ran.lines] == list(range(600, 640))


def test_a_record_type_is_found_by_any_of_its_names(kraft: Run) -> None:
    names = ("Config", "config", "CONFIG_RECORD", "ConfigRecord")
    printed = {kraft("log", "dump", BROKER, "--type", name, "--json").out for name in names}
    assert len(printed) == 1
    types = {json.loads(line)["type"] for line in printed.pop().splitlines()}
    assert types == {"CONFIG_RECORD"}


def test_control_and_data_records_can_be_selected_together(kraft: Run) -> None:
    ran = kraft("log", "dump", BROKER, "--type", "LeaderChange", "--type", "Topic", "--json")
    assert {json.loads(line)["type"] for line in ran.lines} == {"LeaderChange", "TOPIC_RECORD"}


def test_the_error_for_an_unknown_type_lists_the_known_ones(kraft: Run) -> None:
    ran = kraft("log", "dump", BROKER, "--type", "Partitions")
    assert ran.code == 1
    assert "'Partitions'" in ran.err
    assert "PartitionChange" in ran.err


@pytest.fixture
def of_two_topics(tmp_path: Path) -> Path:
    write_log(
        tmp_path,
        [
            Topic("orders", ORDERS),
            Partition(0, ORDERS, [1], [1], leader=1, leader_epoch=0, partition_epoch=0),
            Topic("other", OTHER),
            Partition(0, OTHER, [1], [1], leader=1, leader_epoch=0, partition_epoch=0),
        ],
        [Config(2, "orders", "retention.ms", "1"), Config(2, "other", "retention.ms", "1")],
        [PartitionChange(0, ORDERS, leader=-1), PartitionChange(0, OTHER, leader=-1)],
        [RemoveTopic(ORDERS), NoOp()],
    )
    return tmp_path


def offsets(kraft: Run, *arguments: object) -> list[int]:
    return [json.loads(line)["offset"] for line in kraft("log", "dump", *arguments, "--json").lines]


def test_records_of_a_topic_are_found_by_name_or_id_from_creation_to_removal(
    kraft: Run, of_two_topics: Path
) -> None:
    assert offsets(kraft, of_two_topics, "--topic", "orders") == [0, 1, 4, 6, 8]
    assert offsets(kraft, of_two_topics, "--topic", str(ORDERS)) == [0, 1, 4, 6, 8]
    assert offsets(kraft, of_two_topics, "--topic", "other") == [2, 3, 5, 7]
    both = offsets(kraft, of_two_topics, "--topic", "other", "--topic", "orders")
    assert both == list(range(9))


def test_records_of_a_topic_created_before_the_first_printed_offset_are_found(
    kraft: Run, of_two_topics: Path
) -> None:
    assert offsets(kraft, of_two_topics, "--topic", "orders", "--since", 5) == [6, 8]
    assert offsets(kraft, of_two_topics, "--topic", str(ORDERS), "--since", 3) == [4, 6, 8]


def test_a_topic_and_a_record_type_can_be_selected_together(
    kraft: Run, of_two_topics: Path
) -> None:
    wanted = ("--topic", "orders", "--type", "PartitionChange", "--type", "RemoveTopic")
    assert offsets(kraft, of_two_topics, *wanted) == [6, 8]


def test_batches_are_printed_without_records(kraft: Run, of_two_topics: Path) -> None:
    ran = kraft("log", "dump", of_two_topics, "--batches", "--json")
    batches = [json.loads(line) for line in ran.lines]
    assert [(each["baseOffset"], each["count"]) for each in batches] == [
        *((0, 4), (4, 2), (6, 2), (8, 2))
    ]
    one = kraft("log", "dump", of_two_topics, "--batches", "--type", "RemoveTopic")
    assert [line.split()[1] for line in one.lines if line.startswith("baseOffset")] == ["8"]
    assert "| offset" not in one.out


def test_a_batch_is_printed_only_where_one_of_its_records_is(
    kraft: Run, of_two_topics: Path
) -> None:
    ran = kraft("log", "dump", of_two_topics, "--type", "Config", "--topic", "other")
    assert [line.split()[1] for line in ran.lines if line.startswith("baseOffset")] == ["4"]
    assert sum(line.startswith("| offset: 5 ") for line in ran.lines) == 1


def test_a_torn_tail_is_skipped_and_reported(kraft: Run, tmp_path: Path) -> None:
    segment = write_log(tmp_path, [NoOp()], [NoOp()])
    segment.write_bytes(segment.read_bytes()[:-3])
    ran = kraft("log", "dump", tmp_path, "--json")
    assert ran.code == 3
    assert len(ran.lines) == 1
    assert ran.err.startswith("note: torn tail: ")
    assert str(segment) in ran.err


def test_damage_in_the_middle_is_an_error_with_its_position_unless_salvaging(
    kraft: Run, tmp_path: Path
) -> None:
    segment = write_log(tmp_path, [NoOp()], [NoOp()], [NoOp()])
    damaged = bytearray(segment.read_bytes())
    size = len(damaged) // 3
    damaged[2 * size - 1] ^= 0xFF
    segment.write_bytes(damaged)
    refused = kraft("log", "dump", tmp_path)
    assert refused.code == 1
    assert refused.err.startswith("error: ")
    assert f"file {segment}" in refused.err
    assert "offset 1" in refused.err
    assert f"byte {size}" in refused.err
    salvaged = kraft("log", "dump", tmp_path, "--salvage", "--json")
    assert salvaged.code == 3
    assert [json.loads(line)["offset"] for line in salvaged.lines] == [0, 2]
    assert "gap: " in salvaged.err


def test_a_record_of_an_unknown_type_is_named_and_skipped(kraft: Run, tmp_path: Path) -> None:
    from kraft._core.bytes.batch import BatchBuilder
    from kraft._core.log.log import Log

    builder = BatchBuilder(0, 1, 1000)
    builder.append(bytes([1, 99, 0, 7, 7]))
    builder.append(bytes([1, 20, 0, 0]))
    with Log.open(tmp_path / METADATA_LOG) as log:
        log.append(builder.finish(), sync=True)
    ran = kraft("log", "dump", tmp_path, "--json")
    assert ran.code == 0
    first, second = map(json.loads, ran.lines)
    assert (first["type"], first["data"]) == ("UNKNOWN_99", {"size": 5})
    assert second["type"] == "NO_OP_RECORD"


def test_a_path_without_metadata_is_an_error(kraft: Run, tmp_path: Path) -> None:
    ran = kraft("log", "dump", tmp_path)
    assert ran.code == 1
    assert ran.err.startswith(f"error: {tmp_path} has no metadata log")


def test_characters_are_printed_as_kafkas_tool_prints_them(kraft: Run, tmp_path: Path) -> None:
    value = '☃ é 𝄞 \u2028 \x1f\n\x7f"\\ \\u001f'
    write_log(tmp_path, [Config(2, "orders", "remark", value)])
    ran = kraft("log", "dump", tmp_path)
    # Jackson escapes only control characters, quotes and backslashes, with upper-case hex digits.
    shown = '"value":"☃ é 𝄞 \u2028 \\u001F\\n\x7f\\"\\\\ \\\\u001f"'
    assert shown in ran.out
    (line,) = kraft("log", "dump", tmp_path, "--json").lines
    assert line.isascii()
    assert json.loads(line)["data"]["value"] == value


def test_a_terminal_without_the_character_shows_a_question_mark(tmp_path: Path) -> None:
    write_log(tmp_path, [Config(2, "orders", "remark", "☃")])
    command = [sys.executable, "-m", "kraft", "log", "dump", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b'"value":"?"' in done.stdout
