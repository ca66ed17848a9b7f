"""The latest offset of each key in a run of batches, for the compaction of a log.

A table with open addressing holds 24 bytes a key: a 128-bit hash of the key and an offset. Two keys
with one hash would lose records, so the hash is long, and it is keyed: SipHash-2-4-128 (Aumasson
and Bernstein, 2012) with a random secret. Kafka uses MD5, whose collisions anybody can compute
(storage/.../internals/log/SkimpyOffsetMap.java).

Invariants: a record becomes no Python object. Keys are hashed without the GIL. The table never
fills to more than nine tenths.

Used by `kraft.broker.log.compaction` and `batch_filter`.
"""

import os

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from kraft._core.bytes.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, CONTROL_FLAG, LOG_OVERHEAD, BatchHeader, RecordFrame, next_record,
    read_batch_header,
)
from kraft._core.bytes.wire cimport unlikely

from kraft._core.bytes import compression
from kraft._core.bytes.batch import reason_text
from kraft._core.bytes.compression import DEFAULT_BUDGET
from kraft.errors import CorruptRecordError

cdef enum:
    SECRET_BYTES = 16
    LEAST_SLOTS = 2

    # The outcomes of add_records.
    ALL_ADDED = 0
    MAP_IS_FULL = 1
    MALFORMED = 2


