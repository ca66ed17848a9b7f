"""Applying runs of partition records, straight from bytes to rows: nearly all of a snapshot.

A run is a sequence of a topic's partitions, each the next partition id at the next offset, in
a regular form: at most ``stride`` replicas, none being added or removed. In such a record only the
brokers, the epochs and the directories are unknown before it is read::

    front    length | attributes 00 | timestamp 00 | offset delta | key -1 | value length
    value    01 03 version | partitionId | topicId | replicas | isr | 01 | 01
             | leader | leaderEpoch | partitionEpoch | directories (v1+) | tag count | headers 00

Most partitions have all replicas in sync in their order, and no tags. ``take_full`` applies those:
it compares the known bytes with the expected ones, eight at a time, collects all differences in one
word, and branches once; then it looks up the directories, and branches once more. ``take_regular``
applies a record with any ISR and ELR. The general parsers apply all others. This module checks
every byte that they check, so that both reject the same records.

Called by ``replayed_rows``; ``record_rows`` applies records of any form.
"""

from libc.stdint cimport int8_t, uint32_t

from kraft._core.codec.partition_codec cimport DIRECTORY_MIGRATING, PARTITION_KEY, ArrayView
from kraft._core.table.record_rows cimport intern_directory
from kraft._core.table.record_views cimport (
    cached_directory, is_uuid, likely_directory, pack_view, raw_half, raw_word,
)
from kraft._core.table.rows cimport NO_MEMORY, ROWS_ADDED, JournalEntry
from kraft._core.table.topics cimport TopicEntry
from kraft._core.bytes.wire cimport (
    likely, load_u32, load_u64, prefetch, put_uvarint, put_varint, size_of_uvarint, size_of_varint,
    store_u32, unlikely,
)

cdef enum:
    # The smallest record that is applied here: no replica, no ISR, no directories.
    SMALLEST_RECORD = 6 + 40 + 1
    # The first offset delta that takes two bytes, and the first that takes three.
    DELTA_OF_TWO_BYTES = 64
    DELTA_OF_THREE_BYTES = 8192
    HIGHEST_PARTITION_ID = 0x7FFFFFFF
    # The packed list of slots 0 to 7 in their order.
    ALL_SLOTS = 0x87654321
    # About the size of a batch in Kafka's snapshots: while a batch is applied, the next one is
    # prefetched into the second-level cache for its CRC.
    BYTES_AHEAD = 131072


cdef inline void advance(PartitionRun *run, const uint8_t *p, int64_t row) noexcept nogil:
    """Note that the records up to `p` were applied to the rows up to `row`."""
    cdef int64_t count = row - run.row
    run.p = p
    run.row = row
    run.partition += count
    run.next_delta += count
    run.left -= <int32_t>count


