"""Publishing: committed records -> delta -> image -> publishers, in a fixed order.

``Image`` is the metadata as of an offset for readers outside of the controller, ``ImageDelta`` the
changes since the previous image, and ``ImagePublishing`` calls the publishers with both. The state
of a broker or standby controller is all committed. The active controller's state runs ahead; an
image never shows uncommitted records, nor a part of a metadata transaction.

Invariants:
- Every image goes to the publishers in one order: by phase, then by registration. As in Kafka's
  ``BrokerMetadataPublisher`` the metadata cache comes first, then replicas, coordinators, all else;
  last what tells the controller how far the metadata are applied. No request is served between
  them, but replicas may finish a large delta in later turns.
- A publisher's first delta is full; so is the first one after a snapshot replaced the state, and
  the next one after a failure of this publisher, which may have applied half of its delta.
- A compaction of the table gives rows and topics other numbers, and changes nothing else:
  publishers get a delta that says so, without changes.
- A failed publisher is counted and reported; the other publishers are still called. (Kafka's fault
  handler only logs the failure, and that publisher loses the delta.)
- Publishing costs as much as changed (KAFKA-14735). The journal is dropped up to the published
  image, except what an older image that is still referenced needs.

Sources: Kafka's ``MetadataLoader``, ``MetadataImage``, ``MetadataDelta``, ``MetadataPublisher``,
``LogDeltaManifest`` (KAFKA-17713 for the ends of batches).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kraft._core.bytes.batch import scan
from kraft._core.table.images import TableDelta, TableImage
from kraft.errors import InvalidRequestError
from kraft.image.replay import MetadataState
from kraft.image.view import Changed, StateImage

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NEW, _FAILED = "new", "failed"

_NO_ROWS = np.empty(0, np.int32)
_NO_ROWS.flags.writeable = False


class Image(NamedTuple):
    """The immutable metadata before the record at ``offset``.

    ``epoch`` is the epoch of its last record, ``last_contained_log_timestamp_ms`` the time of that
    record's batch (-1: unknown). If ``is_batch_aligned`` is false, ``offset`` is inside a batch
    of the log, and no snapshot may end there.
    """

    offset: int
    epoch: int
    last_contained_log_timestamp_ms: int
    is_batch_aligned: bool
    table: TableImage
    state: StateImage


class ImageDelta:
    """The changes from ``before`` to ``image``.

    A full delta has ``before`` None: it lists everything as new, and a publisher drops what is not
    in it. Where ``is_renumbered`` is true, rows and topics have other numbers in ``image`` than in
    ``before``, and nothing changed. Creating a delta is O(1); its first property access costs as
    much as changed. It keeps both images alive: drop it after use. ``byte_size`` and
    ``batch_count`` measure the log between.
    """

    def __init__(
        self,
        before: Image | None,
        image: Image,
        *,
        byte_size: int = 0,
        batch_count: int = 0,
        is_renumbered: bool = False,
    ) -> None:
        self.before = before
        self.image = image
        self.byte_size = byte_size
        self.batch_count = batch_count
        self.is_renumbered = is_renumbered

    @property
    def is_full(self) -> bool:
        return self.before is None

    @cached_property
    def _table(self) -> TableDelta:
        assert self.before is not None
        # The rows of two tables cannot be compared, and need not be.
        before = self.image if self.is_renumbered else self.before
        return TableDelta(before.table, self.image.table)

    @property
    def rows_changed(self) -> NDArray[np.int32]:
        """Rows that both images have and that records wrote to in between, ascending."""
        return _NO_ROWS if self.before is None else self._table.rows_changed

    def row_steps(
        self,
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Return what each record found: see `TableDelta.row_steps`. Empty for a full delta."""
        if self.before is None:
            return _NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS
        return self._table.row_steps()

    @cached_property
    def rows_added(self) -> list[tuple[int, int]]:
        """Ranges ``(first, last + 1)`` of rows that only ``image`` has, ascending."""
        if self.before is not None:
            return self._table.rows_added
        is_live = np.concatenate([[False], self.image.table.column("topic") >= 0, [False]])
        ends = np.flatnonzero(is_live[1:] != is_live[:-1])
        return [(int(first), int(end)) for first, end in ends.reshape(-1, 2)]

    @cached_property
    def topics_added(self) -> list[int]:
        """Numbers of topics that only ``image`` has; a topic created again counts as new."""
        return self.image.table.topic_numbers() if self.is_full else self._table.topics_added

    @property
    def topics_removed(self) -> list[int]:
        """Numbers of topics that only ``before`` has."""
        return [] if self.is_full else self._table.topics_removed

    @cached_property
    def changes(self) -> Mapping[str, Mapping[Hashable, Changed]]:
        """Changes of everything except topics and partitions: kind -> key -> before, after."""
        if self.before is None:
            return self.image.state.everything()
        return self.image.state.changes_since(self.before.state)

    def __repr__(self) -> str:
        since = "nothing" if self.before is None else self.before.offset
        return f"ImageDelta(from {since} to {self.image.offset})"


