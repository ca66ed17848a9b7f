# Topics, and the row of each (topic, partition); see topics.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kraft._core.bytes.arena cimport Arena
from kraft._core.table.intern cimport NameMap, UuidMap


# The extent of a topic: `row_count` rows from `first_row` on hold the partitions from
# `first_partition` on. Partitions outside of it are scattered (RowMap). `max_partition` is an upper
# bound of all ids.
cdef struct TopicEntry:
    int32_t first_row
    int32_t first_partition
    int32_t row_count
    int32_t partition_count
    int32_t max_partition
    int32_t alive


cdef struct ScatterSlot:
    uint64_t key
    int64_t row                # row + 1; 0: empty


cdef class RowMap:
    cdef Arena slots
    cdef uint64_t mask
    # The slots from before the last growth, as in `intern.HashSlots`.
    cdef Arena old_slots
    cdef uint64_t old_mask
    cdef uint64_t old_next
    cdef uint64_t old_left
    cdef readonly int64_t count

    cdef void place(self, uint64_t key, int64_t row) noexcept nogil
    cdef int make_room(self) noexcept nogil
    cdef void move_on(self, int64_t steps) noexcept nogil
    cdef int64_t find(self, int32_t topic, int32_t partition) noexcept nogil
    cdef int put(self, int32_t topic, int32_t partition, int64_t row) noexcept nogil
    cdef void discard(self, int32_t topic, int32_t partition) noexcept nogil


cdef class TopicTable:
    cdef UuidMap ids
    cdef NameMap names
    cdef Arena entries             # TopicEntry for each topic number
    cdef RowMap scattered

    cdef inline TopicEntry *entry(self, int64_t topic) noexcept nogil:
        return (<TopicEntry *>self.entries.data) + topic

    cdef int64_t add(
        self, const uint8_t *name, int32_t name_size, const uint8_t *topic_id
    ) noexcept nogil
    cdef int own(self) noexcept nogil
    cdef void discard(self, int64_t topic) noexcept nogil
    cdef int restore(self, int64_t topic) noexcept nogil
    cdef int64_t row_of(self, int32_t topic, int32_t partition) noexcept nogil
    cdef int add_row(self, int32_t topic, int32_t partition, int64_t row) noexcept nogil
    cdef void drop_row(self, int32_t topic, int32_t partition) noexcept nogil
