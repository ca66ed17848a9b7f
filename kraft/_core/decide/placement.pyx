# cython: language_level=3
"""Replica placement of new partitions: Kafka's striped, rack-aware placer, same random draws.

Holds ``JavaRandom`` (java.util.Random), ``UsableBrokers`` (a cluster's brokers grouped by rack),
``StripedPlacer`` (Kafka's StripedReplicaPlacer) and the default directories of a placement.
``ReplicaPlacer`` is the protocol for other placers. The controller and the lab call it;
``creation`` encodes its int32 arrays.

Invariants:
- For the same seed and the same usable brokers the placement equals Kafka's, over any number of
  calls that share one ``JavaRandom``: this module makes every draw of Kafka, in Kafka's order, also
  in a call that ends in an error.
- The broker lists are shuffled in the iteration order of Java's HashMap over the rack names
  (``java_hash``).
- No Python object is created for a partition, and the kernel runs without the GIL.

The state of one call, a few KiB, so that it stays in the L1 cache::

    order   rack positions, sorted by name at first, then shuffled
    lists   for each rack, in HashMap order: its unfenced list, then its fenced list
    ids     the brokers of list 0, of list 1, ...: sorted by id at first, then shuffled in place
"""

from typing import NamedTuple, Protocol, runtime_checkable

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memcpy

import numpy as np

cimport numpy as cnp

from kraft._core.decide.java_hash import hash_map_order
from kraft.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
)

cnp.import_array()

cdef extern from *:
    """
    #include <stdint.h>
    #define KRAFT_JAVA_MULTIPLIER 0x5DEECE66DULL
    #define KRAFT_JAVA_MASK ((1ULL << 48) - 1)

    /* u mod bound by two multiplications (Lemire, Kaser, Kurz 2019), because a hardware division
       takes several times as long; reciprocal is 2**64 / bound, rounded up. */
    static inline uint32_t kraft_modulo(uint32_t u, uint64_t reciprocal, uint32_t bound) {
        return (uint32_t)(((unsigned __int128)(reciprocal * u) * bound) >> 64);
    }
    static inline uint64_t kraft_reciprocal(uint32_t bound) {
        return UINT64_MAX / bound + 1;
    }
    """
    const uint64_t KRAFT_JAVA_MULTIPLIER
    const uint64_t KRAFT_JAVA_MASK
    uint32_t kraft_modulo(uint32_t u, uint64_t reciprocal, uint32_t bound) nogil
    uint64_t kraft_reciprocal(uint32_t bound) nogil


# The reserved ids for an unknown directory (KIP-858, DirectoryId).
MIGRATING_DIRECTORY = bytes(16)
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"


class PlacementSpec(NamedTuple):
    """The partitions to place: those of one topic from id ``start_partition`` on."""

    start_partition: int
    num_partitions: int
    replication_factor: int


class UsableBroker(NamedTuple):
    """A broker on which replicas can be placed: registered, and not in controlled shutdown."""

    id: int
    rack: str | None = None
    fenced: bool = False
    directories: tuple[bytes, ...] = ()


@runtime_checkable
class ReplicaPlacer(Protocol):
    """Chooses the brokers of new partitions."""

    def place(self, placement, cluster):
        """Return int32 (num_partitions, replication_factor), preferred leaders in column 0."""


# --- java.util.Random -------------------------------------------------------------------------


cdef inline uint32_t draw_31_bits(uint64_t *state) noexcept nogil:
    # Only the low 48 bits count; keeping the upper ones saves a mask between two draws.
    state[0] = state[0] * KRAFT_JAVA_MULTIPLIER + 0xB
    return <uint32_t>((state[0] >> 17) & 0x7FFFFFFF)


cdef inline uint32_t draw_below(
    uint64_t *state, uint32_t bound, uint64_t reciprocal
) noexcept nogil:
    """Return Random.nextInt(bound): upper bits for a power of two, else an unbiased remainder."""
    cdef uint32_t bits = draw_31_bits(state)
    cdef uint32_t value
    if bound & (bound - 1) == 0:
        return <uint32_t>((<uint64_t>bound * bits) >> 31)
    value = kraft_modulo(bits, reciprocal, bound)
    # Numbers in the last, incomplete run of ``bound`` numbers below 2**31 are drawn again: they
    # would favour small remainders.
    while bits - value + (bound - 1) > 0x7FFFFFFF:
        bits = draw_31_bits(state)
        value = kraft_modulo(bits, reciprocal, bound)
    return value


