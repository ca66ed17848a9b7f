# Images of a partition table as of an offset, and deltas; see images.pyx.

from libc.stdint cimport int32_t, int64_t, uint64_t

from kraft._core.bytes.arena cimport Arena
from kraft._core.codec.partition_codec cimport PartitionState
from kraft._core.table.rows cimport TableRows


# The journal entries with the old values of a row, as sequence numbers.
cdef struct OverlaidRow:
    int64_t oldest
    int64_t oldest_block        # the oldest entry that holds the whole row; -1: none
    int32_t row                 # -1: the slot is empty


cdef class TableImage:
    cdef TableRows table            # another one after a compaction: read it anew in every call
    cdef readonly int64_t offset
    cdef int64_t seen               # the first journal entry that was not read yet; -1: none was
    cdef int64_t seen_reverts
    cdef int64_t rows_then          # -1: unknown yet
    cdef Arena slots                # OverlaidRow, a power of two of them, at most half full
    cdef uint64_t mask
    cdef int64_t overlaid_count
    cdef set topics_added_since
    cdef set topics_removed_since
    cdef object __weakref__

    cdef int64_t first_entry(self) noexcept nogil
    cdef object catch_up(self)
    cdef int overlay(self, int32_t row, int64_t sequence, bint has_block) noexcept nogil
    cdef OverlaidRow *find(self, int64_t row) noexcept nogil
    cdef int make_room(self) noexcept nogil
    cdef void load_row(self, int64_t row, PartitionState *state) noexcept nogil
    cdef bint had_topic(self, int64_t topic)
    cdef object _check_topic(self, int64_t topic)
    cdef int _check_row(self, int64_t row) except -1
    cdef int32_t *row_pairs(self, int64_t topic, int64_t *count) except? NULL


cdef class TableDelta:
    cdef readonly TableImage before
    cdef readonly TableImage after
    cdef dict parts

    cdef object materialise(self)
