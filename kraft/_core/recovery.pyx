"""The full scan of a log, as after an unclean stop: what is whole, torn or damaged.

Owns the judgement over bytes that are no whole batch. A *torn tail* is what an interrupted write
leaves: bytes behind which no valid batch lies, in this segment or a later one; they were never
acknowledged and may be cut. *Damage* is anything that a valid batch follows: cutting there would
lose committed records, so it is refused, or read past by a salvaging open and reported.

Where it is known up to which offset the log was synced, that decides: what is no whole batch before
it is damage, and what lies behind it was never acknowledged. A crash may leave the end of an
unsynced write and not its beginning, so that whole batches follow torn ones there.

A batch is valid where its header is sound, its CRC-32C matches, its base offset is the one that
must come next (metadata logs are dense) and its leader epoch does not fall. Behind bad bytes a
batch is searched at every byte: magic 2, a length that fits, an offset and an epoch that may
still come, and the CRC. The search spends at most a fixed multiple of the bytes at hand on
CRCs; bytes that were made to exhaust that count as damage, since refusing loses nothing.

The base offset and the leader epoch lie outside the CRC. A salvaging open therefore checks both:
a batch may lie only as many offsets behind the damage as the damaged bytes can have held records,
and an epoch that rises for one batch and falls with the next is damage of that batch.
Fed by `log`; feeds on `segment` and `batch`.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr

from kraft._core.batch cimport (
    BATCH_CUT_SHORT,
    BATCH_OVERHEAD,
    CRC_START,
    HEADER_CUT_SHORT,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    crc32c_of,
    read_batch_header,
)
from kraft._core.segment cimport Segment

from typing import NamedTuple

from kraft._core.batch import reason_text
from kraft._core.epoch_cache import EpochCache
from kraft._core.partition_directory import LOG, segment_file
from kraft.errors import DamagedLogError

cdef enum:
    MAGIC_AT = 16
    CRC_BUDGET_FACTOR = 16          # bytes of CRC that a search may take for each byte of the log
    CRC_BUDGET_FLOOR = 64 << 20
    ANY_EPOCH = -2
    LEAST_RECORD_SIZE = 7           # bytes; KRaft never compresses, so that each offset takes them


class TornTail(NamedTuple):
    path: str           # the file that the cut is in
    offset: int         # the log's end: what the torn batch would have begun with
    position: int       # the first byte cut
    size: int           # bytes cut, the segments behind it included
    reason: str


class Gap(NamedTuple):
    """Damage that a salvaging open read past; next_offset is -1 where nothing was found behind."""

    path: str           # the file that the damage begins in
    offset: int         # the first offset that is lost
    position: int       # the first damaged byte
    next_path: str      # where reading went on
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
        int64_t synced_offset=-1,
    ):
        self._disk = disk
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
        cdef int64_t resume = -1        # where in the next segment a salvage goes on, or -1
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
        """Takes up the batches from the scan's position on; None at the end, else why it stopped.

        What stopped the scan begins at the position.
        """
        cdef BatchHeader header
        cdef const uint8_t *data = segment._mapping.data
        cdef int code
        while self._position < self._total:
            code = read_batch_header(
                data + self._position, <size_t>(self._total - self._position), &header
            )
            if code == HEADER_CUT_SHORT or code == BATCH_CUT_SHORT:
                return "the file ends inside a batch"
            if code:
                return reason_text(code)
            if header.base_offset != self.next_offset:
                return (
                    f"a batch begins with offset {header.base_offset} in place of "
                    f"{self.next_offset}"
                )
            if header.partition_leader_epoch < self.last_epoch:
                return f"leader epoch {header.partition_leader_epoch} follows {self.last_epoch}"
            if (
                header.base_offset + header.last_offset_delta - segment.base_offset > INT32_MAX
                or self._position > INT32_MAX
            ):
                return "a batch lies too far behind the segment's beginning"
            if not crc_matches(data + self._position, &header):
                return "the CRC of a batch does not match"
            if self._salvage and self._rises_alone(data, &header):
                return f"leader epoch {header.partition_leader_epoch} is that of one batch only"
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
        """Whether the batches behind the one at the position go on in a lower epoch than its own.

        The second batch behind it decides which of the two is wrong.
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
        """What becomes of bytes that are no whole batch: None where the log ends before them.

        Otherwise the place where a salvaging open reads on: (0 for this segment or n for the
        n-th of the later ones, position, offset).
        """
        cdef BatchHeader header
        cdef int64_t left = self._total - self._position
        # A batch that is whole but out of place was not torn off by a crash either.
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
                reason = f"{reason}, and the log was synced up to offset {self._synced_offset}"
            else:
                reason = f"{reason}, and whole batches follow"
            raise DamagedLogError(
                f"{reason}: opening with salvage reads past it",
                path=segment.path, offset=self.next_offset, position=self._position,
            )
        found = self._find_behind(segment, later, self.next_offset, self.last_epoch, True)
        if found is None and self._crc_budget >= 0 and self._batches_of_epoch == 1:
            # One batch alone says that the epoch is so high, and hides everything behind it.
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
        """The first batch that may still come, in `segment` from here on and in the later ones.

        `to_read_on` passes over those that lie before the offset that their segment is named by:
        they are damage, and no index could hold them. It also passes over those that lie more
        offsets behind the damage than it has room for.
        """
        cdef BatchHeader header
        cdef Segment other
        cdef int64_t position, start
        if segment is not None:
            # What stopped the scan is no place to go on, but where its epoch alone was too low.
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
        """The position of the first whole batch at or behind byte `start`; -1 where there is none.

        Once the budget is spent, that is the first one that might be a batch. From byte `lost_from`
        on (-1: not known) the bytes before it held the offsets from `least_offset` on.
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