cdef inline uint64_t rotated(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotated(v[1], 13) ^ v[0]
    v[3] = rotated(v[3], 16) ^ v[2]
    v[0] = rotated(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotated(v[1], 17) ^ v[2]
    v[3] = rotated(v[3], 21) ^ v[0]
    v[2] = rotated(v[2], 32)


cdef inline uint64_t little_endian(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    for i in range(size):
        word |= <uint64_t>p[i] << (8 * i)
    return word


cdef void hash_key(
    const uint8_t *p, Py_ssize_t size, uint64_t key0, uint64_t key1,
    uint64_t *first, uint64_t *second,
) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t left = size
    cdef int _round
    v[0] = key0 ^ <uint64_t>0x736f6d6570736575
    v[1] = key1 ^ <uint64_t>0x646f72616e646f6d ^ 0xee
    v[2] = key0 ^ <uint64_t>0x6c7967656e657261
    v[3] = key1 ^ <uint64_t>0x7465646279746573
    while left >= 8:
        word = little_endian(p, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
        p += 8
        left -= 8
    word = (<uint64_t>size << 56) | little_endian(p, left)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xee
    for _round in range(4):
        sip_round(v)
    first[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    for _round in range(4):
        sip_round(v)
    second[0] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef int add_records(
    KeyOffsets offsets, const uint8_t *p, const uint8_t *end, const BatchHeader *header,
    int64_t first_offset,
) noexcept nogil:
    """Add the keys of a batch's records, which are from p to end."""
    cdef RecordFrame frame
    cdef Py_ssize_t most = offsets.slot_count * 9 // 10
    cdef int64_t offset
    cdef int32_t _i
    for _i in range(header.record_count):
        p = next_record(p, end, &frame)
        if unlikely(p == NULL):
            return MALFORMED
        offset = header.base_offset + frame.offset_delta
        if frame.key_size >= 0 and offset >= first_offset:
            if offsets.key_count >= most:
                return MAP_IS_FULL
            offsets.put(frame.key, frame.key_size, offset)
            offsets.latest_offset = max(offsets.latest_offset, offset)
    return ALL_ADDED


cdef bytes plain_records(
    const uint8_t *p, Py_ssize_t size, const BatchHeader *header, int64_t position, int64_t budget
):
    """Return the records of a compressed batch, inflated."""
    return compression.decompress(
        header.attributes & CODEC_MASK, PyMemoryView_FromMemory(<char *>p, size, PyBUF_READ),
        budget, position=position,
    )


def key_hash(key, bytes secret not None):
    cdef Py_buffer view
    cdef uint64_t halves[2]
    cdef const uint8_t *s = <const uint8_t *>PyBytes_AS_STRING(secret)
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"the secret has {len(secret)} bytes, not {SECRET_BYTES}")
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    hash_key(
        <const uint8_t *>view.buf, view.len, little_endian(s, 8), little_endian(s + 8, 8),
        &halves[0], &halves[1],
    )
    PyBuffer_Release(&view)
    return halves[0].to_bytes(8, "little") + halves[1].to_bytes(8, "little")


cdef class KeyOffsets:
    def __cinit__(self, Py_ssize_t memory, *, bytes secret=None):
        cdef const uint8_t *s
        self.slot_count = memory // <Py_ssize_t>sizeof(KeySlot)
        if self.slot_count < LEAST_SLOTS:
            raise ValueError(f"{memory} bytes have no room for keys")
        if secret is None:
            secret = os.urandom(SECRET_BYTES)
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret has {len(secret)} bytes, not {SECRET_BYTES}")
        s = <const uint8_t *>PyBytes_AS_STRING(secret)
        self._key0 = little_endian(s, 8)
        self._key1 = little_endian(s + 8, 8)
        self.latest_offset = -1
        self._take_slots()

    def __dealloc__(self):
        free(self._slots)

    def __len__(self):
        return self.key_count

    def __repr__(self):
        return f"<KeyOffsets, {self.key_count} keys, {self.slot_count} slots>"

    def _take_slots(self):
        # The system gives pages of zeros when they are first written.
        self._slots = <KeySlot *>calloc(<size_t>self.slot_count, sizeof(KeySlot))
        if self._slots == NULL:
            raise MemoryError

    cdef KeySlot *_slot_of(self, const uint8_t *key, Py_ssize_t size) noexcept nogil:
        """Return the slot of a key, or the free one in which it belongs."""
        cdef uint64_t first, second
        cdef Py_ssize_t place
        cdef KeySlot *slot
        hash_key(key, size, self._key0, self._key1, &first, &second)
        place = <Py_ssize_t>(first % <uint64_t>self.slot_count)
        while True:
            slot = &self._slots[place]
            if slot.place == 0 or (slot.first == first and slot.second == second):
                break
            place += 1
            if place == self.slot_count:
                place = 0
        if slot.place == 0:
            slot.first = first
            slot.second = second
        return slot

    cdef void put(self, const uint8_t *key, Py_ssize_t size, int64_t offset) noexcept nogil:
        cdef KeySlot *slot = self._slot_of(key, size)
        if slot.place == 0:
            self.key_count += 1
        slot.place = offset + 1

    cdef int64_t offset_of(self, const uint8_t *key, Py_ssize_t size) noexcept nogil:
        return self._slot_of(key, size).place - 1

    def get(self, key):
        cdef Py_buffer view
        cdef int64_t offset
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        offset = self.offset_of(<const uint8_t *>view.buf, view.len)
        PyBuffer_Release(&view)
        return offset

    def add(
        self, batches, int64_t first_offset, *, skipped=None, int64_t budget=DEFAULT_BUDGET
    ):
        cdef Py_buffer view
        cdef BatchHeader header
        cdef const uint8_t[::1] skips = skipped
        cdef const uint8_t *p
        cdef const uint8_t *plain
        cdef Py_ssize_t position = 0, plain_size, index = 0
        cdef int64_t last_offset
        cdef int code
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            p = <const uint8_t *>view.buf
            while position < view.len:
                code = read_batch_header(p + position, <size_t>(view.len - position), &header)
                if code:
                    raise CorruptRecordError(reason_text(code), position=position)
                last_offset = header.base_offset + header.last_offset_delta
                if (
                    last_offset >= first_offset and not header.attributes & CONTROL_FLAG
                    and not (skips is not None and index < skips.shape[0] and skips[index])
                ):
                    plain = p + position + BATCH_OVERHEAD
                    plain_size = header.batch_length - (BATCH_OVERHEAD - LOG_OVERHEAD)
                    if header.attributes & CODEC_MASK and header.record_count:
                        inflated = plain_records(plain, plain_size, &header, position, budget)
                        plain = <const uint8_t *>PyBytes_AS_STRING(inflated)
                        plain_size = PyBytes_GET_SIZE(inflated)
                    with nogil:
                        code = add_records(self, plain, plain + plain_size, &header, first_offset)
                    if code == MAP_IS_FULL:
                        return True
                    if code == MALFORMED:
                        raise CorruptRecordError("a record is malformed", position=position)
                if last_offset >= first_offset:
                    self.latest_offset = max(self.latest_offset, last_offset)
                position += LOG_OVERHEAD + header.batch_length
                index += 1
        finally:
            PyBuffer_Release(&view)
        return False

    def reach(self, int64_t offset):
        self.latest_offset = max(self.latest_offset, offset)

    def clear(self):
        free(self._slots)
        self._slots = NULL
        self.key_count = 0
        self.latest_offset = -1
        self._take_slots()
