"""A segment that a compaction writes, and that then takes the place of others.

Names of its files, in this order: `.cleaned` while it is written, `.swap` once it is complete, and
those of the first segment that it replaces. A start removes `.cleaned` files, and finishes the
replacement by `.swap` files (`partition_directory.finish_replacements`). All files of the segment
are durable before the first one is renamed.

Rules: storage/.../log/UnifiedLog.java, ``createNewCleanedSegment`` and ``replaceSegments``.

Used by `kraft.broker.log.compaction` and `data_log`; uses `segment`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from kraft._core.bytes.batch cimport LOG_OVERHEAD, BatchHeader, read_batch_header
from kraft._core.log.segment cimport Segment

from kraft._core.bytes.batch import reason_text
from kraft._core.log.partition_directory import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_file,
)
from kraft.errors import CorruptRecordError, RecordTooLargeError, StorageError

_KINDS = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)


cdef class CleanedSegment(Segment):
    def __init__(self, disk, str directory, int64_t base_offset, int32_t index_interval_bytes):
        Segment.__init__(self, disk, directory, base_offset, index_interval_bytes, False)
        for kind in _KINDS:
            if kind != LOG and disk.exists(self._path(kind)):
                disk.remove(self._path(kind))
        if self.size:
            self._file.truncate(0)
            self.size = 0

    def _path(self, str kind):
        return segment_file(self.directory, self.base_offset, kind) + CLEANED

    @property
    def path(self):
        return self._path(LOG)

    def add(self, batches):
        cdef Py_buffer view
        cdef BatchHeader header
        cdef int64_t start = self.size
        cdef Py_ssize_t position = 0
        cdef const uint8_t *data
        cdef int code
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            data = <const uint8_t *>view.buf
            if start + view.len > INT32_MAX:
                raise RecordTooLargeError(f"{self.path} would have more than 2 GiB")
            self.append(data, view.len)
            while position < view.len:
                code = read_batch_header(
                    data + position, <size_t>(view.len - position), &header
                )
                if code:
                    raise CorruptRecordError(
                        reason_text(code), path=self.path, position=start + position
                    )
                self.note_batch(&header, start + position)
                position += LOG_OVERHEAD + header.batch_length
        finally:
            PyBuffer_Release(&view)

    def complete(self, bytes transactions=b""):
        self.finish_time_index()
        self._write(OFFSET_INDEX, self.offset_index.content())
        self._write(TIME_INDEX, self.time_index.content())
        if transactions:
            self._write(TRANSACTION_INDEX, transactions)
        self.sync()
        self.close()

    def _write(self, str kind, bytes content):
        file = self.disk.open(self._path(kind), create=True)
        try:
            file.append([content])
            file.sync()
        finally:
            file.close()

    def discard(self):
        self.close()
        for kind in _KINDS:
            try:
                if self.disk.exists(self._path(kind)):
                    self.disk.remove(self._path(kind))
            except StorageError:
                # A start removes it.
                pass

    cdef int begin_swap(self) except -1:
        self.disk.sync_directory(self.directory)
        for kind in _KINDS:
            path = segment_file(self.directory, self.base_offset, kind)
            if self.disk.exists(path + CLEANED):
                self.disk.rename(path + CLEANED, path + SWAP)
        self.disk.sync_directory(self.directory)
        return 0

    cdef int end_swap(self) except -1:
        for kind in _KINDS:
            path = segment_file(self.directory, self.base_offset, kind)
            if self.disk.exists(path + SWAP):
                self.disk.rename(path + SWAP, path)
        self.disk.sync_directory(self.directory)
        return 0
