"""Encoding of new topics and partitions: from a placer's array to Partition records.

Creates no Python object for a partition. In a new partition the active replicas in their order are
the ISR, the first of them is the leader, epochs are 0, and each replica is in its broker's default
directory. Also finds topic names that collide in metrics. Called by ``controller``. Sources:
Kafka's ``ReplicationControlManager.buildPartitionRegistration``, ``Topic.unifyCollisionChars``.
"""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cimport numpy as cnp

from kraft._core.bytes.batch cimport BatchBuilder
from kraft._core.decide.election_rules cimport BrokerSlot, ElectionRules
from kraft._core.codec.partition_codec cimport (
    DIRECTORY_UNASSIGNED, MAX_REPLICAS, RECOVERED, PartitionState, put_partition,
    put_topic, size_of_partition, size_of_topic,
)
from kraft._core.table.table cimport PartitionTable

from kraft.errors import InvalidReplicationFactorError, InvalidRequestError

cnp.import_array()

cdef enum:
    MAX_ALIKE = 1024
    # A name with n marks (``.`` and ``_``) collides with 2**n names. Up to this n, look up each of
    # them; above it, scan all names.
    MOST_MARKS = 10


cdef int64_t put_rows(
    ElectionRules rules, BatchBuilder builder, const int32_t *replicas, int64_t count,
    int32_t factor, const uint8_t *topic_id, int32_t first_partition,
) noexcept nogil:
    """Append `count` records; -1: the builder failed."""
    cdef PartitionState state
    cdef int64_t index
    cdef int32_t slot
    cdef const BrokerSlot *broker
    cdef uint8_t *p
    state.leader_epoch = 0
    state.partition_epoch = 0
    state.leader_recovery_state = RECOVERED
    state.replica_count = factor
    state.elr_count = 0
    state.last_known_elr_count = 0
    state.removing_count = 0
    state.adding_count = 0
    for index in range(count):
        state.isr_count = 0
        for slot in range(factor):
            state.replicas[slot] = replicas[index * factor + slot]
            broker = rules.find_broker(state.replicas[slot])
            state.directories[slot] = DIRECTORY_UNASSIGNED
            if broker.is_set:
                state.directories[slot] = broker.default_directory
                if broker.active:
                    state.isr[state.isr_count] = state.replicas[slot]
                    state.isr_count += 1
        state.leader = state.isr[0]
        p = builder.add_value(size_of_partition(&state, rules.change_version))
        if p == NULL:
            return -1
        put_partition(
            p, &state, first_partition + <int32_t>index, topic_id, rules.change_version,
            rules.directory_bytes.data,
        )
    return count


cdef int64_t first_inactive(
    ElectionRules rules, const int32_t *replicas, int64_t count, int32_t factor
) noexcept nogil:
    cdef int64_t index
    cdef int32_t slot
    cdef const BrokerSlot *broker
    for index in range(count):
        for slot in range(factor):
            broker = rules.find_broker(replicas[index * factor + slot])
            if broker.is_set and broker.active:
                break
        else:
            return index
    return -1


cdef const int32_t *data_of(cnp.ndarray replicas) except NULL:
    """Return the data of an array; a typed memoryview would cost as much as ten partitions."""
    if (
        cnp.PyArray_NDIM(replicas) != 2
        or cnp.PyArray_TYPE(replicas) != cnp.NPY_INT32
        or not cnp.PyArray_ISCARRAY_RO(replicas)
    ):
        raise ValueError("replicas must be an int32 array (partitions, factor) in C order")
    return <const int32_t *>cnp.PyArray_DATA(replicas)


def partition_without_active_replica(
    ElectionRules rules not None, cnp.ndarray replicas not None
):
    cdef const int32_t *rows = data_of(replicas)
    cdef int64_t found = -1, count = replicas.shape[0]
    cdef int32_t factor = <int32_t>min(replicas.shape[1], <Py_ssize_t>MAX_REPLICAS + 1)
    if count and factor:
        with nogil:
            found = first_inactive(rules, rows, count, factor)
    elif count:
        found = 0
    return None if found < 0 else found


