"""``PartitionTable``: every partition of a cluster, fed by record batches and encoded back into
them.

Owns what the partition records *mean*: Partition makes or replaces a row, PartitionChange merges
into one (partition epoch + 1
always, leader epoch + 1 where a leader is named), Topic and RemoveTopic open and close topics
(Kafka's ``PartitionRegistration``,
``TopicDelta``). Records of other types are handed to a callback in their place in the order, so
that one replay serves
partitions and everything else.

``apply`` goes from batch bytes to columns with no Python object a record and without the GIL;
``encode_*`` goes the other way.
Storage is in ``columns``, history in ``rows``, byte layouts in ``partition_codec``.
"""

from libc.stdint cimport int8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

import numpy as np
cimport numpy as cnp

from kraft._core.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, CONTROL_FLAG, CRC_START, LOG_OVERHEAD, BatchHeader, crc32c_of,
    next_record, read_batch_header,
)
from kraft._core.broker_index cimport BrokerRows
from kraft._core.columns cimport IRREGULAR, MAX_STRIDE
from kraft._core.partition_codec cimport (
    CHANGE_ADDING, CHANGE_DIRECTORIES, CHANGE_ELR, CHANGE_ISR, CHANGE_LAST_KNOWN_ELR,
    CHANGE_LEADER, CHANGE_RECOVERY, CHANGE_REMOVING, CHANGE_REPLICAS, CODEC_DIRECTORY_COUNT,
    CODEC_MALFORMED, CODEC_UNSUPPORTED_VERSION, DIRECTORY_MIGRATING, NO_OP_KEY,
    PARTITION_CHANGE_KEY, PARTITION_KEY, REMOVE_TOPIC_KEY, SIZE_OF_REMOVE_TOPIC, TOPIC_KEY,
    ArrayView, parse_change, parse_partition, parse_remove_topic, parse_topic, put_partition,
    put_remove_topic, put_topic, size_of_partition, size_of_topic, skip_tags,
)
from kraft._core.rows cimport (
    NO_MEMORY, TOPIC_EXISTS, TOPIC_ID_EXISTS, UNKNOWN_PARTITION, UNKNOWN_TOPIC, state_as_dict,
)
from kraft._core.topics cimport TopicEntry
from kraft._core.wire cimport get_uvarint, likely, load_u32, store_u32

from kraft._core.batch import reason_text as batch_reason_text
from kraft._core.partition_codec import reason_text
from kraft._core.rows import refusal
from kraft.errors import (
    CorruptRecordError, InvalidRequestError, OffsetOutOfRangeError, ReplayError,
    UnknownTopicOrPartitionError, UnsupportedVersionError,
)

cnp.import_array()

cdef enum:
    DIRECTORY_CACHE_SIZE = 8192
    # A frame of 8 bytes around a value of 42: no replicas, nothing else. It bounds how many rows
    # bytes can ask for.
    SMALLEST_PARTITION_RECORD = 50

# Why apply_run stopped, beside the negative reasons of parsers and rows.
cdef enum Stop:
    BATCH_DONE = 0
    FOREIGN_RECORD = 1          # a record of another type: for the callback
    TOPIC_GONE = 2              # a RemoveTopic was applied
    NEEDS_ROWS = 3              # a new partition, and no room: to be tried again
    RECORD_MALFORMED = -1001
    FRAME_VERSION = -1002
    OFFSET_OUT_OF_PLACE = -1003


cdef inline const uint8_t *spread_list(const ArrayView *view, int32_t *out) noexcept nogil:
    cdef int32_t index
    for index in range(view.count):
        out[index] = <int32_t>load_u32(view.items + 4 * index)
    return view.items


cdef inline bint pack_view(
    const ArrayView *list_, const ArrayView *replicas, uint32_t *packed
) noexcept nogil:
    """A list in a record as slots of the replicas in the same record; False where it has no such
    form.
    """
    cdef uint32_t result = 0
    cdef int32_t index, slot
    cdef const uint8_t *member
    if list_.count > 8:
        return False
    for index in range(list_.count):
        member = list_.items + 4 * index
        # Nearly always the list is in the replicas' order, so the same place is tried first.
        if index < replicas.count and memcmp(member, replicas.items + 4 * index, 4) == 0:
            result |= <uint32_t>(index + 1) << (4 * index)
            continue
        for slot in range(replicas.count):
            if memcmp(member, replicas.items + 4 * slot, 4) == 0:
                result |= <uint32_t>(slot + 1) << (4 * index)
                break
        else:
            return False
    packed[0] = result
    return True


cdef inline bint pack_members(
    const ArrayView *list_, const int32_t *replicas, int32_t stride, uint32_t *packed
) noexcept nogil:
    """A list in a record as slots of a row's replicas; False where it has no such form."""
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


cdef inline uint64_t raw_word(const uint8_t *p) noexcept nogil:
    """Eight bytes in the machine's order: for comparing, never for their value."""
    cdef uint64_t word
    memcpy(&word, p, 8)
    return word


cdef inline bint is_uuid(const uint8_t *left, const uint8_t *right) noexcept nogil:
    return raw_word(left + 8) == raw_word(right + 8) and raw_word(left) == raw_word(right)


cdef inline uint32_t *cache_pair(uint32_t *cache, const uint8_t *uuid) noexcept nogil:
    """The two neighbouring places of the directory cache where a uuid may stand."""
    # The last bytes of a uuid are random in every version that Kafka makes.
    cdef uint64_t low = raw_word(uuid + 8)
    return &cache[((low >> 51) ^ (low >> 32)) & (DIRECTORY_CACHE_SIZE - 2)]


