# Functions that write the parts of a Partition record: the bytes that all records of one shape
# share, and the lists of a regular row, eight brokers at a time. `row_encoder` calls them.
#
# A Partition record without tags, with its frame. Sizes are in bytes; L, D and V are the sizes of
# varints, r is the number of replicas and i the number of ISR members:
#
#   head | length L | attributes 1 | timestamp delta 1 | offset delta D |                up to 8
#   tail | null key 1 | value length V | frame version 1 | api key 1 | version 1 |       up to 6
#        | partitionId 4 | topicId 16 | replicas 1 + 4r | isr 1 + 4i | removing 1 | adding 1
#        | leader 4 | leaderEpoch 4 | partitionEpoch 4 | directories 1 + 16r (v1+) | tags 1 ...
#        | header count 1
#
# The version, r, i and D are the record's shape. They determine every byte except the values. The
# head and the tail of each shape are computed once, so that the loop stores each with one write
# and does not check the size of any field.
#
# The replicas of a row and its ISR (packed: four bits an entry over the replica slots, see
# columns.pxd) fill at most eight 32-bit lanes each. With AVX2, each list is one load, one
# permutation and one store of 32 bytes, without a branch on the number of brokers. Other processors
# write one entry at a time.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from libc.string cimport memcpy

from kraft._core.codec.partition_codec cimport PARTITION_KEY
from kraft._core.table.rows cimport TableRows
from kraft._core.bytes.wire cimport store_u32

