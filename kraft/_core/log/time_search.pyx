"""Search for a record by its timestamp within one segment (ListOffsets).

The time index leads near the record; then headers are read, and the records of the batches that may
hold it. Both functions need a segment in use.

Rules: storage/.../internals/log/LogSegment.java, ``findOffsetByTimestamp``; KIP-734 for the largest
timestamp. Used by `data_log`.
"""

from typing import NamedTuple

from libc.stdint cimport int64_t

from kraft._core.bytes.batch cimport LOG_OVERHEAD, TIMESTAMP_TYPE_FLAG, BatchHeader
from kraft._core.log.segment cimport Segment

import numpy as np

from kraft._core.bytes.batch_columns import BatchColumns


class TimedOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    epoch: int


cdef object first_at_or_after(Segment segment, int64_t timestamp_ms, int64_t start_offset):
    cdef BatchHeader header
    cdef int64_t position, stop
    segment.mapped()
    position = segment.batch_at(
        segment.offset_index.position_at(
            max(segment.time_index.offset_at(timestamp_ms), start_offset)
        ),
        &header,
    )
    while position < segment.size:
        stop = position + LOG_OVERHEAD + header.batch_length
        if (
            header.max_timestamp >= timestamp_ms
            and header.base_offset + header.last_offset_delta >= start_offset
        ):
            columns = BatchColumns.read(segment._mapping.slice(position, stop), verify_crc=False)
            found = np.flatnonzero(
                (columns.timestamps >= timestamp_ms) & (columns.offsets >= start_offset)
            )
            if len(found):
                return TimedOffset(
                    int(columns.timestamps[found[0]]), int(columns.offsets[found[0]]),
                    header.partition_leader_epoch,
                )
        position = segment.batch_at(stop, &header)
    return None


cdef object first_with_largest_time(Segment segment):
    cdef BatchHeader header
    cdef int64_t position, stop
    segment.mapped()
    position = segment.batch_at(
        segment.offset_index.position_at(segment._offset_of_max_timestamp), &header
    )
    while position < segment.size:
        stop = position + LOG_OVERHEAD + header.batch_length
        if header.max_timestamp == segment.max_timestamp:
            if header.attributes & TIMESTAMP_TYPE_FLAG:
                return TimedOffset(
                    header.max_timestamp, header.base_offset, header.partition_leader_epoch
                )
            columns = BatchColumns.read(segment._mapping.slice(position, stop), verify_crc=False)
            (found,) = np.nonzero(columns.timestamps == header.max_timestamp)
            if len(found):
                return TimedOffset(
                    header.max_timestamp, int(columns.offsets[found[0]]),
                    header.partition_leader_epoch,
                )
        position = segment.batch_at(stop, &header)
    return None
