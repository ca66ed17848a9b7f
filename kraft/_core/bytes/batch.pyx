"""Record batches v2: scan, build, recompress, set offsets, split.

This module reads and writes the batch header and the framing of records; the layout is in
batch.pxd. ``batch_check`` checks the records inside, ``batch_records`` reads them one by one and
``batch_columns`` as columns.

Invariants: reading copies no record. A header's lengths are compared with the bytes left before
they are used. base_offset and partition_leader_epoch are outside of the CRC, so `assign_offsets`
sets them in a sealed buffer in place.

Rules: ``clients/.../record/DefaultRecordBatch.java``, ``DefaultRecord.java``, KIP-98, KIP-534.
"""

cimport cython

import numpy as np

from cpython.buffer cimport (
    PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory, PyMemoryView_FromObject
from libc.stdint cimport INT32_MAX, uint16_t, uint64_t
from libc.stdlib cimport free, realloc

from kraft._core.bytes.crc32c cimport crc32c_of
from kraft._core.bytes.wire cimport (
    Writer, load_u64, store_u16, store_u32, store_u64,
)
from kraft._core.bytes import compression
from kraft.errors import (
    BudgetExceededError, CorruptRecordError, InvalidRequestError, RecordTooLargeError,
)

ATTRIBUTE_LOG_APPEND_TIME = TIMESTAMP_TYPE_FLAG
ATTRIBUTE_TRANSACTIONAL = TRANSACTIONAL_FLAG
ATTRIBUTE_CONTROL = CONTROL_FLAG
ATTRIBUTE_DELETE_HORIZON = DELETE_HORIZON_FLAG
DEFAULT_MAX_BATCH_RECORDS = 10_000
DEFAULT_MAX_BATCH_SIZE = 8 * 1024 * 1024

cdef enum:
    MOST_SIZE_UNDER_LOCK = 1024 * 1024      # bytes whose CRCs are computed with the GIL held

cdef dict REASONS = {
    HEADER_CUT_SHORT: "a batch header is cut short",
    BATCH_CUT_SHORT: "a batch is cut short",
    BAD_LENGTH: "a batch length is smaller than a batch header",
    BAD_MAGIC: "the magic of a batch is not 2",
    NEGATIVE_COUNT: "a batch claims a negative number of records",
    BAD_OFFSETS: "the offsets of a batch are negative or fewer than its records",
    COUNT_TOO_LARGE: "a batch claims more records than its bytes can hold",
    BAD_CODEC: "a batch names a codec that does not exist",
}

ROW_DTYPE = np.dtype(
    {
        "names": [
            "position", "base_offset", "base_timestamp", "max_timestamp", "producer_id",
            "batch_length", "partition_leader_epoch", "crc", "last_offset_delta",
            "base_sequence", "record_count", "attributes", "producer_epoch", "magic",
        ],
        "formats": ["i8"] * 5 + ["i4", "i4", "u4", "i4", "i4", "i4", "i2", "i2", "i1"],
        "offsets": [0, 8, 16, 24, 32, 40, 44, 48, 52, 56, 60, 64, 66, 68],
        "itemsize": sizeof(BatchRow),
    }
)


cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>
    /* A fresh buffer of many MiB costs more in page faults than in writes. */
    static void kraft_advise_huge_pages(void *data, size_t size) {
    #ifdef MADV_HUGEPAGE
        if (size >= (4u << 20)) {
            uintptr_t start = ((uintptr_t)data + 4095) & ~(uintptr_t)4095;
            madvise((void *)start, size - 4096, MADV_HUGEPAGE);
        }
    #endif
    }
    """
    void kraft_advise_huge_pages(void *data, size_t size) noexcept nogil


cdef class Block:
    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, False, flags)


cdef Block take_block(void *data, Py_ssize_t size):
    cdef Block block = Block.__new__(Block)
    block.data = data
    block.size = size
    return block


cpdef str reason_text(int code):
    return REASONS[code]


cdef void write_batch_header(uint8_t *p, const BatchRow *row) noexcept nogil:
    store_u64(p, <uint64_t>row.base_offset)
    store_u32(p + 8, <uint32_t>row.batch_length)
    store_u32(p + 12, <uint32_t>row.partition_leader_epoch)
    p[16] = <uint8_t>row.magic
    store_u32(p + 17, row.crc)
    store_u16(p + 21, <uint16_t>row.attributes)
    store_u32(p + 23, <uint32_t>row.last_offset_delta)
    store_u64(p + 27, <uint64_t>row.base_timestamp)
    store_u64(p + 35, <uint64_t>row.max_timestamp)
    store_u64(p + 43, <uint64_t>row.producer_id)
    store_u16(p + 51, <uint16_t>row.producer_epoch)
    store_u32(p + 53, <uint32_t>row.base_sequence)
    store_u32(p + 57, <uint32_t>row.record_count)


# The cycle collector would clear _block before __dealloc__ checks who owns the rows. A table is
# part of no cycle, so the collector has nothing to clear.
@cython.no_gc_clear
cdef class BatchTable:
    def __dealloc__(self):
        if self._block is None:
            free(self.rows)

    cdef int _add(self, const BatchHeader *header, int64_t position) except -1:
        cdef BatchRow *row
        cdef Py_ssize_t capacity
        if self.count == self._capacity:
            capacity = max(4, 2 * self._capacity)
            row = <BatchRow *>realloc(self.rows, capacity * sizeof(BatchRow))
            if row == NULL:
                raise MemoryError
            self.rows = row
            self._capacity = capacity
        row = &self.rows[self.count]
        row.position = position
        row.base_offset = header.base_offset
        row.base_timestamp = header.base_timestamp
        row.max_timestamp = header.max_timestamp
        row.producer_id = header.producer_id
        row.batch_length = header.batch_length
        row.partition_leader_epoch = header.partition_leader_epoch
        row.crc = header.crc
        row.last_offset_delta = header.last_offset_delta
        row.base_sequence = header.base_sequence
        row.record_count = header.record_count
        row.attributes = header.attributes
        row.producer_epoch = header.producer_epoch
        row.magic = header.magic
        self.count += 1
        return 0

    def __len__(self):
        return self.count

    @property
    def array(self):
        if self._array is None:
            if self.count == 0:
                self._array = np.empty(0, dtype=ROW_DTYPE)
            else:
                self._block = take_block(self.rows, self.count * sizeof(BatchRow))
                self._array = np.frombuffer(self._block, dtype=ROW_DTYPE)
            self._array.flags.writeable = False
        return self._array

    def __getattr__(self, name):
        # Called only for names that are not attributes: the columns, in the plural of their field.
        field = COLUMN_FIELDS.get(name)
        if field is None:
            raise AttributeError(f"a BatchTable has no {name!r}")
        return self.array[field]

    @property
    def sizes(self):
        return self.array["batch_length"] + LOG_OVERHEAD

    @property
    def last_offsets(self):
        return self.array["base_offset"] + self.array["last_offset_delta"]


# A column is named in the plural of its field; "attributes" is one already.
COLUMN_FIELDS = {name if name == "attributes" else f"{name}s": name for name in ROW_DTYPE.names}


cdef Py_ssize_t sound_end(const uint8_t *p, Py_ssize_t size) except -1 nogil:
    cdef BatchHeader header
    cdef Py_ssize_t at = 0, length
    while at < size and read_batch_header(p + at, size - at, &header) == 0:
        length = header.batch_length + LOG_OVERHEAD
        if crc32c_of(p + at + CRC_START, length - CRC_START) != header.crc:
            break
        at += length
    return at


cdef BatchTable scan_bytes(const uint8_t *p, Py_ssize_t size, int64_t position, bint verify_crc):
    cdef BatchTable table = BatchTable.__new__(BatchTable)
    cdef BatchHeader header
    cdef Py_ssize_t at = 0, sound = 0
    cdef int code
    if verify_crc and size > MOST_SIZE_UNDER_LOCK:
        # At once: after each batch, taking the GIL back could wait for another thread.
        with nogil:
            sound = sound_end(p, size)
    while at < size:
        code = read_batch_header(p + at, size - at, &header)
        if code != 0:
            table.tail_reason = reason_text(code)
            break
        if verify_crc and at >= sound and crc32c_of(
            p + at + CRC_START, header.batch_length + LOG_OVERHEAD - CRC_START
        ) != header.crc:
            table.tail_reason = "the CRC-32C of a batch does not match its bytes"
            break
        table._add(&header, position + at)
        at += header.batch_length + LOG_OVERHEAD
    table.tail_position = position + at
    return table


def scan(buffer, *, int64_t base_position=0, bint verify_crc=True):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return scan_bytes(<const uint8_t *>view.buf, view.len, base_position, verify_crc)
    finally:
        PyBuffer_Release(&view)


cdef bytes inflated(
    const uint8_t *p, Py_ssize_t size, int16_t attributes, int64_t budget, int64_t position
):
    return compression.decompress(
        attributes & CODEC_MASK,
        PyMemoryView_FromMemory(<char *>p, size, PyBUF_READ),
        budget,
        position=position,
    )


def inflate(buffer, *, int64_t base_position=0, int64_t budget=compression.DEFAULT_BUDGET):
    return recoded(buffer, 0, base_position, budget)


def deflate(buffer, int codec):
    if not 0 <= codec <= 4:
        raise InvalidRequestError(f"codec {codec} does not exist")
    return recoded(buffer, codec, 0, compression.DEFAULT_BUDGET)


cdef object recoded(buffer, int codec, int64_t base_position, int64_t budget):
    """Return the batches of `buffer` with records in `codec`, and new lengths and CRCs."""
    cdef Py_buffer view
    cdef BatchTable table
    cdef BatchRow row
    cdef const uint8_t *p
    cdef Writer output
    cdef Py_ssize_t start, i
    cdef bytes payload
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        table = scan_bytes(<const uint8_t *>view.buf, view.len, base_position, False)
        if table.tail_reason is not None:
            raise CorruptRecordError(table.tail_reason, position=table.tail_position)
        output = Writer(view.len)
        for i in range(table.count):
            row = table.rows[i]
            p = <const uint8_t *>view.buf + (row.position - base_position)
            if (row.attributes & CODEC_MASK) == codec:
                output.put_raw(p, row.batch_length + LOG_OVERHEAD)
                continue
            p += BATCH_OVERHEAD
            payload = inflated(
                p, row.batch_length + LOG_OVERHEAD - BATCH_OVERHEAD, row.attributes, budget,
                row.position,
            )
            budget -= PyBytes_GET_SIZE(payload)
            if codec == 0 and <int64_t>row.record_count * MIN_RECORD_SIZE > len(payload):
                raise BudgetExceededError(reason_text(COUNT_TOO_LARGE), position=row.position)
            if codec:
                payload = compression.compress(codec, payload)
            if PyBytes_GET_SIZE(payload) > INT32_MAX - BATCH_OVERHEAD:
                raise RecordTooLargeError("a batch of more than 2 GiB")
            row.attributes = (row.attributes & ~CODEC_MASK) | codec
            row.batch_length = <int32_t>(PyBytes_GET_SIZE(payload) + BATCH_OVERHEAD - LOG_OVERHEAD)
            start = output.size
            write_batch_header(output.reserve(BATCH_OVERHEAD), &row)
            output.put_raw(<const uint8_t *>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
            store_u32(
                output.data + start + 17,
                crc32c_of(output.data + start + CRC_START, output.size - start - CRC_START),
            )
        return output.getvalue()
    finally:
        PyBuffer_Release(&view)


def assign_offsets(
    buffer, int64_t base_offset, int32_t partition_leader_epoch, int64_t timestamp_ms=-1
):
    cdef Py_buffer view
    cdef BatchTable table
    cdef uint8_t *p
    cdef BatchRow *row
    cdef Py_ssize_t i
    cdef int64_t later
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        table = scan_bytes(<const uint8_t *>view.buf, view.len, 0, False)
        if table.tail_reason is not None:
            raise CorruptRecordError(table.tail_reason, position=table.tail_position)
        if base_offset < 0 or base_offset > INT64_MAX - <int64_t>INT32_MAX * (table.count + 1):
            raise InvalidRequestError(f"batches cannot begin at offset {base_offset}")
        for i in range(table.count):
            row = &table.rows[i]
            p = <uint8_t *>view.buf + row.position
            store_u64(p, <uint64_t>base_offset)
            store_u32(p + 12, <uint32_t>partition_leader_epoch)
            if timestamp_ms >= 0:
                later = <int64_t>load_u64(p + 35) - <int64_t>load_u64(p + 27)
                store_u64(p + 27, <uint64_t>timestamp_ms)
                store_u64(p + 35, <uint64_t>(timestamp_ms + later))
                store_u32(p + 17, crc32c_of(p + CRC_START, row.batch_length + 12 - CRC_START))
            base_offset += <int64_t>row.last_offset_delta + 1
        return base_offset
    finally:
        PyBuffer_Release(&view)


def split(buffer, int64_t max_size):
    cdef BatchTable table = scan(buffer, verify_crc=False)
    cdef int64_t start = 0, end = 0
    cdef int32_t size
    cdef Py_ssize_t i
    if table.tail_reason is not None:
        raise CorruptRecordError(table.tail_reason, position=table.tail_position)
    whole = memoryview(buffer).cast("B")
    runs = []
    for i in range(table.count):
        size = table.rows[i].batch_length + LOG_OVERHEAD
        if end > start and end + size - start > max_size:
            runs.append(whole[start:end])
            start = end
        end += size
    if end > start:
        runs.append(whole[start:end])
    return runs


cdef class BatchBuilder:
    def __init__(
        self,
        int64_t base_offset=0,
        int32_t partition_leader_epoch=-1,
        int64_t timestamp_ms=0,
        int16_t attributes=0,
        *,
        int64_t producer_id=-1,
        int16_t producer_epoch=-1,
        int32_t base_sequence=-1,
        int64_t delete_horizon_ms=-1,
        int32_t max_batch_records=DEFAULT_MAX_BATCH_RECORDS,
        int32_t max_batch_size=DEFAULT_MAX_BATCH_SIZE,
        Py_ssize_t capacity=0,
    ):
        if base_offset < 0 or max_batch_records < 1 or max_batch_size < BATCH_OVERHEAD:
            raise InvalidRequestError(
                f"batches from offset {base_offset} of at most {max_batch_records} records and "
                f"{max_batch_size} bytes cannot be built"
            )
        if (attributes & CODEC_MASK) > 4:
            raise InvalidRequestError(reason_text(BAD_CODEC))
        if self._data != NULL or self._finished:
            raise InvalidRequestError("this BatchBuilder was initialised before")
        self._batch_start = -1
        self.next_offset = base_offset
        self.max_batch_records = max_batch_records
        self.max_batch_size = max_batch_size
        self.partition_leader_epoch = partition_leader_epoch
        self.attributes = attributes
        self.timestamp_ms = timestamp_ms
        self.delete_horizon_ms = delete_horizon_ms
        if delete_horizon_ms >= 0:
            self.attributes |= DELETE_HORIZON_FLAG
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        if self.reserve(max(capacity, 512)) != 0:
            self.raise_failure()

    def __dealloc__(self):
        free(self._data)

    @property
    def size(self):
        return self._size

    cdef int reserve(self, size_t size) noexcept nogil:
        cdef size_t wanted
        cdef uint8_t *moved
        if self._finished:
            self._failure = FINISHED
            return -1
        if size > self._capacity - self._size:
            wanted = self._size + size
            if wanted < 2 * self._capacity:
                wanted = 2 * self._capacity
            moved = <uint8_t *>realloc(self._data, wanted)
            if moved == NULL:
                self._failure = NO_MEMORY
                return -1
            self._data = moved
            self._capacity = wanted
            kraft_advise_huge_pages(moved, wanted)
        return 0

    cdef void seal(self) noexcept nogil:
        cdef BatchRow row
        cdef uint8_t *start
        if self._batch_start < 0:
            return
        row.base_offset = self._batch_offset
        row.batch_length = <int32_t>(self._size - self._batch_start - LOG_OVERHEAD)
        row.partition_leader_epoch = self.partition_leader_epoch
        row.magic = MAGIC_V2
        row.crc = 0
        row.attributes = self.attributes & ~CODEC_MASK     # finish() compresses and sets the codec
        row.last_offset_delta = self._next_delta - 1
        row.base_timestamp = self._base_timestamp
        row.max_timestamp = (
            self.timestamp_ms if self.attributes & TIMESTAMP_TYPE_FLAG else self._max_timestamp
        )
        row.producer_id = self.producer_id
        row.producer_epoch = self.producer_epoch
        row.base_sequence = self.base_sequence
        if self.base_sequence >= 0:
            # Sequences continue from batch to batch; after the largest comes 0.
            row.base_sequence = <int32_t>(
                (self.base_sequence + self.record_count - self._batch_records) & INT32_MAX
            )
        row.record_count = self._batch_records
        start = self._data + self._batch_start
        write_batch_header(start, &row)
        # Computed now, while the batch is still in the processor's cache.
        with gil:
            store_u32(start + 17, crc32c_of(
                start + CRC_START, row.batch_length + LOG_OVERHEAD - CRC_START
            ))
        self._batch_start = -1
        self.batch_count += 1

    cdef uint8_t *add_value(self, int32_t value_size) noexcept nogil:
        return append_record(
            self, self.next_offset, self.timestamp_ms, NULL, -1, NULL, value_size, 0, NULL, 0, 0
        )

    cdef uint8_t *add_record(
        self, int64_t offset, int64_t timestamp, const uint8_t *key, int32_t key_size,
        const uint8_t *value, int32_t value_size,
        int32_t header_count, const uint8_t *headers, int32_t headers_size, int8_t attributes,
    ) noexcept nogil:
        return append_record(
            self, offset, timestamp, key, key_size, value, value_size,
            header_count, headers, headers_size, attributes,
        )

    cdef int raise_failure(self) except -1:
        if self._failure == NO_MEMORY:
            raise MemoryError
        if self._failure == FINISHED:
            raise InvalidRequestError("this builder is finished")
        if self._failure == OFFSET_BACKWARDS:
            raise InvalidRequestError(f"the offset is below {self.next_offset} or too large")
        raise RecordTooLargeError(
            f"a record is larger than a batch may be ({self.max_batch_size} bytes)"
        )

    def append(self, value, key=None, headers=(), timestamp_ms=None, offset=None):
        cdef int64_t timestamp = self.timestamp_ms if timestamp_ms is None else timestamp_ms
        cdef int64_t place = self.next_offset if offset is None else offset
        cdef Writer encoded
        cdef Py_buffer key_view, value_view
        cdef const uint8_t *header_bytes = NULL
        cdef Py_ssize_t headers_size = 0, key_size = -1, value_size = -1
        cdef int32_t header_count = 0
        cdef const uint8_t *key_bytes = NULL
        cdef const uint8_t *value_bytes = NULL
        cdef bint key_held = False, value_held = False
        cdef uint8_t *written
        if headers:
            encoded = encode_headers(headers)
            header_bytes = encoded.data
            headers_size = encoded.size
            header_count = len(headers)
        try:
            if key is not None:
                if PyBytes_CheckExact(key):
                    key_bytes = <const uint8_t *>PyBytes_AS_STRING(key)
                    key_size = PyBytes_GET_SIZE(key)
                else:
                    PyObject_GetBuffer(key, &key_view, PyBUF_SIMPLE)
                    key_held = True
                    key_bytes = <const uint8_t *>key_view.buf
                    key_size = key_view.len
            if value is not None:
                if PyBytes_CheckExact(value):
                    value_bytes = <const uint8_t *>PyBytes_AS_STRING(value)
                    value_size = PyBytes_GET_SIZE(value)
                else:
                    PyObject_GetBuffer(value, &value_view, PyBUF_SIMPLE)
                    value_held = True
                    value_bytes = <const uint8_t *>value_view.buf
                    value_size = value_view.len
            if key_size > INT32_MAX or value_size > INT32_MAX or headers_size > INT32_MAX:
                self._failure = TOO_LARGE
                written = NULL
            else:
                written = self.add_record(
                    place, timestamp, key_bytes, <int32_t>key_size, value_bytes,
                    <int32_t>value_size, header_count, header_bytes, <int32_t>headers_size, 0,
                )
            if written == NULL:
                self.raise_failure()
            return place
        finally:
            if key_held:
                PyBuffer_Release(&key_view)
            if value_held:
                PyBuffer_Release(&value_view)

    def close_batch(self):
        self.seal()

    cpdef object finish(self):
        cdef Block block
        if self._finished:
            self._failure = FINISHED
            self.raise_failure()
        self.seal()
        self._finished = True
        block = take_block(self._data, self._size)
        self._data = NULL
        self._capacity = self._size = 0
        batches = PyMemoryView_FromObject(block)
        if self.attributes & CODEC_MASK:
            return memoryview(bytearray(deflate(batches, self.attributes & CODEC_MASK)))
        return batches


cdef Writer encode_headers(headers):
    cdef Writer writer = Writer(64)
    for name, value in headers:
        name = name.encode() if isinstance(name, str) else bytes(name)
        writer.write_varint(len(name))
        writer.put_raw(<const uint8_t *>PyBytes_AS_STRING(name), len(name))
        if value is None:
            writer.write_varint(-1)
        else:
            value = bytes(value)
            writer.write_varint(len(value))
            writer.put_raw(<const uint8_t *>PyBytes_AS_STRING(value), len(value))
    return writer
