# Reading lists of a record's bytes into a row, and the small cache of directory ids.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kraft._core.codec.partition_codec cimport ArrayView
from kraft._core.bytes.wire cimport load_u32

cdef enum:
    # Slots of 8 bytes with two entries each. An entry has 16 bits of the uuid, its *mark*, above 16
    # bits of its number; an empty one has number 0, which always exists. The caller compares the
    # number's uuid with the wanted one.
    DIRECTORY_CACHE_SIZE = 4096


cdef inline const uint8_t *spread_list(const ArrayView *view, int32_t *out) noexcept nogil:
    cdef int32_t index
    for index in range(view.count):
        out[index] = <int32_t>load_u32(view.items + 4 * index)
    return view.items


cdef inline uint64_t raw_word(const uint8_t *p) noexcept nogil:
    """Load eight bytes in the machine's byte order, for comparisons only."""
    cdef uint64_t word
    memcpy(&word, p, 8)
    return word


cdef inline uint32_t raw_half(const uint8_t *p) noexcept nogil:
    """Load four bytes in the machine's byte order, for comparisons only."""
    cdef uint32_t half
    memcpy(&half, p, 4)
    return half


cdef inline bint pack_view(
    const ArrayView *list_, const ArrayView *replicas, uint32_t *packed
) noexcept nogil:
    """Pack a list of at most 8 brokers as slots of the record's replicas; else return False."""
    cdef uint32_t result = 0, member, found
    cdef int32_t index, slot
    if list_.count > 8:
        return False
    for index in range(list_.count):
        member = raw_half(list_.items + 4 * index)
        # Prefer the same position, then the lowest. Without a branch, because a branch predictor
        # cannot guess which broker left the ISR.
        found = 0
        for slot in range(replicas.count - 1, -1, -1):
            if raw_half(replicas.items + 4 * slot) == member:
                found = slot + 1
        if index < replicas.count and raw_half(replicas.items + 4 * index) == member:
            found = index + 1
        if found == 0:
            return False
        result |= found << (4 * index)
    packed[0] = result
    return True


cdef inline bint pack_members(
    const ArrayView *list_, const int32_t *replicas, int32_t stride, uint32_t *packed
) noexcept nogil:
    """Pack a list of a record as slots of a row's replicas; return False if it does not fit."""
    cdef uint32_t result = 0
    cdef int32_t index, slot, member
    if list_.count > 8:
        return False
    for index in range(list_.count):
        member = <int32_t>load_u32(list_.items + 4 * index)
        if member < 0:
            return False
        for slot in range(stride):
            if replicas[slot] == member:
                result |= <uint32_t>(slot + 1) << (4 * index)
                break
        else:
            return False
    packed[0] = result
    return True


cdef inline bint is_uuid(const uint8_t *left, const uint8_t *right) noexcept nogil:
    return raw_word(left + 8) == raw_word(right + 8) and raw_word(left) == raw_word(right)


cdef inline uint64_t directory_place(uint64_t low) noexcept nogil:
    """Return the cache slot of a uuid whose second word is `low`."""
    # The last bytes of a uuid are random in every version that Kafka generates.
    return ((low >> 52) ^ (low >> 32)) & (DIRECTORY_CACHE_SIZE - 1)


cdef inline uint32_t likely_directory(const uint64_t *cache, const uint8_t *uuid) noexcept nogil:
    """Return the number of a recent directory id; for others an arbitrary number."""
    cdef uint64_t low = raw_word(uuid + 8), pair = cache[directory_place(low)]
    # The two entries of a slot have different marks, so that the choice needs no branch.
    cdef uint32_t newer = <uint32_t>pair, older = <uint32_t>(pair >> 32)
    return (newer if newer >> 16 == low >> 48 else older) & 0xFFFF


cdef inline int64_t cached_directory(
    const uint64_t *cache, const uint8_t *ids, const uint8_t *uuid
) noexcept nogil:
    """Return the number of a recent directory id, else -1."""
    cdef int64_t number = likely_directory(cache, uuid)
    return number if is_uuid(ids + 16 * number, uuid) else -1


cdef inline bint all_migrating(const ArrayView *directories) noexcept nogil:
    """Return whether every id is MIGRATING (unknown): Kafka then assumes one per replica."""
    cdef int64_t index
    for index in range(16 * <int64_t>directories.count):
        if directories.items[index]:
            return False
    return True
