"""Topics by number, name and id, and the row of each (topic, partition).

Each topic has a number, which is reused only after a compaction, a name, an id, and the rows of its
partitions. Normally these are one *extent*: consecutive rows for consecutive partitions, so that
finding a row is an addition. A partition that was added out of order, or after rows of other
topics, is *scattered* and found through a hash map; compaction turns all into extents again.

Called by ``rows``.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memset

from kraft._core.bytes.arena cimport arena_own, arena_release, arena_reserve, arena_zeroed


cdef inline uint64_t scatter_key(int32_t topic, int32_t partition) noexcept nogil:
    return (<uint64_t>topic << 32) | <uint64_t><uint32_t>partition


cdef inline uint64_t scatter_hash(uint64_t key) noexcept nogil:
    key ^= key >> 32
    key *= <uint64_t>0xD6E8FEB86659FD93
    key ^= key >> 29
    key *= <uint64_t>0x9FB21C651E98DF25
    return key ^ (key >> 32)


cdef enum:
    # As in `intern`: slots to move at once, and at each insertion.
    MOVED_AT_ONCE = 4096
    MOVED_A_STEP = 8


cdef inline int64_t row_in(const ScatterSlot *slots, uint64_t mask, uint64_t key) noexcept nogil:
    cdef uint64_t slot = scatter_hash(key) & mask
    while slots[slot].row:
        if slots[slot].key == key:
            return slots[slot].row - 1
        slot = (slot + 1) & mask
    return -1


cdef bint take_out(ScatterSlot *slots, uint64_t mask, uint64_t key) noexcept nogil:
    """Empty the slot of a key and shift its successors; False if it is not in `slots`."""
    cdef uint64_t hole = scatter_hash(key) & mask, slot, home
    while slots[hole].key != key or slots[hole].row == 0:
        if slots[hole].row == 0:
            return False
        hole = (hole + 1) & mask
    slot = hole
    while True:
        slot = (slot + 1) & mask
        if slots[slot].row == 0:
            break
        home = scatter_hash(slots[slot].key) & mask
        if ((slot - home) & mask) >= ((slot - hole) & mask):
            slots[hole] = slots[slot]
            hole = slot
    slots[hole].row = 0
    return True


cdef class RowMap:
    """A map (topic, partition) -> row of scattered partitions; grows like the maps of ``intern``.
    """

    def __cinit__(self):
        if arena_zeroed(&self.slots, 16 * sizeof(ScatterSlot)) < 0:
            raise MemoryError("no memory for a row map")
        self.mask = 15

    def __dealloc__(self):
        arena_release(&self.slots)
        arena_release(&self.old_slots)

    cdef int64_t find(self, int32_t topic, int32_t partition) noexcept nogil:
        cdef uint64_t key = scatter_key(topic, partition)
        cdef int64_t row = row_in(<const ScatterSlot *>self.slots.data, self.mask, key)
        if row < 0 and self.old_left:
            return row_in(<const ScatterSlot *>self.old_slots.data, self.old_mask, key)
        return row

    cdef int put(self, int32_t topic, int32_t partition, int64_t row) noexcept nogil:
        """Insert an absent entry; return -1 if out of memory."""
        if self.make_room() < 0:
            return -1
        self.place(scatter_key(topic, partition), row)
        self.count += 1
        return 0

    cdef int make_room(self) noexcept nogil:
        """Keep the slots at most half full with one more entry; return -1 if out of memory."""
        cdef Arena fresh
        cdef uint64_t capacity = 2 * (self.mask + 1)
        cdef const ScatterSlot *slots
        if self.old_left:
            self.move_on(MOVED_A_STEP)
        if 2 * <uint64_t>(self.count + 1) <= self.mask + 1:
            return 0
        self.move_on(self.old_left)
        memset(&fresh, 0, sizeof(Arena))
        if arena_zeroed(&fresh, capacity * sizeof(ScatterSlot)) < 0:
            return -1
        self.old_slots = self.slots
        self.old_mask = self.mask
        self.old_left = self.mask + 1
        self.old_next = 0
        self.slots = fresh
        self.mask = capacity - 1
        slots = <const ScatterSlot *>self.old_slots.data
        while slots[self.old_next].row:
            self.old_next += 1
        if self.old_left <= MOVED_AT_ONCE:
            self.move_on(self.old_left)
        return 0

    cdef void move_on(self, int64_t steps) noexcept nogil:
        """Move the entries of the next `steps` old slots, and on up to the next empty slot."""
        cdef ScatterSlot *slots = <ScatterSlot *>self.old_slots.data
        while self.old_left and (steps > 0 or slots[self.old_next].row):
            if slots[self.old_next].row:
                self.place(slots[self.old_next].key, slots[self.old_next].row - 1)
                slots[self.old_next].row = 0
            self.old_next = (self.old_next + 1) & self.old_mask
            self.old_left -= 1
            steps -= 1
        if self.old_left == 0:
            arena_release(&self.old_slots)

    cdef void place(self, uint64_t key, int64_t row) noexcept nogil:
        cdef ScatterSlot *slots = <ScatterSlot *>self.slots.data
        cdef uint64_t slot = scatter_hash(key) & self.mask
        while slots[slot].row:
            slot = (slot + 1) & self.mask
        slots[slot].key = key
        slots[slot].row = row + 1

    cdef void discard(self, int32_t topic, int32_t partition) noexcept nogil:
        """Remove an entry, which must be present."""
        cdef uint64_t key = scatter_key(topic, partition)
        if take_out(<ScatterSlot *>self.slots.data, self.mask, key) or (
            self.old_left and take_out(<ScatterSlot *>self.old_slots.data, self.old_mask, key)
        ):
            self.count -= 1


cdef class TopicTable:
    """The topics of a table by number; see the module's docstring."""

    def __cinit__(self):
        self.ids = UuidMap()
        self.names = NameMap()
        self.scattered = RowMap()

    def __dealloc__(self):
        arena_release(&self.entries)

    def __len__(self):
        return len(self.ids)

    @property
    def count(self):
        return self.ids.count

    cdef int64_t add(
        self, const uint8_t *name, int32_t name_size, const uint8_t *topic_id
    ) noexcept nogil:
        """Add a topic, whose name and id must be absent; return its number, -1 if out of memory."""
        cdef int64_t topic = self.ids.count
        cdef TopicEntry *entry
        if arena_reserve(&self.entries, sizeof(TopicEntry)) < 0:
            return -1
        if self.names.add(name, name_size) < 0 or self.ids.add(topic_id) < 0:
            return -1
        self.entries.size = <size_t>(topic + 1) * sizeof(TopicEntry)
        entry = self.entry(topic)
        memset(entry, 0, sizeof(TopicEntry))
        entry.max_partition = -1
        entry.alive = 1
        return topic

    cdef int own(self) noexcept nogil:
        """Copy the arrays that are borrowed from a mapped file; return -1 if out of memory."""
        if self.ids.own() < 0 or self.names.own() < 0 or arena_own(&self.entries) < 0:
            return -1
        return 0

    cdef void discard(self, int64_t topic) noexcept nogil:
        self.ids.discard(topic)
        self.names.discard(topic)
        self.entry(topic).alive = 0

    cdef int restore(self, int64_t topic) noexcept nogil:
        self.entry(topic).alive = 1
        if self.ids.restore(topic) < 0 or self.names.restore(topic) < 0:
            return -1
        return 0

    cdef int64_t row_of(self, int32_t topic, int32_t partition) noexcept nogil:
        """Return the row of a partition, -1 if it does not exist."""
        cdef const TopicEntry *entry = self.entry(topic)
        cdef int64_t place = <int64_t>partition - entry.first_partition
        if 0 <= place < entry.row_count:
            return entry.first_row + place
        if entry.partition_count == entry.row_count:
            return -1
        return self.scattered.find(topic, partition)

    cdef int add_row(self, int32_t topic, int32_t partition, int64_t row) noexcept nogil:
        """Record the row of a new partition; return -1 if out of memory."""
        cdef TopicEntry *entry = self.entry(topic)
        if entry.row_count == 0 and entry.partition_count == 0:
            entry.first_row = <int32_t>row
            entry.first_partition = partition
            entry.row_count = 1
        elif (
            row == <int64_t>entry.first_row + entry.row_count
            and partition == <int64_t>entry.first_partition + entry.row_count
        ):
            entry.row_count += 1
        elif self.scattered.put(topic, partition, row) < 0:
            return -1
        entry.partition_count += 1
        if partition > entry.max_partition:
            entry.max_partition = partition
        return 0

    cdef void drop_row(self, int32_t topic, int32_t partition) noexcept nogil:
        """Undo the latest `add_row` of this topic."""
        cdef TopicEntry *entry = self.entry(topic)
        if partition == <int64_t>entry.first_partition + entry.row_count - 1:
            entry.row_count -= 1
        else:
            self.scattered.discard(topic, partition)
        entry.partition_count -= 1

    @property
    def memory_size(self):
        return (
            self.ids.memory_size + self.names.memory_size + self.entries.capacity
            + self.scattered.slots.capacity + self.scattered.old_slots.capacity
        )
