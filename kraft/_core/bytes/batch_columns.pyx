"""Record batches v2 as numpy columns: no Python object a record, without the GIL.

`BatchColumns` reads a buffer of batches into arrays and writes the same bytes from them; `build`
makes batches from positions of values in a buffer. Positions refer to `BatchColumns.buffer`: the
caller's buffer, or an inflated copy of it where a batch was compressed.

Invariants: the arrays share one block, allocated after all counts are known to fit into the bytes.
Columns that few logs need (headers, record attributes) are allocated at the first such record. A
malformed record anywhere rejects the whole buffer, with its position.
"""

import numpy as np

cimport cython
cimport numpy as cnp

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport (
    INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t,
)
from libc.stdlib cimport malloc

from kraft._core.bytes.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, CRC_START, LOG_OVERHEAD, TIMESTAMP_TYPE_FLAG, BatchBuilder,
    BatchRow, BatchTable, Block, RecordFrame, append_record, next_record, put_record, scan_bytes,
    size_of_record, take_block, write_batch_header,
)
from kraft._core.bytes.crc32c cimport crc32c_of
from kraft._core.bytes.wire cimport store_u32, unlikely
from kraft._core.bytes import compression
from kraft._core.bytes.batch import DEFAULT_MAX_BATCH_RECORDS, DEFAULT_MAX_BATCH_SIZE, inflate
from kraft.errors import CorruptRecordError, InvalidRequestError, RecordTooLargeError

cnp.import_array()

cdef enum:
    ROW_BYTES = 40              # a row of the columns that are always there
    EXTRA_BYTES = 17            # a row of the optional columns
    MAX_FRAME = 41              # the most bytes of a record without its key, value and headers

    MALFORMED = -1
    DELTA_NOT_ASCENDING = -2
    BYTES_LEFT_OVER = -3
    EXTRAS_NEEDED = -4

cdef dict REASONS = {
    MALFORMED: "a record is malformed",
    DELTA_NOT_ASCENDING: "the offset delta of a record does not ascend within its batch",
    BYTES_LEFT_OVER: "bytes are left over after the last record of a batch",
}


cdef struct Columns:
    int64_t *offsets
    int64_t *timestamps
    int64_t *key_positions
    int64_t *value_positions
    int32_t *key_lengths
    int32_t *value_lengths
    int64_t *header_positions       # these four are NULL until a record needs them
    int32_t *header_lengths
    int32_t *header_counts
    int8_t *attributes


cdef int read_records(
    const uint8_t *base, int64_t base_position, const BatchRow *rows, Py_ssize_t batch_count,
    Columns *out, int64_t *where, int64_t *batch_offset,
) noexcept nogil:
    """Fill the columns from the batches at `base`; return 0, or a reason with its `where`."""
    cdef RecordFrame frame
    cdef const BatchRow *row
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef const uint8_t *behind
    cdef Py_ssize_t i, n = 0
    cdef int32_t _k, previous
    cdef bint extras = out.attributes != NULL
    for i in range(batch_count):
        row = &rows[i]
        p = base + (row.position - base_position)
        end = p + row.batch_length + LOG_OVERHEAD
        p += BATCH_OVERHEAD
        previous = -1
        batch_offset[0] = row.base_offset
        for _k in range(row.record_count):
            behind = next_record(p, end, &frame)
            if unlikely(behind == NULL):
                where[0] = p - base
                return MALFORMED
            if unlikely(
                frame.offset_delta <= previous or frame.offset_delta > row.last_offset_delta
            ):
                where[0] = p - base
                return DELTA_NOT_ASCENDING
            previous = frame.offset_delta
            out.offsets[n] = row.base_offset + frame.offset_delta
            out.timestamps[n] = <int64_t>(
                <uint64_t>row.base_timestamp + <uint64_t>frame.timestamp_delta
            )
            out.key_positions[n] = -1 if frame.key == NULL else frame.key - base
            out.key_lengths[n] = frame.key_size
            out.value_positions[n] = -1 if frame.value == NULL else frame.value - base
            out.value_lengths[n] = frame.value_size
            if extras:
                out.header_positions[n] = frame.headers - base
                out.header_lengths[n] = frame.headers_size
                out.header_counts[n] = frame.header_count
                out.attributes[n] = frame.attributes
            elif unlikely(frame.header_count != 0 or frame.attributes != 0):
                return EXTRAS_NEEDED
            n += 1
            p = behind
        if unlikely(p != end):
            where[0] = p - base
            return BYTES_LEFT_OVER
    return 0


