"""Hash maps from uuids and names to dense numbers, without a Python object an entry.

Open addressing with linear probing over ``u32`` slots (number + 1, 0: empty), at most half full.
Entries are in the order of insertion, so a number is an index into the columns of a caller.

- A discarded entry keeps its number and its bytes and can be restored, because the deletion of a
  topic may be reverted. Its slot is closed by shifting the following entries back: without
  tombstones, searches stay short after any number of changes.
- When the slots double, each insertion moves a few entries to the new slots: no call rehashes all.
- The arrays are position independent: ``state()`` returns them as bytes for a column checkpoint,
  ``from_state`` uses mapped memory without rehashing.
- Hashing is seeded, because names come from clients.

Used by ``topics`` and ``rows`` (topics, directories) and by ``column_checkpoint``.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcmp, memcpy, memset

from kraft._core.bytes.arena cimport (
    arena_borrow, arena_own, arena_release, arena_reserve, arena_zeroed,
)

DEFAULT_SEED = 0x9E3779B97F4A7C15


cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    value ^= value >> 32
    value *= <uint64_t>0xD6E8FEB86659FD93
    value ^= value >> 32
    value *= <uint64_t>0xD6E8FEB86659FD93
    return value ^ (value >> 32)


cdef inline uint64_t hash_of_uuid(const uint8_t *uuid, uint64_t seed) noexcept nogil:
    cdef uint64_t high, low
    memcpy(&high, uuid, 8)
    memcpy(&low, uuid + 8, 8)
    return mixed((high ^ seed) * <uint64_t>0x9FB21C651E98DF25 ^ low)


cdef inline uint64_t hash_of_name(const uint8_t *name, int32_t size, uint64_t seed) noexcept nogil:
    cdef uint64_t state = seed ^ <uint64_t>size, word
    while size >= 8:
        memcpy(&word, name, 8)
        state = mixed(state ^ word)
        name += 8
        size -= 8
    if size > 0:
        word = 0
        memcpy(&word, name, size)
        state = mixed(state ^ word)
    return mixed(state)


cdef enum:
    # At most this many slots are moved at once; moving more would block the event loop too long.
    MOVED_AT_ONCE = 4096
    # Old slots to move at each insertion. Two would suffice: the next growth comes after as many
    # insertions as half the old slots.
    MOVED_A_STEP = 8


cdef inline int empty_slots(Arena *slots, uint64_t wanted, uint64_t *mask) noexcept nogil:
    """Fill an empty arena with empty slots, a power of two, at least twice `wanted`."""
    cdef uint64_t capacity = 16
    while capacity < 2 * wanted:
        capacity *= 2
    if arena_zeroed(slots, capacity * 4) < 0:
        return -1
    mask[0] = capacity - 1
    return 0


cdef class HashSlots:
    """The common part of the two maps: the slots, and discarding and restoring entries."""

    def __len__(self):
        return self.live

    cdef uint64_t hash_of(self, int64_t number) noexcept nogil:
        """Return the hash of an entry; each map overrides this."""
        return 0

    cdef void place(self, int64_t number) noexcept nogil:
        cdef uint64_t slot = self.hash_of(number) & self.mask
        cdef uint32_t *slots = <uint32_t *>self.slots.data
        while slots[slot]:
            slot = (slot + 1) & self.mask
        slots[slot] = <uint32_t>(number + 1)

    cdef int make_room(self) noexcept nogil:
        """Keep the slots at most half full with one more entry; return -1 if out of memory."""
        cdef Arena fresh
        cdef uint64_t fresh_mask = 0
        cdef const uint32_t *slots
        if self.old_left:
            self.move_on(MOVED_A_STEP)
        if 2 * <uint64_t>(self.live + 1) <= self.mask + 1:
            return 0
        self.move_on(self.old_left)
        memset(&fresh, 0, sizeof(Arena))
        if empty_slots(&fresh, 2 * <uint64_t>(self.live + 1), &fresh_mask) < 0:
            return -1
        self.old_slots = self.slots
        self.old_mask = self.mask
        self.old_left = self.mask + 1
        self.old_next = 0
        self.slots = fresh
        self.mask = fresh_mask
        slots = <const uint32_t *>self.old_slots.data
        while slots[self.old_next]:
            self.old_next += 1
        if self.old_left <= MOVED_AT_ONCE:
            self.move_on(self.old_left)
        return 0

    cdef void move_on(self, int64_t steps) noexcept nogil:
        """Move the entries of the next `steps` old slots, and on up to the next empty slot.

        Moves whole runs of filled slots, so that searches in the old slots stay correct.
        """
        cdef uint32_t *slots = <uint32_t *>self.old_slots.data
        while self.old_left and (steps > 0 or slots[self.old_next]):
            if slots[self.old_next]:
                self.place(slots[self.old_next] - 1)
                slots[self.old_next] = 0
            self.old_next = (self.old_next + 1) & self.old_mask
            self.old_left -= 1
            steps -= 1
        if self.old_left == 0:
            arena_release(&self.old_slots)

    cdef bint take_out(self, uint32_t *slots, uint64_t mask, int64_t number) noexcept nogil:
        """Empty the slot of `number` and shift its successors; False if it is not in `slots`."""
        cdef uint64_t hole = self.hash_of(number) & mask, slot, home
        while slots[hole] != <uint32_t>(number + 1):
            if slots[hole] == 0:
                return False
            hole = (hole + 1) & mask
        slot = hole
        while True:
            slot = (slot + 1) & mask
            if slots[slot] == 0:
                break
            home = self.hash_of(slots[slot] - 1) & mask
            # The entry may move into the hole unless its home slot lies after the hole.
            if ((slot - home) & mask) >= ((slot - hole) & mask):
                slots[hole] = slots[slot]
                hole = slot
        slots[hole] = 0
        return True

    cdef void discard(self, int64_t number) noexcept nogil:
        """Remove the entry `number`, which must be present."""
        # Only slots of a damaged file can lack a present entry.
        if self.take_out(<uint32_t *>self.slots.data, self.mask, number) or (
            self.old_left and self.take_out(<uint32_t *>self.old_slots.data, self.old_mask, number)
        ):
            self.live -= 1

    cdef int restore(self, int64_t number) noexcept nogil:
        """Restore a discarded entry; return -1 if out of memory."""
        if self.make_room() < 0:
            return -1
        self.place(number)
        self.live += 1
        return 0

    cdef int own_slots(self) noexcept nogil:
        """Copy borrowed slots; return -1 if out of memory."""
        self.move_on(self.old_left)
        return arena_own(&self.slots)

    def remove(self, int64_t number):
        if not 0 <= number < self.count or self.get(self.key(number)) != number:
            raise KeyError(number)
        self.discard(number)

    def bring_back(self, int64_t number):
        if not 0 <= number < self.count or self.get(self.key(number)) >= 0:
            raise KeyError(number)
        if self.restore(number) < 0:
            raise MemoryError("no memory for a hash map")


cdef class UuidMap(HashSlots):
    """A map from uuids (16 bytes) to dense numbers from 0."""

    def __cinit__(self, *, uint64_t seed=DEFAULT_SEED):
        self.seed = seed
        if empty_slots(&self.slots, 8, &self.mask) < 0:
            raise MemoryError("no memory for a uuid map")

    def __dealloc__(self):
        arena_release(&self.keys)
        arena_release(&self.slots)
        arena_release(&self.old_slots)

    cdef uint64_t hash_of(self, int64_t number) noexcept nogil:
        return hash_of_uuid(self.keys.data + 16 * number, self.seed)

    cdef int own(self) noexcept nogil:
        """Copy borrowed arrays; return -1 if out of memory."""
        if self.own_slots() < 0 or arena_own(&self.keys) < 0:
            return -1
        return 0

    cdef int64_t find(self, const uint8_t *uuid) noexcept nogil:
        cdef uint64_t hash_ = hash_of_uuid(uuid, self.seed)
        cdef int64_t number = self.find_in(
            <const uint32_t *>self.slots.data, self.mask, hash_, uuid
        )
        if number < 0 and self.old_left:
            return self.find_in(<const uint32_t *>self.old_slots.data, self.old_mask, hash_, uuid)
        return number

    cdef int64_t find_in(self, const uint32_t *slots, uint64_t mask, uint64_t hash_,
                         const uint8_t *uuid) noexcept nogil:
        cdef uint64_t slot = hash_ & mask
        while slots[slot]:
            if memcmp(self.keys.data + 16 * <uint64_t>(slots[slot] - 1), uuid, 16) == 0:
                return slots[slot] - 1
            slot = (slot + 1) & mask
        return -1

    cdef int64_t add(self, const uint8_t *uuid) noexcept nogil:
        """Insert an absent uuid and return its number, or -1 if out of memory."""
        cdef int64_t number = self.count
        if self.make_room() < 0:
            return -1
        if arena_reserve(&self.keys, 16) < 0:
            return -1
        memcpy(self.keys.data + 16 * number, uuid, 16)
        self.keys.size = 16 * <size_t>(number + 1)
        self.place(number)
        self.count += 1
        self.live += 1
        return number

    cdef int64_t intern(self, const uint8_t *uuid) noexcept nogil:
        """Return the uuid's number, after inserting an absent one; -1 if out of memory."""
        cdef int64_t number = self.find(uuid)
        return number if number >= 0 else self.add(uuid)

    def get(self, uuid not None):
        # A memoryview costs several times as much as the lookup.
        cdef const uint8_t[::1] view
        if isinstance(uuid, bytes):
            if len(<bytes>uuid) != 16:
                raise ValueError("a uuid has 16 bytes")
            return self.find(<const uint8_t *>PyBytes_AS_STRING(uuid))
        view = uuid
        if view.shape[0] != 16:
            raise ValueError("a uuid has 16 bytes")
        return self.find(&view[0])

    def put(self, const uint8_t[::1] uuid not None):
        if uuid.shape[0] != 16:
            raise ValueError("a uuid has 16 bytes")
        cdef int64_t number = self.intern(&uuid[0])
        if number < 0:
            raise MemoryError("no memory for a uuid map")
        return number

    def key(self, int64_t number):
        if not 0 <= number < self.count:
            raise IndexError(number)
        return <bytes>(<const char *>self.keys.data)[16 * number:16 * number + 16]

    @property
    def memory_size(self):
        return self.keys.capacity + self.slots.capacity + self.old_slots.capacity

    def state(self):
        self.move_on(self.old_left)
        return {
            "keys": <bytes>(<const char *>self.keys.data)[:self.keys.size] if self.count else b"",
            "slots": <bytes>(<const char *>self.slots.data)[:self.slots.size],
            "seed": self.seed,
            "live": self.live,
        }

    @staticmethod
    def from_state(keys, slots, *, uint64_t seed, int64_t live, lender=None):
        cdef UuidMap map_ = UuidMap(seed=seed)
        cdef uint8_t[::1] key_bytes = keys, slot_bytes = slots
        map_.count = key_bytes.shape[0] // 16
        map_.live = live
        check_slots(slot_bytes, map_.count, live, key_bytes.shape[0] % 16 == 0)
        map_.lender = (keys, slots, lender)
        if map_.count:
            arena_borrow(&map_.keys, &key_bytes[0], 16 * map_.count)
        arena_borrow(&map_.slots, &slot_bytes[0], slot_bytes.shape[0])
        map_.mask = slot_bytes.shape[0] // 4 - 1
        return map_


