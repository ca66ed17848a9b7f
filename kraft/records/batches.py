"""Encoding of typed records as record batches.

``values`` and ``control`` encode a record, ``BatchBuilder`` the batches. This path is for rare
records: partitions of a large cluster are encoded straight from columns to batches.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.codec.metadata_codec import Record
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
    """Return batches of these records with offsets from ``base_offset`` on; empty for no records.

    Chooses record versions, and raises errors, as ``encode_value`` does. Raises RecordTooLargeError
    for a record that alone exceeds ``MAX_BATCH_SIZE``.
    """
    builder = BatchBuilder(base_offset, epoch, timestamp_ms, max_batch_size=MAX_BATCH_SIZE)
    for record in records:
        builder.append(encode_value(record, metadata_version=metadata_version))
    return builder.finish()


def encode_control_records(
    records: Iterable[Record], *, base_offset: int = 0, epoch: int = 0, timestamp_ms: int = 0
) -> memoryview:
    """Return one control batch of these control records, each with its key.

    Otherwise as ``encode_records``.
    """
    builder = BatchBuilder(base_offset, epoch, timestamp_ms, _CONTROL_ATTRIBUTE)
    for record in records:
        builder.append(encode_control(record), encode_control_key(record))
    return builder.finish()
