"""Record batches v2 as whole things; the layout is drawn in batch.pxd.

Rules: ``clients/.../record/DefaultRecordBatch.java``, ``DefaultRecord.java``, KIP-98, KIP-534.
"""

from collections.abc import Iterable
from typing import TypeAlias, TypeVar

import numpy as np
from typing_extensions import Buffer

ATTRIBUTE_LOG_APPEND_TIME: int
ATTRIBUTE_TRANSACTIONAL: int
ATTRIBUTE_CONTROL: int
DEFAULT_MAX_BATCH_RECORDS: int
DEFAULT_MAX_BATCH_SIZE: int
ROW_DTYPE: np.dtype[np.void]

_Scalar = TypeVar("_Scalar", bound=np.generic)
Column: TypeAlias = np.ndarray[tuple[int], np.dtype[_Scalar]]

class BatchTable:
    """The batches of a buffer in order: one read-only numpy column a header field, none copied.

    ``tail_position`` is the byte behind the last whole batch; ``tail_reason`` says why reading
    stopped there, or is None where the buffer ended.
    """

    tail_position: int
    tail_reason: str | None
    def __len__(self) -> int: ...
    @property
    def array(self) -> Column[np.void]:
        """All fields as one structured array of `ROW_DTYPE`; the columns below are views into
        it.
        """
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
        """Whole batches, header included: ``batch_lengths + 12``."""
    @property
    def last_offsets(self) -> Column[np.int64]: ...

def reason_text(code: int) -> str:
    """The sentence for a negative code of ``read_batch_header``."""

def scan(buffer: Buffer, *, base_position: int = 0, verify_crc: bool = True) -> BatchTable:
    """The batches at the front of ``buffer``: headers and CRCs, not the records. Raises nothing.

    Stops at the first batch that is cut short or unsound and says where and why in the table's
    ``tail_position`` and ``tail_reason``. Positions count from ``base_position``.
    """

def inflate(buffer: Buffer, *, base_position: int = 0, budget: int = ...) -> bytes:
    """The same batches uncompressed; `UnsupportedCompressionTypeError` where the codec is
    missing.
    """

def deflate(buffer: Buffer, codec: int) -> bytes:
    """The same batches under ``codec``: 1 gzip, 2 snappy, 3 lz4, 4 zstd (0: as `inflate`)."""

def assign_offsets(
    buffer: Buffer, base_offset: int, partition_leader_epoch: int, timestamp_ms: int = -1
) -> int:
    """Stamp consecutive offsets and the epoch into batches, in place; the next offset.

    Both lie outside the CRC. A ``timestamp_ms`` of 0 or more becomes that of each batch's first
    record, the others keep their distance from it, and the CRCs are taken anew. The buffer must be
    writable; an unsound one is refused before any change.
    """

def split(buffer: Buffer, max_size: int) -> list[memoryview]:
    """Runs of whole batches of at most ``max_size`` bytes, uncopied; a larger batch stands
    alone.
    """

class BatchBuilder:
    """Builds batches one behind the other in one growing buffer.

    A batch is closed, and another begun, where ``max_batch_records`` or ``max_batch_size`` (bytes)
    would be passed, or an offset is too far from the base offset. base_timestamp is the first
    record's,
    or ``delete_horizon_ms`` where that is given; under LogAppendTime max_timestamp is
    ``timestamp_ms``.
    Codec bits in ``attributes`` compress the records when the batches are finished. From
    ``base_sequence`` on, sequences follow the records from batch to batch.
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
        """Add one record and return its offset, the next one unless a later ``offset`` is given.

        Raises `RecordTooLargeError` where it alone passes ``max_batch_size``, `InvalidRequestError`
        for an offset that does not ascend.
        """
    def close_batch(self) -> None:
        """The next record begins another batch."""
    def finish(self) -> memoryview:
        """The batches with headers and CRCs, writable and not copied. Ends the builder."""
