"""Images of a partition table as of an offset, and deltas between them, read from its journal.

``TableImage`` is the table as of an earlier offset while the table moves on; ``TableDelta`` holds
the changes between two images. Creating either copies nothing. An image reads a row from the row's
oldest journal entry at or after the image's offset, and without one from the table. It finds that
entry by reading the journal, each entry once, at the first query and whenever the journal has
grown. It hides rows and topics that were added after its offset.

Invariants: the table has weak references to its images. It never drops or reverts what a live image
needs: it rejects the operation, or ``forget`` keeps more. A compaction moves the old rows and their
journal into a table of their own, and lets the live images read that one. Images are of committed
offsets. A revert reuses sequence numbers of journal entries, so an image then reads the journal
from the start.

``PartitionTable.image`` and ``delta`` create them, publishers read them. Not for reading in one
thread while ``apply`` runs in another.
"""

from weakref import ref

import numpy as np

from libc.stdlib cimport free
from libc.string cimport memset

from kraft._core.bytes.arena cimport arena_release, arena_reserve
from kraft._core.table.columns cimport unpack_block, unpack_list
from kraft._core.table.rows cimport (
    ROW_CHANGED, ROWS_ADDED, TOPIC_ADDED, JournalEntry, state_as_dict,
)

from kraft.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError

SCALAR_COLUMNS = frozenset(
    {"leader", "leader_epoch", "partition_epoch", "leader_recovery_state", "topic", "partition"}
)


cdef inline uint64_t hash_of_row(int64_t row) noexcept nogil:
    cdef uint64_t key = <uint64_t>row * <uint64_t>0x9E3779B97F4A7C15
    return key ^ (key >> 32)


cdef int64_t first_entry_behind(TableRows table, int64_t offset) noexcept nogil:
    """Return the sequence number of the first journal entry that covers `offset` or later ones."""
    cdef int64_t low = table.journal_sequence, high = table.journal_end(), middle
    cdef const JournalEntry *entry
    while low < high:
        middle = low + (high - low) // 2
        entry = table.journal_entry(middle)
        if entry.offset + entry.count > offset:
            high = middle
        else:
            low = middle + 1
    return low


cdef inline int64_t topic_of_row(TableRows table, int64_t row) noexcept nogil:
    """Return the number of the row's topic, live or removed."""
    cdef int32_t topic = table.topic[row]
    return topic if topic >= 0 else -1 - topic


