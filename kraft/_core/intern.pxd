# Compiled hash maps from uuids and names to small dense numbers; see intern.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraft._core.arena cimport Arena


cdef class HashSlots:
    cdef Arena slots               # u32: number + 1, 0 where empty; a power of two of them
    cdef uint64_t mask
    cdef uint64_t seed
    cdef readonly int64_t count    # numbers given out, removed ones included
    cdef int64_t live
    cdef object lender             # keeps borrowed memory alive

    cdef uint64_t home(self, int64_t number) noexcept nogil
    cdef void place(self, int64_t number) noexcept nogil
    cdef int make_room(self) noexcept nogil
    cdef void discard(self, int64_t number) noexcept nogil
    cdef int restore(self, int64_t number) noexcept nogil


cdef class UuidMap(HashSlots):
    cdef Arena keys                # 16 bytes for each number, in order

    cdef int64_t find(self, const uint8_t *uuid) noexcept nogil
    cdef int64_t add(self, const uint8_t *uuid) noexcept nogil
    cdef int64_t intern(self, const uint8_t *uuid) noexcept nogil


cdef class NameMap(HashSlots):
    cdef Arena text                # the names, one behind the other
    cdef Arena ends                # u64: where each name ends

    cdef const uint8_t *name(self, int64_t number, int32_t *size) noexcept nogil
    cdef int64_t find(self, const uint8_t *name, int32_t size) noexcept nogil
    cdef int64_t add(self, const uint8_t *name, int32_t size) noexcept nogil
