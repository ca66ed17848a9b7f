"""A snapshot as pieces of memory, from an image of the table while the tip moves on.

Owns how an image's rows become Partition records: rows that nothing has touched since go straight
from the columns through the kernel of `table`, those that were changed or whose topic is gone since
are spread out from the image's overlay. Owns where a batch ends, which is where `SnapshotWriter`
of `snapshot_file` would end one: the bytes are the same. Its pieces are a stretch here, so that
memory is asked for in smaller ones: the kernel takes milliseconds to find some MiB of large pages.

Invariants: between two calls only the next topic and partition id are kept, which stay what they
are whatever the tip does; a piece ends at the end of a batch. Feeds on `history`, `table` and
`batch`; fed by ``kraft.image.snapshot_generation``.
"""

import struct

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kraft._core.batch cimport CONTROL_FLAG, BatchBuilder
from kraft._core.history cimport TableImage
from kraft._core.partition_codec cimport PartitionState, put_partition, size_of_partition
from kraft._core.table cimport PartitionTable
from kraft._core.topics cimport TopicEntry

from kraft._core.snapshot_file import MAX_BATCH_RECORDS, PIECE_SIZE
from kraft.errors import InvalidRequestError, UnsupportedVersionError

cdef enum:
    HEADER_TYPE = 3
    FOOTER_TYPE = 4
    READY_SIZE = 512 * 1024
    # Rows that are looked up at a time, where they do not follow each other.
    MOST_ROWS = 1024