cdef int64_t write_batch(
    uint8_t *start, const uint8_t *base, const BatchRow *row, const Columns *columns,
    Py_ssize_t first,
) noexcept nogil:
    """Write the batch of `row` at `start` without its CRC; return its size, or -1 if over 2 GiB."""
    cdef BatchRow header = row[0]
    cdef uint8_t *p = start + BATCH_OVERHEAD
    cdef int64_t timestamp_delta, body
    cdef int32_t offset_delta, key_size, value_size, headers_size, header_count
    cdef Py_ssize_t i
    cdef bint extras = columns.attributes != NULL
    headers_size = header_count = 0
    for i in range(first, first + row.record_count):
        timestamp_delta = <int64_t>(
            <uint64_t>columns.timestamps[i] - <uint64_t>row.base_timestamp
        )
        offset_delta = <int32_t>(columns.offsets[i] - row.base_offset)
        key_size = columns.key_lengths[i]
        value_size = columns.value_lengths[i]
        if extras:
            headers_size = columns.header_lengths[i]
            header_count = columns.header_counts[i]
        body = size_of_record(
            timestamp_delta, offset_delta, key_size, value_size, header_count, headers_size
        )
        if unlikely((p - start) + body + 5 > INT32_MAX):
            return -1
        p = put_record(
            p, body, columns.attributes[i] if extras else 0, timestamp_delta, offset_delta,
            base + columns.key_positions[i], key_size,
            base + columns.value_positions[i], value_size,
            header_count, base + columns.header_positions[i] if extras else NULL, headers_size,
        )
    header.batch_length = <int32_t>(p - start - LOG_OVERHEAD)
    write_batch_header(start, &header)
    return p - start


