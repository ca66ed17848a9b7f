"""Assignment of many replicas to directories: AssignReplicasToDirs (KIP-858).

Walks over the partitions that a request names; ``election_rules`` decides each. Called by
``controller``. Source: Kafka's ``ReplicationControlManager.handleAssignReplicasToDirs``, 4.3.1.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

import numpy as np

from kraft._core.bytes.arena cimport arena_reserve
from kraft._core.bytes.batch cimport BatchBuilder
from kraft._core.decide.election cimport ElectionContext
from kraft._core.decide.election_rules cimport (
    ELECT_ONLINE, ELECT_UNCLEAN, BrokerSlot, copy_state, copy_without, same_list,
)
from kraft._core.codec.partition_codec cimport CHANGE_DIRECTORIES, PartitionChange, PartitionState
from kraft._core.bytes.wire cimport unlikely

from kraft.errors import InvalidRequestError

# Kafka's error codes for a partition.
cdef enum:
    CODE_NONE = 0
    CODE_UNKNOWN_TOPIC_OR_PARTITION = 3
    CODE_NOT_LEADER_OR_FOLLOWER = 6


cdef int assign_row(ElectionContext context, BatchBuilder builder, int64_t row, int32_t broker,
                    uint32_t directory) noexcept nogil:
    """Assign the directory of a broker's replica.

    Returns CODE_NONE, CODE_NOT_LEADER_OR_FOLLOWER if it has no replica, or an ElectionRefusal.
    """
    cdef PartitionState before, after
    cdef PartitionChange change
    cdef int32_t slot, min_isr = 0
    cdef bint is_replica = False
    cdef int result
    context.table.load_row(row, &before)
    for slot in range(before.replica_count):
        is_replica = is_replica or before.replicas[slot] == broker
    if not is_replica:
        return CODE_NOT_LEADER_OR_FOLLOWER
    copy_state(&before, &after)
    if context.is_elr_enabled:
        min_isr = context.effective_min_isr(row, context.table.topic[row])
    # As in Kafka, every change of a partition may elect a leader and complete a reassignment.
    result = context.decide(
        &before, &after, &change, ELECT_ONLINE, min_isr, before.leader_recovery_state
    )
    if result < 0:
        return result
    for slot in range(after.replica_count):
        if after.replicas[slot] == broker:
            after.directories[slot] = directory
    change.fields &= ~<uint32_t>CHANGE_DIRECTORIES
    if not same_list(
        <const int32_t *>after.directories, after.replica_count,
        <const int32_t *>before.directories, before.replica_count,
    ):
        change.fields |= CHANGE_DIRECTORIES
    if change.fields == 0:
        return CODE_NONE
    result = context.emit(builder, row, &after, &change)
    return result if result < 0 else CODE_NONE


cdef int assign_rows(ElectionContext context, BatchBuilder builder, int32_t broker,
                     uint32_t directory, int32_t topic, const int32_t *partitions, int64_t count,
                     int16_t *codes, int32_t *rows) noexcept nogil:
    """Set the code of each partition, and its row if the code is CODE_NONE, else -1."""
    cdef int64_t index, row
    cdef int result
    for index in range(count):
        row = context.table.topics.row_of(topic, partitions[index])
        rows[index] = -1
        if row < 0:
            codes[index] = CODE_UNKNOWN_TOPIC_OR_PARTITION
            continue
        result = assign_row(context, builder, row, broker, directory)
        if unlikely(result < 0):
            return result
        codes[index] = <int16_t>result
        if result == CODE_NONE:
            rows[index] = <int32_t>row
    return 0


def assign_directory(ElectionContext context not None, BatchBuilder builder not None,
                     int32_t broker, directory, int32_t topic, partitions):
    cdef int32_t[::1] wanted = np.ascontiguousarray(partitions, np.int32)
    cdef int64_t number, known = context.directory_bytes.size, count = wanted.shape[0]
    cdef int16_t[::1] code_view
    cdef int32_t[::1] row_view
    cdef const uint8_t *key
    cdef int result
    if not PyBytes_Check(directory) or PyBytes_GET_SIZE(directory) != 16:
        raise InvalidRequestError("a directory id is 16 bytes")
    if not 0 <= topic < context.table.topics.ids.count or not (
        context.table.topics.entry(topic).alive
    ):
        raise InvalidRequestError(f"no live topic has the number {topic}")
    codes = np.zeros(count, np.int16)
    rows = np.empty(count, np.int32)
    if count == 0:
        return codes, rows
    context.table.ensure_checked()
    key = <const uint8_t *>PyBytes_AS_STRING(directory)
    number = context.table.directories_seen.find(key)
    if number < 0:
        # No record names it yet: give it a number for this call only.
        if arena_reserve(&context.directory_bytes, 16) < 0:
            raise MemoryError("no memory for a directory id")
        number = known // 16
        memcpy(context.directory_bytes.data + known, key, 16)
        context.directory_bytes.size += 16
    code_view = codes
    row_view = rows
    context.known_topic = -1
    with nogil:
        result = assign_rows(
            context, builder, broker, <uint32_t>number, topic, &wanted[0], count, &code_view[0],
            &row_view[0],
        )
    context.directory_bytes.size = known
    context._check(result, builder)
    return codes, rows


cdef int leave_row(ElectionContext context, BatchBuilder builder, int64_t row,
                   int32_t broker) noexcept nogil:
    """Remove a broker from a row's ISR, if it is a member, and elect."""
    cdef PartitionState before, after
    context.table.load_row(row, &before)
    copy_state(&before, &after)
    after.isr_count = copy_without(before.isr, before.isr_count, &broker, 1, after.isr)
    return context.settle(
        builder, row, &before, &after,
        ELECT_UNCLEAN if context.allows_unclean(context.table.topic[row]) else ELECT_ONLINE,
        before.leader_recovery_state,
    )


def leave_isr(ElectionContext context not None, BatchBuilder builder not None, int32_t broker,
              rows):
    cdef int32_t[::1] wanted = np.ascontiguousarray(rows, np.int32)
    cdef int64_t index, before = builder.record_count
    cdef BrokerSlot *slot = context.intern_broker(broker)
    cdef int result = 0
    for index in range(wanted.shape[0]):
        context._live(wanted[index])
    context.known_topic = -1
    slot.acceptable = False
    with nogil:
        for index in range(wanted.shape[0]):
            result = leave_row(context, builder, wanted[index], broker)
            if result < 0:
                break
    slot.acceptable = slot.active
    context._check(result, builder)
    return builder.record_count - before