cdef class SnapshotPieces:
    """See ``snapshot_pieces.pyi``."""

    cdef BatchBuilder _builder
    cdef list _ready
    cdef int32_t _epoch
    cdef int64_t _timestamp_ms
    cdef int32_t _batch_records
    cdef int64_t _stretch_size
    cdef int64_t _stretch_bytes         # of the stretch, before the builder at hand
    cdef int64_t _stretch_records
    cdef TableImage _image
    cdef PartitionTable _table          # of the image
    cdef int64_t _topic                 # the next one
    cdef int64_t _topic_end
    cdef int64_t _partition             # of that topic; -1: its own record comes first
    # Of a topic with wide gaps between its ids: (partition, row) pairs as they were.
    cdef int32_t *_pairs
    cdef int64_t _pair_count

    def __init__(self, int32_t epoch, *, int64_t last_contained_log_timestamp_ms,
                 int64_t timestamp_ms, control_records=(),
                 int32_t max_batch_records=MAX_BATCH_RECORDS, Py_ssize_t piece_size=PIECE_SIZE):
        self._epoch = epoch
        self._timestamp_ms = timestamp_ms
        self._batch_records = max_batch_records
        self._stretch_size = piece_size
        self._ready = []
        header = struct.pack(">hqb", 0, last_contained_log_timestamp_ms, 0)
        self._control(0, [(HEADER_TYPE, header), *control_records])

    def __dealloc__(self):
        free(self._pairs)

    @property
    def next_offset(self):
        return self._open().next_offset

    cdef BatchBuilder _open(self):
        if self._builder is None:
            raise InvalidRequestError("the snapshot is finished")
        return self._builder

    cdef object _control(self, int64_t offset, control_records):
        """A control batch, and behind it the beginning of the next piece."""
        builder = BatchBuilder(offset, self._epoch, self._timestamp_ms, CONTROL_FLAG)
        for type_, value in control_records:
            builder.append(value, struct.pack(">hh", 0, type_))
        offset = builder.next_offset
        self._ready.append(builder.finish())
        self._begin(offset)

    cdef object _begin(self, int64_t offset):
        self._builder = BatchBuilder(
            offset, self._epoch, self._timestamp_ms, max_batch_records=self._batch_records,
            capacity=READY_SIZE + (READY_SIZE >> 2),
        )

    cdef object _flush(self):
        """What is built so far is a piece; a batch that is not full yet ends here."""
        cdef int64_t offset = self._builder.next_offset
        batches = self._builder.finish()
        if len(batches):
            self._ready.append(batches)
        self._begin(offset)

    cdef object _end_piece(self):
        """To be asked behind every record, or where nothing can be full: ends a piece where it is
        large enough, and a batch where `SnapshotWriter` ends one that is not full.
        """
        cdef BatchBuilder builder = self._builder
        cdef int64_t byte_count = self._stretch_bytes + <int64_t>builder._size
        cdef int64_t record_count = self._stretch_records + builder.record_count
        if byte_count >= self._stretch_size and record_count % self._batch_records == 0:
            self._stretch_bytes = self._stretch_records = 0
            self._flush()
        elif builder._size >= READY_SIZE and builder._batch_records == self._batch_records:
            # The next record would begin another batch anyway.
            self._stretch_bytes = byte_count
            self._stretch_records = record_count
            self._flush()

    def append_value(self, bytes value not None):
        cdef BatchBuilder builder = self._open()
        cdef Py_ssize_t size = len(value)
        cdef uint8_t *place = builder.add_value(<int32_t>size)
        if place == NULL:
            builder.raise_failure()
        memcpy(place, <const char *>value, size)
        self._end_piece()

    def append_topics(self, TableImage image not None, *, int32_t version, int64_t max_steps):
        cdef int64_t steps = max_steps
        cdef int64_t topic
        self._open()
        if not 0 <= version <= 2:
            raise UnsupportedVersionError(f"Partition has versions 0 to 2, not {version}")
        if self._image is None:
            image.table.ensure_checked()
            self._image = image
            self._table = image.table
            self._topic_end = image.table.topics.ids.count
            self._partition = -1
        elif self._image is not image:
            raise InvalidRequestError("a snapshot is of one image")
        image.catch_up()
        while self._topic < self._topic_end and steps > 0:
            topic = self._topic
            if self._partition < 0:
                # Its own record, or that there was no such topic.
                steps -= 1
            if image.had_topic(topic):
                if self._partition < 0:
                    self._append_topic(topic)
                self._append_rows(topic, version, &steps)
                if self._partition >= 0:
                    # The topic has more rows.
                    break
            self._topic += 1
        return self._topic == self._topic_end

    cdef object _append_topic(self, int64_t topic):
        if self._table.encode_topic(self._builder, topic) < 0:
            self._builder.raise_failure()
        self._end_piece()
        self._partition = 0
        free(self._pairs)
        self._pairs = NULL
        self._pair_count = 0

    cdef object _append_rows(self, int64_t topic, int32_t version, int64_t *steps):
        """The topic's next rows, as many as there are steps; `_partition` is -1 behind the last."""
        cdef int32_t rows[MOST_ROWS]
        cdef TableImage image = self._image
        cdef PartitionTable table = self._table
        cdef int64_t most, count
        cdef int result = 0
        while steps[0] > 0:
            most = min(
                steps[0], <int64_t>MOST_ROWS,
                self._batch_records
                - (self._stretch_records + self._builder.record_count) % self._batch_records,
            )
            count = self._next_rows(topic, rows, most)
            # Without giving the interpreter's lock away: to get it back from another thread would
            # take longer than this.
            result = self.encode(image, table, rows, count, topic, version)
            if result < 0:
                self._builder.raise_failure()
            # A topic without partitions, or an id that is not there, is a step as well.
            steps[0] -= max(count, <int64_t>1)
            self._end_piece()
            if self._partition < 0:
                return

    cdef int64_t _next_rows(self, int64_t topic, int32_t *rows, int64_t most) except -1:
        """Up to `most` rows from the next partition id on, which moves behind them."""
        cdef TableImage image = self._image
        cdef const TopicEntry *entry = image.table.topics.entry(topic)
        cdef int64_t count = 0, row, looked = 0, partition = self._partition, end, low, middle
        if entry.partition_count == entry.row_count:
            # One extent, of which the image has the front.
            partition = max(partition, <int64_t>entry.first_partition)
            end = min(<int64_t>entry.row_count, max(<int64_t>0, image.rows_then - entry.first_row))
            end += entry.first_partition
            while count < most and partition < end:
                rows[count] = <int32_t>(entry.first_row + partition - entry.first_partition)
                count += 1
                partition += 1
            self._partition = partition if partition < end else -1
        elif <int64_t>entry.max_partition < 4 * <int64_t>entry.partition_count:
            while count < most and looked < 4 * most and partition <= entry.max_partition:
                row = image.table.topics.row_of(<int32_t>topic, <int32_t>partition)
                if 0 <= row < image.rows_then:
                    rows[count] = <int32_t>row
                    count += 1
                looked += 1
                partition += 1
            self._partition = partition if partition <= entry.max_partition else -1
        else:
            if self._pairs == NULL:
                self._pairs = image.row_pairs(topic, &self._pair_count)
            low = 0
            end = self._pair_count
            while low < end:
                middle = low + (end - low) // 2
                if self._pairs[2 * middle] < partition:
                    low = middle + 1
                else:
                    end = middle
            while count < most and low < self._pair_count:
                rows[count] = self._pairs[2 * low + 1]
                partition = <int64_t>self._pairs[2 * low] + 1
                count += 1
                low += 1
            self._partition = partition if low < self._pair_count else -1
        return count

    cdef int encode(self, TableImage image, PartitionTable table, const int32_t *rows,
                    int64_t count, int64_t topic, int32_t version) noexcept nogil:
        """Partition records of rows as they were: 0, or -1 where the builder refused."""
        cdef bint is_alive = table.topics.entry(topic).alive
        cdef PartitionState state
        cdef int64_t first = 0, index = 0
        cdef uint8_t *p
        if is_alive and image.overlaid_count == 0:
            return table.encode_rows(self._builder, rows, 0, count, version)
        while first < count:
            index = first
            while is_alive and index < count and image.find(rows[index]) == NULL:
                index += 1
            if index > first:
                if table.encode_rows(self._builder, rows + first, 0, index - first, version) < 0:
                    return -1
            if index < count:
                image.load_row(rows[index], &state)
                p = self._builder.add_value(size_of_partition(&state, version))
                if p == NULL:
                    return -1
                put_partition(
                    p, &state, table.partition[rows[index]], table.topic_id(topic), version,
                    table.directory_ids(),
                )
                index += 1
            first = index
        return 0

    def finish(self):
        cdef BatchBuilder builder = self._open()
        cdef int64_t offset = builder.next_offset
        self._flush()
        self._control(offset, [(FOOTER_TYPE, struct.pack(">hb", 0, 0))])
        self._builder = None
        self._image = None
        self._table = None

    def take(self):
        ready, self._ready = self._ready, []
        return ready
