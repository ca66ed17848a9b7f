"""``kraft snapshot``: write, verify and compare snapshots; report any damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraft import open_metadata
from kraft.metadata.diff import diff
from kraft.records import (
    BeginTransaction,
    Config,
    FeatureLevel,
    Partition,
    PartitionChange,
    Topic,
    UserScramCredential,
    Uuid,
)
from tests.unit.cli.conftest import CONTROLLER, METADATA_LOG, MOMENTS, Run, write_log

ORDERS = Uuid(b"orders----------")


@pytest.mark.parametrize("moment", sorted(MOMENTS))
def test_a_written_snapshot_equals_the_state(kraft: Run, tmp_path: Path, moment: str) -> None:
    offset = MOMENTS[moment]
    ran = kraft(
        *("snapshot", "write", "--from", CONTROLLER, "--at", offset, "--to", tmp_path / "to"),
        "--json",
    )
    assert ran.code == 0
    assert ran.json["endOffset"] == offset
    checkpoint, columns = [Path(each["path"]) for each in ran.json["files"]]
    assert checkpoint.name == f"{offset:020d}-{ran.json['epoch']:010d}.checkpoint"
    assert columns.suffix == ".columns"
    assert all(each["size"] == Path(each["path"]).stat().st_size for each in ran.json["files"])
    state = open_metadata(CONTROLLER, at=offset)
    for cached in (True, False):
        assert diff(state, open_metadata(checkpoint, use_column_cache=cached)) == []


def test_without_columns_there_is_one_file(kraft: Run, tmp_path: Path) -> None:
    ran = kraft("snapshot", "write", "--from", CONTROLLER, "--to", tmp_path, "--no-columns")
    assert ran.code == 0
    (only,) = tmp_path.iterdir()
    assert str(only) in ran.out


def test_a_snapshot_of_an_older_offset_bears_the_time_of_its_last_record(
    kraft: Run, tmp_path: Path
) -> None:
    source = tmp_path / "from"
    write_log(source, [FeatureLevel("metadata.version", 30)], [Topic("orders", ORDERS)])
    kraft("snapshot", "write", "--from", source, "--at", 1, "--to", tmp_path / "to")
    (document,) = kraft("snapshot", "verify", tmp_path / "to", "--json").json
    assert document["lastContainedLogTimestamp"] == 1000


def test_no_snapshot_is_written_inside_a_transaction(kraft: Run, tmp_path: Path) -> None:
    source = tmp_path / "from"
    write_log(
        source,
        [FeatureLevel("metadata.version", 30)],
        [BeginTransaction(), Topic("orders", ORDERS)],
    )
    ran = kraft("snapshot", "write", "--from", source, "--to", tmp_path / "to")
    assert ran.code == 1
    assert "give --at 1" in ran.err
    assert not (tmp_path / "to").exists()
    assert kraft("snapshot", "write", "--from", source, "--to", tmp_path, "--at", 1).code == 0


def test_kafkas_snapshots_are_sound(kraft: Run) -> None:
    ran = kraft("snapshot", "verify", CONTROLLER, "--json")
    assert ran.code == 0
    assert {each["result"] for each in ran.json} == {"ok"}
    assert len(ran.json) == len(list((CONTROLLER / METADATA_LOG).glob("*.checkpoint")))


def test_a_flipped_bit_anywhere_is_found(kraft: Run, tmp_path: Path) -> None:
    snapshot = max((CONTROLLER / METADATA_LOG).glob("*.checkpoint"))
    whole = snapshot.read_bytes()
    for position in range(0, len(whole), len(whole) // 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        copy = tmp_path / snapshot.name
        copy.write_bytes(damaged)
        ran = kraft("snapshot", "verify", copy, "--json")
        # Twelve bytes of each batch are not covered by its CRC; each of them is checked separately.
        assert ran.code == 4, position
        assert ran.json[0]["result"] != "ok"
        assert ran.err == f"error: {copy}: {ran.json[0]['result']}\n"


def test_a_snapshot_that_was_cut_short_is_found(kraft: Run, tmp_path: Path) -> None:
    snapshot = max((CONTROLLER / METADATA_LOG).glob("*.checkpoint"))
    copy = tmp_path / snapshot.name
    copy.write_bytes(snapshot.read_bytes()[:-1])
    ran = kraft("snapshot", "verify", tmp_path)
    assert ran.code == 4
    assert str(copy) in ran.out
    assert ran.err.startswith(f"error: {copy}: ")


def test_columns_of_another_snapshot_are_reported_and_not_used(kraft: Run, tmp_path: Path) -> None:
    for offset in (MOMENTS["before-upgrade"], MOMENTS["end"]):
        kraft("snapshot", "write", "--from", CONTROLLER, "--at", offset, "--to", tmp_path)
    old, new = sorted(tmp_path.glob("*.columns"))
    shutil.copy(old, new)
    ran = kraft("snapshot", "verify", tmp_path, "--json")
    assert ran.code == 3
    first, second = ran.json
    assert (first["result"], first["columns"]) == ("ok", "ok")
    assert second["result"] == "ok"
    assert second["columns"] not in ("ok", "none")


def test_verify_without_a_snapshot_is_an_error(kraft: Run, tmp_path: Path) -> None:
    write_log(tmp_path, [FeatureLevel("metadata.version", 30)])
    ran = kraft("snapshot", "verify", tmp_path)
    assert ran.code == 1
    assert "holds no snapshot" in ran.err


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    write_log(
        tmp_path,
        [
            FeatureLevel("metadata.version", 30),
            Topic("orders", ORDERS),
            Partition(0, ORDERS, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0),
        ],
        [PartitionChange(0, ORDERS, isr=[2], leader=2)],
        [
            Config(2, "orders", "retention.ms", "5"),
            Config(4, "1", "ssl.key.password", "hunter2"),
            UserScramCredential("alice", 1, b"salt", b"stored", b"server", 4096),
        ],
    )
    return tmp_path


def test_diff_prints_each_difference_with_the_record_that_caused_it(
    kraft: Run, changed: Path
) -> None:
    ran = kraft("snapshot", "diff", changed, "--at-a", 3)
    assert ran.code == 3
    assert ran.lines == [
        "~ partition orders-0 leader: 1 -> 2  (PartitionChange at offset 3)",
        "~ partition orders-0 leaderEpoch: 0 -> 1  (PartitionChange at offset 3)",
        "~ partition orders-0 partitionEpoch: 0 -> 1  (PartitionChange at offset 3)",
        "~ partition orders-0 isr: [1,2] -> [2]  (PartitionChange at offset 3)",
        "+ config topic orders retention.ms: 5  (Config at offset 4)",
        "+ config broker 1 ssl.key.password: [hidden]  (Config at offset 5)",
        "+ scram_credential SCRAM-SHA-256 alice: iterations=4096"
        "  (UserScramCredential at offset 6)",
        "differences from offset 3 to 7: 4 partition, 2 config, 1 scram_credential",
    ]


def test_diff_prints_the_differences_as_json(kraft: Run, changed: Path) -> None:
    ran = kraft("snapshot", "diff", changed, "--at-a", 3, "--json")
    assert ran.code == 3
    assert (ran.json["a"]["offset"], ran.json["b"]["offset"]) == (3, 7)
    assert ran.json["counts"] == {"partition": 4, "config": 2, "scram_credential": 1}
    assert ran.json["differences"][1] == {
        "kind": "partition",
        "key": "orders-0",
        "field": "leaderEpoch",
        "before": 0,
        "after": 1,
        "cause": {"offset": 3, "type": "PartitionChange"},
    }
    assert "hunter2" not in ran.out


def test_swapped_states_have_the_same_differences_and_no_causes(kraft: Run, changed: Path) -> None:
    ran = kraft("snapshot", "diff", changed, "--at-b", 3)
    assert ran.code == 3
    assert "- config topic orders retention.ms: 5" in ran.lines
    assert "at offset" not in "".join(ran.lines[:-1])


def test_no_difference_is_exit_code_0(kraft: Run, changed: Path) -> None:
    ran = kraft("snapshot", "diff", changed, changed)
    assert ran.code == 0
    assert ran.lines == ["differences from offset 7 to 7: none"]


def test_two_snapshots_find_their_causes_in_the_log_around_them(kraft: Run) -> None:
    snapshots = sorted((CONTROLLER / METADATA_LOG).glob("*.checkpoint"))
    ran = kraft("snapshot", "diff", snapshots[-2], snapshots[-1], "--json")
    since, until = (int(path.name[:20]) for path in snapshots[-2:])
    causes = [each["cause"] for each in ran.json["differences"]]
    assert causes
    assert all(cause is not None and since <= cause["offset"] < until for cause in causes)


def test_snapshots_in_other_directories_use_the_given_log(kraft: Run, tmp_path: Path) -> None:
    for offset in (MOMENTS["before-upgrade"], MOMENTS["end"]):
        kraft("snapshot", "write", "--from", CONTROLLER, "--at", offset, "--to", tmp_path)
    a, b = sorted(tmp_path.glob("*.checkpoint"))
    alone = kraft("snapshot", "diff", a, b, "--json").json["differences"]
    assert not any(each["cause"] for each in alone)
    helped = kraft("snapshot", "diff", a, b, "--log", CONTROLLER, "--json").json["differences"]
    assert all(each["cause"] for each in helped)
    assert [each["key"] for each in helped] == [each["key"] for each in alone]
