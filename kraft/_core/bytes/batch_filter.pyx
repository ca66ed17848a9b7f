"""Compaction of batches: drop the records that later ones replace, as Kafka's cleaner does.

Layout of a batch that is written again (the rest is as in the original): the codec, base and last
offset, producer and epoch stay; base_timestamp is the delete horizon if the batch has one (bit 6 of
the attributes), else the timestamp of the first record that is left; max_timestamp is that of the
records that are left. A batch without records keeps max_timestamp and has base_timestamp -1.

Invariants: a record becomes no Python object. Batches that stay as they are are copied as bytes.
Counts and sizes are compared with the bytes left before they are used.

Rules: ``storage/.../log/Cleaner.java``, ``clients/.../record/MemoryRecords.java`` (filterTo). Kafka
keeps no attributes of single records, which v2 does not use; nor does this.

Used by `kraft.broker.log.compaction`.
"""

from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from kraft._core.bytes.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, CONTROL_FLAG, CRC_START, DELETE_HORIZON_FLAG, LOG_OVERHEAD,
    MAGIC_V2, TIMESTAMP_TYPE_FLAG, TRANSACTIONAL_FLAG, BatchHeader, RecordFrame, next_record,
    put_record, read_batch_header, size_of_record, take_block,
)
from kraft._core.bytes.crc32c cimport crc32c_of
from kraft._core.bytes.key_offsets cimport KeyOffsets, plain_records
from kraft._core.bytes.wire cimport store_u16, store_u32, store_u64, unlikely

from kraft._core.bytes import compression
from kraft._core.bytes.batch import reason_text
from kraft._core.bytes.compression import DEFAULT_BUDGET
from kraft.errors import CorruptRecordError, RecordTooLargeError

cdef enum:
    ALL_RECORDS_GO = 1
    STAYS_EMPTY = 2
    MARKER_OF_NOTHING = 4
    NO_TIMESTAMP = -1
    MOST_GROWTH = 16            # of a record that is written with another timestamp delta

DISCARD = ALL_RECORDS_GO
RETAIN_EMPTY = STAYS_EMPTY
ENDS_NOTHING = MARKER_OF_NOTHING


class FilteredBatches(NamedTuple):
    data: memoryview
    read_count: int
    kept_count: int


cdef struct Output:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t capacity


cdef struct Kept:
    uint8_t *marks              # of each record of a batch: it stays; from malloc
    Py_ssize_t capacity
    int32_t count
    bint has_tombstone
    int64_t first_timestamp
    int64_t max_timestamp


cdef uint8_t *reserve(Output *output, Py_ssize_t size) except NULL:
    """Return where `size` more bytes may be written."""
    cdef Py_ssize_t wanted = output.size + size
    cdef void *grown
    if wanted > output.capacity:
        wanted = max(wanted, output.capacity + output.capacity // 2)
        grown = realloc(output.data, <size_t>wanted)
        if grown == NULL:
            raise MemoryError
        output.data = <uint8_t *>grown
        output.capacity = wanted
    return output.data + output.size


cdef inline int64_t timestamp_of(
    const BatchHeader *header, const RecordFrame *frame
) noexcept nogil:
    if header.attributes & TIMESTAMP_TYPE_FLAG:
        return header.max_timestamp
    return <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>frame.timestamp_delta)


cdef inline bint stays(
    KeyOffsets offsets, const BatchHeader *header, const RecordFrame *frame, int64_t now_ms
) noexcept nogil:
    cdef int64_t offset = header.base_offset + frame.offset_delta
    if header.attributes & CONTROL_FLAG or offset > offsets.latest_offset:
        return True
    if frame.key_size < 0 or offsets.offset_of(frame.key, frame.key_size) > offset:
        return False
    return (
        frame.value_size >= 0
        or not header.attributes & DELETE_HORIZON_FLAG
        or now_ms < header.base_timestamp
    )


cdef bint mark_kept(
    KeyOffsets offsets, const uint8_t *p, const uint8_t *end, const BatchHeader *header,
    int64_t now_ms, Kept *kept,
) noexcept nogil:
    """Mark the records that stay; return False for malformed records."""
    cdef RecordFrame frame
    cdef int64_t timestamp
    cdef int32_t i
    for i in range(header.record_count):
        p = next_record(p, end, &frame)
        if unlikely(p == NULL):
            return False
        kept.marks[i] = stays(offsets, header, &frame, now_ms)
        if kept.marks[i]:
            timestamp = timestamp_of(header, &frame)
            if kept.count == 0:
                kept.first_timestamp = timestamp
            kept.max_timestamp = max(kept.max_timestamp, timestamp)
            kept.count += 1
            if frame.value_size < 0:
                kept.has_tombstone = True
    return p == end


