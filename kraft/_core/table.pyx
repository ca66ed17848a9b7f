"""``PartitionTable``: every partition of a cluster, fed by record batches and encoded back into
them.

Owns the way out (``encode_*``, from columns to finished batches without the GIL) and the questions
that people ask. The way in is below: batches in ``replayed_rows``, single records in
``record_rows``, history in ``rows``, storage in ``columns``.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

import numpy as np
cimport numpy as cnp

from kraft._core.batch cimport append_record
from kraft._core.broker_index cimport BrokerRows
from kraft._core.columns cimport IRREGULAR
from kraft._core.partition_codec cimport (
    PARTITION_KEY, SIZE_OF_REMOVE_TOPIC, PartitionState, put_partition, put_remove_topic,
    put_topic, size_of_partition, size_of_topic,
)
from kraft._core.rows cimport NO_MEMORY, state_as_dict
from kraft._core.wire cimport likely, store_u32

from kraft.errors import (
    InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)

cnp.import_array()


cdef inline uint8_t *put_lists(
    uint8_t *p, const int32_t *replicas, int32_t replica_count, uint32_t isr, int32_t isr_count
) noexcept nogil:
    """Replicas, ISR, and the two empty lists of a partition that is not being reassigned."""
    cdef int32_t slot
    p[0] = <uint8_t>(replica_count + 1)
    p += 1
    for slot in range(replica_count):
        store_u32(p + 4 * slot, <uint32_t>replicas[slot])
    p += 4 * replica_count
    p[0] = <uint8_t>(isr_count + 1)
    p += 1
    for slot in range(isr_count):
        store_u32(p + 4 * slot, <uint32_t>replicas[((isr >> (4 * slot)) & 15) - 1])
    p += 4 * isr_count
    p[0] = 1
    p[1] = 1
    return p + 2


cdef class PartitionTable(ReplayedRows):
    """See ``table.pyi`` for the public face."""

    # -- records out

    cdef int encode_topic(self, BatchBuilder builder, int64_t topic) noexcept nogil:
        cdef int32_t name_size = 0
        cdef const uint8_t *name = self.topics.names.name(topic, &name_size)
        cdef uint8_t *p = builder.add_value(size_of_topic(name_size))
        if p == NULL:
            return -1
        put_topic(p, name, name_size, self.topic_id(topic))
        return 0

    cdef int encode_rows(self, BatchBuilder builder, const int32_t *rows, int64_t first,
                         int64_t count, int32_t version) noexcept nogil:
        """Partition records of the rows named, or (NULL) of `count` rows from `first` on."""
        cdef PartitionState state
        cdef int64_t index, row
        cdef uint8_t *p
        for index in range(count):
            row = first + index if rows == NULL else rows[index]
            if likely(
                self.isr[row] != IRREGULAR and not self.elr[row] and not self.last_known_elr[row]
                and not self.leader_recovery_state[row]
            ):
                if self.encode_regular(builder, row, version) == NULL:
                    return -1
                continue
            self.load_row(row, &state)
            p = builder.add_value(size_of_partition(&state, version))
            if p == NULL:
                return -1
            put_partition(
                p, &state, self.partition[row], self.topic_id(self.topic[row]), version,
                self.directory_ids(),
            )
        return 0

    cdef uint8_t *encode_regular(self, BatchBuilder builder, int64_t row,
                                 int32_t version) noexcept nogil:
        """A Partition record without tags, straight from the columns; NULL as from the builder."""
        cdef const int32_t *replicas = self.replicas + row * self.stride
        cdef const uint32_t *directories = self.directories + row * self.stride
        cdef const uint8_t *ids = self.directory_ids()
        cdef uint32_t packed = self.isr[row], left = packed
        cdef int32_t replica_count = 0, isr_count = 0, slot, size
        cdef uint8_t *p
        while replica_count < self.stride and replicas[replica_count] >= 0:
            replica_count += 1
        while left:
            isr_count += 1
            left >>= 4
        size = 3 + 20 + 1 + 4 * replica_count + 1 + 4 * isr_count + 2 + 12 + 1
        if version >= 1:
            size += 1 + 16 * replica_count
        p = append_record(
            builder, builder.next_offset, builder.timestamp_ms, NULL, -1, NULL, size, 0, NULL, 0, 0
        )
        if p == NULL:
            return NULL
        p[0] = 1
        p[1] = PARTITION_KEY
        p[2] = <uint8_t>version
        store_u32(p + 3, <uint32_t>self.partition[row])
        memcpy(p + 7, self.topic_id(self.topic[row]), 16)
        if likely(replica_count == 3 and isr_count == 3):
            # The usual numbers, as constants: the compiler then lays the loops out flat.
            p = put_lists(p + 23, replicas, 3, packed, 3)
        else:
            p = put_lists(p + 23, replicas, replica_count, packed, isr_count)
        store_u32(p, <uint32_t>self.leader[row])
        store_u32(p + 4, <uint32_t>self.leader_epoch[row])
        store_u32(p + 8, <uint32_t>self.partition_epoch[row])
        p += 12
        if version >= 1:
            p[0] = <uint8_t>(replica_count + 1)
            p += 1
            for slot in range(replica_count):
                memcpy(p, ids + 16 * <int64_t>directories[slot], 16)
                p += 16
        p[0] = 0
        return p

    def encode_partitions(self, BatchBuilder builder not None, rows=None, *, int32_t version):
        cdef int64_t count
        cdef int32_t[::1] wanted
        cdef int result = 0
        if not 0 <= version <= 2:
            raise UnsupportedVersionError(f"Partition has versions 0 to 2, not {version}")
        self.ensure_checked()
        chosen = self.live_rows() if rows is None else np.ascontiguousarray(rows, np.int32)
        wanted = chosen
        count = wanted.shape[0]
        self._check_rows(wanted)
        if count:
            with nogil:
                result = self.encode_rows(builder, &wanted[0], 0, count, version)
        if result < 0:
            builder.raise_failure()

    def encode_snapshot(self, BatchBuilder builder not None, *, int32_t version):
        cdef int64_t topic, index, count
        cdef int32_t *pairs = NULL
        cdef int32_t row
        cdef int result = 0
        if not 0 <= version <= 2:
            raise UnsupportedVersionError(f"Partition has versions 0 to 2, not {version}")
        self.ensure_checked()
        with nogil:
            for topic in range(self.topics.ids.count):
                if not self.topics.entry(topic).alive:
                    continue
                result = self.encode_topic(builder, topic)
                count = self.topics.entry(topic).partition_count
                if result == 0 and count == self.topics.entry(topic).row_count:
                    result = self.encode_rows(
                        builder, NULL, self.topics.entry(topic).first_row, count, version
                    )
                elif result == 0:
                    pairs = self.rows_of_topic(topic, &count)
                    if pairs == NULL:
                        result = NO_MEMORY
                        break
                    for index in range(count):
                        row = pairs[2 * index + 1]
                        if result == 0:
                            result = self.encode_rows(builder, &row, 0, 1, version)
                    free(pairs)
                if result < 0:
                    break
        if result == NO_MEMORY:
            raise MemoryError("no memory to encode the table")
        if result < 0:
            builder.raise_failure()

    def encode_topic_record(self, BatchBuilder builder not None, int64_t topic):
        self._check_topic(topic)
        if self.encode_topic(builder, topic) < 0:
            builder.raise_failure()

    def encode_topic_removal(self, BatchBuilder builder not None, int64_t topic):
        cdef uint8_t *p
        self._check_topic(topic)
        p = builder.add_value(SIZE_OF_REMOVE_TOPIC)
        if p == NULL:
            builder.raise_failure()
        put_remove_topic(p, self.topic_id(topic))

    # -- questions

    cdef object _check_rows(self, int32_t[::1] rows):
        cdef int64_t index
        for index in range(rows.shape[0]):
            if not 0 <= rows[index] < self.row_count or self.topic[rows[index]] < 0:
                raise InvalidRequestError(f"row {rows[index]} holds no partition")

    cdef object _check_topic(self, int64_t topic):
        if not 0 <= topic < self.topics.ids.count or not self.topics.entry(topic).alive:
            raise UnknownTopicOrPartitionError(f"no topic has the number {topic}")

    def live_rows(self):
        return np.flatnonzero(self.column("topic") >= 0).astype(np.int32)

    def topic_number(self, str name not None):
        return self.topics.names.get(name)

    def topic_number_by_id(self, const uint8_t[::1] topic_id not None):
        return self.topics.ids.get(topic_id)

    def topic_name(self, int64_t topic):
        return self.topics.names.key(topic)

    def topic_id_of(self, int64_t topic):
        return self.topics.ids.key(topic)

    def topic_numbers(self):
        cdef int64_t topic
        return [
            topic for topic in range(self.topics.ids.count) if self.topics.entry(topic).alive
        ]

    @property
    def topic_count(self):
        return len(self.topics)

    def topic_rows(self, int64_t topic):
        cdef int64_t count = 0, index
        cdef int32_t *pairs
        self._check_topic(topic)
        self.ensure_checked()
        pairs = self.rows_of_topic(topic, &count)
        if pairs == NULL and count:
            raise MemoryError("no memory for a topic's rows")
        rows = np.empty(count, np.int32)
        cdef int32_t[::1] out = rows
        for index in range(count):
            out[index] = pairs[2 * index + 1]
        free(pairs)
        return rows

    def row_of(self, int64_t topic, int32_t partition):
        self._check_topic(topic)
        return self.topics.row_of(<int32_t>topic, partition)

    def broker_rows(self, int32_t broker):
        """Rows in which the broker appears as replica, ISR or ELR member, ascending."""
        cdef BrokerRows *entry
        cdef int64_t index, count = 0
        self.ensure_index()
        entry = self.index.find(broker)
        if entry == NULL:
            return np.empty(0, np.int32)
        self.index.sort(entry)
        rows = np.empty(entry.count, np.int32)
        cdef int32_t[::1] out = rows
        for index in range(entry.count):
            if self._appears(entry.rows[index], broker):
                out[count] = entry.rows[index]
                count += 1
        return rows[:count]

    cdef bint _appears(self, int64_t row, int32_t broker) noexcept nogil:
        cdef PartitionState state
        cdef int32_t slot
        if row >= self.row_count or self.topic[row] < 0:
            return False
        self.load_row(row, &state)
        for slot in range(state.replica_count):
            if state.replicas[slot] == broker:
                return True
        for slot in range(state.isr_count):
            if state.isr[slot] == broker:
                return True
        for slot in range(state.elr_count):
            if state.elr[slot] == broker:
                return True
        return False

    def state_of(self, int64_t row):
        cdef PartitionState state
        if not 0 <= row < self.row_count:
            raise OffsetOutOfRangeError(f"row {row} is outside of 0 to {self.row_count - 1}")
        if self.pending_check is not None and not self.is_row_sound(row):
            self.ensure_checked()
        self.load_row(row, &state)
        return state_as_dict(&state)

    def directory_id(self, int64_t number):
        return self.directories_seen.key(number)

    def directory_number(self, const uint8_t[::1] directory_id not None):
        return self.directories_seen.put(directory_id)
