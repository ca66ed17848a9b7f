"""Validation of the record batch that a client produced to one partition.

`check_produced` rejects the bytes, or returns the batch that the leader appends.
``batch.assign_offsets`` sets its base offset and leader epoch, which lie outside of the CRC. So a
caller can check a batch before it takes the lock of the partition's log.

Invariants: nothing of the caller's buffer changes unless the batch is accepted. A record becomes no
Python object. CRC and records are checked without the GIL. Counts and sizes are compared with the
bytes left before they are used; compressed records are inflated to at most ``budget`` bytes.

Rules: ``clients/.../requests/ProduceRequest.java`` (validateRecords), ``storage/.../log/
UnifiedLog.java`` (analyzeAndValidateRecords), ``storage/.../log/LogValidator.java``. kraft differs
from Kafka where Kafka's answer is UNKNOWN_SERVER_ERROR or leaves a log that its own readers reject:

- An unknown codec is UNSUPPORTED_COMPRESSION_TYPE, and records that do not decompress are
  INVALID_RECORD. Kafka answers UNKNOWN_SERVER_ERROR.
- Lengths below -1 of keys and values, and varints of more than 32 or 64 bits, are INVALID_RECORD.
- A batch whose offset deltas are not 0, 1, 2 ... is built again with these. Kafka does so where it
  changes the codec, appends an uncompressed batch as it is, and fails on any other.
- A batch with negative timestamps, or of a producer id without an epoch, is built again like any
  other. Kafka's builder fails.
- A batch that is built again keeps names of headers that are not UTF-8. Kafka replaces bytes.
- At most MAX_RECORD_ERRORS records are named.
"""

from cpython.buffer cimport (
    PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kraft._core.bytes.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, CONTROL_FLAG, CRC_START, DELETE_HORIZON_FLAG, LOG_OVERHEAD,
    MAGIC_V2, TIMESTAMP_TYPE_FLAG, TRANSACTIONAL_FLAG, BatchBuilder, BatchHeader, RecordFrame,
    append_record, next_record, read_batch_header, take_block,
)
from kraft._core.bytes.crc32c cimport crc32c_of
from kraft._core.bytes.wire cimport load_u32, store_u16, store_u32, store_u64, unlikely

from kraft._core.bytes import compression
from kraft.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
    BudgetExceededError,
    CorruptRecordError,
    RejectedBatchError,
)

cdef enum:
    MOST_RECORD_ERRORS = 1000
    SIZE_UP_TO_MAGIC = 17
    LEAST_BATCH_LENGTH = 14     # Kafka's smallest batch_length of any magic
    NO_TIMESTAMP = -1
    KNOWN_FLAGS = (
        CODEC_MASK | TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
    )

    # The faults of a record.
    NO_KEY = 1
    TIMESTAMP_OUT_OF_RANGE = 2
    SENT_AS_APPEND_TIME = 3

MAX_RECORD_ERRORS = MOST_RECORD_ERRORS


cdef struct Rules:
    bint append_time            # the topic's message.timestamp.type
    bint keys_required
    int64_t now_ms
    int64_t before_max_ms
    int64_t after_max_ms


cdef struct RecordFault:
    int32_t index
    int32_t kind
    int64_t offset
    int64_t timestamp


cdef struct Findings:
    int64_t max_timestamp       # of all records; -1 without a larger one
    int32_t max_timestamp_index
    bint is_dense               # offset deltas are 0, 1, 2 ...
    int32_t fault_count
    RecordFault *faults         # the first MOST_RECORD_ERRORS; from malloc


cdef inline int64_t minus(int64_t left, int64_t right) noexcept nogil:
    """Subtract with Java's overflow."""
    return <int64_t>(<uint64_t>left - <uint64_t>right)


cdef inline int64_t plus(int64_t left, int64_t right) noexcept nogil:
    """Add with Java's overflow."""
    return <int64_t>(<uint64_t>left + <uint64_t>right)


cdef inline int fault_of(
    const RecordFrame *frame, int64_t timestamp, bint sent_as_append_time, const Rules *rules
) noexcept nogil:
    """Return the kind of fault of one record, or 0."""
    cdef int64_t age
    if unlikely(rules.keys_required and frame.key_size < 0):
        return NO_KEY
    if not rules.append_time and timestamp != NO_TIMESTAMP:
        age = minus(rules.now_ms, timestamp)
        if unlikely(age > rules.before_max_ms or age < minus(0, rules.after_max_ms)):
            return TIMESTAMP_OUT_OF_RANGE
    elif unlikely(sent_as_append_time):
        return SENT_AS_APPEND_TIME
    return 0


