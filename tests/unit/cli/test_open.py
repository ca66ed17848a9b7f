"""``kraft open``: the summary agrees with the output of Kafka's tools and shows no secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraft import open_metadata
from kraft.records import BeginTransaction, EndTransaction, FeatureLevel, NoOp, Topic, Uuid
from tests.harness.metadata_files import read_text
from tests.unit.cli.conftest import BROKER, CONTROLLER, DATA, METADATA_LOG, MOMENTS, Run, write_log


def quorum_status() -> dict[str, str]:
    text = (DATA / "text" / "end" / "quorum-status.txt").read_text()
    return dict(re.split(r":\s+", line, maxsplit=1) for line in text.splitlines())


def test_the_quorum_is_the_one_that_kafka_describes(kraft: Run) -> None:
    document = kraft("open", CONTROLLER, "--at", MOMENTS["end"], "--json").json
    status = quorum_status()
    assert document["clusterId"] == status["ClusterId"]
    assert str(document["quorum"]["leaderId"]) == status["LeaderId"]
    assert str(document["quorum"]["leaderEpoch"]) == status["LeaderEpoch"]
    for voter in document["quorum"]["voters"]:
        assert (
            f'"id": {voter["id"]}, "directoryId": "{voter["directoryId"]}"'
            in (status["CurrentVoters"])
        )
        assert voter["endpoints"][0] in status["CurrentVoters"]


def test_features_are_those_that_kafka_finalized(kraft: Run) -> None:
    document = kraft("open", CONTROLLER, "--at", MOMENTS["end"], "--json").json
    described = dict(
        re.findall(
            r"^Feature: (\S+).*FinalizedVersionLevel: (\S+)",
            (DATA / "text" / "end" / "features.txt").read_text(),
            re.MULTILINE,
        )
    )
    assert document["metadataVersion"] == described.pop("metadata.version")
    assert str(document["quorum"]["kraftVersion"]) == described.pop("kraft.version")
    levels = {name: str(level) for name, level in document["features"].items()}
    levels.pop("metadata.version")
    assert levels == {name: level for name, level in described.items() if level != "0"}


def test_topics_and_partitions_are_counted_as_described(kraft: Run) -> None:
    document = kraft("open", CONTROLLER, "--at", MOMENTS["end"], "--json").json

    def count(name: str) -> int:
        return len(read_text(DATA / "text" / "end" / f"topics{name}.txt").splitlines())

    topics, partitions = document["topics"], document["partitions"]
    assert topics["count"] + partitions["count"] == count("")
    assert partitions["underReplicated"] == count("-under-replicated-partitions")
    assert partitions["underMinIsr"] == count("-under-min-isr-partitions")
    assert topics["biggest"][0]["topic"] == "wide"


def test_records_are_counted_by_type(kraft: Run) -> None:
    by_type = kraft("open", BROKER, "--json").json["records"]["log"]["byType"]
    (text,) = [
        read_text(DATA / "text" / "broker-1" / METADATA_LOG / f"{path.name}.txt")
        for path in sorted((BROKER / METADATA_LOG).glob("*.log"))
    ]
    assert by_type["PartitionChange"] == text.count('"type":"PARTITION_CHANGE_RECORD"')
    assert by_type["Config"] == text.count('"type":"CONFIG_RECORD"')
    assert by_type["LeaderChange"] == text.count("] LeaderChange: ")
    assert sum(by_type.values()) == sum(line.startswith("| ") for line in text.splitlines())


def test_the_summary_has_the_expected_text(kraft: Run) -> None:
    ran = kraft("open", CONTROLLER)
    assert ran.code == 0
    for title in ("Cluster", "Quorum", "Brokers", "Controllers", "Contents", "Records"):
        assert title in ran.lines
    assert "DirectoryId" in ran.out
    assert re.search(r"^  MetadataVersion +4\.3-IV0$", ran.out, re.MULTILINE)


def test_no_secret_is_shown(kraft: Run) -> None:
    import base64

    printed = kraft("open", BROKER).out + kraft("open", BROKER, "--json").out
    credentials = open_metadata(BROKER).scram_credentials
    assert credentials
    for credential in credentials.values():
        for secret in (credential.salt, credential.stored_key, credential.server_key):
            assert base64.b64encode(secret).decode() not in printed
            assert secret.hex() not in printed


@pytest.mark.parametrize("offset", [0, 1, 700, MOMENTS["end"]])
def test_every_available_offset_can_be_opened(kraft: Run, offset: int) -> None:
    document = kraft("open", CONTROLLER, "--at", offset, "--json").json
    assert document["offsets"]["asOf"] == offset
    assert sum(document["records"]["log"]["byType"].values()) == offset


def test_a_snapshot_without_its_log_can_be_opened(kraft: Run) -> None:
    snapshot = max((CONTROLLER / METADATA_LOG).glob("*.checkpoint"))
    document = kraft("open", snapshot, "--json").json
    assert document["offsets"]["asOf"] == int(snapshot.name[:20])
    assert document["offsets"]["logEndOffset"] is None
    assert document["records"]["log"]["records"] == 0
    assert document["records"]["snapshot"]["byType"]["SnapshotHeader"] == 1
    assert document["clusterId"] is None


def test_a_segment_from_the_middle_has_records_and_no_state(kraft: Run) -> None:
    segment = max(path for path in (CONTROLLER / METADATA_LOG).glob("*.log") if path.stat().st_size)
    ran = kraft("open", segment, "--json")
    assert ran.code == 3
    assert "partitions" not in ran.json
    assert ran.json["records"]["log"]["records"] > 0
    assert ran.json["attention"][0].startswith("partial: the log begins at offset ")


def test_an_open_transaction_is_reported_and_not_in_the_state(kraft: Run, tmp_path: Path) -> None:
    write_log(
        tmp_path,
        [FeatureLevel("metadata.version", 30), Topic("before", Uuid(b"b" * 16))],
        [BeginTransaction("big"), Topic("inside", Uuid(b"i" * 16))],
    )
    ran = kraft("open", tmp_path)
    assert ran.code == 3
    assert "open transaction: the records from offset 2 on" in ran.err
    assert kraft("open", tmp_path, "--json").json["topics"]["count"] == 1
    assert kraft("open", tmp_path, "--at", 2).code == 0


def test_an_ended_transaction_is_not_reported(kraft: Run, tmp_path: Path) -> None:
    write_log(
        tmp_path,
        [FeatureLevel("metadata.version", 30), BeginTransaction()],
        [Topic("inside", Uuid(b"i" * 16)), EndTransaction()],
    )
    ran = kraft("open", tmp_path, "--json")
    assert ran.code == 0
    assert ran.json["topics"]["count"] == 1


def test_a_torn_tail_is_reported(kraft: Run, tmp_path: Path) -> None:
    segment = write_log(tmp_path, [NoOp()], [NoOp()])
    segment.write_bytes(segment.read_bytes()[:-1])
    ran = kraft("open", tmp_path, "--json")
    assert ran.code == 3
    assert ran.json["offsets"]["logEndOffset"] == 1
    (sentence,) = ran.json["attention"]
    assert sentence.startswith("torn tail: ")


def test_an_offset_beyond_the_end_names_the_range(kraft: Run) -> None:
    ran = kraft("open", CONTROLLER, "--at", 10**9)
    assert ran.code == 1
    assert re.search(
        r"error: no state is available as of offset 1000000000: .* offsets 0 to \d+", ran.err
    )


def test_a_file_of_another_kind_is_refused(kraft: Run) -> None:
    ran = kraft("open", DATA / "manifest.json")
    assert ran.code == 1
    assert "neither a directory nor a log segment" in ran.err


def test_a_negative_offset_is_wrong_usage(kraft: Run) -> None:
    assert kraft("open", CONTROLLER, "--at", -1).code == 2
