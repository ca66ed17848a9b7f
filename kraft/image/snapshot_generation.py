"""Snapshots of what is committed, made a slice at a time beside the running event thread.

Owns ``SnapshotGeneration``, from an image to the bytes of a checkpoint in slices of about a
millisecond while the tip moves on, and ``SnapshotPolicy``, which says when one is due. The bytes
are those that ``SnapshotWriter`` writes of a cluster that stood still at the image's offset. The
layout is drawn in ``kraft._core.snapshot_file``; whoever drives the slices writes the pieces to a
file.

Invariants: a snapshot ends with a batch of the log (KAFKA-17713) and in no metadata transaction, as
an image does; one is made at a time. Its image keeps the table from being compacted and the journal
from being forgotten until it is done. Sources: Kafka's ``SnapshotGenerator``, ``SnapshotEmitter``,
``MetadataImage.write``, KIP-630.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft._core.snapshot_file import MAX_BATCH_RECORDS, PIECE_SIZE
from kraft._core.snapshot_pieces import SnapshotPieces
from kraft.errors import InvalidRequestError
from kraft.image.journal import JournaledMap
from kraft.image.publishing import Image, ImageDelta
from kraft.records import Partition, Record, control_type, encode_control, record_version
from kraft.records.values import encode_value

#: ``metadata.log.max.record.bytes.between.snapshots``.
DEFAULT_MAX_RECORD_BYTES = 20 * 1024 * 1024
#: ``metadata.log.max.snapshot.interval.ms``.
DEFAULT_MAX_INTERVAL_MS = 60 * 60 * 1000


class SliceSize(NamedTuple):
    """What makes a slice of about a millisecond."""

    #: Rows of the table, and topics.
    steps: int = 8192
    #: Records that are Python objects, until there are so many of them or of their bytes.
    records: int = 96
    bytes: int = 16 * 1024
    #: Keys of a mapping, to be sorted.
    keys: int = 1024


_SLICE_SIZE = SliceSize()


class SnapshotGeneration:
    """The snapshot of ``image``, its batches stamped with ``timestamp_ms``.

    `next_slice` is to be called until it gives None; a generation that was raised at, or that
    nobody wants any more, is dropped. Raises :class:`InvalidRequestError` for an image that ends
    inside of a batch, :class:`UnsupportedVersionError` where no metadata.version was set.
    """

    def __init__(
        self,
        image: Image,
        *,
        timestamp_ms: int,
        slice_size: SliceSize = _SLICE_SIZE,
        max_batch_records: int = MAX_BATCH_RECORDS,
        piece_size: int = PIECE_SIZE,
    ) -> None:
        if not image.is_batch_aligned:
            raise InvalidRequestError(
                f"no snapshot ends at offset {image.offset}: a batch of the log goes on behind it"
            )
        # Asked for its error.
        image.state.features.snapshot_keys()
        self.end_offset = image.offset
        self.epoch = image.epoch
        self.last_contained_log_timestamp_ms = image.last_contained_log_timestamp_ms
        self._pieces = SnapshotPieces(
            image.epoch,
            last_contained_log_timestamp_ms=image.last_contained_log_timestamp_ms,
            timestamp_ms=timestamp_ms,
            control_records=[
                (control_type(each), encode_control(each))
                for each in image.state.quorum.snapshot_records()
            ],
            max_batch_records=max_batch_records,
            piece_size=piece_size,
        )
        self._size = slice_size
        self._slices: Iterator[None] | None = self._run(image)

    def next_slice(self) -> list[memoryview] | None:
        """Works for about a millisecond; the pieces that came of it, to be written in this order
        (often none), and None once there is nothing more to come.

        Raises :class:`UnsupportedVersionError` where the metadata.version cannot express the state.
        """
        if self._slices is None:
            return None
        try:
            next(self._slices)
        except StopIteration:
            # With it goes the image.
            self._slices = None
        return self._pieces.take()

    def _run(self, image: Image) -> Iterator[None]:
        state, level = image.state, image.state.metadata_version
        version = record_version(Partition, level)
        yield from self._write_maps(state.maps_before_topics(), level)
        while not self._pieces.append_topics(
            image.table, version=version, max_steps=self._size.steps
        ):
            yield
        yield
        yield from self._write_maps(state.maps_after_topics(), level)
        self._pieces.finish()

    def _write_maps(self, maps: tuple[JournaledMap[Any, Any], ...], level: int) -> Iterator[None]:
        record_count = byte_count = 0
        for record in _records_in_slices(maps, level, self._size.keys):
            if record is not None:
                value = encode_value(record, metadata_version=level)
                self._pieces.append_value(value)
                record_count += 1
                byte_count += len(value)
                if record_count < self._size.records and byte_count < self._size.bytes:
                    continue
            record_count = byte_count = 0
            yield


def _records_in_slices(
    maps: tuple[JournaledMap[Any, Any], ...], level: int, keys_of_a_slice: int
) -> Iterator[Record | None]:
    """The records of the mappings in their order; None where a slice's worth of other work is done.

    The keys are copied in one go, which costs some nanoseconds for each; sorting costs much more,
    and is done in parts that are merged as the records go out.
    """
    for each in maps:
        # In arrays, into which the garbage collector does not look: of a young list of 100,000 keys
        # it looks at every one.
        found = each.snapshot_keys()
        if len(found) > keys_of_a_slice:
            yield None
        keys = _array_of(found)
        del found
        order = each.snapshot_order
        parts = []
        if len(keys) > keys_of_a_slice:
            yield None
        for first in range(0, len(keys), keys_of_a_slice):
            part = keys[first : first + keys_of_a_slice].tolist()
            parts.append(_array_of(sorted(part, key=order)))
            if len(keys) > keys_of_a_slice:
                yield None
        del keys
        in_order = parts[0] if len(parts) == 1 else heapq.merge(*parts, key=order)
        for key in in_order:
            yield from each.snapshot_records_of(key, level)


def _array_of(keys: list[Any]) -> NDArray[np.object_]:
    return np.fromiter(keys, np.object_, len(keys))


class SnapshotPolicy:
    """When a snapshot is due: after so many bytes of records, or so long after the last one.

    ``max_interval_ms`` 0: age does not count. ``now_ms`` is the time of a clock that does not jump.
    """

    def __init__(
        self,
        now_ms: float,
        *,
        max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
        max_interval_ms: float = DEFAULT_MAX_INTERVAL_MS,
    ) -> None:
        self.max_record_bytes = max_record_bytes
        self.max_interval_ms = max_interval_ms
        #: Bytes of the log since the last snapshot.
        self.record_bytes = 0
        self.last_snapshot_ms = now_ms
        self.is_generating = False

    def reason(self, delta: ImageDelta, now_ms: float) -> str | None:
        """Why the image that was just published is to become a snapshot; None: it is not.

        Every delta is to be told, as its bytes count. Whoever heeds the reason says so by `begin`.
        """
        if delta.is_full:
            # Either a snapshot was just read, or everything that was read lies behind none.
            self.record_bytes = 0
            self.last_snapshot_ms = now_ms
        self.record_bytes += delta.byte_size
        if self.is_generating or not delta.image.is_batch_aligned:
            return None
        if self.record_bytes >= self.max_record_bytes:
            return f"{self.record_bytes} bytes of records came since the last one"
        age_ms = now_ms - self.last_snapshot_ms
        if self.max_interval_ms and age_ms >= self.max_interval_ms:
            return f"the last one is {age_ms:.0f} ms old"
        return None

    def begin(self, now_ms: float) -> None:
        """A snapshot is being made. Raises :class:`InvalidRequestError` beside another one."""
        if self.is_generating:
            raise InvalidRequestError("one snapshot is made at a time")
        self.is_generating = True
        self.record_bytes = 0
        self.last_snapshot_ms = now_ms

    def end(self) -> None:
        """It is there, or it failed; the next one is made when it is due."""
        assert self.is_generating
        self.is_generating = False