cdef int add_fault(
    Findings *found, int32_t index, int kind, int32_t offset_delta, int64_t timestamp
) noexcept nogil:
    """Count a fault and keep it, if it is one of the first; return 0, or -1 without memory."""
    cdef RecordFault *fault
    if found.faults == NULL:
        found.faults = <RecordFault *>malloc(MOST_RECORD_ERRORS * sizeof(RecordFault))
        if found.faults == NULL:
            return -1
    if found.fault_count < MOST_RECORD_ERRORS:
        fault = &found.faults[found.fault_count]
        fault.index = index
        fault.kind = kind
        fault.offset = offset_delta
        fault.timestamp = timestamp
    found.fault_count += 1
    return 0


cdef int check_records(
    const uint8_t *p, const uint8_t *end, const BatchHeader *header, const Rules *rules,
    Findings *found,
) noexcept nogil:
    """Check the records from p to end and fill `found`.

    Return 0, -1 without memory, the place (from 1) of a malformed record, or INT32_MAX for bytes
    left over.
    """
    cdef RecordFrame frame
    cdef bint sent_as_append_time = header.attributes & TIMESTAMP_TYPE_FLAG
    cdef int64_t timestamp
    cdef int32_t i
    cdef int kind
    found.max_timestamp = NO_TIMESTAMP
    found.is_dense = True
    for i in range(header.record_count):
        p = next_record(p, end, &frame)
        if unlikely(p == NULL):
            return 1 + i
        timestamp = (
            header.max_timestamp if sent_as_append_time
            else plus(header.base_timestamp, frame.timestamp_delta)
        )
        if unlikely(frame.offset_delta != i):
            found.is_dense = False
        kind = fault_of(&frame, timestamp, sent_as_append_time, rules)
        if unlikely(kind != 0) and add_fault(found, i, kind, frame.offset_delta, timestamp) < 0:
            return -1
        if timestamp > found.max_timestamp:
            found.max_timestamp = timestamp
            found.max_timestamp_index = i
    return 0 if p == end else INT32_MAX


cdef class ProducedBatch:
    cdef readonly object data
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t append_time_ms
    cdef readonly int64_t producer_id
    cdef readonly int64_t record_bytes
    cdef readonly int32_t max_timestamp_delta
    cdef readonly int32_t record_count
    cdef readonly int32_t base_sequence
    cdef readonly int16_t producer_epoch
    cdef readonly int8_t codec
    cdef readonly bint is_transactional
    cdef readonly bint is_rebuilt

    def __repr__(self):
        return (
            f"ProducedBatch(record_count={self.record_count}, size={len(self.data)}, "
            f"max_timestamp={self.max_timestamp}, producer_id={self.producer_id})"
        )


cdef int reject(int code, str message) except -1:
    raise RejectedBatchError(message, code)


cdef int check_frame(
    const uint8_t *p, Py_ssize_t size, bint zstd_allowed, str partition
) except -1:
    """Return the size of the one batch at the front of the bytes; raise if it is not one."""
    cdef int32_t length
    cdef Py_ssize_t whole
    if not begins_whole_batch(p, size, partition):
        reject(INVALID_RECORD, f"the records for {partition} hold no whole batch")
    length = <int32_t>load_u32(p + 8)
    whole = <Py_ssize_t>length + LOG_OVERHEAD
    if p[16] != MAGIC_V2:
        reject(
            INVALID_RECORD,
            f"the batch for {partition} has magic {p[16]}; Produce requests of version 3 and newer "
            "take only batches of magic 2",
        )
    if not zstd_allowed and (p[22] & CODEC_MASK) == 4:
        reject(
            UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch for {partition} is compressed with zstd, which Produce requests take from "
            "version 7 on",
        )
    # As in Kafka, an incomplete second batch is left out without an error.
    if begins_whole_batch(p + whole, size - whole, partition):
        reject(
            INVALID_RECORD,
            f"the records for {partition} hold more than one batch; a Produce request has one for "
            "each partition",
        )
    return <int>whole


cdef bint begins_whole_batch(const uint8_t *p, Py_ssize_t size, str partition) except -1:
    """Return whether a whole batch of any magic begins at p; raise for a malformed one."""
    cdef int32_t length
    if size < LOG_OVERHEAD:
        return False
    length = <int32_t>load_u32(p + 8)
    if length < LEAST_BATCH_LENGTH:
        reject(
            CORRUPT_MESSAGE,
            f"a batch for {partition} has length {length}; at least {LEAST_BATCH_LENGTH} is needed",
        )
    if size < SIZE_UP_TO_MAGIC:
        return False
    if p[16] > MAGIC_V2:
        reject(CORRUPT_MESSAGE, f"a batch for {partition} has the unknown magic {<int8_t>p[16]}")
    return size - LOG_OVERHEAD >= length


