"""Broker -> rows: what makes fencing a broker cost what it holds, not what the cluster holds.

Owns one list of row numbers a broker. A row is listed under every broker that appears in it; it may
go on being listed after the broker left it, and may be listed twice. Whoever uses a list sorts it
first (``sort`` drops repetitions and does nothing to a list that ascends already) and looks into
each row: the index says where to look, never what is there.

Built by ``rows`` in one pass when it is first needed, and kept up from then on.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memset

from kraft._core.arena cimport arena_release, arena_reserve


cdef int ascending(const void *left, const void *right) noexcept nogil:
    cdef int32_t a = (<const int32_t *>left)[0], b = (<const int32_t *>right)[0]
    return (a > b) - (a < b)


cdef inline uint64_t hash_of_broker(int32_t broker) noexcept nogil:
    cdef uint64_t key = <uint64_t><uint32_t>broker * <uint64_t>0x9E3779B97F4A7C15
    return key ^ (key >> 32)


cdef class BrokerIndex:
    """Rows by broker; see the module's docstring."""

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
            free(entries[number].rows)
        self.count = 0
        self.entries.size = 0
        if self.slots.size:
            memset(self.slots.data, 0, self.slots.size)

    cdef BrokerRows *find(self, int32_t broker) noexcept nogil:
        """The broker's list, or NULL; valid until a broker is added."""
        cdef BrokerRows *entries = <BrokerRows *>self.entries.data
        cdef const uint32_t *slots = <const uint32_t *>self.slots.data
        cdef uint64_t slot = hash_of_broker(broker) & self.mask
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
        """The broker's list, an empty one where it had none; NULL when memory ran out."""
        cdef BrokerRows *entry = self.find(broker)
        cdef int64_t number
        if entry != NULL:
            return entry
        if arena_reserve(&self.entries, sizeof(BrokerRows)) < 0:
            return NULL
        entry = (<BrokerRows *>self.entries.data) + self.count
        entry.broker = broker
        entry.sorted_ = True
        entry.rows = NULL
        entry.count = 0
        entry.capacity = 0
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

    cdef int add(self, int32_t broker, int32_t row) noexcept nogil:
        """Lists `row` under `broker`; -1 when memory ran out."""
        cdef BrokerRows *entry = self.intern(broker)
        cdef void *moved
        cdef int64_t capacity
        if entry == NULL:
            return -1
        if entry.count == entry.capacity:
            # An eighth of headroom: the whole index stays near 4 bytes a listing.
            capacity = entry.capacity + entry.capacity // 8 + 8
            moved = realloc(entry.rows, capacity * 4)
            if moved == NULL:
                return -1
            entry.rows = <int32_t *>moved
            entry.capacity = capacity
        if entry.count and entry.rows[entry.count - 1] >= row:
            entry.sorted_ = False
        entry.rows[entry.count] = row
        entry.count += 1
        return 0

    cdef int sort(self, BrokerRows *entry) noexcept nogil:
        """Makes a list ascend strictly."""
        cdef int64_t index, kept = 0
        if entry.sorted_:
            return 0
        qsort(entry.rows, entry.count, 4, ascending)
        for index in range(entry.count):
            if kept == 0 or entry.rows[kept - 1] != entry.rows[index]:
                entry.rows[kept] = entry.rows[index]
                kept += 1
        entry.count = kept
        entry.sorted_ = True
        return 0

    @property
    def memory_size(self):
        cdef const BrokerRows *entries = <const BrokerRows *>self.entries.data
        cdef int64_t number, size = self.entries.capacity + self.slots.capacity
        for number in range(self.count):
            size += 4 * entries[number].capacity
        return size
