"""Topics in responses of Metadata and DescribeTopicPartitions, straight from an image's columns.

``ListenerBrokers`` holds the properties of a broker that decide about its replicas: whether clients
of one listener can connect to it, whether it is fenced, and its online log directories.
`metadata_body` writes a row whose replicas are all online without unpacking it; any other row goes
through `put_state`. ``kraft.broker.metadata_cache`` calls both, and encodes the rest of a response
from typed messages.

Rules, for each partition (``KRaftMetadataCache`` of Kafka 4.3.1):

- The leader is -1 unless it is registered with the listener; its error is LEADER_NOT_AVAILABLE for
  a broker that is not registered, else LISTENER_NOT_FOUND (LEADER_NOT_AVAILABLE before version 6).
- A replica is offline if its broker is not registered, is fenced or lacks the listener, or if its
  directory is lost or not among the broker's online ones (KIP-858).
- Version 0 lists only replicas and ISR members that are registered with the listener and not
  fenced; if one is missing and the leader is known, the error is REPLICA_NOT_AVAILABLE.

Layouts; ``[i32]`` is a count and its integers, (7+) a field from version 7 on, tags flexible ones::

    Metadata topic          error i16 | name | id uuid (10+) | is internal i8 (1+) | [partition]
                            | authorized operations i32 (8+) | tags
    Metadata partition      error i16 | index i32 | leader i32 | leader epoch i32 (7+)
                            | replicas [i32] | isr [i32] | offline [i32] (5+) | tags
    described partition     error i16 | index i32 | leader i32 | leader epoch i32 | replicas [i32]
                            | isr [i32] | elr [i32] | last known elr [i32] | offline [i32] | tags
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc

import numpy as np

from kraft._core.bytes.wire cimport likely, put_uvarint, store_u16, store_u32, unlikely
from kraft._core.codec.partition_codec cimport (
    DIRECTORY_LOST, DIRECTORY_UNASSIGNED, MAX_REPLICAS, PartitionState,
)
from kraft._core.codec.rpc_cursor cimport put_i8, put_i16, put_i32, put_raw
from kraft._core.table.columns cimport IRREGULAR
from kraft._core.table.images cimport TableImage
from kraft._core.table.intern cimport UuidMap
from kraft._core.table.rows cimport TableRows
from kraft._core.table.topics cimport TopicEntry

from kraft.errors import InvalidRequestError, UnsupportedVersionError

cdef extern from "Python.h":
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *source, Py_ssize_t size)
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t size) except -1

cdef enum:
    HIGHEST_METADATA = 13
    DESCRIBED = -1              # as a version: a topic of DescribeTopicPartitions
    # Kafka's error codes.
    LEADER_NOT_AVAILABLE = 5
    REPLICA_NOT_AVAILABLE = 9
    LISTENER_NOT_FOUND = 72
    NO_DIRECTORY = 0xFFFFFFFF
    # The packed list of three replicas in order, and the bytes of such a partition.
    THREE_IN_ORDER = 0x321
    SIZE_OF_THREE = 42

cdef enum BrokerFlag:
    IS_REGISTERED = 1           # of every slot in use
    HAS_LISTENER = 2
    IS_FENCED = 4
    TAKES_ANY_DIRECTORY = 8     # registered before metadata.version 3.7: directories unknown


cdef struct BrokerPlace:
    int32_t id
    uint32_t flags              # of BrokerFlag; 0: the slot is empty
    # One of the online directories if all else is sound, so that a replica in it needs no further
    # check; else NO_DIRECTORY.
    uint32_t directory
    uint32_t others             # where in `directories` the count and numbers of the others are


# The fields of a version; sizes in bytes.
cdef struct Form:
    int version
    bint is_flexible
    bint has_leader_epoch
    bint has_offline
    int least                   # of a partition with empty lists


cdef struct TopicRows:
    int64_t first               # of consecutive rows
    int64_t count
    int32_t *pairs              # (partition, row) if the rows are not consecutive, else NULL


cdef class ListenerBrokers:
    """See ``topic_bodies.pyi`` for the public interface."""

    cdef UuidMap directories_seen       # of the table, before and after a compaction
    cdef readonly int64_t directory_count
    cdef BrokerPlace *slots
    cdef uint32_t mask
    cdef uint32_t *directories

    def __cinit__(self, TableImage image not None, list brokers not None):
        cdef TableRows table = image.table
        cdef const uint8_t[::1] directory
        cdef BrokerPlace *place
        cdef int64_t number, capacity = 16, total = 1
        cdef uint32_t end = 1, first
        cdef int32_t id
        cdef bint is_fenced, has_listener
        while capacity < 4 * len(brokers):
            capacity *= 2
        for _, _, _, log_dirs in brokers:
            total += 1 + len(log_dirs)
        self.directories_seen = table.directories_seen
        self.directory_count = table.directories_seen.count
        self.slots = <BrokerPlace *>calloc(capacity, sizeof(BrokerPlace))
        self.directories = <uint32_t *>malloc(total * sizeof(uint32_t))
        if self.slots == NULL or self.directories == NULL:
            raise MemoryError("no memory for the brokers of a listener")
        self.mask = <uint32_t>capacity - 1
        self.directories[0] = 0
        for id, is_fenced, has_listener, log_dirs in brokers:
            place = self.slots + (hash_of(id) & self.mask)
            while place.flags:
                place = self.slots + ((place - self.slots + 1) & self.mask)
            place.id = id
            place.flags = IS_REGISTERED
            if has_listener:
                place.flags |= HAS_LISTENER
            if is_fenced:
                place.flags |= IS_FENCED
            if not log_dirs:
                place.flags |= TAKES_ANY_DIRECTORY
            place.directory = NO_DIRECTORY
            first = end
            end += 1
            for log_dir in log_dirs:
                directory = log_dir
                if directory.shape[0] != 16:
                    raise ValueError(f"a directory id has 16 bytes, unlike {log_dir!r}")
                # A directory that the table has not seen holds no replica.
                number = table.directories_seen.find(&directory[0])
                if number >= 0:
                    self.directories[end] = <uint32_t>number
                    end += 1
            self.directories[first] = end - first - 1
            place.others = first
            if has_listener and not is_fenced and end > first + 1:
                place.directory = self.directories[first + 1]

    def __dealloc__(self):
        free(self.slots)
        free(self.directories)

    @property
    def is_current(self):
        return self.directory_count == self.directories_seen.count

    cdef inline const BrokerPlace *find(self, int32_t id) noexcept nogil:
        return find_broker(self.slots, self.mask, id)

    cdef bint is_online(self, const BrokerPlace *place, uint32_t directory) noexcept nogil:
        """Return whether a replica in this directory of the broker is online."""
        cdef uint32_t index, count
        if place == NULL or not place.flags & HAS_LISTENER or place.flags & IS_FENCED:
            return False
        if directory <= DIRECTORY_UNASSIGNED:
            return True
        if directory == DIRECTORY_LOST:
            return False
        if place.flags & TAKES_ANY_DIRECTORY:
            return True
        count = self.directories[place.others]
        for index in range(count):
            if self.directories[place.others + 1 + index] == directory:
                return True
        return False


cdef inline uint32_t hash_of(int32_t id) noexcept nogil:
    cdef uint32_t key = <uint32_t>id * <uint32_t>0x9E3779B1
    return key ^ (key >> 15)


cdef inline const BrokerPlace *find_broker(
    const BrokerPlace *slots, uint32_t mask, int32_t id
) noexcept nogil:
    cdef uint32_t slot = hash_of(id) & mask
    while slots[slot].flags:
        if likely(slots[slot].id == id):
            return slots + slot
        slot = (slot + 1) & mask
    return NULL


cdef Form form_of(int version):
    cdef Form form
    form.version = version
    form.is_flexible = version == DESCRIBED or version >= 9
    form.has_leader_epoch = version == DESCRIBED or version >= 7
    form.has_offline = version == DESCRIBED or version >= 5
    form.least = 10 + (4 if form.has_leader_epoch else 0) + (1 if form.is_flexible else 0)
    form.least += (3 if form.has_offline else 2) * (1 if form.is_flexible else 4)
    if version == DESCRIBED:
        form.least += 2
    return form


cdef inline uint8_t *put_count(uint8_t *p, int64_t count, bint is_flexible) noexcept nogil:
    if is_flexible:
        return put_uvarint(p, <uint32_t>count + 1)
    return put_i32(p, <int32_t>count)


cdef uint8_t *put_list(
    uint8_t *p, const int32_t *members, int32_t count, bint is_flexible
) noexcept nogil:
    cdef int32_t index
    p = put_count(p, count, is_flexible)
    for index in range(count):
        p = put_i32(p, members[index])
    return p


# -- one partition

cdef inline int16_t leader_error(const BrokerPlace *leader, const Form *form) noexcept nogil:
    """Return 0 if clients can connect to the leader, else the error of the partition."""
    if leader == NULL:
        return LEADER_NOT_AVAILABLE
    if not leader.flags & HAS_LISTENER:
        return LISTENER_NOT_FOUND if form.version >= 6 else LEADER_NOT_AVAILABLE
    return 0


cdef inline uint8_t *put_front(
    uint8_t *p, int16_t error, int32_t partition, int32_t leader, int32_t leader_epoch,
    const Form *form,
) noexcept nogil:
    p = put_i32(put_i32(put_i16(p, error), partition), leader)
    return put_i32(p, leader_epoch) if form.has_leader_epoch else p


cdef uint8_t *put_online_row(
    TableRows table, ListenerBrokers brokers, const Form *form, int64_t row, uint8_t *p
) noexcept nogil:
    """Write a regular row whose replicas are all online, not in version 0; NULL for any other."""
    # A store to bytes may change any field: all that is read is in local variables before the
    # first store.
    cdef const int32_t *replicas = table.replicas + row * table.stride
    cdef const uint32_t *directories = table.directories + row * table.stride
    cdef const BrokerPlace *slots = brokers.slots
    cdef const BrokerPlace *place
    cdef uint32_t mask = brokers.mask, packed = table.isr[row], in_order = 0
    cdef int32_t count = 0, stride = table.stride, leader = table.leader[row]
    cdef int32_t leader_epoch = table.leader_epoch[row], partition = table.partition[row]
    cdef int16_t error
    cdef uint8_t *first
    cdef uint8_t *isr
    if unlikely(packed == IRREGULAR):
        return NULL
    while count < stride and replicas[count] >= 0:
        place = find_broker(slots, mask, replicas[count])
        if unlikely(place == NULL or place.directory != directories[count]):
            if not brokers.is_online(place, directories[count]):
                return NULL
        in_order |= <uint32_t>(count + 1) << (4 * count)
        count += 1
    error = leader_error(find_broker(slots, mask, leader), form)
    if unlikely(error != 0):
        leader = -1
    if likely(in_order == THREE_IN_ORDER and packed == in_order and form.version >= 9):
        put_three(p, error, partition, leader, leader_epoch, replicas[0], replicas[1], replicas[2])
        return p + SIZE_OF_THREE
    p = put_front(p, error, partition, leader, leader_epoch, form)
    # At most 8 replicas: a flexible count is one byte.
    first = p + (1 if form.is_flexible else 4)
    p = put_list(p, replicas, count, form.is_flexible)
    if packed == in_order:
        # The list is the same as that of the replicas.
        p = put_count(p, count, form.is_flexible)
        p = put_raw(p, first, 4 * count)
    else:
        isr = p
        p += 1 if form.is_flexible else 4
        count = 0
        while packed:
            p = put_i32(p, replicas[(packed & 15) - 1])
            packed >>= 4
            count += 1
        put_count(isr, count, form.is_flexible)
    if form.has_offline:
        p = put_count(p, 0, form.is_flexible)
    return put_i8(p, 0) if form.is_flexible else p


cdef inline void put_three(
    uint8_t *p, int16_t error, int32_t partition, int32_t leader, int32_t leader_epoch,
    int32_t first, int32_t second, int32_t third,
) noexcept nogil:
    """Write a flexible partition with three replicas that are in sync, in order, and online."""
    store_u16(p, <uint16_t>error)
    store_u32(p + 2, <uint32_t>partition)
    store_u32(p + 6, <uint32_t>leader)
    store_u32(p + 10, <uint32_t>leader_epoch)
    p[14] = 4
    store_u32(p + 15, <uint32_t>first)
    store_u32(p + 19, <uint32_t>second)
    store_u32(p + 23, <uint32_t>third)
    p[27] = 4
    store_u32(p + 28, <uint32_t>first)
    store_u32(p + 32, <uint32_t>second)
    store_u32(p + 36, <uint32_t>third)
    p[40] = 1
    p[41] = 0


cdef int64_t size_of_state(const PartitionState *state, const Form *form) noexcept nogil:
    """Return an upper bound of the bytes of a partition."""
    cdef int64_t members = 2 * <int64_t>state.replica_count + state.isr_count
    # A flexible count of at most MAX_REPLICAS is one byte.
    if form.version == DESCRIBED:
        members += state.elr_count + state.last_known_elr_count
    return form.least + 4 * members


cdef int32_t keep_alive(ListenerBrokers brokers, int32_t *members, int32_t count) noexcept nogil:
    """Drop the members that are fenced or without the listener; return how many are left."""
    cdef const BrokerPlace *place
    cdef int32_t index, kept = 0
    for index in range(count):
        place = brokers.find(members[index])
        if place != NULL and place.flags & HAS_LISTENER and not place.flags & IS_FENCED:
            members[kept] = members[index]
            kept += 1
    return kept


cdef uint8_t *put_state(
    ListenerBrokers brokers, const Form *form, int32_t partition, PartitionState *state, uint8_t *p
) noexcept nogil:
    """Write any partition. Version 0 changes `state`."""
    cdef int32_t[MAX_REPLICAS] offline
    cdef int32_t index, offline_count = 0, kept
    cdef int16_t error = leader_error(brokers.find(state.leader), form)
    cdef int32_t leader = state.leader if error == 0 else -1
    for index in range(state.replica_count):
        if not brokers.is_online(brokers.find(state.replicas[index]), state.directories[index]):
            offline[offline_count] = state.replicas[index]
            offline_count += 1
    if form.version == DESCRIBED:
        error = 0
    elif form.version == 0:
        kept = keep_alive(brokers, state.replicas, state.replica_count)
        if error == 0 and kept < state.replica_count:
            error = REPLICA_NOT_AVAILABLE
        state.replica_count = kept
        kept = keep_alive(brokers, state.isr, state.isr_count)
        if error == 0 and kept < state.isr_count:
            error = REPLICA_NOT_AVAILABLE
        state.isr_count = kept
    p = put_front(p, error, partition, leader, state.leader_epoch, form)
    p = put_list(p, state.replicas, state.replica_count, form.is_flexible)
    p = put_list(p, state.isr, state.isr_count, form.is_flexible)
    if form.version == DESCRIBED:
        p = put_list(p, state.elr, state.elr_count, True)
        p = put_list(p, state.last_known_elr, state.last_known_elr_count, True)
    if form.has_offline:
        p = put_list(p, offline, offline_count, form.is_flexible)
    return put_i8(p, 0) if form.is_flexible else p


# -- topics

cdef int find_rows(
    TableRows table, int64_t rows_then, int64_t topic, TopicRows *rows
) noexcept nogil:
    """Find the rows of a topic below `rows_then`; free `pairs` after use. -1 if out of memory."""
    cdef const TopicEntry *entry = table.topics.entry(topic)
    cdef int64_t found = 0, index
    rows.pairs = NULL
    rows.first = entry.first_row
    rows.count = max(<int64_t>0, min(<int64_t>entry.row_count, rows_then - rows.first))
    if entry.partition_count == entry.row_count:
        return 0
    rows.pairs = table.rows_of_topic(topic, &found)
    if rows.pairs == NULL:
        return -1
    rows.count = 0
    for index in range(found):
        if rows.pairs[2 * index + 1] < rows_then:
            rows.pairs[2 * rows.count] = rows.pairs[2 * index]
            rows.pairs[2 * rows.count + 1] = rows.pairs[2 * index + 1]
            rows.count += 1
    return 0


cdef inline int64_t size_of_front(int32_t name_size) noexcept nogil:
    """Return an upper bound of the bytes of a topic without its partitions."""
    return 2 + 5 + name_size + 16 + 1 + 5 + 4 + 1


cdef uint8_t *put_topic_front(
    TableRows table, int64_t topic, bint is_internal, int64_t count, const Form *form, uint8_t *p
) noexcept nogil:
    """Write a topic up to the count of its partitions."""
    cdef int32_t name_size = 0
    cdef const uint8_t *name = table.topics.names.name(topic, &name_size)
    p = put_i16(p, 0)
    if form.is_flexible:
        p = put_uvarint(p, <uint32_t>name_size + 1)
    else:
        p = put_i16(p, <int16_t>name_size)
    p = put_raw(p, name, name_size)
    if form.version == DESCRIBED or form.version >= 10:
        p = put_raw(p, table.topic_id(topic), 16)
    if form.version != 0:
        p = put_i8(p, is_internal)
    return put_count(p, count, form.is_flexible)


cdef inline bint is_among(const int32_t *numbers, int64_t count, int64_t topic) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        if numbers[index] == topic:
            return True
    return False


cdef int64_t put_topics(
    TableImage image, TableRows table, ListenerBrokers brokers, const Form *form,
    const int32_t *numbers, int64_t first, int64_t count, const int32_t *operations,
    const int32_t *internal, int64_t internal_count, uint8_t **at, uint8_t *end,
) noexcept nogil:
    """Write the topics from index `first` on that had partitions; return the index after the last.

    Ends before a topic for which the bytes up to `end` may not suffice; -1 if out of memory.
    """
    cdef PartitionState state
    cdef TopicRows rows
    cdef int64_t index, place, row, topic, row_size = form.least + 12 * table.stride
    cdef int32_t name_size = 0
    cdef bint has_overlay = image.overlaid_count > 0
    cdef uint8_t *p = at[0]
    cdef uint8_t *after
    for index in range(first, count):
        topic = numbers[index]
        if find_rows(table, image.rows_then, topic, &rows) < 0:
            return -1
        if rows.count == 0:
            free(rows.pairs)
            continue
        table.topics.names.name(topic, &name_size)
        if end - p < size_of_front(name_size):
            free(rows.pairs)
            return index
        p = put_topic_front(
            table, topic, is_among(internal, internal_count, topic), rows.count, form, p
        )
        # The bytes of `size_of_front` include those that follow the partitions.
        for place in range(rows.count):
            row = rows.first + place if rows.pairs == NULL else rows.pairs[2 * place + 1]
            if unlikely(end - p < row_size + 5):
                free(rows.pairs)
                return index
            after = NULL
            if likely(form.version != 0) and not (has_overlay and image.find(row) != NULL):
                after = put_online_row(table, brokers, form, row, p)
            if unlikely(after == NULL):
                image.load_row(row, &state)
                if end - p < size_of_state(&state, form) + 5:
                    free(rows.pairs)
                    return index
                after = put_state(brokers, form, table.partition[row], &state, p)
            p = after
        free(rows.pairs)
        if form.version >= 8:
            p = put_i32(p, operations[index])
        if form.is_flexible:
            p = put_i8(p, 0)
        at[0] = p
    return count


cdef object check_topics(TableImage image, const int32_t[::1] topics):
    cdef int64_t index
    for index in range(topics.shape[0]):
        image._check_topic(topics[index])


def partition_counts(TableImage image not None, const int32_t[::1] topics not None):
    cdef int64_t index
    cdef TopicRows rows
    image.catch_up()
    check_topics(image, topics)
    counts = np.empty(topics.shape[0], np.int32)
    cdef int32_t[::1] out = counts
    for index in range(topics.shape[0]):
        if find_rows(image.table, image.rows_then, topics[index], &rows) < 0:
            raise MemoryError("no memory for a topic's rows")
        free(rows.pairs)
        out[index] = <int32_t>rows.count
    return counts


def metadata_body(
    TableImage image not None, ListenerBrokers brokers not None, int version,
    const int32_t[::1] topics not None, const int32_t[::1] operations not None,
    const int32_t[::1] internal not None, bytes head not None, bytes others not None,
    int64_t other_count, bytes tail not None,
):
    cdef TableRows table = image.table
    cdef Form form
    cdef TopicRows rows
    cdef PyObject *body
    cdef uint8_t *p
    cdef uint8_t *end
    cdef int64_t index, count = topics.shape[0], filled = other_count, all_rows = 0, done = 0
    cdef int64_t internal_count = internal.shape[0]
    cdef int32_t name_size = 0
    cdef Py_ssize_t capacity, used
    if not 0 <= version <= HIGHEST_METADATA:
        raise UnsupportedVersionError(
            f"Metadata has versions 0 to {HIGHEST_METADATA}, not {version}"
        )
    if operations.shape[0] != count:
        raise InvalidRequestError(f"{operations.shape[0]} operations for {count} topics")
    if brokers.directories_seen is not table.directories_seen:
        raise InvalidRequestError("the brokers are those of another table")
    form = form_of(version)
    image.catch_up()
    check_topics(image, topics)
    capacity = len(head) + len(others) + len(tail) + 8
    for index in range(count):
        if find_rows(table, image.rows_then, topics[index], &rows) < 0:
            raise MemoryError("no memory for a topic's rows")
        free(rows.pairs)
        if rows.count:
            table.topics.names.name(topics[index], &name_size)
            capacity += size_of_front(name_size)
            all_rows += rows.count
            filled += 1
    capacity += all_rows * (form.least + 12 * table.stride)
    body = new_bytes(NULL, capacity)
    if body == NULL:
        raise MemoryError("no memory for a response")
    try:
        p = <uint8_t *>PyBytes_AS_STRING(<object>body)
        end = p + capacity - len(tail)
        p = put_raw(p, PyBytes_AS_STRING(head), len(head))
        p = put_count(p, filled, form.is_flexible)
        p = put_raw(p, PyBytes_AS_STRING(others), len(others))
        while True:
            if count:
                with nogil:
                    done = put_topics(
                        image, table, brokers, &form, &topics[0], done, count, &operations[0],
                        &internal[0] if internal_count else NULL, internal_count, &p, end,
                    )
            if done == count:
                break
            if done < 0:
                raise MemoryError("no memory for a topic's rows")
            # A topic has rows with more replicas than the stride.
            used = p - <uint8_t *>PyBytes_AS_STRING(<object>body)
            capacity = 2 * capacity
            _PyBytes_Resize(&body, capacity)
            p = <uint8_t *>PyBytes_AS_STRING(<object>body) + used
            end = <uint8_t *>PyBytes_AS_STRING(<object>body) + capacity - len(tail)
        p = put_raw(p, PyBytes_AS_STRING(tail), len(tail))
        _PyBytes_Resize(&body, p - <uint8_t *>PyBytes_AS_STRING(<object>body))
        return <object>body
    finally:
        # The return value, if there is one, is a reference of its own.
        Py_XDECREF(body)


def described_topic(
    TableImage image not None, ListenerBrokers brokers not None, int64_t topic, bint is_internal,
    int64_t first, int64_t limit, int32_t operations,
):
    cdef TableRows table = image.table
    cdef Form form = form_of(DESCRIBED)
    cdef PartitionState state
    cdef TopicRows rows
    cdef int64_t partition, row, end, size, count = 0
    cdef int32_t name_size = 0
    cdef uint8_t *data
    cdef uint8_t *p
    if first < 0 or limit < 0:
        raise InvalidRequestError(f"no partitions from {first} on, {limit} of them")
    if brokers.directories_seen is not table.directories_seen:
        raise InvalidRequestError("the brokers are those of another table")
    image.catch_up()
    image._check_topic(topic)
    if find_rows(table, image.rows_then, topic, &rows) < 0:
        raise MemoryError("no memory for a topic's rows")
    free(rows.pairs)
    end = min(rows.count, first + min(limit, rows.count))
    table.topics.names.name(topic, &name_size)
    size = size_of_front(name_size)
    for partition in range(first, end):
        row = row_then(image, topic, <int32_t>partition)
        if row >= 0:
            image.load_row(row, &state)
            size += size_of_state(&state, &form)
            count += 1
    data = <uint8_t *>malloc(size)
    if data == NULL:
        raise MemoryError("no memory for a topic")
    p = put_topic_front(table, topic, is_internal, count, &form, data)
    for partition in range(first, end):
        row = row_then(image, topic, <int32_t>partition)
        if row >= 0:
            image.load_row(row, &state)
            p = put_state(brokers, &form, <int32_t>partition, &state, p)
    p = put_i8(put_i32(p, operations), 0)
    try:
        body = PyBytes_FromStringAndSize(<const char *>data, p - data)
    finally:
        free(data)
    return body, count, end if end < rows.count else -1


cdef int64_t row_then(TableImage image, int64_t topic, int32_t partition) noexcept nogil:
    """Return the row of a partition as of the image, -1 if it did not exist."""
    cdef int64_t row = image.table.topics.row_of(<int32_t>topic, partition)
    return row if row < image.rows_then else -1
