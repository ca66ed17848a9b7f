"""Snapshots of committed metadata, generated while the node runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from kraft import records
from kraft._core.snapshot.snapshot_file import SnapshotReader
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SnapshotPolicy
from kraft.raft.rpc import OffsetAndEpoch
from kraft.records import Record
from kraft.records.batches import encode_records
from kraft.server import publishing
from kraft.server.disk.store import MetadataStore
from kraft.server.publishing import MetadataPublishing
from tests.harness.gated_disk import PATIENCE_S, GatedDisk
from tests.harness.publishing import BASE, change


class Publishing:
    """A MetadataPublishing driven as `ControllerRunner` does.

    Every append is committed at once.
    """

    def __init__(self, max_record_bytes: int = 1, cluster: MetadataState | None = None) -> None:
        self.disk = GatedDisk(".checkpoint.tmp")
        self.disk.gate.set()
        self.store = MetadataStore.open("d", disk=self.disk)
        self.cluster = cluster or MetadataState(journaling=True)
        self.stored: list[OffsetAndEpoch] = []
        self.policy = SnapshotPolicy(0, max_record_bytes=max_record_bytes)
        self.publishing = MetadataPublishing(
            self.store,
            self.cluster,
            self.policy,
            on_snapshot_stored=self.stored.append,
            wake=self.wake,
        )
        self.wake_count = 0

    def append(self, *log: Record) -> None:
        batch = encode_records(log, base_offset=self.cluster.next_offset, timestamp_ms=7)
        self.cluster.apply(batch)
        self.publishing.note_batches(batch)
        self.publishing.publish(self.cluster.next_offset, 1.0)

    def wake(self) -> None:
        self.wake_count += 1
        if self.publishing.has_work:
            self.publishing.work()
            asyncio.get_running_loop().call_soon(self.wake)

    async def until(self, look: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not look():
                await asyncio.sleep(0.001)

    def snapshots(self) -> list[str]:
        return [name for name in self.disk.list(self.store.directory) if ".checkpoint" in name]

    def loaded(self) -> MetadataState:
        """Return the state in the only snapshot."""
        (id,) = self.stored
        (name,) = self.snapshots()
        cluster = MetadataState(journaling=True)
        content = self.disk.files[f"{self.store.directory}/{name}"]
        with cluster.loading_snapshot(id.offset) as callbacks:
            SnapshotReader(bytes(content)).read(cluster.table, **callbacks)
        return cluster


def leader_of(cluster: MetadataState) -> int:
    """Return the leader of the only partition."""
    return int(cluster.table.column("leader")[0])


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    broken: list[object] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: broken.append(context))
        runner.run(scenario())  # type: ignore[arg-type]
    assert not broken


def test_a_snapshot_has_the_state_at_its_start() -> None:
    async def scenario() -> None:
        node = Publishing()
        node.append(*BASE)
        node.policy.max_record_bytes = 1_000_000
        assert node.publishing.has_work
        node.append(change(2))
        node.wake()
        await node.until(lambda: node.stored)
        assert node.stored == [(3, 0)]
        loaded = node.loaded()
        assert loaded.next_offset == 3
        assert leader_of(loaded) == 1
        assert leader_of(node.cluster) == 2

    run(scenario)


def test_one_snapshot_is_made_at_a_time() -> None:
    async def scenario() -> None:
        node = Publishing()
        node.append(*BASE)
        for leader in (2, 1, 2):
            node.append(change(leader))
        node.wake()
        await node.until(lambda: node.stored)
        assert node.stored == [(3, 0)]
        node.append(change(1))
        node.wake()
        await node.until(lambda: len(node.stored) == 2)
        assert node.stored[1] == (7, 0)
        assert not node.publishing.has_work

    run(scenario)


def test_generation_continues_once_a_slow_disk_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a write must wake the node: in an idle cluster no other event may follow."""
    monkeypatch.setattr(publishing, "_MAX_UNWRITTEN_SIZE", 1)

    async def scenario() -> None:
        node = Publishing()
        node.disk.gate.clear()
        node.append(
            *BASE,
            *(records.Config(2, f"topic-{n}", "retention.ms", "9" * 30_000) for n in range(30)),
        )
        node.wake()
        await node.until(lambda: not node.publishing.has_work)
        await asyncio.sleep(0.01)
        assert node.snapshots() == ["00000000000000000033-0000000000.checkpoint.tmp"]
        count = node.wake_count
        await asyncio.sleep(0.01)
        assert node.wake_count == count, "the node must wait for the disk without polling it"
        assert not node.publishing.is_idle
        node.disk.gate.set()
        await node.until(lambda: node.stored)
        assert len(node.loaded().state.configs) == 30

    run(scenario)


