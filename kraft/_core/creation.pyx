"""New partitions: from the array that a placer gives to Partition records, with no Python object
a partition.

Owns the first state of a partition: in sync are its active replicas in their order, the first of
them leads, epochs are 0, each replica lies in its broker's default directory. Fed by
``controller``. Source: Kafka's ``ReplicationControlManager.buildPartitionRegistration``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.batch cimport BatchBuilder
from kraft._core.election_rules cimport BrokerSlot, ElectionRules
from kraft._core.partition_codec cimport (
    DIRECTORY_UNASSIGNED, MAX_REPLICAS, RECOVERED, PartitionState, put_partition,
    size_of_partition,
)

from kraft.errors import InvalidReplicationFactorError, InvalidRequestError


cdef int64_t put_rows(
    ElectionRules rules, BatchBuilder builder, const int32_t *replicas, int64_t count,
    int32_t factor, const uint8_t *topic_id, int32_t first_partition,
) noexcept nogil:
    """Writes `count` records; -1 where the builder refused."""
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


def partition_without_active_replica(
    ElectionRules rules not None, const int32_t[:, ::1] replicas not None
):
    cdef int64_t found = -1, count = replicas.shape[0]
    cdef int32_t factor = <int32_t>min(replicas.shape[1], <Py_ssize_t>MAX_REPLICAS + 1)
    if count and factor:
        with nogil:
            found = first_inactive(rules, &replicas[0, 0], count, factor)
    elif count:
        found = 0
    return None if found < 0 else found


def encode_new_partitions(
    ElectionRules rules not None, BatchBuilder builder not None, topic_id not None,
    const int32_t[:, ::1] replicas not None, int32_t first_partition=0,
):
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
        raise InvalidRequestError(f"there are no {count} partitions from {first_partition} on")
    inactive = partition_without_active_replica(rules, replicas)
    if inactive is not None:
        raise InvalidReplicationFactorError(
            f"no broker of partition {first_partition + inactive} is active"
        )
    if count:
        with nogil:
            written = put_rows(
                rules, builder, &replicas[0, 0], count, <int32_t>replicas.shape[1], id,
                first_partition,
            )
    if written < 0:
        builder.raise_failure()
