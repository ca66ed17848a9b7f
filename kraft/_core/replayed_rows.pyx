"""From the bytes of record batches to rows, with no Python object a record and without the GIL.

Owns the walk over batches and records: the order, the offsets, and where the walk stops for
somebody else. Records of other types are handed to a callback in their place in the order, so that
one replay serves partitions and everything else. Nearly every record of a snapshot is the next
partition of the topic at hand, in a regular form: ``partition_runs`` takes those. What a record
does to a row is in ``record_rows``, byte layouts are in ``partition_codec``.
"""

from libc.stdint cimport int32_t, uint32_t

from kraft._core.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, CONTROL_FLAG, CRC_START, LOG_OVERHEAD, BatchHeader, RecordFrame,
    crc32c_of, next_record, read_batch_header,
)
from kraft._core.columns cimport MAX_STRIDE
from kraft._core.partition_codec cimport (
    CODEC_MALFORMED, CODEC_UNSUPPORTED_VERSION, NO_OP_KEY, PARTITION_CHANGE_KEY, PARTITION_KEY,
    REMOVE_TOPIC_KEY, TOPIC_KEY, ChangeView, PartitionView, parse_change, parse_partition,
    parse_remove_topic, parse_topic, skip_tags,
)
from kraft._core.record_rows cimport NEEDS_ROWS
from kraft._core.rows cimport NO_MEMORY, UNKNOWN_TOPIC
from kraft._core.wire cimport get_uvarint, likely, load_u32

from kraft._core.batch import reason_text as batch_reason_text
from kraft._core.partition_codec import reason_text
from kraft._core.rows import refusal
from kraft.errors import CorruptRecordError, UnsupportedVersionError

cdef enum:
    # A frame of 8 bytes around a value of 42: no replicas, nothing else. It bounds how many rows
    # bytes can ask for.
    SMALLEST_PARTITION_RECORD = 50
    # How much of a cold load's bytes is looked at before its memory is laid out.
    SAMPLED_BATCHES = 64
    SAMPLED_RECORDS = 64

# Why apply_run stopped, beside the negative reasons of parsers and rows.
cdef enum Stop:
    BATCH_DONE = 0
    FOREIGN_RECORD = 1          # a record of another type: for the callback
    TOPIC_GONE = 2              # a RemoveTopic was applied
    RECORD_MALFORMED = -1001
    FRAME_VERSION = -1002
    OFFSET_OUT_OF_PLACE = -1003


