"""Disasters: what is left on disk of a quorum of `quorum_history`, drawn from a seed.

A disaster loses most voters, and leaves directories as Apache Kafka and as kraft write them: with
forked logs, interrupted writes, snapshots ahead of the log, copies of an earlier time, formatted
and never started ones; sometimes a damaged one, one of another cluster, or too many for a rescue.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kraft._core.bytes.batch import scan
from kraft._core.log.disk import OsDisk
from kraft.image.replay import MetadataState
from kraft.metadata.directory import META_PROPERTIES, METADATA_LOG, MetaProperties
from kraft.metadata.snapshots import save_snapshot
from kraft.raft.interface import AppendBatches, WriteElectionState
from kraft.raft.voters import VoterSet
from kraft.records import Uuid
from kraft.server.disk.files import SYNCED_OFFSET_FILE
from kraft.server.disk.store import MetadataStore
from kraft.server.storage.meta_properties import meta_properties_bytes
from tests.harness.quorum_history import START_MS, NodeLog, QuorumHistory

CLUSTER_ID = "c3Vydml2b3JzIG9mIGEgZA"
OTHER_CLUSTER_ID = "YW5vdGhlciBjbHVzdGVyLg"


@dataclass(slots=True)
class Left:
    """A directory that is left, and what its node had."""

    path: Path
    node: NodeLog
    is_damaged: bool = False
    is_foreign: bool = False


class Disaster:
    """The disaster of ``seed``, with its directories written under ``folder``."""

    def __init__(self, seed: int, folder: Path) -> None:
        dice = self.dice = Random(seed)
        self.folder = folder
        self.history = QuorumHistory(
            dice,
            is_static=dice.random() < 0.35,
            voter_count=dice.choice((3, 3, 5)),
            steps=dice.randint(20, 160),
        )
        self.left = [self._write(node) for node in self._surviving()]
        if dice.random() < 0.18:
            self._damage(dice.choice(self.left))
        if dice.random() < 0.08:
            self._move_to_another_cluster(dice.choice(self.left))

    def _surviving(self) -> list[NodeLog]:
        dice, history = self.dice, self.history
        voters = [node for node in history.nodes.values() if node.id in history.voters.ids]
        brokers = [node for node in history.nodes.values() if node not in voters]
        most = (len(voters) - 1) // 2 if dice.random() < 0.85 else len(voters) - 1
        kept = dice.sample(voters, dice.randint(0 if dice.random() < 0.2 else 1, most))
        kept += dice.sample(brokers, dice.randint(0 if kept else 1, 2))
        for place, node in enumerate(kept):
            earlier = [each for each in history.earlier if each.id == node.id]
            if earlier and dice.random() < 0.25:
                kept[place] = dice.choice(earlier)
            elif dice.random() < 0.05:
                kept[place] = NodeLog(node.key)
        return kept

    def _write(self, node: NodeLog) -> Left:
        dice = self.dice
        path = self.folder / f"node-{node.id}"
        old_batches = None
        if node.first and len(node.snapshots) == 1 and dice.random() < 0.3:
            old_batches = dice.randrange(node.first)
            node.batches = node.batches[: node.first]
        static_voters = self.history.voters if self.history.is_static else None
        write_directory(path, node, static_voters, old_batches=old_batches)
        metadata_dir = path / METADATA_LOG
        segment = max(metadata_dir.glob("*.log"))
        if dice.random() < 0.3 and node.batches:
            # An interrupted write: a part of a batch that nobody has acknowledged.
            torn = node.batches[-1].data
            with segment.open("ab") as file:
                file.write(torn[: dice.randrange(1, len(torn))])
        if dice.random() < 0.5:
            as_kafka(metadata_dir)
        return Left(path, node)

    def _damage(self, left: Left) -> None:
        """Flip a bit in a batch that others follow: no restart would drop it."""
        segments = (left.path / METADATA_LOG).glob("*.log")
        segment = max(segments, key=lambda path: path.stat().st_size)
        content = bytearray(segment.read_bytes())
        batches = scan(bytes(content))
        if len(batches) < 3:
            return
        position = int(batches.positions[self.dice.randrange(len(batches) - 2)])
        content[position + 61 + self.dice.randrange(4)] ^= 1 << self.dice.randrange(8)
        segment.write_bytes(content)
        left.is_damaged = True

    def _move_to_another_cluster(self, left: Left) -> None:
        path = left.path / META_PROPERTIES
        path.write_text(path.read_text().replace(CLUSTER_ID, OTHER_CLUSTER_ID))
        left.is_foreign = True


def write_directory(
    path: Path, node: NodeLog, static_voters: VoterSet | None, *, old_batches: int | None = None
) -> None:
    """Write what a node has, by the store of a running node.

    ``old_batches``: the log has the first batches only, as after a crash between the download of
    the snapshot and the emptying of the log.
    """
    directory_id = node.key.directory_id
    assert isinstance(directory_id, Uuid)
    path.mkdir(parents=True)
    properties = MetaProperties(1, CLUSTER_ID, node.id, directory_id)
    (path / META_PROPERTIES).write_bytes(meta_properties_bytes(properties))
    # Small segments, so that a log has several.
    store = MetadataStore.open(path, static_voters=static_voters, disk=OsDisk(), segment_bytes=2048)
    try:
        batches = node.batches[node.first :]
        if old_batches is not None:
            batches = node.batches[:old_batches]
        elif node.first:
            store.log.truncate_fully_and_start_at(node.start)
        if node.epoch:
            voted = node.voted
            store.perform(
                WriteElectionState(
                    node.epoch,
                    node.leader,
                    -1 if voted is None else voted.id,
                    None if voted is None or static_voters else voted.directory_id,
                    1 if static_voters is None else 0,
                )
            )
        for batch in batches:
            store.perform(AppendBatches(batch.base, batch.end, batch.data))
        store.sync()
    finally:
        store.close()
    for end, _ in node.snapshots:
        state = MetadataState()
        state.apply(b"".join(each.data for each in node.batches if each.end <= end))
        save_snapshot(
            path / METADATA_LOG,
            state,
            last_contained_log_timestamp_ms=START_MS + 100 * end,
            timestamp_ms=START_MS,
            columns=False,
        )


def as_kafka(metadata_dir: Path) -> None:
    """Turn the files of a directory into those that Apache Kafka writes."""
    (metadata_dir / SYNCED_OFFSET_FILE).unlink(missing_ok=True)
    path = metadata_dir / "quorum-state"
    if path.exists():
        content = json.loads(path.read_text())
        del content["crc32c"]
        path.write_text(json.dumps(content, separators=(",", ":")))