cdef int check_header(const BatchHeader *header, str partition) except -1:
    """Check the fields that do not depend on the records, in Kafka's order."""
    cdef int64_t span = <int64_t>header.last_offset_delta + 1
    if (header.attributes & CODEC_MASK) > 4:
        reject(
            UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch for {partition} is compressed with the unknown codec "
            f"{header.attributes & CODEC_MASK}",
        )
    if span <= 0 or header.record_count <= 0 or span != header.record_count:
        reject(
            INVALID_RECORD,
            f"the batch for {partition} has {header.record_count} records, but its last offset "
            f"delta is {header.last_offset_delta}",
        )
    if header.attributes & CONTROL_FLAG:
        reject(INVALID_RECORD, f"clients may not write control records to {partition}")
    if header.producer_id >= 0 and header.base_sequence < 0:
        reject(
            INVALID_RECORD,
            f"the batch for {partition} of producer {header.producer_id} has the base sequence "
            f"{header.base_sequence}; it must not be negative",
        )
    return 0


cdef str fault_text(const RecordFault *fault, const Rules *rules, str partition):
    """Return the message for one record; clients know these sentences from Kafka."""
    if fault.kind == NO_KEY:
        return f"Compacted topic cannot accept message without key in topic partition {partition}"
    if fault.kind == TIMESTAMP_OUT_OF_RANGE:
        return (
            f"Timestamp {fault.timestamp} of message with offset {fault.offset} is out of range. "
            f"The timestamp should be within [{minus(rules.now_ms, rules.before_max_ms)}, "
            f"{plus(rules.now_ms, rules.after_max_ms)}]"
        )
    return (
        f"Invalid timestamp type in message with offset {fault.offset}. Producer should not set "
        "timestamp type to LogAppendTime."
    )


cdef int reject_records(const Findings *found, const Rules *rules, str partition) except -1:
    cdef int32_t kept = min(found.fault_count, <int32_t>MOST_RECORD_ERRORS)
    cdef int32_t i
    cdef int code = INVALID_RECORD
    record_errors = []
    for i in range(kept):
        if found.faults[i].kind != NO_KEY:
            code = INVALID_TIMESTAMP
        record_errors.append(
            (found.faults[i].index, fault_text(&found.faults[i], rules, partition))
        )
    raise RejectedBatchError(
        f"{found.fault_count} records for {partition} are rejected, the first with index "
        f"{found.faults[0].index}: {record_errors[0][1]}",
        code,
        record_errors,
    )


cdef bytes inflated(
    const uint8_t *p, Py_ssize_t size, int codec, int64_t budget, str partition
):
    try:
        return compression.decompress(
            codec, PyMemoryView_FromMemory(<char *>p, size, PyBUF_READ), budget
        )
    except BudgetExceededError as error:
        raise RejectedBatchError(
            f"the batch for {partition} inflates to more than {budget} bytes", MESSAGE_TOO_LARGE
        ) from error
    except CorruptRecordError as error:
        raise RejectedBatchError(f"{error.reason}, for {partition}", INVALID_RECORD) from error


cdef object rebuilt(
    const uint8_t *p, const uint8_t *end, const BatchHeader *header, const Rules *rules, int codec
):
    """Return the batch with the same records, checked before, in `codec` and with dense offsets."""
    cdef BatchBuilder builder
    cdef RecordFrame frame
    cdef int64_t timestamp
    cdef int32_t i
    cdef uint8_t *written = NULL
    builder = BatchBuilder(
        0, -1, rules.now_ms,
        codec
        | (TIMESTAMP_TYPE_FLAG if rules.append_time else 0)
        | (header.attributes & TRANSACTIONAL_FLAG),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        max_batch_records=INT32_MAX,
        max_batch_size=INT32_MAX,
        capacity=end - p + BATCH_OVERHEAD,
    )
    with nogil:
        for i in range(header.record_count):
            p = next_record(p, end, &frame)
            if p == NULL:
                break
            timestamp = (
                header.max_timestamp if header.attributes & TIMESTAMP_TYPE_FLAG
                else plus(header.base_timestamp, frame.timestamp_delta)
            )
            written = append_record(
                builder, i, timestamp, frame.key, frame.key_size, frame.value, frame.value_size,
                frame.header_count, frame.headers, frame.headers_size, 0,
            )
            if written == NULL:
                break
    if p == NULL:
        raise CorruptRecordError("the records of a batch changed while they were checked")
    if written == NULL:
        builder.raise_failure()
    return builder.finish()


cdef object writable_batch(buffer, const uint8_t *p, Py_ssize_t size):
    """Return the first `size` bytes as a writable memoryview, copied if the buffer is read-only."""
    cdef void *copy
    view = memoryview(buffer).cast("B")
    if not view.readonly:
        return view[:size]
    copy = malloc(size)
    if copy == NULL:
        raise MemoryError
    with nogil:
        memcpy(copy, p, size)
    return memoryview(take_block(copy, size))


