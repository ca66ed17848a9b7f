# The C half of batch, for the other modules of the core: header and records of a record batch v2,
# the table of a buffer's batches, and the builder.
#
#   0 base_offset i64 | 8 batch_length i32 | 12 partition_leader_epoch i32 | 16 magic i8
#  17 crc u32 | 21 attributes i16 | 23 last_offset_delta i32 | 27 base_timestamp i64
#  35 max_timestamp i64 | 43 producer_id i64 | 51 producer_epoch i16 | 53 base_sequence i32
#  57 record_count i32 | 61 records
#
# batch_length counts the bytes after itself. The CRC-32C covers everything from attributes (byte
# 21) to the end.
#
#   record: varint length | attributes i8 | varlong timestamp delta | varint offset delta
#           | varint key length, key | varint value length, value | varint header count, headers

from libc.stdint cimport (
    INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from libc.string cimport memcpy

from kraft._core.bytes.wire cimport (
    get_varint,
    get_varlong,
    likely,
    load_u16,
    load_u32,
    load_u64,
    put_uvarint,
    put_varint,
    put_varlong,
    size_of_uvarint,
    size_of_varint,
    unlikely,
)

cdef enum:
    LOG_OVERHEAD = 12           # base_offset and batch_length
    BATCH_OVERHEAD = 61         # the whole header
    CRC_START = 21              # the first byte that the CRC covers
    MIN_RECORD_SIZE = 7         # a record of null key, null value and no header
    MAGIC_V2 = 2

    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_FLAG = 0x08  # set: every record's timestamp is max_timestamp (LogAppendTime)
    TRANSACTIONAL_FLAG = 0x10
    CONTROL_FLAG = 0x20
    DELETE_HORIZON_FLAG = 0x40  # set: base_timestamp is the delete horizon

    # Why read_batch_header rejected the bytes; batch.reason_text returns the sentence.
    HEADER_CUT_SHORT = -1       # fewer than 61 bytes are left: no field was set
    BATCH_CUT_SHORT = -2        # the header is valid, but its batch is longer than the bytes left
    BAD_LENGTH = -3             # batch_length is smaller than the rest of a header
    BAD_MAGIC = -4
    NEGATIVE_COUNT = -5
    BAD_OFFSETS = -6            # negative offset or delta, or fewer offsets than records
    COUNT_TOO_LARGE = -7        # more records than the bytes can hold
    BAD_CODEC = -8

    # Why a BatchBuilder rejected a record.
    NO_MEMORY = 1
    TOO_LARGE = 2
    FINISHED = 3
    OFFSET_BACKWARDS = 4


cdef struct BatchHeader:
    int64_t base_offset
    int32_t batch_length
    int32_t partition_leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count


cdef struct RecordFrame:
    int8_t attributes
    int64_t timestamp_delta
    int32_t offset_delta
    const uint8_t *key
    int32_t key_size            # -1: null
    const uint8_t *value
    int32_t value_size          # -1: null
    int32_t header_count
    const uint8_t *headers      # the bytes after the header count
    int32_t headers_size


cdef inline int read_batch_header(
    const uint8_t *p, size_t available, BatchHeader *out
) noexcept nogil:
    """Read the header of the batch at `p`; return 0, or the reason why no whole batch begins there.

    Every field is set unless HEADER_CUT_SHORT is returned. After 0 the batch is at
    p[0 : 12 + batch_length], and record_count records of 7 bytes each fit into it (not checked for
    a compressed batch, whose size is unknown until it is inflated).
    """
    if available < BATCH_OVERHEAD:
        return HEADER_CUT_SHORT
    out.base_offset = <int64_t>load_u64(p)
    out.batch_length = <int32_t>load_u32(p + 8)
    out.partition_leader_epoch = <int32_t>load_u32(p + 12)
    out.magic = <int8_t>p[16]
    out.crc = load_u32(p + 17)
    out.attributes = <int16_t>load_u16(p + 21)
    out.last_offset_delta = <int32_t>load_u32(p + 23)
    out.base_timestamp = <int64_t>load_u64(p + 27)
    out.max_timestamp = <int64_t>load_u64(p + 35)
    out.producer_id = <int64_t>load_u64(p + 43)
    out.producer_epoch = <int16_t>load_u16(p + 51)
    out.base_sequence = <int32_t>load_u32(p + 53)
    out.record_count = <int32_t>load_u32(p + 57)
    if out.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
        return BAD_LENGTH
    if out.magic != MAGIC_V2:
        return BAD_MAGIC
    if out.record_count < 0:
        return NEGATIVE_COUNT
    if (
        out.base_offset < 0
        or out.last_offset_delta < 0
        or out.base_offset > INT64_MAX - 1 - out.last_offset_delta
        or out.last_offset_delta < out.record_count - 1
    ):
        return BAD_OFFSETS
    if out.attributes & CODEC_MASK:
        if (out.attributes & CODEC_MASK) > 4:
            return BAD_CODEC
    elif (
        <int64_t>out.record_count * MIN_RECORD_SIZE
        > out.batch_length - (BATCH_OVERHEAD - LOG_OVERHEAD)
    ):
        return COUNT_TOO_LARGE
    if <size_t>out.batch_length > available - LOG_OVERHEAD:
        return BATCH_CUT_SHORT
    return 0


cdef inline const uint8_t *skip_headers(
    const uint8_t *p, const uint8_t *end, int32_t count
) noexcept nogil:
    """Return the end of `count` headers at `p`, or NULL for malformed ones.

    A header is varint key size, key, varint value size or -1, value.
    """
    cdef int32_t size, _i
    if count > (end - p) // 2:
        return NULL
    for _i in range(count):
        p = get_varint(p, end, &size)
        if p == NULL or size < 0 or size > end - p:
            return NULL
        p = get_varint(p + size, end, &size)
        if p == NULL or size < -1 or size > end - p:
            return NULL
        if size > 0:
            p += size
    return p


cdef inline const uint8_t *next_record(
    const uint8_t *p, const uint8_t *end, RecordFrame *out
) noexcept nogil:
    """Read the record at `p`; return the cursor after it, or NULL for a malformed record.

    Checked: every size against the record's own length, that length against `end`, each header,
    and that no byte is left over inside the record. The pointers refer to the bytes at `p`; those
    of null fields are NULL.
    """
    cdef int32_t size
    cdef const uint8_t *stop
    p = get_varint(p, end, &size)
    if unlikely(p == NULL or size < MIN_RECORD_SIZE - 1 or size > end - p):
        return NULL
    stop = p + size
    out.attributes = <int8_t>p[0]
    p = get_varlong(p + 1, stop, &out.timestamp_delta)
    p = get_varint(p, stop, &out.offset_delta)
    p = get_varint(p, stop, &out.key_size)
    if unlikely(p == NULL or out.key_size < -1 or out.key_size > stop - p):
        return NULL
    out.key = NULL
    if out.key_size >= 0:
        out.key = p
        p += out.key_size
    p = get_varint(p, stop, &out.value_size)
    if unlikely(p == NULL or out.value_size < -1 or out.value_size > stop - p):
        return NULL
    out.value = NULL
    if out.value_size >= 0:
        out.value = p
        p += out.value_size
    p = get_varint(p, stop, &out.header_count)
    if unlikely(p == NULL or out.header_count < 0):
        return NULL
    out.headers = p
    out.headers_size = <int32_t>(stop - p)
    if out.header_count > 0:
        p = skip_headers(p, stop, out.header_count)
    return stop if likely(p == stop) else NULL


cdef inline int size_of_varlong(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline int64_t size_of_record(
    int64_t timestamp_delta, int32_t offset_delta, int32_t key_size, int32_t value_size,
    int32_t header_count, int32_t headers_size,
) noexcept nogil:
    """Return the size of a record in bytes, without its length prefix; a size of -1 is null."""
    cdef int64_t size = 1 + size_of_uvarint(<uint32_t>offset_delta << 1)
    size += 1 if likely(timestamp_delta == 0) else size_of_varlong(timestamp_delta)
    size += 1 if key_size < 0 else size_of_varint(key_size) + <int64_t>key_size
    size += 1 if value_size < 0 else size_of_varint(value_size) + <int64_t>value_size
    return size + (1 if header_count == 0 else size_of_varint(header_count)) + headers_size


cdef inline uint8_t *put_record(
    uint8_t *p, int64_t size, int8_t attributes, int64_t timestamp_delta, int32_t offset_delta,
    const uint8_t *key, int32_t key_size, const uint8_t *value, int32_t value_size,
    int32_t header_count, const uint8_t *headers, int32_t headers_size,
) noexcept nogil:
    """Write a record whose size_of_record is `size`; return the cursor after it.

    Where `value` is NULL and its size positive, the value's bytes are left as they were.
    """
    p = put_uvarint(p, <uint32_t>size << 1)
    p[0] = <uint8_t>attributes
    if likely(timestamp_delta == 0):
        p[1] = 0
        p += 2
    else:
        p = put_varlong(p + 1, timestamp_delta)
    p = put_uvarint(p, <uint32_t>offset_delta << 1)
    p = put_varint(p, key_size)
    if key_size > 0:
        memcpy(p, key, key_size)
        p += key_size
    p = put_varint(p, value_size)
    if value_size > 0:
        if value != NULL:
            memcpy(p, value, value_size)
        p += value_size
    p = put_varint(p, header_count)
    if headers_size > 0:
        memcpy(p, headers, headers_size)
        p += headers_size
    return p


# One batch of a scan; BatchTable has the fields as numpy columns.
cdef struct BatchRow:
    int64_t position
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t batch_length
    int32_t partition_leader_epoch
    uint32_t crc
    int32_t last_offset_delta
    int32_t base_sequence
    int32_t record_count
    int16_t attributes
    int16_t producer_epoch
    int8_t magic


cdef class Block:
    """Memory from malloc as a writable buffer; frees the memory when it is deallocated."""
    cdef void *data
    cdef Py_ssize_t size


cdef class BatchTable:
    """The batches of one buffer, in order, and where and why the scan stopped."""
    cdef BatchRow *rows
    cdef Py_ssize_t count
    cdef Py_ssize_t _capacity
    cdef Block _block
    cdef object _array
    cdef readonly int64_t tail_position
    cdef readonly object tail_reason        # None: the buffer ended after a whole batch
    cdef int _add(self, const BatchHeader *header, int64_t position) except -1


cdef Block take_block(void *data, Py_ssize_t size)      # owns `data` from now on
cpdef str reason_text(int code)
# The end of the whole batches at the front whose headers and CRCs are right.
cdef Py_ssize_t sound_end(const uint8_t *p, Py_ssize_t size) except -1 nogil
cdef void write_batch_header(uint8_t *p, const BatchRow *row) noexcept nogil
# The bytes at p may be malformed; a row's position is `position` + its place in the bytes.
cdef BatchTable scan_bytes(const uint8_t *p, Py_ssize_t size, int64_t position, bint verify_crc)


cdef class BatchBuilder:
    """Record batches, one after the other in one growing buffer, sealed by finish()."""
    cdef uint8_t *_data
    cdef size_t _size               # bytes written, the open batch's header included
    cdef size_t _capacity
    cdef Py_ssize_t _batch_start    # of the open batch, or -1
    cdef int32_t _batch_records     # records in the open batch
    cdef int32_t _next_delta        # offset delta of the next record of the open batch
    cdef int64_t _batch_offset      # base offset of the open batch
    cdef int64_t _base_timestamp    # of the open batch
    cdef int64_t _max_timestamp
    cdef bint _finished
    cdef int _failure               # why the last add returned NULL: see raise_failure
    cdef readonly int64_t next_offset
    cdef readonly int64_t record_count
    cdef readonly int32_t batch_count
    cdef readonly int32_t max_batch_records
    cdef readonly int32_t max_batch_size
    cdef readonly int32_t partition_leader_epoch
    cdef readonly int16_t attributes
    cdef readonly int64_t timestamp_ms
    cdef readonly int64_t delete_horizon_ms
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence

    # Frames one record (null key, no headers, the batch's timestamp, next offset) and returns where
    # the caller writes its value_size bytes; valid until the next call on the builder. Returns NULL
    # on failure: see raise_failure. Begins a new batch where the open one would exceed
    # max_batch_records or max_batch_size.
    cdef uint8_t *add_value(self, int32_t value_size) noexcept nogil
    # Like add_value, for any record: a size of -1 is null, headers are already encoded bytes.
    cdef uint8_t *add_record(
        self, int64_t offset, int64_t timestamp, const uint8_t *key, int32_t key_size,
        const uint8_t *value, int32_t value_size,
        int32_t header_count, const uint8_t *headers, int32_t headers_size, int8_t attributes,
    ) noexcept nogil
    # Reserves `size` more bytes, so that the following adds do not move the buffer. Returns 0, or
    # -1 without memory.
    cdef int reserve(self, size_t size) noexcept nogil
    # Closes the open batch, so that the next record begins another.
    cdef void seal(self) noexcept nogil
    # Raises the error that the last NULL stands for; always raises.
    cdef int raise_failure(self) except -1
    # Returns the batches with CRCs as one writable memoryview that owns them; ends the builder.
    cpdef object finish(self)


cdef inline uint8_t *append_record(
    BatchBuilder self, int64_t offset, int64_t timestamp, const uint8_t *key, int32_t key_size,
    const uint8_t *value, int32_t value_size,
    int32_t header_count, const uint8_t *headers, int32_t headers_size, int8_t attributes,
) noexcept nogil:
    """Do the work of add_record and add_value, inlined into loops."""
    cdef int64_t timestamp_delta, offset_delta, size
    cdef uint8_t *behind
    if unlikely(offset < self.next_offset or offset >= INT64_MAX - INT32_MAX):
        self._failure = OFFSET_BACKWARDS
        return NULL
    while True:
        if unlikely(self._batch_start < 0):
            offset_delta = 0
            timestamp_delta = 0
            if self.delete_horizon_ms >= 0:
                timestamp_delta = <int64_t>(
                    <uint64_t>timestamp - <uint64_t>self.delete_horizon_ms
                )
        else:
            offset_delta = offset - self._batch_offset
            timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>self._base_timestamp)
        size = size_of_record(
            timestamp_delta, <int32_t>offset_delta, key_size, value_size,
            header_count, headers_size,
        )
        if likely(
            self._batch_start >= 0
            and self._batch_records < self.max_batch_records
            and offset_delta < INT32_MAX
            and <int64_t>(self._size - self._batch_start) + size + size_of_uvarint(
                <uint32_t>size << 1
            ) <= self.max_batch_size
        ):
            break
        if self._batch_start < 0:
            if size > INT32_MAX // 2 or BATCH_OVERHEAD + size + size_of_uvarint(
                <uint32_t>size << 1
            ) > self.max_batch_size:
                self._failure = TOO_LARGE
                return NULL
            break
        self.seal()
    if unlikely(<size_t>size + BATCH_OVERHEAD + 5 > self._capacity - self._size):
        if self.reserve(<size_t>size + BATCH_OVERHEAD + 5) != 0:
            return NULL
    if unlikely(self._batch_start < 0):
        self._batch_start = <Py_ssize_t>self._size
        self._size += BATCH_OVERHEAD
        self._batch_records = 0
        self._batch_offset = offset
        self._max_timestamp = timestamp
        self._base_timestamp = self.delete_horizon_ms if self.delete_horizon_ms >= 0 else timestamp
    elif timestamp > self._max_timestamp:
        self._max_timestamp = timestamp
    behind = put_record(
        self._data + self._size, size, attributes, timestamp_delta, <int32_t>offset_delta,
        key, key_size, value, value_size, header_count, headers, headers_size,
    )
    self._size = behind - self._data
    self._batch_records += 1
    self._next_delta = <int32_t>offset_delta + 1
    self.record_count += 1
    self.next_offset = offset + 1
    if value_size > 0:
        behind -= value_size
    return behind - headers_size - (1 if header_count == 0 else size_of_varint(header_count))