cdef check_slots(uint8_t[::1] slots, int64_t count, int64_t live, bint whole):
    """Check slots of a file: they name only existing numbers, and searches in them end."""
    cdef int64_t capacity = slots.shape[0] // 4, index, used = 0
    cdef const uint32_t *slot = <const uint32_t *>&slots[0] if slots.shape[0] else NULL
    cdef bint sound = whole and slots.shape[0] % 4 == 0 and capacity >= 16
    if sound and capacity & (capacity - 1):
        sound = False
    if sound:
        with nogil:
            for index in range(capacity):
                if slot[index]:
                    used += 1
                    if slot[index] > count:
                        sound = False
                        break
    if not sound or used != live or 2 * live > capacity or live > count:
        raise ValueError("the slots of a hash map contradict its entries")


cdef class NameMap(HashSlots):
    """A map from names (UTF-8 bytes) to dense numbers from 0."""

    def __cinit__(self, *, uint64_t seed=DEFAULT_SEED):
        self.seed = seed
        if empty_slots(&self.slots, 8, &self.mask) < 0:
            raise MemoryError("no memory for a name map")

    def __dealloc__(self):
        arena_release(&self.text)
        arena_release(&self.ends)
        arena_release(&self.slots)
        arena_release(&self.old_slots)

    cdef const uint8_t *name(self, int64_t number, int32_t *size) noexcept nogil:
        cdef const uint64_t *ends = <const uint64_t *>self.ends.data
        cdef uint64_t start = ends[number - 1] if number else 0
        size[0] = <int32_t>(ends[number] - start)
        return self.text.data + start

    cdef uint64_t hash_of(self, int64_t number) noexcept nogil:
        cdef int32_t size = 0
        cdef const uint8_t *name = self.name(number, &size)
        return hash_of_name(name, size, self.seed)

    cdef int own(self) noexcept nogil:
        """Copy borrowed arrays; return -1 if out of memory."""
        if self.own_slots() < 0 or arena_own(&self.text) < 0 or arena_own(&self.ends) < 0:
            return -1
        return 0

    cdef int64_t find(self, const uint8_t *name, int32_t size) noexcept nogil:
        cdef uint64_t hash_ = hash_of_name(name, size, self.seed)
        cdef int64_t number = self.find_in(
            <const uint32_t *>self.slots.data, self.mask, hash_, name, size
        )
        if number < 0 and self.old_left:
            return self.find_in(
                <const uint32_t *>self.old_slots.data, self.old_mask, hash_, name, size
            )
        return number

    cdef int64_t find_in(self, const uint32_t *slots, uint64_t mask, uint64_t hash_,
                         const uint8_t *name, int32_t size) noexcept nogil:
        cdef uint64_t slot = hash_ & mask
        cdef const uint8_t *other
        cdef int32_t other_size = 0
        while slots[slot]:
            other = self.name(slots[slot] - 1, &other_size)
            if other_size == size and memcmp(other, name, size) == 0:
                return slots[slot] - 1
            slot = (slot + 1) & mask
        return -1

    cdef int64_t add(self, const uint8_t *name, int32_t size) noexcept nogil:
        """Insert an absent name and return its number, or -1 if out of memory."""
        cdef int64_t number = self.count
        if self.make_room() < 0:
            return -1
        # One byte more, because memcpy and memcmp take no NULL for an empty name.
        if arena_reserve(&self.text, <size_t>size + 1) < 0 or arena_reserve(&self.ends, 8) < 0:
            return -1
        memcpy(self.text.data + self.text.size, name, size)
        self.text.size += size
        (<uint64_t *>self.ends.data)[number] = self.text.size
        self.ends.size = 8 * <size_t>(number + 1)
        self.place(number)
        self.count += 1
        self.live += 1
        return number

    def get(self, str name not None):
        encoded = name.encode()
        return self.find(<const uint8_t *><const char *>encoded, len(encoded))

    def put(self, str name not None):
        encoded = name.encode()
        cdef int64_t number = self.find(<const uint8_t *><const char *>encoded, len(encoded))
        if number < 0:
            number = self.add(<const uint8_t *><const char *>encoded, len(encoded))
        if number < 0:
            raise MemoryError("no memory for a name map")
        return number

    def key(self, int64_t number):
        cdef int32_t size = 0
        if not 0 <= number < self.count:
            raise IndexError(number)
        cdef const char *name = <const char *>self.name(number, &size)
        return (<bytes>name[:size]).decode()

    @property
    def memory_size(self):
        return (
            self.text.capacity + self.ends.capacity + self.slots.capacity + self.old_slots.capacity
        )

    def state(self):
        self.move_on(self.old_left)
        return {
            "text": <bytes>(<const char *>self.text.data)[:self.text.size] if self.count else b"",
            "ends": <bytes>(<const char *>self.ends.data)[:self.ends.size] if self.count else b"",
            "slots": <bytes>(<const char *>self.slots.data)[:self.slots.size],
            "seed": self.seed,
            "live": self.live,
        }

    @staticmethod
    def from_state(text, ends, slots, *, uint64_t seed, int64_t live, lender=None):
        cdef NameMap map_ = NameMap(seed=seed)
        cdef uint8_t[::1] text_bytes = text, end_bytes = ends, slot_bytes = slots
        cdef const uint64_t *end = NULL
        cdef uint64_t last = 0
        cdef int64_t index
        map_.count = end_bytes.shape[0] // 8
        map_.live = live
        check_slots(slot_bytes, map_.count, live, end_bytes.shape[0] % 8 == 0)
        if map_.count:
            end = <const uint64_t *>&end_bytes[0]
            for index in range(map_.count):
                if end[index] < last or end[index] - last > 0x7fff:
                    raise ValueError("the names of a hash map are out of order")
                last = end[index]
        if last != <uint64_t>text_bytes.shape[0]:
            raise ValueError("the names of a hash map do not fill their text")
        map_.lender = (text, ends, slots, lender)
        if map_.count:
            if text_bytes.shape[0]:
                arena_borrow(&map_.text, &text_bytes[0], text_bytes.shape[0])
            arena_borrow(&map_.ends, &end_bytes[0], end_bytes.shape[0])
        arena_borrow(&map_.slots, &slot_bytes[0], slot_bytes.shape[0])
        map_.mask = slot_bytes.shape[0] // 4 - 1
        return map_
