# Hash maps from uuids and names to dense numbers; see intern.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraft._core.bytes.arena cimport Arena


cdef class HashSlots:
    cdef Arena slots               # u32: number + 1, 0 where empty; a power of two of them
    cdef uint64_t mask
    # The slots from before the last growth, until all their entries have moved.
    cdef Arena old_slots
    cdef uint64_t old_mask
    cdef uint64_t old_next         # the next slot to move; it is empty, so no search crosses it
    cdef uint64_t old_left         # slots that are not moved yet
    cdef uint64_t seed
    cdef readonly int64_t count    # assigned numbers, including removed ones
    cdef int64_t live
    cdef object lender             # keeps borrowed memory alive

    cdef uint64_t hash_of(self, int64_t number) noexcept nogil
    cdef void place(self, int64_t number) noexcept nogil
    cdef int make_room(self) noexcept nogil
    cdef void move_on(self, int64_t steps) noexcept nogil
    cdef bint take_out(self, uint32_t *slots, uint64_t mask, int64_t number) noexcept nogil
    cdef int own_slots(self) noexcept nogil
    cdef void discard(self, int64_t number) noexcept nogil
    cdef int restore(self, int64_t number) noexcept nogil


cdef class UuidMap(HashSlots):
    cdef Arena keys                # 16 bytes for each number, in order

    cdef int own(self) noexcept nogil
    cdef int64_t find(self, const uint8_t *uuid) noexcept nogil
    cdef int64_t find_in(self, const uint32_t *slots, uint64_t mask, uint64_t hash_,
                         const uint8_t *uuid) noexcept nogil
    cdef int64_t add(self, const uint8_t *uuid) noexcept nogil
    cdef int64_t intern(self, const uint8_t *uuid) noexcept nogil


cdef class NameMap(HashSlots):
    cdef Arena text                # the names, concatenated
    cdef Arena ends                # u64: the end of each name in `text`

    cdef const uint8_t *name(self, int64_t number, int32_t *size) noexcept nogil
    cdef int own(self) noexcept nogil
    cdef int64_t find(self, const uint8_t *name, int32_t size) noexcept nogil
    cdef int64_t find_in(self, const uint32_t *slots, uint64_t mask, uint64_t hash_,
                         const uint8_t *name, int32_t size) noexcept nogil
    cdef int64_t add(self, const uint8_t *name, int32_t size) noexcept nogil
