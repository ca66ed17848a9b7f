"""Memory in C that grows without a stall: small pieces from malloc, large ones in place.

Owns `Arena`, and the ranges of addresses that large ones lie in. Growing by copying holds the
thread for as long as the copy takes, 10 ms for 32 MB and what its fresh pages cost; a controller
must not be away for that long. So an arena from `LARGE_ARENA` on lies in a private mapping whose
addresses are reserved for far more than is needed and may not be touched; growing makes more of it
accessible. Nothing is copied and nothing moves, and the system fills pages with zeros as each is
first written, which spreads that cost too. Reserved addresses are no memory: they count nowhere.

Where a reservation is refused (RLIMIT_AS, a system that overcommits nothing), memory comes from
malloc at any size and is copied as it grows. So it is under the address sanitizer, which watches
the bounds of what malloc gave.

Invariants: an arena may move as long as it is small, or refused, or borrowed (it can begin as
memory of somebody else, a mapped checkpoint); nothing keeps pointers into one over its growth.
"""

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <sys/mman.h>
    #include <unistd.h>

    #ifndef MAP_NORESERVE
    #define MAP_NORESERVE 0
    #endif
    #if defined(__SANITIZE_ADDRESS__)
    #define KRAFT_MAY_RESERVE 0
    #elif defined(__has_feature)
    #if __has_feature(address_sanitizer)
    #define KRAFT_MAY_RESERVE 0
    #endif
    #endif
    #ifndef KRAFT_MAY_RESERVE
    #define KRAFT_MAY_RESERVE 1
    #endif

    static void *kraft_reserve(size_t size) {
        void *start = MAP_FAILED;
        if (KRAFT_MAY_RESERVE)
            start = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return start == MAP_FAILED ? NULL : start;
    }

    static int kraft_commit(void *start, size_t size) {
        return mprotect(start, size, PROT_READ | PROT_WRITE);
    }
    """
    void *kraft_reserve(size_t size) nogil
    int kraft_commit(void *start, size_t size) nogil
    int munmap(void *start, size_t size) nogil
    long sysconf(int name) nogil
    int _SC_PAGESIZE

cdef enum:
    # How much further than to its present size an arena's addresses reach, and how far at least.
    TIMES_RESERVED = 64
    LEAST_RESERVED = 1 << 30

cdef size_t PAGE_SIZE = <size_t>sysconf(_SC_PAGESIZE)


cdef inline size_t whole_pages(size_t size) noexcept nogil:
    return (size + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1)


cdef int arena_grow(Arena *arena, size_t capacity) noexcept nogil:
    """Room for at least `capacity` bytes, more than there is: 0, or -1 and nothing has changed."""
    cdef Arena old = arena[0]
    cdef size_t reserved
    cdef uint8_t *moved = NULL
    if capacity >= LARGE_ARENA:
        capacity = whole_pages(capacity)
        if arena.reserved >= capacity:
            if kraft_commit(old.data + old.capacity, capacity - old.capacity) < 0:
                return -1
            arena.capacity = capacity
            return 0
        reserved = max(<size_t>LEAST_RESERVED, TIMES_RESERVED * capacity)
        moved = <uint8_t *>kraft_reserve(reserved)
        if moved != NULL and kraft_commit(moved, capacity) < 0:
            munmap(moved, reserved)
            moved = NULL
        if moved != NULL:
            if old.size:
                memcpy(moved, old.data, old.size)
            arena_release(&old)
            arena.data = moved
            arena.capacity = capacity
            arena.reserved = reserved
            arena.borrowed = False
            return 0
    capacity = max(capacity, <size_t>64)
    if old.borrowed or old.reserved:
        moved = <uint8_t *>malloc(capacity)
        if moved == NULL:
            return -1
        if old.size:
            memcpy(moved, old.data, old.size)
        arena_release(&old)
    else:
        moved = <uint8_t *>realloc(old.data, capacity)
        if moved == NULL:
            return -1
    arena.data = moved
    arena.capacity = capacity
    arena.reserved = 0
    arena.borrowed = False
    return 0


cdef int arena_zeroed(Arena *arena, size_t size) noexcept nogil:
    """Makes an empty arena one of `size` bytes of zeros, without touching large ones; -1: no
    memory.
    """
    if size >= LARGE_ARENA:
        size = whole_pages(size)
        arena.data = <uint8_t *>kraft_reserve(size)
        if arena.data != NULL and kraft_commit(arena.data, size) < 0:
            munmap(arena.data, size)
            arena.data = NULL
        arena.reserved = size if arena.data != NULL else 0
    if arena.data == NULL:
        arena.data = <uint8_t *>calloc(size, 1)
        if arena.data == NULL:
            return -1
    arena.size = size
    arena.capacity = size
    arena.borrowed = False
    return 0


cdef int arena_own(Arena *arena) noexcept nogil:
    """Copies what is borrowed, so that it grows later without that; -1 when memory ran out."""
    return arena_grow(arena, arena.capacity) if arena.borrowed else 0


cdef void arena_release(Arena *arena) noexcept nogil:
    if arena.reserved:
        munmap(arena.data, arena.reserved)
    elif not arena.borrowed:
        free(arena.data)
    arena.data = NULL
    arena.size = 0
    arena.capacity = 0
    arena.reserved = 0
    arena.borrowed = False