cdef enum:
    # A function here reads this many entries of `replicas` at any stride, and may write as many
    # entries after the end of a record: the next record overwrites the surplus bytes.
    LANES = 8
    SLACK = 64
    SHAPES_OF_A_WIDTH = 9 << 4


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* Entries of a packed list; it has no gaps. */
    static inline int64_t kraft_packed_count(uint32_t packed) {
        return packed ? (35 - __builtin_clz(packed)) >> 2 : 0;
    }
    #ifdef __AVX2__
    #include <immintrin.h>
    /* The number of used slots among the first `stride`; an unused slot is negative. */
    static inline int64_t kraft_replica_count(const int32_t *replicas, int64_t stride) {
        __m256i lanes = _mm256_loadu_si256((const __m256i *)replicas);
        uint32_t unused = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
        return __builtin_ctz(unused | 1u << stride);
    }
    /* Writes the four lists, of which the last two are empty; returns the cursor after them. */
    static inline uint8_t *kraft_put_members(
        uint8_t *p, const int32_t *replicas, int64_t replica_count, uint32_t isr, int64_t isr_count
    ) {
        const __m256i bytes = _mm256_setr_epi8(
            3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12,
            3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
        const __m256i nibbles = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
        __m256i lanes = _mm256_loadu_si256((const __m256i *)replicas);
        /* Entry n of the list is slot n - 1; of each lane's index only the low three bits count. */
        __m256i slots = _mm256_sub_epi32(
            _mm256_srlv_epi32(_mm256_set1_epi32((int32_t)isr), nibbles), _mm256_set1_epi32(1));
        lanes = _mm256_shuffle_epi8(lanes, bytes);
        p[0] = (uint8_t)(replica_count + 1);
        _mm256_storeu_si256((__m256i *)(p + 1), lanes);
        p += 1 + 4 * replica_count;
        p[0] = (uint8_t)(isr_count + 1);
        _mm256_storeu_si256((__m256i *)(p + 1), _mm256_permutevar8x32_epi32(lanes, slots));
        p += 1 + 4 * isr_count;
        p[0] = p[1] = 1;
        return p + 2;
    }
    /* Returns 0 for three replicas that are all in the ISR, in order, as in nearly every row. */
    static inline uint32_t kraft_three_fault(
        const int32_t *replicas, uint32_t isr, int64_t stride
    ) {
        __m128i lanes = _mm_loadu_si128((const __m128i *)replicas);
        uint32_t unused = (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(lanes));
        uint32_t wanted = stride > 3 ? 8 : stride == 3 ? 0 : 16;
        return ((unused & (stride > 3 ? 15u : 7u)) ^ wanted) | (isr ^ 0x321);
    }
    /* Writes the four lists of such a row, of which the last two are empty. */
    static inline uint8_t *kraft_put_three(uint8_t *p, const int32_t *replicas) {
        const __m256i order = _mm256_setr_epi8(
            -1, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, -1, 3, 2,
            1, 0, 7, 6, 5, 4, 11, 10, 9, 8, -1, -1, -1, -1, -1, -1);
        const __m256i counts = _mm256_setr_epi8(
            4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0);
        __m256i lanes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)replicas));
        _mm256_storeu_si256(
            (__m256i *)p, _mm256_or_si256(_mm256_shuffle_epi8(lanes, order), counts));
        return p + 28;
    }
    #else
    static inline uint32_t kraft_three_fault(
        const int32_t *replicas, uint32_t isr, int64_t stride
    ) {
        return stride < 3 || (replicas[0] | replicas[1] | replicas[2]) < 0
            || (stride > 3 && replicas[3] >= 0) || isr != 0x321;
    }
    static inline uint8_t *kraft_put_three(uint8_t *p, const int32_t *replicas) {
        uint32_t member;
        int64_t slot;
        for (slot = 0; slot < 3; slot++) {
            member = __builtin_bswap32((uint32_t)replicas[slot]);
            memcpy(p + 1 + 4 * slot, &member, 4);
            memcpy(p + 14 + 4 * slot, &member, 4);
        }
        p[0] = p[13] = 4;
        p[26] = p[27] = 1;
        return p + 28;
    }
    static inline int64_t kraft_replica_count(const int32_t *replicas, int64_t stride) {
        int64_t count = 0;
        while (count < stride && replicas[count] >= 0) count++;
        return count;
    }
    static inline uint8_t *kraft_put_members(
        uint8_t *p, const int32_t *replicas, int64_t replica_count, uint32_t isr, int64_t isr_count
    ) {
        uint32_t member;
        int64_t slot;
        *p++ = (uint8_t)(replica_count + 1);
        for (slot = 0; slot < replica_count; slot++, p += 4) {
            member = __builtin_bswap32((uint32_t)replicas[slot]);
            memcpy(p, &member, 4);
        }
        *p++ = (uint8_t)(isr_count + 1);
        for (slot = 0; slot < isr_count; slot++, p += 4) {
            member = __builtin_bswap32((uint32_t)replicas[((isr >> (4 * slot)) - 1) & 7]);
            memcpy(p, &member, 4);
        }
        p[0] = p[1] = 1;
        return p + 2;
    }
    #endif
    /* Prefetches into the second-level cache: the written bytes fill the first-level cache. */
    static inline void kraft_prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }
    /* Stores eight bytes, the lowest byte of `value` first, on machines of any byte order. */
    static inline void kraft_store_bytes(uint8_t *p, uint64_t value) {
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        value = __builtin_bswap64(value);
    #endif
        memcpy(p, &value, 8);
    }
    """
    int64_t packed_count "kraft_packed_count"(uint32_t packed) noexcept nogil
    int64_t replica_count_of "kraft_replica_count"(
        const int32_t *replicas, int64_t stride) noexcept nogil
    uint8_t *put_members "kraft_put_members"(
        uint8_t *p, const int32_t *replicas, int64_t replica_count, uint32_t isr,
        int64_t isr_count) noexcept nogil
    uint32_t three_fault "kraft_three_fault"(
        const int32_t *replicas, uint32_t isr, int64_t stride) noexcept nogil
    uint8_t *put_three "kraft_put_three"(uint8_t *p, const int32_t *replicas) noexcept nogil
    void prefetch_far "kraft_prefetch_far"(const void *p) noexcept nogil
    void store_bytes "kraft_store_bytes"(uint8_t *p, uint64_t value) noexcept nogil


# The bytes and sizes that all records of one shape share. The lowest byte of `head` and of `tail`
# is written first.
cdef struct RecordShape:
    uint64_t head               # without the offset delta
    uint64_t tail
    int32_t delta_shift         # the position of the offset delta in the head, in bits
    int32_t tail_at
    int32_t value_at            # partitionId
    int32_t size                # of the whole record, length prefix included


cdef inline uint64_t varint_bytes(uint32_t value, int32_t *size) noexcept nogil:
    """Return a value >= 0 as a zig-zag varint of at most 4 bytes, the first byte lowest."""
    cdef uint64_t raw = <uint64_t>value << 1, result = raw & 0x7F
    size[0] = 1
    raw >>= 7
    while raw:
        result |= (<uint64_t>0x80 | (raw & 0x7F) << 8) << (8 * size[0] - 8)
        size[0] += 1
        raw >>= 7
    return result


cdef inline RecordShape shape_of(
    int32_t version, int32_t replica_count, int32_t isr_count, int32_t delta_size,
    int32_t tags_size
) noexcept nogil:
    """Return the shape of a record whose tags take `tags_size` bytes after their count."""
    cdef RecordShape shape
    cdef int32_t value_size = 3 + 20 + 1 + 4 * replica_count + 1 + 4 * isr_count + 2 + 12 + 1
    cdef int32_t value_size_size = 0, size, size_size = 0
    cdef uint64_t value_size_bytes
    value_size += tags_size
    if version >= 1:
        value_size += 1 + 16 * replica_count
    value_size_bytes = varint_bytes(value_size, &value_size_size)
    size = 2 + delta_size + 1 + value_size_size + value_size + 1
    shape.head = varint_bytes(size, &size_size)
    shape.delta_shift = 8 * (size_size + 2)
    shape.tail = 1 | value_size_bytes << 8 | (
        <uint64_t>(1 | PARTITION_KEY << 8 | version << 16) << (8 + 8 * value_size_size)
    )
    shape.tail_at = size_size + 2 + delta_size
    shape.value_at = shape.tail_at + 1 + value_size_size + 3
    shape.size = size_size + size
    return shape


# The spread form of an offset delta: the bytes of its varint, each without its continuation bit.
# The loop increments an offset delta in this form.

cdef inline uint64_t spread_delta(int32_t delta) noexcept nogil:
    cdef int32_t size = 0
    return varint_bytes(<uint32_t>delta, &size) & <uint64_t>0x7F7F7F7F


cdef inline uint64_t next_delta(uint64_t spread) noexcept nogil:
    """Return the spread form of the next offset delta.

    The continuation bits are set during the addition, so that a carry passes through them. It
    adds 2, because zig-zag encoding doubles the value.
    """
    return ((spread | <uint64_t>0x80808080) + 2) & <uint64_t>0x7F7F7F7F


cdef inline uint64_t continued_bits(int32_t size) noexcept nogil:
    """Return the continuation bits of a varint of `size` bytes, which the spread form omits."""
    return <uint64_t>0x808080 >> (8 * (4 - size))


cdef inline uint8_t *put_front(
    TableRows table, uint8_t *p, const RecordShape *shape, uint64_t delta, int64_t row
) noexcept nogil:
    """Write a record up to the id of its topic; return the cursor after it."""
    store_bytes(p, shape.head | delta << shape.delta_shift)
    store_bytes(p + shape.tail_at, shape.tail)
    p += shape.value_at
    store_u32(p, <uint32_t>table.partition[row])
    memcpy(p + 4, table.topic_id(table.topic[row]), 16)
    return p + 20


cdef inline uint8_t *put_scalars(TableRows table, uint8_t *p, int64_t row) noexcept nogil:
    store_u32(p, <uint32_t>table.leader[row])
    store_u32(p + 4, <uint32_t>table.leader_epoch[row])
    store_u32(p + 8, <uint32_t>table.partition_epoch[row])
    return p + 12


cdef inline uint8_t *put_directories(
    TableRows table, uint8_t *p, int64_t row, int64_t count
) noexcept nogil:
    cdef const uint32_t *directories = table.directories + row * table.stride
    cdef const uint8_t *ids = table.directory_ids()
    cdef int64_t slot
    p[0] = <uint8_t>(count + 1)
    p += 1
    for slot in range(count):
        memcpy(p + 16 * slot, ids + 16 * <int64_t>directories[slot], 16)
    return p + 16 * count


cdef inline uint8_t *put_packed_tag(
    uint8_t *p, uint8_t tag, uint32_t packed, const int32_t *replicas
) noexcept nogil:
    cdef int32_t index, count = <int32_t>packed_count(packed)
    p[0] = tag
    p[1] = <uint8_t>(1 + 4 * count)
    p[2] = <uint8_t>(1 + count)
    p += 3
    for index in range(count):
        store_u32(p, <uint32_t>replicas[(packed >> (4 * index) & 15) - 1])
        p += 4
    return p
