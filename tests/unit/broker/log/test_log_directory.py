"""Log directories: names, checkpoints, clean and unclean starts, deletion, failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.broker.log.checkpoint_files import parse_checkpoint, read_clean_shutdown
from kraft.broker.log.log_store import PartitionLogStore
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.log.partition_names import (
    PartitionDirectoryKind,
    PartitionName,
    parse_name,
    renamed,
)
from kraft.broker.log.settings import FOR_EVER, LogSettings
from kraft.broker.replication.messages import PartitionId
from kraft.errors import CorruptRecordError, InvalidConfigError, StorageError
from kraft.simulation.memory_disk import MemoryDisk
from tests.harness.partition_logs import TOPIC_ID, Logs, directory_id, produced
from tests.harness.produced_batches import NOW_MS

SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=100)


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(produced(), 1)


def get(logs: Logs, partition: int = 0) -> PartitionLog:
    log = logs.manager.get("t", partition)
    assert log is not None
    return log


# Settings and names


def test_settings_are_those_of_the_topic() -> None:
    settings = LogSettings.from_configs(
        {"segment.ms": "7", "cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "0.1"}
    )
    assert settings.segment_ms == 7
    assert settings.compacts
    assert settings.deletes
    assert settings.min_cleanable_dirty_ratio == 0.1
    assert LogSettings.from_configs({}) == LogSettings()
    assert LogSettings().flush_messages == FOR_EVER


@pytest.mark.parametrize(
    "configs",
    [{"segment.ms": "x"}, {"cleanup.policy": "shrink"}, {"min.cleanable.dirty.ratio": "half"}],
)
def test_settings_that_are_none_are_named(configs: dict[str, str]) -> None:
    (name,) = configs
    with pytest.raises(InvalidConfigError, match=name):
        LogSettings.from_configs(configs)


def test_names_of_partitions_are_parsed() -> None:
    assert parse_name("a-b-3") == PartitionName("a-b", 3)
    deleted = renamed("t", 4, PartitionDirectoryKind.DELETED, "0" * 32)
    assert deleted == f"t-4.{'0' * 32}-delete"
    assert parse_name(deleted) == PartitionName("t", 4, PartitionDirectoryKind.DELETED)
    long = renamed("t" * 249, 4, PartitionDirectoryKind.STRAY, "0" * 32)
    assert len(long) == 255
    assert long.endswith("-stray")
    for name in ("meta.properties", "recovery-point-offset-checkpoint", "lost+found", ".lock", "x"):
        assert parse_name(name) is None


def test_checkpoints_with_wrong_counts_or_versions_are_rejected() -> None:
    assert parse_checkpoint(b"") == {}
    assert parse_checkpoint(b"0\n1\nt 3 9\n") == {("t", 3): 9}
    for content in (b"1\n0\n", b"0\n2\nt 3 9\n", b"0\n1\nt 3\n", b"0\n", b"x\n0\n", b"\xff\n0\n"):
        with pytest.raises(CorruptRecordError):
            parse_checkpoint(content)


# Starts


def test_a_clean_start_opens_no_partition(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=SMALL)
    for partition in range(3):
        fill(logs.manager.create("t", partition, TOPIC_ID), 10 * partition)
    get(logs, 2).raise_start_offset(5)
    get(logs, 2).high_watermark = 17
    logs.manager.close(broker_epoch=44)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_bytes()) == {
        "version": 0,
        "brokerEpoch": 44,
    }
    assert sorted((tmp_path / "recovery-point-offset-checkpoint").read_text().split("\n")[2:]) == [
        "", "t 0 0", "t 1 10", "t 2 20",
    ]  # fmt: skip
    again = Logs(tmp_path, settings=SMALL)
    assert again.manager.clean_broker_epoch == 44
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    log = get(again, 2)
    assert (log.start_offset, log.end_offset, log.high_watermark) == (5, 20, 17)
    assert not any(each.is_open for each in again.manager.logs())
    assert log.latest_epoch == 1
    assert log.epochs == [(1, 5)]
    assert log.is_open
    assert log.topic_id == TOPIC_ID


def test_an_unclean_start_cuts_damage_after_the_recovery_point(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=SMALL)
    log = logs.manager.create("t", 0, TOPIC_ID)
    fill(log, 30)
    log.flush()
    fill(log, 30)
    logs.manager.write_checkpoints()
    bases = log.core.base_offsets
    damaged = tmp_path / "t-0" / f"{bases[-2]:020d}.log"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    again = Logs(tmp_path, settings=SMALL)
    assert again.manager.clean_broker_epoch == -1
    assert [each.name for each in again.directories[0].recover()] == ["t-0"]
    log = get(again)
    assert bases[-2] < log.end_offset < bases[-1]
    assert log.core.torn_tail is not None
    fill(log, 3)
    again.manager.close()
    assert get(Logs(tmp_path, settings=SMALL)).start_offset == 0


def test_an_unclean_start_does_not_read_before_the_recovery_point(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=SMALL)
    log = logs.manager.create("t", 0, TOPIC_ID)
    fill(log, 60)
    log.flush()
    logs.manager.write_checkpoints()
    first = tmp_path / "t-0" / f"{0:020d}.log"
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    assert get(Logs(tmp_path, settings=SMALL)).end_offset == 60


def test_a_log_that_ends_before_its_start_is_emptied(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=SMALL)
    log = logs.manager.create("t", 0, TOPIC_ID)
    fill(log, 10)
    log.raise_start_offset(9)
    logs.manager.write_checkpoints()
    for path in (tmp_path / "t-0").glob("*.log"):
        path.write_bytes(b"")
    log = get(Logs(tmp_path, settings=SMALL))
    assert (log.start_offset, log.end_offset) == (9, 9)


def test_a_directory_that_was_not_read_whole_is_not_marked_clean(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=SMALL)
    fill(logs.manager.create("t", 0, TOPIC_ID), 10)
    logs.manager.write_checkpoints()
    again = Logs(tmp_path, settings=SMALL)
    again.manager.close()
    assert read_clean_shutdown(again.directories[0].disk, str(tmp_path)) is None
    third = Logs(tmp_path, settings=SMALL)
    assert get(third).end_offset == 10
    third.manager.close()
    assert read_clean_shutdown(third.directories[0].disk, str(tmp_path)) == -1


def test_a_malformed_checkpoint_is_ignored(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=SMALL)
    fill(logs.manager.create("t", 0, TOPIC_ID), 10)
    logs.manager.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"junk")
    assert get(Logs(tmp_path, settings=SMALL)).end_offset == 10


# Several directories


def test_partitions_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()
    logs = Logs(*paths, settings=SMALL)
    for partition in range(4):
        logs.manager.create("t", partition, TOPIC_ID)
    assert [len(each.partitions) for each in logs.directories] == [2, 2]
    log = logs.manager.create("t", 9, TOPIC_ID, logs.directories[1])
    assert log.directory is logs.directories[1]
    assert logs.manager.create("t", 9, TOPIC_ID) is log


def test_the_others_live_on_when_a_directory_fails(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()
    logs = Logs(*paths, settings=SMALL)
    for partition in range(4):
        fill(logs.manager.create("t", partition, TOPIC_ID), 5)
    broken = logs.directories[0]
    broken.fail(StorageError("no such device"))
    assert logs.failed == [str(paths[0])]
    alive = [log.partition for log in logs.manager.logs()]
    assert len(alive) == 2
    for partition in range(4):
        assert (logs.manager.get("t", partition) is not None) == (partition in alive)
    assert logs.manager.create("t", 9, TOPIC_ID).directory is logs.directories[1]
    with pytest.raises(StorageError, match="offline: no such device"):
        broken.create("t", 10, TOPIC_ID, SMALL)
    logs.manager.write_checkpoints()
    logs.manager.close(7)
    assert not (paths[0] / ".kafka_cleanshutdown").exists()
    assert (paths[1] / ".kafka_cleanshutdown").exists()


def test_no_directory_online_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no log directory is online"):
        Logs(tmp_path / "missing")


@pytest.mark.parametrize(
    ("assigned", "served"), [(0, "a"), (1, "b"), (9, "b")], ids=["first", "second", "none"]
)
def test_of_two_logs_of_a_partition_the_assigned_one_is_kept_else_the_longer_one(
    assigned: int, served: str, tmp_path: Path
) -> None:
    """The first one is what a failing disk has left of a log's creation."""
    paths = {name: tmp_path / name for name in "ab"}
    for path in paths.values():
        path.mkdir()
    logs = Logs(paths["b"], settings=SMALL)
    fill(logs.manager.create("t", 0, TOPIC_ID), 5)
    logs.manager.close()
    (paths["a"] / "t-0").mkdir()

    logs = Logs(*paths.values(), settings=SMALL)
    log = (
        PartitionLogStore(logs.manager)
        .open(PartitionId(bytes(TOPIC_ID), 0), "t", directory_id(assigned))
        .log
    )
    assert log.end_offset == (5 if served == "b" else 0)
    logs.manager.close()
    for name, path in paths.items():
        (found,) = (each.name for each in path.glob("t-0*"))
        assert (found == "t-0") == (name == served)
        assert found.endswith("-stray") == (name != served)
    assert get(Logs(*paths.values(), settings=SMALL)).directory.path == str(paths[served])


