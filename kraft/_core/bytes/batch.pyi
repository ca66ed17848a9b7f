"""Record batches v2: scan, build, recompress, set offsets, split; the layout is in batch.pxd.

Rules: ``clients/.../record/DefaultRecordBatch.java``, ``DefaultRecord.java``, KIP-98, KIP-534.
"""

from collections.abc import Iterable
from typing import TypeAlias, TypeVar

import numpy as np
from typing_extensions import Buffer

ATTRIBUTE_LOG_APPEND_TIME: int
ATTRIBUTE_TRANSACTIONAL: int
ATTRIBUTE_CONTROL: int
ATTRIBUTE_DELETE_HORIZON: int
DEFAULT_MAX_BATCH_RECORDS: int
DEFAULT_MAX_BATCH_SIZE: int
ROW_DTYPE: np.dtype[np.void]

_Scalar = TypeVar("_Scalar", bound=np.generic)
Column: TypeAlias = np.ndarray[tuple[int], np.dtype[_Scalar]]

class BatchTable:
    """The batches of a buffer in order: one read-only numpy column a header field, without copies.

    ``tail_position`` is the position after the last whole batch. ``tail_reason`` says why the scan
    stopped there; it is None where the buffer ended.
    """

    tail_position: int
    tail_reason: str | None
    def __len__(self) -> int: ...
    @property
    def array(self) -> Column[np.void]:
        """All fields as one structured array of `ROW_DTYPE`; the columns below are views of it."""
    @property
    def positions(self) -> Column[np.int64]: ...
    @property
    def base_offsets(self) -> Column[np.int64]: ...
    @property
    def base_timestamps(self) -> Column[np.int64]: ...
    @property
    def max_timestamps(self) -> Column[np.int64]: ...
    @property
    def producer_ids(self) -> Column[np.int64]: ...
    @property
    def batch_lengths(self) -> Column[np.int32]: ...
    @property
    def partition_leader_epochs(self) -> Column[np.int32]: ...
    @property
    def crcs(self) -> Column[np.uint32]: ...
    @property
    def last_offset_deltas(self) -> Column[np.int32]: ...
    @property
    def base_sequences(self) -> Column[np.int32]: ...
    @property
    def record_counts(self) -> Column[np.int32]: ...
    @property
    def attributes(self) -> Column[np.int16]: ...
    @property
    def producer_epochs(self) -> Column[np.int16]: ...
    @property
    def magics(self) -> Column[np.int8]: ...
    @property
    def sizes(self) -> Column[np.int32]:
        """Sizes of whole batches in bytes, header included: ``batch_lengths + 12``."""
    @property
    def last_offsets(self) -> Column[np.int64]: ...

def reason_text(code: int) -> str:
    """Return the sentence for a negative code of ``read_batch_header``."""

def scan(buffer: Buffer, *, base_position: int = 0, verify_crc: bool = True) -> BatchTable:
    """Return the batches at the front of ``buffer`` after checking headers and CRCs, not records.

    Stops at the first batch that is cut short or malformed and sets the table's ``tail_position``
    and ``tail_reason``. Positions count from ``base_position``. Raises nothing.
    """

def inflate(buffer: Buffer, *, base_position: int = 0, budget: int = ...) -> bytes:
    """Return the same batches uncompressed.

    Raises `UnsupportedCompressionTypeError` if the codec is not installed.
    """

def deflate(buffer: Buffer, codec: int) -> bytes:
    """Return the same batches compressed: 1 gzip, 2 snappy, 3 lz4, 4 zstd (0: like `inflate`)."""

def assign_offsets(
    buffer: Buffer, base_offset: int, partition_leader_epoch: int, timestamp_ms: int = -1
) -> int:
    """Write consecutive offsets and a leader epoch into batches in place; return the next offset.

    Both are outside of the CRC. A ``timestamp_ms`` >= 0 becomes the timestamp of each batch's first
    record, the others keep their distance from it, and the CRCs are computed again. The buffer must
    be writable; malformed batches raise `CorruptRecordError` before any change.
    """

def split(buffer: Buffer, max_size: int) -> list[memoryview]:
    """Return runs of whole batches of at most ``max_size`` bytes, not copied.

    A larger batch is a run by itself.
    """

class BatchBuilder:
    """A builder of record batches, one after the other in one growing buffer.

    It closes a batch and begins another where ``max_batch_records`` or ``max_batch_size`` (bytes)
    would be exceeded, or an offset is too far from the base offset. base_timestamp is the first
    record's, or ``delete_horizon_ms`` if given. Under LogAppendTime max_timestamp is
    ``timestamp_ms``. Codec bits in ``attributes`` compress the records in `finish`. With a
    ``base_sequence``, each batch's base sequence follows the records before it.
    """

    next_offset: int
    record_count: int
    batch_count: int
    max_batch_records: int
    max_batch_size: int
    partition_leader_epoch: int
    attributes: int
    timestamp_ms: int
    delete_horizon_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    def __init__(
        self,
        base_offset: int = 0,
        partition_leader_epoch: int = -1,
        timestamp_ms: int = 0,
        attributes: int = 0,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        delete_horizon_ms: int = -1,
        max_batch_records: int = ...,
        max_batch_size: int = ...,
        capacity: int = 0,
    ) -> None: ...
    @property
    def size(self) -> int:
        """Bytes written so far."""
    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Iterable[tuple[str | bytes, bytes | None]] = (),
        timestamp_ms: int | None = None,
        offset: int | None = None,
    ) -> int:
        """Append one record; return its offset, which is the next one unless ``offset`` is given.

        Raises `RecordTooLargeError` if the record alone exceeds ``max_batch_size``,
        `InvalidRequestError` for an offset that does not ascend.
        """
    def close_batch(self) -> None:
        """Close the open batch, so that the next record begins another."""
    def finish(self) -> memoryview:
        """Return the batches with headers and CRCs, writable and not copied; ends the builder."""
