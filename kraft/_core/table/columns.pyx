"""The columns of the partition table: one value a partition in each contiguous numpy array.

Layout of a row, 57 bytes at stride 3 (``stride`` replica slots a row, 1 to 8)::

    leader i32 | leader_epoch i32 | partition_epoch i32 | topic i32 | partition i32
    replicas i32 x stride, -1 where unused | directories u32 x stride, interned numbers
    isr u32 | elr u32 | last_known_elr u32       packed lists over the replica slots
    leader_recovery_state i8

A packed list has four bits an entry, from the lowest, each ``slot + 1``; 0 ends it. It keeps the
order, which Kafka writes into the log; a bit mask would lose it. A row that has no exact packed
form (more replicas than the stride, a reassignment in flight, an ELR member that is no replica any
more, …) is *irregular*: its ``isr`` is ``IRREGULAR`` and its ``elr`` the number of a block in the
side table, which holds all but leader, epochs and recovery state; ``replicas`` then shows only the
first slots. ``load_row`` and ``store_row`` handle both kinds, so that callers need not distinguish.

Invariants: the arrays never shrink; a numpy view keeps the memory that it was created on, even
after growth. The arrays may be longer than ``capacity``: a large table reserves addresses for many
more rows, so that growth moves nothing and never blocks the event loop for more than 5 ms. The
operating system backs an address with memory at the first write. `map_columns` lays the pages of a
file over the first of the reserved addresses, copy-on-write.
"""

import mmap

import numpy as np
cimport numpy as cnp

from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.mman cimport MAP_FAILED, MAP_FIXED, MAP_PRIVATE, PROT_READ, PROT_WRITE
from posix.mman cimport mmap as map_pages

from kraft._core.bytes.arena cimport arena_release, arena_reserve
from kraft._core.bytes.wire cimport prefetch_write

cnp.import_array()

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *address, size_t size, int advice)

SCALARS = {
    "leader": np.int32,
    "leader_epoch": np.int32,
    "partition_epoch": np.int32,
    "topic": np.int32,
    "partition": np.int32,
    "isr": np.uint32,
    "elr": np.uint32,
    "last_known_elr": np.uint32,
    "leader_recovery_state": np.int8,
}
SLOTTED = {"replicas": np.int32, "directories": np.uint32}

cdef enum:
    # The least number of rows to reserve addresses for: about 1 GB.
    LEAST_RESERVED = 1 << 24
    # At least this many rows in one load get huge pages.
    BULK = 1 << 18
    HUGE_PAGE = 1 << 21
    # Bytes between two arrays.
    SKEW = PAGE + SHIFT_IN_PAGE
    MADV_HUGEPAGE = 14
    # Linux 5.14; where it is not supported, pages are read or copied one by one.
    MADV_POPULATE_READ = 22
    MADV_POPULATE_WRITE = 23
    # Bytes of pages that are copied in one call, about 10 ms on a slow machine.
    COPIED_AT_ONCE = 1 << 22

