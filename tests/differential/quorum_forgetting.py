"""A known difference, reproduced: nodes that lose the record after a snapshot.

``OffsetControlManager.endLoadSnapshot`` takes the end of a snapshot, which is exclusive, as the
last stable offset, which is inclusive. Kafka then keeps the state of the snapshot under the name X,
the offset of the first record after it. If that record is a batch of its own, handleCommitBatch
sees no progress and keeps this state. A node that loses its leadership before more is stable
reverts to it, without the record X. Kafka never applies the record again.
"""

from __future__ import annotations

from typing import Any

from kraft import records
from kraft._core.bytes.batch import BatchBuilder, assign_offsets
from kraft._core.bytes.batch_records import iterate
from tests.differential.quorum_world import QuorumWorld

FORGOTTEN = "a node that forgets the record behind its snapshot"
_PUBLISHED = ("image", "changed", "snapshot")


class ForgettingWorld(QuorumWorld):
    """This side, with nodes that lose records like those of Kafka.

    Brokers lose nothing: images and snapshots come from a second world that does not lose records.
    """

    def __init__(self, setup: dict[str, Any]) -> None:
        #: By node: the end of the snapshot that it began with, and the snapshot.
        self._began: dict[int, tuple[int, bytes]] = {}
        self.has_forgotten = False
        self._beside = QuorumWorld(setup)
        super().__init__(setup)

    def take(self, step: dict[str, Any]) -> dict[str, Any]:
        published = self._beside.take(dict(step))
        self.snapshot = self._beside.snapshot
        return super().take(step) | {key: published[key] for key in _PUBLISHED if key in published}

    def _restart(self, step: dict[str, Any]) -> None:
        if self.snapshot is not None:
            self._began[step["node"]] = self.snapshot
        super()._restart(step)

    def _resume(self, step: dict[str, Any]) -> None:
        controller = self.nodes[step["node"]].controller
        if self.snapshot is not None and self.snapshot[0] > controller.committed_offset:
            self._began[step["node"]] = self.snapshot
        super()._resume(step)

    def _stepped_down(self, id: int) -> None:
        controller = self.nodes[id].controller
        if id not in self._began:
            return
        at, content = self._began[id]
        ends = [
            batch.last_offset
            for each in self.log
            if at < each.end <= controller.stable_offset
            for batch in iterate(each.content)
            if not any(record.is_control for record in batch)
        ]
        if ends != [at]:
            return
        self.has_forgotten = True
        cluster = self._loaded_from((at, content))
        nothing = BatchBuilder()
        nothing.append(records.encode_value(records.NoOp()))
        batch = nothing.finish()
        assign_offsets(batch, at, self.epoch, self.now_ms)
        cluster.apply(batch)
        for each in self.log:
            if at < each.base and each.end <= controller.committed_offset:
                cluster.apply(each.content)
        controller.replace_cluster(cluster)

    def _make_snapshot(self, step: dict[str, Any]) -> None:
        """The second world makes snapshots."""

    _end_snapshot = _make_snapshot

    def _publish(self) -> None:
        """The second world publishes."""
