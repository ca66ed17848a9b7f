"""C codecs of the records of partitions and topics: Topic, Partition, PartitionChange, RemoveTopic.

Parses and emits their layouts (see ``partition_codec.pxd``) as C structs of a partition's state.
All functions are ``nogil`` and allocate nothing; a claimed count is compared with the bytes left
before it is used. ``table`` parses with it, ``table`` and ``election`` encode. ``metadata_codec``
handles the same records as typed objects, unknown tagged fields included; the tests compare the two
modules.
"""

from libc.string cimport memcpy


def reason_text(int reason):
    """Return the sentence for a negative ``CodecReason``."""
    return {
        CODEC_MALFORMED: "the record's bytes end early or break its layout",
        CODEC_TOO_MANY_REPLICAS: f"a replica list is longer than {MAX_REPLICAS}",
        CODEC_UNSUPPORTED_VERSION: "the record's version is newer than this package knows",
        CODEC_TAG_VERSION: "a tagged field is not part of the record's version",
        CODEC_DIRECTORY_COUNT: "there are not as many directories as replicas",
    }.get(reason, f"unknown reason {reason}")


cdef inline bint too_long(const ArrayView *view) noexcept nogil:
    return view.count > MAX_REPLICAS


cdef int parse_partition(
    const uint8_t *p, const uint8_t *end, int32_t version, PartitionView *out
) noexcept nogil:
    cdef uint32_t tag_count = 0, tag = 0, size = 0, _index
    cdef int32_t last_tag = -1
    cdef const uint8_t *payload_end
    if version > 2:
        return CODEC_UNSUPPORTED_VERSION
    if end - p < 20:
        return CODEC_MALFORMED
    out.version = version
    out.partition_id = <int32_t>load_u32(p)
    out.topic_id = p + 4
    p = get_array(p + 20, end, 4, &out.replicas)
    p = get_array(p, end, 4, &out.isr)
    p = get_array(p, end, 4, &out.removing)
    p = get_array(p, end, 4, &out.adding)
    if p == NULL or end - p < 12:
        return CODEC_MALFORMED
    out.leader = <int32_t>load_u32(p)
    out.leader_epoch = <int32_t>load_u32(p + 4)
    out.partition_epoch = <int32_t>load_u32(p + 8)
    p += 12
    out.leader_recovery_state = RECOVERED
    out.directories.count = 0
    out.elr.count = 0
    out.last_known_elr.count = 0
    if version >= 1:
        p = get_array(p, end, 16, &out.directories)
    if p == NULL or p >= end:
        return CODEC_MALFORMED
    if p[0] == 0:
        p += 1
    else:
        p = get_uvarint(p, end, &tag_count)
        for _index in range(tag_count):
            p = get_uvarint(p, end, &tag)
            p = get_uvarint(p, end, &size)
            if p == NULL or <int32_t>tag <= last_tag or <uint64_t>size > <uint64_t>(end - p):
                return CODEC_MALFORMED
            last_tag = <int32_t>tag
            payload_end = p + size
            if tag == 0:
                if size != 1:
                    return CODEC_MALFORMED
                out.leader_recovery_state = <int8_t>p[0]
                p += 1
            elif tag <= 2 and version < 2:
                return CODEC_TAG_VERSION
            elif tag == 1:
                p = get_array(p, payload_end, 4, &out.elr)
            elif tag == 2:
                p = get_array(p, payload_end, 4, &out.last_known_elr)
            else:
                p = payload_end
            if p != payload_end:
                return CODEC_MALFORMED
    if p != end:
        return CODEC_MALFORMED
    if (
        out.replicas.count < 0 or out.isr.count < 0 or out.removing.count < 0
        or out.adding.count < 0 or out.directories.count < 0
    ):
        # Only tagged lists may be null; the schema does not allow null for these.
        return CODEC_MALFORMED
    if out.elr.count < 0:
        out.elr.count = 0
    if out.last_known_elr.count < 0:
        out.last_known_elr.count = 0
    if (
        too_long(&out.replicas) or too_long(&out.isr) or too_long(&out.removing)
        or too_long(&out.adding) or too_long(&out.elr) or too_long(&out.last_known_elr)
    ):
        return CODEC_TOO_MANY_REPLICAS
    if out.directories.count != 0 and out.directories.count != out.replicas.count:
        return CODEC_DIRECTORY_COUNT
    return CODEC_OK


