"""Applying one partition record to its row: Kafka's ``PartitionRegistration`` and ``TopicDelta``.

Partition adds or replaces a row. PartitionChange merges into a row: it increments the partition
epoch, and the leader epoch if it names a leader. ClearElr clears two lists. A new regular row is
written straight from the record's bytes. ``replayed_rows`` calls this with parsed views; ``rows``
journals the changes, ``columns`` stores them.
"""

from libc.stdint cimport int8_t, int32_t, uint32_t
from libc.string cimport memcmp

from kraft._core.table.columns cimport IRREGULAR
from kraft._core.codec.partition_codec cimport (
    CHANGE_ADDING, CHANGE_DIRECTORIES, CHANGE_ELR, CHANGE_ISR, CHANGE_LAST_KNOWN_ELR,
    CHANGE_LEADER, CHANGE_RECOVERY, CHANGE_REMOVING, CHANGE_REPLICAS, CODEC_DIRECTORY_COUNT,
    DIRECTORY_MIGRATING, PartitionState,
)
from kraft._core.table.record_views cimport (
    all_migrating, cached_directory, directory_place, pack_members, pack_view, raw_word,
    spread_list,
)
from kraft._core.table.rows cimport NO_MEMORY, UNKNOWN_PARTITION, UNKNOWN_TOPIC
from kraft._core.table.topics cimport TopicEntry
from kraft._core.bytes.wire cimport likely, load_u32

from kraft._core.table.rows import refusal
from kraft.errors import ReplayError


cdef int64_t find_topic(
    TableRows rows, ApplyCursor *cursor, const uint8_t *topic_id
) noexcept nogil:
    """Return a topic's number by its id, -1 if absent; cache the last result."""
    if cursor.last_topic_id != NULL and memcmp(cursor.last_topic_id, topic_id, 16) == 0:
        return cursor.last_topic
    cursor.last_topic = rows.topics.ids.find(topic_id)
    cursor.last_topic_id = topic_id if cursor.last_topic >= 0 else NULL
    # `next_partition` was that of another topic.
    cursor.next_partition = -1
    return cursor.last_topic


cdef int64_t intern_directory(
    TableRows rows, uint64_t *directory_cache, const uint8_t *uuid
) noexcept nogil:
    """Return the number of a directory id, from a small cache or else the hash map."""
    cdef int64_t number = cached_directory(directory_cache, rows.directory_ids(), uuid)
    cdef uint64_t low = raw_word(uuid + 8)
    cdef uint64_t *place = &directory_cache[directory_place(low)]
    if number >= 0:
        return number
    number = rows.directories_seen.intern(uuid)
    if 0 <= number <= 0xFFFF:
        place[0] = place[0] << 32 | low >> 48 << 16 | <uint64_t>number
    return number


cdef int apply_partition(
    TableRows rows, ApplyCursor *cursor, const PartitionView *view
) noexcept nogil:
    """Apply a Partition record: 0, NEEDS_ROWS, or a negative Refusal."""
    cdef int64_t topic = find_topic(rows, cursor, view.topic_id)
    cdef int64_t row
    cdef PartitionState state
    cdef int result
    if topic < 0:
        return UNKNOWN_TOPIC
    row = rows.topics.row_of(<int32_t>topic, view.partition_id)
    if likely(row < 0):
        if rows.row_count >= rows.capacity:
            return NEEDS_ROWS
        row = rows.append_row(<int32_t>topic, view.partition_id, cursor.offset)
        if row < 0:
            return <int>row
        result = store_view(rows, cursor.directory_cache, row, view)
        expect_next(rows, cursor)
        return result
    result = spread_view(rows, cursor.directory_cache, view, &state)
    if result < 0:
        return result
    return rows.replace_row(row, &state, cursor.offset)


cdef void expect_next(TableRows rows, ApplyCursor *cursor) noexcept nogil:
    """After a new row, set the partition with which a run may begin."""
    cdef const TopicEntry *entry = rows.topics.entry(cursor.last_topic)
    cursor.next_partition = -1
    if (
        cursor.is_whole
        and entry.partition_count == entry.row_count
        and (entry.row_count == 0 or entry.first_row + entry.row_count == rows.row_count)
    ):
        cursor.next_partition = entry.first_partition + entry.row_count


cdef int store_view(
    TableRows rows, uint64_t *directory_cache, int64_t row, const PartitionView *view
) noexcept nogil:
    """Write a record into a new row, straight from its bytes if the row is regular."""
    cdef uint32_t isr = 0, elr = 0, last_known_elr = 0
    cdef int32_t slot, count = view.replicas.count
    cdef int stride = rows.stride
    cdef int32_t *replicas = rows.replicas + row * stride
    cdef uint32_t *directories = rows.directories + row * stride
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
        if spread_view(rows, directory_cache, view, &state) < 0 or rows.store_row(row, &state) < 0:
            return NO_MEMORY
        return 0
    for slot in range(count, stride):
        replicas[slot] = -1
    for slot in range(stride):
        directories[slot] = DIRECTORY_MIGRATING
    for slot in range(view.directories.count):
        number = intern_directory(rows, directory_cache, view.directories.items + 16 * slot)
        if number < 0:
            return NO_MEMORY
        directories[slot] = <uint32_t>number
    rows.leader[row] = view.leader
    rows.leader_epoch[row] = view.leader_epoch
    rows.partition_epoch[row] = view.partition_epoch
    rows.isr[row] = isr
    rows.elr[row] = elr
    rows.last_known_elr[row] = last_known_elr
    rows.leader_recovery_state[row] = <int8_t>view.leader_recovery_state
    return 0


