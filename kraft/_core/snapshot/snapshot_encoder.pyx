"""A snapshot of an image, encoded in memory a few records at a time.

Encodes an image's rows as Partition records while the table changes: the kernel of `table` encodes
unchanged rows from the columns, and the image's overlay provides rows that were changed, or whose
topic was removed, since. Batches end where `SnapshotWriter` of `snapshot_file` would end them: the
bytes are the same. Here a chunk of `SnapshotWriter` is several buffers, so that less memory is
allocated at once: the kernel needs milliseconds to find some MiB of large pages.

Invariants: between two calls only the next topic and partition id are kept, which do not depend on
changes of the table; a buffer ends at the end of a batch. Used by
``kraft.image.snapshot_generation``; uses `images`, `table` and `batch`.
"""

import struct

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kraft._core.bytes.batch cimport CONTROL_FLAG, BatchBuilder
from kraft._core.table.images cimport TableImage
from kraft._core.codec.partition_codec cimport PartitionState, put_partition, size_of_partition
from kraft._core.table.row_encoder cimport encode_rows, encode_topic
from kraft._core.table.table cimport PartitionTable
from kraft._core.table.topics cimport TopicEntry

from kraft._core.snapshot.snapshot_file import MAX_BATCH_RECORDS, CHUNK_SIZE
from kraft.errors import InvalidRequestError, UnsupportedVersionError

cdef enum:
    HEADER_TYPE = 3
    FOOTER_TYPE = 4
    BUFFER_SIZE = 512 * 1024
    # Rows looked up at a time, unless they are consecutive.
    MOST_ROWS = 1024


cdef class SnapshotEncoder:
    """See ``snapshot_encoder.pyi``."""

    cdef BatchBuilder _builder
    cdef list _buffers
    cdef int32_t _epoch
    cdef int64_t _timestamp_ms
    cdef int32_t _batch_records
    cdef int64_t _chunk_size
    cdef int64_t _chunk_bytes         # of the chunk, without the current builder
    cdef int64_t _chunk_records
    cdef TableImage _image
    cdef int64_t _topic                 # the next one
    cdef int64_t _topic_end
    cdef int64_t _partition             # of that topic; -1: its Topic record is next
    # For a topic with wide gaps between its ids: (partition, row) pairs of the image.
    cdef int32_t *_pairs
    cdef int64_t _pair_count

    def __init__(self, int32_t epoch, *, int64_t last_contained_log_timestamp_ms,
                 int64_t timestamp_ms, control_records=(),
                 int32_t max_batch_records=MAX_BATCH_RECORDS, Py_ssize_t chunk_size=CHUNK_SIZE):
        self._epoch = epoch
        self._timestamp_ms = timestamp_ms
        self._batch_records = max_batch_records
        self._chunk_size = chunk_size
        self._buffers = []
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
        """Append a control batch, and begin the next buffer after it."""
        builder = BatchBuilder(offset, self._epoch, self._timestamp_ms, CONTROL_FLAG)
        for type_, value in control_records:
            builder.append(value, struct.pack(">hh", 0, type_))
        offset = builder.next_offset
        self._buffers.append(builder.finish())
        self._begin(offset)

    cdef object _begin(self, int64_t offset):
        self._builder = BatchBuilder(
            offset, self._epoch, self._timestamp_ms, max_batch_records=self._batch_records,
            capacity=BUFFER_SIZE + (BUFFER_SIZE >> 2),
        )

    cdef object _flush(self):
        """End the current buffer; an incomplete batch ends here."""
        cdef int64_t offset = self._builder.next_offset
        batches = self._builder.finish()
        if len(batches):
            self._buffers.append(batches)
        self._begin(offset)

    cdef object _end_buffer(self):
        """End the buffer if it is large enough, and a batch where `SnapshotWriter` ends one.

        Call it after every record, or where nothing can be full.
        """
        cdef BatchBuilder builder = self._builder
        cdef int64_t byte_count = self._chunk_bytes + <int64_t>builder._size
        cdef int64_t record_count = self._chunk_records + builder.record_count
        if byte_count >= self._chunk_size and record_count % self._batch_records == 0:
            self._chunk_bytes = self._chunk_records = 0
            self._flush()
        elif builder._size >= BUFFER_SIZE and builder._batch_records == self._batch_records:
            # The next record would begin another batch anyway.
            self._chunk_bytes = byte_count
            self._chunk_records = record_count
            self._flush()

    def append_value(self, bytes value not None):
        cdef BatchBuilder builder = self._open()
        cdef Py_ssize_t size = len(value)
        cdef uint8_t *place = builder.add_value(<int32_t>size)
        if place == NULL:
            builder.raise_failure()
        memcpy(place, <const char *>value, size)
        self._end_buffer()

    def append_topics(self, TableImage image not None, *, int32_t version, int64_t max_steps):
        cdef int64_t steps = max_steps
        cdef int64_t topic
        self._open()
        if not 0 <= version <= 2:
            raise UnsupportedVersionError(f"Partition has versions 0 to 2, not {version}")
        if self._image is None:
            image.table.ensure_checked()
            self._image = image
            self._topic_end = image.table.topics.ids.count
            self._partition = -1
        elif self._image is not image:
            raise InvalidRequestError("a snapshot is of one image")
        image.catch_up()
        while self._topic < self._topic_end and steps > 0:
            topic = self._topic
            if self._partition < 0:
                # Its Topic record, or the check that there is no such topic.
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
        if encode_topic(self._image.table, self._builder, topic) < 0:
            self._builder.raise_failure()
        self._end_buffer()
        self._partition = 0
        free(self._pairs)
        self._pairs = NULL
        self._pair_count = 0

    cdef object _append_rows(self, int64_t topic, int32_t version, int64_t *steps):
        """Append the topic's next rows, one per step; `_partition` is -1 after the last."""
        cdef int32_t rows[MOST_ROWS]
        cdef TableImage image = self._image
        cdef PartitionTable table = image.table
        cdef int64_t most, count
        cdef int result = 0
        while steps[0] > 0:
            most = min(
                steps[0], <int64_t>MOST_ROWS,
                self._batch_records
                - (self._chunk_records + self._builder.record_count) % self._batch_records,
            )
            count = self._next_rows(topic, rows, most)
            # Keep the GIL: to take it back from another thread would take longer than this.
            result = self.encode(image, table, rows, count, topic, version)
            if result < 0:
                self._builder.raise_failure()
            # A topic without partitions, or an id without a partition, is a step as well.
            steps[0] -= max(count, <int64_t>1)
            self._end_buffer()
            if self._partition < 0:
                return

    cdef int64_t _next_rows(self, int64_t topic, int32_t *rows, int64_t most) except -1:
        """Return up to `most` rows from the next partition id on, and move it after them."""
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
        """Encode rows as they were in the image; return 0, or -1 if the builder rejected one."""
        cdef bint is_alive = table.topics.entry(topic).alive
        cdef PartitionState state
        cdef int64_t first = 0, index = 0
        cdef uint8_t *p
        if is_alive and image.overlaid_count == 0:
            return encode_rows(table, self._builder, rows, 0, count, version)
        while first < count:
            index = first
            while is_alive and index < count and image.find(rows[index]) == NULL:
                index += 1
            if index > first:
                if encode_rows(table, self._builder, rows + first, 0, index - first, version) < 0:
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

    def take(self):
        buffers, self._buffers = self._buffers, []
        return buffers
