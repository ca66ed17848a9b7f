# The columns of the partition table, packed lists, irregular rows; see columns.pyx.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kraft._core.bytes.arena cimport Arena
from kraft._core.codec.partition_codec cimport PartitionState

cdef enum:
    MAX_STRIDE = 8
    # In the `isr` column: the row is in the side table, under the number in the `elr` column. As a
    # packed list this would name slot 14, which no stride has.
    IRREGULAR = 0xFFFFFFFF
    # A table of at least this many rows reserves addresses; copying fewer takes at most 1 ms.
    LARGE = 1 << 15
    # Each column begins so many bytes later in its page than the one before, in memory and in a
    # column checkpoint: columns with a power of two of rows would otherwise map to the same cache
    # sets.
    SHIFT_IN_PAGE = 5 * 64
    PAGE = 4096


cdef class PartitionColumns:
    cdef int32_t *leader
    cdef int32_t *leader_epoch
    cdef int32_t *partition_epoch
    cdef int32_t *topic                # number of the topic; -1 - number once the row is dead
    cdef int32_t *partition
    cdef int32_t *replicas             # stride slots a row, -1 where unused
    cdef uint32_t *directories         # stride slots a row, interned
    cdef uint32_t *isr                 # packed slots, the order kept
    cdef uint32_t *elr
    cdef uint32_t *last_known_elr
    cdef int8_t *leader_recovery_state
    cdef readonly int stride
    cdef readonly int64_t row_count    # rows in use, dead ones included
    cdef readonly int64_t capacity
    cdef dict arrays                   # name -> the numpy array behind the pointer
    cdef bint is_lent                  # the arrays are borrowed from a mapped file
    cdef list shared_ranges            # (address, size): pages that may still be those of a file
    cdef Arena blocks                  # int32_t* of each irregular row, NULL where free
    cdef Arena free_blocks             # u32 numbers of free blocks
    cdef readonly int64_t irregular_count
    # The check that is due for a table mapped without verification: a callable that takes the table
    # and raises for inconsistent columns. None: nothing is due.
    cdef object pending_check

    cdef object _allocate(self, int64_t capacity, int stride, bint huge_pages)
    cdef object reserve_rows(self, int64_t extra)
    cdef object own_columns(self)
    cdef bint map_columns(self, int descriptor, dict positions, int64_t rows, int stride) except -1
    cdef object restride(self, int stride)

    cdef void load_row(self, int64_t row, PartitionState *state) noexcept nogil
    cdef int store_row(self, int64_t row, const PartitionState *state) noexcept nogil
    cdef bint pack_row(self, const PartitionState *state, uint32_t *isr, uint32_t *elr,
                       uint32_t *last_known_elr) noexcept nogil
    cdef int attach_block(self, int64_t row, int32_t *block) noexcept nogil
    cdef int32_t *detach_block(self, int64_t row) noexcept nogil
    cdef void prefetch_row(self, int64_t row) noexcept nogil
    cdef bint is_row_sound(self, int64_t row) noexcept nogil


cdef int32_t *pack_block(const PartitionState *state) noexcept nogil
cdef void unpack_block(const int32_t *block, PartitionState *state) noexcept nogil
cdef int64_t size_of_block(const int32_t *block) noexcept nogil


cdef inline uint32_t packed_fault(uint32_t packed, uint32_t stride) noexcept nogil:
    """Return 0 for a packed list without gaps whose slots are all below `stride`; no branch."""
    cdef uint32_t limit = <uint32_t>0x01010101 * (15 - stride)
    # Set all four bits of each entry that is not 0: without a gap, adding 1 clears them all.
    cdef uint32_t used = (packed | packed >> 1 | packed >> 2 | packed >> 3) & <uint32_t>0x11111111
    used |= used << 1
    used |= used << 2
    return (
        used & (used + 1)
        | ((packed & <uint32_t>0x0F0F0F0F) + limit) & <uint32_t>0xF0F0F0F0
        | ((packed >> 4 & <uint32_t>0x0F0F0F0F) + limit) & <uint32_t>0xF0F0F0F0
    )


cdef inline int32_t unpack_list(
    uint32_t packed, const int32_t *replicas, int32_t *members
) noexcept nogil:
    """Unpack a list; return the number of members."""
    cdef int32_t count = 0
    while packed:
        members[count] = replicas[(packed & 15) - 1]
        packed >>= 4
        count += 1
    return count
