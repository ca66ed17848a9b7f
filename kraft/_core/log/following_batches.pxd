# The C half of following_batches: checks of batches before they are appended to a log.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.bytes.batch cimport BatchHeader


cdef struct BatchRun:
    int64_t first_offset
    int64_t last_offset
    int64_t max_timestamp       # in ms, -1 if no batch has one


# Reads the header at `position`; raises CorruptRecordError unless its batch may follow that offset
# and epoch.
cdef int read_following(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t position, int64_t next_offset, int32_t epoch,
    BatchHeader *header, bint is_sparse=*,
) except -1

# Checks all batches; raises CorruptRecordError, RecordTooLargeError, or ValueError without a batch.
cdef int check_following(
    const uint8_t *data, Py_ssize_t size, int64_t next_offset, int32_t epoch,
    int64_t segment_bytes, bint verify_crc, bint is_sparse, BatchRun *run,
) except -1
