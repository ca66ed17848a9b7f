# A growing block of C memory, for tables that no Python object ever views; see arena.pyx.

from libc.stdint cimport uint8_t

cdef enum:
    # From this many bytes on an arena grows in place, in a range of addresses of its own.
    LARGE_ARENA = 1 << 20

cdef struct Arena:
    uint8_t *data
    size_t size
    size_t capacity             # bytes that may be written
    size_t reserved             # bytes of the range of addresses, 0 for memory from malloc
    bint borrowed


cdef int arena_grow(Arena *arena, size_t capacity) noexcept nogil
cdef int arena_zeroed(Arena *arena, size_t size) noexcept nogil
cdef int arena_own(Arena *arena) noexcept nogil
cdef void arena_discard(Arena *arena, size_t used) noexcept nogil
cdef void arena_release(Arena *arena) noexcept nogil


cdef inline int arena_reserve(Arena *arena, size_t extra) noexcept nogil:
    """Reserve `extra` bytes after `size`; return 0, or -1 (unchanged) if memory is exhausted."""
    cdef size_t wanted = arena.size + extra
    cdef size_t capacity
    if wanted <= arena.capacity:
        return 0
    # Growing in place is cheap, so an arena that does so keeps less spare capacity.
    capacity = arena.capacity + (arena.capacity // 8 if arena.reserved else arena.capacity // 2)
    return arena_grow(arena, capacity if capacity > wanted else wanted)


cdef inline void arena_borrow(Arena *arena, uint8_t *data, size_t size) noexcept nogil:
    arena_release(arena)
    arena.data = data
    arena.size = size
    arena.capacity = size
    arena.borrowed = True
