"""``open_metadata`` returns the state that a node has after its restart on the same directory.

Directories are generated: a committed history, a log that ends in it or leaves it for records of a
leader that lost, snapshots of the history, and the marks of crashes. A node starts on a copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from kraft._core.bytes.batch import assign_offsets
from kraft._core.log.log import Log
from kraft.errors import CorruptRecordError, KraftError, StorageError
from kraft.image.replay import MetadataState
from kraft.metadata.diff import diff
from kraft.metadata.directory import MetaProperties, without_checksum
from kraft.metadata.facade import Metadata, open_metadata
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.log_records import read_records
from kraft.metadata.salvage import salvage
from kraft.metadata.source import MetadataSource
from kraft.metadata.verification import verify
from kraft.metadata.verification_findings import Severity
from kraft.raft.interface import AppendBatches, WriteElectionState
from kraft.records import (
    AbortTransaction,
    BeginTransaction,
    Config,
    EndTransaction,
    FeatureLevel,
    LeaderChange,
    NoOp,
    Record,
    RemoveTopic,
    Topic,
    Uuid,
)
from kraft.records.batches import encode_control_records, encode_records
from kraft.server.config.loading import ServerConfig
from kraft.server.disk.files import SYNCED_OFFSET_FILE
from kraft.server.disk.store import MetadataStore
from kraft.server.opening import StoreOpening
from kraft.server.storage.meta_properties import meta_properties_bytes
from tests.harness.configurations import write_properties
from tests.harness.metadata_store import NOW_MS, STATIC, metadata_dir

SEEDS = int(os.environ.get("RESTART_SEEDS", "60"))


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


class Writer:
    """Makes batches that replay on those before: topics, settings, transactions, new leaders."""

    def __init__(self, dice: Random, before: list[Batch] | None = None) -> None:
        self._dice = dice
        self.batches = list(before or ())
        self._topics: dict[str, Uuid] = {}
        self._topics_before: dict[str, Uuid] = {}
        self._in_transaction = False
        for batch in self.batches:
            for each in read_records(memoryview(batch.data)):
                self._take(each.record)

    def _take(self, record: Record) -> None:
        if isinstance(record, Topic):
            self._topics[record.name] = record.topic_id
        elif isinstance(record, RemoveTopic):
            self._topics = {n: id for n, id in self._topics.items() if id != record.topic_id}
        elif isinstance(record, BeginTransaction):
            self._topics_before, self._in_transaction = dict(self._topics), True
        elif isinstance(record, (EndTransaction, AbortTransaction)):
            self._in_transaction = False
            if isinstance(record, AbortTransaction):
                self._topics = self._topics_before

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    @property
    def epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else 0

    def _add(self, records: list[Record], epoch: int, *, is_control: bool = False) -> None:
        encode = encode_control_records if is_control else encode_records
        data = encode(records, timestamp_ms=NOW_MS + self.end_offset)
        assign_offsets(data, self.end_offset, epoch)
        end = self.end_offset + len(records)
        self.batches.append(Batch(self.end_offset, end, epoch, bytes(data)))
        for record in records:
            self._take(record)

    def lead(self, epoch: int) -> None:
        """Begin an epoch as a controller does: an open transaction is aborted."""
        self._add([LeaderChange(leader_id=1)], epoch, is_control=True)
        if self.end_offset == 1:
            self._add([FeatureLevel("metadata.version", 25)], epoch)
        if self._in_transaction:
            self._add([AbortTransaction()], epoch)

    def write(self, count: int) -> None:
        for _ in range(count):
            roll = self._dice.random()
            if roll < 0.1:
                transaction = EndTransaction() if self._in_transaction else BeginTransaction()
                self._add([transaction], self.epoch)
            else:
                self._add([self._record() for _ in range(self._dice.randint(1, 4))], self.epoch)

    def _record(self) -> Record:
        roll = self._dice.random()
        record: Record
        if roll < 0.2:
            record = NoOp()
        elif roll < 0.6 or not self._topics or self._in_transaction:
            name = self._dice.choice(("0", "1", "2", ""))
            record = Config(4, name, "log.retention.ms", str(self._dice.randrange(1 << 40)))
        elif roll < 0.7:
            record = RemoveTopic(self._dice.choice(sorted(self._topics.values(), key=bytes)))
        else:
            record = Config(2, self._dice.choice(sorted(self._topics)), "retention.ms", "7")
        if roll >= 0.85:
            name = f"t-{self._dice.randrange(1 << 30)}"
            record = Topic(name, Uuid(self._dice.randbytes(16)))
        self._take(record)
        return record


class World:
    """A committed history, and one node's directory ``home`` that took part in it."""

    def __init__(self, seed: int, root: Path) -> None:
        self.dice = Random(seed)
        self.home = root / "node"
        self.marks: set[str] = set()
        history = Writer(self.dice)
        for _ in range(self.dice.randint(1, 4)):
            history.lead(history.epoch + self.dice.randint(2, 4))
            history.write(self.dice.randint(1, 25))
        self.history = history.batches
        self.snapshots = self._snapshot_all(root / "snapshots")
        self._write_log()
        self._crash()

    def _snapshot_all(self, to: Path) -> dict[int, list[Path]]:
        """Write a snapshot at some ends of batches; return the files by offset."""
        to.mkdir()
        state, found = MetadataState(), {}
        for batch in self.history:
            state.apply(batch.data)
            if self._may_end_snapshot(state) and self.dice.random() < 0.15:
                path = Metadata(state).write_snapshot(
                    to, columns=self.dice.random() < 0.4, timestamp_ms=NOW_MS
                )
                found[batch.end_offset] = sorted(to.glob(f"{path.stem}.*"))
        return found

    def _begins_epoch(self, at: int) -> bool:
        return self.history[at].epoch > self.history[at - 1].epoch

    @staticmethod
    def _may_end_snapshot(state: MetadataState) -> bool:
        return state.transaction_start is None and state.next_offset > 1

    def _write_log(self) -> None:
        dice = self.dice
        kept = dice.randint(1, len(self.history))
        ends = [at for at in range(1, len(self.history)) if self._begins_epoch(at)]
        if ends and dice.random() < 0.5:
            # A leader had all committed records of its epoch or of the one before, and lost.
            self.marks.add("fork")
            kept = dice.choice(ends)
            log = Writer(dice, self.history[:kept])
            log.write(dice.randint(0, 20))
            if dice.random() < 0.5:
                log.lead(log.epoch + 1)
                log.write(dice.randint(0, 20))
        else:
            log = Writer(dice, self.history[:kept])
        store = MetadataStore.open(
            self.home, static_voters=STATIC, segment_bytes=dice.choice((300, 1000, 100_000))
        )
        store.perform(WriteElectionState(log.epoch, -1, -1, None, 0))
        for batch in log.batches:
            store.perform(AppendBatches(batch.base_offset, batch.end_offset, batch.data))
        store.sync()
        common = self.history[kept - 1].end_offset
        own = [end for end in self.snapshots if end <= common and dice.random() < 0.6]
        self._copy(own)
        if own and dice.random() < 0.5:
            self.marks.add("shortened")
            store.log.advance_log_start(dice.choice(own))
        if self.dice.random() < 0.6:
            ahead = [end for end in self.snapshots if end > common]
            if ahead:
                self.marks.add("ahead")
                self._copy([dice.choice(ahead)])
        store.close()

    def _copy(self, ends: list[int]) -> None:
        for end in ends:
            for path in self.snapshots[end]:
                shutil.copy(path, metadata_dir(self.home))

    def _crash(self) -> None:
        directory, dice = metadata_dir(self.home), self.dice
        segments = sorted(directory.glob("*.log"))
        if dice.random() < 0.3:
            for name in (
                "00000000000000000009-0000000003.checkpoint.part",
                "00000000000000000009-0000000003-123.checkpoint.part",
                "00000000000000000000.log.deleted",
                "leader-epoch-checkpoint.tmp",
            ):
                (directory / name).write_bytes(dice.randbytes(dice.randrange(200)))
        if "shortened" in self.marks and dice.random() < 0.2:
            self.marks.add("snapshots lost")
            for path in directory.glob("*.checkpoint"):
                path.unlink()
        if dice.random() < 0.3 and len(segments) > 1:
            self.marks.add("suffix deleted")
            for path in segments[dice.randint(1, len(segments) - 1) :]:
                path.unlink()
            segments = sorted(directory.glob("*.log"))
        if dice.random() < 0.3 and segments[-1].stat().st_size:
            self.marks.add("torn")
            with Log.open(directory, read_only=True) as log:
                *_, last = log.batches()
            os.truncate(segments[-1], last.position + dice.randrange(1, len(last.data)))
        if dice.random() < 0.3:
            for path in (*directory.glob("*.index"), directory / "leader-epoch-checkpoint"):
                path.unlink()
        if dice.random() < 0.7:
            # As Kafka leaves it: the log may have ended earlier than kraft synced it.
            self.marks.add("Kafka's")
            (directory / SYNCED_OFFSET_FILE).unlink()
            path = directory / "quorum-state"
            path.write_bytes(without_checksum(path.read_bytes(), path)[0])