cdef inline void take_full(
    TableRows rows, PartitionRun *run, const int replica_count, const bint has_directories
) noexcept nogil:
    """Apply records while they have the version and the number of replicas of the previous one."""
    cdef uint8_t known[32]
    cdef uint8_t *q
    cdef const uint8_t *p = run.p
    cdef const uint8_t *end = run.end
    cdef const uint8_t *value
    cdef const uint8_t *at
    cdef const uint8_t *ids = rows.directory_ids()
    cdef const uint64_t *cache = run.directory_cache
    cdef uint64_t id_low = raw_word(run.topic_id), id_high = raw_word(run.topic_id + 8)
    cdef uint64_t front, middle, step, more, wrong
    cdef uint32_t member, signs, number
    cdef uint32_t everyone = <uint32_t>(
        <uint64_t>ALL_SLOTS & ((<uint64_t>1 << (4 * replica_count)) - 1)
    )
    cdef int64_t head_size, value_size, record_size, row = run.row, last_row
    cdef int64_t partition_at_0 = run.partition - row
    cdef int slot, stride = rows.stride
    cdef int32_t version = run.version
    cdef int32_t topic = <int32_t>run.topic
    cdef int32_t *leaders = rows.leader
    cdef int32_t *leader_epochs = rows.leader_epoch
    cdef int32_t *partition_epochs = rows.partition_epoch
    cdef int32_t *topics = rows.topic
    cdef int32_t *partitions = rows.partition
    cdef uint32_t *isr = rows.isr
    cdef uint32_t *elr = rows.elr
    cdef uint32_t *last_known_elr = rows.last_known_elr
    cdef int8_t *recovery = rows.leader_recovery_state
    cdef int32_t *replicas = rows.replicas + row * stride
    cdef uint32_t *directories = rows.directories + row * stride

    # Stop where the offset delta takes another byte.
    last_row = DELTA_OF_TWO_BYTES if run.next_delta < DELTA_OF_TWO_BYTES else DELTA_OF_THREE_BYTES
    last_row = min(last_row, run.last_delta + 1) - run.next_delta
    last_row = min(last_row, <int64_t>run.left, <int64_t>HIGHEST_PARTITION_ID - run.partition)
    last_row = min(row + last_row, rows.capacity)
    # The known bytes of the next record: its front, and the value up to the partition id.
    value_size = 40 + 8 * replica_count + (1 + 16 * replica_count if has_directories else 0)
    record_size = 4 + size_of_uvarint(<uint32_t>run.next_delta << 1) + value_size
    record_size += size_of_varint(<int32_t>value_size)
    q = put_varint(known, <int32_t>record_size)
    record_size += q - known
    q[0] = 0
    q[1] = 0
    q += 2
    step = <uint64_t>2 << (8 * (q - known))
    more = <uint64_t>0x80 << (8 * (q - known)) if run.next_delta >= DELTA_OF_TWO_BYTES else 0
    q = put_uvarint(q, <uint32_t>run.next_delta << 1)
    q[0] = 1
    q = put_varint(q + 1, <int32_t>value_size)
    head_size = q - known
    q[0] = 1
    q[1] = PARTITION_KEY
    q[2] = <uint8_t>version
    store_u32(q + 3, <uint32_t>run.partition)
    front = raw_word(known)
    middle = load_u64(q - 1)
    while row < last_row:
        wrong = 1
        if likely(end - p >= record_size):
            prefetch(p + BYTES_AHEAD)
            prefetch(p + BYTES_AHEAD + 64)
            value = p + head_size
            at = value + 24
            wrong = (raw_word(p) ^ front) | (load_u64(value - 1) ^ middle)
            wrong |= (raw_word(value + 7) ^ id_low) | (raw_word(value + 15) ^ id_high)
            wrong |= value[23] ^ (replica_count + 1)
            wrong |= at[4 * replica_count] ^ (replica_count + 1)
            signs = 0
            for slot in range(replica_count):
                member = load_u32(at + 4 * slot)
                signs |= member
                wrong |= raw_half(at + 4 * slot) ^ raw_half(at + 4 * (replica_count + slot) + 1)
                replicas[slot] = <int32_t>member
            wrong |= signs & <uint32_t>0x80000000
            at += 8 * replica_count + 1
            wrong |= (at[0] ^ 1) | (at[1] ^ 1)
            leaders[row] = <int32_t>load_u32(at + 2)
            leader_epochs[row] = <int32_t>load_u32(at + 6)
            partition_epochs[row] = <int32_t>load_u32(at + 10)
            at += 14
            if has_directories:
                wrong |= at[0] ^ (replica_count + 1)
                at += 1
                wrong |= at[16 * replica_count] | at[16 * replica_count + 1]
            else:
                wrong |= at[0] | at[1]
        if likely(wrong == 0):
            # Branch before the directories are looked up: the processor then detects a wrong
            # prediction that much earlier.
            if has_directories:
                for slot in range(replica_count):
                    number = likely_directory(cache, at)
                    wrong |= raw_word(ids + 16 * <uint64_t>number) ^ raw_word(at)
                    wrong |= raw_word(ids + 16 * <uint64_t>number + 8) ^ raw_word(at + 8)
                    directories[slot] = number
                    at += 16
            else:
                for slot in range(replica_count):
                    directories[slot] = DIRECTORY_MIGRATING
        if unlikely(wrong != 0):
            advance(run, p, row)
            if not take_regular(rows, run):
                return
            if run.replica_count != replica_count or run.version != version:
                return
            p = run.p
            row = run.row
            ids = rows.directory_ids()
        else:
            isr[row] = everyone
            elr[row] = 0
            last_known_elr[row] = 0
            recovery[row] = 0
            for slot in range(replica_count, stride):
                replicas[slot] = -1
                directories[slot] = DIRECTORY_MIGRATING
            topics[row] = topic
            partitions[row] = <int32_t>(partition_at_0 + row)
            p += record_size
            row += 1
        replicas += stride
        directories += stride
        front = (front + step) | more
        middle += 1
    advance(run, p, row)


