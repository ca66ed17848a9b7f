"""The full scan of a log, as after an unclean stop: which bytes are whole, torn or damaged.

Classifies bytes that are no whole batch. A *torn tail* is the result of an interrupted write: no
valid batch follows it, in this segment or a later one. It was never acknowledged and may be cut.
*Damage* is followed by a valid batch: cutting there would lose committed records, so the scan
raises an error, or a salvaging open skips and reports it.

A known `synced_offset` decides: an incomplete batch before it is damage, and bytes after it were
never acknowledged. A crash may keep the end of an unsynced write and lose its beginning, so that
whole batches follow torn ones there.

A batch is valid if its header is well-formed, its CRC-32C matches, its base offset is the next one
(metadata logs have no gaps) and its leader epoch does not decrease. After bad bytes the scan
searches for a batch at every byte: magic 2, a length that fits, an offset and an epoch that may
still come, and the CRC. The search computes CRCs over at most a fixed multiple of the log's bytes;
bytes crafted to exhaust that count as damage, because an error loses nothing.

The base offset and the leader epoch are outside of the CRC, so a salvaging open checks both. A
batch may skip only as many offsets as records fit into the damaged bytes, and an epoch that is
higher in one batch only is damage of that batch.

Used by `log`; uses `segment` and `batch`.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr

from kraft._core.bytes.batch cimport (
    BATCH_CUT_SHORT,
    BATCH_OVERHEAD,
    CRC_START,
    HEADER_CUT_SHORT,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    read_batch_header,
    sound_end,
)
from kraft._core.bytes.crc32c cimport crc32c_of
from kraft._core.log.segment cimport Segment

from typing import NamedTuple

from kraft._core.bytes.batch import reason_text
from kraft._core.log.epoch_cache import EpochCache
from kraft._core.log.partition_directory import LOG, segment_file
from kraft.errors import DamagedLogError

cdef enum:
    MAGIC_AT = 16
    CRC_BUDGET_FACTOR = 16          # bytes whose CRC a search may compute, per byte of the log
    CRC_BUDGET_FLOOR = 64 << 20
    ANY_EPOCH = -2
    LEAST_RECORD_SIZE = 7           # bytes; KRaft never compresses: each offset takes these


class TornTail(NamedTuple):
    path: str           # the file with the cut
    offset: int         # the log's end: the base offset of the torn batch
    position: int       # the first byte cut
    size: int           # bytes cut, later segments included
    reason: str


class Gap(NamedTuple):
    """Damage that a salvaging open skipped; next_offset is -1 if nothing follows it."""

    path: str           # the file in which the damage begins
    offset: int         # the first offset that is lost
    position: int       # the first damaged byte
    next_path: str      # where reading continued
    next_offset: int
    next_position: int
    reason: str


cdef bint crc_matches(const uint8_t *batch, const BatchHeader *header) except -1:
    return header.crc == crc32c_of(
        batch + CRC_START, LOG_OVERHEAD + header.batch_length - CRC_START
    )


cdef class LogScan:
    def __init__(
        self, disk, str directory, int32_t index_interval_bytes, bint read_only, bint salvage,
        int64_t synced_offset=-1, bint is_sparse=False,
    ):
        self._disk = disk
        self._is_sparse = is_sparse
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self._read_only = read_only
        self._salvage = salvage
        self._synced_offset = synced_offset
        self._crc_budget = CRC_BUDGET_FLOOR
        self.segments = []
        self.epochs = EpochCache()
        self.gaps = []
        self.last_epoch = -1

    def run(self, list base_offsets):
        try:
            self._run(base_offsets)
        except BaseException:
            for segment in self.segments:
                segment.close()
            raise

    def _run(self, list base_offsets):
        cdef Segment segment
        cdef int64_t resume = -1        # where a salvage continues in the next segment, or -1
        cdef Py_ssize_t index = 0, count = len(base_offsets)
        self.next_offset = base_offsets[0]
        while index < count:
            if resume < 0 and base_offsets[index] != self.next_offset:
                segment = self.segments[len(self.segments) - 1]
                self._position = self._total
                reason = (
                    f"the next segment begins with offset {base_offsets[index]} in place of "
                    f"{self.next_offset}"
                )
            else:
                segment = self._open_segment(base_offsets[index])
                self.segments.append(segment)
                index += 1
                self._begin_segment(segment, max(resume, 0))
                reason = self._scan_segment(segment)
            while True:
                resume = -1
                if reason is None:
                    break
                found = self._judge(segment, base_offsets[index:], reason)
                if found is None:
                    return
                skipped, resume, self.next_offset = found
                if skipped:
                    index += skipped - 1
                    break
                segment.skip_damage(self._position, resume)
                self._position = resume
                reason = self._scan_segment(segment)

    def _begin_segment(self, Segment segment, int64_t position):
        self._total = segment.size
        self._crc_budget += self._total * CRC_BUDGET_FACTOR
        self._position = position
        segment.mapped()
        segment.size = 0
        if position > 0:
            segment.skip_damage(0, position)

    cdef Segment _open_segment(self, int64_t base_offset):
        return Segment(
            self._disk, self._directory, base_offset, self._index_interval_bytes, self._read_only
        )

    cdef str _scan_segment(self, Segment segment):
        """Read the batches from the scan's position on; return None, or why the scan stopped.

        The bytes that stopped the scan begin at the position.
        """
        cdef BatchHeader header
        cdef const uint8_t *data = segment._mapping.data
        cdef int64_t sound, start = self._position
        cdef int code
        # All CRCs at once without the GIL, for which a starting process has other threads.
        with nogil:
            sound = start + sound_end(data + start, self._total - start)
        while self._position < self._total:
            code = read_batch_header(
                data + self._position, <size_t>(self._total - self._position), &header
            )
            if code == HEADER_CUT_SHORT or code == BATCH_CUT_SHORT:
                return "the file ends inside a batch"
            if code:
                return reason_text(code)
            if header.base_offset != self.next_offset and not (
                self._is_sparse and header.base_offset > self.next_offset
            ):
                return (
                    f"a batch begins with offset {header.base_offset} in place of "
                    f"{self.next_offset}"
                )
            if header.partition_leader_epoch < self.last_epoch and not self._is_sparse:
                return f"leader epoch {header.partition_leader_epoch} follows {self.last_epoch}"
            if (
                header.base_offset + header.last_offset_delta - segment.base_offset > INT32_MAX
                or self._position > INT32_MAX
            ):
                return "a batch is too far from the segment's base offset"
            if self._position >= sound and not crc_matches(data + self._position, &header):
                return "the CRC of a batch does not match"
            if self._salvage and self._rises_alone(data, &header):
                return f"only one batch has leader epoch {header.partition_leader_epoch}"
            if header.partition_leader_epoch > self.last_epoch:
                self.last_epoch = header.partition_leader_epoch
                self.epochs.assign(self.last_epoch, header.base_offset)
                self._batches_of_epoch = 0
            self._batches_of_epoch += 1
            segment.note_batch(&header, self._position)
            self.next_offset = segment.end_offset
            self._position = segment.size
        return None

    cdef bint _rises_alone(self, const uint8_t *data, const BatchHeader *header) except -1:
        """Return whether the batches after the one at the position have a lower epoch than it.

        The second batch after it decides which of the two is wrong.
        """
        cdef BatchHeader behind
        cdef int64_t position = self._position + LOG_OVERHEAD + header.batch_length
        cdef int64_t next_offset = header.base_offset + header.last_offset_delta + 1
        cdef int32_t epoch = header.partition_leader_epoch
        cdef int seen
        if epoch <= self.last_epoch:
            return False
        for seen in range(2):
            if (
                read_batch_header(data + position, <size_t>(self._total - position), &behind)
                or behind.base_offset != next_offset
                or not crc_matches(data + position, &behind)
            ):
                return seen > 0
            if not self.last_epoch <= behind.partition_leader_epoch < epoch:
                return False
            position += LOG_OVERHEAD + behind.batch_length
            next_offset += behind.last_offset_delta + 1
        return True

    cdef object _judge(self, Segment segment, list later, str reason):
        """Judge bytes that are no whole batch; return None if the log ends before them.

        Otherwise return where a salvaging open continues: (0 for this segment or n for the n-th
        later one, position, offset). Raises DamagedLogError without `salvage`.
        """
        cdef BatchHeader header
        cdef int64_t left = self._total - self._position
        if self._is_sparse:
            # A broker fetches again from the leader what it cuts off, as Kafka does.
            self._cut_tail(segment, later, reason)
            return None
        # A batch that is whole but out of sequence is not the result of a crash either.
        cdef bint damaged = (
            left > 0
            and read_batch_header(
                segment._mapping.data + self._position, <size_t>left, &header
            ) == 0
            and crc_matches(segment._mapping.data + self._position, &header)
        )
        cdef bint cuttable
        if self._synced_offset >= 0:
            cuttable = self.next_offset >= self._synced_offset
        else:
            cuttable = not (
                damaged
                or self._find_behind(segment, later, self.next_offset, -1, False)
                or self._find_behind(None, later, 0, -1, False)
            )
        if cuttable:
            self._cut_tail(segment, later, reason)
            return None
        if not self._salvage:
            if self._synced_offset >= 0:
                reason = f"{reason}, but the log was synced up to offset {self._synced_offset}"
            else:
                reason = f"{reason}, and whole batches follow"
            raise DamagedLogError(
                f"{reason}: open with salvage to skip it",
                path=segment.path, offset=self.next_offset, position=self._position,
            )
        found = self._find_behind(segment, later, self.next_offset, self.last_epoch, True)
        if found is None and self._crc_budget >= 0 and self._batches_of_epoch == 1:
            # One batch alone claims such a high epoch, and would hide everything after it.
            found = self._find_behind(segment, later, self.next_offset, ANY_EPOCH, True)
            if found is not None:
                self.last_epoch = -1
        if self._crc_budget < 0:
            found = None
        skipped, position, offset = found or (0, self._total, -1)
        path = segment_file(self._directory, later[skipped - 1], LOG) if skipped else segment.path
        self.gaps.append(
            Gap(segment.path, self.next_offset, self._position, path, offset, position, reason)
        )
        return found

    cdef object _find_behind(
        self, Segment segment, list later, int64_t least_offset, int32_t least_epoch,
        bint to_read_on,
    ):
        """Find the first batch that may follow, in `segment` from here on and in later segments.

        `to_read_on` skips batches below the offset in their segment's name: they are damage, and no
        index could have them. It also skips batches that are more offsets after the damage than
        records fit into it.
        """
        cdef BatchHeader header
        cdef Segment other
        cdef int64_t position, start
        if segment is not None:
            # The batch that stopped the scan is no place to continue, unless its epoch was too low.
            start = self._position + (1 if to_read_on and least_epoch != ANY_EPOCH else 0)
            position = self._find_batch(
                segment, self._total, start, least_offset, least_epoch,
                self._position if to_read_on else -1, &header,
            )
            if position >= 0:
                return 0, position, header.base_offset
        for number, base_offset in enumerate(later, 1):
            other = self._open_segment(base_offset)
            try:
                other.mapped()
                self._crc_budget += other.size
                position = self._find_batch(
                    other, other.size, 0,
                    max(least_offset, other.base_offset) if to_read_on else least_offset,
                    least_epoch, 0 if to_read_on else -1, &header,
                )
            finally:
                other.close()
            if position >= 0:
                return number, position, header.base_offset
        return None

    cdef int64_t _find_batch(
        self, Segment segment, int64_t total, int64_t start, int64_t least_offset,
        int32_t least_epoch, int64_t lost_from, BatchHeader *header,
    ) except -2:
        """Return the position of the first whole batch at or after byte `start`, or -1.

        Once the CRC budget is used up, return the first position that may be a batch. From byte
        `lost_from` on (-1: unknown) the bytes before it had the offsets from `least_offset` on.
        """
        cdef const uint8_t *data = segment._mapping.data
        cdef const uint8_t *found
        cdef int64_t position = start
        while position + BATCH_OVERHEAD <= total:
            found = <const uint8_t *>memchr(
                data + position + MAGIC_AT, MAGIC_V2,
                <size_t>(total - position - BATCH_OVERHEAD + 1),
            )
            if found == NULL:
                return -1
            position = (found - data) - MAGIC_AT
            if (
                read_batch_header(data + position, <size_t>(total - position), header) == 0
                and header.base_offset >= least_offset
                and (
                    lost_from < 0
                    or header.base_offset - least_offset
                    <= (position - lost_from) // LEAST_RECORD_SIZE
                )
                and header.partition_leader_epoch >= least_epoch
                and header.base_offset + header.last_offset_delta - segment.base_offset
                <= INT32_MAX
                and position <= INT32_MAX
            ):
                self._crc_budget -= header.batch_length
                if self._crc_budget < 0 or crc_matches(data + position, header):
                    return position
            position += 1
        return -1

    cdef int _cut_tail(self, Segment segment, list later, str reason) except -1:
        cdef int64_t size = self._total - self._position
        for base_offset in reversed(later):
            other = self._open_segment(base_offset)
            size += other.size
            if self._read_only:
                other.close()
            else:
                other.delete()
                self._disk.sync_directory(self._directory)
        if not self._read_only and self._position < self._total:
            segment.cut(self._position)
        self.torn_tail = TornTail(segment.path, self.next_offset, self._position, size, reason)
        return 0