def test_the_table_can_be_compacted_before_the_file_of_a_snapshot_is_written() -> None:
    async def scenario() -> None:
        node = Publishing()
        node.disk.gate.clear()
        node.append(*BASE)
        assert not node.publishing.is_idle
        node.wake()
        await node.until(lambda: node.publishing.is_idle)
        assert not node.stored
        node.publishing.images.forget_image()
        node.cluster.compact()
        node.disk.gate.set()
        await node.until(lambda: node.stored)
        assert leader_of(node.loaded()) == 1

    run(scenario)


@pytest.mark.parametrize("operation", ["truncate", "write", "sync", "rename", "sync_directory"])
def test_a_disk_failure_is_logged_and_the_next_snapshot_is_made(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        node = Publishing()
        node.disk.refuse(operation)
        node.append(*BASE)
        node.wake()
        await node.until(lambda: not node.policy.is_generating)
        assert node.stored == []
        (line,) = (one for one in caplog.records if one.levelno == logging.ERROR)
        assert f"cannot {operation}" in line.getMessage()
        assert "offset 3" in line.getMessage()
        node.append(change(2))
        node.wake()
        await node.until(lambda: node.stored)
        assert node.stored == [(4, 0)]

    run(scenario)


def test_a_state_that_its_metadata_version_cannot_express_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka's image writer fails too, and its fault handler continues."""

    async def scenario() -> None:
        node = Publishing()
        node.append(
            records.FeatureLevel("metadata.version", 10),
            records.UserScramCredential(name="a", mechanism=1),
        )
        node.wake()
        await node.until(lambda: not node.policy.is_generating)
        assert "UserScramCredential" in caplog.text
        await node.until(lambda: node.snapshots() == [])
        node.append(records.RemoveUserScramCredential(name="a", mechanism=1))
        node.wake()
        await node.until(lambda: node.stored)

    run(scenario)


def test_without_a_metadata_version_the_failure_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        node = Publishing()
        node.append(*BASE[1:])
        assert not node.policy.is_generating
        assert not node.publishing.has_work
        assert "a snapshot needs a metadata.version, but no record has set one" in caplog.text

    run(scenario)


def test_a_snapshot_of_a_replaced_state_is_cancelled() -> None:
    async def scenario() -> None:
        node = Publishing()
        node.disk.gate.clear()
        node.append(*BASE)
        node.wake()
        await node.until(lambda: not node.publishing.has_work)
        fresh = MetadataState(journaling=True)
        batch = encode_records(BASE, timestamp_ms=8)
        fresh.apply(batch)
        # The disk is still busy, and the loop does not wait for it.
        node.publishing.replace_cluster(fresh)
        assert not node.policy.is_generating
        node.disk.gate.set()
        await node.until(lambda: node.snapshots() == [])
        assert node.stored == []
        node.cluster = fresh
        node.append(change(2))
        assert node.publishing.images.image is not None
        assert node.publishing.images.image.offset == 4
        node.wake()
        await node.until(lambda: node.stored)
        assert node.stored == [(4, 0)]

    run(scenario)


def test_a_stopped_node_leaves_no_unfinished_snapshot() -> None:
    async def scenario() -> None:
        node = Publishing()
        node.append(*BASE)
        node.publishing.work()
        assert node.policy.is_generating
        node.publishing.close()
        assert node.snapshots() == []
        assert not node.publishing.has_work

    run(scenario)
