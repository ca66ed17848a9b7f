"""Compaction of a table, in steps: its live rows move into another, which then takes its place.

Dead rows, of removed topics, stay in a table until then. The steps let an event loop answer
requests meanwhile: a million live rows take 0.2 s. The table must not change from the first step to
the last; it and its images can be read.

At the end the old rows move into the other table, together with their journal. The images of before
read them from there, with the old numbers, and the last image to go frees them. A broker always
holds an image: a compaction that waited for the images would never happen.

Called by ``table``. Every topic gets one extent of rows, in the order of the old numbers.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free

from kraft._core.codec.partition_codec cimport PartitionState
from kraft._core.table.images cimport TableImage
from kraft._core.table.rows cimport NO_MEMORY, TableRows

from kraft._core.table.rows import refusal
from kraft.errors import ReplayError


cdef class Compaction:
    """See ``compaction.pyi`` for the public interface."""

    cdef TableRows table
    cdef TableRows fresh            # None after `finish`
    # The end of the journal and the number of reverts at the first step.
    cdef int64_t journal_end
    cdef int64_t revert_count
    # The next topic of `table`; the (partition, row) pairs of the one under way, its new number.
    cdef int64_t next_topic
    cdef int32_t *pairs
    cdef int64_t pair_count
    cdef int64_t next_pair
    cdef int64_t number

    def __cinit__(self, TableRows table not None, TableRows fresh not None):
        self.table = table
        self.fresh = fresh
        self.journal_end = table.journal_end()
        self.revert_count = table.revert_count
        self._check()
        table.ensure_checked()

    def __dealloc__(self):
        free(self.pairs)

    def _check(self):
        """Raise if the journal holds changes that can be reverted, or that are newer than the first
        step.
        """
        if self.fresh is None:
            raise ReplayError("the compaction of the table is finished: begin another one")
        if (
            self.table.is_revertible() or self.table.journal_end() != self.journal_end
            or self.table.revert_count != self.revert_count
        ):
            raise ReplayError("cannot compact the table: its journal holds changes")

    def step(self, int64_t max_rows):
        cdef int failed
        self._check()
        with nogil:
            failed = self.move_rows(max_rows)
        if failed < 0:
            # A mapped checkpoint may hold a name or an id twice: its CRCs do not detect that.
            raise refusal(failed, "the table cannot be compacted")
        return self.next_topic < self.table.topics.ids.count or self.next_pair < self.pair_count

    def finish(self):
        cdef TableImage image
        while self.step(1 + self.table.row_count):
            pass
        self.fresh.ask_for_huge_pages()
        images = self.table._live_images()
        self.table.swap_rows_with(self.fresh)
        for image in images:
            image.table = self.fresh
        self.fresh = None

    cdef int move_rows(self, int64_t max_rows) noexcept nogil:
        """Copy up to this many rows, and begin up to as many topics; 0, or a negative Refusal."""
        cdef PartitionState state
        cdef int64_t row, left = max_rows
        cdef int failed
        while left > 0:
            if self.next_pair == self.pair_count:
                if self.next_topic == self.table.topics.ids.count:
                    return 0
                failed = self.begin_topic()
                if failed < 0:
                    return failed
                left -= 1
                continue
            self.table.load_row(self.pairs[2 * self.next_pair + 1], &state)
            row = self.fresh.append_row(<int32_t>self.number, self.pairs[2 * self.next_pair], 0)
            if row < 0 or self.fresh.store_row(row, &state) < 0:
                return NO_MEMORY
            self.next_pair += 1
            left -= 1
        return 0

    cdef int begin_topic(self) noexcept nogil:
        """Add the next topic to the fresh table if it is alive; 0, or a negative Refusal."""
        cdef int64_t topic = self.next_topic
        cdef int32_t name_size = 0
        cdef const uint8_t *name
        self.next_topic += 1
        if not self.table.topics.entry(topic).alive:
            return 0
        name = self.table.topics.names.name(topic, &name_size)
        self.number = self.fresh.add_topic(name, name_size, self.table.topic_id(topic), 0)
        if self.number < 0:
            return <int>self.number
        free(self.pairs)
        self.next_pair = self.pair_count = 0
        self.pairs = self.table.rows_of_topic(topic, &self.pair_count)
        return NO_MEMORY if self.pairs == NULL and self.pair_count else 0