cdef Py_ssize_t write_kept(
    uint8_t *out, const uint8_t *p, const uint8_t *end, const BatchHeader *header,
    const Kept *kept, int64_t base_timestamp,
) noexcept nogil:
    """Write the records that stay; return the size of their bytes, -1 if the records changed."""
    cdef RecordFrame frame
    cdef uint8_t *start = out
    cdef int64_t delta
    cdef int32_t i
    for i in range(header.record_count):
        p = next_record(p, end, &frame)
        if unlikely(p == NULL):
            return -1
        if not kept.marks[i]:
            continue
        delta = <int64_t>(<uint64_t>timestamp_of(header, &frame) - <uint64_t>base_timestamp)
        out = put_record(
            out,
            size_of_record(
                delta, frame.offset_delta, frame.key_size, frame.value_size, frame.header_count,
                frame.headers_size,
            ),
            0, delta, frame.offset_delta, frame.key, frame.key_size, frame.value,
            frame.value_size, frame.header_count, frame.headers, frame.headers_size,
        )
    return out - start


cdef void write_header(
    uint8_t *p, const BatchHeader *header, Py_ssize_t records_size, int32_t record_count,
    uint16_t attributes, int64_t base_timestamp, int64_t max_timestamp,
) noexcept nogil:
    """Write the header before the records of a batch, with the CRC of both."""
    store_u64(p, <uint64_t>header.base_offset)
    store_u32(p + 8, <uint32_t>(BATCH_OVERHEAD - LOG_OVERHEAD + records_size))
    store_u32(p + 12, <uint32_t>header.partition_leader_epoch)
    p[16] = MAGIC_V2
    store_u16(p + 21, attributes)
    store_u32(p + 23, <uint32_t>header.last_offset_delta)
    store_u64(p + 27, <uint64_t>base_timestamp)
    store_u64(p + 35, <uint64_t>max_timestamp)
    store_u64(p + 43, <uint64_t>header.producer_id)
    store_u16(p + 51, <uint16_t>header.producer_epoch)
    store_u32(p + 53, <uint32_t>header.base_sequence)
    store_u32(p + 57, <uint32_t>record_count)
    store_u32(p + 17, crc32c_of(p + CRC_START, BATCH_OVERHEAD - CRC_START + records_size))


