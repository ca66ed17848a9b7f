"""Encoding of rows as Topic and Partition records, straight from columns to finished batches.

Functions over the rows of a table (``rows``), without the GIL and without a Python object a record.
``partition_writer`` holds the layout of a record and writes its parts. ``table``, ``snapshot_file``
and ``snapshot_encoder`` call it with a ``BatchBuilder``.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from kraft._core.bytes.batch cimport MOST_DELTA_SIZE, RecordRun, begin_run, end_run
from kraft._core.table.columns cimport IRREGULAR
from kraft._core.codec.partition_codec cimport (
    PartitionState, put_partition, put_topic, size_of_partition, size_of_topic,
)
from kraft._core.table.partition_writer cimport (
    LANES, SHAPES_OF_A_WIDTH, SLACK, RecordShape, continued_bits, next_delta, packed_count,
    prefetch_far, put_directories, put_front, put_members, put_packed_tag, put_scalars, put_three,
    replica_count_of, shape_of, spread_delta, three_fault,
)
from kraft._core.bytes.wire cimport likely, unlikely

cdef extern from *:
    """
    /* Compilers drop calls of a function that only prefetches; this prevents that at no cost. */
    static inline void kraft_keep_call(void) { __asm__ volatile (""); }
    """
    void kraft_keep_call() nogil

cdef enum:
    ROWS_AHEAD = 128            # how many rows ahead of the encoded row to prefetch

# Indexed by record version, size of the offset delta's varint - 1, and the counts of the lists.
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


cdef int encode_topic(TableRows table, BatchBuilder builder, int64_t topic) noexcept nogil:
    cdef int32_t name_size = 0
    cdef const uint8_t *name = table.topics.names.name(topic, &name_size)
    cdef uint8_t *p = builder.add_value(size_of_topic(name_size))
    if p == NULL:
        return -1
    put_topic(p, name, name_size, table.topic_id(topic))
    return 0


cdef int encode_rows(TableRows table, BatchBuilder builder, const int32_t *rows, int64_t first,
                     int64_t count, int32_t version) noexcept nogil:
    """Append Partition records of `rows`, or, if NULL, of `count` rows from `first` on."""
    cdef PartitionState state
    cdef int64_t index = 0, row
    cdef uint8_t *p
    while True:
        index = encode_run(table, builder, rows, first, index, count, version)
        if index >= count:
            return 0
        # A run ends at an irregular row, or if the batch is full or not open.
        row = first + index if rows == NULL else rows[index]
        table.load_row(row, &state)
        p = builder.add_value(size_of_partition(&state, version))
        if p == NULL:
            return -1
        put_partition(
            p, &state, table.partition[row], table.topic_id(table.topic[row]), version,
            table.directory_ids(),
        )
        index += 1


cdef void prefetch_lines(TableRows table, int64_t row) noexcept nogil:
    """Prefetch 16 rows: a line of each narrow column, `stride` lines of each wide one."""
    cdef const uint8_t *replicas = <const uint8_t *>(table.replicas + row * table.stride)
    cdef const uint8_t *directories = <const uint8_t *>(table.directories + row * table.stride)
    cdef int line
    kraft_keep_call()
    prefetch_far(table.isr + row)
    prefetch_far(table.elr + row)
    prefetch_far(table.last_known_elr + row)
    prefetch_far(table.leader_recovery_state + row)
    prefetch_far(table.leader + row)
    prefetch_far(table.leader_epoch + row)
    prefetch_far(table.partition_epoch + row)
    prefetch_far(table.partition + row)
    prefetch_far(table.topic + row)
    for line in range(table.stride):
        prefetch_far(replicas + 64 * line)
        prefetch_far(directories + 64 * line)


cdef void prefetch_rows(
    TableRows table, const int32_t *rows, int64_t first, int64_t index, int64_t count
) noexcept nogil:
    """Prefetch the 16 rows from `index` on, which are mostly adjacent."""
    cdef int64_t row
    if rows == NULL:
        # Rows after `count` are likely those of the next topic, which is encoded next.
        if first + index < table.row_count:
            prefetch_lines(table, first + index)
    elif index < count:
        row = rows[index]
        prefetch_lines(table, row)
        index = min(index + 15, count - 1)
        if rows[index] >= row + 16:
            prefetch_lines(table, rows[index] - 15)


cdef int64_t encode_run(
    TableRows table, BatchBuilder builder, const int32_t *rows, int64_t first, int64_t index,
    int64_t count, int32_t version,
) noexcept nogil:
    """Append Partition records from row `index` of `count` on to the open batch.

    Ends at an irregular row or a full batch; returns the index of the first row that was not
    written. Writes record bytes straight from the columns without branches on their widths, and
    updates the builder once, after the run.
    """
    cdef RecordRun run
    cdef RecordShape three
    cdef RecordShape tagged_shape
    cdef const RecordShape *shape
    cdef const RecordShape *shapes
    cdef const int32_t *replicas
    cdef int64_t row, last_row, end, replica_count, isr_count, start = index
    cdef int64_t stride = table.stride
    cdef uint64_t delta, continued
    cdef uint32_t packed, tagged
    cdef uint8_t *p
    cdef uint8_t *q
    if table.row_count * stride < LANES or not begin_run(builder, &run, SLACK):
        return index
    # After this row, fewer than LANES entries of replicas can be read.
    last_row = (table.row_count * stride - LANES) // stride
    end = min(count, index + run.most)
    shapes = SHAPES[version][run.delta_size - 1]
    three = shapes[3 << 4 | 3]
    delta = spread_delta(run.first_delta)
    continued = continued_bits(run.delta_size)
    p = run.start
    while index < end:
        if index & 15 == 0:
            prefetch_rows(table, rows, first, index + ROWS_AHEAD, count)
        row = first + index if rows == NULL else rows[index]
        packed = table.isr[row]
        tagged = (
            table.elr[row] | table.last_known_elr[row] | <uint32_t>table.leader_recovery_state[row]
        )
        if unlikely(row > last_row):
            break
        replicas = table.replicas + row * stride
        if likely((three_fault(replicas, packed, stride) | tagged) == 0):
            # As below, with constant counts, so that no address depends on a count.
            if unlikely(three.size > run.stop - p):
                break
            q = put_front(table, p, &three, delta | continued, row)
            q = put_scalars(table, put_three(q, replicas), row)
            if version >= 1:
                q = put_directories(table, q, row, 3)
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
                    size_of_tags(table, row, version),
                )
                shape = &tagged_shape
            if unlikely(shape.size > run.stop - p):
                break
            q = put_front(table, p, shape, delta | continued, row)
            q = put_members(q, replicas, replica_count, packed, isr_count)
            q = put_scalars(table, q, row)
            if version >= 1:
                q = put_directories(table, q, row, replica_count)
            if tagged:
                put_tags(table, q, row, version)
            else:
                q[0] = 0
            p += shape.size
        # No headers.
        (p - 1)[0] = 0
        delta = next_delta(delta)
        index += 1
    end_run(builder, &run, p, <int32_t>(index - start))
    return index


cdef int32_t size_of_tags(TableRows table, int64_t row, int32_t version) noexcept nogil:
    """Return the bytes of a regular row's tags, without their count."""
    cdef int32_t size = 3 if table.leader_recovery_state[row] else 0
    if version >= 2:
        if table.elr[row]:
            size += 3 + 4 * <int32_t>packed_count(table.elr[row])
        if table.last_known_elr[row]:
            size += 3 + 4 * <int32_t>packed_count(table.last_known_elr[row])
    return size


cdef void put_tags(TableRows table, uint8_t *p, int64_t row, int32_t version) noexcept nogil:
    cdef const int32_t *replicas = table.replicas + row * table.stride
    cdef uint8_t *count = p
    count[0] = 0
    p += 1
    if table.leader_recovery_state[row]:
        count[0] += 1
        p[0] = 0
        p[1] = 1
        p[2] = <uint8_t>table.leader_recovery_state[row]
        p += 3
    if version >= 2 and table.elr[row]:
        count[0] += 1
        p = put_packed_tag(p, 1, table.elr[row], replicas)
    if version >= 2 and table.last_known_elr[row]:
        count[0] += 1
        put_packed_tag(p, 2, table.last_known_elr[row], replicas)