cdef inline void shuffle_ids(
    uint64_t *state, int32_t *ids, uint32_t size, const uint64_t *reciprocals
) noexcept nogil:
    """Collections.shuffle: from the last index down, swap each entry with one at or before it."""
    cdef uint32_t left = size
    cdef uint32_t chosen
    cdef int32_t swapped
    while left > 1:
        chosen = draw_below(state, left, reciprocals[left])
        left -= 1
        swapped = ids[left]
        ids[left] = ids[chosen]
        ids[chosen] = swapped


cdef class JavaRandom:
    """The generator of java.util.Random: 48 bits of state, one multiplication a draw."""

    cdef uint64_t state

    def __cinit__(self, seed):
        self.state = <uint64_t>((seed ^ 0x5DEECE66D) & 0xFFFFFFFFFFFF)

    def next_int(self, bound=None):
        cdef uint32_t limit
        if bound is None:
            self.state = (self.state * KRAFT_JAVA_MULTIPLIER + 0xB) & KRAFT_JAVA_MASK
            return <int32_t><uint32_t>(self.state >> 16)
        if not 0 < bound < 1 << 31:
            raise ValueError(f"bound must be between 1 and 2147483647, not {bound}")
        limit = bound
        return draw_below(&self.state, limit, kraft_reciprocal(limit))

    def shuffle(self, values):
        cdef uint32_t left = len(values)
        cdef uint32_t chosen
        while left > 1:
            chosen = draw_below(&self.state, left, kraft_reciprocal(left))
            left -= 1
            values[left], values[chosen] = values[chosen], values[left]


def rack_sort_key(rack):
    """Sort an absent rack first, then by UTF-16 code units as String.compareTo does."""
    return (rack is not None, b"" if rack is None else rack.encode("utf-16-be", "surrogatepass"))


# --- Brokers by rack ---------------------------------------------------------------------------


cdef UsableBrokers grouped(cluster):
    return cluster if isinstance(cluster, UsableBrokers) else UsableBrokers(cluster)


cdef class UsableBrokers:
    """The usable brokers of a cluster, grouped by rack once for many placements."""

    cdef readonly tuple brokers
    cdef readonly Py_ssize_t unfenced_count
    cdef Py_ssize_t rack_count
    cdef Py_ssize_t longest
    cdef cnp.ndarray ids         # int32: the brokers of all lists, concatenated
    cdef cnp.ndarray ends        # int32: where each list ends in ``ids``
    cdef cnp.ndarray order       # int32: rack positions sorted by rack name
    # Broker id -> number of its default directory, by linear probing: at most half full, so that
    # a search for an unknown id ends at an empty slot, which has the unassigned directory's number.
    cdef cnp.ndarray slot_ids
    cdef cnp.ndarray slot_numbers
    cdef uint32_t mask
    cdef list directories        # the 16-byte id behind each number

    def __cinit__(self, brokers):
        self.brokers = tuple(brokers)
        seen = set()
        by_rack = {}
        self.unfenced_count = 0
        for broker in self.brokers:
            if not 0 <= broker.id < 1 << 31:
                raise InvalidRequestError(
                    f"broker id {broker.id} is not between 0 and 2147483647"
                )
            if broker.id in seen:
                raise InvalidRequestError(
                    f"broker {broker.id} is listed twice: list each usable broker once"
                )
            seen.add(broker.id)
            lists = by_rack.get(broker.rack)
            if lists is None:
                lists = by_rack[broker.rack] = ([], [])
            lists[1 if broker.fenced else 0].append(broker.id)
            self.unfenced_count += not broker.fenced
        racks = hash_map_order(list(by_rack))
        positions = {rack: position for position, rack in enumerate(racks)}
        ids = []
        ends = []
        for rack in racks:
            for members in by_rack[rack]:
                ids += sorted(members)
                ends.append(len(ids))
        self.rack_count = len(racks)
        self.longest = max(len(racks), np.diff(ends, prepend=0).max(initial=0))
        self.ids = np.array(ids, dtype=np.int32)
        self.ends = np.array(ends, dtype=np.int32)
        self.order = np.array(
            [positions[rack] for rack in sorted(racks, key=rack_sort_key)], dtype=np.int32
        )
        self.number_directories()

    cdef number_directories(self):
        numbers = {UNASSIGNED_DIRECTORY: 0}
        cdef uint32_t slot
        cdef uint32_t mask = 7
        while mask < 2 * len(self.brokers):
            mask = 2 * mask + 1
        self.mask = mask
        self.slot_ids = np.full(<Py_ssize_t>mask + 1, -1, dtype=np.int32)
        self.slot_numbers = np.zeros(<Py_ssize_t>mask + 1, dtype=np.int32)
        cdef int32_t *ids = <int32_t *>cnp.PyArray_DATA(self.slot_ids)
        cdef int32_t *slot_numbers = <int32_t *>cnp.PyArray_DATA(self.slot_numbers)
        for broker in self.brokers:
            uuid = default_directory(broker.directories)
            slot = bucket_of(broker.id, mask)
            while ids[slot] >= 0:
                slot = (slot + 1) & mask
            ids[slot] = broker.id
            slot_numbers[slot] = numbers.setdefault(uuid, len(numbers))
        self.directories = list(numbers)

    def __len__(self):
        return len(self.brokers)

    def __getitem__(self, at):
        return self.brokers[at]

    def __iter__(self):
        return iter(self.brokers)