cdef class BatchFilter:
    """The state of one call of `filter_batches`."""

    cdef KeyOffsets offsets
    cdef int64_t now_ms
    cdef int64_t delete_retention_ms
    cdef int64_t budget
    cdef Output output
    cdef Kept kept
    cdef int64_t read_count
    cdef int64_t kept_count

    def __dealloc__(self):
        free(self.output.data)
        free(self.kept.marks)

    cdef int add(
        self, const uint8_t *p, const BatchHeader *header, int64_t position, int retention
    ) except -1:
        """Filter the batch at p."""
        cdef const uint8_t *plain = p + BATCH_OVERHEAD
        cdef Py_ssize_t size = header.batch_length - (BATCH_OVERHEAD - LOG_OVERHEAD)
        cdef bint is_sound
        cdef int64_t horizon = NO_TIMESTAMP
        cdef bint has_horizon = header.attributes & DELETE_HORIZON_FLAG
        cdef bytes inflated = None
        self.kept.count = 0
        if not retention & ALL_RECORDS_GO:
            if header.attributes & CODEC_MASK and header.record_count:
                inflated = plain_records(plain, size, header, position, self.budget)
                plain = <const uint8_t *>PyBytes_AS_STRING(inflated)
                size = PyBytes_GET_SIZE(inflated)
            self.reserve_marks(header.record_count)
            self.kept.has_tombstone = False
            self.kept.max_timestamp = NO_TIMESTAMP
            with nogil:
                is_sound = mark_kept(
                    self.offsets, plain, plain + size, header, self.now_ms, &self.kept
                )
            if not is_sound:
                raise CorruptRecordError("a record is malformed", position=position)
        self.read_count += header.record_count
        self.kept_count += self.kept.count
        if self.kept.count == 0:
            if retention & STAYS_EMPTY:
                self.add_empty(header)
            return 0
        if not has_horizon and (self.kept.has_tombstone or retention & MARKER_OF_NOTHING):
            horizon = self.now_ms + self.delete_retention_ms
        elif self.kept.count == header.record_count:
            self.add_bytes(p, LOG_OVERHEAD + header.batch_length)
            return 0
        elif has_horizon:
            horizon = header.base_timestamp
        self.add_rewritten(
            plain, size, header, has_horizon or horizon != NO_TIMESTAMP, horizon, position
        )
        return 0

    cdef int reserve_marks(self, int32_t count) except -1:
        if count > self.kept.capacity:
            free(self.kept.marks)
            self.kept.capacity = 0
            self.kept.marks = <uint8_t *>malloc(<size_t>count)
            if self.kept.marks == NULL:
                raise MemoryError
            self.kept.capacity = count
        return 0

    cdef int add_bytes(self, const uint8_t *p, Py_ssize_t size) except -1:
        memcpy(reserve(&self.output, size), p, <size_t>size)
        self.output.size += size
        return 0

    cdef int add_empty(self, const BatchHeader *header) except -1:
        """Keep a batch without records, for the sequence of its producer or its last offset."""
        write_header(
            reserve(&self.output, BATCH_OVERHEAD), header, 0, 0,
            <uint16_t>header.attributes
            & (TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG),
            NO_TIMESTAMP, header.max_timestamp,
        )
        self.output.size += BATCH_OVERHEAD
        return 0

    cdef int add_rewritten(
        self, const uint8_t *p, Py_ssize_t size, const BatchHeader *header, bint has_horizon,
        int64_t horizon, int64_t position,
    ) except -1:
        """Write the batch with the records that stay."""
        cdef Py_ssize_t most = size + <Py_ssize_t>self.kept.count * MOST_GROWTH
        cdef int64_t base_timestamp = horizon if has_horizon else self.kept.first_timestamp
        cdef int64_t max_timestamp = self.kept.max_timestamp
        cdef uint16_t attributes = <uint16_t>header.attributes & (
            CODEC_MASK | TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
        )
        cdef uint8_t *out = reserve(&self.output, BATCH_OVERHEAD + most)
        cdef Py_ssize_t written
        if has_horizon:
            attributes |= DELETE_HORIZON_FLAG
        with nogil:
            written = write_kept(
                out + BATCH_OVERHEAD, p, p + size, header, &self.kept, base_timestamp
            )
        if written < 0:
            raise CorruptRecordError(
                "the records of a batch changed while they were read", position=position
            )
        if attributes & CODEC_MASK:
            compressed = compression.compress(
                attributes & CODEC_MASK,
                PyBytes_FromStringAndSize(<char *>out + BATCH_OVERHEAD, written),
            )
            written = PyBytes_GET_SIZE(compressed)
            out = reserve(&self.output, BATCH_OVERHEAD + written)
            memcpy(out + BATCH_OVERHEAD, PyBytes_AS_STRING(compressed), <size_t>written)
        if written > INT32_MAX - BATCH_OVERHEAD:
            raise RecordTooLargeError(f"the batch at position {position} grows beyond 2 GiB")
        with nogil:
            write_header(
                out, header, written, self.kept.count, attributes, base_timestamp,
                header.max_timestamp if attributes & TIMESTAMP_TYPE_FLAG else max_timestamp,
            )
        self.output.size += BATCH_OVERHEAD + written
        return 0

    cdef object take(self):
        """Return what was written."""
        cdef uint8_t *data = self.output.data
        if self.output.size == 0:
            return memoryview(b"")
        self.output.data = NULL
        return memoryview(take_block(data, self.output.size))


def filter_batches(
    batches, KeyOffsets offsets not None, int64_t now_ms, int64_t delete_retention_ms,
    retention=None, *, int64_t budget=DEFAULT_BUDGET,
):
    cdef Py_buffer view
    cdef BatchHeader header
    cdef BatchFilter filter = BatchFilter.__new__(BatchFilter)
    cdef const uint8_t[::1] codes = retention
    cdef const uint8_t *p
    cdef Py_ssize_t position = 0, index = 0
    cdef int code, kind
    filter.offsets = offsets
    filter.now_ms = now_ms
    filter.delete_retention_ms = delete_retention_ms
    filter.budget = budget
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        while position < view.len:
            code = read_batch_header(p + position, <size_t>(view.len - position), &header)
            if code:
                raise CorruptRecordError(reason_text(code), position=position)
            kind = 0
            if codes is not None and index < codes.shape[0]:
                kind = codes[index]
            filter.add(p + position, &header, position, kind)
            position += LOG_OVERHEAD + header.batch_length
            index += 1
    finally:
        PyBuffer_Release(&view)
    return FilteredBatches(filter.take(), filter.read_count, filter.kept_count)
