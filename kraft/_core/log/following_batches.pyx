"""Whether batches may follow the end of a log: offsets, epochs, sizes and, if asked, CRCs.

An append checks all of its batches before it writes the first byte. A log of data is sparse: its
offsets may have gaps, between batches and inside of them, and epochs may decrease.

Used by `log`; uses `recovery` for the CRC.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.bytes.batch cimport LOG_OVERHEAD, BatchHeader, read_batch_header
from kraft._core.log.recovery cimport crc_matches

from kraft._core.bytes.batch import reason_text
from kraft.errors import CorruptRecordError, RecordTooLargeError


cdef int read_following(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t position, int64_t next_offset, int32_t epoch,
    BatchHeader *header, bint is_sparse=False,
) except -1:
    cdef int code = read_batch_header(data + position, <size_t>(size - position), header)
    if code:
        reason = reason_text(code)
    elif header.base_offset != next_offset and not (
        is_sparse and header.base_offset > next_offset
    ):
        reason = f"the batch begins with offset {header.base_offset}, the log ends with"
        reason = f"{reason} {next_offset}"
    elif header.partition_leader_epoch < epoch and not is_sparse:
        reason = f"leader epoch {header.partition_leader_epoch} follows {epoch}"
    elif header.record_count != header.last_offset_delta + 1 and not is_sparse:
        reason = f"{header.record_count} records span {header.last_offset_delta + 1} offsets"
    else:
        return 0
    raise CorruptRecordError(reason, offset=next_offset, position=position)


cdef int check_following(
    const uint8_t *data, Py_ssize_t size, int64_t next_offset, int32_t epoch,
    int64_t segment_bytes, bint verify_crc, bint is_sparse, BatchRun *run,
) except -1:
    cdef BatchHeader header
    cdef Py_ssize_t position = 0
    if size == 0:
        raise ValueError("there is no batch to append")
    run.first_offset = 0
    run.max_timestamp = -1
    while position < size:
        read_following(data, size, position, next_offset, epoch, &header, is_sparse)
        if position == 0:
            run.first_offset = header.base_offset
        if LOG_OVERHEAD + header.batch_length > segment_bytes:
            raise RecordTooLargeError(
                f"a batch of {LOG_OVERHEAD + header.batch_length} bytes does not fit into a "
                f"segment of {segment_bytes}"
            )
        if verify_crc and not crc_matches(data + position, &header):
            raise CorruptRecordError(
                "the CRC does not match", offset=next_offset, position=position
            )
        run.max_timestamp = max(run.max_timestamp, header.max_timestamp)
        epoch = header.partition_leader_epoch
        next_offset = header.base_offset + header.last_offset_delta + 1
        position += LOG_OVERHEAD + header.batch_length
    run.last_offset = next_offset - 1
    return 0