cdef class BatchColumns:
    cdef Columns columns
    cdef Py_buffer _view
    cdef bint _held
    cdef Block _block
    cdef Block _extra_block
    cdef dict _arrays
    cdef Py_ssize_t count
    cdef readonly BatchTable batches
    cdef readonly object buffer

    def __dealloc__(self):
        if self._held:
            PyBuffer_Release(&self._view)

    @staticmethod
    def read(
        buffer, *, int64_t base_position=0, bint verify_crc=True,
        int64_t budget=compression.DEFAULT_BUDGET,
    ):
        cdef BatchColumns self = BatchColumns.__new__(BatchColumns)
        cdef const uint8_t *base
        cdef int64_t where = 0, batch_offset = -1
        cdef int code
        cdef Py_ssize_t i
        self._arrays = {}
        self._hold(buffer)
        self.batches = scan_bytes(
            <const uint8_t *>self._view.buf, self._view.len, base_position, verify_crc
        )
        if self.batches.tail_reason is not None:
            raise CorruptRecordError(
                self.batches.tail_reason, position=self.batches.tail_position
            )
        for i in range(self.batches.count):
            if self.batches.rows[i].attributes & CODEC_MASK:
                # Inflated bytes have no position in the file: positions count from 0 again.
                inflated = inflate(buffer, base_position=base_position, budget=budget)
                return BatchColumns.read(inflated, verify_crc=False)
        for i in range(self.batches.count):
            self.count += self.batches.rows[i].record_count
        self._take_block()
        base = <const uint8_t *>self._view.buf
        with nogil:
            code = read_records(
                base, base_position, self.batches.rows, self.batches.count, &self.columns, &where,
                &batch_offset,
            )
        if code == EXTRAS_NEEDED:
            self._take_extra_block()
            with nogil:
                code = read_records(
                    base, base_position, self.batches.rows, self.batches.count, &self.columns,
                    &where, &batch_offset,
                )
        if code != 0:
            raise CorruptRecordError(
                REASONS[code], offset=batch_offset, position=base_position + where
            )
        return self

    cdef int _hold(self, buffer) except -1:
        PyObject_GetBuffer(buffer, &self._view, PyBUF_SIMPLE)
        self._held = True
        self.buffer = buffer
        return 0

    cdef int _take_block(self) except -1:
        cdef Py_ssize_t n = self.count
        cdef char *data = <char *>malloc(max(n, 1) * ROW_BYTES)
        if data == NULL:
            raise MemoryError
        self._block = take_block(data, n * ROW_BYTES)
        self.columns.offsets = <int64_t *>data
        self.columns.timestamps = <int64_t *>(data + 8 * n)
        self.columns.key_positions = <int64_t *>(data + 16 * n)
        self.columns.value_positions = <int64_t *>(data + 24 * n)
        self.columns.key_lengths = <int32_t *>(data + 32 * n)
        self.columns.value_lengths = <int32_t *>(data + 36 * n)
        return 0

    cdef int _take_extra_block(self) except -1:
        cdef Py_ssize_t n = self.count
        cdef char *data = <char *>malloc(max(n, 1) * EXTRA_BYTES)
        if data == NULL:
            raise MemoryError
        self._extra_block = take_block(data, n * EXTRA_BYTES)
        self.columns.header_positions = <int64_t *>data
        self.columns.header_lengths = <int32_t *>(data + 8 * n)
        self.columns.header_counts = <int32_t *>(data + 12 * n)
        self.columns.attributes = <int8_t *>(data + 16 * n)
        return 0

    cdef object _column(self, str name, int type_number, void *data, Block block):
        cdef cnp.npy_intp length = self.count
        array = self._arrays.get(name)
        if array is None:
            if data == NULL:
                array = cnp.PyArray_ZEROS(1, &length, type_number, 0)
            else:
                array = cnp.PyArray_SimpleNewFromData(1, &length, type_number, data)
                cnp.set_array_base(array, block)
            cnp.PyArray_CLEARFLAGS(array, cnp.NPY_ARRAY_WRITEABLE)
            self._arrays[name] = array
        return array

    def __len__(self):
        return self.count

    @property
    def offsets(self):
        return self._column("offsets", cnp.NPY_INT64, self.columns.offsets, self._block)

    @property
    def create_timestamps(self):
        return self._column(
            "create_timestamps", cnp.NPY_INT64, self.columns.timestamps, self._block
        )

    @property
    def timestamps(self):
        cdef Py_ssize_t i
        if "timestamps" not in self._arrays:
            array = self.create_timestamps
            for i in range(self.batches.count):
                if self.batches.rows[i].attributes & TIMESTAMP_TYPE_FLAG:
                    # LogAppendTime: only the header has the broker's time.
                    by_broker = (self.batches.attributes & TIMESTAMP_TYPE_FLAG) != 0
                    which = self.batch_indexes
                    array = np.where(by_broker[which], self.batches.max_timestamps[which], array)
                    array.flags.writeable = False
                    break
            self._arrays["timestamps"] = array
        return self._arrays["timestamps"]

    @property
    def key_positions(self):
        return self._column("key_positions", cnp.NPY_INT64, self.columns.key_positions, self._block)

    @property
    def key_lengths(self):
        return self._column("key_lengths", cnp.NPY_INT32, self.columns.key_lengths, self._block)

    @property
    def value_positions(self):
        return self._column(
            "value_positions", cnp.NPY_INT64, self.columns.value_positions, self._block
        )

    @property
    def value_lengths(self):
        return self._column("value_lengths", cnp.NPY_INT32, self.columns.value_lengths, self._block)

    @property
    def header_positions(self):
        return self._column(
            "header_positions", cnp.NPY_INT64, self.columns.header_positions, self._extra_block
        )

    @property
    def header_lengths(self):
        return self._column(
            "header_lengths", cnp.NPY_INT32, self.columns.header_lengths, self._extra_block
        )

    @property
    def header_counts(self):
        return self._column(
            "header_counts", cnp.NPY_INT32, self.columns.header_counts, self._extra_block
        )

    @property
    def attributes(self):
        return self._column("attributes", cnp.NPY_INT8, self.columns.attributes, self._extra_block)

    @property
    def batch_indexes(self):
        if "batch_indexes" not in self._arrays:
            array = np.repeat(
                np.arange(self.batches.count, dtype=np.int32), self.batches.record_counts
            )
            array.flags.writeable = False
            self._arrays["batch_indexes"] = array
        return self._arrays["batch_indexes"]

    def build(self):
        cdef int64_t room = 0, size
        cdef Py_ssize_t i, start = 0, first = 0
        cdef uint8_t *data
        cdef const uint8_t *base = <const uint8_t *>self._view.buf
        cdef BatchTable batches = self.batches
        # Varints in the shortest form never take more bytes than the ones that were read.
        room = self._view.len
        data = <uint8_t *>malloc(max(room, 1))
        if data == NULL:
            raise MemoryError
        block = take_block(data, room)
        for i in range(batches.count):
            with nogil:
                size = write_batch(data + start, base, &batches.rows[i], &self.columns, first)
            if size < 0:
                raise RecordTooLargeError("a batch of more than 2 GiB")
            store_u32(data + start + 17, crc32c_of(data + start + CRC_START, size - CRC_START))
            start += size
            first += batches.rows[i].record_count
        block.size = start
        return PyMemoryView_FromObject(block)


