"""Kafka's metadata snapshots (``%020d-%010d.checkpoint``): write and read.

The name has the end offset (exclusive) and the epoch. A snapshot is a log by itself, from offset 0
and without gaps, each batch with the snapshot's epoch::

    control batch   SnapshotHeader (type 3) [, KRaftVersion (5), KRaftVoters (6)]
    data batches    records before topics | Topic, its Partition records, … | records after topics
    control batch   SnapshotFooter (type 4)

    SnapshotHeader  version i16 = 0 | lastContainedLogTimestamp i64 | tags 00
    SnapshotFooter  version i16 = 0 | tags 00

Writing goes in chunks of a few MiB to ``.part``, which is synced and renamed, and the directory
synced. Opening checks the frame of all batches, so that a snapshot without its footer is rejected
before any record is applied.

Invariants: a file under its final name is complete. A ``.part`` is never read and may be
overwritten. Sources: ``raft/.../snapshot/RecordsSnapshotWriter.java``,
``RecordsSnapshotReader.java``, ``Snapshots.java``, KIP-630, KIP-853. Used by
``kraft.metadata.snapshots`` and ``kraft.server``; uses ``table``, ``batch`` and the ``disk`` port.
"""

import os
import re
import struct
from typing import NamedTuple

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kraft._core.bytes.batch cimport (
    BATCH_OVERHEAD, CODEC_MASK, CONTROL_FLAG, CRC_START, LOG_OVERHEAD, BatchBuilder, BatchHeader,
    RecordFrame, next_record, read_batch_header,
)
from kraft._core.bytes.crc32c cimport crc32c_of
from kraft._core.table.row_encoder cimport encode_rows, encode_topic
from kraft._core.table.table cimport PartitionTable
from kraft._core.table.topics cimport TopicEntry
from kraft._core.bytes.wire cimport load_u32, load_u64

from kraft._core.bytes.batch import reason_text
from kraft._core.log.disk import OsDisk
from kraft.errors import CorruptRecordError, InvalidRequestError, UnsupportedVersionError

MAX_BATCH_RECORDS = 1024
CHUNK_SIZE = 4 * 1024 * 1024
SUFFIX = ".checkpoint"
PART_SUFFIX = ".part"

cdef enum:
    HEADER_TYPE = 3
    FOOTER_TYPE = 4
    HEADER_SIZE = 11
    FOOTER_SIZE = 3

cdef object NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


def snapshot_name(int64_t end_offset, int32_t epoch):
    return f"{end_offset:020d}-{epoch:010d}{SUFFIX}"


def parse_snapshot_name(str name not None):
    match = NAME.fullmatch(name)
    if match is None or int(match[1]) >= 1 << 63 or int(match[2]) >= 1 << 31:
        return None
    return int(match[1]), int(match[2])


