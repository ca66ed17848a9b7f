"""Snapshots of the committed state, generated in slices between the events of a running node.

``SnapshotGeneration`` makes the bytes of a checkpoint from an image in slices of about a
millisecond, while the state moves on; ``SnapshotPolicy`` decides when a snapshot is due. The bytes
equal those of ``SnapshotWriter`` for a state that stopped at the image's offset. See
``kraft._core.snapshot.snapshot_file`` for the layout; the caller drives the slices and writes the
chunks to a file.

Invariants: a snapshot ends at the end of a batch (KAFKA-17713) and outside of metadata
transactions, as an image does; only one is generated at a time. Until the end its image keeps the
journal, and after a compaction of the table the old rows. Sources: Kafka's ``SnapshotGenerator``,
``SnapshotEmitter``, ``MetadataImage.write``, KIP-630.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft._core.snapshot.snapshot_encoder import SnapshotEncoder
from kraft._core.snapshot.snapshot_file import CHUNK_SIZE, MAX_BATCH_RECORDS
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
    """The amounts of work in a slice of about a millisecond."""

    #: Rows of the table, and topics.
    steps: int = 8192
    #: Records that are Python objects: at most so many, or so many bytes of them.
    records: int = 96
    bytes: int = 16 * 1024
    #: Keys of a mapping that are sorted.
    keys: int = 1024


_SLICE_SIZE = SliceSize()


class SnapshotGeneration:
    """The generation of one snapshot from ``image``; its batches have the time ``timestamp_ms``.

    Call `next_slice` until it returns None; to cancel, or after an error, drop the object. Raises
    :class:`InvalidRequestError` for an image that ends inside a batch,
    :class:`UnsupportedVersionError` if no metadata.version was set.
    """

    def __init__(
        self,
        image: Image,
        *,
        timestamp_ms: int,
        slice_size: SliceSize = _SLICE_SIZE,
        max_batch_records: int = MAX_BATCH_RECORDS,
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        if not image.is_batch_aligned:
            raise InvalidRequestError(
                f"no snapshot can end at offset {image.offset}: it is inside a batch of the log"
            )
        # Raises the error for a state without metadata.version.
        image.state.features.snapshot_keys()
        self.end_offset = image.offset
        self.epoch = image.epoch
        self.last_contained_log_timestamp_ms = image.last_contained_log_timestamp_ms
        self._encoder = SnapshotEncoder(
            image.epoch,
            last_contained_log_timestamp_ms=image.last_contained_log_timestamp_ms,
            timestamp_ms=timestamp_ms,
            control_records=[
                (control_type(each), encode_control(each))
                for each in image.state.quorum.snapshot_records()
            ],
            max_batch_records=max_batch_records,
            chunk_size=chunk_size,
        )
        self._size = slice_size
        self._slices: Iterator[None] | None = self._run(image)

    def next_slice(self) -> list[memoryview] | None:
        """Work for about a millisecond and return the finished chunks, to be written in this order.

        Often there are none; None means that the snapshot is complete. Raises
        :class:`UnsupportedVersionError` where the metadata.version cannot express the state.
        """
        if self._slices is None:
            return None
        try:
            next(self._slices)
        except StopIteration:
            # Drops the reference to the image.
            self._slices = None
        return self._encoder.take()

    def _run(self, image: Image) -> Iterator[None]:
        state, level = image.state, image.state.metadata_version
        version = record_version(Partition, level)
        yield from self._write_maps(state.maps_before_topics(), level)
        while not self._encoder.append_topics(
            image.table, version=version, max_steps=self._size.steps
        ):
            yield
        yield
        yield from self._write_maps(state.maps_after_topics(), level)
        self._encoder.finish()

    def _write_maps(self, maps: tuple[JournaledMap[Any, Any], ...], level: int) -> Iterator[None]:
        record_count = byte_count = 0
        for record in _records_in_slices(maps, level, self._size.keys):
            if record is not None:
                value = encode_value(record, metadata_version=level)
                self._encoder.append_value(value)
                record_count += 1
                byte_count += len(value)
                if record_count < self._size.records and byte_count < self._size.bytes:
                    continue
            record_count = byte_count = 0
            yield


def _records_in_slices(
    maps: tuple[JournaledMap[Any, Any], ...], level: int, keys_of_a_slice: int
) -> Iterator[Record | None]:
    """Iterate over the records of the mappings; None ends a slice of other work.

    The keys are copied at once, which costs some nanoseconds each. Sorting costs much more, so the
    keys are sorted in parts, which are merged while the records are written.
    """
    for each in maps:
        # Arrays, because the garbage collector does not traverse them: it would visit each key of
        # a young list of 100,000 keys.
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
    """Decides when a snapshot is due: by the bytes of records, or the age, since the last one.

    ``max_interval_ms`` 0 disables the age. ``now_ms`` is the time of a monotonic clock.
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
        """Return why the image that was just published should become a snapshot; None if not.

        Call this with every delta, because it counts their bytes. A caller that starts the snapshot
        then calls `begin`.
        """
        if delta.is_full:
            # Either a snapshot was just loaded, or the whole log was read without one.
            self.record_bytes = 0
            self.last_snapshot_ms = now_ms
        self.record_bytes += delta.byte_size
        if self.is_generating or not delta.image.is_batch_aligned:
            return None
        if self.record_bytes >= self.max_record_bytes:
            return f"{self.record_bytes} bytes of records were applied since the last snapshot"
        age_ms = now_ms - self.last_snapshot_ms
        if self.max_interval_ms and age_ms >= self.max_interval_ms:
            return f"the last snapshot is {age_ms:.0f} ms old"
        return None

    def begin(self, now_ms: float) -> None:
        """Note that a snapshot starts. Raises :class:`InvalidRequestError` during another one."""
        if self.is_generating:
            raise InvalidRequestError("another snapshot is being generated")
        self.is_generating = True
        self.record_bytes = 0
        self.last_snapshot_ms = now_ms

    def end(self) -> None:
        """Note that the snapshot is complete or failed."""
        assert self.is_generating
        self.is_generating = False
