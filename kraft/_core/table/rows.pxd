# Journaled rows: topics, partitions, the broker index, and the journal; see rows.pyx.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kraft._core.bytes.arena cimport Arena
from kraft._core.table.broker_index cimport BrokerIndex
from kraft._core.table.columns cimport PartitionColumns
from kraft._core.table.intern cimport UuidMap
from kraft._core.codec.partition_codec cimport PartitionState
from kraft._core.table.topics cimport TopicTable


# Why a change was rejected; `rows.refusal` makes the exception.
cdef enum Refusal:
    NO_MEMORY = -101
    TOPIC_EXISTS = -102
    UNKNOWN_TOPIC = -103
    UNKNOWN_PARTITION = -104
    TOPIC_ID_EXISTS = -105
    BAD_PARTITION_ID = -106
    OFFSET_FALLS = -107


cdef enum JournalKind:
    ROW_CHANGED = 0
    ROWS_ADDED = 1              # `count` rows from `row` on, at offsets from `offset` on
    TOPIC_ADDED = 2             # `row` is the topic's number
    TOPIC_REMOVED = 3           # likewise


# One change, with the values before it.
cdef struct JournalEntry:
    int64_t offset              # of the record that caused the change
    int32_t kind
    int32_t row
    int32_t count
    int32_t leader
    int32_t leader_epoch
    int32_t partition_epoch
    uint32_t isr
    uint32_t elr
    uint32_t last_known_elr
    int32_t leader_recovery_state
    int32_t *block              # the whole old state if more than the above changed, else NULL


cdef class TableRows(PartitionColumns):
    cdef TopicTable topics
    cdef UuidMap directories_seen
    cdef BrokerIndex index
    cdef readonly int64_t indexed_row_count  # the rows below are in the index
    cdef readonly int64_t partition_count
    cdef Arena journal              # JournalEntry, oldest first
    cdef int64_t journal_first      # the first entry in `journal` that is not dropped
    cdef readonly int64_t journal_sequence  # the sequence number of the entry at `journal_first`
    cdef readonly bint is_journaling
    cdef readonly int64_t journal_start_offset  # the lowest offset for a revert
    # The journal below is kept for images only; see `forget`.
    cdef int64_t forgotten_offset
    # A revert reuses sequence numbers; readers that keep some compare this count.
    cdef int64_t revert_count
    cdef list images                # weak references to the TableImages that may be alive

    cdef JournalEntry *record(self, int64_t offset, int32_t kind, int32_t row) noexcept nogil
    cdef int64_t add_topic(self, const uint8_t *name, int32_t name_size,
                           const uint8_t *topic_id, int64_t offset) noexcept nogil
    cdef int discard_topic(self, int64_t topic, int64_t offset) noexcept nogil
    cdef int64_t append_row(self, int32_t topic, int32_t partition, int64_t offset) noexcept nogil
    cdef int replace_row(self, int64_t row, const PartitionState *after,
                         int64_t offset) noexcept nogil
    cdef int note_scalars(self, int64_t row, int64_t offset) noexcept nogil
    cdef int index_row(self, int64_t row) noexcept nogil
    cdef int32_t *rows_of_topic(self, int64_t topic, int64_t *count) noexcept nogil
    cdef int undo(self, JournalEntry *entry, int64_t kept) noexcept nogil
    cdef int index_rows(self, int64_t count) noexcept nogil
    cdef list _live_images(self)
    cdef list _live_image_offsets(self)
    cdef object own_topics(self)
    cdef object swap_rows_with(self, TableRows other)
    cdef object _refuse_beside_images(self, str what)
    cdef inline bint falls(self, int64_t offset) noexcept nogil:
        """Return whether `offset` lies before that of a change in the journal."""
        return self.is_journaling and offset < self.journal_tip() - (1 if self.has_journal() else 0)
    cdef inline bint is_revertible(self) noexcept nogil:
        """Return whether the journal holds changes that the owner has not forgotten."""
        return self.has_journal() and self.journal_tip() > self.forgotten_offset
    cdef inline bint has_journal(self) noexcept nogil:
        return self.journal.size > <size_t>self.journal_first * sizeof(JournalEntry)
    cdef inline int64_t journal_tip(self) noexcept nogil:
        """Return the offset after the last one in the journal."""
        cdef const JournalEntry *last
        if not self.has_journal():
            return self.journal_start_offset
        last = <const JournalEntry *>(self.journal.data + self.journal.size) - 1
        return last.offset + last.count
    cdef inline const uint8_t *directory_ids(self) noexcept nogil:
        return self.directories_seen.keys.data
    cdef inline const uint8_t *topic_id(self, int64_t topic) noexcept nogil:
        return self.topics.ids.keys.data + 16 * topic
    cdef inline JournalEntry *journal_entry(self, int64_t sequence) noexcept nogil:
        return (<JournalEntry *>self.journal.data) + (
            self.journal_first + sequence - self.journal_sequence
        )
    cdef inline int64_t journal_end(self) noexcept nogil:
        """Return the sequence number of the next journal entry."""
        return (
            self.journal_sequence + <int64_t>(self.journal.size // sizeof(JournalEntry))
            - self.journal_first
        )


cdef dict state_as_dict(const PartitionState *state)
