"""Publish images of committed metadata, and write snapshots of them.

Publishes an image after each turn of the controller that applied committed records. Makes a
snapshot of an image by size and age (`SnapshotPolicy`): generates it in slices of a millisecond
between the controller's turns, and a thread writes it. Called by ``controller``; calls publishers
and the store. Sources: Kafka's ``MetadataLoader``, ``SnapshotGenerator``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

from kraft.errors import KraftError
from kraft.image.publishing import ImagePublishing
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SnapshotGeneration, SnapshotPolicy
from kraft.raft.rpc import OffsetAndEpoch
from kraft.server.disk.snapshot_output import SnapshotOutput
from kraft.server.disk.store import MetadataStore

logger = logging.getLogger(__name__)

#: Generation pauses while more bytes than this wait to be written.
_MAX_UNWRITTEN_SIZE = 16 * 1024 * 1024


class BackgroundWork(Protocol):
    """Work on a published image that takes longer than a turn, such as loading all ACLs."""

    @property
    def has_work(self) -> bool: ...

    def work(self) -> None:
        """Do a slice of about a millisecond."""


class MetadataPublishing:
    """Images and snapshots of one node's committed metadata.

    ``on_snapshot_stored`` is called with the id of each finished snapshot; ``wake``, when `work`
    has more to do.
    """

    def __init__(
        self,
        store: MetadataStore,
        cluster: MetadataState,
        policy: SnapshotPolicy,
        *,
        on_snapshot_stored: Callable[[OffsetAndEpoch], None],
        wake: Callable[[], None],
    ) -> None:
        self.images = ImagePublishing(
            cluster,
            lambda name, error: logger.error(
                "publisher %s failed, and will get the whole image with the next change: %r",
                name,
                error,
                exc_info=error,
            ),
        )
        #: Publishers that work in slices; they come before a snapshot.
        self.background: list[BackgroundWork] = []
        self._store = store
        self._policy = policy
        self._on_snapshot_stored = on_snapshot_stored
        self._wake = wake
        self._generation: SnapshotGeneration | None = None
        self._output: SnapshotOutput | None = None
        self._begin_s = 0.0
        #: The last snapshot that this process made: its bytes, and when (at first: the start).
        self.latest_size = 0
        self.latest_s = time.monotonic()

    def note_batches(self, batches: memoryview) -> None:
        """Count batches that were applied, or will be before the next `publish`."""
        self.images.note_batches(batches)

    def replace_cluster(self, cluster: MetadataState) -> None:
        """Continue with the state of a leader's snapshot; cancel a snapshot of the old state."""
        self.cancel_snapshot()
        self.images.replace_cluster(cluster)

    def publish(self, committed_offset: int, now_ms: float) -> None:
        """Publish an image as of ``committed_offset``, and begin a snapshot where one is due."""
        delta = self.images.publish(committed_offset)
        if delta is None:
            return
        reason = self._policy.reason(delta, now_ms)
        if reason is None or self._output is not None:
            return
        self._policy.begin(now_ms)
        offset = delta.image.offset
        try:
            generation = SnapshotGeneration(delta.image, timestamp_ms=int(now_ms))
        except KraftError as error:
            self._fail(offset, error)
            return
        logger.info("generating a snapshot at offset %d: %s", offset, reason)
        self._generation, self._begin_s = generation, time.monotonic()
        id = OffsetAndEpoch(offset, generation.epoch)
        self._output = SnapshotOutput(self._store.disk, self._store.directory, id)

    @property
    def has_work(self) -> bool:
        """Whether `work` has something to do."""
        return self._has_slice or any(each.has_work for each in self.background)

    @property
    def is_idle(self) -> bool:
        """Whether neither a snapshot nor a slice of other work is under way."""
        return self._generation is None and not self.has_work

    @property
    def _has_slice(self) -> bool:
        """Whether a slice of a snapshot can be generated."""
        output = self._output
        return (
            self._generation is not None
            and output is not None
            and output.unwritten_size < _MAX_UNWRITTEN_SIZE
        )

    def work(self) -> None:
        """Do a slice of the publishers' work, or generate the next one of the snapshot: about a
        millisecond.
        """
        for each in self.background:
            if each.has_work:
                each.work()
                return
        generation, output = self._generation, self._output
        assert generation is not None
        assert output is not None
        try:
            pieces = generation.next_slice()
        except KraftError as error:
            self._cancel_output()
            self._fail(output.id.offset, error)
            return
        if pieces is None or output.has_failed:
            self._finish(output)
        elif pieces:
            written = output.write(pieces)
            if not self._has_slice:
                written.add_done_callback(self._on_loop(lambda done: self._wake()))

    def _finish(self, output: SnapshotOutput) -> None:
        self._generation = None
        output.finish(self._on_loop(lambda done: self._finished(output, done)))

    @staticmethod
    def _on_loop(callback: Callable[[Future[None]], None]) -> Callable[[Future[None]], None]:
        """Wrap ``callback``: the snapshot's thread may call it, and it runs on the loop."""
        loop = asyncio.get_running_loop()

        def call_on_loop(done: Future[None]) -> None:
            # The loop may be closed already; then the callback is dropped.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(callback, done)

        return call_on_loop

    def _finished(self, output: SnapshotOutput, done: Future[None]) -> None:
        if self._output is not output:
            return
        self._output = None
        offset, epoch = output.id
        error = done.exception()
        if error is not None:
            self._fail(offset, error)
            return
        self._policy.end()
        self.latest_size, self.latest_s = output.size, time.monotonic()
        logger.info(
            "wrote a snapshot of offset %d, epoch %d in %.0f ms: %d bytes",
            *(offset, epoch, 1000 * (time.monotonic() - self._begin_s), output.size),
        )
        self._on_snapshot_stored(output.id)
        self._wake()

    def _fail(self, offset: int, error: BaseException) -> None:
        """Log the failure; the state needs no snapshot, and the next one is made when due."""
        logger.error("the snapshot at offset %d failed: %s", offset, error)
        self._policy.end()

    def cancel_snapshot(self, *, wait: bool = False) -> None:
        """Cancel the snapshot under way; with ``wait``, remove its file before the return."""
        if self._output is not None:
            self._cancel_output(wait=wait)
            self._policy.end()

    def _cancel_output(self, *, wait: bool = False) -> None:
        assert self._output is not None
        self._output.cancel(wait=wait)
        self._generation = self._output = None

    def close(self) -> None:
        """Cancel the snapshot under way and remove its file."""
        self.cancel_snapshot(wait=True)