cdef class TableImage:
    """See ``history.pyi`` for the public interface."""

    def __cinit__(self, TableRows table not None, int64_t offset):
        if not table.is_journaling or offset < table.journal_start_offset:
            raise OffsetOutOfRangeError(
                f"no image as of offset {offset}: "
                + (f"the journal reaches back to {table.journal_start_offset}"
                   if table.is_journaling else "the journal is off")
            )
        self.table = table
        self.offset = offset
        self.seen = -1
        self.rows_then = -1
        self.topics_added_since = set()
        self.topics_removed_since = set()
        table._add_image(ref(self))

    def __dealloc__(self):
        arena_release(&self.slots)

    # -- the overlay

    cdef int64_t first_entry(self) noexcept nogil:
        return first_entry_behind(self.table, self.offset)

    cdef object catch_up(self):
        """Read the journal entries since the last call."""
        cdef TableRows table = self.table
        cdef const JournalEntry *entry
        cdef int64_t sequence, end
        if self.seen < 0 or self.seen_reverts != table.revert_count:
            if self.slots.size:
                memset(self.slots.data, 0xff, self.slots.size)
            self.overlaid_count = 0
            self.topics_added_since.clear()
            self.topics_removed_since.clear()
            self.seen = self.first_entry()
            self.seen_reverts = table.revert_count
        end = table.journal_end()
        for sequence in range(self.seen, end):
            entry = table.journal_entry(sequence)
            if entry.kind == ROW_CHANGED:
                if self.overlay(entry.row, sequence, entry.block != NULL) < 0:
                    self.seen = -1
                    raise MemoryError("no memory for an image")
            elif entry.kind == ROWS_ADDED:
                if self.rows_then < 0:
                    self.rows_then = entry.row + max(<int64_t>0, self.offset - entry.offset)
            elif entry.kind == TOPIC_ADDED:
                self.topics_added_since.add(entry.row)
            else:
                self.topics_removed_since.add(entry.row)
        self.seen = end
        if self.rows_then < 0:
            self.rows_then = table.row_count

    cdef int make_room(self) noexcept nogil:
        """Provide a slot for one more row; return -1 if out of memory."""
        cdef Arena old = self.slots
        cdef OverlaidRow *moved
        cdef uint64_t old_capacity = old.size // sizeof(OverlaidRow), index, slot
        cdef uint64_t capacity = 2 * old_capacity if old_capacity else 16
        if 2 * <uint64_t>(self.overlaid_count + 1) <= old_capacity:
            return 0
        memset(&self.slots, 0, sizeof(Arena))
        if arena_reserve(&self.slots, capacity * sizeof(OverlaidRow)) < 0:
            self.slots = old
            return -1
        self.slots.size = capacity * sizeof(OverlaidRow)
        # 0xff in every byte makes every row -1: empty.
        memset(self.slots.data, 0xff, self.slots.size)
        self.mask = capacity - 1
        for index in range(old_capacity):
            moved = (<OverlaidRow *>old.data) + index
            if moved.row >= 0:
                slot = hash_of_row(moved.row) & self.mask
                while (<OverlaidRow *>self.slots.data)[slot].row >= 0:
                    slot = (slot + 1) & self.mask
                (<OverlaidRow *>self.slots.data)[slot] = moved[0]
        arena_release(&old)
        return 0

    cdef OverlaidRow *find(self, int64_t row) noexcept nogil:
        """Return the old values of a row, NULL if it did not change."""
        cdef uint64_t slot
        cdef OverlaidRow *slots = <OverlaidRow *>self.slots.data
        if self.overlaid_count == 0:
            return NULL
        slot = hash_of_row(row) & self.mask
        while slots[slot].row >= 0:
            if slots[slot].row == row:
                return &slots[slot]
            slot = (slot + 1) & self.mask
        return NULL

    cdef int overlay(self, int32_t row, int64_t sequence, bint has_block) noexcept nogil:
        """Note a change of a row; the oldest one counts."""
        cdef OverlaidRow *known = self.find(row)
        cdef OverlaidRow *slots
        cdef uint64_t slot
        if known != NULL:
            if has_block and known.oldest_block < 0:
                known.oldest_block = sequence
            return 0
        if self.make_room() < 0:
            return -1
        slots = <OverlaidRow *>self.slots.data
        slot = hash_of_row(row) & self.mask
        while slots[slot].row >= 0:
            slot = (slot + 1) & self.mask
        slots[slot].row = row
        slots[slot].oldest = sequence
        slots[slot].oldest_block = sequence if has_block else -1
        self.overlaid_count += 1
        return 0

    cdef void load_row(self, int64_t row, PartitionState *state) noexcept nogil:
        """Unpack a row as of the image's offset."""
        cdef const OverlaidRow *known = self.find(row)
        cdef const JournalEntry *entry
        if known == NULL:
            self.table.load_row(row, state)
            return
        entry = self.table.journal_entry(known.oldest)
        if entry.block != NULL:
            unpack_block(entry.block, state)
            return
        # This change kept the replicas, so they are those before the first change of the whole row.
        if known.oldest_block >= 0:
            unpack_block(self.table.journal_entry(known.oldest_block).block, state)
        else:
            self.table.load_row(row, state)
        state.leader = entry.leader
        state.leader_epoch = entry.leader_epoch
        state.partition_epoch = entry.partition_epoch
        state.leader_recovery_state = entry.leader_recovery_state
        state.isr_count = unpack_list(entry.isr, state.replicas, state.isr)
        state.elr_count = unpack_list(entry.elr, state.replicas, state.elr)
        state.last_known_elr_count = unpack_list(
            entry.last_known_elr, state.replicas, state.last_known_elr
        )

    # -- topics

    cdef bint had_topic(self, int64_t topic):
        """Return whether a topic existed; call `catch_up` before."""
        # Mostly no topic was added or removed; then this creates no Python object.
        if not 0 <= topic < self.table.topics.ids.count:
            return False
        if self.topics_added_since and topic in self.topics_added_since:
            return False
        if self.table.topics.entry(topic).alive:
            return True
        return bool(self.topics_removed_since) and topic in self.topics_removed_since

    cdef object _check_topic(self, int64_t topic):
        if not self.had_topic(topic):
            raise UnknownTopicOrPartitionError(
                f"no topic had the number {topic} as of offset {self.offset}"
            )

    def topic_number(self, str name not None):
        cdef int64_t topic
        self.catch_up()
        topic = self.table.topics.names.get(name)
        if topic >= 0 and self.had_topic(topic):
            return topic
        for topic in self.topics_removed_since:
            if self.had_topic(topic) and self.table.topics.names.key(topic) == name:
                return topic
        return -1

    def topic_number_by_id(self, topic_id not None):
        cdef int64_t topic
        self.catch_up()
        topic = self.table.topics.ids.get(topic_id)
        if topic >= 0 and self.had_topic(topic):
            return topic
        for topic in self.topics_removed_since:
            if self.had_topic(topic) and self.table.topics.ids.key(topic) == bytes(topic_id):
                return topic
        return -1

    def topic_numbers(self):
        cdef int64_t topic
        self.catch_up()
        return [topic for topic in range(self.table.topics.ids.count) if self.had_topic(topic)]

    def topic_name(self, int64_t topic):
        self.catch_up()
        self._check_topic(topic)
        return self.table.topics.names.key(topic)

    def topic_id_of(self, int64_t topic):
        self.catch_up()
        self._check_topic(topic)
        return self.table.topics.ids.key(topic)

    def topic_rows(self, int64_t topic):
        cdef int64_t count = 0, index
        cdef int32_t *pairs
        self.catch_up()
        self._check_topic(topic)
        pairs = self.row_pairs(topic, &count)
        rows = np.empty(count, np.int32)
        cdef int32_t[::1] out = rows
        for index in range(count):
            out[index] = pairs[2 * index + 1]
        free(pairs)
        return rows

    cdef int32_t *row_pairs(self, int64_t topic, int64_t *count) except? NULL:
        """Return (partition, row) of the rows that existed, by partition; free them after use.

        NULL with a count of 0: none.
        """
        cdef int64_t found = 0, index, kept = 0
        cdef int32_t *pairs = self.table.rows_of_topic(topic, &found)
        if pairs == NULL and found:
            raise MemoryError("no memory for a topic's rows")
        for index in range(found):
            if pairs[2 * index + 1] < self.rows_then:
                pairs[2 * kept] = pairs[2 * index]
                pairs[2 * kept + 1] = pairs[2 * index + 1]
                kept += 1
        count[0] = kept
        return pairs

    # -- partitions

    @property
    def row_count(self):
        self.catch_up()
        return self.rows_then

    def row_of(self, int64_t topic, int32_t partition):
        cdef int64_t row
        self.catch_up()
        self._check_topic(topic)
        row = self.table.topics.row_of(<int32_t>topic, partition)
        return row if row < self.rows_then else -1

    def state_of(self, int64_t row):
        cdef PartitionState state
        self.catch_up()
        self._check_row(row)
        self.load_row(row, &state)
        return state_as_dict(&state)

    def rows_with_replica(self, int32_t broker, const int32_t[::1] rows not None):
        cdef PartitionState state
        cdef int64_t index, count = 0
        cdef int32_t slot
        self.catch_up()
        found = np.empty(rows.shape[0], np.int32)
        cdef int32_t[::1] out = found
        for index in range(rows.shape[0]):
            self._check_row(rows[index])
            if not self.had_topic(topic_of_row(self.table, rows[index])):
                continue
            self.load_row(rows[index], &state)
            for slot in range(state.replica_count):
                if state.replicas[slot] == broker:
                    out[count] = rows[index]
                    count += 1
                    break
        return found[:count]

    def topics_of(self, const int32_t[::1] rows not None):
        cdef int64_t index
        self.catch_up()
        topics = np.empty(rows.shape[0], np.int32)
        cdef int32_t[::1] out = topics
        for index in range(rows.shape[0]):
            self._check_row(rows[index])
            out[index] = <int32_t>topic_of_row(self.table, rows[index])
        return topics

    def partition_of(self, int64_t row):
        self.catch_up()
        self._check_row(row)
        return self.table.partition[row]

    cdef int _check_row(self, int64_t row) except -1:
        if not 0 <= row < self.rows_then:
            raise OffsetOutOfRangeError(f"row {row} is outside of 0 to {self.rows_then - 1}")
        return 0

    def partition(self, str topic_name not None, int32_t partition_id):
        cdef int64_t topic = self.topic_number(topic_name), row = -1
        cdef PartitionState state
        if topic >= 0:
            row = self.row_of(topic, partition_id)
        if row < 0:
            raise UnknownTopicOrPartitionError(
                f"there was no partition {topic_name}-{partition_id} as of offset {self.offset}"
            )
        self.load_row(row, &state)
        return state_as_dict(&state)

    def directory_id(self, int64_t number):
        return self.table.directories_seen.key(number)

    def column(self, str name not None):
        cdef const OverlaidRow *known
        cdef PartitionState state
        cdef int64_t index, topic
        if name not in SCALAR_COLUMNS:
            raise KeyError(name)
        self.catch_up()
        column = self.table.column(name)[:self.rows_then].copy()
        if name == "topic":
            for topic in self.topics_removed_since:
                if self.had_topic(topic):
                    column[self.topic_rows(topic)] = topic
        elif name != "partition":
            for index in range(<int64_t>(self.slots.size // sizeof(OverlaidRow))):
                known = (<const OverlaidRow *>self.slots.data) + index
                if 0 <= known.row < self.rows_then:
                    self.load_row(known.row, &state)
                    if name == "leader":
                        column[known.row] = state.leader
                    elif name == "leader_epoch":
                        column[known.row] = state.leader_epoch
                    elif name == "partition_epoch":
                        column[known.row] = state.partition_epoch
                    else:
                        column[known.row] = state.leader_recovery_state
        column.flags.writeable = False
        return column

    def leaders(self):
        return self.column("leader")

    def __repr__(self):
        return f"TableImage(offset={self.offset})"


cdef class TableDelta:
    """See ``history.pyi`` for the public interface."""

    def __cinit__(self, TableImage before not None, TableImage after not None):
        if before.table is not after.table or before.offset > after.offset:
            raise OffsetOutOfRangeError(
                f"no delta from offset {before.offset} to {after.offset}: give two images of one "
                "table, the earlier one first"
            )
        self.before = before
        self.after = after

    cdef object materialise(self):
        """Compute all parts in one pass over the journal between the two offsets."""
        cdef TableRows table = self.before.table
        cdef const JournalEntry *entry
        cdef int64_t sequence, row, first, end, topic, count = 0
        if self.parts is not None:
            return
        self.before.catch_up()
        self.after.catch_up()
        first = self.before.first_entry()
        end = first
        while end < table.journal_end() and table.journal_entry(end).offset < self.after.offset:
            end += 1
        topics = set()
        changed = np.empty(end - first, np.int32)
        cdef int32_t[::1] out = changed
        for sequence in range(first, end):
            entry = table.journal_entry(sequence)
            if entry.kind == ROW_CHANGED:
                if entry.row < self.before.rows_then and self.after.had_topic(
                    topic_of_row(table, entry.row)
                ):
                    out[count] = entry.row
                    count += 1
            elif entry.kind != ROWS_ADDED:
                topics.add(entry.row)
        rows = changed[:count] if count < 2 else np.unique(changed[:count])
        rows.flags.writeable = False
        added = []
        first = -1
        for row in range(self.before.rows_then, self.after.rows_then):
            if not self.after.had_topic(topic_of_row(table, row)):
                first = -1
            elif first < 0:
                first = row
                added.append((row, row + 1))
            else:
                added[len(added) - 1] = (first, row + 1)
        self.parts = {
            "rows_changed": rows,
            "rows_added": added,
            "topics_added": sorted(
                topic for topic in topics
                if self.after.had_topic(topic) and not self.before.had_topic(topic)
            ),
            "topics_removed": sorted(
                topic for topic in topics
                if self.before.had_topic(topic) and not self.after.had_topic(topic)
            ),
        }

    def row_steps(self):
        cdef TableRows table = self.before.table
        cdef const JournalEntry *entry
        cdef int64_t sequence, first, end, count = 0
        cdef PartitionState state
        self.before.catch_up()
        self.after.catch_up()
        first = self.before.first_entry()
        end = first
        while end < table.journal_end() and table.journal_entry(end).offset < self.after.offset:
            end += 1
        columns = np.empty((4, end - first), np.int32)
        cdef int32_t[:, ::1] out = columns
        for sequence in range(first, end):
            entry = table.journal_entry(sequence)
            if entry.kind != ROW_CHANGED or not self.after.had_topic(
                topic_of_row(table, entry.row)
            ):
                continue
            out[0, count] = entry.row
            if entry.block != NULL:
                unpack_block(entry.block, &state)
                out[1, count] = state.leader
                out[2, count] = state.leader_epoch
                out[3, count] = state.partition_epoch
            else:
                out[1, count] = entry.leader
                out[2, count] = entry.leader_epoch
                out[3, count] = entry.partition_epoch
            count += 1
        # A stable sort keeps the records of a row in their order.
        order = np.argsort(columns[0, :count], kind="stable")
        return tuple(np.take(column[:count], order) for column in columns)

    @property
    def since_offset(self):
        return self.before.offset

    @property
    def offset(self):
        return self.after.offset

    @property
    def rows_changed(self):
        self.materialise()
        return self.parts["rows_changed"]

    @property
    def rows_added(self):
        self.materialise()
        return list(self.parts["rows_added"])

    @property
    def topics_added(self):
        self.materialise()
        return list(self.parts["topics_added"])

    @property
    def topics_removed(self):
        self.materialise()
        return list(self.parts["topics_removed"])

    def __repr__(self):
        return f"TableDelta(since_offset={self.since_offset}, offset={self.offset})"