cdef int apply_partitions(TableRows rows, ApplyCursor *cursor) noexcept nogil:
    """Apply partitions of the current topic from the expected one on: 0, or a negative Refusal.

    The cursor then stands before the first record that was not applied.
    """
    cdef PartitionRun run
    cdef int result
    run.p = cursor.p
    run.end = cursor.end
    run.topic_id = cursor.last_topic_id
    run.topic = cursor.last_topic
    run.next_delta = cursor.next_delta
    run.last_delta = cursor.last_delta
    run.row = rows.row_count
    run.left = cursor.records_left
    run.partition = cursor.next_partition
    run.directory_cache = cursor.directory_cache
    run.result = 0
    # The general parsers apply the record that ends the run, and set `next_partition`.
    cursor.next_partition = -1
    if rows.falls(cursor.base_offset + run.next_delta):
        return 0
    while take_regular(rows, &run):
        if run.version == 0:
            if run.replica_count == 3:
                take_full(rows, &run, 3, False)
            elif run.replica_count == 2:
                take_full(rows, &run, 2, False)
            elif run.replica_count == 1:
                take_full(rows, &run, 1, False)
            elif run.replica_count == 5:
                take_full(rows, &run, 5, False)
        elif run.replica_count == 3:
            take_full(rows, &run, 3, True)
        elif run.replica_count == 2:
            take_full(rows, &run, 2, True)
        elif run.replica_count == 1:
            take_full(rows, &run, 1, True)
        elif run.replica_count == 5:
            take_full(rows, &run, 5, True)
    if run.row > rows.row_count:
        result = commit_run(rows, cursor, &run)
        if result < 0:
            return result
    return run.result


cdef int commit_run(TableRows rows, ApplyCursor *cursor, const PartitionRun *run) noexcept nogil:
    """Add the rows of a run to the table, the journal and the topic."""
    cdef int64_t count = run.row - rows.row_count, offset = cursor.base_offset
    cdef TopicEntry *entry = rows.topics.entry(run.topic)
    cdef JournalEntry *last
    if rows.is_journaling:
        offset += run.next_delta - count
        last = NULL
        if rows.has_journal():
            last = <JournalEntry *>(rows.journal.data + rows.journal.size) - 1
        if (
            last != NULL and last.kind == ROWS_ADDED and last.offset + last.count == offset
            and last.row + last.count == rows.row_count
        ):
            last.count += <int32_t>count
        else:
            last = rows.record(offset, ROWS_ADDED, <int32_t>rows.row_count)
            if last == NULL:
                return NO_MEMORY
            last.count = <int32_t>count
    if entry.row_count == 0:
        entry.first_row = <int32_t>rows.row_count
        entry.first_partition = <int32_t>(run.partition - count)
    entry.row_count += <int32_t>count
    entry.partition_count += <int32_t>count
    entry.max_partition = max(entry.max_partition, <int32_t>(run.partition - 1))
    rows.row_count = run.row
    rows.partition_count += count
    cursor.p = run.p
    cursor.records_left = run.left
    cursor.next_delta = run.next_delta
    cursor.offset = cursor.base_offset + run.next_delta - 1
    return 0