# --- The striped placement ---------------------------------------------------------------------


cdef struct BrokerList:
    int32_t *ids
    int32_t size
    int32_t start       # the index in ``ids`` of the first broker used for ``stripe``
    int32_t given       # how many were used for ``stripe``
    int32_t stripe      # the last stripe that used this list


cdef struct Stripes:
    BrokerList *lists           # [2 * rack] unfenced, [2 * rack + 1] fenced
    int32_t *order
    int32_t *ids
    uint64_t *reciprocals       # [bound], up to the longest list; filled by the first shuffle
    int32_t rack_count
    int32_t unfenced_count
    int32_t longest
    int32_t first_rack          # the index in ``order`` where the next partition starts
    uint64_t random_state


cdef inline int32_t next_broker(BrokerList *brokers, int32_t stripe) noexcept nogil:
    """Return the next broker of this list for the stripe, -1 if all of its brokers were used.

    The first call for another stripe moves the start by one. A list that was last used in stripe 0
    continues where it was in the stripe 0 after a shuffle, as Kafka's does.
    """
    cdef int32_t at
    if brokers.size == 0:
        return -1
    if brokers.stripe != stripe:
        brokers.stripe = stripe
        brokers.given = 0
        brokers.start += 1
        if brokers.start == brokers.size:
            brokers.start = 0
    if brokers.given == brokers.size:
        return -1
    at = brokers.start + brokers.given
    if at >= brokers.size:
        at -= brokers.size
    brokers.given += 1
    return brokers.ids[at]


cdef void reshuffle(Stripes *stripes) noexcept nogil:
    """Shuffle the rack order, then the fenced and the unfenced list of each rack."""
    cdef int32_t bound, rack
    cdef BrokerList *lists
    if stripes.reciprocals[1] == 0:
        for bound in range(1, stripes.longest + 1):
            stripes.reciprocals[bound] = kraft_reciprocal(bound)
    cdef uint64_t state = stripes.random_state
    shuffle_ids(&state, stripes.order, stripes.rack_count, stripes.reciprocals)
    for rack in range(stripes.rack_count):
        lists = &stripes.lists[2 * rack]
        shuffle_ids(&state, lists[1].ids, lists[1].size, stripes.reciprocals)
        shuffle_ids(&state, lists[0].ids, lists[0].size, stripes.reciprocals)
    stripes.random_state = state


