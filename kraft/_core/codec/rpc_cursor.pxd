# A cursor over an RPC body in a flexible version, for the codecs of hot bodies.
#
# After a fault, reading continues: it returns zeros, the cursor stays at the fault, and the caller
# checks `bad` once at the end (and in loops, so that they end). Every length and count is compared
# with the bytes left before it is used. Writing uses space that the caller has reserved.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kraft._core.bytes.wire cimport (
    get_uvarint, load_u16, load_u32, load_u64, store_u16, store_u32, store_u64,
)

cdef extern from *:
    """
    static const unsigned char kraft_nothing[16] = {0};
    """
    const uint8_t *kraft_nothing

cdef enum:
    MAX_STRING_SIZE = 0x7fff


cdef struct Cursor:
    const uint8_t *start
    const uint8_t *at       # stays at the first fault
    const uint8_t *end
    bint bad


cdef struct Span:
    const uint8_t *data
    Py_ssize_t size         # -1: null


cdef inline const uint8_t *take(Cursor *c, Py_ssize_t size) noexcept nogil:
    """Return the next bytes, at most 16 of them; zeros if they end early."""
    cdef const uint8_t *p = c.at
    if c.bad or c.end - p < size:
        c.bad = True
        return kraft_nothing
    c.at = p + size
    return p


cdef inline int16_t take_i16(Cursor *c) noexcept nogil:
    return <int16_t>load_u16(take(c, 2))


cdef inline uint16_t take_u16(Cursor *c) noexcept nogil:
    return load_u16(take(c, 2))


cdef inline int32_t take_i32(Cursor *c) noexcept nogil:
    return <int32_t>load_u32(take(c, 4))


cdef inline int64_t take_i64(Cursor *c) noexcept nogil:
    return <int64_t>load_u64(take(c, 8))


cdef inline uint32_t take_uvarint(Cursor *c) noexcept nogil:
    cdef uint32_t value = 0
    cdef const uint8_t *p
    if c.bad:
        return 0
    p = get_uvarint(c.at, c.end, &value)
    if p == NULL:
        c.bad = True
        return 0
    c.at = p
    return value


cdef inline Py_ssize_t take_size(Cursor *c, Py_ssize_t least, bint nullable) noexcept nogil:
    """Read a compact length or count of items of at least `least` bytes; -1 for null."""
    cdef const uint8_t *begin = c.at
    cdef Py_ssize_t size = <Py_ssize_t>take_uvarint(c) - 1
    if c.bad:
        return 0
    if (size < 0 and not nullable) or size > (c.end - c.at) // least:
        c.at = begin
        c.bad = True
        return 0
    return size


cdef inline Span take_bytes(Cursor *c, bint nullable) noexcept nogil:
    cdef Span span
    span.size = take_size(c, 1, nullable)
    span.data = c.at
    if span.size > 0:
        c.at += span.size
    return span


cdef inline Span take_string(Cursor *c, bint nullable) noexcept nogil:
    cdef const uint8_t *begin = c.at
    cdef Span span = take_bytes(c, nullable)
    if span.size > MAX_STRING_SIZE:
        c.at = begin
        c.bad = True
        span.size = 0
    return span


cdef struct Tags:
    uint32_t left
    int64_t previous
    uint32_t tag
    const uint8_t *outer_end


cdef inline Tags begin_tags(Cursor *c) noexcept nogil:
    cdef Tags tags
    cdef const uint8_t *begin = c.at
    tags.left = take_uvarint(c)
    tags.previous = -1
    tags.tag = 0
    tags.outer_end = NULL
    if tags.left > (c.end - c.at) // 2:
        c.at = begin
        c.bad = True
        tags.left = 0
    return tags


cdef inline bint next_tag(Cursor *c, Tags *tags) noexcept nogil:
    """Go to the next tagged field and limit the cursor to its payload."""
    cdef const uint8_t *begin
    cdef uint32_t size
    if tags.outer_end != NULL:
        # The last payload must have been read completely.
        if c.at != c.end:
            c.bad = True
        c.end = tags.outer_end
        tags.outer_end = NULL
    if c.bad or tags.left == 0:
        return False
    tags.left -= 1
    begin = c.at
    tags.tag = take_uvarint(c)
    size = take_uvarint(c)
    if c.bad or <int64_t>tags.tag <= tags.previous or size > c.end - c.at:
        c.at = begin
        c.bad = True
        return False
    tags.previous = tags.tag
    tags.outer_end = c.end
    c.end = c.at + size
    return True


cdef inline void skip_payload(Cursor *c) noexcept nogil:
    c.at = c.end


cdef inline void skip_tags(Cursor *c) noexcept nogil:
    cdef Tags tags
    if not c.bad and c.at < c.end and c.at[0] == 0:
        c.at += 1
        return
    tags = begin_tags(c)
    while next_tag(c, &tags):
        skip_payload(c)


cdef inline uint8_t *put_i16(uint8_t *p, int16_t value) noexcept nogil:
    store_u16(p, <uint16_t>value)
    return p + 2


cdef inline uint8_t *put_i32(uint8_t *p, int32_t value) noexcept nogil:
    store_u32(p, <uint32_t>value)
    return p + 4


cdef inline uint8_t *put_i64(uint8_t *p, int64_t value) noexcept nogil:
    store_u64(p, <uint64_t>value)
    return p + 8


cdef inline uint8_t *put_i8(uint8_t *p, int value) noexcept nogil:
    p[0] = <uint8_t>value
    return p + 1


cdef inline uint8_t *put_raw(uint8_t *p, const void *source, Py_ssize_t size) noexcept nogil:
    memcpy(p, source, size)
    return p + size
