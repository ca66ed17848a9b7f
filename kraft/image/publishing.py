"""Committed records -> delta -> image -> publishers, in a fixed order.

Owns what "the metadata as of an offset" is to everyone outside of the controller (``Image``), what
changed since the last one (``ImageDelta``), and who hears of it when (``ImagePublishing``). On a
broker and a standby controller the tip is what is committed; that of the active controller runs
ahead, and an image never shows what is not committed, nor a part of a metadata transaction.

Invariants
- Publishers hear of every image in the same order: by phase, then by registration. The metadata
  cache comes last, so that a request that sees the new metadata finds everything else done.
- A publisher's first delta is full, as is the first after another cluster was loaded (a snapshot),
  and the next one after it has failed: it may have taken half of what it was given.
- A publisher that fails is counted and named, and the others are told all the same: what they hold
  is right. (Kafka's fault handler logs it, and the delta is lost on that publisher.)
- Publishing costs what changed (KAFKA-14735). The journal is forgotten up to the published image;
  what an older one needs stays as long as somebody holds it.

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

from kraft._core.batch import scan
from kraft._core.history import TableDelta, TableImage
from kraft.errors import InvalidRequestError
from kraft.image.replay import Cluster
from kraft.image.view import Changed, StateImage

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NEW, _FAILED = "new", "failed"

_NO_ROWS = np.empty(0, np.int32)
_NO_ROWS.flags.writeable = False


class Image(NamedTuple):
    """The metadata as of before the record at ``offset``, which never moves.

    ``epoch`` is that of the last record in it, ``last_contained_log_timestamp_ms`` the time of its
    batch (-1: not known). Where ``is_batch_aligned`` is false a batch of the log goes on behind
    ``offset``, and no snapshot may end there.
    """

    offset: int
    epoch: int
    last_contained_log_timestamp_ms: int
    is_batch_aligned: bool
    table: TableImage
    state: StateImage


class ImageDelta:
    """What changed from ``before`` to ``image``; ``before`` is None where it is full, and
    everything counts as new: what a publisher has beyond that is gone.

    Making one costs nothing; the first question costs what changed. It keeps both images alive:
    drop it, and the images, once done. ``byte_size`` and ``batch_count`` are of the log in between.
    """

    def __init__(
        self, before: Image | None, image: Image, *, byte_size: int = 0, batch_count: int = 0
    ) -> None:
        self.before = before
        self.image = image
        self.byte_size = byte_size
        self.batch_count = batch_count

    @property
    def is_full(self) -> bool:
        return self.before is None

    @cached_property
    def _table(self) -> TableDelta:
        assert self.before is not None
        return TableDelta(self.before.table, self.image.table)

    @property
    def rows_changed(self) -> NDArray[np.int32]:
        """Rows that both images have and that records wrote to in between, ascending."""
        return _NO_ROWS if self.before is None else self._table.rows_changed

    @cached_property
    def rows_added(self) -> list[tuple[int, int]]:
        """Ranges ``(first, last + 1)`` of rows that only ``image`` has."""
        if self.before is not None:
            return self._table.rows_added
        is_live = np.concatenate([[False], self.image.table.column("topic") >= 0, [False]])
        ends = np.flatnonzero(is_live[1:] != is_live[:-1])
        return [(int(first), int(end)) for first, end in ends.reshape(-1, 2)]

    @cached_property
    def topics_added(self) -> list[int]:
        """Numbers of topics that only ``image`` has; one made again under its name is one."""
        return self.image.table.topic_numbers() if self.is_full else self._table.topics_added

    @property
    def topics_removed(self) -> list[int]:
        """Numbers of topics that only ``before`` has."""
        return [] if self.is_full else self._table.topics_removed

    @cached_property
    def changes(self) -> Mapping[str, Mapping[Hashable, Changed]]:
        """Of all that is no topic or partition: kind -> key -> before and now."""
        if self.before is None:
            return self.image.state.everything()
        return self.image.state.changes_since(self.before.state)

    def __repr__(self) -> str:
        since = "nothing" if self.before is None else self.before.offset
        return f"ImageDelta(from {since} to {self.image.offset})"


class Publisher(Protocol):
    """Whoever is told of new metadata. ``name`` is for the log."""

    @property
    def name(self) -> str: ...

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Takes over what changed. A delta that is full says so, and is to be taken as all there
        is.
        """


