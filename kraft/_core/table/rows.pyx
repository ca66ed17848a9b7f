"""Journaled rows of topics and partitions: every change can be reverted.

Holds the topic and partition of each row, the index from brokers to rows, and the *journal*: oldest
first, the values that each change overwrote, with the offset of the record that caused it. It has
three uses. Each takes time in proportion to the changes, not to the size of the table:

- ``revert(offset)`` undoes changes from the newest entry down (lost leadership, an aborted metadata
  transaction);
- images (``images``) read the table as of an earlier offset;
- deltas (``images``) list the changes for publishers.

Invariants:
- Rows are appended and do not move; a compaction copies the live ones to a fresh table and swaps,
  so that the images of before keep the old rows with their journal.
- The broker index holds the rows below ``indexed_row_count``: adding rows costs nothing there until
  the next query.
- A row of a removed topic keeps its values, with ``topic`` set to ``-1 - number``, so that the
  removal can be reverted.
- Offsets in the journal never descend.

``record_rows`` and ``replayed_rows`` change rows; ``election`` and ``images`` read them.
"""

from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memmove

from kraft._core.bytes.arena cimport arena_discard, arena_release, arena_reserve
from kraft._core.table.columns cimport IRREGULAR, pack_block, size_of_block, unpack_block
from kraft._core.table.topics cimport TopicEntry

from kraft.errors import InvalidRequestError, OffsetOutOfRangeError, ReplayError


cdef enum:
    # At most this many journal entries are moved at once.
    MOVED_AT_ONCE = 8192
    # Of the journal, if more entries are dropped their memory is returned to the system.
    KEPT_ENTRIES = 16384


def refusal(int reason, str what):
    if reason == NO_MEMORY:
        return MemoryError(f"no memory for {what}")
    return ReplayError({
        TOPIC_EXISTS: f"{what}: a topic of this name exists already",
        TOPIC_ID_EXISTS: f"{what}: a topic of this id exists already",
        UNKNOWN_TOPIC: f"{what}: no topic has this id",
        UNKNOWN_PARTITION: f"{what}: the topic has no such partition",
        BAD_PARTITION_ID: f"{what}: a partition id must not be negative",
        OFFSET_FALLS: f"{what}: a record of a higher offset was applied already",
    }[reason])


cdef dict state_as_dict(const PartitionState *state):
    """Return a partition as Python values, directories as numbers."""
    cdef int32_t slot
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "leader_recovery_state": state.leader_recovery_state,
        "replicas": [state.replicas[slot] for slot in range(state.replica_count)],
        "directories": [state.directories[slot] for slot in range(state.replica_count)],
        "isr": [state.isr[slot] for slot in range(state.isr_count)],
        "elr": [state.elr[slot] for slot in range(state.elr_count)],
        "last_known_elr": [
            state.last_known_elr[slot] for slot in range(state.last_known_elr_count)
        ],
        "removing_replicas": [state.removing[slot] for slot in range(state.removing_count)],
        "adding_replicas": [state.adding[slot] for slot in range(state.adding_count)],
    }


cdef int by_partition(const void *left, const void *right) noexcept nogil:
    cdef const int32_t *a = <const int32_t *>left
    cdef const int32_t *b = <const int32_t *>right
    return (a[0] > b[0]) - (a[0] < b[0])