cdef class SnapshotWriter:
    """See ``snapshot_file.pyi``."""

    cdef object _disk
    cdef object _file
    cdef BatchBuilder _builder
    cdef readonly str path
    cdef readonly int64_t end_offset
    cdef readonly int32_t epoch
    cdef readonly int64_t timestamp_ms
    cdef readonly int64_t next_offset
    cdef int32_t _batch_records
    cdef Py_ssize_t _chunk_size

    def __init__(self, directory, int64_t end_offset, int32_t epoch, *,
                 int64_t last_contained_log_timestamp_ms, int64_t timestamp_ms,
                 control_records=(), disk=None, int32_t max_batch_records=MAX_BATCH_RECORDS,
                 Py_ssize_t chunk_size=CHUNK_SIZE):
        if end_offset < 0 or epoch < 0:
            raise InvalidRequestError(
                f"a snapshot cannot end at offset {end_offset} of epoch {epoch}"
            )
        self._disk = OsDisk() if disk is None else disk
        self.path = os.path.join(os.fspath(directory), snapshot_name(end_offset, epoch))
        self.end_offset = end_offset
        self.epoch = epoch
        self.timestamp_ms = timestamp_ms
        self._batch_records = max_batch_records
        self._chunk_size = chunk_size
        self._file = self._disk.open(self.path + PART_SUFFIX, create=True)
        try:
            self._file.truncate(0)
            header = struct.pack(">hqb", 0, last_contained_log_timestamp_ms, 0)
            self._control([(HEADER_TYPE, header), *control_records])
            self._begin()
        except BaseException:
            self.abort()
            raise

    cdef object _begin(self):
        self._builder = BatchBuilder(
            self.next_offset, self.epoch, self.timestamp_ms,
            max_batch_records=self._batch_records,
            capacity=self._chunk_size + (self._chunk_size >> 2),
        )

    cdef object _control(self, control_records):
        builder = BatchBuilder(self.next_offset, self.epoch, self.timestamp_ms, CONTROL_FLAG)
        for type_, value in control_records:
            builder.append(value, struct.pack(">hh", 0, type_))
        self.next_offset = builder.next_offset
        self._file.append([builder.finish()])

    cdef object _flush(self):
        """Write the chunk built so far to the file; an incomplete batch ends here."""
        self.next_offset = self._builder.next_offset
        batches = self._builder.finish()
        if len(batches):
            self._file.append([batches])
        self._begin()

    cdef object _check_open(self):
        if self._file is None:
            raise InvalidRequestError(f"the snapshot {self.path} is finished")

    cdef bint is_full(self) noexcept nogil:
        """Return whether the chunk is large enough and its last batch has the usual size."""
        return (
            <Py_ssize_t>self._builder._size >= self._chunk_size
            and self._builder.record_count % self._batch_records == 0
        )

    def append_batches(self, buffer):
        cdef const uint8_t[::1] view = buffer
        cdef int64_t size = view.shape[0], position = 0
        cdef const uint8_t *data = &view[0] if size else NULL
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef BatchHeader header
        cdef int32_t left
        cdef int reason
        self._check_open()
        while position < size:
            reason = read_batch_header(data + position, size - position, &header)
            if reason < 0:
                raise CorruptRecordError(reason_text(reason), position=position)
            if header.attributes & (CODEC_MASK | CONTROL_FLAG):
                raise InvalidRequestError(
                    "only batches of uncompressed data records go into a snapshot"
                )
            p = data + position + BATCH_OVERHEAD
            position += LOG_OVERHEAD + <int64_t>header.batch_length
            end = data + position
            left = header.record_count
            while left > 0:
                with nogil:
                    reason = self.copy_values(&p, end, &left)
                if reason == -2:
                    raise CorruptRecordError(
                        "a record breaks the layout of its batch", offset=header.base_offset,
                        position=p - data,
                    )
                if reason < 0:
                    self._builder.raise_failure()
                if self.is_full():
                    self._flush()
            if p != end:
                raise CorruptRecordError(
                    "bytes are left over after the records of a batch",
                    offset=header.base_offset, position=p - data,
                )

    cdef int copy_values(self, const uint8_t **p, const uint8_t *end, int32_t *left) noexcept nogil:
        """Append values until none is left or a chunk is full; return 0, -1 rejected, -2 bad."""
        cdef RecordFrame frame
        cdef const uint8_t *behind
        cdef uint8_t *place
        while left[0] > 0:
            behind = next_record(p[0], end, &frame)
            if behind == NULL or frame.value_size < 0:
                return -2
            place = self._builder.add_value(frame.value_size)
            if place == NULL:
                return -1
            memcpy(place, frame.value, frame.value_size)
            p[0] = behind
            left[0] -= 1
            if self.is_full():
                break
        return 0

    def append_table(self, PartitionTable table not None, *, int32_t version):
        cdef int64_t topic = 0, done = -1
        cdef int result
        self._check_open()
        if not 0 <= version <= 2:
            raise UnsupportedVersionError(f"Partition has versions 0 to 2, not {version}")
        table.ensure_checked()
        while topic < table.topics.ids.count:
            with nogil:
                result = self.encode_some(table, &topic, &done, version)
            if result == -2:
                raise MemoryError("no memory for the rows of a topic")
            if result < 0:
                self._builder.raise_failure()
            if self.is_full():
                self._flush()

    cdef int encode_some(self, PartitionTable table, int64_t *topic, int64_t *done,
                         int32_t version) noexcept nogil:
        """Encode topics with their partitions until a chunk is full.

        `done` rows of `topic` are written, -1: not even its Topic record.
        """
        cdef const TopicEntry *entry
        cdef int64_t count, run
        cdef int32_t *rows
        cdef int result = 0
        while topic[0] < table.topics.ids.count:
            entry = table.topics.entry(topic[0])
            if entry.alive:
                if done[0] < 0:
                    if encode_topic(table, self._builder, topic[0]) < 0:
                        return -1
                    done[0] = 0
                    if self.is_full():
                        return 0
                rows = NULL
                count = entry.partition_count
                if count != entry.row_count:
                    rows = table.rows_of_topic(topic[0], &count)
                    if rows == NULL:
                        return -2
                    for run in range(count):
                        rows[run] = rows[2 * run + 1]
                while done[0] < count and result == 0 and not self.is_full():
                    run = min(
                        count - done[0],
                        self._batch_records - self._builder.record_count % self._batch_records,
                    )
                    if rows == NULL:
                        result = encode_rows(
                            table, self._builder, NULL, entry.first_row + done[0], run, version
                        )
                    else:
                        result = encode_rows(table, self._builder, rows + done[0], 0, run, version)
                    done[0] += run
                free(rows)
                if result < 0:
                    return -1
                if done[0] < count:
                    return 0
            topic[0] += 1
            done[0] = -1
            if self.is_full():
                return 0
        return 0

    def finish(self):
        self._check_open()
        try:
            self._flush()
            self._control([(FOOTER_TYPE, struct.pack(">hb", 0, 0))])
            self._file.sync()
            self._file.close()
            self._disk.rename(self.path + PART_SUFFIX, self.path)
            self._disk.sync_directory(os.path.dirname(self.path) or ".")
        except BaseException:
            self.abort()
            raise
        self._file = None
        self._builder = None
        return self.path

    def abort(self):
        if self._file is None:
            return
        self._file.close()
        self._file = None
        self._builder = None
        if self._disk.exists(self.path + PART_SUFFIX):
            self._disk.remove(self.path + PART_SUFFIX)

    def __enter__(self):
        return self

    def __exit__(self, type_, value, traceback):
        self.abort()


