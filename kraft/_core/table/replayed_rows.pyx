"""Replaying record batches into rows, without a Python object a record and without the GIL.

Walks over batches and records and checks their order and offsets. Records of other types go to a
callback in the order of the log, so that one replay serves partitions and everything else. Nearly
every record of a snapshot is the next partition of the current topic, in a regular form:
``partition_runs`` applies those. ``record_rows`` applies the others; ``partition_codec`` holds the
byte layouts.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from kraft._core.bytes.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, CONTROL_FLAG, CRC_START, LOG_OVERHEAD, BatchHeader, RecordFrame,
    next_record, read_batch_header,
)
from kraft._core.bytes.crc32c cimport crc32c_of
from kraft._core.table.columns cimport IRREGULAR, MAX_STRIDE
from kraft._core.codec.partition_codec cimport (
    CHANGE_RECOVERY, CODEC_MALFORMED, CODEC_UNSUPPORTED_VERSION, NO_OP_KEY, PARTITION_CHANGE_KEY,
    PARTITION_KEY, REMOVE_TOPIC_KEY, TOPIC_KEY, ChangeView, PartitionState, PartitionView,
    parse_change, parse_partition, parse_remove_topic, parse_topic, skip_tags,
)
from kraft._core.table.partition_runs cimport apply_partitions
from kraft._core.table.record_rows cimport (
    ELECTED_ELIGIBLE, NEEDS_ROWS, ApplyCursor, apply_change, apply_partition, expect_next,
)
from kraft._core.table.record_views cimport DIRECTORY_CACHE_SIZE
from kraft._core.table.rows cimport NO_MEMORY, UNKNOWN_TOPIC
from kraft._core.bytes.wire cimport get_uvarint, likely, load_u32

from kraft._core.bytes.batch import reason_text as batch_reason_text
from kraft._core.codec.partition_codec import reason_text
from kraft._core.table.rows import refusal
from kraft.errors import CorruptRecordError, UnsupportedVersionError

cdef enum:
    # A frame of 8 bytes around a value of 42: no replicas, nothing else. It bounds the number of
    # rows that input bytes can make the table reserve.
    SMALLEST_PARTITION_RECORD = 50
    # A cold load samples this many batches, and records of each, to choose the stride.
    SAMPLED_BATCHES = 64
    SAMPLED_RECORDS = 64

# Counts after those of the API keys: changes that set the recovery state RECOVERING, and those that
# elected an eligible leader replica, as Kafka's TopicDelta counts them.
cdef enum:
    UNCLEAN_ELECTIONS = 64
    ELIGIBLE_ELECTIONS = 65
    RECOVERING = 1

# Why apply_records stopped, beside the negative reasons of parsers and rows.
cdef enum Stop:
    BATCH_DONE = 0
    FOREIGN_RECORD = 1          # a record of another type: call the callback
    TOPIC_GONE = 2              # a RemoveTopic was applied: call the callback
    RECORD_MALFORMED = -1001
    FRAME_VERSION = -1002
    OFFSET_OUT_OF_PLACE = -1003

# Why apply_batches stopped before a batch; after it began one, a `Stop`.
cdef enum BatchStop:
    END_REACHED = 10
    CONTROL_BATCH = 11          # call the callback with its records
    MANY_IRREGULAR = 12         # widen the stride if that pays, and retry the batch
    HEADER_MALFORMED = -2001
    CRC_WRONG = -2002
    COMPRESSED = -2003
    OUT_OF_PYTHON = -2004       # an exception is set


cdef int64_t rows_in(const uint8_t *data, int64_t size) noexcept nogil:
    """Return an upper bound of the partitions in the batches: a cold load allocates once."""
    cdef BatchHeader header
    cdef int64_t position = 0, rows = 0
    while read_batch_header(data + position, size - position, &header) == 0:
        if not header.attributes & CONTROL_FLAG:
            rows += min(
                <int64_t>header.record_count,
                header.batch_length // <int64_t>SMALLEST_PARTITION_RECORD,
            )
        position += LOG_OVERHEAD + <int64_t>header.batch_length
    return rows


cdef int stride_for(const uint8_t *data, int64_t size, int least) noexcept nogil:
    """Return the stride, not below `least`, that fits nearly all partitions of sampled batches."""
    cdef BatchHeader header
    cdef RecordFrame frame
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int64_t position = 0, behind, step = size // SAMPLED_BATCHES, next_sample = 0
    cdef int64_t seen[MAX_STRIDE + 2]
    cdef int64_t total = 0, above = 0
    cdef int32_t count, _index
    cdef int stride
    for stride in range(MAX_STRIDE + 2):
        seen[stride] = 0
    while read_batch_header(data + position, size - position, &header) == 0:
        behind = position + LOG_OVERHEAD + header.batch_length
        if position >= next_sample and not header.attributes & (CONTROL_FLAG | CODEC_MASK):
            next_sample = position + step
            p = data + position + BATCH_OVERHEAD
            end = data + behind
            for _index in range(min(header.record_count, <int32_t>SAMPLED_RECORDS)):
                p = next_record(p, end, &frame)
                if p == NULL:
                    break
                if (
                    frame.value_size > 23 and frame.value[0] == 1
                    and frame.value[1] == PARTITION_KEY
                ):
                    count = <int32_t>frame.value[23] - 1
                    seen[min(max(count, 0), MAX_STRIDE + 1)] += 1
                    total += 1
        position = behind
    # A row in the side table costs about as much as fifty columns of one slot: allow 1 in 32.
    for stride in range(MAX_STRIDE, least, -1):
        above += seen[stride]
        if above * 32 > total:
            return stride
    return least


cdef int apply_records(TableRows rows, ApplyCursor *cursor, int64_t *record_counts) noexcept nogil:
    """Apply records until the batch ends or the caller must act; return a ``Stop`` or a reason."""
    cdef const uint8_t *p
    cdef const uint8_t *body
    cdef const uint8_t *end
    cdef const uint8_t *name = NULL
    cdef const uint8_t *topic_id = NULL
    cdef uint32_t frame_version = 0, api_key = 0, version = 0
    cdef int32_t name_size = 0, left
    cdef int64_t topic
    cdef PartitionView partition
    cdef ChangeView change
    cdef int result
    while cursor.records_left > 0:
        if cursor.next_partition >= 0:
            left = cursor.records_left
            result = apply_partitions(rows, cursor)
            record_counts[<int>PARTITION_KEY] += left - cursor.records_left
            if result < 0:
                return result
            if cursor.records_left == 0:
                break
        cursor.record = cursor.p
        p = next_record(cursor.p, cursor.end, &cursor.frame)
        if p == NULL or cursor.frame.value_size < 3:
            return RECORD_MALFORMED
        if not cursor.next_delta <= cursor.frame.offset_delta <= cursor.last_delta:
            return OFFSET_OUT_OF_PLACE
        cursor.next_delta = <int64_t>cursor.frame.offset_delta + 1
        cursor.p = p
        cursor.records_left -= 1
        cursor.offset = cursor.base_offset + cursor.frame.offset_delta
        if cursor.offset < cursor.start_offset:
            continue
        if cursor.offset >= cursor.end_offset:
            cursor.records_left = 0
            return BATCH_DONE
        body = cursor.frame.value
        end = body + cursor.frame.value_size
        if likely(body[0] == 1 and body[1] < 0x80 and body[2] < 0x80):
            api_key = body[1]
            version = body[2]
            body += 3
        else:
            body = get_uvarint(body, end, &frame_version)
            if body != NULL and frame_version != 1:
                return FRAME_VERSION
            body = get_uvarint(body, end, &api_key)
            body = get_uvarint(body, end, &version)
            if body == NULL or version > 0x7FFF:
                return CODEC_MALFORMED
        record_counts[min(api_key, <uint32_t>63)] += 1
        if api_key == PARTITION_KEY:
            result = parse_partition(body, end, version, &partition)
            if result == 0:
                result = apply_partition(rows, cursor, &partition)
            if result == NEEDS_ROWS:
                record_counts[<int>PARTITION_KEY] -= 1
                cursor.p = cursor.record
                cursor.records_left += 1
                cursor.next_delta = cursor.frame.offset_delta
            if result != 0:
                return result
        elif api_key == PARTITION_CHANGE_KEY:
            result = parse_change(body, end, version, &change)
            if result == 0:
                result = apply_change(rows, cursor, &change)
            if result < 0:
                return result
            record_counts[<int>ELIGIBLE_ELECTIONS] += result == ELECTED_ELIGIBLE
            if change.fields & CHANGE_RECOVERY and change.leader_recovery_state == RECOVERING:
                record_counts[<int>UNCLEAN_ELECTIONS] += 1
        elif version and (api_key == TOPIC_KEY or api_key == REMOVE_TOPIC_KEY):
            return CODEC_UNSUPPORTED_VERSION
        elif api_key == TOPIC_KEY:
            if parse_topic(body, end, &name, &name_size, &topic_id) < 0:
                return CODEC_MALFORMED
            topic = rows.add_topic(name, name_size, topic_id, cursor.offset)
            if topic < 0:
                return <int>topic
            cursor.last_topic = topic
            cursor.last_topic_id = topic_id
            expect_next(rows, cursor)
        elif api_key == REMOVE_TOPIC_KEY:
            if parse_remove_topic(body, end, &topic_id) < 0:
                return CODEC_MALFORMED
            topic = rows.topics.ids.find(topic_id)
            if topic < 0:
                return UNKNOWN_TOPIC
            result = rows.discard_topic(topic, cursor.offset)
            if result < 0:
                return result
            cursor.topic = topic
            return TOPIC_GONE
        elif api_key == NO_OP_KEY and version == 0:
            if skip_tags(body, end) != end:
                return CODEC_MALFORMED
        else:
            return FOREIGN_RECORD
    return BATCH_DONE if cursor.p == cursor.end else RECORD_MALFORMED


cdef void begin_batch(
    ApplyCursor *cursor, const BatchHeader *header, const uint8_t *batch
) noexcept nogil:
    """Place the cursor before the first record of the batch."""
    cursor.p = batch + BATCH_OVERHEAD
    cursor.end = batch + LOG_OVERHEAD + header.batch_length
    cursor.base_offset = header.base_offset
    cursor.records_left = header.record_count
    cursor.last_topic_id = NULL
    cursor.last_topic = -1
    cursor.next_partition = -1
    cursor.next_delta = 0
    cursor.last_delta = header.last_offset_delta
    cursor.is_whole = (
        header.base_offset >= cursor.start_offset
        and header.base_offset + header.last_offset_delta < cursor.end_offset
    )


cdef inline bint has_many_irregular(TableRows rows, int64_t least) noexcept nogil:
    """Return whether more than a sixteenth of the rows is irregular, and at least `least`."""
    return (
        rows.irregular_count * 16 > rows.row_count
        and rows.stride != MAX_STRIDE
        and rows.irregular_count >= least
    )


cdef int apply_batches(
    TableRows rows, ApplyCursor *cursor, int64_t *record_counts, const uint8_t *data,
    int64_t size, bint verify_crc, int64_t worth_a_look, int64_t *position, BatchHeader *header,
    int64_t *next_offset,
) except? OUT_OF_PYTHON nogil:
    """Apply batches from `position` on until the caller must act; return why.

    The position is then that of the batch with `header`; the caller advances it.
    """
    cdef int stop
    while position[0] < size:
        if read_batch_header(data + position[0], size - position[0], header) < 0:
            return HEADER_MALFORMED
        if header.base_offset >= cursor.end_offset:
            return END_REACHED
        if header.base_offset + header.last_offset_delta >= cursor.start_offset:
            if verify_crc and header.crc != crc32c_of(
                data + position[0] + CRC_START, LOG_OVERHEAD + header.batch_length - CRC_START
            ):
                return CRC_WRONG
            if header.attributes & CODEC_MASK:
                return COMPRESSED
            if header.attributes & CONTROL_FLAG:
                begin_batch(cursor, header, data + position[0])
                return CONTROL_BATCH
            if has_many_irregular(rows, worth_a_look):
                return MANY_IRREGULAR
            begin_batch(cursor, header, data + position[0])
            stop = apply_records(rows, cursor, record_counts)
            if stop != BATCH_DONE:
                return stop
        next_offset[0] = min(
            header.base_offset + header.last_offset_delta + 1, cursor.end_offset
        )
        position[0] += LOG_OVERHEAD + <int64_t>header.batch_length
    return END_REACHED


cdef bint is_foreign(const ApplyCursor *cursor) noexcept nogil:
    """Return whether the next record surely is of a type that goes to the callback."""
    cdef RecordFrame frame
    if cursor.records_left == 0 or next_record(cursor.p, cursor.end, &frame) == NULL:
        return False
    if frame.value_size < 3 or frame.value[0] != 1 or frame.value[1] >= 0x80:
        return False
    return frame.value[1] not in (
        PARTITION_KEY, PARTITION_CHANGE_KEY, TOPIC_KEY, REMOVE_TOPIC_KEY, NO_OP_KEY
    )


cdef object replay_control_batch(
    ApplyCursor *cursor, const BatchHeader *header, on_control, path, const uint8_t *data,
    int64_t base_position,
):
    """Pass the records of a control batch to the callback."""
    cdef int32_t index
    cdef const uint8_t *start
    for index in range(cursor.records_left):
        start = cursor.p
        cursor.p = next_record(start, cursor.end, &cursor.frame)
        if cursor.p == NULL or cursor.frame.key_size != 4 or cursor.frame.value_size < 0:
            raise CorruptRecordError(
                "a control record breaks its layout", path=path,
                offset=header.base_offset + index, position=base_position + (start - data),
            )
        if not cursor.next_delta <= cursor.frame.offset_delta <= cursor.last_delta:
            raise CorruptRecordError(
                f"a control record's offset delta {cursor.frame.offset_delta} does not ascend "
                "within its batch", path=path, offset=header.base_offset,
                position=base_position + (start - data),
            )
        cursor.next_delta = <int64_t>cursor.frame.offset_delta + 1
        if (
            on_control is not None
            and header.base_offset + cursor.frame.offset_delta >= cursor.start_offset
            and header.base_offset + cursor.frame.offset_delta < cursor.end_offset
        ):
            on_control(
                header.base_offset + cursor.frame.offset_delta, header.partition_leader_epoch,
                load_u32(cursor.frame.key) & 0xFFFF,
                (<const char *>cursor.frame.value)[:cursor.frame.value_size],
            )
    if cursor.p != cursor.end:
        raise CorruptRecordError(
            "bytes are left over after the records of a control batch", path=path,
            offset=header.base_offset, position=base_position + (cursor.p - data),
        )


cdef object raise_failure(int stop, ApplyCursor *cursor, path, int64_t position):
    """Raise the error for a negative reason of `apply_records`."""
    cdef uint32_t frame_version = 0
    if stop == RECORD_MALFORMED:
        raise CorruptRecordError(
            "a record breaks the layout of its batch", path=path, offset=cursor.offset,
            position=position,
        )
    if stop == OFFSET_OUT_OF_PLACE:
        raise CorruptRecordError(
            f"a record's offset delta {cursor.frame.offset_delta} does not ascend within its "
            "batch", path=path, offset=cursor.base_offset, position=position,
        )
    if stop == FRAME_VERSION:
        get_uvarint(
            cursor.frame.value, cursor.frame.value + cursor.frame.value_size, &frame_version
        )
        raise UnsupportedVersionError(
            f"the record at offset {cursor.offset} has frame version {frame_version}, "
            "only 1 is known"
        )
    if stop == CODEC_UNSUPPORTED_VERSION:
        raise UnsupportedVersionError(
            f"the record at offset {cursor.offset}: {reason_text(stop)}"
        )
    if stop <= NO_MEMORY:
        raise refusal(stop, f"the record at offset {cursor.offset}")
    raise CorruptRecordError(
        reason_text(stop), path=path, offset=cursor.offset, position=position
    )


cdef object finish_data_batch(
    TableRows rows, ApplyCursor *cursor, int64_t *record_counts, int stop, on_record,
    on_topic_removed, path, const uint8_t *data, int64_t base_position,
):
    """Apply the rest of a batch after `stop`, and call the callbacks in between."""
    while stop != BATCH_DONE:
        if stop == NEEDS_ROWS:
            rows.reserve_rows(min(
                <int64_t>cursor.records_left,
                (cursor.end - cursor.p) // <int64_t>SMALLEST_PARTITION_RECORD + 1,
            ))
        elif stop == FOREIGN_RECORD:
            if on_record is not None:
                on_record(
                    cursor.offset,
                    (<const char *>cursor.frame.value)[:cursor.frame.value_size],
                )
        elif stop == TOPIC_GONE:
            if on_topic_removed is not None:
                on_topic_removed(cursor.offset, rows.topics.names.key(cursor.topic))
        else:
            raise_failure(stop, cursor, path, base_position + (cursor.record - data))
        # A callback may have reverted the table: the cached topic may be removed.
        cursor.last_topic_id = NULL
        cursor.next_partition = -1
        if is_foreign(cursor):
            # Such records come in runs. Taking the GIL back for each may wait for other threads.
            stop = apply_records(rows, cursor, record_counts)
        else:
            with nogil:
                stop = apply_records(rows, cursor, record_counts)


cdef class Replayer:
    """Applies record batches to the rows of one table; see the module's docstring."""

    def __cinit__(self):
        self.directory_cache = <uint64_t *>calloc(DIRECTORY_CACHE_SIZE, sizeof(uint64_t))
        if self.directory_cache == NULL:
            raise MemoryError("no memory for the directory cache")

    def __dealloc__(self):
        free(self.directory_cache)

    cdef int64_t apply(
        self, TableRows rows, buffer, int64_t start_offset, int64_t end_offset, bint verify_crc,
        on_record, on_control, on_topic_removed, path, int64_t base_position,
    ) except? -2:
        """Apply whole batches to `rows`; see ``PartitionTable.apply``."""
        cdef const uint8_t[::1] view = buffer
        cdef int64_t size = view.shape[0], position = 0, next_offset = -1
        cdef const uint8_t *data = &view[0] if size else NULL
        cdef BatchHeader header
        cdef ApplyCursor cursor
        cdef int stop
        rows.ensure_checked()
        if rows.row_count == 0 and rows.capacity == 0 and size:
            rows._allocate(rows_in(data, size), stride_for(data, size, rows.stride), True)
        cursor.start_offset = start_offset
        cursor.end_offset = end_offset
        cursor.directory_cache = self.directory_cache
        while position < size:
            # Many batches without the GIL: taking it back after each may wait for other threads.
            with nogil:
                stop = apply_batches(
                    rows, &cursor, self.record_counts, data, size, verify_crc, self.worth_a_look,
                    &position, &header, &next_offset,
                )
            if stop == END_REACHED:
                break
            if stop == MANY_IRREGULAR:
                self.widen_where_it_pays(rows)
                continue
            if stop == CONTROL_BATCH:
                replay_control_batch(&cursor, &header, on_control, path, data, base_position)
            elif stop == HEADER_MALFORMED:
                raise CorruptRecordError(
                    batch_reason_text(
                        read_batch_header(data + position, size - position, &header)
                    ),
                    path=path, position=base_position + position,
                )
            elif stop == CRC_WRONG:
                raise CorruptRecordError(
                    "the batch's CRC-32C does not match its bytes", path=path,
                    offset=header.base_offset, position=base_position + position,
                )
            elif stop == COMPRESSED:
                raise UnsupportedVersionError(
                    f"the batch at offset {header.base_offset} is compressed; Kafka writes "
                    "metadata uncompressed"
                )
            else:
                finish_data_batch(
                    rows, &cursor, self.record_counts, stop, on_record, on_topic_removed, path,
                    data, base_position,
                )
            next_offset = min(header.base_offset + header.last_offset_delta + 1, end_offset)
            position += LOG_OVERHEAD + <int64_t>header.batch_length
        return next_offset

    cdef object widen_where_it_pays(self, TableRows rows):
        """Widen the stride if that makes enough irregular rows regular."""
        cdef int64_t row
        cdef int64_t fits[MAX_STRIDE + 1]
        cdef int wider
        cdef PartitionState state
        for wider in range(MAX_STRIDE + 1):
            fits[wider] = 0
        for row in range(rows.row_count):
            if rows.topic[row] >= 0 and rows.isr[row] == IRREGULAR:
                rows.load_row(row, &state)
                if (
                    rows.stride < state.replica_count <= MAX_STRIDE
                    and not state.adding_count and not state.removing_count
                ):
                    fits[state.replica_count] += 1
        for wider in range(MAX_STRIDE, rows.stride, -1):
            if fits[wider] * 32 > rows.row_count:
                rows.restride(wider)
                break
        # Rows may be irregular for other reasons; a check after every batch would cost a pass over
        # the table each time.
        self.worth_a_look = 2 * rows.irregular_count

    @property
    def counts_by_key(self):
        cdef int key
        return {key: self.record_counts[key] for key in range(64) if self.record_counts[key]}

    @property
    def election_counts(self):
        cdef int64_t *counts = self.record_counts
        return counts[<int>UNCLEAN_ELECTIONS], counts[<int>ELIGIBLE_ELECTIONS]