cdef class TableRows(PartitionColumns):
    """Topics and partitions as rows; see the module's docstring."""

    def __cinit__(self, **_):
        self.topics = TopicTable()
        self.index = BrokerIndex()
        self.directories_seen = UuidMap()
        self.images = []
        # The reserved ids take their fixed numbers: migrating 0, unassigned 1, lost 2.
        for low in range(3):
            self.directories_seen.put(low.to_bytes(16, "big"))

    def __dealloc__(self):
        cdef int64_t place
        cdef JournalEntry *entries = <JournalEntry *>self.journal.data
        for place in range(self.journal_first,
                           <int64_t>(self.journal.size // sizeof(JournalEntry))):
            free(entries[place].block)
        arena_release(&self.journal)

    # -- the journal

    cdef JournalEntry *record(self, int64_t offset, int32_t kind, int32_t row) noexcept nogil:
        """Append an entry and return it, or NULL if out of memory."""
        cdef JournalEntry *entry
        if arena_reserve(&self.journal, sizeof(JournalEntry)) < 0:
            return NULL
        entry = <JournalEntry *>(self.journal.data + self.journal.size)
        self.journal.size += sizeof(JournalEntry)
        entry.offset = offset
        entry.kind = kind
        entry.row = row
        entry.count = 1
        entry.block = NULL
        return entry

    def start_journal(self, int64_t offset):
        self._refuse_beside_images("restart the journal")
        self.ensure_checked()
        self._own_all()
        self.forget_all()
        self.is_journaling = True
        self.journal_start_offset = self.forgotten_offset = offset

    def _own_all(self):
        """Copy the arrays of a mapped file now: a running node must not stop for it later."""
        if not self.is_lent:
            return
        self.own_columns()
        self.own_topics()

    cdef object own_topics(self):
        """Copy the arrays of topics and directories that are borrowed from a mapped file."""
        if self.topics.own() < 0 or self.directories_seen.own() < 0:
            raise MemoryError("no memory for the table")
        self.topics.ids.lender = self.topics.names.lender = self.directories_seen.lender = None

    def stop_journal(self):
        self._refuse_beside_images("stop the journal")
        self.forget_all()
        self.is_journaling = False

    def forget_all(self):
        self._forget(0x7FFFFFFFFFFFFFFF)

    def forget(self, int64_t offset):
        self.forgotten_offset = max(self.forgotten_offset, offset)
        offset = min(offset, min(self._live_image_offsets(), default=offset))
        if offset > self.journal_start_offset:
            self._forget(offset)
            self.journal_start_offset = offset

    def _forget(self, int64_t offset):
        cdef JournalEntry *entries = <JournalEntry *>self.journal.data
        cdef int64_t total = <int64_t>(self.journal.size // sizeof(JournalEntry))
        cdef int64_t first = self.journal_first, below, rest
        while first < total:
            if entries[first].offset + entries[first].count > offset:
                below = offset - entries[first].offset
                if entries[first].kind == ROWS_ADDED and below > 0:
                    entries[first].offset += below
                    entries[first].row += <int32_t>below
                    entries[first].count -= <int32_t>below
                break
            free(entries[first].block)
            first += 1
        self.journal_sequence += first - self.journal_first
        self.journal_first = first
        # Move the rest down only if it is the smaller part, so that moves cost no more than drops,
        # and if it is short or at most an eighth, so that no move takes long.
        rest = total - first
        if first > rest and (rest <= MOVED_AT_ONCE or first > 8 * rest):
            memmove(entries, entries + first, (total - first) * sizeof(JournalEntry))
            self.journal.size = <size_t>(total - first) * sizeof(JournalEntry)
            self.journal_first = 0
            # After a storm of changes the journal would keep 56 bytes for each of them.
            if first > KEPT_ENTRIES:
                arena_discard(&self.journal, <size_t>total * sizeof(JournalEntry))

    def revert(self, int64_t offset):
        cdef JournalEntry *entry
        cdef int64_t kept, indexed = self.indexed_row_count
        if not self.is_journaling or offset < self.journal_start_offset:
            raise OffsetOutOfRangeError(
                f"cannot revert to offset {offset}: "
                + (f"the journal reaches back to {self.journal_start_offset}"
                   if self.is_journaling else "the journal is off")
            )
        newest = max(self._live_image_offsets(), default=offset)
        if offset < newest:
            raise InvalidRequestError(
                f"cannot revert to offset {offset}: an image as of offset {newest} is in use"
            )
        self.revert_count += 1
        self.forgotten_offset = min(self.forgotten_offset, offset)
        with nogil:
            while self.journal.size > <size_t>self.journal_first * sizeof(JournalEntry):
                entry = <JournalEntry *>(self.journal.data + self.journal.size) - 1
                kept = max(<int64_t>0, offset - entry.offset)
                if kept >= entry.count:
                    break
                if self.undo(entry, kept) < 0:
                    with gil:
                        raise MemoryError("no memory to revert")
                if kept:
                    entry.count = <int32_t>kept
                    break
                self.journal.size -= sizeof(JournalEntry)
            if self.row_count < indexed:
                self.index.truncate(self.row_count)

    cdef int undo(self, JournalEntry *entry, int64_t kept) noexcept nogil:
        """Undo one entry; of added rows keep the first `kept`."""
        cdef PartitionState state
        cdef TopicEntry *topic
        cdef int64_t row, index, _index, count = 0
        cdef int32_t *rows
        if entry.kind == ROW_CHANGED:
            row = entry.row
            if entry.block != NULL:
                unpack_block(entry.block, &state)
                if self.store_row(row, &state) < 0:
                    return -1
                free(entry.block)
                entry.block = NULL
                return self.index_row(row) if row < self.indexed_row_count else 0
            self.leader[row] = entry.leader
            self.leader_epoch[row] = entry.leader_epoch
            self.partition_epoch[row] = entry.partition_epoch
            self.isr[row] = entry.isr
            self.elr[row] = entry.elr
            self.last_known_elr[row] = entry.last_known_elr
            self.leader_recovery_state[row] = <int8_t>entry.leader_recovery_state
        elif entry.kind == ROWS_ADDED:
            for _index in range(entry.count - kept):
                row = self.row_count - 1
                self.topics.drop_row(self.topic[row], self.partition[row])
                if self.isr[row] == IRREGULAR:
                    free(self.detach_block(row))
                self.row_count -= 1
                self.partition_count -= 1
            self.indexed_row_count = min(self.indexed_row_count, self.row_count)
        elif entry.kind == TOPIC_ADDED:
            self.topics.discard(entry.row)
        else:
            topic = self.topics.entry(entry.row)
            rows = self.rows_of_topic(entry.row, &count)
            if (rows == NULL and count) or self.topics.restore(entry.row) < 0:
                free(rows)
                return -1
            for index in range(count):
                self.topic[rows[2 * index + 1]] = entry.row
            self.partition_count += topic.partition_count
            free(rows)
        return 0

    # -- images

    def _add_image(self, reference):
        """Register a weak reference to an image, which needs the journal."""
        self.images.append(reference)

    cdef list _live_images(self):
        """Return the images that are still referenced."""
        if not self.images:
            return []
        alive = [(reference, image) for reference in self.images
                 if (image := reference()) is not None]
        self.images = [reference for reference, _ in alive]
        return [image for _, image in alive]

    cdef list _live_image_offsets(self):
        return [image.offset for image in self._live_images()]

    cdef object _refuse_beside_images(self, str what):
        offsets = self._live_image_offsets()
        if offsets:
            raise InvalidRequestError(
                f"cannot {what}: an image as of offset {min(offsets)} is in use"
            )

    # -- changes, all journaled

    cdef int64_t add_topic(self, const uint8_t *name, int32_t name_size,
                           const uint8_t *topic_id, int64_t offset) noexcept nogil:
        """Add a topic; return its number, or a negative Refusal."""
        cdef int64_t topic
        if self.falls(offset):
            return OFFSET_FALLS
        if self.topics.names.find(name, name_size) >= 0:
            return TOPIC_EXISTS
        if self.topics.ids.find(topic_id) >= 0:
            return TOPIC_ID_EXISTS
        topic = self.topics.add(name, name_size, topic_id)
        if topic < 0:
            return NO_MEMORY
        if self.is_journaling and self.record(offset, TOPIC_ADDED, <int32_t>topic) == NULL:
            return NO_MEMORY
        return topic

    cdef int discard_topic(self, int64_t topic, int64_t offset) noexcept nogil:
        """Remove a topic and its partitions; their rows stay dead until a compaction."""
        cdef int64_t count = 0, index
        cdef int32_t *rows
        if self.falls(offset):
            return OFFSET_FALLS
        rows = self.rows_of_topic(topic, &count)
        if rows == NULL and count:
            return NO_MEMORY
        if self.is_journaling and self.record(offset, TOPIC_REMOVED, <int32_t>topic) == NULL:
            free(rows)
            return NO_MEMORY
        for index in range(count):
            self.topic[rows[2 * index + 1]] = <int32_t>(-1 - topic)
        free(rows)
        self.topics.discard(topic)
        self.partition_count -= self.topics.entry(topic).partition_count
        return 0

    cdef int64_t append_row(self, int32_t topic, int32_t partition, int64_t offset) noexcept nogil:
        """Append the row of a new partition; the caller has reserved it and writes its values.

        Returns the row, or a negative Refusal.
        """
        cdef int64_t row = self.row_count
        cdef JournalEntry *entry
        cdef bint follows = False
        if partition < 0:
            return BAD_PARTITION_ID
        if self.falls(offset):
            return OFFSET_FALLS
        if self.is_journaling:
            if self.journal.size > <size_t>self.journal_first * sizeof(JournalEntry):
                entry = <JournalEntry *>(self.journal.data + self.journal.size) - 1
                follows = (
                    entry.kind == ROWS_ADDED and entry.offset + entry.count == offset
                    and entry.row + entry.count == row
                )
            if follows:
                entry.count += 1
            elif self.record(offset, ROWS_ADDED, <int32_t>row) == NULL:
                return NO_MEMORY
        if self.topics.add_row(topic, partition, row) < 0:
            return NO_MEMORY
        self.topic[row] = topic
        self.partition[row] = partition
        self.isr[row] = 0
        self.row_count += 1
        self.partition_count += 1
        return row

    cdef int note_scalars(self, int64_t row, int64_t offset) noexcept nogil:
        """Journal a regular row before its leader, epochs, packed lists or recovery state change.
        """
        cdef JournalEntry *entry
        if not self.is_journaling:
            return 0
        if self.falls(offset):
            return OFFSET_FALLS
        entry = self.record(offset, ROW_CHANGED, <int32_t>row)
        if entry == NULL:
            return NO_MEMORY
        entry.leader = self.leader[row]
        entry.leader_epoch = self.leader_epoch[row]
        entry.partition_epoch = self.partition_epoch[row]
        entry.isr = self.isr[row]
        entry.elr = self.elr[row]
        entry.last_known_elr = self.last_known_elr[row]
        entry.leader_recovery_state = self.leader_recovery_state[row]
        return 0

    cdef int replace_row(self, int64_t row, const PartitionState *after,
                         int64_t offset) noexcept nogil:
        """Journal a whole row and write `after` over it; return 0 or a negative Refusal."""
        cdef PartitionState before
        cdef JournalEntry *entry
        if self.falls(offset):
            return OFFSET_FALLS
        if self.is_journaling:
            self.load_row(row, &before)
            entry = self.record(offset, ROW_CHANGED, <int32_t>row)
            if entry == NULL:
                return NO_MEMORY
            entry.block = pack_block(&before)
            if entry.block == NULL:
                self.journal.size -= sizeof(JournalEntry)
                return NO_MEMORY
        if self.store_row(row, after) < 0:
            return NO_MEMORY
        return self.index_row(row) if row < self.indexed_row_count else 0

    cdef int32_t *rows_of_topic(self, int64_t topic, int64_t *count) noexcept nogil:
        """Return a topic's (partition, row) pairs by partition, dead or alive; free them after use.

        NULL with a count above 0 if out of memory.
        """
        cdef TopicEntry *entry = self.topics.entry(topic)
        cdef int64_t index, row, found = 0
        cdef int32_t *pairs
        cdef int32_t number = <int32_t>topic, partition
        count[0] = entry.partition_count
        if entry.partition_count == 0:
            return NULL
        pairs = <int32_t *>malloc(8 * <size_t>entry.partition_count)
        if pairs == NULL:
            return NULL
        for index in range(entry.row_count):
            pairs[2 * index] = entry.first_partition + <int32_t>index
            pairs[2 * index + 1] = entry.first_row + <int32_t>index
        found = entry.row_count
        if found < entry.partition_count:
            if <int64_t>entry.max_partition < 4 * <int64_t>entry.partition_count:
                for partition in range(entry.max_partition + 1):
                    row = self.topics.scattered.find(number, partition)
                    if row >= 0:
                        pairs[2 * found] = partition
                        pairs[2 * found + 1] = <int32_t>row
                        found += 1
            else:
                # Ids with wide gaps: a scan of the table costs less than a look-up of every id.
                for row in range(self.row_count):
                    if (
                        (self.topic[row] == number or self.topic[row] == -1 - number)
                        and not 0 <= row - entry.first_row < entry.row_count
                    ):
                        pairs[2 * found] = self.partition[row]
                        pairs[2 * found + 1] = <int32_t>row
                        found += 1
            qsort(pairs, found, 8, by_partition)
        count[0] = found
        return pairs

    # -- brokers

    cdef int index_row(self, int64_t row) noexcept nogil:
        """Add a row to the lists of all brokers that appear in it."""
        cdef PartitionState state
        cdef int32_t slot
        cdef const int32_t *replicas
        if self.isr[row] != IRREGULAR:
            replicas = self.replicas + row * self.stride
            for slot in range(self.stride):
                if replicas[slot] >= 0 and self.index.add(replicas[slot], <int32_t>row) < 0:
                    return NO_MEMORY
            return 0
        self.load_row(row, &state)
        for slot in range(state.replica_count):
            if self.index.add(state.replicas[slot], <int32_t>row) < 0:
                return NO_MEMORY
        for slot in range(state.isr_count):
            if self.index.add(state.isr[slot], <int32_t>row) < 0:
                return NO_MEMORY
        for slot in range(state.elr_count):
            if self.index.add(state.elr[slot], <int32_t>row) < 0:
                return NO_MEMORY
        return 0

    cdef int index_rows(self, int64_t count) noexcept nogil:
        """Add the next `count` rows to the index."""
        cdef int64_t row, first = self.indexed_row_count
        cdef int64_t end = min(self.row_count, first + count)
        cdef int slot, stride = self.stride
        cdef const int32_t *replicas
        # Include the dead rows of a removal that can be reverted: the revert does not update the
        # index.
        cdef bint with_dead = self.has_journal()
        for row in range(first, end):
            if self.isr[row] == IRREGULAR or (self.topic[row] < 0 and not with_dead):
                continue
            replicas = self.replicas + row * stride
            for slot in range(stride):
                if replicas[slot] >= 0 and self.index.expect(replicas[slot]) < 0:
                    return NO_MEMORY
        if self.index.make_room() < 0:
            return NO_MEMORY
        for row in range(first, end):
            if (self.topic[row] >= 0 or with_dead) and self.index_row(row) < 0:
                return NO_MEMORY
        self.indexed_row_count = end
        return 0

    def ensure_index(self, max_rows=None):
        cdef int64_t count = self.row_count if max_rows is None else max_rows
        cdef int result = 0
        self.ensure_checked()
        if self.indexed_row_count < self.row_count:
            with nogil:
                result = self.index_rows(count)
            if result < 0:
                raise MemoryError("no memory for the broker index")
        return self.indexed_row_count < self.row_count

    @property
    def is_indexed(self):
        return self.indexed_row_count == self.row_count

    # -- compaction (see `compaction`)

    cdef object swap_rows_with(self, TableRows other):
        """Continue with the topics and rows of `other`, and an empty journal.

        `other`, whose journal is off, takes the old ones, and is then only read, by images.
        """
        cdef dict arrays = self.arrays
        cdef int64_t capacity = self.capacity
        cdef int stride = self.stride
        self._adopt(other.arrays, other.capacity, other.stride)
        other._adopt(arrays, capacity, stride)
        self.blocks, other.blocks = other.blocks, self.blocks
        self.free_blocks, other.free_blocks = other.free_blocks, self.free_blocks
        self.irregular_count, other.irregular_count = other.irregular_count, self.irregular_count
        self.row_count, other.row_count = other.row_count, self.row_count
        self.partition_count, other.partition_count = other.partition_count, self.partition_count
        self.topics, other.topics = other.topics, self.topics
        # Directories keep their numbers, and are never dropped.
        other.directories_seen = self.directories_seen
        self.index.clear()
        self.indexed_row_count = 0
        other.is_journaling = self.is_journaling
        other.journal_start_offset = self.journal_start_offset
        other.revert_count = self.revert_count
        other.journal_sequence, self.journal_sequence = self.journal_sequence, self.journal_end()
        other.journal, self.journal = self.journal, other.journal
        other.journal_first, self.journal_first = self.journal_first, 0
        self.journal_start_offset = max(self.journal_start_offset, self.forgotten_offset)
        self.images = []

    @property
    def is_compact(self):
        return self.row_count == self.partition_count and self.topics.scattered.count == 0

    @property
    def journal_length(self):
        return <int64_t>(self.journal.size // sizeof(JournalEntry)) - self.journal_first

    @property
    def memory_sizes(self):
        cdef const JournalEntry *entries = <const JournalEntry *>self.journal.data
        cdef int64_t place, journal = self.journal.capacity
        for place in range(self.journal_first,
                           <int64_t>(self.journal.size // sizeof(JournalEntry))):
            if entries[place].block != NULL:
                journal += size_of_block(entries[place].block)
        return {
            "columns": self.column_memory_size,
            "topics": self.topics.memory_size,
            "directories": self.directories_seen.memory_size,
            "broker_index": self.index.memory_size,
            "journal": journal,
        }