# Some builds of Python lack the constant; this is its value on Linux.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def _reserved(size):
    """Return writable addresses that take no memory before the first write.

    None if the system refuses them.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    try:
        return mmap.mmap(-1, size, flags=flags)
    except OSError:
        # A limit on addresses (ulimit -v), or overcommit is disabled.
        return None


def _ask_for_huge_pages(addresses, base, start, size):
    """Ask for huge pages for a range, including the pages that it covers only in part.

    The bytes of those pages are written soon as well.
    """
    begin = max((base + start) // HUGE_PAGE * HUGE_PAGE - base, 0)
    end = min(-(-(base + start + size) // HUGE_PAGE) * HUGE_PAGE - base, len(addresses))
    try:
        addresses.madvise(mmap.MADV_HUGEPAGE, begin, end - begin)
    except OSError:
        # The kernel has no huge pages.
        pass


def _array_sizes(rows, stride):
    """Return the size of each array in bytes."""
    sizes = {name: rows * np.dtype(dtype).itemsize for name, dtype in SCALARS.items()}
    for name, dtype in SLOTTED.items():
        sizes[name] = rows * stride * np.dtype(dtype).itemsize
    return sizes


def _size_of_arrays(rows, stride):
    """Return the bytes of one allocation for all arrays, which huge pages can cover best."""
    return sum(size + 64 + SKEW for size in _array_sizes(rows, stride).values())


def _arrays_in(memory, reserved, stride):
    """Return an array for each column of so many rows, and where it begins in ``memory``."""
    arrays, starts = {}, {}
    start = -memory.ctypes.data % 64
    for name, size in _array_sizes(reserved, stride).items():
        column = memory[start:start + size].view(SCALARS.get(name) or SLOTTED[name])
        arrays[name] = column if name in SCALARS else column.reshape(reserved, stride)
        starts[name] = start
        start += (size + 63) // 64 * 64 + SKEW
    return arrays, starts


cdef inline void *data_of(cnp.ndarray array):
    return cnp.PyArray_DATA(array)


cdef int32_t *pack_block(const PartitionState *state) noexcept nogil:
    """Pack a state into one allocation: six counts, four scalars, the lists.

    NULL if out of memory.
    """
    cdef int64_t size = 10 + 2 * <int64_t>state.replica_count + state.isr_count + state.elr_count
    size += state.last_known_elr_count + state.removing_count + state.adding_count
    cdef int32_t *block = <int32_t *>malloc(size * 4)
    cdef int32_t *p
    if block == NULL:
        return NULL
    block[0] = state.replica_count
    block[1] = state.isr_count
    block[2] = state.elr_count
    block[3] = state.last_known_elr_count
    block[4] = state.removing_count
    block[5] = state.adding_count
    block[6] = state.leader
    block[7] = state.leader_epoch
    block[8] = state.partition_epoch
    block[9] = state.leader_recovery_state
    p = block + 10
    memcpy(p, state.replicas, 4 * state.replica_count)
    p += state.replica_count
    memcpy(p, state.directories, 4 * state.replica_count)
    p += state.replica_count
    memcpy(p, state.isr, 4 * state.isr_count)
    p += state.isr_count
    memcpy(p, state.elr, 4 * state.elr_count)
    p += state.elr_count
    memcpy(p, state.last_known_elr, 4 * state.last_known_elr_count)
    p += state.last_known_elr_count
    memcpy(p, state.removing, 4 * state.removing_count)
    p += state.removing_count
    memcpy(p, state.adding, 4 * state.adding_count)
    return block


cdef int64_t size_of_block(const int32_t *block) noexcept nogil:
    """Return the size of a block in bytes."""
    cdef int64_t size = 10 + 2 * <int64_t>block[0]
    return 4 * (size + block[1] + block[2] + block[3] + block[4] + block[5])


cdef void unpack_block(const int32_t *block, PartitionState *state) noexcept nogil:
    cdef const int32_t *p = block + 10
    state.replica_count = block[0]
    state.isr_count = block[1]
    state.elr_count = block[2]
    state.last_known_elr_count = block[3]
    state.removing_count = block[4]
    state.adding_count = block[5]
    state.leader = block[6]
    state.leader_epoch = block[7]
    state.partition_epoch = block[8]
    state.leader_recovery_state = block[9]
    memcpy(state.replicas, p, 4 * block[0])
    p += block[0]
    memcpy(state.directories, p, 4 * block[0])
    p += block[0]
    memcpy(state.isr, p, 4 * block[1])
    p += block[1]
    memcpy(state.elr, p, 4 * block[2])
    p += block[2]
    memcpy(state.last_known_elr, p, 4 * block[3])
    p += block[3]
    memcpy(state.removing, p, 4 * block[4])
    p += block[4]
    memcpy(state.adding, p, 4 * block[5])


cdef inline bint pack_list(
    const int32_t *members, int32_t count, const int32_t *replicas, int32_t replica_count,
    uint32_t *packed,
) noexcept nogil:
    """Pack members as slots of the replicas, in order; False where no exact packed form exists."""
    cdef uint32_t result = 0
    cdef int32_t index, slot
    if count > 8:
        return False
    for index in range(count):
        for slot in range(replica_count):
            if replicas[slot] == members[index]:
                result |= <uint32_t>(slot + 1) << (4 * index)
                break
        else:
            return False
    packed[0] = result
    return True


cdef class PartitionColumns:
    def __cinit__(self, *, int64_t capacity=0, int stride=3, bint populate=False,
                  bint huge_pages=True, **_):
        if not 1 <= stride <= MAX_STRIDE:
            raise ValueError(f"stride {stride} is not between 1 and {MAX_STRIDE}")
        self.arrays = {}
        self._allocate(capacity, stride, huge_pages)
        if populate:
            for array in self.arrays.values():
                array[:capacity].fill(0)

    def __dealloc__(self):
        cdef int64_t index
        cdef int32_t **blocks = <int32_t **>self.blocks.data
        for index in range(<int64_t>(self.blocks.size // sizeof(void *))):
            free(blocks[index])
        arena_release(&self.blocks)
        arena_release(&self.free_blocks)

    cdef object _allocate(self, int64_t capacity, int stride, bint huge_pages):
        """Provide `capacity` rows; copy the rows to fresh arrays if the addresses do not suffice.

        `huge_pages`: as of the constructor.
        """
        cdef int64_t rows = self.row_count, reserved = capacity
        if self.arrays and stride == self.stride and capacity <= len(self.arrays["leader"]):
            self.capacity = capacity
            return
        addresses = None
        if capacity >= LARGE:
            reserved = max(4 * capacity, <int64_t>LEAST_RESERVED)
            addresses = _reserved(_size_of_arrays(reserved, stride))
        if addresses is not None:
            memory = np.frombuffer(addresses, np.uint8)
        else:
            reserved = capacity
            memory = np.empty(_size_of_arrays(reserved, stride), np.uint8)
        fresh, starts = _arrays_in(memory, reserved, stride)
        if addresses is not None and huge_pages and capacity >= BULK:
            # Only for bulk loads, as from a snapshot. When rows are added one by one, the first
            # write to a huge page would block the event loop until all of it is zeroed.
            for name, size in _array_sizes(capacity, stride).items():
                _ask_for_huge_pages(addresses, memory.ctypes.data, starts[name], size)
        for name, array in self.arrays.items():
            if name in SCALARS or stride == self.stride:
                fresh[name][:rows] = array[:rows]
        self._adopt(fresh, capacity, stride)

    def _adopt(self, dict arrays, int64_t capacity, int stride):
        """Use arrays of the right dtypes and shapes as the columns."""
        self.arrays = arrays
        self.is_lent = False
        self.shared_ranges = []
        self.capacity = capacity
        self.stride = stride
        self.leader = <int32_t *>data_of(arrays["leader"])
        self.leader_epoch = <int32_t *>data_of(arrays["leader_epoch"])
        self.partition_epoch = <int32_t *>data_of(arrays["partition_epoch"])
        self.topic = <int32_t *>data_of(arrays["topic"])
        self.partition = <int32_t *>data_of(arrays["partition"])
        self.replicas = <int32_t *>data_of(arrays["replicas"])
        self.directories = <uint32_t *>data_of(arrays["directories"])
        self.isr = <uint32_t *>data_of(arrays["isr"])
        self.elr = <uint32_t *>data_of(arrays["elr"])
        self.last_known_elr = <uint32_t *>data_of(arrays["last_known_elr"])
        self.leader_recovery_state = <int8_t *>data_of(arrays["leader_recovery_state"])

    cdef object reserve_rows(self, int64_t extra):
        """Provide `extra` more rows, so that `nogil` code can append them."""
        cdef int64_t wanted = self.row_count + extra
        if wanted > 0x7FFFFFFF:
            raise MemoryError("a partition table holds at most 2,147,483,647 rows")
        if wanted > self.capacity:
            self._allocate(max(wanted, self.capacity + self.capacity // 4), self.stride, True)

    def reserve(self, int64_t extra):
        if extra < 0:
            raise ValueError(f"cannot reserve {extra} rows: reserve 0 or more")
        self.reserve_rows(extra)

    def ask_for_huge_pages(self):
        cdef uintptr_t begin, end
        if self.row_count < BULK:
            return
        for name, size in _array_sizes(self.row_count, self.stride).items():
            begin = self.arrays[name].ctypes.data
            end = (begin + <uintptr_t>size) // PAGE * PAGE
            begin = (begin + PAGE - 1) // PAGE * PAGE
            madvise(<void *>begin, end - begin, MADV_HUGEPAGE)

    cdef object own_columns(self):
        """Copy borrowed columns now, so that no later append has to wait for the copy."""
        if self.is_lent:
            self.arrays, lent = {}, self.arrays
            self._allocate(self.capacity, self.stride, True)
            for name, array in lent.items():
                self.arrays[name][:self.row_count] = array[:self.row_count]

    cdef bint map_columns(
        self, int descriptor, dict positions, int64_t rows, int stride
    ) except -1:
        """Use the columns of a file, by their positions in it: no row is copied, and rows can be
        added.

        A column must begin as far into its page in the file as in memory, see ``SHIFT_IN_PAGE``.
        Return False, with nothing changed, where the system refuses.
        """
        cdef uintptr_t base, begin, end
        cdef int64_t position
        # Whole pages of the column with the smallest values, so that the others end so as well.
        reserved = (max(4 * rows, <int64_t>LEAST_RESERVED) + PAGE - 1) // PAGE * PAGE
        addresses = _reserved(_size_of_arrays(reserved, stride))
        if addresses is None:
            return False
        memory = np.frombuffer(addresses, np.uint8)
        arrays, starts = _arrays_in(memory, reserved, stride)
        base = memory.ctypes.data
        ranges = []
        for name, size in _array_sizes(rows, stride).items():
            position = positions[name]
            begin = base + <uintptr_t>starts[name]
            end = (begin + <uintptr_t>size + PAGE - 1) // PAGE * PAGE
            if position % PAGE != <int64_t>(begin % PAGE):
                raise ValueError(f"the column {name} is not at its place in a page")
            position -= begin % PAGE
            begin -= begin % PAGE
            if map_pages(
                <void *>begin, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                descriptor, position,
            ) == MAP_FAILED:
                return False
            madvise(<void *>begin, end - begin, MADV_POPULATE_READ)
            ranges.append((begin, end - begin))
        self._adopt(arrays, rows, stride)
        self.shared_ranges = ranges
        return True

    def copy_shared_pages(self):
        cdef uintptr_t begin, at
        cdef size_t size, piece
        # The arrays keep the addresses alive when the table gets others meanwhile.
        arrays, ranges, self.shared_ranges = self.arrays, self.shared_ranges, []
        for begin, size in ranges:
            for at in range(begin, begin + size, COPIED_AT_ONCE):
                piece = min(<size_t>COPIED_AT_ONCE, begin + size - at)
                with nogil:
                    madvise(<void *>at, piece, MADV_POPULATE_WRITE)
        del arrays

    cdef object restride(self, int stride):
        """Change the number of replica slots a row; irregular rows that now fit become regular."""
        cdef PartitionState state
        cdef PartitionColumns old = self
        cdef int64_t row
        fresh = PartitionColumns(capacity=self.capacity, stride=stride)
        cdef PartitionColumns other = fresh
        for row in range(self.row_count):
            old.load_row(row, &state)
            other.topic[row] = old.topic[row]
            other.partition[row] = old.partition[row]
            other.isr[row] = 0
            if other.store_row(row, &state) < 0:
                raise MemoryError("no memory for an irregular row")
        # Swap the blocks with the columns; `fresh` frees the old blocks.
        self.blocks, other.blocks = other.blocks, self.blocks
        self.free_blocks, other.free_blocks = other.free_blocks, self.free_blocks
        self.irregular_count = other.irregular_count
        self._adopt(other.arrays, other.capacity, stride)

    cdef void prefetch_row(self, int64_t row) noexcept nogil:
        """Prefetch the cache lines of a row that is visited soon."""
        prefetch_write(&self.leader[row])
        prefetch_write(&self.leader_epoch[row])
        prefetch_write(&self.partition_epoch[row])
        prefetch_write(&self.isr[row])
        prefetch_write(&self.elr[row])
        prefetch_write(&self.last_known_elr[row])
        prefetch_write(&self.leader_recovery_state[row])
        prefetch_write(&self.topic[row])
        prefetch_write(&self.partition[row])
        prefetch_write(&self.replicas[row * self.stride])
        prefetch_write(&self.directories[row * self.stride])

    cdef void load_row(self, int64_t row, PartitionState *state) noexcept nogil:
        """Unpack a row into `state`: each count, and as many list entries as it says."""
        cdef const int32_t *replicas
        cdef const uint32_t *directories
        cdef int32_t slot = 0
        cdef int stride = self.stride
        if self.isr[row] == IRREGULAR:
            unpack_block((<int32_t **>self.blocks.data)[self.elr[row]], state)
        else:
            replicas = self.replicas + row * stride
            directories = self.directories + row * stride
            while slot < stride and replicas[slot] >= 0:
                state.replicas[slot] = replicas[slot]
                state.directories[slot] = directories[slot]
                slot += 1
            state.replica_count = slot
            state.isr_count = unpack_list(self.isr[row], replicas, state.isr)
            state.elr_count = unpack_list(self.elr[row], replicas, state.elr)
            state.last_known_elr_count = unpack_list(
                self.last_known_elr[row], replicas, state.last_known_elr
            )
            state.removing_count = 0
            state.adding_count = 0
        state.leader = self.leader[row]
        state.leader_epoch = self.leader_epoch[row]
        state.partition_epoch = self.partition_epoch[row]
        state.leader_recovery_state = self.leader_recovery_state[row]

    cdef bint pack_row(self, const PartitionState *state, uint32_t *isr, uint32_t *elr,
                       uint32_t *last_known_elr) noexcept nogil:
        """Pack the lists of a state; False where it needs a block."""
        cdef int32_t slot
        if (
            state.replica_count > self.stride or state.removing_count or state.adding_count
        ):
            return False
        for slot in range(state.replica_count):
            if state.replicas[slot] < 0:
                return False
        return (
            pack_list(state.isr, state.isr_count, state.replicas, state.replica_count, isr)
            and pack_list(state.elr, state.elr_count, state.replicas, state.replica_count, elr)
            and pack_list(
                state.last_known_elr, state.last_known_elr_count, state.replicas,
                state.replica_count, last_known_elr,
            )
        )

    cdef int32_t *detach_block(self, int64_t row) noexcept nogil:
        """Remove an irregular row's block from the side table; the caller must free it."""
        cdef uint32_t number = self.elr[row]
        cdef int32_t *block = (<int32_t **>self.blocks.data)[number]
        (<int32_t **>self.blocks.data)[number] = NULL
        # `attach_block` reserved these bytes.
        (<uint32_t *>(self.free_blocks.data + self.free_blocks.size))[0] = number
        self.free_blocks.size += 4
        self.irregular_count -= 1
        self.isr[row] = 0
        self.elr[row] = 0
        return block

    cdef int attach_block(self, int64_t row, int32_t *block) noexcept nogil:
        cdef uint32_t number
        if self.free_blocks.size:
            self.free_blocks.size -= 4
            number = (<uint32_t *>(self.free_blocks.data + self.free_blocks.size))[0]
        else:
            number = <uint32_t>(self.blocks.size // sizeof(void *))
            if (
                arena_reserve(&self.blocks, sizeof(void *)) < 0
                or arena_reserve(&self.free_blocks, 4 * <size_t>(number + 1)) < 0
            ):
                return -1
            self.blocks.size += sizeof(void *)
        (<int32_t **>self.blocks.data)[number] = block
        self.isr[row] = IRREGULAR
        self.elr[row] = number
        self.last_known_elr[row] = 0
        self.irregular_count += 1
        return 0

    cdef int store_row(self, int64_t row, const PartitionState *state) noexcept nogil:
        """Write a state over a row; return -1 if out of memory. A new row's `isr` must be 0."""
        cdef uint32_t isr = 0, elr = 0, last_known_elr = 0
        cdef int32_t slot, shown
        cdef int stride = self.stride
        cdef int32_t *block
        cdef int32_t *replicas = self.replicas + row * stride
        cdef uint32_t *directories = self.directories + row * stride
        cdef bint regular = self.pack_row(state, &isr, &elr, &last_known_elr)
        if not regular:
            block = pack_block(state)
            if block == NULL:
                return -1
        if self.isr[row] == IRREGULAR:
            free(self.detach_block(row))
        if regular:
            self.isr[row] = isr
            self.elr[row] = elr
            self.last_known_elr[row] = last_known_elr
        elif self.attach_block(row, block) < 0:
            free(block)
            return -1
        shown = min(state.replica_count, <int32_t>stride)
        for slot in range(stride):
            replicas[slot] = state.replicas[slot] if slot < shown else -1
            directories[slot] = state.directories[slot] if slot < shown else 0
        self.leader[row] = state.leader
        self.leader_epoch[row] = state.leader_epoch
        self.partition_epoch[row] = state.partition_epoch
        self.leader_recovery_state[row] = <int8_t>state.leader_recovery_state
        return 0

    def column(self, str name not None):
        view = self.arrays[name][:self.row_count]
        view.flags.writeable = False
        return view

    @property
    def column_memory_size(self):
        cdef int64_t index, size = 0
        cdef int32_t **blocks = <int32_t **>self.blocks.data
        for index in range(<int64_t>(self.blocks.size // sizeof(void *))):
            if blocks[index] != NULL:
                size += size_of_block(blocks[index])
        size += self.blocks.capacity + self.free_blocks.capacity
        return size + sum(_array_sizes(self.capacity, self.stride).values())

    # -- columns of a file

    def ensure_checked(self):
        if self.pending_check is not None:
            self.pending_check(self)
            self.pending_check = None

    cdef bint is_row_sound(self, int64_t row) noexcept nogil:
        """Return whether a regular row's packed lists are valid; False for an irregular row."""
        cdef uint32_t stride = <uint32_t>self.stride
        return self.isr[row] != IRREGULAR and not (
            packed_fault(self.isr[row], stride) | packed_fault(self.elr[row], stride)
            | packed_fault(self.last_known_elr[row], stride)
        )
