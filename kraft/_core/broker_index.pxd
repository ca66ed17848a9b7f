# Which rows a broker may appear in; see broker_index.pyx.

from libc.stdint cimport int32_t, int64_t, uint64_t

from kraft._core.arena cimport Arena


cdef struct BrokerRows:
    int32_t broker
    int32_t sorted_             # rows ascend strictly
    int32_t *rows
    int64_t count
    int64_t capacity


cdef class BrokerIndex:
    cdef Arena entries          # BrokerRows for each broker, in order of appearance
    cdef Arena slots            # u32: entry + 1, 0 where empty
    cdef uint64_t mask
    cdef readonly int64_t count

    cdef BrokerRows *find(self, int32_t broker) noexcept nogil
    cdef BrokerRows *intern(self, int32_t broker) noexcept nogil
    cdef int add(self, int32_t broker, int32_t row) noexcept nogil
    cdef int sort(self, BrokerRows *entry) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef int place(self, int64_t number) noexcept nogil
    cdef int _empty_slots(self, uint64_t capacity) noexcept nogil
