# Replaying record batches into rows; see replayed_rows.pyx.

from libc.stdint cimport int64_t, uint64_t

from kraft._core.table.rows cimport TableRows


cdef class Replayer:
    # Records by API key, then elections by kind; see replayed_rows.pyx.
    cdef int64_t record_counts[66]
    cdef uint64_t *directory_cache      # see record_views
    # The least number of irregular rows for the next check whether a wider stride pays.
    cdef int64_t worth_a_look

    cdef int64_t apply(
        self, TableRows rows, buffer, int64_t start_offset, int64_t end_offset, bint verify_crc,
        on_record, on_control, on_topic_removed, path, int64_t base_position,
    ) except? -2
    cdef object widen_where_it_pays(self, TableRows rows)
