"""Validation of the record batch that a client produced to one partition."""

from typing import final

from typing_extensions import Buffer

MAX_RECORD_ERRORS: int

@final
class ProducedBatch:
    """A batch that may be appended, made by `check_produced`.

    ``data`` is the whole batch, writable, with its CRC; its base offset is 0 and its leader epoch
    the client's until ``batch.assign_offsets`` sets both. Its last offset is ``record_count - 1``
    after the first. ``max_timestamp_delta`` is the offset delta of the first record that has
    ``max_timestamp`` (ms), 0 under LogAppendTime; ``append_time_ms`` is -1 under CreateTime.
    ``record_bytes`` counts the bytes of the records, inflated. ``is_rebuilt`` says that ``data`` is
    another buffer with new records: the topic has another codec, or offset deltas were wrong.
    """

    @property
    def data(self) -> memoryview: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def max_timestamp_delta(self) -> int: ...
    @property
    def append_time_ms(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def record_bytes(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_rebuilt(self) -> bool: ...

def check_produced(
    buffer: Buffer,
    *,
    append_time: bool,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
    max_size: int,
    keys_required: bool,
    codec: int = -1,
    zstd_allowed: bool = True,
    budget: int = ...,
    partition: str = ...,
) -> ProducedBatch:
    """Return the batch to append for a partition's records of a Produce request.

    ``append_time``, ``before_max_ms``, ``after_max_ms``, ``max_size`` and ``keys_required`` are the
    topic's message.timestamp.type, message.timestamp.before.max.ms and .after.max.ms,
    max.message.bytes and whether it is compacted; ``codec`` is its compression.type, -1 for the
    producer's. ``zstd_allowed`` is false for Produce requests below version 7. ``partition`` names
    the partition in messages. A writable buffer is changed in place, a read-only one is copied.

    Raises `RejectedBatchError` with Kafka's error code, and with the errors of at most
    `MAX_RECORD_ERRORS` records. Compressed records that inflate to more than ``budget`` bytes are
    MESSAGE_TOO_LARGE. Raises `UnsupportedCompressionTypeError` if a codec is not installed. The
    buffer is then unchanged.
    """