def encode_new_partitions(
    ElectionRules rules not None, BatchBuilder builder not None, topic_id not None,
    cnp.ndarray replicas not None, int32_t first_partition=0,
):
    cdef const int32_t *rows = data_of(replicas)
    cdef int32_t factor = <int32_t>min(replicas.shape[1], <Py_ssize_t>MAX_REPLICAS + 1)
    cdef int64_t count = replicas.shape[0], written = 0
    cdef bytes id_bytes = bytes(topic_id)
    cdef const uint8_t *id = <const uint8_t *><const char *>id_bytes
    if len(id_bytes) != 16:
        raise InvalidRequestError("a topic id is 16 bytes")
    if not 1 <= replicas.shape[1] <= MAX_REPLICAS:
        raise InvalidReplicationFactorError(
            f"a partition has 1 to {MAX_REPLICAS} replicas, not {replicas.shape[1]}"
        )
    if first_partition < 0 or count > 0x7FFFFFFF - first_partition:
        raise InvalidRequestError(
            f"partition ids {first_partition} to {first_partition + count - 1} are not within 0 to "
            "2147483646"
        )
    if count == 0:
        return
    with nogil:
        written = first_inactive(rules, rows, count, factor)
    if written >= 0:
        raise InvalidReplicationFactorError(
            f"no broker of partition {first_partition + written} is active"
        )
    with nogil:
        written = put_rows(rules, builder, rows, count, factor, id, first_partition)
    if written < 0:
        builder.raise_failure()


def encode_new_topic(BatchBuilder builder not None, str name not None, topic_id not None):
    cdef Py_ssize_t size = 0
    cdef const char *text = PyUnicode_AsUTF8AndSize(name, &size)
    cdef bytes id_bytes = bytes(topic_id)
    cdef uint8_t *p
    if len(id_bytes) != 16:
        raise InvalidRequestError("a topic id is 16 bytes")
    if size > 0x7fff:
        raise InvalidRequestError(f"a topic's name of {size} bytes")
    p = builder.add_value(size_of_topic(<int32_t>size))
    if p == NULL:
        builder.raise_failure()
    put_topic(p, <const uint8_t *>text, <int32_t>size, <const uint8_t *><const char *>id_bytes)


def topic_size(PartitionTable table not None, int64_t topic):
    cdef int64_t row
    cdef PartitionState state
    table._check_topic(topic)
    table.ensure_checked()
    if table.topics.entry(topic).partition_count == 0:
        return 0, 0
    row = table.topics.row_of(<int32_t>topic, 0)
    if row < 0:
        row = table.topics.entry(topic).first_row
    table.load_row(row, &state)
    return table.topics.entry(topic).partition_count, state.replica_count


cdef bint is_alike(const uint8_t *name, const uint8_t *unified, int32_t size) noexcept nogil:
    cdef int32_t place
    for place in range(size):
        if name[place] != unified[place] and not (name[place] == c"." and unified[place] == c"_"):
            return False
    return True


cdef int64_t find_alike(
    PartitionTable table, uint8_t *unified, int32_t size, const int32_t *marks, int32_t mark_count
) noexcept nogil:
    """Return the number of a topic whose unified name is `unified`, or -1; changes `unified`."""
    cdef uint64_t turn = 0
    cdef int64_t topic
    cdef int32_t place, other_size = 0
    cdef const uint8_t *other
    if mark_count <= MOST_MARKS:
        # Try all colliding names; each differs from the previous one in one mark (a Gray code).
        while True:
            topic = table.topics.names.find(unified, size)
            turn += 1
            if topic >= 0 or turn >> mark_count:
                return topic
            place = 0
            while not turn >> place & 1:
                place += 1
            unified[marks[place]] ^= c"." ^ c"_"
    for topic in range(table.topics.ids.count):
        if not table.topics.entry(topic).alive:
            continue
        other = table.topics.names.name(topic, &other_size)
        if other_size == size and is_alike(other, unified, size):
            return topic
    return -1


def name_alike(PartitionTable table not None, str name not None):
    cdef uint8_t unified[MAX_ALIKE]
    cdef int32_t marks[MAX_ALIKE]
    cdef Py_ssize_t size = 0
    cdef const char *text = PyUnicode_AsUTF8AndSize(name, &size)
    cdef int32_t mark_count = 0, place
    cdef int64_t found
    if size > MAX_ALIKE:
        raise InvalidRequestError(f"a topic's name of {size} bytes")
    memcpy(unified, text, size)
    for place in range(<int32_t>size):
        if unified[place] == c"." or unified[place] == c"_":
            unified[place] = c"_"
            marks[mark_count] = place
            mark_count += 1
    if mark_count == 0:
        return None
    with nogil:
        found = find_alike(table, unified, <int32_t>size, marks, mark_count)
    return None if found < 0 else table.topic_name(found)