cdef int spread_view(
    TableRows rows, uint64_t *directory_cache, const PartitionView *view, PartitionState *state
) noexcept nogil:
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
        number = intern_directory(rows, directory_cache, view.directories.items + 16 * slot)
        if number < 0:
            return NO_MEMORY
        state.directories[slot] = <uint32_t>number
    return 0


cdef bint has_member(uint32_t packed, const int32_t *replicas, int32_t member) noexcept nogil:
    """Return whether a packed list names a replica."""
    while packed:
        if replicas[(packed & 15) - 1] == member:
            return True
        packed >>= 4
    return False


cdef int apply_change(TableRows rows, ApplyCursor *cursor, const ChangeView *view) noexcept nogil:
    """Apply a PartitionChange record: 0, ELECTED_ELIGIBLE, or a negative reason."""
    cdef int64_t topic = find_topic(rows, cursor, view.topic_id)
    cdef int64_t row, number
    cdef uint32_t isr = 0, elr = 0, last_known_elr = 0
    cdef const int32_t *replicas
    cdef PartitionState state
    cdef int32_t slot
    cdef bint known
    cdef int result, outcome = 0
    if topic < 0:
        return UNKNOWN_TOPIC
    row = rows.topics.row_of(<int32_t>topic, view.partition_id)
    if row < 0:
        return UNKNOWN_PARTITION
    replicas = rows.replicas + row * rows.stride
    if (
        rows.isr[row] != IRREGULAR
        and not view.fields & (
            CHANGE_REPLICAS | CHANGE_DIRECTORIES | CHANGE_ADDING | CHANGE_REMOVING
        )
        and (
            not view.fields & CHANGE_ISR
            or pack_members(&view.isr, replicas, rows.stride, &isr)
        )
        and (
            not view.fields & CHANGE_ELR
            or pack_members(&view.elr, replicas, rows.stride, &elr)
        )
        and (
            not view.fields & CHANGE_LAST_KNOWN_ELR
            or pack_members(&view.last_known_elr, replicas, rows.stride, &last_known_elr)
        )
    ):
        # Nearly every change: leader, ISR, ELR of a regular row.
        result = rows.note_scalars(row, cursor.offset)
        if result < 0:
            return result
        if view.fields & CHANGE_LEADER and rows.elr[row]:
            if has_member(rows.elr[row], replicas, view.leader):
                outcome = ELECTED_ELIGIBLE
        if view.fields & CHANGE_ISR:
            rows.isr[row] = isr
        if view.fields & CHANGE_ELR:
            rows.elr[row] = elr
        if view.fields & CHANGE_LAST_KNOWN_ELR:
            rows.last_known_elr[row] = last_known_elr
        if view.fields & CHANGE_LEADER:
            rows.leader[row] = view.leader
            rows.leader_epoch[row] += 1
        if view.fields & CHANGE_RECOVERY:
            rows.leader_recovery_state[row] = <int8_t>view.leader_recovery_state
        rows.partition_epoch[row] += 1
        return outcome
    rows.load_row(row, &state)
    if view.fields & CHANGE_LEADER:
        for slot in range(state.elr_count):
            if state.elr[slot] == view.leader:
                outcome = ELECTED_ELIGIBLE
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
            # If no directory is known yet, those of the new replicas are unknown, too.
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
            number = intern_directory(
                rows, cursor.directory_cache, view.directories.items + 16 * slot
            )
            if number < 0:
                return NO_MEMORY
            state.directories[slot] = <uint32_t>number
    state.partition_epoch += 1
    result = rows.replace_row(row, &state, cursor.offset)
    return outcome if result == 0 else result


def clear_elr(TableRows rows not None, topic, int64_t offset):
    cdef int64_t number = -1, row
    cdef int result
    cdef PartitionState state
    rows.ensure_checked()
    if topic is not None:
        number = rows.topics.names.get(topic)
        if number < 0:
            raise ReplayError(f"ClearElr at offset {offset} names an unknown topic: {topic}")
    for row in range(rows.row_count):
        if rows.topic[row] < 0 or (number >= 0 and rows.topic[row] != number):
            continue
        if rows.isr[row] != IRREGULAR and not rows.elr[row] and not rows.last_known_elr[row]:
            continue
        rows.load_row(row, &state)
        if state.elr_count or state.last_known_elr_count:
            state.elr_count = 0
            state.last_known_elr_count = 0
            state.partition_epoch += 1
            result = rows.replace_row(row, &state, offset)
            if result < 0:
                raise refusal(result, f"ClearElr at offset {offset}")