cdef int parse_change(
    const uint8_t *p, const uint8_t *end, int32_t version, ChangeView *out
) noexcept nogil:
    cdef uint32_t tag_count = 0, tag = 0, size = 0, _index
    cdef int32_t last_tag = -1
    cdef const uint8_t *payload_end
    cdef ArrayView *list_
    if version > 2:
        return CODEC_UNSUPPORTED_VERSION
    if end - p < 21:
        return CODEC_MALFORMED
    out.version = version
    out.partition_id = <int32_t>load_u32(p)
    out.topic_id = p + 4
    out.fields = 0
    out.leader = NO_LEADER_CHANGE
    out.leader_recovery_state = -1
    p = get_uvarint(p + 20, end, &tag_count)
    for _index in range(tag_count):
        p = get_uvarint(p, end, &tag)
        p = get_uvarint(p, end, &size)
        if p == NULL or <int32_t>tag <= last_tag or <uint64_t>size > <uint64_t>(end - p):
            return CODEC_MALFORMED
        last_tag = <int32_t>tag
        payload_end = p + size
        list_ = NULL
        if tag == 0:
            list_ = &out.isr
        elif tag == 1:
            if size != 4:
                return CODEC_MALFORMED
            out.leader = <int32_t>load_u32(p)
            if out.leader != NO_LEADER_CHANGE:
                out.fields |= CHANGE_LEADER
            p += 4
        elif tag == 2:
            list_ = &out.replicas
        elif tag == 3:
            list_ = &out.removing
        elif tag == 4:
            list_ = &out.adding
        elif tag == 5:
            if size != 1:
                return CODEC_MALFORMED
            out.leader_recovery_state = <int8_t>p[0]
            if out.leader_recovery_state != -1:
                out.fields |= CHANGE_RECOVERY
            p += 1
        elif tag <= 8 and version < (1 if tag == 8 else 2):
            return CODEC_TAG_VERSION
        elif tag == 6:
            list_ = &out.elr
        elif tag == 7:
            list_ = &out.last_known_elr
        elif tag == 8:
            p = get_array(p, payload_end, 16, &out.directories)
            if p == NULL:
                return CODEC_MALFORMED
            if out.directories.count > MAX_REPLICAS:
                return CODEC_TOO_MANY_REPLICAS
            if out.directories.count >= 0:
                out.fields |= CHANGE_DIRECTORIES
        else:
            p = payload_end
        if list_ != NULL:
            p = get_array(p, payload_end, 4, list_)
            if p == NULL:
                return CODEC_MALFORMED
            if list_.count > MAX_REPLICAS:
                return CODEC_TOO_MANY_REPLICAS
            if list_.count >= 0:
                out.fields |= <uint32_t>1 << tag
        if p != payload_end:
            return CODEC_MALFORMED
    if p != end:
        return CODEC_MALFORMED
    if (
        out.fields & CHANGE_DIRECTORIES and out.fields & CHANGE_REPLICAS
        and out.directories.count != 0 and out.directories.count != out.replicas.count
    ):
        return CODEC_DIRECTORY_COUNT
    return CODEC_OK


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef bint is_utf8(const uint8_t *p, int64_t size) noexcept nogil:
    """Return whether bytes are UTF-8 by RFC 3629: shortest forms, no surrogates."""
    cdef const uint8_t *end = p + size
    cdef uint64_t word
    cdef uint8_t lowest, highest
    cdef int follow
    while p < end:
        if end - p >= 8:
            memcpy(&word, p, 8)
            if not word & <uint64_t>0x8080808080808080:
                p += 8
                continue
        if p[0] < 0x80:
            p += 1
            continue
        # The first byte bounds the second; the others are plain continuation bytes.
        lowest = 0x80
        highest = 0xBF
        if 0xC2 <= p[0] <= 0xDF:
            follow = 1
        elif 0xE0 <= p[0] <= 0xEF:
            follow = 2
            if p[0] == 0xE0:
                lowest = 0xA0
            elif p[0] == 0xED:
                highest = 0x9F
        elif 0xF0 <= p[0] <= 0xF4:
            follow = 3
            if p[0] == 0xF0:
                lowest = 0x90
            elif p[0] == 0xF4:
                highest = 0x8F
        else:
            return False
        if end - p <= follow or not lowest <= p[1] <= highest:
            return False
        if follow > 1 and not is_continuation(p[2]):
            return False
        if follow > 2 and not is_continuation(p[3]):
            return False
        p += follow + 1
    return True