cdef bint take_regular(TableRows rows, PartitionRun *run) noexcept nogil:
    """Apply one record of a regular form.

    Return False for another form, if no row is reserved, or if memory is exhausted (see `result`).
    """
    cdef const uint8_t *p = run.p
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef const uint8_t *value_end
    cdef const uint8_t *at
    cdef uint32_t raw, delta, packed_isr = 0, packed_elr = 0, packed_last_known = 0
    cdef uint32_t *directories = rows.directories + run.row * rows.stride
    cdef int32_t *replicas = rows.replicas + run.row * rows.stride
    cdef int32_t slot, version, tag, last_tag = -1, _index
    cdef int64_t number, row = run.row
    cdef int8_t recovery = 0
    cdef ArrayView all_replicas, members
    if (
        run.left <= 0 or run.end - p < SMALLEST_RECORD or row >= rows.capacity
        or run.next_delta > run.last_delta or run.partition > HIGHEST_PARTITION_ID
    ):
        return False
    raw = p[0]
    p += 1
    if raw >= 0x80:
        raw = (raw & 0x7F) | (<uint32_t>p[0] << 7)
        if p[0] >= 0x80:
            return False
        p += 1
    stop = p + (raw >> 1)
    if raw & 1 or p[0] or p[1] or stop > run.end:
        return False
    p += 2
    delta = p[0]
    p += 1
    if delta >= 0x80:
        delta = (delta & 0x7F) | (<uint32_t>(p[0] & 0x7F) << 7)
        if p[0] >= 0x80:
            p += 1
            delta |= <uint32_t>p[0] << 14
            if p[0] >= 0x80:
                return False
        p += 1
    if delta & 1 or <int64_t>(delta >> 1) != run.next_delta or p[0] != 1:
        return False
    p += 1
    raw = p[0]
    p += 1
    if raw >= 0x80:
        raw = (raw & 0x7F) | (<uint32_t>p[0] << 7)
        if p[0] >= 0x80:
            return False
        p += 1
    value = p
    value_end = p + (raw >> 1)
    version = value[2]
    all_replicas.items = value + 24
    all_replicas.count = <int32_t>value[23] - 1
    # 40 bytes: the value with no replicas and an empty ISR.
    if (
        raw & 1 or stop != value_end + 1 or value_end[0]
        or value[0] != 1 or value[1] != PARTITION_KEY or version > 2
        or all_replicas.count < 0 or all_replicas.count > rows.stride
        or value_end - value < 40 + 4 * all_replicas.count
        or <int64_t>load_u32(value + 3) != run.partition
        or not is_uuid(value + 7, run.topic_id)
    ):
        return False
    at = value + 24 + 4 * all_replicas.count
    members.items = at + 1
    members.count = <int32_t>at[0] - 1
    if (
        members.count < 0 or members.count > all_replicas.count
        or value_end - value < 40 + 4 * (all_replicas.count + members.count) + (
            1 + 16 * all_replicas.count if version else 0
        )
        or not pack_view(&members, &all_replicas, &packed_isr)
    ):
        return False
    at += 1 + 4 * members.count
    if at[0] != 1 or at[1] != 1 or (version and at[14] != all_replicas.count + 1):
        return False
    for slot in range(all_replicas.count):
        replicas[slot] = <int32_t>load_u32(all_replicas.items + 4 * slot)
        if replicas[slot] < 0:
            return False
    rows.leader[row] = <int32_t>load_u32(at + 2)
    rows.leader_epoch[row] = <int32_t>load_u32(at + 6)
    rows.partition_epoch[row] = <int32_t>load_u32(at + 10)
    p = at + 14 + (1 + 16 * all_replicas.count if version else 0)
    raw = p[0]
    p += 1
    for _index in range(<int32_t>raw):
        # Each known tag: its number, its size, then a list or the recovery state.
        if value_end - p < 3 or p[1] > value_end - p - 2:
            return False
        tag = p[0]
        if tag <= last_tag:
            return False
        last_tag = tag
        if tag == 0:
            if p[1] != 1:
                return False
            recovery = <int8_t>p[2]
        else:
            members.count = <int32_t>p[2] - 1
            members.items = p + 3
            if (
                tag > 2 or version < 2 or members.count < 0
                or <int32_t>p[1] != 1 + 4 * members.count
                or not pack_view(
                    &members, &all_replicas,
                    &packed_elr if tag == 1 else &packed_last_known,
                )
            ):
                return False
        p += 2 + p[1]
    if p != value_end:
        return False
    at += 15
    for slot in range(all_replicas.count):
        directories[slot] = DIRECTORY_MIGRATING
        if version:
            number = cached_directory(
                run.directory_cache, rows.directory_ids(), at + 16 * slot
            )
            if unlikely(number < 0):
                number = intern_directory(rows, run.directory_cache, at + 16 * slot)
                if number < 0:
                    run.result = NO_MEMORY
                    return False
            directories[slot] = <uint32_t>number
    for slot in range(all_replicas.count, rows.stride):
        replicas[slot] = -1
        directories[slot] = DIRECTORY_MIGRATING
    rows.topic[row] = <int32_t>run.topic
    rows.partition[row] = <int32_t>run.partition
    rows.isr[row] = packed_isr
    rows.elr[row] = packed_elr
    rows.last_known_elr[row] = packed_last_known
    rows.leader_recovery_state[row] = recovery
    run.version = version
    run.replica_count = all_replicas.count
    advance(run, stop, row + 1)
    return True