def restarted(home: Path, root: Path) -> tuple[MetadataState, int]:
    """Start a node's store on ``home``; return all that its log has replayed, and the log's end."""
    identity = MetaProperties(1, "cmVzdGFydGVkIGNsdXN0ZQ", 1, random_uuid())
    (home / "meta.properties").write_bytes(meta_properties_bytes(identity))
    fields = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.quorum.voters": "1@localhost:9093",
        "log.dirs": str(home),
    }
    write_properties(root / "node.properties", fields)
    opened = StoreOpening(ServerConfig.load(root / "node.properties")).result()
    try:
        state = opened.cluster
        assert state is not None
        for batch in opened.store.log.batches():
            if batch.last_offset >= state.next_offset:
                state.apply(batch.data)
        state.drop_open_transaction()
        return state, opened.store.log.log_end_offset
    finally:
        opened.store.close()


def outcome(read: Callable[[], MetadataState]) -> MetadataState | KraftError:
    try:
        return read()
    except KraftError as error:
        return error


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_restart_has_the_state_of_open_metadata(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    copy = Path(shutil.copytree(world.home, tmp_path / "copy"))
    opened = outcome(lambda: open_metadata(world.home).cluster)
    source = MetadataSource(world.home)
    node = outcome(lambda: restarted(copy, tmp_path)[0])

    if isinstance(node, KraftError):
        # A node refuses to go on without records that it has acknowledged; a reader takes the rest.
        assert isinstance(node, (CorruptRecordError, StorageError))
        assert world.marks & {"torn", "suffix deleted", "snapshots lost"}, node
        assert "Kafka's" not in world.marks or source.is_partial, node
        assert isinstance(opened, MetadataState)
        return
    assert isinstance(opened, MetadataState), opened
    assert opened.next_offset == node.next_offset
    assert opened.state.quorum.leader_epoch == node.state.quorum.leader_epoch
    assert list(diff(Metadata(opened), Metadata(node))) == []

    after = open_metadata(copy)
    assert list(diff(after, Metadata(node))) == []
    assert after.source is not None
    assert after.source.replacing_snapshot is None
    assert after.source.offset_range[1] == source.offset_range[1] == node.next_offset
    assert not after.source.directory.unfinished

    found = verify(world.home)
    wrong = [str(each) for each in found.findings if each.severity is Severity.CONTRADICTION]
    assert not wrong, wrong
    replacing = source.replacing_snapshot
    notes = [each for each in found.findings if "The next start removes" in each.message]
    assert [each.path for each in notes] == ([] if replacing is None else [replacing.path])
    if node.next_offset:
        salvage(world.home, tmp_path / "salvaged")
        assert list(diff(open_metadata(tmp_path / "salvaged"), Metadata(node))) == []
