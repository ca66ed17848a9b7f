# A growing piece of memory in C, for tables that no Python object ever views: it may move when it
# grows. It can begin as borrowed memory (a mapped checkpoint) and becomes its own on the first
# growth.

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef struct Arena:
    uint8_t *data
    size_t size
    size_t capacity
    bint borrowed


cdef inline int arena_reserve(Arena *arena, size_t extra) noexcept nogil:
    """Room for `extra` more bytes behind `size`: 0, or -1 when memory ran out (nothing is lost
    then).
    """
    cdef size_t wanted = arena.size + extra
    cdef size_t capacity
    cdef void *moved
    if wanted <= arena.capacity:
        return 0
    capacity = arena.capacity + arena.capacity // 2
    if capacity < wanted:
        capacity = wanted
    if capacity < 64:
        capacity = 64
    if arena.borrowed:
        moved = malloc(capacity)
        if moved == NULL:
            return -1
        memcpy(moved, arena.data, arena.size)
        arena.borrowed = False
    else:
        moved = realloc(arena.data, capacity)
        if moved == NULL:
            return -1
    arena.data = <uint8_t *>moved
    arena.capacity = capacity
    return 0


cdef inline void arena_borrow(Arena *arena, uint8_t *data, size_t size) noexcept nogil:
    arena_release(arena)
    arena.data = data
    arena.size = size
    arena.capacity = size
    arena.borrowed = True


cdef inline void arena_release(Arena *arena) noexcept nogil:
    if not arena.borrowed:
        free(arena.data)
    arena.data = NULL
    arena.size = 0
    arena.capacity = 0
    arena.borrowed = False
