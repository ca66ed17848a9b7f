"""Memory in C that grows without a stall: small blocks from malloc, large ones in place.

Growing by copying would block the thread for the whole copy: 10 ms for 32 MB, plus page faults. A
controller must not stall for that long. An arena of `LARGE_ARENA` bytes or more is therefore a
private mapping that reserves far more addresses than it needs, without access to them. Growing only
makes more of them accessible: nothing is copied or moved, and the kernel zeroes each page at its
first write, which spreads that cost. Reserved addresses use no memory.

Where the system refuses a reservation (RLIMIT_AS, strict overcommit), memory comes from malloc at
any size and is copied as it grows. The address sanitizer build does the same, because the sanitizer
checks the bounds of malloc's blocks only.

Invariants: an arena may move while it is small, without a reservation, or borrowed (it can start as
memory of another object, such as a mapped checkpoint). No caller keeps a pointer into an arena
across a growth.
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

    static void kraft_discard(void *start, size_t size) {
        madvise(start, size, MADV_DONTNEED);
    }
    """
    void *kraft_reserve(size_t size) nogil
    int kraft_commit(void *start, size_t size) nogil
    void kraft_discard(void *start, size_t size) nogil
    int munmap(void *start, size_t size) nogil
    long sysconf(int name) nogil
    int _SC_PAGESIZE

cdef enum:
    # Reserved addresses: a multiple of the present size, and a minimum in bytes.
    TIMES_RESERVED = 64
    LEAST_RESERVED = 1 << 30

cdef size_t PAGE_SIZE = <size_t>sysconf(_SC_PAGESIZE)


cdef inline size_t whole_pages(size_t size) noexcept nogil:
    return (size + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1)


cdef int arena_grow(Arena *arena, size_t capacity) noexcept nogil:
    """Grow to at least `capacity` bytes; return 0, or -1 (unchanged) if memory is exhausted."""
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
    """Make an empty arena `size` zero bytes, without touching a large one's pages.

    Return 0, or -1 if memory is exhausted.
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
    """Copy borrowed memory now, not at the next growth; return 0, or -1 if memory is exhausted."""
    return arena_grow(arena, arena.capacity) if arena.borrowed else 0


cdef void arena_discard(Arena *arena, size_t used) noexcept nogil:
    """Return to the system the whole pages between `size` and `used`, whose bytes are lost.

    Only of a large arena, whose addresses stay; the next write gets fresh pages.
    """
    cdef size_t begin = whole_pages(arena.size)
    if arena.reserved and whole_pages(used) > begin:
        kraft_discard(arena.data + begin, whole_pages(used) - begin)


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
