"""The index from brokers to the rows in which they may appear.

With it fencing a broker costs the broker's rows, not those of the cluster. Each broker has a list
of rows. A row is in the lists of all brokers that appear in it; it may stay in the list of a broker
that left it, and may be listed twice. So a caller first sorts a list (``sort`` drops duplicates and
costs little if most of the list ascends already), then checks each row.

``rows`` adds rows in batches, and announces their number first, so that each list grows once.
"""

from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy, memset

from kraft._core.bytes.arena cimport arena_grow, arena_release, arena_reserve
from kraft._core.bytes.wire cimport likely, unlikely


cdef int ascending(const void *left, const void *right) noexcept nogil:
    cdef int32_t a = (<const int32_t *>left)[0], b = (<const int32_t *>right)[0]
    return (a > b) - (a < b)


cdef inline uint64_t hash_of_broker(int32_t broker) noexcept nogil:
    cdef uint64_t key = <uint64_t><uint32_t>broker * <uint64_t>0x9E3779B97F4A7C15
    return key ^ (key >> 32)


cdef int grow_list(BrokerRows *entry, int64_t capacity) noexcept nogil:
    entry.memory.size = 4 * <size_t>entry.count
    if arena_grow(&entry.memory, 4 * <size_t>capacity) < 0:
        return -1
    entry.rows = <int32_t *>entry.memory.data
    return 0