cdef void stripe_partitions(
    Stripes *stripes, Py_ssize_t partition_count, int32_t replication_factor, int32_t *replicas
) noexcept nogil:
    """Fill `replicas` with (partition_count, replication_factor) brokers, row by row.

    The loop terminates: a list that is exhausted in a stripe 0 was not used by later stripes before
    the shuffle, so the other lists sufficed then, and all of their brokers are unused now.
    """
    cdef BrokerList *lists = stripes.lists
    cdef int32_t *order = stripes.order
    cdef int32_t rack_count = stripes.rack_count
    cdef int32_t first_rack = stripes.first_rack
    cdef int32_t stripe = 0
    cdef int32_t leader_rack, rack, broker, replica
    cdef BrokerList *lists_of_rack
    cdef Py_ssize_t _partition
    for _partition in range(partition_count):
        # With one unfenced broker Kafka does not reshuffle, and the stripe number keeps growing.
        if stripe == stripes.unfenced_count and stripe > 1:
            reshuffle(stripes)
            stripe = 0
        if first_rack == rack_count:
            first_rack = 0
        # The leader comes from the next rack, from `first_rack` on, with an unused unfenced broker.
        leader_rack = first_rack
        broker = next_broker(&lists[2 * order[leader_rack]], stripe)
        while broker < 0:
            leader_rack += 1
            if leader_rack == rack_count:
                leader_rack = 0
            broker = next_broker(&lists[2 * order[leader_rack]], stripe)
        replicas[0] = broker
        # The followers come from the racks in turn; the first round skips the leader's rack.
        rack = first_rack
        for replica in range(1, replication_factor):
            broker = -1
            while broker < 0:
                if rack == leader_rack:
                    leader_rack = -1
                else:
                    lists_of_rack = &lists[2 * order[rack]]
                    broker = next_broker(lists_of_rack, stripe)
                    if broker < 0:
                        broker = next_broker(lists_of_rack + 1, stripe)
                rack += 1
                if rack == rack_count:
                    rack = 0
            replicas[replica] = broker
        replicas += replication_factor
        stripe += 1
        first_rack += 1


cdef void draw_starts(Stripes *stripes) noexcept nogil:
    """Draw a start for each non-empty list, fenced before unfenced, then one for the racks."""
    cdef int32_t rack, side
    cdef BrokerList *brokers
    for rack in range(stripes.rack_count):
        for side in range(1, -1, -1):
            brokers = &stripes.lists[2 * rack + side]
            if brokers.size > 0:
                brokers.start = draw_below(
                    &stripes.random_state, brokers.size, kraft_reciprocal(brokers.size)
                )
    if stripes.rack_count > 0:
        stripes.first_rack = draw_below(
            &stripes.random_state, stripes.rack_count, kraft_reciprocal(stripes.rack_count)
        )


