"""Record batches v2 one by one: batches and records as Python objects.

A RawRecord points into its batch's buffer and makes key and value when they are read; the buffer
stays open while a batch or record of it exists. For many records at once use ``batch_columns``.

Invariant: every object that a caller gets was checked: header and CRC when the batch is reached,
the framing of a record when the record is reached.
"""

cimport cython

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from kraft._core.bytes.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, CONTROL_FLAG, CRC_START, DELETE_HORIZON_FLAG, LOG_OVERHEAD,
    TIMESTAMP_TYPE_FLAG, TRANSACTIONAL_FLAG, BatchHeader, RecordFrame, next_record,
    read_batch_header, reason_text, skip_headers,
)
from kraft._core.bytes.crc32c cimport crc32c_of
from kraft._core.bytes.wire cimport get_varint, load_u16
from kraft._core.bytes import compression
from kraft.errors import CorruptRecordError

CODEC_NAMES = compression.CODEC_NAMES


@cython.final
cdef class Source:
    """An open buffer, shared by the objects that point into it."""
    cdef Py_buffer view
    cdef object memory
    cdef bint held
    cdef const uint8_t *base
    cdef const uint8_t *end

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.base = <const uint8_t *>self.view.buf
        self.end = self.base + self.view.len
        self.memory = buffer

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef object slice(self, const uint8_t *start, int32_t size):
        return memoryview(self.memory).cast("B")[start - self.base:start - self.base + size]


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class RawRecord:
    cdef Source _source
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef const uint8_t *_key
    cdef const uint8_t *_value
    cdef const uint8_t *_headers
    cdef int32_t _key_size
    cdef int32_t _value_size
    cdef int32_t _headers_size
    cdef int32_t _header_count
    cdef readonly int8_t attributes
    cdef readonly bint is_control

    @property
    def key(self):
        if self._key_size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self._key, self._key_size)

    @property
    def value(self):
        if self._value_size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self._value, self._value_size)

    @property
    def key_view(self):
        return None if self._key_size < 0 else self._source.slice(self._key, self._key_size)

    @property
    def value_view(self):
        return None if self._value_size < 0 else self._source.slice(self._value, self._value_size)

    @property
    def headers(self):
        cdef list headers = []
        cdef const uint8_t *p = self._headers
        cdef const uint8_t *end = p + self._headers_size
        cdef int32_t size = 0, _i
        # Checked when the record was framed, and again here: the buffer may be writable.
        if skip_headers(p, end, self._header_count) != end:
            raise CorruptRecordError("the headers of a record are malformed", offset=self.offset)
        for _i in range(self._header_count):
            p = get_varint(p, end, &size)
            name = PyBytes_FromStringAndSize(<const char *>p, size)
            p = get_varint(p + size, end, &size)
            if size < 0:
                headers.append((name, None))
            else:
                headers.append((name, PyBytes_FromStringAndSize(<const char *>p, size)))
                p += size
        return headers

    @property
    def control_type(self):
        if not self.is_control:
            return None
        if self._key_size < 4:
            raise CorruptRecordError(
                "the key of a control record is shorter than 4 bytes", offset=self.offset
            )
        return <int16_t>load_u16(self._key + 2)

    def __repr__(self):
        return (
            f"RawRecord(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


@cython.final
cdef class RecordIterator:
    cdef RecordBatch batch
    cdef Source source
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int64_t base_offset
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp
    cdef int32_t left
    cdef int32_t previous_delta
    cdef bint append_time
    cdef bint is_control

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        return self.next_one()

    cdef RawRecord next_one(self):
        cdef RecordFrame frame
        cdef RawRecord record
        cdef const uint8_t *behind = next_record(self.p, self.end, &frame)
        if behind == NULL:
            self.batch.fail("a record is malformed", self.p, self.source)
        if (
            frame.offset_delta <= self.previous_delta
            or frame.offset_delta > self.batch.header.last_offset_delta
        ):
            self.batch.fail(
                "the offset delta of a record does not ascend within its batch",
                self.p,
                self.source,
            )
        if self.left == 1 and behind != self.end:
            self.batch.fail(
                "bytes are left over after the last record of a batch", behind, self.source
            )
        self.previous_delta = frame.offset_delta
        self.left -= 1
        self.p = behind
        record = RawRecord.__new__(RawRecord)
        record._source = self.source
        record.offset = self.base_offset + frame.offset_delta
        if self.append_time:
            record.timestamp_ms = self.max_timestamp
        else:
            record.timestamp_ms = <int64_t>(
                <uint64_t>self.base_timestamp + <uint64_t>frame.timestamp_delta
            )
        record._key = frame.key
        record._value = frame.value
        record._headers = frame.headers
        record._key_size = frame.key_size
        record._value_size = frame.value_size
        record._headers_size = frame.headers_size
        record._header_count = frame.header_count
        record.attributes = frame.attributes
        record.is_control = self.is_control
        return record


@cython.final
cdef class RecordBatch:
    cdef Source _source
    cdef Source _inflated
    cdef BatchHeader header
    cdef const uint8_t *_start
    cdef int64_t _budget
    cdef readonly int64_t position

    cdef int fail(self, str reason, const uint8_t *where, Source source) except -1:
        # Records of a compressed batch have no position in the file: report the batch's.
        raise CorruptRecordError(
            reason,
            offset=self.header.base_offset,
            position=self.position + (where - self._start if source is self._source else 0),
        )

    cdef RecordIterator iterator(self):
        cdef RecordIterator records = RecordIterator.__new__(RecordIterator)
        cdef const uint8_t *end = self._start + self.header.batch_length + LOG_OVERHEAD
        records.batch = self
        records.source = self._source
        records.p = self._start + BATCH_OVERHEAD
        records.end = end
        if self.header.attributes & CODEC_MASK:
            if self._inflated is None:
                self._inflated = Source(
                    compression.decompress(
                        self.header.attributes & CODEC_MASK,
                        self._source.slice(records.p, <int32_t>(end - records.p)),
                        self._budget,
                        position=self.position,
                    )
                )
            records.source = self._inflated
            records.p = self._inflated.base
            records.end = self._inflated.end
        records.base_offset = self.header.base_offset
        records.base_timestamp = self.header.base_timestamp
        records.max_timestamp = self.header.max_timestamp
        records.left = self.header.record_count
        records.previous_delta = -1
        records.append_time = self.header.attributes & TIMESTAMP_TYPE_FLAG
        records.is_control = self.header.attributes & CONTROL_FLAG
        if records.left == 0 and records.p != records.end:
            self.fail("bytes are left over in a batch without records", records.p, records.source)
        return records

    def __iter__(self):
        return self.iterator()

    def __len__(self):
        return self.header.record_count

    def records(self):
        cdef RecordIterator records = self.iterator()
        cdef list made = []
        while records.left > 0:
            made.append(records.next_one())
        return made

    @property
    def size(self):
        return self.header.batch_length + LOG_OVERHEAD

    @property
    def view(self):
        return self._source.slice(self._start, self.header.batch_length + LOG_OVERHEAD)

    @property
    def base_offset(self):
        return self.header.base_offset

    @property
    def last_offset(self):
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def next_offset(self):
        return self.header.base_offset + self.header.last_offset_delta + 1

    @property
    def batch_length(self):
        return self.header.batch_length

    @property
    def partition_leader_epoch(self):
        return self.header.partition_leader_epoch

    @property
    def magic(self):
        return self.header.magic

    @property
    def crc(self):
        return self.header.crc

    @property
    def attributes(self):
        return self.header.attributes

    @property
    def last_offset_delta(self):
        return self.header.last_offset_delta

    @property
    def base_timestamp(self):
        return self.header.base_timestamp

    @property
    def max_timestamp(self):
        return self.header.max_timestamp

    @property
    def producer_id(self):
        return self.header.producer_id

    @property
    def producer_epoch(self):
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        return self.header.base_sequence

    @property
    def record_count(self):
        return self.header.record_count

    @property
    def codec(self):
        return CODEC_NAMES[self.header.attributes & CODEC_MASK]

    @property
    def is_log_append_time(self):
        return bool(self.header.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def is_transactional(self):
        return bool(self.header.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self):
        return bool(self.header.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self):
        if self.header.attributes & DELETE_HORIZON_FLAG:
            return self.header.base_timestamp
        return None

    def __repr__(self):
        return (
            f"RecordBatch(base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"partition_leader_epoch={self.partition_leader_epoch}, "
            f"record_count={self.record_count}, codec={self.codec!r}, size={self.size})"
        )


@cython.final
cdef class BatchIterator:
    cdef Source source
    cdef const uint8_t *p
    cdef int64_t base_position
    cdef int64_t budget
    cdef bint verify_crc

    def __iter__(self):
        return self

    def __next__(self):
        cdef BatchHeader header
        cdef RecordBatch batch
        cdef int code
        cdef int64_t position = self.base_position + (self.p - self.source.base)
        if self.p >= self.source.end:
            raise StopIteration
        code = read_batch_header(self.p, self.source.end - self.p, &header)
        if code != 0:
            raise CorruptRecordError(reason_text(code), position=position)
        if self.verify_crc and header.crc != crc32c_of(
            self.p + CRC_START, header.batch_length + LOG_OVERHEAD - CRC_START
        ):
            raise CorruptRecordError(
                "the CRC-32C of a batch does not match its bytes",
                offset=header.base_offset,
                position=position,
            )
        batch = RecordBatch.__new__(RecordBatch)
        batch._source = self.source
        batch.header = header
        batch._start = self.p
        batch._budget = self.budget
        batch.position = position
        self.p += header.batch_length + LOG_OVERHEAD
        return batch


def iterate(
    buffer, *, int64_t base_position=0, bint verify_crc=True,
    int64_t budget=compression.DEFAULT_BUDGET,
):
    cdef BatchIterator batches = BatchIterator.__new__(BatchIterator)
    batches.source = Source(buffer)
    batches.p = batches.source.base
    batches.base_position = base_position
    batches.budget = budget
    batches.verify_crc = verify_crc
    return batches