cdef int set_max_timestamp(
    object data, const BatchHeader *header, bint append_time, int64_t value
) except -1:
    """Set timestamp type and max timestamp, and the CRC, unless both are right already."""
    cdef Py_buffer view
    cdef uint8_t *p
    cdef int16_t attributes = header.attributes
    if header.max_timestamp == value and bool(attributes & TIMESTAMP_TYPE_FLAG) == append_time:
        return 0
    attributes &= KNOWN_FLAGS & ~TIMESTAMP_TYPE_FLAG
    if append_time:
        attributes |= TIMESTAMP_TYPE_FLAG
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        p = <uint8_t *>view.buf
        with nogil:
            store_u16(p + 21, attributes)
            store_u64(p + 35, <uint64_t>value)
            store_u32(p + 17, crc32c_of(p + CRC_START, view.len - CRC_START))
    finally:
        PyBuffer_Release(&view)
    return 0


def check_produced(
    buffer, *, bint append_time, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms,
    int32_t max_size, bint keys_required, int codec=-1, bint zstd_allowed=True,
    int64_t budget=compression.DEFAULT_BUDGET, str partition="the partition",
):
    cdef Py_buffer view
    cdef BatchHeader header
    cdef Rules rules
    cdef Findings found
    cdef ProducedBatch batch = ProducedBatch.__new__(ProducedBatch)
    cdef const uint8_t *p
    cdef const uint8_t *first
    cdef const uint8_t *end
    cdef Py_ssize_t size
    cdef bytes payload
    cdef int source_codec, status
    cdef bint is_intact
    if not -1 <= codec <= 4:
        raise ValueError(f"codec {codec} does not exist")
    rules.append_time = append_time
    rules.keys_required = keys_required
    rules.now_ms = now_ms
    rules.before_max_ms = before_max_ms
    rules.after_max_ms = after_max_ms
    found.faults = NULL
    found.fault_count = 0
    found.max_timestamp_index = 0
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        size = check_frame(p, view.len, zstd_allowed, partition)
        if load_u32(p) or load_u32(p + 4):
            reject(
                INVALID_RECORD,
                f"the batch for {partition} has a base offset; a produced batch begins at 0",
            )
        if size > max_size:
            reject(
                MESSAGE_TOO_LARGE,
                f"the batch for {partition} has {size} bytes; max.message.bytes is {max_size}",
            )
        is_intact = size >= BATCH_OVERHEAD
        if is_intact:
            # Only to read the fields: what it returns follows another order than Kafka's checks.
            read_batch_header(p, size, &header)
            with nogil:
                is_intact = crc32c_of(p + CRC_START, size - CRC_START) == header.crc
        if not is_intact:
            reject(
                CORRUPT_MESSAGE,
                f"the CRC-32C of the batch for {partition} does not match its bytes",
            )
        check_header(&header, partition)
        source_codec = header.attributes & CODEC_MASK
        first = p + BATCH_OVERHEAD
        end = p + size
        if source_codec:
            payload = inflated(first, end - first, source_codec, budget, partition)
            first = <const uint8_t *>PyBytes_AS_STRING(payload)
            end = first + PyBytes_GET_SIZE(payload)
        with nogil:
            status = check_records(first, end, &header, &rules, &found)
        if status == -1:
            raise MemoryError
        if status == INT32_MAX:
            reject(
                INVALID_RECORD,
                f"bytes are left over after the {header.record_count} records of the batch for "
                f"{partition}",
            )
        if status:
            reject(
                INVALID_RECORD, f"record {status - 1} of the batch for {partition} is malformed"
            )
        if found.fault_count:
            reject_records(&found, &rules, partition)
        if codec < 0:
            codec = source_codec
        batch.record_bytes = end - first
        batch.codec = codec
        batch.max_timestamp = now_ms if append_time else found.max_timestamp
        batch.max_timestamp_delta = 0 if append_time else found.max_timestamp_index
        batch.append_time_ms = now_ms if append_time else NO_TIMESTAMP
        batch.record_count = header.record_count
        batch.producer_id = header.producer_id
        batch.producer_epoch = header.producer_epoch
        batch.base_sequence = header.base_sequence
        batch.is_transactional = header.attributes & TRANSACTIONAL_FLAG
        batch.is_rebuilt = codec != source_codec or not found.is_dense
        if batch.is_rebuilt:
            batch.data = rebuilt(first, end, &header, &rules, codec)
            if len(batch.data) > max_size:
                reject(
                    MESSAGE_TOO_LARGE,
                    f"the batch for {partition} has {len(batch.data)} bytes after compression with "
                    f"{compression.CODEC_NAMES[codec]}; max.message.bytes is {max_size}",
                )
        else:
            batch.data = writable_batch(buffer, p, size)
            set_max_timestamp(batch.data, &header, append_time, batch.max_timestamp)
        return batch
    finally:
        free(found.faults)
        PyBuffer_Release(&view)
