"""AlterPartition versions 2 and 3: from request bytes to record bytes and response bytes.

Holds the layouts below, and the checks of each partition in Kafka's order
(``ReplicationControlManager.validateAlterPartitionData``, KIP-704, KIP-841, KIP-903).
``election_rules`` decides the change. Nearly every partition only asks for another ISR: the record
of such a change is written straight from the request.

    request   int32 broker | int64 epoch | [uuid topic | [int32 partition | int32 leader epoch
              | [int32 member] (2), [int32 member | int64 epoch | tags] (3)
              | int8 recovery state | int32 partition epoch | tags] | tags] | tags
    response  int32 throttle | int16 error | [uuid topic | [int32 partition | int16 error
              | int32 leader | int32 leader epoch | [int32 member] | int8 recovery state
              | int32 partition epoch | tags] | tags] | tags

[…] is a compact array. A request is parsed as a whole before anything is decided; ISR members stay
in the request's bytes. Invariants: every count is checked against the bytes left before it is used;
a partition is decided only once in a request.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from kraft._core.bytes.arena cimport Arena, arena_release, arena_reserve
from kraft._core.bytes.batch cimport BatchBuilder
from kraft._core.table.columns cimport IRREGULAR
from kraft._core.decide.election cimport ElectionContext
from kraft._core.decide.election_rules cimport (
    BUILDER_FAILED, ELECT_ONLINE, ELECT_UNCLEAN, LEVEL_NO_EPOCH_ON_SHRINK, OUT_OF_MEMORY,
    BrokerSlot, contains, copy_list, copy_state,
)
from kraft._core.codec.fetch cimport fail, open_cursor
from kraft._core.codec.partition_codec cimport (
    CHANGE_ISR, CHANGE_LEADER, CHANGE_RECOVERY, MAX_REPLICAS,
    PARTITION_CHANGE_KEY, RECOVERED, RECOVERING, PartitionChange, PartitionState,
)
from kraft._core.codec.rpc_cursor cimport (
    Cursor, put_i8, put_i16, put_i32, put_raw, skip_tags, take, take_i32, take_i64, take_size,
)
from kraft._core.bytes.wire cimport (
    likely, put_uvarint, store_u32, unlikely,
)

from kraft.errors import UnsupportedVersionError

cdef enum:
    ROWS_AHEAD = 12
    SIZE_OF_ANSWER = 4 + 2 + 4 + 4 + 5 + 4 * MAX_REPLICAS + 1 + 4 + 1
    # In the response: the end of a topic and the beginning of the next.
    SIZE_OF_TOPIC = 1 + 16 + 5

# Kafka's error codes for one partition.
cdef enum PartitionError:
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108


# One partition of the request.
cdef struct Asked:
    const uint8_t *topic_id
    const uint8_t *members
    int64_t row                 # -1: no such partition
    int32_t partition
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t member_count
    int32_t recovery
    # The number of the topic's partitions at its first one, 0 at the others; -1: an entry for a
    # topic without partitions.
    int32_t in_topic
    int16_t error


cdef class AlterPartitionRequest:
    """See ``alter_partition.pyi``."""

    cdef readonly int32_t broker_id
    cdef readonly int64_t broker_epoch
    cdef readonly Py_ssize_t partition_count
    cdef readonly Py_ssize_t decided_count
    cdef Py_buffer body
    cdef bint has_body
    cdef int32_t version
    cdef int32_t topic_count
    cdef Arena asked            # Asked
    cdef Arena seen             # a bit for each row of the table that was decided
    cdef Arena response

    def __init__(self, body, int version, Py_ssize_t position=0):
        cdef Cursor c
        if self.has_body:
            raise TypeError("a request cannot be initialized twice")
        if not 2 <= version <= 3:
            raise UnsupportedVersionError(
                f"AlterPartition version {version} is unknown: 2 and 3 are known"
            )
        self.version = version
        open_cursor(body, position, &self.body, &c)
        self.has_body = True
        if self.read(&c) < 0:
            raise MemoryError("no memory for an AlterPartition request")
        if c.bad or c.at != c.end:
            fail(&c, f"an AlterPartition request in version {version}")
        self.partition_count = <Py_ssize_t>(self.asked.size // sizeof(Asked))

    def __dealloc__(self):
        if self.has_body:
            PyBuffer_Release(&self.body)
        arena_release(&self.asked)
        arena_release(&self.seen)
        arena_release(&self.response)

    cdef int read(self, Cursor *c) noexcept nogil:
        """Parse the whole request; return -1 if out of memory. Malformed bytes set `c.bad`."""
        cdef Py_ssize_t topics, partitions, members, _i, k, _m
        cdef int32_t least = 4 + 4 + 1 + 1 + 4 + 1
        cdef const uint8_t *topic_id
        cdef Asked *asked
        self.broker_id = take_i32(c)
        self.broker_epoch = take_i64(c)
        topics = take_size(c, 18, False)
        self.topic_count = <int32_t>topics
        for _i in range(topics):
            topic_id = take(c, 16)
            partitions = take_size(c, least, False)
            if c.bad:
                return 0
            if arena_reserve(&self.asked, <size_t>(partitions + 1) * sizeof(Asked)) < 0:
                return -1
            if partitions == 0:
                # The response includes topics without partitions.
                asked = <Asked *>(self.asked.data + self.asked.size)
                memset(asked, 0, sizeof(Asked))
                asked.topic_id = topic_id
                asked.in_topic = -1
                self.asked.size += sizeof(Asked)
            for k in range(partitions):
                asked = <Asked *>(self.asked.data + self.asked.size)
                asked.topic_id = topic_id
                asked.row = -1
                asked.error = NONE
                asked.in_topic = <int32_t>partitions if k == 0 else 0
                asked.partition = take_i32(c)
                asked.leader_epoch = take_i32(c)
                members = take_size(c, 4 if self.version < 3 else 13, False)
                asked.member_count = <int32_t>members
                asked.members = c.at
                if self.version < 3:
                    c.at += 4 * members
                else:
                    for _m in range(members):
                        take(c, 12)
                        skip_tags(c)
                asked.recovery = take(c, 1)[0]
                asked.partition_epoch = take_i32(c)
                skip_tags(c)
                if c.bad:
                    return 0
                self.asked.size += sizeof(Asked)
            skip_tags(c)
            if c.bad:
                return 0
        skip_tags(c)
        return 0

    # -- decisions

    def decide(self, ElectionContext context not None, BatchBuilder builder not None,
               Py_ssize_t limit):
        cdef Py_ssize_t end = min(self.partition_count, self.decided_count + limit)
        cdef int result = 0
        context.table.ensure_checked()
        context.known_topic = -1
        with nogil:
            result = self.note_rows(context)
            if result == 0:
                self.find_rows(context, self.decided_count, end)
                result = self.decide_rows(context, builder, self.decided_count, end)
        if result == OUT_OF_MEMORY:
            raise MemoryError("no memory to decide about an AlterPartition request")
        context._check(result, builder)
        self.decided_count = end

    def encode_response(self):
        cdef bytes response
        cdef uint8_t *p
        cdef uint8_t head[16]
        p = put_i16(put_i32(head, 0), 0)
        p = put_uvarint(p, <uint32_t>self.topic_count + 1)
        response = PyBytes_FromStringAndSize(
            NULL, (p - head) + <Py_ssize_t>self.response.size + (2 if self.topic_count else 1)
        )
        cdef uint8_t *out = <uint8_t *><char *>response
        out = put_raw(out, head, p - head)
        # Without partitions nothing is allocated, and memcpy takes no NULL.
        if self.response.size > 0:
            out = put_raw(out, self.response.data, <Py_ssize_t>self.response.size)
        if self.topic_count:
            out = put_i8(out, 0)
        put_i8(out, 0)
        return response

    cdef int note_rows(self, ElectionContext context) noexcept nogil:
        """Provide a bit in `seen` for each row of the table."""
        cdef size_t wanted = <size_t>(context.table.row_count // 8) + 1
        if wanted > self.seen.size:
            if arena_reserve(&self.seen, wanted - self.seen.size) < 0:
                return OUT_OF_MEMORY
            memset(self.seen.data + self.seen.size, 0, wanted - self.seen.size)
            self.seen.size = wanted
        return 0

    cdef void find_rows(self, ElectionContext context, Py_ssize_t first,
                        Py_ssize_t end) noexcept nogil:
        cdef Asked *asked = <Asked *>self.asked.data
        cdef Py_ssize_t index
        cdef const uint8_t *topic_id = NULL
        cdef int64_t topic = -1, row
        cdef uint8_t *byte
        for index in range(first, end):
            if asked[index].in_topic < 0:
                continue
            if asked[index].topic_id != topic_id:
                topic_id = asked[index].topic_id
                topic = context.table.topics.ids.find(topic_id)
            if topic < 0:
                asked[index].error = UNKNOWN_TOPIC_ID
                continue
            row = context.table.topics.row_of(<int32_t>topic, asked[index].partition)
            if row < 0:
                asked[index].error = UNKNOWN_TOPIC_OR_PARTITION
                continue
            asked[index].row = row
            byte = self.seen.data + (row >> 3)
            if byte[0] >> (row & 7) & 1:
                asked[index].error = INVALID_REQUEST
            byte[0] |= <uint8_t>(1 << (row & 7))

    cdef int decide_rows(self, ElectionContext context, BatchBuilder builder, Py_ssize_t first,
                         Py_ssize_t end) noexcept nogil:
        """Append records and response entries; return 0, or an ElectionRefusal."""
        cdef Asked *asked = <Asked *>self.asked.data
        cdef Py_ssize_t index
        cdef uint8_t *p
        cdef int result
        for index in range(first, min(first + ROWS_AHEAD, end)):
            if asked[index].row >= 0:
                context.prefetch_decision(asked[index].row)
        for index in range(first, end):
            if index + ROWS_AHEAD < end and asked[index + ROWS_AHEAD].row >= 0:
                context.prefetch_decision(asked[index + ROWS_AHEAD].row)
            if arena_reserve(&self.response, SIZE_OF_TOPIC + SIZE_OF_ANSWER) < 0:
                return OUT_OF_MEMORY
            p = self.response.data + self.response.size
            if asked[index].in_topic != 0:
                if index > 0:
                    p = put_i8(p, 0)
                p = put_raw(p, asked[index].topic_id, 16)
                p = put_uvarint(p, <uint32_t>max(asked[index].in_topic, 0) + 1)
            self.response.size = p - self.response.data
            if asked[index].in_topic >= 0:
                result = self.decide_row(context, builder, &asked[index])
                if unlikely(result < 0):
                    return result
        return 0

    cdef int decide_row(self, ElectionContext context, BatchBuilder builder,
                        Asked *asked) noexcept nogil:
        cdef int32_t members[MAX_REPLICAS]
        cdef uint32_t packed = 0
        if asked.error == NONE:
            asked.error = <int16_t>self.check(context, asked, members, &packed)
        if asked.error != NONE:
            self.answer_error(asked)
            return 0
        if likely(packed != 0):
            return self.expand(context, builder, asked, members, packed)
        return self.settle(context, builder, asked, members)

    cdef int check(self, ElectionContext context, const Asked *asked, int32_t *members,
                   uint32_t *packed) noexcept nogil:
        """Return the first error of one partition, or NONE after copying its ISR to `members`.

        Sets `packed` to the ISR as a packed list if `expand` can decide, else to 0.
        """
        cdef int64_t row = asked.row
        cdef const int32_t *replicas = context.table.replicas + row * context.table.stride
        cdef int32_t stride = context.table.stride, leader, leader_epoch, partition_epoch, slot
        cdef int32_t recovery_before, replica_count, index, member
        cdef int64_t epoch
        cdef uint32_t in_isr = 0, found
        cdef bint is_regular = context.table.isr[row] != IRREGULAR, leads = False, eligible = True
        cdef const BrokerSlot *broker
        cdef PartitionState state
        cdef Cursor c
        if likely(is_regular):
            leader = context.table.leader[row]
            leader_epoch = context.table.leader_epoch[row]
            partition_epoch = context.table.partition_epoch[row]
            recovery_before = context.table.leader_recovery_state[row]
            replica_count = 0
            while replica_count < stride and replicas[replica_count] >= 0:
                replica_count += 1
        else:
            context.table.load_row(row, &state)
            leader = state.leader
            leader_epoch = state.leader_epoch
            partition_epoch = state.partition_epoch
            recovery_before = state.leader_recovery_state
            replicas = state.replicas
            replica_count = state.replica_count
        if asked.leader_epoch > leader_epoch or asked.partition_epoch > partition_epoch:
            return NOT_CONTROLLER
        if asked.leader_epoch < leader_epoch:
            return FENCED_LEADER_EPOCH
        if self.broker_id != leader:
            return INVALID_REQUEST
        if asked.partition_epoch < partition_epoch:
            return INVALID_UPDATE_VERSION
        if asked.member_count > replica_count:
            return INVALID_REQUEST
        c.at = asked.members
        c.end = <const uint8_t *>self.body.buf + self.body.len
        c.start = c.at
        c.bad = False
        packed[0] = 0
        for index in range(asked.member_count):
            member = take_i32(&c)
            epoch = -1
            if self.version >= 3:
                epoch = take_i64(&c)
                skip_tags(&c)
            slot = 0
            while slot < replica_count and replicas[slot] != member:
                slot += 1
            if slot == replica_count:
                return INVALID_REQUEST
            if likely(slot < 8):
                found = <uint32_t>1 << slot
                if in_isr & found:
                    return INVALID_REQUEST
                in_isr |= found
                packed[0] |= <uint32_t>(slot + 1) << (4 * index & 31)
            elif contains(members, index, member):
                return INVALID_REQUEST
            members[index] = member
            leads = leads or member == leader
            broker = context.find_broker(member)
            eligible = eligible and broker.is_set and broker.active and (
                epoch == -1 or epoch == broker.epoch
            )
        if not leads:
            return INVALID_REQUEST
        if asked.recovery != RECOVERED and asked.recovery != RECOVERING:
            return INVALID_REQUEST
        if asked.recovery == RECOVERING and (
            asked.member_count > 1 or recovery_before == RECOVERED
        ):
            return INVALID_REQUEST
        if not eligible:
            return INELIGIBLE_REPLICA
        if not (
            is_regular and recovery_before == RECOVERED and context.table.elr[row] == 0
            and context.table.last_known_elr[row] == 0
            and context.metadata_version >= LEVEL_NO_EPOCH_ON_SHRINK
            and (
                not context.is_elr_enabled or asked.member_count
                >= context.effective_min_isr(row, context.table.topic[row])
            )
            and self.is_leader_online(context, row, leader)
        ):
            packed[0] = 0
        return NONE

    cdef bint is_leader_online(self, ElectionContext context, int64_t row,
                               int32_t leader) noexcept nogil:
        cdef const int32_t *replicas = context.table.replicas + row * context.table.stride
        cdef const uint32_t *directories = (
            context.table.directories + row * context.table.stride
        )
        cdef int32_t slot = 0
        while replicas[slot] != leader:
            slot += 1
        return context.is_online(context.find_broker(leader), directories[slot])

    cdef int expand(self, ElectionContext context, BatchBuilder builder, const Asked *asked,
                    const int32_t *members, uint32_t packed) noexcept nogil:
        """Do the work of ``settle`` if the leader stays and only the ISR may change.

        The tests compare the two.
        """
        cdef int64_t row = asked.row
        cdef int32_t index, payload = 1 + 4 * asked.member_count, written = 0
        cdef uint8_t *p
        if packed != context.table.isr[row]:
            p = builder.add_value(24 + 2 + payload)
            if p == NULL:
                return BUILDER_FAILED
            p[0] = 1
            p[1] = PARTITION_CHANGE_KEY
            p[2] = <uint8_t>context.change_version
            store_u32(p + 3, <uint32_t>asked.partition)
            memcpy(p + 7, asked.topic_id, 16)
            p[23] = 1
            p[24] = 0
            p[25] = <uint8_t>payload
            p[26] = <uint8_t>(asked.member_count + 1)
            p += 27
            for index in range(asked.member_count):
                store_u32(p, <uint32_t>members[index])
                p += 4
            written = 1
        self.answer(
            asked, self.broker_id, asked.leader_epoch, members, asked.member_count, RECOVERED,
            asked.partition_epoch + written,
        )
        return 0

    cdef int settle(self, ElectionContext context, BatchBuilder builder, const Asked *asked,
                    const int32_t *members) noexcept nogil:
        cdef PartitionState before, after
        cdef PartitionChange change
        cdef int32_t min_isr = 0, recovery, leader, leader_epoch
        cdef int64_t row = asked.row
        cdef int result
        context.table.load_row(row, &before)
        copy_state(&before, &after)
        after.isr_count = copy_list(members, asked.member_count, after.isr)
        if context.is_elr_enabled:
            min_isr = context.effective_min_isr(row, context.table.topic[row])
        result = context.decide(
            &before, &after, &change,
            ELECT_UNCLEAN if context.allows_unclean(context.table.topic[row]) else ELECT_ONLINE,
            min_isr, asked.recovery,
        )
        if result < 0:
            return result
        if result == 0:
            self.answer(
                asked, before.leader, before.leader_epoch, before.isr, before.isr_count,
                before.leader_recovery_state, before.partition_epoch,
            )
            return 0
        result = context.emit(builder, row, &after, &change)
        if result < 0:
            return result
        leader = before.leader
        leader_epoch = before.leader_epoch
        if change.fields & CHANGE_LEADER:
            leader = change.leader
            leader_epoch += 1
            if leader != self.broker_id:
                (<Asked *>asked).error = NEW_LEADER_ELECTED
                self.answer_error(asked)
                return 0
        recovery = before.leader_recovery_state
        if change.fields & CHANGE_RECOVERY:
            recovery = change.leader_recovery_state
        if change.fields & CHANGE_ISR:
            self.answer(
                asked, leader, leader_epoch, after.isr, after.isr_count, recovery,
                before.partition_epoch + 1,
            )
        else:
            self.answer(
                asked, leader, leader_epoch, before.isr, before.isr_count, recovery,
                before.partition_epoch + 1,
            )
        return 0

    # -- response entries, into reserved memory

    cdef void answer(
        self, const Asked *asked, int32_t leader, int32_t leader_epoch, const int32_t *isr,
        int32_t isr_count, int32_t recovery, int32_t partition_epoch,
    ) noexcept nogil:
        cdef uint8_t *p = self.response.data + self.response.size
        cdef int32_t index
        p = put_i16(put_i32(p, asked.partition), asked.error)
        p = put_i32(put_i32(p, leader), leader_epoch)
        p = put_uvarint(p, <uint32_t>isr_count + 1)
        for index in range(isr_count):
            p = put_i32(p, isr[index])
        p = put_i8(put_i32(put_i8(p, recovery), partition_epoch), 0)
        self.response.size = p - self.response.data

    cdef void answer_error(self, const Asked *asked) noexcept nogil:
        self.answer(asked, 0, 0, NULL, 0, RECOVERED, 0)


def encode_error_response(int16_t error):
    cdef uint8_t out[8]
    cdef uint8_t *p = put_i8(put_i8(put_i16(put_i32(out, 0), error), 1), 0)
    return PyBytes_FromStringAndSize(<char *>out, p - out)