cdef int parse_topic(
    const uint8_t *p, const uint8_t *end, const uint8_t **name, int32_t *name_size,
    const uint8_t **topic_id,
) noexcept nogil:
    cdef uint32_t raw = 0
    p = get_uvarint(p, end, &raw)
    # A name is a string, whose length is an i16 at most.
    if p == NULL or not 0 < raw <= 0x8000 or <uint64_t>(raw - 1) + 16 > <uint64_t>(end - p):
        return CODEC_MALFORMED
    if not is_utf8(p, raw - 1):
        return CODEC_MALFORMED
    name[0] = p
    name_size[0] = <int32_t>(raw - 1)
    topic_id[0] = p + (raw - 1)
    if skip_tags(p + (raw - 1) + 16, end) != end:
        return CODEC_MALFORMED
    return CODEC_OK


cdef int parse_remove_topic(
    const uint8_t *p, const uint8_t *end, const uint8_t **topic_id
) noexcept nogil:
    if end - p < 17 or skip_tags(p + 16, end) != end:
        return CODEC_MALFORMED
    topic_id[0] = p
    return CODEC_OK


cdef inline int32_t size_of_list(int32_t count, int32_t item_size) noexcept nogil:
    return size_of_uvarint(<uint32_t>count + 1) + count * item_size


cdef inline int32_t size_of_tagged(int32_t payload_size) noexcept nogil:
    # Every tag of these records is below 128, so it takes one byte.
    return 1 + size_of_uvarint(<uint32_t>payload_size) + payload_size


cdef inline uint8_t *put_list(uint8_t *p, const int32_t *items, int32_t count) noexcept nogil:
    cdef int32_t index
    p = put_uvarint(p, <uint32_t>count + 1)
    for index in range(count):
        store_u32(p, <uint32_t>items[index])
        p += 4
    return p


cdef inline uint8_t *put_directories(
    uint8_t *p, const uint32_t *directories, int32_t count, const uint8_t *directory_ids
) noexcept nogil:
    cdef int32_t index
    p = put_uvarint(p, <uint32_t>count + 1)
    for index in range(count):
        memcpy(p, directory_ids + 16 * <int64_t>directories[index], 16)
        p += 16
    return p


cdef inline uint8_t *put_tag(uint8_t *p, uint8_t tag, int32_t payload_size) noexcept nogil:
    p[0] = tag
    return put_uvarint(p + 1, <uint32_t>payload_size)


cdef inline uint8_t *put_frame(uint8_t *p, uint8_t api_key, int32_t version) noexcept nogil:
    p[0] = 1
    p[1] = api_key
    p[2] = <uint8_t>version
    return p + 3


cdef int32_t size_of_partition(const PartitionState *state, int32_t version) noexcept nogil:
    cdef int32_t size = 3 + 20 + 12 + 1
    size += size_of_list(state.replica_count, 4) + size_of_list(state.isr_count, 4)
    size += size_of_list(state.removing_count, 4) + size_of_list(state.adding_count, 4)
    if version >= 1:
        size += size_of_list(state.replica_count, 16)
    if state.leader_recovery_state != RECOVERED:
        size += 3
    if version >= 2:
        if state.elr_count:
            size += size_of_tagged(size_of_list(state.elr_count, 4))
        if state.last_known_elr_count:
            size += size_of_tagged(size_of_list(state.last_known_elr_count, 4))
    return size


cdef uint8_t *put_partition(
    uint8_t *p, const PartitionState *state, int32_t partition_id, const uint8_t *topic_id,
    int32_t version, const uint8_t *directory_ids,
) noexcept nogil:
    cdef uint8_t tag_count = 0
    p = put_frame(p, PARTITION_KEY, version)
    store_u32(p, <uint32_t>partition_id)
    memcpy(p + 4, topic_id, 16)
    p = put_list(p + 20, state.replicas, state.replica_count)
    p = put_list(p, state.isr, state.isr_count)
    p = put_list(p, state.removing, state.removing_count)
    p = put_list(p, state.adding, state.adding_count)
    store_u32(p, <uint32_t>state.leader)
    store_u32(p + 4, <uint32_t>state.leader_epoch)
    store_u32(p + 8, <uint32_t>state.partition_epoch)
    p += 12
    if version >= 1:
        p = put_directories(p, state.directories, state.replica_count, directory_ids)
    if state.leader_recovery_state != RECOVERED:
        tag_count += 1
    if version >= 2:
        if state.elr_count:
            tag_count += 1
        if state.last_known_elr_count:
            tag_count += 1
    p[0] = tag_count
    p += 1
    if state.leader_recovery_state != RECOVERED:
        p = put_tag(p, 0, 1)
        p[0] = <uint8_t>state.leader_recovery_state
        p += 1
    if version >= 2:
        if state.elr_count:
            p = put_tag(p, 1, size_of_list(state.elr_count, 4))
            p = put_list(p, state.elr, state.elr_count)
        if state.last_known_elr_count:
            p = put_tag(p, 2, size_of_list(state.last_known_elr_count, 4))
            p = put_list(p, state.last_known_elr, state.last_known_elr_count)
    return p