@cython.wraparound(False)
def build(
    buffer,
    value_positions,
    value_lengths,
    *,
    key_positions=None,
    key_lengths=None,
    timestamps=None,
    int64_t base_offset=0,
    int32_t partition_leader_epoch=-1,
    int64_t timestamp_ms=0,
    int16_t attributes=0,
    int64_t producer_id=-1,
    int16_t producer_epoch=-1,
    int32_t base_sequence=-1,
    int32_t max_batch_records=DEFAULT_MAX_BATCH_RECORDS,
    int32_t max_batch_size=DEFAULT_MAX_BATCH_SIZE,
):
    cdef const int64_t[::1] values = np.ascontiguousarray(value_positions, dtype=np.int64)
    cdef const int32_t[::1] value_sizes = np.ascontiguousarray(value_lengths, dtype=np.int32)
    cdef const int64_t[::1] keys = None
    cdef const int32_t[::1] key_sizes = None
    cdef const int64_t[::1] times = None
    cdef Py_ssize_t count = values.shape[0], i, bad = -1
    cdef bint has_keys = key_positions is not None, has_times = timestamps is not None
    cdef int64_t total = 0, size, timestamp = timestamp_ms
    cdef int32_t key_size = -1, value_size
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value
    cdef const uint8_t *base
    cdef BatchBuilder builder
    cdef Py_buffer view
    if has_keys:
        keys = np.ascontiguousarray(key_positions, dtype=np.int64)
        key_sizes = np.ascontiguousarray(key_lengths, dtype=np.int32)
    if has_times:
        times = np.ascontiguousarray(timestamps, dtype=np.int64)
    if value_sizes.shape[0] != count or (
        has_keys and (keys.shape[0] != count or key_sizes.shape[0] != count)
    ) or (has_times and times.shape[0] != count):
        raise InvalidRequestError("the columns have different lengths")
    builder = BatchBuilder(
        base_offset, partition_leader_epoch, timestamp_ms, attributes, producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=base_sequence,
        max_batch_records=max_batch_records, max_batch_size=max_batch_size,
    )
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t *>view.buf
        size = view.len
        with nogil:
            for i in range(count):
                if not slice_lies_in(values[i], value_sizes[i], size) or (
                    has_keys and not slice_lies_in(keys[i], key_sizes[i], size)
                ):
                    bad = i
                    break
                total += max(value_sizes[i], 0) + (max(key_sizes[i], 0) if has_keys else 0)
            if bad < 0 and builder.reserve(total + count * 16 + 2 * BATCH_OVERHEAD) == 0:
                for i in range(count):
                    value_size = value_sizes[i]
                    value = base + values[i] if value_size >= 0 else base
                    if has_keys:
                        key_size = key_sizes[i]
                        key = base + keys[i] if key_size >= 0 else base
                    if has_times:
                        timestamp = times[i]
                    if append_record(
                        builder, builder.next_offset, timestamp, key, key_size, value, value_size,
                        0, NULL, 0, 0,
                    ) == NULL:
                        break
        if bad >= 0:
            raise InvalidRequestError(f"row {bad} is outside of the {size} bytes of the buffer")
        if builder.record_count != count:
            builder.raise_failure()
        return builder.finish()
    finally:
        PyBuffer_Release(&view)


cdef inline bint slice_lies_in(int64_t position, int32_t length, int64_t size) noexcept nogil:
    """Return whether a key or value is inside of the buffer, or null (a length of -1)."""
    if length < 0:
        return length == -1
    return 0 <= position <= size and length <= size - position