class Publisher(Protocol):
    """A receiver of new metadata. ``name`` is for the log."""

    @property
    def name(self) -> str: ...

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Apply a delta. A full delta (``is_full``) replaces all that the publisher knows."""


class Phase(IntEnum):
    """The position of a publisher in the order of calls."""

    METADATA_CACHE = 0
    REPLICA_MANAGER = 1
    COORDINATORS = 2
    OTHERS = 3
    HEARTBEATS = 4


class _Batch(NamedTuple):
    """A batch of the log that was not published yet."""

    end_offset: int
    timestamp_ms: int
    size: int


class ImagePublishing:
    """Calls the publishers with the committed state of ``cluster``, which has a journal.

    ``log_fault`` is called with the name of a failed publisher and its error.
    """

    def __init__(
        self,
        cluster: MetadataState,
        log_fault: Callable[[str, Exception], None] = lambda name, error: None,
    ) -> None:
        self._cluster = cluster
        self._log_fault = log_fault
        self._publishers: list[tuple[Phase, Publisher]] = []
        #: The publishers whose next delta must be full, by name, and the reason.
        self._needs_full: dict[str, str] = {}
        self._batches: deque[_Batch] = deque()
        self._begin()
        #: The last image that was published.
        self.image: Image | None = None
        #: How often each publisher failed, by name.
        self.fault_counts: dict[str, int] = {}

    def _begin(self) -> None:
        cluster = self._cluster
        self._batches.clear()
        # The cluster was just loaded: it is empty, or a snapshot, which ends with a batch.
        self._batch_end = cluster.next_offset
        self._timestamp_ms = cluster.state.quorum.last_contained_log_timestamp_ms

    @property
    def applied_timestamp_ms(self) -> int:
        """The timestamp of the last batch that was applied; -1 if unknown."""
        return self._batches[-1].timestamp_ms if self._batches else self._timestamp_ms

    def register(self, publisher: Publisher, phase: Phase = Phase.OTHERS) -> None:
        """Add a publisher after the others of its phase; its next delta is full.

        Raises :class:`InvalidRequestError` if a publisher of this name is registered.
        """
        if any(publisher.name == other.name for _, other in self._publishers):
            raise InvalidRequestError(f"a publisher named {publisher.name} is registered already")
        self._publishers.append((phase, publisher))
        self._publishers.sort(key=lambda entry: entry[0])
        self._needs_full[publisher.name] = _NEW

    def unregister(self, publisher: Publisher) -> None:
        """Remove a publisher. Raises :class:`InvalidRequestError` if it is not registered."""
        kept = [entry for entry in self._publishers if entry[1] is not publisher]
        if len(kept) == len(self._publishers):
            raise InvalidRequestError(f"no publisher {publisher.name} is registered")
        self._publishers = kept
        self._needs_full.pop(publisher.name, None)

    def note_batches(self, batches: Buffer) -> None:
        """Note whole batches that were applied to the cluster, or will be before the next publish.

        Batches replace noted ones of the same offsets, as after a change of leadership; published
        ones are ignored.
        """
        table = scan(batches, verify_crc=False)
        known = self._batches
        published = self._batch_end if self.image is None else self.image.offset
        for base, last, timestamp_ms, size in zip(
            table.base_offsets.tolist(),
            table.last_offsets.tolist(),
            table.max_timestamps.tolist(),
            table.sizes.tolist(),
            strict=True,
        ):
            while known and known[-1].end_offset > base:
                known.pop()
            if last >= published:
                known.append(_Batch(last + 1, timestamp_ms, size))

    def replace_cluster(self, cluster: MetadataState) -> None:
        """Continue with a cluster that was loaded from a snapshot; the next deltas are full."""
        self._cluster = cluster
        self._begin()
        self.forget_image()

    def forget_image(self) -> None:
        """Release the last image; the next deltas are full."""
        self.image = None
        self._needs_full = {publisher.name: _NEW for _, publisher in self._publishers}

    def publish(self, committed_offset: int) -> ImageDelta | None:
        """Publish the state below ``committed_offset``, without open transactions.

        Returns the published delta; None if nothing changed. Raises :class:`InvalidRequestError`
        if the cluster has not applied all records below ``committed_offset``.
        """
        cluster, before = self._cluster, self.image
        if committed_offset > cluster.next_offset:
            raise InvalidRequestError(
                f"offset {committed_offset} is committed, but the state has only applied records "
                f"below {cluster.next_offset}"
            )
        offset = cluster.stable_at(committed_offset)
        if before is not None and offset <= before.offset:
            assert committed_offset < before.offset or offset == before.offset, (
                "what was stable stays so"
            )
            # A failed publisher is called again with the next change only: otherwise the same
            # change could fail for ever.
            if _NEW in self._needs_full.values():
                self._notify(ImageDelta(None, before), before)
            return None
        byte_size = batch_count = 0
        while self._batches and self._batches[0].end_offset <= offset:
            batch = self._batches.popleft()
            self._batch_end, self._timestamp_ms = batch.end_offset, batch.timestamp_ms
            byte_size += batch.size
            batch_count += 1
        state = cluster.state.image(offset)
        self.image = image = Image(
            offset,
            state.quorum.leader_epoch,
            self._timestamp_ms,
            self._batch_end == offset,
            cluster.table.image(offset),
            state,
        )
        delta = ImageDelta(before, image, byte_size=byte_size, batch_count=batch_count)
        self._notify(delta, image)
        cluster.forget(offset)
        return delta

    def publish_renumbered(self) -> Image:
        """Publish the last image again after a compaction of the table, with the new numbers.

        The image must have had all of the state when the compaction began. Returns it.
        """
        before = self.image
        assert before is not None
        self.image = image = before._replace(table=self._cluster.table.image(before.offset))
        self._notify(ImageDelta(before, image, is_renumbered=True), image)
        return before

    def _notify(self, delta: ImageDelta, image: Image) -> None:
        full = delta if delta.is_full else None
        for _, publisher in self._publishers:
            wanted = delta
            if publisher.name in self._needs_full:
                wanted = full = full or ImageDelta(None, image)
            elif delta.is_full:
                # This publisher has all of this image already.
                continue
            try:
                publisher.on_metadata_update(wanted, image)
            except Exception as error:
                self.fault_counts[publisher.name] = self.fault_counts.get(publisher.name, 0) + 1
                self._needs_full[publisher.name] = _FAILED
                self._log_fault(publisher.name, error)
            else:
                self._needs_full.pop(publisher.name, None)
