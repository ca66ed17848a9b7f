"""``PartitionTable``: the partitions of a cluster, replayed from record batches and encoded back.

A ``PartitionTable`` is a store of journaled rows (``rows``, ``columns``) with a ``Replayer``
(``replayed_rows``), which applies record batches to them, and with functions that encode them
(``row_encoder``). This module adds the checks and the queries for Python callers.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free

import numpy as np
cimport numpy as cnp

from kraft._core.bytes.batch cimport BatchBuilder
from kraft._core.table.broker_index cimport BrokerRows
from kraft._core.table.images cimport TableDelta, TableImage
from kraft._core.codec.partition_codec cimport (
    SIZE_OF_REMOVE_TOPIC, PartitionState, put_remove_topic,
)
from kraft._core.table.row_encoder cimport encode_rows, encode_topic
from kraft._core.table.rows cimport NO_MEMORY, state_as_dict
from kraft._core.bytes.wire cimport unlikely

from kraft._core.table.compaction import Compaction
from kraft._core.table.record_rows import clear_elr
from kraft.errors import (
    InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)

cnp.import_array()


cdef class PartitionTable(TableRows):
    """See ``table.pyi`` for the public interface."""

    def __cinit__(self, **_):
        self.replayer = Replayer()

    # -- replay

    def apply(self, buffer, *, int64_t start_offset=0, int64_t end_offset=0x7FFFFFFFFFFFFFFF,
              bint verify_crc=True, on_record=None, on_control=None, on_topic_removed=None,
              path=None, int64_t base_position=0):
        return self.replayer.apply(
            self, buffer, start_offset, end_offset, verify_crc, on_record, on_control,
            on_topic_removed, path, base_position,
        )

    def clear_elr(self, topic, int64_t offset):
        clear_elr(self, topic, offset)

    @property
    def counts_by_key(self):
        return self.replayer.counts_by_key

    @property
    def election_counts(self):
        return self.replayer.election_counts

    # -- images and deltas

    def image(self, offset=None):
        return TableImage(self, self.journal_tip() if offset is None else offset)

    def delta(self, int64_t since_offset, offset=None):
        return TableDelta(self.image(since_offset), self.image(offset))

    @staticmethod
    def from_image(TableImage image not None):
        cdef TableRows source = image.table
        cdef PartitionTable fresh
        cdef PartitionState state
        cdef int64_t topic, number, placed, index, count
        cdef int32_t *pairs
        cdef int32_t name_size = 0
        cdef const uint8_t *name
        image.catch_up()
        source.ensure_checked()
        fresh = PartitionTable(capacity=image.rows_then, stride=source.stride)
        for number in range(fresh.directories_seen.count, source.directories_seen.count):
            fresh.directories_seen.put(source.directories_seen.key(number))
        for topic in image.topic_numbers():
            name = source.topics.names.name(topic, &name_size)
            number = fresh.add_topic(name, name_size, source.topic_id(topic), 0)
            if number < 0:
                raise MemoryError("no memory for the table of an image")
            count = 0
            pairs = image.row_pairs(topic, &count)
            for index in range(count):
                image.load_row(pairs[2 * index + 1], &state)
                placed = fresh.append_row(<int32_t>number, pairs[2 * index], 0)
                if placed < 0 or fresh.store_row(placed, &state) < 0:
                    free(pairs)
                    raise MemoryError("no memory for the table of an image")
            free(pairs)
        return fresh

    # -- compaction

    def begin_compaction(self):
        # The first rows would be the first writes to a huge page in every column: 20 ms.
        return Compaction(self, self._of_live_rows(huge_pages=False))

    def compact(self):
        Compaction(self, self._of_live_rows(huge_pages=True)).finish()

    def _of_live_rows(self, *, bint huge_pages):
        """Return an empty table with memory for the live rows."""
        return type(self)(
            capacity=self.partition_count, stride=self.stride, huge_pages=huge_pages
        )

    # -- encoding

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
                result = encode_rows(self, builder, &wanted[0], 0, count, version)
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
                result = encode_topic(self, builder, topic)
                count = self.topics.entry(topic).partition_count
                if result == 0 and count == self.topics.entry(topic).row_count:
                    result = encode_rows(
                        self, builder, NULL, self.topics.entry(topic).first_row, count, version
                    )
                elif result == 0:
                    pairs = self.rows_of_topic(topic, &count)
                    if pairs == NULL:
                        result = NO_MEMORY
                        break
                    for index in range(count):
                        row = pairs[2 * index + 1]
                        if result == 0:
                            result = encode_rows(self, builder, &row, 0, 1, version)
                    free(pairs)
                if result < 0:
                    break
        if result == NO_MEMORY:
            raise MemoryError("no memory to encode the table")
        if result < 0:
            builder.raise_failure()

    def encode_topic_record(self, BatchBuilder builder not None, int64_t topic):
        self._check_topic(topic)
        if encode_topic(self, builder, topic) < 0:
            builder.raise_failure()

    def encode_topic_removal(self, BatchBuilder builder not None, int64_t topic):
        cdef uint8_t *p
        self._check_topic(topic)
        p = builder.add_value(SIZE_OF_REMOVE_TOPIC)
        if p == NULL:
            builder.raise_failure()
        put_remove_topic(p, self.topic_id(topic))

    # -- queries

    cdef object _check_rows(self, int32_t[::1] rows):
        cdef int64_t index, row_count = self.row_count
        cdef const int32_t *topic = self.topic
        for index in range(rows.shape[0]):
            if unlikely(not 0 <= rows[index] < row_count or topic[rows[index]] < 0):
                raise InvalidRequestError(f"row {rows[index]} holds no partition")

    cdef object _check_topic(self, int64_t topic):
        if not 0 <= topic < self.topics.ids.count or not self.topics.entry(topic).alive:
            raise UnknownTopicOrPartitionError(f"no topic has the number {topic}")

    def live_rows(self):
        return np.flatnonzero(self.column("topic") >= 0).astype(np.int32)

    def topic_number(self, str name not None):
        return self.topics.names.get(name)

    def topic_number_by_id(self, topic_id not None):
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