def test_a_log_that_cannot_be_read_is_not_chosen_of_two(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.mkdir()
        logs = Logs(path, settings=SMALL)
        fill(logs.manager.create("t", 0, TOPIC_ID), 5)
        logs.manager.close()
        (path / ".kafka_cleanshutdown").unlink()
    logs = Logs(*paths, settings=SMALL)
    segment = paths[0] / "t-0" / f"{0:020}.log"
    segment.unlink()
    segment.mkdir()
    logs.manager.choose_copy("t", 0, bytes(16))
    assert logs.failed == [str(paths[0])]
    assert get(logs).directory.path == str(paths[1])
    assert get(logs).end_offset == 5


# Deletion and moves


def test_a_deleted_partition_is_renamed_and_removed_later(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=SMALL)
    fill(logs.manager.create("t", 0, TOPIC_ID), 30)
    logs.manager.delete("t", 0)
    assert logs.manager.get("t", 0) is None
    (deleted,) = (path for path in tmp_path.iterdir() if path.name.startswith("t-0."))
    assert parse_name(deleted.name) == PartitionName("t", 0, PartitionDirectoryKind.DELETED)
    fill(logs.manager.create("t", 0, TOPIC_ID), 2)
    assert logs.manager.remove_due(logs.now_ms + 59_999) == 0
    assert logs.manager.remove_due(logs.now_ms + 60_000) == 1
    assert not deleted.exists()
    assert get(logs).end_offset == 2


def test_a_start_removes_deleted_partitions_and_keeps_stray_ones(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=SMALL)
    for partition in range(3):
        fill(logs.manager.create("t", partition, TOPIC_ID), 30)
    logs.manager.delete("t", 0)
    logs.manager.set_aside("t", 1)
    logs.manager.close()
    again = Logs(tmp_path, settings=SMALL)
    assert list(again.directories[0].partitions) == [("t", 2)]
    assert again.manager.remove_due(again.now_ms) == 1
    names = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert [parse_name(name) for name in names] == [
        PartitionName("t", 1, PartitionDirectoryKind.STRAY),
        PartitionName("t", 2),
    ]


def test_a_future_log_becomes_the_log(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=SMALL)
    directory = logs.directories[0]
    log = directory.create("t", 0, TOPIC_ID, SMALL, is_future=True)
    fill(log, 30)
    assert logs.manager.get("t", 0) is None
    assert directory.promote("t", 0) is log
    fill(log, 30)
    assert log.read(45, 1, 60).size > 0
    logs.manager.close()
    assert get(Logs(tmp_path, settings=SMALL)).end_offset == 60


def test_flush_ms_flushes_what_waits(tmp_path: Path) -> None:
    logs = Logs(tmp_path, settings=LogSettings(flush_ms=1000))
    log = logs.manager.create("t", 0, TOPIC_ID)
    log.flush()
    fill(log, 3)
    assert logs.manager.flush_due(NOW_MS + 999) == 0
    assert logs.manager.flush_due(NOW_MS + 1000) == 1
    assert log.recovery_point == 3
    assert logs.manager.flush_due(NOW_MS + 5000) == 0


def test_changed_settings_apply_to_the_next_append(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    log = logs.manager.create("t", 0, TOPIC_ID)
    fill(log, 20)
    assert log.core.segment_count == 1
    logs.settings = SMALL
    logs.manager.change_settings("t")
    fill(log, 1)
    assert log.core.segment_count == 2


def test_a_failed_checkpoint_takes_the_directory_offline() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    logs = Logs("/d", disk=disk)
    fill(logs.manager.create("t", 0, TOPIC_ID), 2)
    disk.refuse("rename")
    logs.manager.write_checkpoints()
    assert logs.failed == ["/d"]


def test_a_topic_that_is_created_again_does_not_begin_where_the_deleted_one_did(
    tmp_path: Path,
) -> None:
    """The checkpoints had the offsets of the deleted log: the next start emptied the new one."""
    logs = Logs(tmp_path, settings=SMALL)
    first = logs.manager.create("t", 0, TOPIC_ID)
    fill(first, 50)
    first.high_watermark = 50
    first.raise_start_offset(40)
    logs.manager.write_checkpoints()
    logs.manager.delete("t", 0)
    second = logs.manager.create("t", 0, TOPIC_ID)
    fill(second, 5)
    second.flush()
    # The process is killed.
    again = get(Logs(tmp_path, settings=SMALL))
    assert (again.start_offset, again.end_offset, again.high_watermark) == (0, 5, 0)
    assert again.checkpointed_recovery_point == 0
