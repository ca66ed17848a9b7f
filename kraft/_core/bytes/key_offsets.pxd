# The C half of key_offsets: the offsets of keys, for batch_filter.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from kraft._core.bytes.batch cimport BatchHeader


cdef struct KeySlot:
    uint64_t first              # the two halves of the key's hash
    uint64_t second
    int64_t place               # the offset + 1; 0: the slot is free


cdef class KeyOffsets:
    cdef KeySlot *_slots
    cdef readonly Py_ssize_t slot_count
    cdef readonly Py_ssize_t key_count
    # All records up to this offset are in the map, -1 without one.
    cdef readonly int64_t latest_offset
    cdef uint64_t _key0
    cdef uint64_t _key1

    # Sets the offset of a key. The caller has checked that a slot is free.
    cdef void put(self, const uint8_t *key, Py_ssize_t size, int64_t offset) noexcept nogil
    # Returns the offset of a key, or -1.
    cdef int64_t offset_of(self, const uint8_t *key, Py_ssize_t size) noexcept nogil
    cdef KeySlot *_slot_of(self, const uint8_t *key, Py_ssize_t size) noexcept nogil


# Returns the records of a compressed batch, which are at p, inflated to at most `budget` bytes.
cdef bytes plain_records(
    const uint8_t *p, Py_ssize_t size, const BatchHeader *header, int64_t position, int64_t budget
)
