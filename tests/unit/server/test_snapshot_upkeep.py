"""The column checkpoint of a running node's latest snapshot, and starts from it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft._core.snapshot.column_checkpoint import columns_path
from kraft.metadata.column_writer import write_columns
from kraft.server import snapshot_upkeep
from kraft.server.config.loading import ServerConfig
from kraft.server.disk.snapshots import StoredSnapshot
from kraft.server.opening import OpenedStore, StoreOpening
from kraft.server.snapshot_upkeep import SnapshotUpkeep
from tests.harness.controller_nodes import (
    SMALL_SNAPSHOTS,
    Quorum,
    RunScenario,
    snapshot_ids,
    topics,
    until,
)


@pytest.fixture
def stopped(run_scenario: RunScenario, tmp_path: Path) -> ServerConfig:
    """Return the configuration of a node that has made snapshots, and is stopped."""
    quorum = Quorum(tmp_path, 1, settings=SMALL_SNAPSHOTS)

    async def scenario() -> None:
        await quorum.start()
        await quorum.brokers(1)
        await quorum.create("first", 3000)
        await until(lambda: snapshot_ids(quorum, 1)[-1].offset > 3000)
        await quorum.stop(1)

    run_scenario(scenario, quorum)
    return ServerConfig.load(quorum.layout[1].config_path)


def latest_in(config: ServerConfig) -> Path:
    directory = Path(config.metadata_log_dir) / "__cluster_metadata-0"
    return max(directory.glob("0*.checkpoint"))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_upkeep, "CHECK_S", 0.01)
    monkeypatch.setattr(snapshot_upkeep, "SETTLED_S", 0.01)


def keep_up(opened: OpenedStore, until_what: Callable[[], bool], least_size: int = 0) -> list[str]:
    """Run the upkeep of an opened store until something holds; return its failures."""
    failures: list[str] = []
    assert opened.cluster is not None
    upkeep = SnapshotUpkeep(
        opened.store,
        unread=opened.unread,
        table=opened.cluster.table,
        resolve=opened.store.resolve_snapshot,
        on_failure=lambda error: failures.append(str(error)),
        least_size=least_size,
    )

    async def scenario() -> None:
        upkeep.begin()
        await until(lambda: until_what() or bool(failures))
        upkeep.close()

    asyncio.run(scenario())
    return failures


@pytest.mark.usefixtures("soon")
def test_a_running_node_writes_the_columns_of_its_latest_snapshot(stopped: ServerConfig) -> None:
    columns = Path(columns_path(latest_in(stopped)))
    opened = StoreOpening(stopped).result()
    assert opened.unread is None
    assert not keep_up(opened, columns.exists)
    opened.store.close()
    assert [each.name for each in columns.parent.glob("*.columns*")] == [columns.name]


@pytest.mark.usefixtures("soon")
def test_a_small_snapshot_gets_no_columns(stopped: ServerConfig) -> None:
    opened = StoreOpening(stopped).result()
    size, looks = latest_in(stopped).stat().st_size, iter(range(30))
    assert not keep_up(opened, lambda: next(looks) > 20, least_size=size + 1)
    opened.store.close()
    assert not list(latest_in(stopped).parent.glob("*.columns*"))


@pytest.mark.usefixtures("soon")
def test_a_child_that_fails_is_logged_once(
    stopped: ServerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    opened = StoreOpening(stopped).result()
    path = latest_in(stopped)
    path.write_bytes(path.read_bytes()[:-9])
    looks = iter(range(200))
    assert not keep_up(opened, lambda: bool(caplog.messages) and next(looks) > 20)
    opened.store.close()
    (said,) = (each for each in caplog.messages if "column checkpoint" in each)
    assert path.name in said


@pytest.mark.usefixtures("soon")
def test_free_memory_is_returned_once_for_each_new_snapshot(
    stopped: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[None] = []
    monkeypatch.setattr(snapshot_upkeep, "return_free_memory", lambda: returned.append(None))
    opened = StoreOpening(stopped).result()
    looks = iter(range(30))
    assert not keep_up(opened, lambda: bool(returned) and next(looks) > 20, least_size=1 << 30)
    opened.store.close()
    assert len(returned) == 1


@pytest.mark.usefixtures("soon")
def test_nothing_is_returned_or_written_while_new_snapshots_come(
    stopped: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats waited 270 ms for the return of memory amid the changes after a snapshot."""
    returned: list[None] = []
    monkeypatch.setattr(snapshot_upkeep, "return_free_memory", lambda: returned.append(None))
    opened = StoreOpening(stopped).result()
    latest = opened.store.latest_snapshot()
    assert latest is not None
    offsets = [latest.id.offset]

    def next_snapshot() -> StoredSnapshot:
        offsets.append(offsets[-1] + 1)
        return latest._replace(id=latest.id._replace(offset=offsets[-1]))

    monkeypatch.setattr(opened.store, "latest_snapshot", next_snapshot)
    assert not keep_up(opened, lambda: len(offsets) > 9)
    opened.store.close()
    assert returned == []
    assert not list(latest_in(stopped).parent.glob("*.columns*"))


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="needs Linux's autogroup")
def test_the_writer_of_columns_gives_way_to_the_processes_of_other_sessions() -> None:
    code = (
        "from kraft.metadata.column_writer import give_way; give_way();"
        "print(open('/proc/self/autogroup').read())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    assert said.stdout.split()[-2:] == ["nice", "19"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and only glibc can return it")