cdef enum:
    MOST_DELTA_SIZE = 4         # bytes; a run has no offset delta with a longer varint


# The open batch as locals of a loop that appends records like add_value's (null key, no headers,
# the batch's timestamp). The builder's own counters are updated by end_run only.
cdef struct RecordRun:
    uint8_t *start              # where the first record is written
    uint8_t *stop               # no record of the run may end after this
    int32_t most                # the most records that the run may append
    int32_t first_delta         # the offset delta of the first; it rises by one
    int32_t delta_size          # of the varint of every offset delta of the run


cdef inline bint begin_run(BatchBuilder self, RecordRun *run, size_t slack) noexcept nogil:
    """Return whether records fit into the open batch, with `slack` spare bytes after `stop`."""
    cdef size_t room, left = self._capacity - self._size
    cdef int64_t delta = self.next_offset - self._batch_offset
    if (
        self._batch_start < 0 or self.timestamp_ms != self._base_timestamp or left <= slack
        or delta >> (7 * MOST_DELTA_SIZE - 1)
        or self.next_offset >= INT64_MAX - 2 * <int64_t>INT32_MAX
    ):
        return False
    room = <size_t>self.max_batch_size - (self._size - <size_t>self._batch_start)
    run.start = self._data + self._size
    run.stop = run.start + min(room, left - slack)
    run.first_delta = <int32_t>delta
    run.delta_size = size_of_uvarint(<uint32_t>delta << 1)
    run.most = min(
        self.max_batch_records - self._batch_records,
        (<int32_t>1 << (7 * run.delta_size - 1)) - run.first_delta,
    )
    return run.most > 0


cdef inline void end_run(
    BatchBuilder self, const RecordRun *run, uint8_t *behind, int32_t count
) noexcept nogil:
    """Update the builder for the `count` records between the start and `behind`."""
    if count == 0:
        return
    self._size = behind - self._data
    self._batch_records += count
    self._next_delta = run.first_delta + count
    self.record_count += count
    self.next_offset += count
    if self.timestamp_ms > self._max_timestamp:
        self._max_timestamp = self.timestamp_ms
