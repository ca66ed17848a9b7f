"""Record batches v2 as numpy columns, read and written without the GIL."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

from kraft._core.bytes.batch import BatchTable

class BatchColumns:
    """Every record of a buffer of batches, one read-only numpy row each, in order.

    Positions count from the start of ``buffer``: the caller's buffer, or an inflated copy of it
    where a batch was compressed. A null key or value has position and length -1.
    """

    buffer: Any
    batches: BatchTable
    @staticmethod
    def read(
        buffer: Buffer, *, base_position: int = 0, verify_crc: bool = True, budget: int = ...
    ) -> BatchColumns:
        """Decode all of ``buffer``.

        Raises `CorruptRecordError` with the position of the first fault.
        """
    def __len__(self) -> int: ...
    @property
    def offsets(self) -> NDArray[np.int64]: ...
    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Milliseconds; under LogAppendTime the max_timestamp of the record's batch."""
    @property
    def create_timestamps(self) -> NDArray[np.int64]:
        """Milliseconds as written in the records, for any timestamp type."""
    @property
    def key_positions(self) -> NDArray[np.int64]: ...
    @property
    def key_lengths(self) -> NDArray[np.int32]: ...
    @property
    def value_positions(self) -> NDArray[np.int64]: ...
    @property
    def value_lengths(self) -> NDArray[np.int32]: ...
    @property
    def header_positions(self) -> NDArray[np.int64]:
        """Positions of the encoded headers; these four columns are 0 if no record has headers."""
    @property
    def header_lengths(self) -> NDArray[np.int32]: ...
    @property
    def header_counts(self) -> NDArray[np.int32]: ...
    @property
    def attributes(self) -> NDArray[np.int8]: ...
    @property
    def batch_indexes(self) -> NDArray[np.int32]:
        """The row of ``batches`` that has each record."""
    def build(self) -> memoryview:
        """Encode the columns: the batches that were read, with varints in shortest form."""

def build(
    buffer: Buffer,
    value_positions: ArrayLike,
    value_lengths: ArrayLike,
    *,
    key_positions: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    timestamps: ArrayLike | None = None,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    timestamp_ms: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    max_batch_records: int = ...,
    max_batch_size: int = ...,
) -> memoryview:
    """Build batches of records from positions (int64) and lengths (int32) in ``buffer``.

    A length of -1 is null. ``timestamps`` (int64 milliseconds) default to ``timestamp_ms``. Raises
    `InvalidRequestError` for a row outside of the buffer or columns of unequal length,
    `RecordTooLargeError` like `BatchBuilder.append`.
    """
