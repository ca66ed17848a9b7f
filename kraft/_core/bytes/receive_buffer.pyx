"""Reusable memory for large network frames.

A `ReceiveBuffer` is writable bytes that are not zeroed. A frame travels as slices of its buffer,
through the state machine and into a file. When its last slice is deallocated, in any thread, the
block becomes free for the next frame. A download thus uses few blocks that stay in the cache, and
needs no new pages from the kernel (each of which is a page fault and is zeroed).

Invariants: a block belongs to one buffer or is spare, never both; spare blocks have at most
`SPARE_SIZE` bytes together; the spare blocks change only under the GIL. Used by
``kraft.network.framing``.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc

cdef enum:
    MAX_SPARE_BLOCKS = 32
    GRANULE = 64 * 1024     # capacities are multiples of it, so that blocks can be reused

#: The most bytes that spare blocks have together.
SPARE_SIZE = 8 * 1024 * 1024
cdef Py_ssize_t c_spare_size = SPARE_SIZE

cdef struct Block:
    uint8_t *data
    Py_ssize_t capacity

cdef Block spare[MAX_SPARE_BLOCKS]
cdef int spare_count = 0
cdef Py_ssize_t spare_bytes = 0


cdef bint take_spare(Py_ssize_t size, Block *block) noexcept:
    """Take the spare block that was freed last among those that fit without great waste."""
    global spare_count, spare_bytes
    cdef int i, j
    for i in range(spare_count - 1, -1, -1):
        if size <= spare[i].capacity <= 2 * size + GRANULE:
            block[0] = spare[i]
            spare_count -= 1
            spare_bytes -= block.capacity
            for j in range(i, spare_count):
                spare[j] = spare[j + 1]
            return True
    return False


cdef void give_back(Block block) noexcept:
    global spare_count, spare_bytes
    if spare_count < MAX_SPARE_BLOCKS and spare_bytes + block.capacity <= c_spare_size:
        spare[spare_count] = block
        spare_count += 1
        spare_bytes += block.capacity
    else:
        free(block.data)


def spare_size():
    return spare_bytes


cdef class ReceiveBuffer:
    cdef Block _block
    cdef readonly Py_ssize_t size

    def __cinit__(self, Py_ssize_t size):
        if size <= 0:
            raise ValueError(f"a buffer of {size} bytes: the smallest has 1")
        if not take_spare(size, &self._block):
            self._block.capacity = (size + GRANULE - 1) // GRANULE * GRANULE
            self._block.data = <uint8_t *>malloc(<size_t>self._block.capacity)
            if self._block.data == NULL:
                raise MemoryError
        self.size = size

    def __dealloc__(self):
        if self._block.data != NULL:
            give_back(self._block)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._block.data, self.size, 0, flags)