def write_snapshot(directory, int64_t end_offset, int32_t epoch, PartitionTable table not None, *,
                   int32_t partition_version, before_topics=(), after_topics=(),
                   control_records=(), int64_t last_contained_log_timestamp_ms,
                   int64_t timestamp_ms, disk=None):
    with SnapshotWriter(
        directory, end_offset, epoch,
        last_contained_log_timestamp_ms=last_contained_log_timestamp_ms,
        timestamp_ms=timestamp_ms, control_records=control_records, disk=disk,
    ) as writer:
        for batches in before_topics:
            writer.append_batches(batches)
        writer.append_table(table, version=partition_version)
        for batches in after_topics:
            writer.append_batches(batches)
        return writer.finish()


class SnapshotInfo(NamedTuple):
    end_offset: int
    epoch: int
    last_contained_log_timestamp_ms: int
    record_count: int
    control_record_count: int
    batch_count: int
    size: int


cdef class SnapshotReader:
    """See ``snapshot_file.pyi``."""

    cdef object _data
    cdef readonly object path
    cdef readonly object info
    cdef int64_t _last_offset

    def __init__(self, source, *, disk=None):
        name = None
        if isinstance(source, (str, os.PathLike)):
            self.path = os.fspath(source)
            name = parse_snapshot_name(os.path.basename(self.path))
            disk = OsDisk() if disk is None else disk
            file = disk.open(self.path, read_only=True)
            try:
                self._data = file.map(file.size())
            finally:
                file.close()
        else:
            self._data = source
        self._scan(name)

    cdef object _corrupt(self, str reason, int64_t position, int64_t offset=-1):
        return CorruptRecordError(reason, path=self.path, offset=offset, position=position)

    cdef object _scan(self, name):
        """Read the headers of all batches, and the control records at either end.

        `read` reads the other records.
        """
        cdef const uint8_t[::1] view = self._data
        cdef int64_t size = view.shape[0], position = 0, next_offset = 0, last = 0
        cdef int64_t records = 0, controls = 0, batches = 0, timestamp_ms
        cdef const uint8_t *data = &view[0] if size else NULL
        cdef BatchHeader header
        cdef RecordFrame frame
        cdef int32_t epoch = -1
        cdef int reason
        if size == 0:
            raise self._corrupt("the snapshot is empty", 0)
        while position < size:
            reason = read_batch_header(data + position, size - position, &header)
            if reason < 0:
                raise self._corrupt(reason_text(reason), position, next_offset)
            if header.base_offset != next_offset:
                raise self._corrupt(
                    f"a snapshot has no gaps, but offset {header.base_offset} comes where "
                    f"{next_offset} should", position, next_offset,
                )
            if batches and header.partition_leader_epoch != epoch:
                raise self._corrupt(
                    f"a batch of epoch {header.partition_leader_epoch} in a snapshot of epoch "
                    f"{epoch}", position, next_offset,
                )
            epoch = header.partition_leader_epoch
            if header.attributes & CONTROL_FLAG:
                controls += header.record_count
            else:
                records += header.record_count
            batches += 1
            next_offset = header.base_offset + header.last_offset_delta + 1
            last = position
            position += LOG_OVERHEAD + <int64_t>header.batch_length
        if name is not None and epoch != name[1]:
            raise self._corrupt(f"a snapshot of epoch {epoch} has another epoch in its name", 0)
        self._end_record(data, 0, size, True, &frame)
        if load_u32(frame.key) != HEADER_TYPE or frame.value_size < HEADER_SIZE:
            raise self._corrupt("the snapshot does not begin with a SnapshotHeader", 0, 0)
        timestamp_ms = <int64_t>load_u64(frame.value + 2)
        self._end_record(data, last, size, False, &frame)
        if load_u32(frame.key) != FOOTER_TYPE or frame.value_size < FOOTER_SIZE:
            raise self._corrupt(
                "the snapshot ends without a SnapshotFooter: it was not written to its end",
                last, next_offset - 1,
            )
        self._last_offset = next_offset - 1
        self.info = SnapshotInfo(
            -1 if name is None else name[0], epoch, timestamp_ms, records, controls, batches, size
        )

    cdef object _end_record(self, const uint8_t *data, int64_t position, int64_t size,
                            bint first, RecordFrame *frame):
        """Return the first or the last record of a control batch, after checking its CRC."""
        cdef BatchHeader header
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef int32_t _index
        if read_batch_header(data + position, size - position, &header) < 0:
            raise self._corrupt("a batch header changed while it was read", position)
        end = data + position + LOG_OVERHEAD + header.batch_length
        if header.crc != crc32c_of(
            data + position + CRC_START, LOG_OVERHEAD + header.batch_length - CRC_START
        ):
            raise self._corrupt(
                "the batch's CRC-32C does not match its bytes", position, header.base_offset
            )
        if not header.attributes & CONTROL_FLAG or header.record_count == 0:
            raise self._corrupt(
                "the snapshot does not begin with a SnapshotHeader" if first else
                "the snapshot ends without a SnapshotFooter: it was not written to its end",
                position, header.base_offset,
            )
        p = data + position + BATCH_OVERHEAD
        for _index in range(1 if first else header.record_count):
            p = next_record(p, end, frame)
            if p == NULL or frame.key_size != 4:
                raise self._corrupt(
                    "a control record breaks its layout", position, header.base_offset
                )

    def read(self, PartitionTable table not None, *, on_record=None, on_control=None,
             on_topic_removed=None, bint verify_crc=True):
        cdef int64_t last_offset = self._last_offset

        def control(offset, epoch, type_, value):
            if (type_ == HEADER_TYPE and offset != 0) or (
                type_ == FOOTER_TYPE and offset != last_offset
            ):
                raise self._corrupt(
                    "a SnapshotHeader or SnapshotFooter in the middle of a snapshot", -1, offset
                )
            if on_control is not None:
                on_control(offset, epoch, type_, value)

        table.apply(
            self._data, on_record=on_record, on_control=control,
            on_topic_removed=on_topic_removed, path=self.path, verify_crc=verify_crc,
        )
        return self.info


def read_snapshot(source, PartitionTable table not None, *, on_record=None, on_control=None,
                  on_topic_removed=None, disk=None):
    return SnapshotReader(source, disk=disk).read(
        table, on_record=on_record, on_control=on_control, on_topic_removed=on_topic_removed
    )
