"""What one partition record does to the rows: Kafka's ``PartitionRegistration`` and ``TopicDelta``.

Owns the meaning of the records. Partition makes or replaces a row; PartitionChange merges into one
(partition epoch + 1 always, leader epoch + 1 where a leader is named); ClearElr empties two lists.
A new row is written straight from the record's bytes where it is regular. Fed by ``replayed_rows``
with parsed views; storage and history are below, in ``columns`` and ``rows``.
"""

from libc.stdint cimport int8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from kraft._core.columns cimport IRREGULAR, MAX_STRIDE
from kraft._core.partition_codec cimport (
    CHANGE_ADDING, CHANGE_DIRECTORIES, CHANGE_ELR, CHANGE_ISR, CHANGE_LAST_KNOWN_ELR,
    CHANGE_LEADER, CHANGE_RECOVERY, CHANGE_REMOVING, CHANGE_REPLICAS, CODEC_DIRECTORY_COUNT,
    DIRECTORY_MIGRATING,
)
from kraft._core.record_views cimport (
    DIRECTORY_CACHE_SIZE, all_migrating, cached_directory, directory_place, pack_members, pack_view,
    raw_word, spread_list,
)
from kraft._core.rows cimport NO_MEMORY, UNKNOWN_PARTITION, UNKNOWN_TOPIC
from kraft._core.topics cimport TopicEntry
from kraft._core.wire cimport likely, load_u32

from kraft._core.rows import refusal
from kraft.errors import ReplayError


cdef class RecordRows(TableRows):
    """Rows that single records change; see the module's docstring."""

    def __cinit__(self, **_):
        self.directory_cache = <uint64_t *>calloc(DIRECTORY_CACHE_SIZE, sizeof(uint64_t))
        if self.directory_cache == NULL:
            raise MemoryError("no memory for the directory cache")

    def __dealloc__(self):
        free(self.directory_cache)

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
        cdef uint64_t low = raw_word(uuid + 8)
        cdef uint64_t *place = &self.directory_cache[directory_place(low)]
        if number >= 0:
            return number
        number = self.directories_seen.intern(uuid)
        if 0 <= number <= 0xFFFF:
            place[0] = place[0] << 32 | low >> 48 << 16 | <uint64_t>number
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
            self.expect_next(cursor)
            return result
        result = self.spread_view(view, &state)
        if result < 0:
            return result
        return self.replace_row(row, &state, cursor.offset)

    cdef void expect_next(self, ApplyCursor *cursor) noexcept nogil:
        """After a new row: the partition that a run may begin with, if the next record has it."""
        cdef const TopicEntry *entry = self.topics.entry(cursor.last_topic)
        cursor.next_partition = -1
        if (
            cursor.is_whole
            and entry.partition_count == entry.row_count
            and (entry.row_count == 0 or entry.first_row + entry.row_count == self.row_count)
        ):
            cursor.next_partition = entry.first_partition + entry.row_count

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