cdef class ReplayedRows(PartitionRuns):
    """Rows that batches are applied to; see the module's docstring."""

    def apply(self, buffer, *, int64_t start_offset=0, int64_t end_offset=0x7FFFFFFFFFFFFFFF,
              bint verify_crc=True, on_record=None, on_control=None, on_topic_removed=None,
              path=None, int64_t base_position=0):
        cdef const uint8_t[::1] view = buffer
        cdef int64_t size = view.shape[0], position = 0, next_offset = -1, batch_size
        cdef const uint8_t *data = &view[0] if size else NULL
        cdef BatchHeader header
        cdef ApplyCursor cursor
        cdef int reason
        self.ensure_checked()
        if self.row_count == 0 and self.capacity == 0 and size:
            self._allocate(self._rows_in(data, size), self._stride_for(data, size))
        while position < size:
            reason = read_batch_header(data + position, size - position, &header)
            if reason < 0:
                raise CorruptRecordError(
                    batch_reason_text(reason), path=path, position=base_position + position
                )
            if header.base_offset >= end_offset:
                break
            batch_size = LOG_OVERHEAD + <int64_t>header.batch_length
            if header.base_offset + header.last_offset_delta >= start_offset:
                if verify_crc and header.crc != crc32c_of(
                    data + position + CRC_START, batch_size - CRC_START
                ):
                    raise CorruptRecordError(
                        "the batch's CRC-32C does not match its bytes", path=path,
                        offset=header.base_offset, position=base_position + position,
                    )
                if header.attributes & CODEC_MASK:
                    raise UnsupportedVersionError(
                        f"the batch at offset {header.base_offset} is compressed; Kafka writes "
                        "metadata uncompressed"
                    )
                cursor.p = data + position + BATCH_OVERHEAD
                cursor.end = data + position + batch_size
                cursor.base_offset = header.base_offset
                cursor.start_offset = start_offset
                cursor.end_offset = end_offset
                cursor.records_left = header.record_count
                cursor.last_topic_id = NULL
                cursor.last_topic = -1
                cursor.next_partition = -1
                cursor.next_delta = 0
                cursor.last_delta = header.last_offset_delta
                cursor.is_whole = (
                    header.base_offset >= start_offset
                    and header.base_offset + header.last_offset_delta < end_offset
                )
                if header.attributes & CONTROL_FLAG:
                    self._control_batch(&cursor, &header, on_control, path, data, base_position)
                else:
                    self._widen_where_it_pays()
                    self._data_batch(
                        &cursor, on_record, on_topic_removed, path, data, base_position
                    )
            next_offset = min(header.base_offset + header.last_offset_delta + 1, end_offset)
            position += batch_size
        return next_offset

    cdef int64_t _rows_in(self, const uint8_t *data, int64_t size) noexcept nogil:
        """At most how many partitions the batches can hold, so that a cold load allocates once."""
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

    cdef int _stride_for(self, const uint8_t *data, int64_t size) noexcept nogil:
        """The stride that fits nearly all partitions, judged by some of the batches."""
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
        # A side-table row costs about what fifty columns of one slot do: up to one in 32 may.
        for stride in range(MAX_STRIDE, self.stride, -1):
            above += seen[stride]
            if above * 32 > total:
                return stride
        return self.stride

    cdef object _control_batch(self, ApplyCursor *cursor, const BatchHeader *header, on_control,
                               path, const uint8_t *data, int64_t base_position):
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
                "bytes are left over behind the records of a control batch", path=path,
                offset=header.base_offset, position=base_position + (cursor.p - data),
            )

    cdef object _data_batch(self, ApplyCursor *cursor, on_record, on_topic_removed, path,
                            const uint8_t *data, int64_t base_position):
        """Applies one batch, stopping for the callbacks in between."""
        cdef int stop
        while True:
            with nogil:
                stop = self.apply_run(cursor)
            if stop == BATCH_DONE:
                return
            if stop == NEEDS_ROWS:
                self.reserve_rows(min(
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
                    on_topic_removed(cursor.offset, self.topics.names.key(cursor.topic))
            else:
                self._refuse(stop, cursor, path, base_position + (cursor.record - data))
            # A callback may have reverted the table: what was remembered may be gone.
            cursor.last_topic_id = NULL
            cursor.next_partition = -1

    cdef object _refuse(self, int stop, ApplyCursor *cursor, path, int64_t position):
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

    cdef int apply_run(self, ApplyCursor *cursor) noexcept nogil:
        """Applies records until the batch ends or one needs the caller; a ``Stop`` or a negative
        reason.
        """
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
                result = self.apply_partitions(cursor)
                self.record_counts[<int>PARTITION_KEY] += left - cursor.records_left
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
            self.record_counts[min(api_key, <uint32_t>63)] += 1
            if api_key == PARTITION_KEY:
                result = parse_partition(body, end, version, &partition)
                if result == 0:
                    result = self.apply_partition(cursor, &partition)
                if result == NEEDS_ROWS:
                    self.record_counts[<int>PARTITION_KEY] -= 1
                    cursor.p = cursor.record
                    cursor.records_left += 1
                    cursor.next_delta = cursor.frame.offset_delta
                if result != 0:
                    return result
            elif api_key == PARTITION_CHANGE_KEY:
                result = parse_change(body, end, version, &change)
                if result == 0:
                    result = self.apply_change(cursor, &change)
                if result < 0:
                    return result
            elif version and (api_key == TOPIC_KEY or api_key == REMOVE_TOPIC_KEY):
                return CODEC_UNSUPPORTED_VERSION
            elif api_key == TOPIC_KEY:
                if parse_topic(body, end, &name, &name_size, &topic_id) < 0:
                    return CODEC_MALFORMED
                topic = self.add_topic(name, name_size, topic_id, cursor.offset)
                if topic < 0:
                    return <int>topic
                cursor.last_topic = topic
                cursor.last_topic_id = topic_id
                self.expect_next(cursor)
            elif api_key == REMOVE_TOPIC_KEY:
                if parse_remove_topic(body, end, &topic_id) < 0:
                    return CODEC_MALFORMED
                topic = self.topics.ids.find(topic_id)
                if topic < 0:
                    return UNKNOWN_TOPIC
                result = self.discard_topic(topic, cursor.offset)
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

    @property
    def counts_by_key(self):
        cdef int key
        return {key: self.record_counts[key] for key in range(64) if self.record_counts[key]}
