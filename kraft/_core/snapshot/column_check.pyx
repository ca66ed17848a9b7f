"""Checks of a table loaded from a column checkpoint, before its values are trusted.

`adopt_extents` runs at once, in time proportional to topics: their rows are consecutive and fill
the table, so that finding a row stays inside of it. `ColumnCheck` is one pass over the columns:
every topic and directory is found by its own name and id, each row is of the topic and partition of
its place, packed lists name existing slots, directories are known, irregular rows have well-formed
blocks. A table mapped without verification runs it (`PartitionColumns.ensure_checked`) before the
first operation over its rows.

Invariants: after both checks no value in a column can lead a kernel outside of its memory, and
look-ups agree with the columns: no name or id is missing or there twice. Used by
``column_checkpoint``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from kraft._core.bytes.arena cimport arena_reserve
from kraft._core.table.columns cimport IRREGULAR, packed_fault
from kraft._core.table.intern cimport NameMap, UuidMap
from kraft._core.codec.partition_codec cimport MAX_REPLICAS
from kraft._core.table.table cimport PartitionTable
from kraft._core.table.topics cimport TopicEntry

from kraft.errors import CorruptRecordError


def adopt_extents(PartitionTable table not None, path):
    cdef int result
    with nogil:
        result = list_scattered(table)
    if result == -2:
        raise MemoryError("no memory for scattered partitions")
    if result < 0:
        raise CorruptRecordError(
            "the topics' rows are not consecutive", path=path
        )


cdef int list_scattered(PartitionTable table) noexcept nogil:
    """Check that the topics' rows fill the table, and list the scattered rows.

    Return 0, -1 if the check fails, or -2 if out of memory.
    """
    cdef const TopicEntry *entry
    cdef int64_t topic, row = 0, index
    cdef int64_t last
    for topic in range(table.topics.ids.count):
        entry = table.topics.entry(topic)
        if (
            entry.alive != 1 or entry.row_count < 0 or entry.partition_count < entry.row_count
            or entry.partition_count > table.row_count - row
        ):
            return -1
        if entry.partition_count == 0:
            continue
        last = <int64_t>entry.first_partition + entry.row_count - 1
        if (
            entry.row_count < 1 or entry.first_row != row or entry.first_partition < 0
            or entry.max_partition < last
            or (entry.partition_count == entry.row_count and entry.max_partition != last)
        ):
            return -1
        for index in range(row + entry.row_count, row + entry.partition_count):
            if not last < table.partition[index] <= entry.max_partition:
                return -1
            last = table.partition[index]
            if table.topics.scattered.put(<int32_t>topic, <int32_t>last, index) < 0:
                return -2
        row += entry.partition_count
    return 0 if row == table.row_count else -1


cdef class ColumnCheck:
    cdef dict _sections
    cdef object _path

    def __init__(self, sections, path):
        self._sections = sections
        self._path = path

    def __call__(self, PartitionTable table not None):
        cdef int32_t[::1] irregular_rows = self._sections["irregular_rows"]
        cdef int64_t[::1] ends = self._sections["irregular_ends"]
        cdef int32_t[::1] words = self._sections["irregular_blocks"]
        cdef int64_t count = irregular_rows.shape[0]
        cdef NameMap names = table.topics.names
        cdef UuidMap ids = table.topics.ids, directories = table.directories_seen
        cdef const char *reason
        with nogil:
            reason = slot_fault(names, ids, directories)
            if reason == NULL:
                reason = row_fault(table)
            if reason == NULL and count:
                reason = block_fault(
                    table, &irregular_rows[0], &ends[0], &words[0] if words.shape[0] else NULL,
                    count, words.shape[0],
                )
        if reason == NULL and not count and words.shape[0]:
            reason = "blocks without an irregular row"
        if reason != NULL:
            raise CorruptRecordError(reason.decode(), path=self._path)
        if count:
            adopt_blocks(table, &ends[0], &words[0], count)


cdef const char *slot_fault(NameMap names, UuidMap ids, UuidMap directories) noexcept nogil:
    """Return NULL, or the fault if a hash map does not map every key to its own number.

    Each map has as many used slots as entries. If every entry is found, no slot is left for
    another one, and no key is there twice.
    """
    cdef const uint8_t *name
    cdef int32_t size = 0
    cdef int64_t number
    for number in range(names.count):
        name = names.name(number, &size)
        if names.find(name, size) != number:
            return "a topic is not found by its name, or another one has the same"
    if not finds_all(ids):
        return "a topic is not found by its id, or another one has the same"
    if not finds_all(directories):
        return "a directory is not found by its id, or another one has the same"
    return NULL


cdef bint finds_all(UuidMap ids) noexcept nogil:
    cdef int64_t number
    for number in range(ids.count):
        if ids.find(ids.keys.data + 16 * number) != number:
            return False
    return True


cdef const char *row_fault(PartitionTable table) noexcept nogil:
    """Return NULL, or the fault in the columns of a table whose extents were checked."""
    cdef int64_t topic, row, start, rows = table.row_count, irregular = 0
    cdef const TopicEntry *entry
    cdef uint32_t stride = <uint32_t>table.stride, fault = 0, regular, most = 0
    cdef uint32_t directories = <uint32_t>table.directories_seen.count
    cdef int32_t shift, wrong = 0
    for topic in range(table.topics.ids.count):
        entry = table.topics.entry(topic)
        start = entry.first_row
        shift = entry.first_partition - entry.first_row
        for row in range(start, start + entry.row_count):
            wrong |= (table.topic[row] ^ <int32_t>topic) | (
                table.partition[row] ^ (<int32_t>row + shift)
            )
        for row in range(start + entry.row_count, start + entry.partition_count):
            wrong |= table.topic[row] ^ <int32_t>topic
    if wrong:
        return "rows are not of the topic and partition of their place"
    for row in range(rows):
        # All ones for a regular row, 0 for an irregular one, whose `isr` is no packed list.
        regular = <uint32_t>0 - <uint32_t>(table.isr[row] != <uint32_t>IRREGULAR)
        irregular += 1 + <int32_t>regular
        fault |= regular & (
            packed_fault(table.isr[row], stride) | packed_fault(table.elr[row], stride)
            | packed_fault(table.last_known_elr[row], stride)
        )
    if fault:
        return "a packed list names a slot that its row does not have"
    if irregular != table.irregular_count:
        return "the listed rows are not the irregular rows"
    for row in range(rows * stride):
        most = max(most, table.directories[row])
    if rows and most >= directories:
        return "a row names a directory that does not exist"
    return NULL


cdef const char *block_fault(
    PartitionTable table, const int32_t *rows, const int64_t *ends, const int32_t *words,
    int64_t count, int64_t size,
) noexcept nogil:
    cdef int64_t index, start = 0, length
    cdef int32_t previous = -1, place
    cdef const int32_t *block
    for index in range(count):
        if not previous < rows[index] < table.row_count:
            return "the list of irregular rows does not ascend"
        previous = rows[index]
        if table.isr[previous] != IRREGULAR or table.elr[previous] != <uint32_t>index:
            return "an irregular row does not name its block"
        if not start + 10 <= ends[index] <= size:
            return "a block of an irregular row is outside of the blocks"
        block = words + start
        length = 10
        for place in range(6):
            if not 0 <= block[place] <= MAX_REPLICAS:
                return "a block of an irregular row has more entries than a list may"
            length += block[place]
        if length + block[0] != ends[index] - start:
            return "a block of an irregular row does not have the size of its lists"
        for place in range(block[0]):
            if <uint32_t>block[10 + block[0] + place] >= <uint64_t>table.directories_seen.count:
                return "an irregular row names a directory that does not exist"
        start = ends[index]
    if start != size:
        return "bytes after the last block of an irregular row"
    return NULL


cdef object adopt_blocks(PartitionTable table, const int64_t *ends, const int32_t *words,
                         int64_t count):
    """Copy the blocks, because the table frees each when its row changes."""
    cdef int64_t index, start = 0
    cdef size_t size
    cdef int32_t *block
    if (
        arena_reserve(&table.blocks, count * sizeof(void *)) < 0
        or arena_reserve(&table.free_blocks, 4 * <size_t>count) < 0
    ):
        raise MemoryError("no memory for irregular rows")
    for index in range(count):
        size = 4 * <size_t>(ends[index] - start)
        block = <int32_t *>malloc(size)
        if block == NULL:
            raise MemoryError("no memory for irregular rows")
        memcpy(block, words + start, size)
        (<int32_t **>table.blocks.data)[index] = block
        table.blocks.size += sizeof(void *)
        start = ends[index]
