"""Record batches: check every rule about their records, not only their headers.

`validate` is for bytes from another process or a file (a snapshot, for example) that are trusted
afterwards. ``batch`` checks headers and CRCs.

Invariant: batches are checked in place; only compressed records are inflated, within the budget.

Rules: ``clients/.../record/DefaultRecordBatch.java``, ``DefaultRecord.java``, KIP-98, KIP-534.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t

from kraft._core.bytes.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, LOG_OVERHEAD, BatchRow, BatchTable, RecordFrame, next_record,
    scan_bytes,
)

from kraft._core.bytes import compression
from kraft.errors import CorruptRecordError


cdef const char *check_records(
    const uint8_t *p, const uint8_t *end, const BatchRow *row, bint dense, const uint8_t **where
) noexcept nogil:
    """Return NULL, or the fault in the records of the uncompressed batch from p to end."""
    cdef RecordFrame frame
    cdef int32_t i, previous = -1
    cdef const uint8_t *next
    for i in range(row.record_count):
        where[0] = p
        next = next_record(p, end, &frame)
        if next == NULL:
            return b"a record is malformed"
        if frame.offset_delta <= previous or frame.offset_delta > row.last_offset_delta:
            return b"the offset delta of a record does not ascend within its batch"
        if dense and frame.offset_delta != i:
            return b"the offset delta of a record is not its place in its batch"
        previous = frame.offset_delta
        p = next
    where[0] = p
    if p != end:
        return b"bytes are left over after the last record of a batch"
    if dense and row.last_offset_delta != row.record_count - 1:
        return b"the last offset delta of a batch is not its last record's"
    return NULL


cdef Py_ssize_t check_plain(
    const uint8_t *data, const BatchRow *rows, Py_ssize_t i, Py_ssize_t count, bint dense,
    int64_t *next_offset, const char **reason, int64_t *at,
) noexcept nogil:
    """Check batch i and those after it; return the index of the first one that needs the caller.

    That is a batch that is compressed, whose offset does not follow, or whose records break a rule
    (then `reason` and its position `at` are set); `count` if there is none.
    """
    cdef const BatchRow *row
    cdef const uint8_t *p
    cdef const uint8_t *where
    while i < count:
        row = &rows[i]
        if row.attributes & CODEC_MASK or not follows(row, next_offset[0], dense):
            break
        p = data + (row.position - rows[0].position)
        reason[0] = check_records(
            p + BATCH_OVERHEAD, p + row.batch_length + LOG_OVERHEAD, row, dense, &where
        )
        if reason[0] != NULL:
            at[0] = row.position + (where - p)
            break
        next_offset[0] = row.base_offset + row.last_offset_delta + 1
        i += 1
    return i


cdef inline bint follows(const BatchRow *row, int64_t next_offset, bint dense) noexcept nogil:
    """Return whether the batch may follow where `next_offset` is next (-1: it is the first)."""
    return next_offset < 0 or (
        row.base_offset == next_offset if dense else row.base_offset >= next_offset
    )


def validate(
    buffer, *, int64_t base_position=0, bint verify_crc=True, bint dense=False,
    int64_t budget=compression.DEFAULT_BUDGET,
):
    cdef Py_buffer view
    cdef BatchTable table
    cdef const uint8_t *data
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef const uint8_t *where
    cdef const char *reason = NULL
    cdef BatchRow *row
    cdef int64_t at = 0, next_offset = -1
    cdef Py_ssize_t i = 0
    cdef bytes payload
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>view.buf
        table = scan_bytes(data, view.len, base_position, verify_crc)
        if table.tail_reason is not None:
            raise CorruptRecordError(table.tail_reason, position=table.tail_position)
        while True:
            # All batches without the GIL at once: taking it back may wait for another thread.
            with nogil:
                i = check_plain(
                    data, table.rows, i, table.count, dense, &next_offset, &reason, &at
                )
            if i == table.count:
                return table
            row = &table.rows[i]
            if not follows(row, next_offset, dense):
                raise CorruptRecordError(
                    f"a batch begins at offset {row.base_offset} where {next_offset} is next",
                    position=row.position,
                )
            if reason == NULL:
                at = row.position + BATCH_OVERHEAD
                p = data + (at - base_position)
                end = p + row.batch_length + LOG_OVERHEAD - BATCH_OVERHEAD
                payload = compression.decompress(
                    row.attributes & CODEC_MASK,
                    PyMemoryView_FromMemory(<char *>p, end - p, PyBUF_READ),
                    budget,
                    position=row.position,
                )
                budget -= len(payload)
                p = <const uint8_t *>PyBytes_AS_STRING(payload)
                end = p + PyBytes_GET_SIZE(payload)
                with nogil:
                    reason = check_records(p, end, row, dense, &where)
            if reason != NULL:
                raise CorruptRecordError(
                    reason.decode("ascii"), offset=row.base_offset, position=at
                )
            next_offset = row.base_offset + row.last_offset_delta + 1
            i += 1
    finally:
        PyBuffer_Release(&view)
