"""Leader elections and ISR changes over many rows, by Kafka's rules.

Walks over rows of the broker index or of the whole table, calls ``election_rules`` for each, and
appends PartitionChange records to a ``BatchBuilder``. Deciding never changes the table: applying
the records does. A decision costs the rows that it reads.

Called by ``controller``. Source: Kafka's ``ReplicationControlManager``, 4.3.1.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

import numpy as np

from kraft._core.bytes.batch cimport append_record
from kraft._core.table.broker_index cimport BrokerRows
from kraft._core.table.columns cimport IRREGULAR, MAX_STRIDE
from kraft._core.decide.election_rules cimport (
    BUILDER_FAILED, ELECT_ONLINE, ELECT_PREFERRED, ELECT_UNCLEAN, LEVEL_NO_EPOCH_ON_SHRINK,
    TOO_MANY_MEMBERS, BrokerSlot, contains, copy_list, copy_state, copy_without, order_as_hash_set,
    same_list, slot_of,
)
from kraft._core.codec.partition_codec cimport (
    CHANGE_ISR, CHANGE_LEADER, CHANGE_RECOVERY, DIRECTORY_LOST, MAX_REPLICAS, NO_LEADER,
    PARTITION_CHANGE_KEY, RECOVERED, RECOVERING, put_change, size_of_change,
)
from kraft._core.bytes.wire cimport likely, prefetch, store_u32, unlikely

from kraft.errors import (
    InvalidReplicaAssignmentError, InvalidRequestError, NoReassignmentInProgressError,
)

cdef enum:
    # How many rows ahead to prefetch: about as many as the memory can load at a time.
    ROWS_AHEAD = 12
    # Rows that are tested together for the need of an election; a power of two.
    ROWS_A_LOOK = 64
    # The number of no topic.
    NO_TOPIC = -1

# The operation of visit_rows on each row.
cdef enum Visit:
    VISIT_PREFERRED = 0
    VISIT_UNCLEAN = 1           # an unclean election, whatever the topic says
    VISIT_UNCLEAN_ALLOWED = 2   # an unclean election where the topic allows it
    VISIT_EXPAND = 3


cdef class ElectionContext(ElectionRules):
    """See ``election.pyi``."""

    cdef int emit(self, BatchBuilder builder, int64_t row, const PartitionState *after,
                  const PartitionChange *change) noexcept nogil:
        cdef uint8_t *p = builder.add_value(size_of_change(after, change))
        if p == NULL:
            return BUILDER_FAILED
        put_change(
            p, after, change, self.table.partition[row], self.table.topic_id(self.table.topic[row]),
            self.change_version, self.directory_bytes.data,
        )
        return 1

    cdef int settle(self, BatchBuilder builder, int64_t row, const PartitionState *before,
                    PartitionState *after, int election, int32_t recovery) noexcept nogil:
        """Decide about a row and append its record: 1 with a record, 0 without, or a refusal."""
        cdef PartitionChange change
        cdef int32_t min_isr = 0
        cdef int result
        if self.is_elr_enabled:
            min_isr = self.effective_min_isr(row, self.table.topic[row])
        result = self.decide(before, after, &change, election, min_isr, recovery)
        if result <= 0:
            return result
        return self.emit(builder, row, after, &change)

    # -- rows

    cdef void prefetch_decision(self, int64_t row) noexcept nogil:
        """Prefetch the cache lines that a decision about a row reads."""
        prefetch(&self.table.leader[row])
        prefetch(&self.table.topic[row])
        prefetch(&self.table.partition[row])
        prefetch(&self.table.isr[row])
        prefetch(&self.table.elr[row])
        prefetch(&self.table.leader_recovery_state[row])
        prefetch(&self.table.replicas[row * self.table.stride])
        prefetch(&self.table.directories[row * self.table.stride])
        if self.is_elr_enabled:
            prefetch(&self.table.last_known_elr[row])

    cdef int shrink_row(self, BatchBuilder builder, int64_t row, int32_t broker) noexcept nogil:
        """Do the work of ``remove_row`` for a regular row, if one broker leaves and ELR is off.

        Nearly every row is of this kind; its ELR is empty. Makes the same decision as ``decide``,
        on the packed lists; the tests compare the two.
        """
        cdef const int32_t *replicas = self.table.replicas + row * self.table.stride
        cdef const uint32_t *directories = self.table.directories + row * self.table.stride
        cdef int stride = self.table.stride
        cdef uint32_t isr = self.table.isr[row], kept = 0, left = isr, in_isr = 0
        cdef int32_t slot, size, payload, kept_count = 0
        cdef int32_t before = self.table.leader[row], leader = NO_LEADER, candidate = NO_LEADER
        cdef uint8_t tag_count = 0
        cdef bint is_member = False, unclean = False, writes_isr, writes_leader, writes_recovery
        cdef const BrokerSlot *found
        cdef uint8_t *p
        while left:
            slot = <int32_t>(left & 15) - 1
            if replicas[slot] == broker:
                is_member = True
            else:
                kept |= (left & 15) << (4 * kept_count)
                kept_count += 1
                in_isr |= <uint32_t>1 << slot
            left >>= 4
        if not is_member:
            return 0
        # The present leader first, then in the order of the replicas.
        for slot in range(stride):
            if replicas[slot] < 0:
                break
            if not in_isr >> slot & 1 or (candidate >= 0 and replicas[slot] != before):
                continue
            found = self.find_broker(replicas[slot])
            if found.is_set and found.acceptable and self.is_online(found, directories[slot]):
                candidate = replicas[slot]
                if candidate == before:
                    break
        leader = candidate
        if leader < 0 and self.allows_unclean(self.table.topic[row]):
            for slot in range(stride):
                if replicas[slot] < 0:
                    break
                found = self.find_broker(replicas[slot])
                if found.is_set and found.acceptable and self.is_online(found, directories[slot]):
                    leader = replicas[slot]
                    unclean = leader != before
                    break
        if unclean:
            kept = <uint32_t>slot + 1
            kept_count = 1
        writes_isr = kept_count > 0
        writes_leader = leader != before or (
            writes_isr and self.metadata_version < LEVEL_NO_EPOCH_ON_SHRINK
        )
        writes_recovery = unclean and self.table.leader_recovery_state[row] != RECOVERING
        if not writes_isr and not writes_leader:
            return 0
        payload = 1 + 4 * kept_count
        size = 24 + 6 * writes_leader + 3 * writes_recovery
        tag_count = <uint8_t>(writes_leader + writes_recovery + writes_isr)
        if writes_isr:
            size += 2 + payload
        p = append_record(
            builder, builder.next_offset, builder.timestamp_ms, NULL, -1, NULL, size, 0, NULL, 0, 0
        )
        if p == NULL:
            return BUILDER_FAILED
        p[0] = 1
        p[1] = PARTITION_CHANGE_KEY
        p[2] = <uint8_t>self.change_version
        store_u32(p + 3, <uint32_t>self.table.partition[row])
        memcpy(p + 7, self.table.topic_id(self.table.topic[row]), 16)
        p[23] = tag_count
        p += 24
        if writes_isr:
            p[0] = 0
            p[1] = <uint8_t>payload
            p[2] = <uint8_t>(kept_count + 1)
            p += 3
            while kept:
                store_u32(p, <uint32_t>replicas[(kept & 15) - 1])
                kept >>= 4
                p += 4
        if writes_leader:
            p[0] = 1
            p[1] = 4
            store_u32(p + 2, <uint32_t>leader)
            p += 6
        if writes_recovery:
            p[0] = 5
            p[1] = 1
            p[2] = RECOVERING
        return 1

    cdef int remove_row(self, BatchBuilder builder, int64_t row, int scope,
                        int64_t directory) noexcept nogil:
        """Remove the leaving brokers from a row's ISR, if the row is in scope."""
        cdef PartitionState before, after
        cdef int32_t index, kept = 0
        cdef bint in_scope = False
        self.table.load_row(row, &before)
        if scope & IN_ISR:
            for index in range(before.isr_count):
                in_scope = in_scope or self.find_broker(before.isr[index]).leaves_isr
        if scope & IN_ELR:
            for index in range(before.elr_count):
                in_scope = in_scope or self.find_broker(before.elr[index]).leaves_isr
        if scope & IN_DIRECTORY:
            for index in range(before.replica_count):
                in_scope = in_scope or before.directories[index] == directory
        if not in_scope:
            return 0
        copy_state(&before, &after)
        for index in range(before.isr_count):
            if not self.find_broker(before.isr[index]).leaves_isr:
                after.isr[kept] = before.isr[index]
                kept += 1
        after.isr_count = kept
        return self.settle(
            builder, row, &before, &after,
            ELECT_UNCLEAN if self.allows_unclean(self.table.topic[row]) else ELECT_ONLINE,
            before.leader_recovery_state,
        )

    cdef int remove_rows(self, BatchBuilder builder, const int32_t *rows, int64_t count,
                         int scope, int64_t directory, int32_t single) noexcept nogil:
        """Call ``remove_row`` for each row; `single` is the leaving broker, -1 for several."""
        cdef int64_t index, row, row_count = self.table.row_count
        cdef bint is_plain = scope == IN_ISR and single >= 0 and not self.is_elr_enabled
        cdef int result = 0
        for index in range(count):
            if index + ROWS_AHEAD < count and rows[index + ROWS_AHEAD] < row_count:
                self.prefetch_decision(rows[index + ROWS_AHEAD])
            row = rows[index]
            if row >= row_count or self.table.topic[row] < 0:
                continue
            if likely(is_plain and self.table.isr[row] != IRREGULAR and self.table.elr[row] == 0):
                result = self.shrink_row(builder, row, single)
            else:
                result = self.remove_row(builder, row, scope, directory)
            if unlikely(result < 0):
                return result
        return 0

    cdef int elect_row(self, BatchBuilder builder, int64_t row, int election) noexcept nogil:
        cdef PartitionState before, after
        self.table.load_row(row, &before)
        copy_state(&before, &after)
        return self.settle(builder, row, &before, &after, election, before.leader_recovery_state)

    cdef int expand_row(self, BatchBuilder builder, int64_t row) noexcept nogil:
        """Add every active replica to the ISR, as a leader requests once all have caught up."""
        cdef PartitionState before, after
        cdef int32_t index, kept = 0
        self.table.load_row(row, &before)
        if before.leader < 0 or not self.may_lead(before.leader, &before):
            return 0
        copy_state(&before, &after)
        for index in range(before.isr_count):
            if self.may_lead(before.isr[index], &before):
                after.isr[kept] = before.isr[index]
                kept += 1
        for index in range(before.replica_count):
            if (
                not contains(after.isr, kept, before.replicas[index])
                and self.may_lead(before.replicas[index], &before)
            ):
                after.isr[kept] = before.replicas[index]
                kept += 1
        after.isr_count = kept
        if before.leader_recovery_state == RECOVERED and same_list(
            after.isr, kept, before.isr, before.isr_count
        ):
            return 0
        return self.settle(
            builder, row, &before, &after,
            ELECT_UNCLEAN if self.allows_unclean(self.table.topic[row]) else ELECT_ONLINE,
            RECOVERED,
        )

    cdef bint may_need(self, int64_t first, int kind) noexcept nogil:
        """Return whether one of the ROWS_A_LOOK rows from `first` on may need an election."""
        cdef const int32_t *leader = self.table.leader + first
        cdef const int32_t *replicas = self.table.replicas + first * self.table.stride
        cdef int64_t stride = self.table.stride, index
        cdef int32_t found = 0
        if kind == VISIT_PREFERRED:
            for index in range(ROWS_A_LOOK):
                found |= leader[index] ^ replicas[index * stride]
            return found != 0
        for index in range(ROWS_A_LOOK):
            found |= <int32_t>(leader[index] == NO_LEADER)
        return found != 0

    cdef bint cannot_move(self, int64_t row, int32_t preferred) noexcept nogil:
        """Return whether the row is regular, its preferred replica inactive and its leader active.

        Such a row cannot change. ``decide`` comes to the same result, but takes longer.
        """
        cdef const int32_t *replicas = self.table.replicas + row * self.table.stride
        cdef int32_t before = self.table.leader[row], slot = 0
        cdef uint32_t left = self.table.isr[row]
        cdef const BrokerSlot *leader
        if (
            self.is_elr_enabled or left == IRREGULAR or self.table.elr[row]
            or self.table.last_known_elr[row] or self.find_broker(preferred).acceptable
        ):
            return False
        while left and replicas[(left & 15) - 1] != before:
            left >>= 4
        if left == 0:
            return False
        slot = <int32_t>(left & 15) - 1
        leader = self.find_broker(before)
        return (
            leader.is_set and leader.acceptable
            and self.is_online(leader, self.table.directories[row * self.table.stride + slot])
        )

    cdef bint stays_leaderless(self, int64_t row) noexcept nogil:
        """Return whether a row without a leader is regular, and no member of its electorate active.

        A clean election does not change such a row. ``decide`` comes to the same result, but takes
        longer: when all brokers of a cluster return, each finds most partitions without a leader.
        """
        cdef const int32_t *replicas = self.table.replicas + row * self.table.stride
        cdef uint32_t isr = self.table.isr[row], elr = self.table.elr[row]
        cdef uint32_t left = elr if self.is_elr_enabled else isr
        cdef BrokerSlot *slots = <BrokerSlot *>self.broker_slots.data
        cdef int32_t members[MAX_STRIDE]
        cdef int32_t count = 0, index, member, topic = self.table.topic[row]
        if isr == IRREGULAR or (isr if self.is_elr_enabled else elr):
            return False
        while left:
            member = replicas[(left & 15) - 1]
            if slot_of(slots, self.broker_mask, member).acceptable:
                return False
            # `decide` writes an ELR without its duplicates.
            if contains(members, count, member):
                return False
            members[count] = member
            count += 1
            left >>= 4
        if not self.is_elr_enabled:
            return True
        if count == 0:
            # After unclean shutdowns only the last known leader is left, and `decide` elects it
            # alone: every partition of a cluster whose brokers were all killed.
            left = self.table.last_known_elr[row]
            if left == 0 or left > 15:
                return True
            return not slot_of(slots, self.broker_mask, replicas[left - 1]).acceptable
        # `decide` would drop the ELR, or write it in another order.
        if topic != self.known_topic:
            self.effective_min_isr(row, topic)
        if self.known_min_isr <= 0:
            return False
        if count == 1:
            return True
        order_as_hash_set(members, count, count)
        for index in range(count):
            if members[index] != replicas[(elr & 15) - 1]:
                return False
            elr >>= 4
        return True

    cdef int64_t visit_rows(self, BatchBuilder builder, const int32_t *rows, int64_t count,
                            int kind, int64_t limit, int8_t *outcomes) noexcept nogil:
        """Elect or expand for `rows`, or, if NULL, for the whole table; stop at `limit` records.

        Returns the number of records, or a refusal. `outcomes` is set for each of `rows`: 1 with a
        record, else 0.
        """
        cdef int64_t index = -1, row, changed = 0, end = count
        cdef int32_t preferred, topic = NO_TOPIC
        cdef bint is_unclean = False
        cdef int result
        if rows == NULL:
            end = self.table.row_count
        while True:
            index += 1
            if rows == NULL and kind != VISIT_EXPAND and not index & (ROWS_A_LOOK - 1):
                while index + ROWS_A_LOOK <= end and not self.may_need(index, kind):
                    index += ROWS_A_LOOK
            if index >= end:
                break
            row = index if rows == NULL else rows[index]
            if outcomes != NULL:
                outcomes[index] = 0
            if changed >= limit:
                if outcomes == NULL:
                    break
                continue
            if self.table.topic[row] < 0:
                continue
            result = 0
            if kind == VISIT_PREFERRED:
                preferred = self.table.replicas[row * self.table.stride]
                if (
                    preferred >= 0 and self.table.leader[row] != preferred
                    and not self.cannot_move(row, preferred)
                ):
                    result = self.elect_row(builder, row, ELECT_PREFERRED)
            elif kind == VISIT_EXPAND:
                result = self.expand_row(builder, row)
            elif self.table.leader[row] == NO_LEADER:
                if self.table.topic[row] != topic:
                    topic = self.table.topic[row]
                    is_unclean = kind == VISIT_UNCLEAN or self.allows_unclean(topic)
                if is_unclean:
                    result = self.elect_row(builder, row, ELECT_UNCLEAN)
            if unlikely(result < 0):
                return result
            changed += result
            if outcomes != NULL:
                outcomes[index] = <int8_t>result
        return changed

    # -- the public interface

    cdef int _check(self, int64_t result, BatchBuilder builder) except -1:
        if result == BUILDER_FAILED:
            builder.raise_failure()
        if result == TOO_MANY_MEMBERS:
            raise InvalidRequestError(f"a partition would have more than {MAX_REPLICAS} replicas")
        if result < 0:
            raise MemoryError("no memory for a decision")
        return 0

    cdef int64_t _live(self, int64_t row) except -1:
        if not 0 <= row < self.table.row_count or self.table.topic[row] < 0:
            raise InvalidRequestError(f"row {row} holds no partition")
        return row

    cdef object _remove(self, BatchBuilder builder, brokers, int scope, directory, bint unclean):
        cdef list leaving = sorted(set(brokers))
        cdef int64_t number = -1, count = 0, before = builder.record_count
        cdef int32_t[::1] merged
        cdef const int32_t *rows = NULL
        cdef int32_t single = -1
        cdef BrokerRows *entry
        cdef BrokerSlot *slot
        cdef int result
        if directory is not None:
            number = self.table.directories_seen.get(directory)
            if number <= DIRECTORY_LOST:
                return 0
        for broker in leaving:
            self.intern_broker(broker)
        self.known_topic = -1
        self.table.ensure_index()
        if len(leaving) == 1:
            entry = self.table.index.find(leaving[0])
            if entry != NULL:
                self.table.index.sort(entry)
                rows = entry.rows
                count = entry.count
        elif leaving:
            listed = np.unique(np.concatenate([self.table.broker_rows(b) for b in leaving]))
            merged = listed
            count = merged.shape[0]
            rows = &merged[0] if count else NULL
        for broker in leaving:
            slot = self.find_broker(broker)
            slot.acceptable = False
            slot.leaves_isr = True
            slot.leaves_elr = unclean
        if len(leaving) == 1 and not unclean:
            single = leaving[0]
        with nogil:
            result = self.remove_rows(builder, rows, count, scope, number, single)
        for broker in leaving:
            slot = self.find_broker(broker)
            slot.acceptable = slot.active
            slot.leaves_isr = False
            slot.leaves_elr = False
        self._check(result, builder)
        return builder.record_count - before

    def remove_from_isr(self, BatchBuilder builder not None, brokers, *, bint and_elr=False,
                        bint unclean_shutdown=False):
        cdef int scope = IN_ISR
        if and_elr or unclean_shutdown:
            scope |= IN_ELR
        return self._remove(builder, brokers, scope, None, unclean_shutdown)

    def remove_directory(self, BatchBuilder builder not None, int32_t broker, directory):
        return self._remove(builder, (broker,), IN_DIRECTORY, bytes(directory), False)

    cdef object _visit(self, BatchBuilder builder, rows, int kind, int64_t limit):
        cdef int32_t[::1] wanted
        cdef int8_t[::1] changed
        cdef const int32_t *chosen = NULL
        cdef int8_t *marks = NULL
        cdef int64_t index, count = 0, result
        outcomes = None
        self.known_topic = -1
        if rows is not None:
            wanted = np.ascontiguousarray(rows, np.int32)
            count = wanted.shape[0]
            for index in range(count):
                self._live(wanted[index])
            outcomes = np.zeros(count, np.int8)
            if count == 0:
                return outcomes
            changed = outcomes
            chosen = &wanted[0]
            marks = &changed[0]
        with nogil:
            result = self.visit_rows(builder, chosen, count, kind, limit, marks)
        self._check(result, builder)
        return result if outcomes is None else outcomes

    def elect_leaderless(self, BatchBuilder builder not None, int32_t unfenced, rows=None):
        cdef int32_t[::1] wanted
        cdef const int32_t *chosen = NULL
        cdef int64_t count = 0, result = 0
        cdef BrokerSlot *slot = self.intern_broker(unfenced)
        if rows is not None:
            wanted = np.ascontiguousarray(rows, np.int32)
            count = wanted.shape[0]
            if count == 0:
                return
            chosen = &wanted[0]
        self.known_topic = -1
        slot.acceptable = True
        with nogil:
            result = elect_rows(self, builder, chosen, count)
        slot.acceptable = slot.active
        self._check(result, builder)

    def elect_preferred(self, BatchBuilder builder not None, rows=None, *,
                        int64_t limit=0x7FFFFFFFFFFFFFFF):
        return self._visit(builder, rows, VISIT_PREFERRED, limit)

    def elect_unclean(self, BatchBuilder builder not None, rows=None, *,
                      int64_t limit=0x7FFFFFFFFFFFFFFF):
        return self._visit(
            builder, rows, VISIT_UNCLEAN_ALLOWED if rows is None else VISIT_UNCLEAN, limit
        )

    def expand_isrs(self, BatchBuilder builder not None, rows=None):
        return self._visit(builder, rows, VISIT_EXPAND, 0x7FFFFFFFFFFFFFFF)

    def alter_partition(self, BatchBuilder builder not None, int64_t row, isr, int32_t recovery):
        cdef PartitionState before, after
        cdef PartitionChange change
        cdef int32_t min_isr = 0, index
        cdef int result
        self.table.load_row(self._live(row), &before)
        copy_state(&before, &after)
        after.isr_count = take_list(isr, after.isr)
        self.known_topic = -1
        if self.is_elr_enabled:
            min_isr = self.effective_min_isr(row, self.table.topic[row])
        result = self.decide(
            &before, &after, &change,
            ELECT_UNCLEAN if self.allows_unclean(self.table.topic[row]) else ELECT_ONLINE,
            min_isr, recovery,
        )
        if result == 0:
            return None
        if result > 0:
            result = self.emit(builder, row, &after, &change)
        self._check(result, builder)
        if not change.fields & CHANGE_LEADER:
            change.leader = before.leader
        if not change.fields & CHANGE_RECOVERY:
            change.leader_recovery_state = before.leader_recovery_state
        if not change.fields & CHANGE_ISR:
            after.isr_count = copy_list(before.isr, before.isr_count, after.isr)
        return (
            change.leader,
            before.leader_epoch + (1 if change.fields & CHANGE_LEADER else 0),
            before.partition_epoch + 1,
            tuple([after.isr[index] for index in range(after.isr_count)]),
            change.leader_recovery_state,
        )

    def reassign(self, BatchBuilder builder not None, int64_t row, replicas):
        cdef PartitionState before, after
        cdef int32_t target[MAX_REPLICAS]
        cdef int32_t leaving[MAX_REPLICAS]
        cdef int32_t coming[MAX_REPLICAS]
        cdef int32_t count, leaving_count, coming_count
        cdef int result
        self.table.load_row(self._live(row), &before)
        copy_state(&before, &after)
        count = take_list(replicas, target)
        if count == 0:
            raise InvalidReplicaAssignmentError("a partition needs at least one replica")
        leaving_count = copy_without(
            before.replicas, before.replica_count, target, count, leaving
        )
        coming_count = copy_without(target, count, before.replicas, before.replica_count, coming)
        sort_members(leaving, leaving_count)
        sort_members(coming, coming_count)
        if count + leaving_count > MAX_REPLICAS:
            raise InvalidReplicaAssignmentError(
                f"a reassignment would hold more than {MAX_REPLICAS} replicas at a time"
            )
        after.replica_count = copy_list(target, count, after.replicas)
        after.replica_count += copy_list(leaving, leaving_count, after.replicas + count)
        # As in Kafka, a reassignment without additions or removals keeps those of an earlier one.
        if leaving_count:
            after.removing_count = copy_list(leaving, leaving_count, after.removing)
        if coming_count:
            after.adding_count = copy_list(coming, coming_count, after.adding)
        self.known_topic = -1
        result = self.settle(
            builder, row, &before, &after, ELECT_ONLINE, before.leader_recovery_state
        )
        self._check(result, builder)
        return result == 1

    def cancel_reassignment(self, BatchBuilder builder not None, int64_t row):
        cdef PartitionState before, after
        cdef bint unclean
        cdef int result
        self.table.load_row(self._live(row), &before)
        if before.removing_count == 0 and before.adding_count == 0:
            raise NoReassignmentInProgressError("no reassignment of the partition is in progress")
        copy_state(&before, &after)
        unclean = self.allows_unclean(self.table.topic[row])
        after.replica_count = copy_without(
            before.replicas, before.replica_count, before.adding, before.adding_count,
            after.replicas,
        )
        after.isr_count = copy_without(
            before.isr, before.isr_count, before.adding, before.adding_count, after.isr
        )
        after.removing_count = 0
        after.adding_count = 0
        if after.isr_count == 0:
            if after.replica_count == 0:
                raise InvalidReplicaAssignmentError(
                    "the reassignment adds every replica of the partition: none would remain"
                )
            if not unclean:
                raise InvalidReplicaAssignmentError(
                    "cancelling needs an unclean leader election, which the topic does not allow"
                )
            after.isr[0] = after.replicas[0]
            after.isr_count = 1
        self.known_topic = -1
        result = self.settle(
            builder, row, &before, &after, ELECT_UNCLEAN if unclean else ELECT_ONLINE,
            before.leader_recovery_state,
        )
        self._check(result, builder)
        return result == 1