def test_returned_memory_is_not_resident_any_more() -> None:
    status = Path("/proc/self/status")
    # Blocks below the size from which glibc gives each its own mapping, and gaps between them.
    blocks = [b"x" * 100_000 for _ in range(400)]
    del blocks[::2]
    held = int(status.read_text().partition("RssAnon:")[2].split()[0])
    snapshot_upkeep.return_free_memory()
    left = int(status.read_text().partition("RssAnon:")[2].split()[0])
    assert held - left > 15_000
    assert len(blocks) == 200


def test_a_start_from_columns_is_the_start_from_the_snapshot(stopped: ServerConfig) -> None:
    plain = StoreOpening(stopped).result()
    plain.store.close()
    write_columns(latest_in(stopped))
    opened = StoreOpening(stopped).result()
    opened.store.close()
    latest = opened.store.latest_snapshot()
    assert latest is not None
    assert opened.unread == latest.id
    assert plain.cluster is not None
    assert opened.cluster is not None
    assert topics(opened.cluster) == topics(plain.cluster)
    assert opened.cluster.next_offset == plain.cluster.next_offset
    before, after = plain.cluster.state, opened.cluster.state
    assert before.quorum == after.quorum
    assert list(before.snapshot_records_before_topics()) == list(
        after.snapshot_records_before_topics()
    )
    assert list(before.snapshot_records_after_topics()) == list(
        after.snapshot_records_after_topics()
    )


def test_damaged_columns_are_not_used_and_the_snapshot_is(
    stopped: ServerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    path = latest_in(stopped)
    plain = StoreOpening(stopped).result()
    plain.store.close()
    write_columns(path)
    columns = Path(columns_path(path))
    whole = columns.read_bytes()
    rejected = 0
    for position in range(0, len(whole), len(whole) // 60):
        columns.write_bytes(whole[:position] + bytes([whole[position] ^ 8]) + whole[position + 1 :])
        caplog.clear()
        opened = StoreOpening(stopped).result()
        opened.store.close()
        rejected += opened.unread is None
        assert (opened.unread is None) == any("is not used" in each for each in caplog.messages)
        assert opened.cluster is not None
        assert plain.cluster is not None
        assert topics(opened.cluster) == topics(plain.cluster)
    assert rejected > 50


@pytest.mark.usefixtures("soon")
def test_a_damaged_snapshot_beside_sound_columns_ends_the_node_soon(stopped: ServerConfig) -> None:
    """The columns know their snapshot by its size and the 64 KiB at either end."""
    path = latest_in(stopped)
    write_columns(path)
    data = bytearray(path.read_bytes())
    assert len(data) > 3 << 16
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    opened = StoreOpening(stopped).result()
    assert opened.unread is not None
    (said,) = keep_up(opened, lambda: False)
    opened.store.close()
    assert path.name in said
    assert "this one can catch up from them" in said


@pytest.mark.usefixtures("soon")
def test_a_snapshot_that_was_removed_before_its_check_is_none_that_is_damaged(
    stopped: ServerConfig,
) -> None:
    write_columns(latest_in(stopped))
    opened = StoreOpening(stopped).result()
    assert opened.unread is not None
    gone = opened.unread._replace(offset=opened.unread.offset - 1)
    opened.store.check_listed_snapshot(gone)
    opened.store.close()


def test_columns_without_their_snapshot_are_removed(stopped: ServerConfig) -> None:
    path = latest_in(stopped)
    lone = path.with_name("00000000000000000001-0000000001.columns")
    lone.write_bytes(b"left over")
    write_columns(path)
    StoreOpening(stopped).result().store.close()
    assert not lone.exists()
    assert Path(columns_path(path)).exists()
