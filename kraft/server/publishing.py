"""What a node makes of committed metadata: images for whoever listens, and snapshots.

Owns when an image is published (after each turn of the controller that took something up) and when
a snapshot is made of it: by size and age, in slices of a millisecond beside the controller, written
by a thread. Fed by ``controller``; feeds publishers and the store. Sources: Kafka's
``MetadataLoader``, ``SnapshotGenerator``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from kraft.errors import KraftError
from kraft.image.publishing import ImagePublishing
from kraft.image.replay import Cluster
from kraft.image.snapshot_generation import SnapshotGeneration, SnapshotPolicy
from kraft.raft.messages import OffsetAndEpoch
from kraft.server.disk.snapshot_output import SnapshotOutput
from kraft.server.disk.store import MetadataStore

logger = logging.getLogger(__name__)

#: The generation waits where the disk is so far behind.
_MAX_UNWRITTEN_SIZE = 16 * 1024 * 1024


class MetadataPublishing:
    """``take_in`` is told of a snapshot that is on disk; ``wake`` that there is more to be done."""

    def __init__(
        self,
        store: MetadataStore,
        cluster: Cluster,
        policy: SnapshotPolicy,
        *,
        take_in: Callable[[OffsetAndEpoch], None],
        wake: Callable[[], None],
    ) -> None:
        self.images = ImagePublishing(
            cluster,
            lambda name, error: logger.error("publisher %s: %r", name, error, exc_info=error),
        )
        self._store = store
        self._policy = policy
        self._take_in = take_in
        self._wake = wake
        self._generation: SnapshotGeneration | None = None
        self._output: SnapshotOutput | None = None
        self._begin_s = 0.0

    def note_batches(self, batches: memoryview) -> None:
        """What was applied, or will be before it is published."""
        self.images.note_batches(batches)

    def replace_cluster(self, cluster: Cluster) -> None:
        """A snapshot took the place of everything: what was being made of the old is dropped."""
        self.give_up()
        self.images.replace_cluster(cluster)

    def publish(self, committed_offset: int, now_ms: float) -> None:
        """Tells of what is committed, and begins a snapshot where one is due."""
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
        logger.info("a snapshot is made at offset %d: %s", offset, reason)
        self._generation, self._begin_s = generation, time.monotonic()
        id = OffsetAndEpoch(offset, generation.epoch)
        self._output = SnapshotOutput(self._store.disk, self._store.directory, id)

    @property
    def has_work(self) -> bool:
        """Whether `work` would do something."""
        output = self._output
        return (
            self._generation is not None
            and output is not None
            and output.unwritten_size < _MAX_UNWRITTEN_SIZE
        )

    def work(self) -> None:
        """A slice of the snapshot that is being made: about a millisecond."""
        generation, output = self._generation, self._output
        assert generation is not None
        assert output is not None
        try:
            pieces = generation.next_slice()
        except KraftError as error:
            self._drop()
            self._fail(output.id.offset, error)
            return
        if pieces is None or output.has_failed:
            self._finish(output)
        elif pieces:
            written = output.write(pieces)
            if not self.has_work:
                written.add_done_callback(self._on_loop(lambda done: self._wake()))

    def _finish(self, output: SnapshotOutput) -> None:
        self._generation = None
        output.finish(self._on_loop(lambda done: self._finished(output, done)))

    @staticmethod
    def _on_loop(hear: Callable[[Future[None]], None]) -> Callable[[Future[None]], None]:
        """``hear``, to be called by the snapshot's thread."""
        loop = asyncio.get_running_loop()

        def tell(done: Future[None]) -> None:
            # A loop that is closed already wants to know nothing more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(hear, done)

        return tell

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
        logger.info(
            "a snapshot of offset %d, epoch %d was made in %.0f ms: %d bytes",
            *(offset, epoch, 1000 * (time.monotonic() - self._begin_s), output.size),
        )
        self._take_in(output.id)
        self._wake()

    def _fail(self, offset: int, error: BaseException) -> None:
        """The state is whole without it: the next one is made when it is due."""
        logger.error("no snapshot could be made at offset %d: %s", offset, error)
        self._policy.end()

    def give_up(self, *, wait: bool = False) -> None:
        """What is being made is dropped, with ``wait`` before the return."""
        if self._output is not None:
            self._drop(wait=wait)
            self._policy.end()

    def _drop(self, *, wait: bool = False) -> None:
        assert self._output is not None
        self._output.give_up(wait=wait)
        self._generation = self._output = None

    def close(self) -> None:
        """Nothing is left of a snapshot that is not finished."""
        self.give_up(wait=True)