cdef int64_t elect_rows(ElectionContext self, BatchBuilder builder, const int32_t *rows,
                        int64_t count) noexcept nogil:
    """Elect for those of `rows` without a leader, or, if NULL, of the whole table.

    Returns 0, or a refusal.
    """
    cdef PartitionState before, after
    cdef PartitionChange change
    cdef int64_t index = -1, row, end = count, row_count = self.table.row_count
    cdef int32_t topic = NO_TOPIC, min_isr = 0
    cdef bint is_unclean = False
    cdef int result
    if rows == NULL:
        end = row_count
    while True:
        index += 1
        if rows == NULL and not index & (ROWS_A_LOOK - 1):
            while index + ROWS_A_LOOK <= end and not self.may_need(index, VISIT_UNCLEAN):
                index += ROWS_A_LOOK
        if index >= end:
            return 0
        row = index if rows == NULL else rows[index]
        if not 0 <= row < row_count or self.table.topic[row] < 0:
            continue
        if self.table.leader[row] != NO_LEADER:
            continue
        if self.table.topic[row] != topic:
            topic = self.table.topic[row]
            is_unclean = self.allows_unclean(topic)
        if not is_unclean and self.stays_leaderless(row):
            continue
        if self.is_elr_enabled:
            min_isr = self.effective_min_isr(row, topic)
        self.table.load_row(row, &before)
        copy_state(&before, &after)
        result = self.decide(
            &before, &after, &change, ELECT_UNCLEAN if is_unclean else ELECT_ONLINE, min_isr,
            before.leader_recovery_state,
        )
        if result > 0:
            result = self.emit(builder, row, &after, &change)
        if unlikely(result < 0):
            return result


cdef int32_t take_list(members, int32_t *out) except -1:
    """Copy the distinct broker ids of a request; return their number."""
    cdef int32_t count = 0, member
    if len(members) > MAX_REPLICAS:
        raise InvalidReplicaAssignmentError(
            f"a partition has at most {MAX_REPLICAS} replicas, not {len(members)}"
        )
    for member in members:
        if member < 0 or contains(out, count, member):
            raise InvalidReplicaAssignmentError(
                f"broker {member} is listed twice, or its id is negative"
            )
        out[count] = member
        count += 1
    return count


cdef void sort_members(int32_t *members, int32_t count) noexcept nogil:
    cdef int32_t index, place, member
    for index in range(1, count):
        member = members[index]
        place = index
        while place > 0 and members[place - 1] > member:
            members[place] = members[place - 1]
            place -= 1
        members[place] = member
