# The index from brokers to the rows in which they may appear; see broker_index.pyx.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from kraft._core.bytes.arena cimport Arena


cdef struct BrokerRows:
    int32_t broker
    int32_t *rows               # in `memory`
    int64_t count
    int64_t sorted_count        # the rows before this position ascend strictly
    int64_t coming              # rows that `expect` announced and `add` did not add yet
    Arena memory


cdef enum:
    # Brokers with ids below this are found without hashing.
    PLAIN_IDS = 1024


cdef class BrokerIndex:
    cdef Arena entries          # BrokerRows for each broker, in order of appearance
    cdef Arena slots            # u32: entry + 1, 0 where empty
    cdef uint64_t mask
    cdef uint32_t plain[PLAIN_IDS]  # entry + 1 of the broker of each id, 0: no list
    cdef readonly int64_t count

    cdef BrokerRows *find(self, int32_t broker) noexcept nogil
    cdef BrokerRows *intern(self, int32_t broker) noexcept nogil
    cdef int expect(self, int32_t broker) noexcept nogil
    cdef int make_room(self) noexcept nogil
    cdef int add(self, int32_t broker, int32_t row) noexcept nogil
    cdef int sort(self, BrokerRows *entry) noexcept nogil
    cdef void truncate(self, int64_t row_count) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef int place(self, int64_t number) noexcept nogil
    cdef int _empty_slots(self, uint64_t capacity) noexcept nogil
