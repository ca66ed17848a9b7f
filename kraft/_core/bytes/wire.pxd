# The C half of wire, for the other modules of the core: cursor functions, which never allocate, and
# the C methods of Reader and Writer.
#
# A get_* takes the cursor and the end of the readable bytes. It returns the cursor after the value,
# or NULL where the bytes end early or are malformed. A get_* on NULL returns NULL, so that callers
# may chain calls and test once.
# A put_* takes a cursor into space that its caller has reserved and returns the cursor after the
# bytes that it wrote.

cimport cython

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint16_t kraft_load_u16(const uint8_t *p) {
        uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
    static inline uint32_t kraft_load_u32(const uint8_t *p) {
        uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint64_t kraft_load_u64(const uint8_t *p) {
        uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    static inline void kraft_store_u16(uint8_t *p, uint16_t v) {
        v = __builtin_bswap16(v); memcpy(p, &v, 2); }
    static inline void kraft_store_u32(uint8_t *p, uint32_t v) {
        v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void kraft_store_u64(uint8_t *p, uint64_t v) {
        v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    static inline void kraft_prefetch(const void *p) { __builtin_prefetch(p, 0, 3); }
    static inline void kraft_prefetch_write(const void *p) { __builtin_prefetch(p, 1, 3); }
    #define kraft_likely(x) __builtin_expect(!!(x), 1)
    #define kraft_unlikely(x) __builtin_expect(!!(x), 0)
    """
    # Big-endian loads and stores at any alignment; the caller has checked the bounds.
    uint16_t load_u16 "kraft_load_u16"(const uint8_t *p) noexcept nogil
    uint32_t load_u32 "kraft_load_u32"(const uint8_t *p) noexcept nogil
    uint64_t load_u64 "kraft_load_u64"(const uint8_t *p) noexcept nogil
    void store_u16 "kraft_store_u16"(uint8_t *p, uint16_t v) noexcept nogil
    void store_u32 "kraft_store_u32"(uint8_t *p, uint32_t v) noexcept nogil
    void store_u64 "kraft_store_u64"(uint8_t *p, uint64_t v) noexcept nogil
    void prefetch "kraft_prefetch"(const void *p) noexcept nogil
    void prefetch_write "kraft_prefetch_write"(const void *p) noexcept nogil
    bint likely "kraft_likely"(bint x) noexcept nogil
    bint unlikely "kraft_unlikely"(bint x) noexcept nogil


cdef inline const uint8_t *get_uvarint(
    const uint8_t *p, const uint8_t *end, uint32_t *value
) noexcept nogil:
    """Read unsigned LEB128 of at most 5 bytes: the form of lengths and tags."""
    cdef uint32_t result = 0, byte
    cdef int shift = 0
    if p == NULL:
        return NULL
    if p < end and p[0] < 0x80:
        value[0] = p[0]
        return p + 1
    while p < end and shift < 35:
        byte = p[0]
        p += 1
        if shift == 28 and byte > 0x0f:
            return NULL
        result |= (byte & 0x7f) << shift
        if byte < 0x80:
            value[0] = result
            return p
        shift += 7
    return NULL


cdef inline const uint8_t *get_uvarlong(
    const uint8_t *p, const uint8_t *end, uint64_t *value
) noexcept nogil:
    """Read unsigned LEB128 of at most 10 bytes."""
    cdef uint64_t result = 0, byte
    cdef int shift = 0
    if p == NULL:
        return NULL
    while p < end and shift < 70:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 0x01:
            return NULL
        result |= (byte & 0x7f) << shift
        if byte < 0x80:
            value[0] = result
            return p
        shift += 7
    return NULL


cdef inline const uint8_t *get_varint(
    const uint8_t *p, const uint8_t *end, int32_t *value
) noexcept nogil:
    """Read a zig-zag varint: the form of a record's fields inside a batch."""
    cdef uint32_t raw = 0
    p = get_uvarint(p, end, &raw)
    value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


cdef inline const uint8_t *get_varlong(
    const uint8_t *p, const uint8_t *end, int64_t *value
) noexcept nogil:
    cdef uint64_t raw = 0
    p = get_uvarlong(p, end, &raw)
    value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


cdef inline int size_of_uvarint(uint32_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline int size_of_varint(int32_t value) noexcept nogil:
    return size_of_uvarint((<uint32_t>value << 1) ^ <uint32_t>(value >> 31))


cdef inline uint8_t *put_uvarint(uint8_t *p, uint32_t value) noexcept nogil:
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1


cdef inline uint8_t *put_uvarlong(uint8_t *p, uint64_t value) noexcept nogil:
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1


cdef inline uint8_t *put_varint(uint8_t *p, int32_t value) noexcept nogil:
    return put_uvarint(p, (<uint32_t>value << 1) ^ <uint32_t>(value >> 31))


cdef inline uint8_t *put_varlong(uint8_t *p, int64_t value) noexcept nogil:
    return put_uvarlong(p, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))


@cython.final
cdef class Reader:
    """A cursor over the bytes of any buffer, which it keeps open; see wire.pyi."""
    cdef Py_buffer _view
    cdef object _source          # the owner of the buffer
    cdef object _memory          # memoryview of it as bytes, made with the first view
    cdef bint _held              # _view has to be released
    cdef const uint8_t *base     # byte 0 of the buffer: positions count from here
    cdef const uint8_t *cursor   # the next byte to read; base <= cursor <= end
    cdef const uint8_t *end
    cdef int64_t _budget         # elements that may still be read

    # Returns the next `size` bytes and skips them; raises if fewer are left or size is negative.
    cdef const uint8_t *take(self, Py_ssize_t size) except NULL
    cpdef int8_t read_int8(self) except? -1
    cpdef int16_t read_int16(self) except? -1
    cpdef int32_t read_int32(self) except? -1
    cpdef int64_t read_int64(self) except? -1
    cpdef uint16_t read_uint16(self) except? 0xffff
    cpdef uint32_t read_uint32(self) except? 0xffffffff
    cpdef double read_float64(self) except? -1
    cpdef bint read_bool(self) except -1
    cpdef uint32_t read_uvarint(self) except? 0xffffffff
    cpdef int32_t read_varint(self) except? -1
    cpdef uint64_t read_uvarlong(self) except? 0xffffffffffffffff
    cpdef int64_t read_varlong(self) except? -1
    # Lengths of strings (classic: int16) and bytes (classic: int32), at most the bytes left; -1
    # is null.
    cdef int64_t take_string_size(self, bint compact, bint nullable) except? -2
    cdef int64_t take_bytes_size(self, bint compact, bint nullable) except? -2
    cdef str take_string(self, bint compact, bint nullable)     # None where null
    cdef bytes take_bytes(self, bint compact, bint nullable)    # None where null
    # Reads an array's count and charges it to the budget; element_size is the smallest size of
    # one element (>= 1 byte).
    cdef int64_t take_count(
        self, bint compact, bint nullable, Py_ssize_t element_size
    ) except? -2
    cpdef dict read_tagged(self)                                # tag -> bytes
    # Always raises, with the position of `where`, or of the cursor if that is NULL.
    cdef int fail(self, str reason, const uint8_t *where) except -1


@cython.final
cdef class Writer:
    """A growing buffer, written from front to back; see wire.pyi."""
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    # Returns space for `size` more bytes, counted as written; valid until the next call.
    cdef uint8_t *reserve(self, Py_ssize_t size) except NULL
    cpdef int write_int8(self, int8_t value) except -1
    cpdef int write_int16(self, int16_t value) except -1
    cpdef int write_int32(self, int32_t value) except -1
    cpdef int write_int64(self, int64_t value) except -1
    cpdef int write_uint16(self, uint16_t value) except -1
    cpdef int write_uint32(self, uint32_t value) except -1
    cpdef int write_float64(self, double value) except -1
    cpdef int write_bool(self, bint value) except -1
    cpdef int write_uvarint(self, uint32_t value) except -1
    cpdef int write_varint(self, int32_t value) except -1
    cpdef int write_uvarlong(self, uint64_t value) except -1
    cpdef int write_varlong(self, int64_t value) except -1
    cpdef int write_uuid(self, bytes value) except -1
    # None is written as null; the caller knows whether its field may be null.
    cdef int put_string(self, str value, bint compact) except -1
    cdef int put_bytes(self, object value, bint compact) except -1
    cdef int put_count(self, int64_t count, bint compact) except -1   # -1: a null array
    cdef int put_raw(self, const uint8_t *source, Py_ssize_t size) except -1
    cpdef int write_tagged(self, dict fields) except -1         # tag -> bytes, ascending