cdef inline int64_t cached_directory(
    uint32_t *cache, const uint8_t *ids, const uint8_t *uuid
) noexcept nogil:
    """The number of a directory id if it was met lately, else -1."""
    cdef const uint32_t *pair = cache_pair(cache, uuid)
    if pair[0] and is_uuid(ids + 16 * <uint64_t>(pair[0] - 1), uuid):
        return pair[0] - 1
    if pair[1] and is_uuid(ids + 16 * <uint64_t>(pair[1] - 1), uuid):
        return pair[1] - 1
    return -1


cdef inline bint all_migrating(const ArrayView *directories) noexcept nogil:
    """Whether no directory is known: Kafka then makes as many of them as there are replicas."""
    cdef int64_t index
    for index in range(16 * <int64_t>directories.count):
        if directories.items[index]:
            return False
    return True


cdef class PartitionTable(TableRows):
    """See ``table.pyi`` for the public face."""

    def __cinit__(self, **_):
        self.directory_cache = <uint32_t *>calloc(DIRECTORY_CACHE_SIZE, sizeof(uint32_t))
        if self.directory_cache == NULL:
            raise MemoryError("no memory for the directory cache")

    def __dealloc__(self):
        free(self.directory_cache)

    # -- records in

    def apply(self, buffer, *, int64_t start_offset=0, int64_t end_offset=0x7FFFFFFFFFFFFFFF,
              bint verify_crc=True, on_record=None, on_control=None, on_topic_removed=None,
              path=None, int64_t base_position=0):
        cdef const uint8_t[::1] view = buffer
        cdef int64_t size = view.shape[0], position = 0, next_offset = -1, batch_size
        cdef const uint8_t *data = &view[0] if size else NULL
        cdef BatchHeader header
        cdef ApplyCursor cursor
        cdef int reason
        self.ensure_checked()
        while position < size:
            reason = read_batch_header(data + position, size - position, &header)
            if reason < 0:
                raise CorruptRecordError(
                    batch_reason_text(reason), path=path, position=base_position + position
                )
            if header.base_offset >= end_offset:
                break
            batch_size = LOG_OVERHEAD + <int64_t>header.batch_length
            if header.base_offset + header.last_offset_delta >= start_offset:
                if verify_crc and header.crc != crc32c_of(
                    data + position + CRC_START, batch_size - CRC_START
                ):
                    raise CorruptRecordError(
                        "the batch's CRC-32C does not match its bytes", path=path,
                        offset=header.base_offset, position=base_position + position,
                    )
                if header.attributes & CODEC_MASK:
                    raise UnsupportedVersionError(
                        f"the batch at offset {header.base_offset} is compressed; Kafka writes "
                        "metadata uncompressed"
                    )
                cursor.p = data + position + BATCH_OVERHEAD
                cursor.end = data + position + batch_size
                cursor.base_offset = header.base_offset
                cursor.start_offset = start_offset
                cursor.end_offset = end_offset
                cursor.records_left = header.record_count
                cursor.last_topic_id = NULL
                cursor.last_topic = -1
                cursor.next_partition = -1
                cursor.next_delta = 0
                cursor.last_delta = header.last_offset_delta
                cursor.is_whole = (
                    header.base_offset >= start_offset
                    and header.base_offset + header.last_offset_delta < end_offset
                )
                if header.attributes & CONTROL_FLAG:
                    self._control_batch(&cursor, &header, on_control, path, data, base_position)
                else:
                    self._widen_where_it_pays()
                    self._data_batch(
                        &cursor, on_record, on_topic_removed, path, data, base_position
                    )
            next_offset = min(header.base_offset + header.last_offset_delta + 1, end_offset)
            position += batch_size
        return next_offset

    cdef int64_t _rows_in(self, const uint8_t *data, int64_t size) noexcept nogil:
        """At most how many partitions the batches can hold, so that a cold load allocates once."""
        cdef BatchHeader header
        cdef int64_t position = 0, rows = 0
        while read_batch_header(data + position, size - position, &header) == 0:
            if not header.attributes & CONTROL_FLAG:
                rows += min(
                    <int64_t>header.record_count,
                    header.batch_length // <int64_t>SMALLEST_PARTITION_RECORD,
                )
            position += LOG_OVERHEAD + <int64_t>header.batch_length
        return rows

    cdef object _control_batch(self, ApplyCursor *cursor, const BatchHeader *header, on_control,
                               path, const uint8_t *data, int64_t base_position):
        cdef int32_t index
        cdef const uint8_t *start
        for index in range(cursor.records_left):
            start = cursor.p
            cursor.p = next_record(start, cursor.end, &cursor.frame)
            if cursor.p == NULL or cursor.frame.key_size != 4 or cursor.frame.value_size < 0:
                raise CorruptRecordError(
                    "a control record breaks its layout", path=path,
                    offset=header.base_offset + index, position=base_position + (start - data),
                )
            if (
                on_control is not None
                and header.base_offset + cursor.frame.offset_delta >= cursor.start_offset
                and header.base_offset + cursor.frame.offset_delta < cursor.end_offset
            ):
                on_control(
                    header.base_offset + cursor.frame.offset_delta, header.partition_leader_epoch,
                    load_u32(cursor.frame.key) & 0xFFFF,
                    (<const char *>cursor.frame.value)[:cursor.frame.value_size],
                )

    cdef object _data_batch(self, ApplyCursor *cursor, on_record, on_topic_removed, path,
                            const uint8_t *data, int64_t base_position):
        """Applies one batch, stopping for the callbacks in between."""
        cdef int stop
        while True:
            with nogil:
                stop = self.apply_run(cursor)
            if stop == BATCH_DONE:
                return
            if stop == NEEDS_ROWS:
                self.reserve_rows(min(
                    <int64_t>cursor.records_left,
                    (cursor.end - cursor.p) // <int64_t>SMALLEST_PARTITION_RECORD + 1,
                ))
            elif stop == FOREIGN_RECORD:
                if on_record is not None:
                    on_record(
                        cursor.offset,
                        (<const char *>cursor.frame.value)[:cursor.frame.value_size],
                    )
            elif stop == TOPIC_GONE:
                if on_topic_removed is not None:
                    on_topic_removed(cursor.offset, self.topics.names.key(cursor.topic))
            else:
                self._refuse(stop, cursor, path, base_position + (cursor.record - data))
            # A callback may have reverted the table: what was remembered may be gone.
            cursor.last_topic_id = NULL
            cursor.next_partition = -1

    cdef object _refuse(self, int stop, ApplyCursor *cursor, path, int64_t position):
        cdef uint32_t frame_version = 0
        if stop == RECORD_MALFORMED:
            raise CorruptRecordError(
                "a record breaks the layout of its batch", path=path, offset=cursor.offset,
                position=position,
            )
        if stop == OFFSET_OUT_OF_PLACE:
            raise CorruptRecordError(
                f"a record's offset delta {cursor.frame.offset_delta} does not ascend within its "
                "batch", path=path, offset=cursor.base_offset, position=position,
            )
        if stop == FRAME_VERSION:
            get_uvarint(
                cursor.frame.value, cursor.frame.value + cursor.frame.value_size, &frame_version
            )
            raise UnsupportedVersionError(
                f"the record at offset {cursor.offset} has frame version {frame_version}, "
                "only 1 is known"
            )
        if stop == CODEC_UNSUPPORTED_VERSION:
            raise UnsupportedVersionError(
                f"the record at offset {cursor.offset}: {reason_text(stop)}"
            )
        if stop <= NO_MEMORY:
            raise refusal(stop, f"the record at offset {cursor.offset}")
        raise CorruptRecordError(
            reason_text(stop), path=path, offset=cursor.offset, position=position
        )

    cdef int apply_run(self, ApplyCursor *cursor) noexcept nogil:
        """Applies records until the batch ends or one needs the caller; a ``Stop`` or a negative
        reason.
        """
        cdef const uint8_t *p
        cdef const uint8_t *body
        cdef const uint8_t *end
        cdef const uint8_t *name = NULL
        cdef const uint8_t *topic_id = NULL
        cdef uint32_t frame_version = 0, api_key = 0, version = 0
        cdef int32_t name_size = 0
        cdef int64_t topic
        cdef PartitionView partition
        cdef ChangeView change
        cdef int result
        while cursor.records_left > 0:
            if cursor.next_partition >= 0:
                result = self.apply_like_last(cursor)
                if result > 0:
                    continue
                if result < 0:
                    return result
            cursor.record = cursor.p
            p = next_record(cursor.p, cursor.end, &cursor.frame)
            if p == NULL or cursor.frame.value_size < 3:
                return RECORD_MALFORMED
            if not cursor.next_delta <= cursor.frame.offset_delta <= cursor.last_delta:
                return OFFSET_OUT_OF_PLACE
            cursor.next_delta = <int64_t>cursor.frame.offset_delta + 1
            cursor.p = p
            cursor.records_left -= 1
            cursor.offset = cursor.base_offset + cursor.frame.offset_delta
            if cursor.offset < cursor.start_offset:
                continue
            if cursor.offset >= cursor.end_offset:
                cursor.records_left = 0
                return BATCH_DONE
            body = cursor.frame.value
            end = body + cursor.frame.value_size
            if likely(body[0] == 1 and body[1] < 0x80 and body[2] < 0x80):
                api_key = body[1]
                version = body[2]
                body += 3
            else:
                body = get_uvarint(body, end, &frame_version)
                if body != NULL and frame_version != 1:
                    return FRAME_VERSION
                body = get_uvarint(body, end, &api_key)
                body = get_uvarint(body, end, &version)
                if body == NULL or version > 0x7FFF:
                    return CODEC_MALFORMED
            self.record_counts[min(api_key, <uint32_t>63)] += 1
            if api_key == PARTITION_KEY:
                result = parse_partition(body, end, version, &partition)
                if result == 0:
                    result = self.apply_partition(cursor, &partition)
                if result == NEEDS_ROWS:
                    self.record_counts[<int>PARTITION_KEY] -= 1
                    cursor.p = cursor.record
                    cursor.records_left += 1
                    cursor.next_delta = cursor.frame.offset_delta
                if result != 0:
                    return result
            elif api_key == PARTITION_CHANGE_KEY:
                result = parse_change(body, end, version, &change)
                if result == 0:
                    result = self.apply_change(cursor, &change)
                if result < 0:
                    return result
            elif api_key == TOPIC_KEY and version == 0:
                if parse_topic(body, end, &name, &name_size, &topic_id) < 0:
                    return CODEC_MALFORMED
                topic = self.add_topic(name, name_size, topic_id, cursor.offset)
                if topic < 0:
                    return <int>topic
            elif api_key == REMOVE_TOPIC_KEY and version == 0:
                if parse_remove_topic(body, end, &topic_id) < 0:
                    return CODEC_MALFORMED
                topic = self.topics.ids.find(topic_id)
                if topic < 0:
                    return UNKNOWN_TOPIC
                result = self.discard_topic(topic, cursor.offset)
                if result < 0:
                    return result
                cursor.topic = topic
                return TOPIC_GONE
            elif api_key == NO_OP_KEY and version == 0:
                if skip_tags(body, end) != end:
                    return CODEC_MALFORMED
            else:
                return FOREIGN_RECORD
        return BATCH_DONE if cursor.p == cursor.end else RECORD_MALFORMED

    cdef int64_t find_topic(self, ApplyCursor *cursor, const uint8_t *topic_id) noexcept nogil:
        """A topic's number by its id, -1 where there is none; the last answer is remembered."""
        if cursor.last_topic_id != NULL and memcmp(cursor.last_topic_id, topic_id, 16) == 0:
            return cursor.last_topic
        cursor.last_topic = self.topics.ids.find(topic_id)
        cursor.last_topic_id = topic_id if cursor.last_topic >= 0 else NULL
        # What row would be the next was known of another topic.
        cursor.next_partition = -1
        return cursor.last_topic

    cdef int64_t intern_directory(self, const uint8_t *uuid) noexcept nogil:
        """The number of a directory id; a small cache stands in front of the hash map."""
        cdef int64_t number = cached_directory(self.directory_cache, self.directory_ids(), uuid)
        cdef uint32_t *pair
        if number >= 0:
            return number
        number = self.directories_seen.intern(uuid)
        if number >= 0:
            pair = cache_pair(self.directory_cache, uuid)
            pair[1] = pair[0]
            pair[0] = <uint32_t>(number + 1)
        return number

    cdef int apply_partition(self, ApplyCursor *cursor, const PartitionView *view) noexcept nogil:
        cdef int64_t topic = self.find_topic(cursor, view.topic_id)
        cdef int64_t row
        cdef PartitionState state
        cdef int result
        if topic < 0:
            return UNKNOWN_TOPIC
        row = self.topics.row_of(<int32_t>topic, view.partition_id)
        if likely(row < 0):
            if self.row_count >= self.capacity:
                return NEEDS_ROWS
            row = self.append_row(<int32_t>topic, view.partition_id, cursor.offset)
            if row < 0:
                return <int>row
            result = self.store_view(row, view)
            if result == 0 and self.is_indexed:
                result = self.index_row(row)
            self.expect_next(cursor)
            return result
        result = self.spread_view(view, &state)
        if result < 0:
            return result
        return self.replace_row(row, &state, cursor.offset)

    cdef void expect_next(self, ApplyCursor *cursor) noexcept nogil:
        """After a new row: the partition that `apply_like_last` may take, if the next record has
        it.
        """
        cdef const TopicEntry *entry = self.topics.entry(cursor.last_topic)
        cursor.next_partition = -1
        if (
            cursor.is_whole and not self.is_indexed
            and entry.first_row + entry.row_count == self.row_count
        ):
            cursor.next_partition = entry.first_partition + entry.row_count

    cdef int apply_like_last(self, ApplyCursor *cursor) noexcept nogil:
        """Applies what nearly every record of a snapshot is: the topic's next partition, in a
        regular form.

        That is a Partition record of at most `stride` replicas, none coming or going, without tags.
        1 if it was one, 0
        where it was not (nothing was done then), or a negative Refusal. Every byte that the general
        parsers look at is
        looked at here too.
        """
        cdef const uint8_t *p = cursor.p
        cdef const uint8_t *value
        cdef const uint8_t *stop
        cdef const uint8_t *isr_at
        cdef const uint8_t *ids = self.directory_ids()
        cdef uint32_t raw, delta, version
        cdef int32_t slot, replica_count, isr_count, value_size
        cdef int32_t *replicas
        cdef uint32_t *directories
        cdef uint32_t isr = 0
        cdef int64_t row, number
        cdef TopicEntry *entry
        cdef ArrayView members, all_replicas
        # The smallest such record; its sizes are held against the end once they are known.
        if cursor.end - p < 64 or self.row_count >= self.capacity:
            return 0
        raw = p[0]
        p += 1
        if raw >= 0x80:
            raw = (raw & 0x7F) | (<uint32_t>p[0] << 7)
            if p[0] >= 0x80:
                return 0
            p += 1
        stop = p + (raw >> 1)
        if raw & 1 or p[0] or p[1] or stop > cursor.end:
            return 0
        p += 2
        delta = p[0]
        p += 1
        if delta >= 0x80:
            delta = (delta & 0x7F) | (<uint32_t>(p[0] & 0x7F) << 7)
            if p[0] >= 0x80:
                p += 1
                delta |= <uint32_t>p[0] << 14
                if p[0] >= 0x80:
                    return 0
            p += 1
        if (
            delta & 1 or p[0] != 1
            or not cursor.next_delta <= <int64_t>(delta >> 1) <= cursor.last_delta
        ):
            return 0
        p += 1
        raw = p[0]
        p += 1
        if raw >= 0x80:
            raw = (raw & 0x7F) | (<uint32_t>p[0] << 7)
            if p[0] >= 0x80:
                return 0
            p += 1
        value = p
        value_size = <int32_t>(raw >> 1)
        replica_count = <int32_t>value[23] - 1
        # 42 bytes are those of no replicas and an empty ISR; each count below is at most `stride`.
        if (
            raw & 1 or stop != value + value_size + 1 or value_size < 42 + 4 * replica_count
            or value[value_size] or value[value_size - 1]
            or value[0] != 1 or value[1] != PARTITION_KEY or value[2] > 2
            or replica_count < 0 or replica_count > self.stride
            or <int32_t>load_u32(value + 3) != cursor.next_partition
            or not is_uuid(value + 7, cursor.last_topic_id)
        ):
            return 0
        version = value[2]
        isr_at = value + 24 + 4 * replica_count
        isr_count = <int32_t>isr_at[0] - 1
        isr_at += 1
        p = isr_at + 4 * isr_count + 2
        if (
            isr_count < 0 or isr_count > replica_count
            or value_size != (p - value) + 13 + (1 + 16 * replica_count if version else 0)
            or (p - 2)[0] != 1 or (p - 1)[0] != 1
            or (version and p[12] != replica_count + 1)
        ):
            return 0
        # Nearly always the ISR is all replicas in their order.
        if isr_count == replica_count:
            for slot in range(replica_count):
                if load_u32(isr_at + 4 * slot) != load_u32(value + 24 + 4 * slot):
                    break
                isr |= <uint32_t>(slot + 1) << (4 * slot)
            else:
                isr_count = 0
        if isr_count:
            members.items = isr_at
            members.count = isr_count
            all_replicas.items = value + 24
            all_replicas.count = replica_count
            if not pack_view(&members, &all_replicas, &isr):
                return 0
        row = self.row_count
        replicas = self.replicas + row * self.stride
        directories = self.directories + row * self.stride
        for slot in range(replica_count):
            replicas[slot] = <int32_t>load_u32(value + 24 + 4 * slot)
            if replicas[slot] < 0:
                return 0
        for slot in range(replica_count):
            number = DIRECTORY_MIGRATING
            if version:
                number = cached_directory(self.directory_cache, ids, p + 13 + 16 * slot)
                if number < 0:
                    number = self.intern_directory(p + 13 + 16 * slot)
                    ids = self.directory_ids()
                    if number < 0:
                        return NO_MEMORY
            directories[slot] = <uint32_t>number
        for slot in range(replica_count, self.stride):
            replicas[slot] = -1
            directories[slot] = DIRECTORY_MIGRATING
        if self.is_journaling:
            row = self.append_row(
                <int32_t>cursor.last_topic, cursor.next_partition, cursor.base_offset + (delta >> 1)
            )
            if row < 0:
                return <int>row
        else:
            entry = self.topics.entry(cursor.last_topic)
            entry.row_count += 1
            entry.partition_count += 1
            if cursor.next_partition > entry.max_partition:
                entry.max_partition = cursor.next_partition
            self.topic[row] = <int32_t>cursor.last_topic
            self.partition[row] = cursor.next_partition
            self.row_count += 1
            self.partition_count += 1
        self.leader[row] = <int32_t>load_u32(p)
        self.leader_epoch[row] = <int32_t>load_u32(p + 4)
        self.partition_epoch[row] = <int32_t>load_u32(p + 8)
        self.isr[row] = isr
        self.elr[row] = 0
        self.last_known_elr[row] = 0
        self.leader_recovery_state[row] = 0
        self.record_counts[<int>PARTITION_KEY] += 1
        cursor.next_partition += 1
        cursor.next_delta = <int64_t>(delta >> 1) + 1
        cursor.p = stop
        cursor.records_left -= 1
        return 1

    cdef int store_view(self, int64_t row, const PartitionView *view) noexcept nogil:
        """Writes a record into a new row, straight from its bytes where the row is regular."""
        cdef uint32_t isr = 0, elr = 0, last_known_elr = 0
        cdef int32_t slot, count = view.replicas.count
        cdef int stride = self.stride
        cdef int32_t *replicas = self.replicas + row * stride
        cdef uint32_t *directories = self.directories + row * stride
        cdef int64_t number
        cdef PartitionState state
        cdef bint regular = (
            count <= stride and view.removing.count == 0 and view.adding.count == 0
            and pack_view(&view.isr, &view.replicas, &isr)
            and (view.elr.count == 0 or pack_view(&view.elr, &view.replicas, &elr))
            and (
                view.last_known_elr.count == 0
                or pack_view(&view.last_known_elr, &view.replicas, &last_known_elr)
            )
        )
        if regular:
            for slot in range(count):
                replicas[slot] = <int32_t>load_u32(view.replicas.items + 4 * slot)
                if replicas[slot] < 0:
                    regular = False
        if not regular:
            if self.spread_view(view, &state) < 0 or self.store_row(row, &state) < 0:
                return NO_MEMORY
            return 0
        for slot in range(count, stride):
            replicas[slot] = -1
        for slot in range(stride):
            directories[slot] = DIRECTORY_MIGRATING
        for slot in range(view.directories.count):
            number = self.intern_directory(view.directories.items + 16 * slot)
            if number < 0:
                return NO_MEMORY
            directories[slot] = <uint32_t>number
        self.leader[row] = view.leader
        self.leader_epoch[row] = view.leader_epoch
        self.partition_epoch[row] = view.partition_epoch
        self.isr[row] = isr
        self.elr[row] = elr
        self.last_known_elr[row] = last_known_elr
        self.leader_recovery_state[row] = <int8_t>view.leader_recovery_state
        return 0

    cdef int spread_view(self, const PartitionView *view, PartitionState *state) noexcept nogil:
        cdef int32_t slot
        cdef int64_t number
        state.leader = view.leader
        state.leader_epoch = view.leader_epoch
        state.partition_epoch = view.partition_epoch
        state.leader_recovery_state = view.leader_recovery_state
        state.replica_count = view.replicas.count
        state.isr_count = view.isr.count
        state.elr_count = view.elr.count
        state.last_known_elr_count = view.last_known_elr.count
        state.removing_count = view.removing.count
        state.adding_count = view.adding.count
        spread_list(&view.replicas, state.replicas)
        spread_list(&view.isr, state.isr)
        spread_list(&view.elr, state.elr)
        spread_list(&view.last_known_elr, state.last_known_elr)
        spread_list(&view.removing, state.removing)
        spread_list(&view.adding, state.adding)
        for slot in range(view.replicas.count):
            state.directories[slot] = DIRECTORY_MIGRATING
        for slot in range(view.directories.count):
            number = self.intern_directory(view.directories.items + 16 * slot)
            if number < 0:
                return NO_MEMORY
            state.directories[slot] = <uint32_t>number
        return 0

    cdef int apply_change(self, ApplyCursor *cursor, const ChangeView *view) noexcept nogil:
        cdef int64_t topic = self.find_topic(cursor, view.topic_id)
        cdef int64_t row, number
        cdef uint32_t isr = 0, elr = 0, last_known_elr = 0
        cdef const int32_t *replicas
        cdef PartitionState state
        cdef int32_t slot
        cdef bint known
        cdef int result
        if topic < 0:
            return UNKNOWN_TOPIC
        row = self.topics.row_of(<int32_t>topic, view.partition_id)
        if row < 0:
            return UNKNOWN_PARTITION
        replicas = self.replicas + row * self.stride
        if (
            self.isr[row] != IRREGULAR
            and not view.fields & (
                CHANGE_REPLICAS | CHANGE_DIRECTORIES | CHANGE_ADDING | CHANGE_REMOVING
            )
            and (
                not view.fields & CHANGE_ISR
                or pack_members(&view.isr, replicas, self.stride, &isr)
            )
            and (
                not view.fields & CHANGE_ELR
                or pack_members(&view.elr, replicas, self.stride, &elr)
            )
            and (
                not view.fields & CHANGE_LAST_KNOWN_ELR
                or pack_members(&view.last_known_elr, replicas, self.stride, &last_known_elr)
            )
        ):
            # What nearly every change is: leader, ISR, ELR of a regular row.
            result = self.note_scalars(row, cursor.offset)
            if result < 0:
                return result
            if view.fields & CHANGE_ISR:
                self.isr[row] = isr
            if view.fields & CHANGE_ELR:
                self.elr[row] = elr
            if view.fields & CHANGE_LAST_KNOWN_ELR:
                self.last_known_elr[row] = last_known_elr
            if view.fields & CHANGE_LEADER:
                self.leader[row] = view.leader
                self.leader_epoch[row] += 1
            if view.fields & CHANGE_RECOVERY:
                self.leader_recovery_state[row] = <int8_t>view.leader_recovery_state
            self.partition_epoch[row] += 1
            return 0
        self.load_row(row, &state)
        if view.fields & CHANGE_ISR:
            state.isr_count = view.isr.count
            spread_list(&view.isr, state.isr)
        if view.fields & CHANGE_LEADER:
            state.leader = view.leader
            state.leader_epoch += 1
        if view.fields & CHANGE_REPLICAS:
            known = state.replica_count == view.replicas.count
            for slot in range(state.replica_count):
                if state.directories[slot] != DIRECTORY_MIGRATING:
                    known = known or view.fields & CHANGE_DIRECTORIES
                    break
            else:
                # Where no directory is known yet, the new replicas' are not either.
                known = True
            if not known:
                return CODEC_DIRECTORY_COUNT
            for slot in range(state.replica_count, view.replicas.count):
                state.directories[slot] = DIRECTORY_MIGRATING
            state.replica_count = view.replicas.count
            spread_list(&view.replicas, state.replicas)
        if view.fields & CHANGE_REMOVING:
            state.removing_count = view.removing.count
            spread_list(&view.removing, state.removing)
        if view.fields & CHANGE_ADDING:
            state.adding_count = view.adding.count
            spread_list(&view.adding, state.adding)
        if view.fields & CHANGE_RECOVERY:
            state.leader_recovery_state = view.leader_recovery_state
        if view.fields & CHANGE_ELR:
            state.elr_count = view.elr.count
            spread_list(&view.elr, state.elr)
        if view.fields & CHANGE_LAST_KNOWN_ELR:
            state.last_known_elr_count = view.last_known_elr.count
            spread_list(&view.last_known_elr, state.last_known_elr)
        if view.fields & CHANGE_DIRECTORIES:
            if (
                view.directories.count != state.replica_count
                and not all_migrating(&view.directories)
            ):
                return CODEC_DIRECTORY_COUNT
            for slot in range(state.replica_count):
                state.directories[slot] = DIRECTORY_MIGRATING
            for slot in range(min(view.directories.count, state.replica_count)):
                number = self.intern_directory(view.directories.items + 16 * slot)
                if number < 0:
                    return NO_MEMORY
                state.directories[slot] = <uint32_t>number
        state.partition_epoch += 1
        return self.replace_row(row, &state, cursor.offset)

    def clear_elr(self, topic, int64_t offset):
        """ClearElr: empties both lists where either holds something; the partition epoch grows
        there.
        """
        cdef int64_t number = -1, row
        cdef int result
        cdef PartitionState state
        self.ensure_checked()
        if topic is not None:
            number = self.topics.names.get(topic)
            if number < 0:
                raise ReplayError(f"ClearElr at offset {offset} names an unknown topic: {topic}")
        for row in range(self.row_count):
            if self.topic[row] < 0 or (number >= 0 and self.topic[row] != number):
                continue
            if self.isr[row] != IRREGULAR and not self.elr[row] and not self.last_known_elr[row]:
                continue
            self.load_row(row, &state)
            if state.elr_count or state.last_known_elr_count:
                state.elr_count = 0
                state.last_known_elr_count = 0
                state.partition_epoch += 1
                result = self.replace_row(row, &state, offset)
                if result < 0:
                    raise refusal(result, f"ClearElr at offset {offset}")

    def _widen_where_it_pays(self):
        """A wider stride once more than a sixteenth of the rows do not fit for want of slots."""
        if (
            self.irregular_count * 16 <= self.row_count or self.stride == MAX_STRIDE
            or self.irregular_count < self.worth_a_look
        ):
            return
        cdef int64_t row
        cdef int64_t fits[MAX_STRIDE + 1]
        cdef int wider
        cdef PartitionState state
        for wider in range(MAX_STRIDE + 1):
            fits[wider] = 0
        for row in range(self.row_count):
            if self.topic[row] >= 0 and self.isr[row] == IRREGULAR:
                self.load_row(row, &state)
                if (
                    self.stride < state.replica_count <= MAX_STRIDE
                    and not state.adding_count and not state.removing_count
                ):
                    fits[state.replica_count] += 1
        for wider in range(MAX_STRIDE, self.stride, -1):
            if fits[wider] * 32 > self.row_count:
                self.restride(wider)
                break
        # Rows may be irregular for other reasons; asking again after every batch would cost a pass
        # each time.
        self.worth_a_look = 2 * self.irregular_count

    # -- records out

    cdef int encode_topic(self, BatchBuilder builder, int64_t topic) noexcept nogil:
        cdef int32_t name_size = 0
        cdef const uint8_t *name = self.topics.names.name(topic, &name_size)
        cdef uint8_t *p = builder.add_value(size_of_topic(name_size))
        if p == NULL:
            return -1
        put_topic(p, name, name_size, self.topic_id(topic))
        return 0

    cdef int encode_rows(self, BatchBuilder builder, const int32_t *rows, int64_t first,
                         int64_t count, int32_t version) noexcept nogil:
        """Partition records of the rows named, or (NULL) of `count` rows from `first` on."""
        cdef PartitionState state
        cdef int64_t index, row
        cdef uint8_t *p
        for index in range(count):
            row = first + index if rows == NULL else rows[index]
            if likely(
                self.isr[row] != IRREGULAR and not self.elr[row] and not self.last_known_elr[row]
                and not self.leader_recovery_state[row]
            ):
                if self.encode_regular(builder, row, version) == NULL:
                    return -1
                continue
            self.load_row(row, &state)
            p = builder.add_value(size_of_partition(&state, version))
            if p == NULL:
                return -1
            put_partition(
                p, &state, self.partition[row], self.topic_id(self.topic[row]), version,
                self.directory_ids(),
            )
        return 0

    cdef uint8_t *encode_regular(self, BatchBuilder builder, int64_t row,
                                 int32_t version) noexcept nogil:
        """A Partition record without tags, straight from the columns; NULL as from the builder."""
        cdef const int32_t *replicas = self.replicas + row * self.stride
        cdef const uint32_t *directories = self.directories + row * self.stride
        cdef const uint8_t *ids = self.directory_ids()
        cdef uint32_t packed = self.isr[row], left = packed
        cdef int32_t replica_count = 0, isr_count = 0, slot, size
        cdef uint8_t *p
        while replica_count < self.stride and replicas[replica_count] >= 0:
            replica_count += 1
        while left:
            isr_count += 1
            left >>= 4
        size = 3 + 20 + 1 + 4 * replica_count + 1 + 4 * isr_count + 2 + 12 + 1
        if version >= 1:
            size += 1 + 16 * replica_count
        p = builder.add_value(size)
        if p == NULL:
            return NULL
        p[0] = 1
        p[1] = PARTITION_KEY
        p[2] = <uint8_t>version
        store_u32(p + 3, <uint32_t>self.partition[row])
        memcpy(p + 7, self.topic_id(self.topic[row]), 16)
        p[23] = <uint8_t>(replica_count + 1)
        p += 24
        for slot in range(replica_count):
            store_u32(p, <uint32_t>replicas[slot])
            p += 4
        p[0] = <uint8_t>(isr_count + 1)
        p += 1
        while packed:
            store_u32(p, <uint32_t>replicas[(packed & 15) - 1])
            packed >>= 4
            p += 4
        p[0] = 1
        p[1] = 1
        store_u32(p + 2, <uint32_t>self.leader[row])
        store_u32(p + 6, <uint32_t>self.leader_epoch[row])
        store_u32(p + 10, <uint32_t>self.partition_epoch[row])
        p += 14
        if version >= 1:
            p[0] = <uint8_t>(replica_count + 1)
            p += 1
            for slot in range(replica_count):
                memcpy(p, ids + 16 * <int64_t>directories[slot], 16)
                p += 16
        p[0] = 0
        return p

    def encode_partitions(self, BatchBuilder builder not None, rows=None, *, int32_t version):
        cdef int64_t count
        cdef int32_t[::1] wanted
        cdef int result = 0
        if not 0 <= version <= 2:
            raise UnsupportedVersionError(f"Partition has versions 0 to 2, not {version}")
        self.ensure_checked()
        chosen = self.live_rows() if rows is None else np.ascontiguousarray(rows, np.int32)
        wanted = chosen
        count = wanted.shape[0]
        self._check_rows(wanted)
        if count:
            with nogil:
                result = self.encode_rows(builder, &wanted[0], 0, count, version)
        if result < 0:
            builder.raise_failure()

    def encode_snapshot(self, BatchBuilder builder not None, *, int32_t version):
        cdef int64_t topic, index, count
        cdef int32_t *pairs = NULL
        cdef int32_t row
        cdef int result = 0
        if not 0 <= version <= 2:
            raise UnsupportedVersionError(f"Partition has versions 0 to 2, not {version}")
        self.ensure_checked()
        with nogil:
            for topic in range(self.topics.ids.count):
                if not self.topics.entry(topic).alive:
                    continue
                result = self.encode_topic(builder, topic)
                count = self.topics.entry(topic).partition_count
                if result == 0 and count == self.topics.entry(topic).row_count:
                    result = self.encode_rows(
                        builder, NULL, self.topics.entry(topic).first_row, count, version
                    )
                elif result == 0:
                    pairs = self.rows_of_topic(topic, &count)
                    if pairs == NULL:
                        result = NO_MEMORY
                        break
                    for index in range(count):
                        row = pairs[2 * index + 1]
                        if result == 0:
                            result = self.encode_rows(builder, &row, 0, 1, version)
                    free(pairs)
                if result < 0:
                    break
        if result == NO_MEMORY:
            raise MemoryError("no memory to encode the table")
        if result < 0:
            builder.raise_failure()

    def encode_topic_record(self, BatchBuilder builder not None, int64_t topic):
        self._check_topic(topic)
        if self.encode_topic(builder, topic) < 0:
            builder.raise_failure()

    def encode_topic_removal(self, BatchBuilder builder not None, int64_t topic):
        cdef uint8_t *p
        self._check_topic(topic)
        p = builder.add_value(SIZE_OF_REMOVE_TOPIC)
        if p == NULL:
            builder.raise_failure()
        put_remove_topic(p, self.topic_id(topic))

    # -- questions

    cdef object _check_rows(self, int32_t[::1] rows):
        cdef int64_t index
        for index in range(rows.shape[0]):
            if not 0 <= rows[index] < self.row_count or self.topic[rows[index]] < 0:
                raise InvalidRequestError(f"row {rows[index]} holds no partition")

    cdef object _check_topic(self, int64_t topic):
        if not 0 <= topic < self.topics.ids.count or not self.topics.entry(topic).alive:
            raise UnknownTopicOrPartitionError(f"no topic has the number {topic}")

    def live_rows(self):
        return np.flatnonzero(self.column("topic") >= 0).astype(np.int32)

    def topic_number(self, str name not None):
        return self.topics.names.get(name)

    def topic_number_by_id(self, const uint8_t[::1] topic_id not None):
        return self.topics.ids.get(topic_id)

    def topic_name(self, int64_t topic):
        return self.topics.names.key(topic)

    def topic_id_of(self, int64_t topic):
        return self.topics.ids.key(topic)

    def topic_numbers(self):
        cdef int64_t topic
        return [
            topic for topic in range(self.topics.ids.count) if self.topics.entry(topic).alive
        ]

    @property
    def topic_count(self):
        return len(self.topics)

    def topic_rows(self, int64_t topic):
        cdef int64_t count = 0, index
        cdef int32_t *pairs
        self._check_topic(topic)
        self.ensure_checked()
        pairs = self.rows_of_topic(topic, &count)
        if pairs == NULL and count:
            raise MemoryError("no memory for a topic's rows")
        rows = np.empty(count, np.int32)
        cdef int32_t[::1] out = rows
        for index in range(count):
            out[index] = pairs[2 * index + 1]
        free(pairs)
        return rows

    def row_of(self, int64_t topic, int32_t partition):
        self._check_topic(topic)
        return self.topics.row_of(<int32_t>topic, partition)

    def broker_rows(self, int32_t broker):
        """Rows in which the broker appears as replica, ISR or ELR member, ascending."""
        cdef BrokerRows *entry
        cdef int64_t index, count = 0
        self.ensure_index()
        entry = self.index.find(broker)
        if entry == NULL:
            return np.empty(0, np.int32)
        self.index.sort(entry)
        rows = np.empty(entry.count, np.int32)
        cdef int32_t[::1] out = rows
        for index in range(entry.count):
            if self._appears(entry.rows[index], broker):
                out[count] = entry.rows[index]
                count += 1
        return rows[:count]

    cdef bint _appears(self, int64_t row, int32_t broker) noexcept nogil:
        cdef PartitionState state
        cdef int32_t slot
        if row >= self.row_count or self.topic[row] < 0:
            return False
        self.load_row(row, &state)
        for slot in range(state.replica_count):
            if state.replicas[slot] == broker:
                return True
        for slot in range(state.isr_count):
            if state.isr[slot] == broker:
                return True
        for slot in range(state.elr_count):
            if state.elr[slot] == broker:
                return True
        return False

    def state_of(self, int64_t row):
        cdef PartitionState state
        if not 0 <= row < self.row_count:
            raise OffsetOutOfRangeError(f"row {row} is outside of 0 to {self.row_count - 1}")
        if self.pending_check is not None and not self.is_row_sound(row):
            self.ensure_checked()
        self.load_row(row, &state)
        return state_as_dict(&state)

    def directory_id(self, int64_t number):
        return self.directories_seen.key(number)

    def directory_number(self, const uint8_t[::1] directory_id not None):
        return self.directories_seen.put(directory_id)

    @property
    def counts_by_key(self):
        cdef int key
        return {key: self.record_counts[key] for key in range(64) if self.record_counts[key]}
