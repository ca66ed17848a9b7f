"""The check of a partition's segments after an unclean stop.

Each segment from the recovery point on is scanned, and its indexes are built again. The log ends at
the first damaged batch, as in Kafka: the leader still has the records. It also ends with a segment
that ends before the next one begins: the crash lost the batches between them.

Rules: storage/.../internals/log/LogLoader.java. Used by `data_log`; uses `recovery` and `segment`.
"""

from typing import NamedTuple

from libc.stdint cimport int64_t

from kraft._core.log.recovery cimport LogScan
from kraft._core.log.segment cimport Segment, SegmentPool


class RecoveredSegments(NamedTuple):
    torn_tail: object
    doomed: list
    has_new_epoch: bool


cdef object recover_segments(
    disk, str directory, int index_interval_bytes, SegmentPool pool, list segments,
    list base_offsets, Py_ssize_t first, epochs,
):
    cdef LogScan scan
    cdef Segment segment
    cdef Py_ssize_t index
    cdef bint has_new_epoch = False
    for index in range(first, len(segments)):
        (<Segment>segments[index]).close()
        scan = LogScan(disk, directory, index_interval_bytes, False, False, -1, True)
        scan.run([base_offsets[index]])
        segment = scan.segments[0]
        segment.restore_indexes()
        segment.dirty = segment.indexes_dirty = True
        segment.join(pool, index == len(segments) - 1)
        segments[index] = segment
        for epoch, start_offset in scan.epochs.entries:
            # The file may lack the last epochs and truncations: the batches are right.
            if epoch >= 0 and epoch != epochs.epoch_at(start_offset):
                epochs.assign(epoch, start_offset)
                has_new_epoch = True
        is_short = (
            index + 1 < len(segments) and segment.end_offset < <int64_t>base_offsets[index + 1]
        )
        if scan.torn_tail is not None or is_short:
            # The crash kept later segments and lost the end of this one, or damaged it.
            doomed = segments[index + 1:]
            del segments[index + 1:]
            del base_offsets[index + 1:]
            return RecoveredSegments(scan.torn_tail, doomed, has_new_epoch)
    return RecoveredSegments(None, [], has_new_epoch)
