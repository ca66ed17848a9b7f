# Encoding of rows as Topic and Partition records; see row_encoder.pyx.

from libc.stdint cimport int32_t, int64_t

from kraft._core.bytes.batch cimport BatchBuilder
from kraft._core.table.rows cimport TableRows


cdef int encode_topic(TableRows table, BatchBuilder builder, int64_t topic) noexcept nogil
cdef int encode_rows(
    TableRows table, BatchBuilder builder, const int32_t *rows, int64_t first, int64_t count,
    int32_t version,
) noexcept nogil
