"""``PartitionTable``: every partition of a cluster, fed by record batches and encoded back into
them.

Owns the way out (``encode_*``, from columns to finished batches without the GIL) and the questions
that people ask. The way in is below: batches in ``replayed_rows``, single records in
``record_rows``, history in ``rows``, storage in ``columns``.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free

import numpy as np
cimport numpy as cnp

from kraft._core.batch cimport MOST_DELTA_SIZE, RecordRun, begin_run, end_run
from kraft._core.broker_index cimport BrokerRows
from kraft._core.columns cimport IRREGULAR
from kraft._core.partition_codec cimport (
    SIZE_OF_REMOVE_TOPIC, PartitionState, put_partition, put_remove_topic, put_topic,
    size_of_partition, size_of_topic,
)
from kraft._core.partition_writer cimport (
    LANES, SHAPES_OF_A_WIDTH, SLACK, RecordShape, continued_bits, next_delta, packed_count,
    prefetch_far, put_directories, put_front, put_members, put_packed_tag, put_scalars, put_three,
    replica_count_of, shape_of, spread_delta, three_fault,
)
from kraft._core.rows cimport NO_MEMORY, state_as_dict
from kraft._core.wire cimport likely, unlikely

from kraft.errors import (
    InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)

cnp.import_array()

cdef enum:
    ROWS_AHEAD = 128            # rows between what is encoded and what the caches are asked for

# By the record's version, the bytes of its offset delta's varint less one, and its lists' counts.
cdef RecordShape[3][MOST_DELTA_SIZE][SHAPES_OF_A_WIDTH] SHAPES


cdef void fill_shapes() noexcept nogil:
    cdef int32_t version, delta_size, replica_count, isr_count
    for version in range(3):
        for delta_size in range(1, MOST_DELTA_SIZE + 1):
            for replica_count in range(9):
                for isr_count in range(9):
                    SHAPES[version][delta_size - 1][replica_count << 4 | isr_count] = shape_of(
                        version, replica_count, isr_count, delta_size, 0
                    )


fill_shapes()


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
        cdef int64_t index = 0, row
        cdef uint8_t *p
        while True:
            index = self.encode_run(builder, rows, first, index, count, version)
            if index >= count:
                return 0
            # What ends a run: a row that is no regular one, or a batch that is full or not open.
            row = first + index if rows == NULL else rows[index]
            self.load_row(row, &state)
            p = builder.add_value(size_of_partition(&state, version))
            if p == NULL:
                return -1
            put_partition(
                p, &state, self.partition[row], self.topic_id(self.topic[row]), version,
                self.directory_ids(),
            )
            index += 1

    cdef void prefetch_lines(self, int64_t row) noexcept nogil:
        """Those of 16 rows from `row` on: one of each narrow column, `stride` of each wide one.

        A method, as a compiler drops the calls of a plain function that only prefetches.
        """
        cdef const uint8_t *replicas = <const uint8_t *>(self.replicas + row * self.stride)
        cdef const uint8_t *directories = <const uint8_t *>(self.directories + row * self.stride)
        cdef int line
        prefetch_far(self.isr + row)
        prefetch_far(self.elr + row)
        prefetch_far(self.last_known_elr + row)
        prefetch_far(self.leader_recovery_state + row)
        prefetch_far(self.leader + row)
        prefetch_far(self.leader_epoch + row)
        prefetch_far(self.partition_epoch + row)
        prefetch_far(self.partition + row)
        prefetch_far(self.topic + row)
        for line in range(self.stride):
            prefetch_far(replicas + 64 * line)
            prefetch_far(directories + 64 * line)

    cdef void prefetch_rows(
        self, const int32_t *rows, int64_t first, int64_t index, int64_t count
    ) noexcept nogil:
        """Asks for the cache lines of the 16 rows from `index` on, which mostly lie in a row."""
        cdef int64_t row
        if rows == NULL:
            # What comes behind `count` is likely to be the next topic's, encoded next.
            if first + index < self.row_count:
                self.prefetch_lines(first + index)
        elif index < count:
            row = rows[index]
            self.prefetch_lines(row)
            index = min(index + 15, count - 1)
            if rows[index] >= row + 16:
                self.prefetch_lines(rows[index] - 15)

    cdef int64_t encode_run(
        self, BatchBuilder builder, const int32_t *rows, int64_t first, int64_t index,
        int64_t count, int32_t version,
    ) noexcept nogil:
        """Partition records from row `index` of `count` on into the open batch, as long as the rows
        are no irregular ones and the batch has room; the first row that is not written.

        Straight from the columns into a record's bytes, without a branch on how wide anything is.
        The builder is told once, behind the run.
        """
        cdef RecordRun run
        cdef RecordShape three
        cdef RecordShape tagged_shape
        cdef const RecordShape *shape
        cdef const RecordShape *shapes
        cdef const int32_t *replicas
        cdef int64_t row, last_row, end, replica_count, isr_count, start = index
        cdef int64_t stride = self.stride
        cdef uint64_t delta, continued
        cdef uint32_t packed, tagged
        cdef uint8_t *p
        cdef uint8_t *q
        if self.row_count * stride < LANES or not begin_run(builder, &run, SLACK):
            return index
        # Behind this row, LANES entries of replicas are no longer there to read.
        last_row = (self.row_count * stride - LANES) // stride
        end = min(count, index + run.most)
        shapes = SHAPES[version][run.delta_size - 1]
        three = shapes[3 << 4 | 3]
        delta = spread_delta(run.first_delta)
        continued = continued_bits(run.delta_size)
        p = run.start
        while index < end:
            if index & 15 == 0:
                self.prefetch_rows(rows, first, index + ROWS_AHEAD, count)
            row = first + index if rows == NULL else rows[index]
            packed = self.isr[row]
            tagged = (
                self.elr[row] | self.last_known_elr[row] | <uint32_t>self.leader_recovery_state[row]
            )
            if unlikely(row > last_row):
                break
            replicas = self.replicas + row * stride
            if likely((three_fault(replicas, packed, stride) | tagged) == 0):
                # The same as below with the numbers known, so that no address waits for a count.
                if unlikely(three.size > run.stop - p):
                    break
                q = put_front(self, p, &three, delta | continued, row)
                q = put_scalars(self, put_three(q, replicas), row)
                if version >= 1:
                    q = put_directories(self, q, row, 3)
                q[0] = 0
                p += three.size
            else:
                if unlikely(packed == IRREGULAR):
                    break
                replica_count = replica_count_of(replicas, stride)
                isr_count = packed_count(packed)
                shape = shapes + (replica_count << 4 | isr_count)
                if tagged:
                    tagged_shape = shape_of(
                        version, <int32_t>replica_count, <int32_t>isr_count, run.delta_size,
                        self.size_of_tags(row, version),
                    )
                    shape = &tagged_shape
                if unlikely(shape.size > run.stop - p):
                    break
                q = put_front(self, p, shape, delta | continued, row)
                q = put_members(q, replicas, replica_count, packed, isr_count)
                q = put_scalars(self, q, row)
                if version >= 1:
                    q = put_directories(self, q, row, replica_count)
                if tagged:
                    self.put_tags(q, row, version)
                else:
                    q[0] = 0
                p += shape.size
            # No headers.
            (p - 1)[0] = 0
            delta = next_delta(delta)
            index += 1
        end_run(builder, &run, p, <int32_t>(index - start))
        return index

    cdef int32_t size_of_tags(self, int64_t row, int32_t version) noexcept nogil:
        """Bytes of the tags of a row that is not irregular, behind their count."""
        cdef int32_t size = 3 if self.leader_recovery_state[row] else 0
        if version >= 2:
            if self.elr[row]:
                size += 3 + 4 * <int32_t>packed_count(self.elr[row])
            if self.last_known_elr[row]:
                size += 3 + 4 * <int32_t>packed_count(self.last_known_elr[row])
        return size

    cdef void put_tags(self, uint8_t *p, int64_t row, int32_t version) noexcept nogil:
        cdef const int32_t *replicas = self.replicas + row * self.stride
        cdef uint8_t *count = p
        count[0] = 0
        p += 1
        if self.leader_recovery_state[row]:
            count[0] += 1
            p[0] = 0
            p[1] = 1
            p[2] = <uint8_t>self.leader_recovery_state[row]
            p += 3
        if version >= 2 and self.elr[row]:
            count[0] += 1
            p = put_packed_tag(p, 1, self.elr[row], replicas)
        if version >= 2 and self.last_known_elr[row]:
            count[0] += 1
            put_packed_tag(p, 2, self.last_known_elr[row], replicas)

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