cdef int32_t size_of_change(
    const PartitionState *after, const PartitionChange *change
) noexcept nogil:
    cdef int32_t size = 3 + 20 + 1
    cdef uint32_t fields = change.fields
    if fields & CHANGE_ISR:
        size += size_of_tagged(size_of_list(after.isr_count, 4))
    if fields & CHANGE_LEADER:
        size += 6
    if fields & CHANGE_REPLICAS:
        size += size_of_tagged(size_of_list(after.replica_count, 4))
    if fields & CHANGE_REMOVING:
        size += size_of_tagged(size_of_list(after.removing_count, 4))
    if fields & CHANGE_ADDING:
        size += size_of_tagged(size_of_list(after.adding_count, 4))
    if fields & CHANGE_RECOVERY:
        size += 3
    if fields & CHANGE_ELR:
        size += size_of_tagged(size_of_list(after.elr_count, 4))
    if fields & CHANGE_LAST_KNOWN_ELR:
        size += size_of_tagged(size_of_list(after.last_known_elr_count, 4))
    if fields & CHANGE_DIRECTORIES:
        size += size_of_tagged(size_of_list(after.replica_count, 16))
    return size


cdef inline uint8_t *put_tagged_list(
    uint8_t *p, uint8_t tag, const int32_t *items, int32_t count
) noexcept nogil:
    return put_list(put_tag(p, tag, size_of_list(count, 4)), items, count)


cdef uint8_t *put_change(
    uint8_t *p, const PartitionState *after, const PartitionChange *change, int32_t partition_id,
    const uint8_t *topic_id, int32_t version, const uint8_t *directory_ids,
) noexcept nogil:
    cdef uint32_t fields = change.fields, left = fields
    cdef uint8_t tag_count = 0
    while left:
        tag_count += left & 1
        left >>= 1
    p = put_frame(p, PARTITION_CHANGE_KEY, version)
    store_u32(p, <uint32_t>partition_id)
    memcpy(p + 4, topic_id, 16)
    p[20] = tag_count
    p += 21
    if fields & CHANGE_ISR:
        p = put_tagged_list(p, 0, after.isr, after.isr_count)
    if fields & CHANGE_LEADER:
        p = put_tag(p, 1, 4)
        store_u32(p, <uint32_t>change.leader)
        p += 4
    if fields & CHANGE_REPLICAS:
        p = put_tagged_list(p, 2, after.replicas, after.replica_count)
    if fields & CHANGE_REMOVING:
        p = put_tagged_list(p, 3, after.removing, after.removing_count)
    if fields & CHANGE_ADDING:
        p = put_tagged_list(p, 4, after.adding, after.adding_count)
    if fields & CHANGE_RECOVERY:
        p = put_tag(p, 5, 1)
        p[0] = <uint8_t>change.leader_recovery_state
        p += 1
    if fields & CHANGE_ELR:
        p = put_tagged_list(p, 6, after.elr, after.elr_count)
    if fields & CHANGE_LAST_KNOWN_ELR:
        p = put_tagged_list(p, 7, after.last_known_elr, after.last_known_elr_count)
    if fields & CHANGE_DIRECTORIES:
        p = put_tag(p, 8, size_of_list(after.replica_count, 16))
        p = put_directories(p, after.directories, after.replica_count, directory_ids)
    return p


cdef int32_t size_of_topic(int32_t name_size) noexcept nogil:
    return 3 + size_of_list(name_size, 1) + 16 + 1


cdef uint8_t *put_topic(
    uint8_t *p, const uint8_t *name, int32_t name_size, const uint8_t *topic_id
) noexcept nogil:
    p = put_frame(p, TOPIC_KEY, 0)
    p = put_uvarint(p, <uint32_t>name_size + 1)
    memcpy(p, name, name_size)
    memcpy(p + name_size, topic_id, 16)
    p[name_size + 16] = 0
    return p + name_size + 17


cdef uint8_t *put_remove_topic(uint8_t *p, const uint8_t *topic_id) noexcept nogil:
    p = put_frame(p, REMOVE_TOPIC_KEY, 0)
    memcpy(p, topic_id, 16)
    p[16] = 0
    return p + 17