cdef class StripedPlacer:
    """Kafka's default placement: striped over racks, and over the brokers within each rack."""

    cdef readonly JavaRandom random

    def __cinit__(self, JavaRandom random not None):
        self.random = random

    def place(self, placement, cluster):
        cdef UsableBrokers usable = grouped(cluster)
        cdef Py_ssize_t broker_count = usable.ids.shape[0]
        cdef Py_ssize_t list_count = 2 * usable.rack_count
        cdef Py_ssize_t partition_count
        cdef Py_ssize_t at
        cdef int32_t begin, size, replication_factor
        cdef cnp.ndarray replicas
        cdef int32_t *ends = <int32_t *>cnp.PyArray_DATA(usable.ends)
        cdef int32_t *out
        cdef Stripes stripes
        cdef char *workspace = <char *>PyMem_Malloc(
            list_count * sizeof(BrokerList)
            + (usable.longest + 1) * sizeof(uint64_t)
            + (broker_count + usable.rack_count) * sizeof(int32_t)
        )
        if workspace == NULL:
            raise MemoryError()
        try:
            # Widest first, so that every part is aligned.
            stripes.lists = <BrokerList *>workspace
            stripes.reciprocals = <uint64_t *>(stripes.lists + list_count)
            stripes.order = <int32_t *>(stripes.reciprocals + usable.longest + 1)
            stripes.ids = stripes.order + usable.rack_count
            stripes.rack_count = usable.rack_count
            stripes.unfenced_count = usable.unfenced_count
            stripes.longest = usable.longest
            stripes.first_rack = 0
            stripes.random_state = self.random.state
            if usable.longest > 0:
                stripes.reciprocals[1] = 0
            memcpy(
                stripes.order, cnp.PyArray_DATA(usable.order), usable.rack_count * sizeof(int32_t)
            )
            memcpy(stripes.ids, cnp.PyArray_DATA(usable.ids), broker_count * sizeof(int32_t))
            begin = 0
            for at in range(list_count):
                size = ends[at] - begin
                stripes.lists[at] = BrokerList(stripes.ids + begin, size, 0, 0, 0)
                begin = ends[at]
            draw_starts(&stripes)
            # Kafka draws the starts before it checks the request, so a rejected one advances the
            # generator, too.
            self.random.state = stripes.random_state & KRAFT_JAVA_MASK
            check_replication_factor(placement.replication_factor, usable)
            if placement.num_partitions < 0:
                raise InvalidPartitionsError(
                    f"{placement.num_partitions} partitions cannot be placed: ask for 0 or more"
                )
            partition_count = placement.num_partitions
            replication_factor = placement.replication_factor
            replicas = np.empty((partition_count, replication_factor), dtype=np.int32)
            out = <int32_t *>cnp.PyArray_DATA(replicas)
            with nogil:
                stripe_partitions(&stripes, partition_count, replication_factor, out)
            self.random.state = stripes.random_state & KRAFT_JAVA_MASK
            return replicas
        finally:
            PyMem_Free(workspace)


def check_replication_factor(replication_factor, cluster):
    """Raise InvalidReplicationFactorError for too few brokers, or if all are fenced."""
    if replication_factor <= 0:
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} is not positive: ask for at least 1"
        )
    if cluster.unfenced_count == 0:
        raise InvalidReplicationFactorError(
            f"none of the {len(cluster)} usable broker(s) is unfenced, and a partition needs a "
            "leader: start a broker, or wait until one has caught up and is unfenced"
        )
    if replication_factor > len(cluster):
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} cannot be reached with {len(cluster)} "
            f"usable broker(s): ask for at most {len(cluster)}, or start more brokers"
        )


# --- Default directories -----------------------------------------------------------------------


def default_directory(directories):
    if not directories:
        return MIGRATING_DIRECTORY
    return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY


cdef void gather_numbers(
    const int32_t *ids, const int32_t *numbers, uint32_t mask,
    const int32_t *replicas, Py_ssize_t count, int32_t *out
) noexcept nogil:
    """Look up the directory number of each replica's broker; 0 for an unknown broker."""
    cdef Py_ssize_t at
    cdef uint32_t slot
    for at in range(count):
        slot = bucket_of(replicas[at], mask)
        while ids[slot] != replicas[at] and ids[slot] >= 0:
            slot = (slot + 1) & mask
        out[at] = numbers[slot]


cdef inline uint32_t bucket_of(int32_t broker_id, uint32_t mask) noexcept nogil:
    # Ids are mostly 0, 1, 2, ..., which do not collide.
    return (<uint32_t>broker_id ^ (<uint32_t>broker_id >> 16)) & mask


def default_directories(replicas, cluster):
    cdef UsableBrokers usable = grouped(cluster)
    cdef cnp.ndarray wanted = np.ascontiguousarray(replicas, dtype=np.int32)
    cdef cnp.ndarray index = np.empty_like(wanted)
    cdef const int32_t *ids = <const int32_t *>cnp.PyArray_DATA(usable.slot_ids)
    cdef const int32_t *numbers = <const int32_t *>cnp.PyArray_DATA(usable.slot_numbers)
    cdef const int32_t *first = <const int32_t *>cnp.PyArray_DATA(wanted)
    cdef int32_t *out = <int32_t *>cnp.PyArray_DATA(index)
    cdef Py_ssize_t count = wanted.size
    cdef uint32_t mask = usable.mask
    with nogil:
        gather_numbers(ids, numbers, mask, first, count, out)
    return list(usable.directories), index
