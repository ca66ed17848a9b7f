"""Typed records, to the record batches in which they travel and lie in the log.

Owns nothing of its own: ``values`` and ``control`` make the bytes of a record, ``BatchBuilder`` the
batches around them. This is the path for rare records; the partitions of a large cluster go
straight between columns and batches.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft._core.batch import BatchBuilder
from kraft._core.metadata_codec import Record
from kraft.records.control import encode_control, encode_control_key
from kraft.records.values import encode_value

#: The most bytes in one batch of the metadata log (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
MAX_BATCH_SIZE = 8 * 1024 * 1024

_CONTROL_ATTRIBUTE = 0x20


def encode_records(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    epoch: int = 0,
    timestamp_ms: int = 0,
    metadata_version: int | None = None,
) -> memoryview:
    """Batches of these records, one offset each from ``base_offset`` on; empty for no records.

    Versions are chosen as by ``encode_value``, which says what is raised too. A record that alone
    passes ``MAX_BATCH_SIZE`` raises RecordTooLargeError.
    """
    builder = BatchBuilder(base_offset, epoch, timestamp_ms, max_batch_size=MAX_BATCH_SIZE)
    for record in records:
        builder.append(encode_value(record, metadata_version=metadata_version))
    return builder.finish()


def encode_control_records(
    records: Iterable[Record], *, base_offset: int = 0, epoch: int = 0, timestamp_ms: int = 0
) -> memoryview:
    """One control batch of these control records, each with its key; as ``encode_records``."""
    builder = BatchBuilder(base_offset, epoch, timestamp_ms, _CONTROL_ATTRIBUTE)
    for record in records:
        builder.append(encode_control(record), encode_control_key(record))
    return builder.finish()