cdef class BrokerIndex:
    """Candidate rows by broker; see the module's docstring."""

    def __cinit__(self):
        if self._empty_slots(64) < 0:
            raise MemoryError("no memory for a broker index")

    def __dealloc__(self):
        self.clear()
        arena_release(&self.entries)
        arena_release(&self.slots)

    cdef int _empty_slots(self, uint64_t capacity) noexcept nogil:
        self.slots.size = 0
        if arena_reserve(&self.slots, capacity * 4) < 0:
            return -1
        memset(self.slots.data, 0, capacity * 4)
        self.slots.size = capacity * 4
        self.mask = capacity - 1
        return 0

    cdef void clear(self) noexcept nogil:
        cdef BrokerRows *entries = <BrokerRows *>self.entries.data
        cdef int64_t number
        for number in range(self.count):
            arena_release(&entries[number].memory)
        self.count = 0
        self.entries.size = 0
        memset(self.plain, 0, sizeof(self.plain))
        if self.slots.size:
            memset(self.slots.data, 0, self.slots.size)

    cdef BrokerRows *find(self, int32_t broker) noexcept nogil:
        """Return the broker's list, or NULL; valid until a broker is added."""
        cdef BrokerRows *entries = <BrokerRows *>self.entries.data
        cdef const uint32_t *slots = <const uint32_t *>self.slots.data
        cdef uint64_t slot
        if likely(0 <= broker < PLAIN_IDS):
            return &entries[self.plain[broker] - 1] if self.plain[broker] else NULL
        slot = hash_of_broker(broker) & self.mask
        while slots[slot]:
            if entries[slots[slot] - 1].broker == broker:
                return &entries[slots[slot] - 1]
            slot = (slot + 1) & self.mask
        return NULL

    cdef int place(self, int64_t number) noexcept nogil:
        cdef uint32_t *slots = <uint32_t *>self.slots.data
        cdef BrokerRows *entries = <BrokerRows *>self.entries.data
        cdef uint64_t slot = hash_of_broker(entries[number].broker) & self.mask
        while slots[slot]:
            slot = (slot + 1) & self.mask
        slots[slot] = <uint32_t>(number + 1)
        return 0

    cdef BrokerRows *intern(self, int32_t broker) noexcept nogil:
        """Return the broker's list, a new one if it has none, or NULL if out of memory."""
        cdef BrokerRows *entry = self.find(broker)
        cdef int64_t number
        if entry != NULL:
            return entry
        if arena_reserve(&self.entries, sizeof(BrokerRows)) < 0:
            return NULL
        entry = (<BrokerRows *>self.entries.data) + self.count
        memset(entry, 0, sizeof(BrokerRows))
        entry.broker = broker
        if 0 <= broker < PLAIN_IDS:
            self.plain[broker] = <uint32_t>(self.count + 1)
        self.count += 1
        self.entries.size = <size_t>self.count * sizeof(BrokerRows)
        if 2 * <uint64_t>self.count > self.mask + 1:
            if self._empty_slots(2 * (self.mask + 1)) < 0:
                return NULL
            for number in range(self.count):
                self.place(number)
        else:
            self.place(self.count - 1)
        return entry

    cdef int expect(self, int32_t broker) noexcept nogil:
        """Announce a row of the broker; return -1 if memory is exhausted."""
        cdef BrokerRows *entry = self.intern(broker)
        if entry == NULL:
            return -1
        entry.coming += 1
        return 0

    cdef int make_room(self) noexcept nogil:
        """Reserve the announced rows; a new list gets no more, since most do not grow later."""
        cdef BrokerRows *entry
        cdef int64_t number, wanted
        for number in range(self.count):
            entry = (<BrokerRows *>self.entries.data) + number
            wanted = entry.count + entry.coming
            if entry.count:
                wanted += entry.count // 8
            if (
                4 * <size_t>(entry.count + entry.coming) > entry.memory.capacity
                and grow_list(entry, wanted) < 0
            ):
                return -1
            entry.coming = 0
        return 0

    cdef int add(self, int32_t broker, int32_t row) noexcept nogil:
        """Add `row` to the list of `broker`; return -1 if out of memory."""
        cdef BrokerRows *entry = self.intern(broker)
        if entry == NULL:
            return -1
        # An eighth of headroom keeps the whole index near 4 bytes an entry.
        if (
            unlikely(4 * <size_t>entry.count >= entry.memory.capacity)
            and grow_list(entry, entry.count + entry.count // 8 + 8) < 0
        ):
            return -1
        if entry.sorted_count == entry.count and (
            entry.count == 0 or entry.rows[entry.count - 1] < row
        ):
            entry.sorted_count += 1
        entry.rows[entry.count] = row
        entry.count += 1
        return 0

    cdef int sort(self, BrokerRows *entry) noexcept nogil:
        """Make a list ascend strictly: sort the rows after the sorted part, and merge both."""
        cdef int64_t left = entry.sorted_count - 1, right = entry.count - entry.sorted_count - 1
        cdef int64_t place = entry.count - 1, kept, index
        cdef int32_t *rows = entry.rows
        cdef int32_t *tail
        if entry.sorted_count == entry.count:
            return 0
        tail = <int32_t *>malloc(4 * <size_t>(right + 1))
        if tail == NULL:
            qsort(rows, entry.count, 4, ascending)
            left = -1
        else:
            memcpy(tail, rows + entry.sorted_count, 4 * (right + 1))
            qsort(tail, right + 1, 4, ascending)
            while right >= 0:
                if left >= 0 and rows[left] > tail[right]:
                    rows[place] = rows[left]
                    left -= 1
                else:
                    rows[place] = tail[right]
                    right -= 1
                place -= 1
            free(tail)
        # Rows up to `left` did not move.
        kept = left + 1
        for index in range(left + 1, entry.count):
            if kept == 0 or rows[kept - 1] != rows[index]:
                rows[kept] = rows[index]
                kept += 1
        entry.count = kept
        entry.sorted_count = kept
        return 0

    cdef void truncate(self, int64_t row_count) noexcept nogil:
        """Drop rows from `row_count` on, which no longer exist, from the ends of the lists."""
        cdef BrokerRows *entry
        cdef int64_t number
        for number in range(self.count):
            entry = (<BrokerRows *>self.entries.data) + number
            while entry.count and entry.rows[entry.count - 1] >= row_count:
                entry.count -= 1
            entry.sorted_count = min(entry.sorted_count, entry.count)

    @property
    def memory_size(self):
        cdef const BrokerRows *entries = <const BrokerRows *>self.entries.data
        cdef int64_t number, size = self.entries.capacity + self.slots.capacity
        for number in range(self.count):
            size += entries[number].memory.capacity
        return size