class Phase(IntEnum):
    """When a publisher's turn is."""

    REPLICA_MANAGER = 0
    COORDINATORS = 1
    OTHERS = 2
    METADATA_CACHE = 3


class _Batch(NamedTuple):
    """A batch of the log that is not published yet."""

    end_offset: int
    timestamp_ms: int
    size: int


class ImagePublishing:
    """Tells publishers of what is committed on ``cluster``, which has a journal.

    ``log_fault`` hears the name of a publisher that failed, and why.
    """

    def __init__(
        self,
        cluster: Cluster,
        log_fault: Callable[[str, Exception], None] = lambda name, error: None,
    ) -> None:
        self._cluster = cluster
        self._log_fault = log_fault
        self._publishers: list[tuple[Phase, Publisher]] = []
        #: Who is told everything next time, by name, and why.
        self._behind: dict[str, str] = {}
        self._batches: deque[_Batch] = deque()
        self._begin()
        #: The last image that was published.
        self.image: Image | None = None
        #: How often each publisher failed, by name.
        self.fault_counts: dict[str, int] = {}

    def _begin(self) -> None:
        cluster = self._cluster
        self._batches.clear()
        # The cluster is as it was loaded: empty, or what a snapshot says, which ends with a batch.
        self._batch_end = cluster.next_offset
        self._timestamp_ms = cluster.state.quorum.last_contained_log_timestamp_ms

    def register(self, publisher: Publisher, phase: Phase = Phase.OTHERS) -> None:
        """Behind those that are there in its phase; it hears of everything at the next publication.

        Raises :class:`InvalidRequestError` where one of this name is there.
        """
        if any(publisher.name == other.name for _, other in self._publishers):
            raise InvalidRequestError(f"a publisher named {publisher.name} is registered already")
        self._publishers.append((phase, publisher))
        self._publishers.sort(key=lambda entry: entry[0])
        self._behind[publisher.name] = _NEW

    def unregister(self, publisher: Publisher) -> None:
        """It hears no more. Raises :class:`InvalidRequestError` where it is not registered."""
        kept = [entry for entry in self._publishers if entry[1] is not publisher]
        if len(kept) == len(self._publishers):
            raise InvalidRequestError(f"no publisher {publisher.name} is registered")
        self._publishers = kept
        self._behind.pop(publisher.name, None)

    def note_batches(self, batches: Buffer) -> None:
        """What was applied to the cluster, or will be before it is published: whole batches.

        Batches at offsets that were noted before take the place of those, as after a change of
        leadership; what is published is passed over.
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

    def replace_cluster(self, cluster: Cluster) -> None:
        """Goes on with a cluster that a snapshot was loaded into; what comes next is full."""
        self._cluster = cluster
        self.image = None
        self._begin()
        self._behind = {publisher.name: _NEW for _, publisher in self._publishers}

    def publish(self, committed_offset: int) -> ImageDelta | None:
        """Tells everyone of what is below ``committed_offset`` and in no open transaction.

        The delta that was published; None where there was nothing new to say. Raises
        :class:`InvalidRequestError` where the cluster has not come that far.
        """
        cluster, before = self._cluster, self.image
        if committed_offset > cluster.next_offset:
            raise InvalidRequestError(
                f"offset {committed_offset} is committed, and the state is at {cluster.next_offset}"
            )
        offset = cluster.stable_at(committed_offset)
        if before is not None and offset <= before.offset:
            assert committed_offset < before.offset or offset == before.offset, (
                "what was stable stays so"
            )
            # Whoever failed is told again with the next change, not for ever of the same one.
            if _NEW in self._behind.values():
                self._tell(ImageDelta(None, before), before)
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
        self._tell(delta, image)
        cluster.forget(offset)
        return delta

    def _tell(self, delta: ImageDelta, image: Image) -> None:
        full = delta if delta.is_full else None
        for _, publisher in self._publishers:
            told = delta
            if publisher.name in self._behind:
                told = full = full or ImageDelta(None, image)
            elif delta.is_full:
                # It holds all of this image already.
                continue
            try:
                publisher.on_metadata_update(told, image)
            except Exception as error:
                self.fault_counts[publisher.name] = self.fault_counts.get(publisher.name, 0) + 1
                self._behind[publisher.name] = _FAILED
                self._log_fault(publisher.name, error)
            else:
                self._behind.pop(publisher.name, None)
