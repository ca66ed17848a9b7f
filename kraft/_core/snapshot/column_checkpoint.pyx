"""The column checkpoint: a table's arrays beside Kafka's snapshot, mapped instead of replayed.

Beside ``00000000000000000251-0000000001.checkpoint`` is
``00000000000000000251-0000000001.columns``::

    0      magic "KRAFTCOL" | header size u32 LE | header CRC-32C u32 LE | header, msgpack | zeros
    8192   the sections in the order of SECTIONS, each at a multiple of 64 bytes, native byte order

A large table's file has format 2: each column of rows has pages of its own, and begins 320 bytes
later in its first one than the column before, as in the table's memory. Other files have format 1.

The header has the format version and byte order, the snapshot's name, size and fingerprint, the
counts that determine every shape, and of each section name, dtype, shape, position, size and
CRC-32C. The content is compact: no row of a removed topic, topics numbered from 0 without gaps, the
rows of topic k after those of topic k - 1; within a topic first its extent (consecutive
partitions), then partitions after a gap, ascending.

Kafka's snapshot is authoritative. A column checkpoint may be deleted at any time. One that does not
fit (another snapshot, damage, another format or byte order) is rejected with a reason, not an
exception.

Invariants: loading copies no column; the mapping is private and copy-on-write, so that changes of a
table never reach its file. A table that is loaded to grow has its columns mapped where rows can be
added, see ``PartitionColumns.map_columns``; its other arrays are copied. A file is replaced by
renaming and never written or shortened in place: its mapped pages would change or disappear. Used
by ``kraft.metadata.snapshots`` and ``kraft.server``; uses ``table``, ``intern`` and ``disk``.
"""

import os
import struct
import sys
from typing import NamedTuple

import msgpack
import numpy as np
cimport numpy as cnp

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy
from posix.mman cimport MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from kraft._core.bytes.arena cimport arena_borrow
from kraft._core.table.columns cimport IRREGULAR, LARGE, PAGE, SHIFT_IN_PAGE, size_of_block
from kraft._core.log.disk cimport OsFile
from kraft._core.table.intern cimport NameMap, UuidMap
from kraft._core.table.table cimport PartitionTable
from kraft._core.table.topics cimport TopicEntry, TopicTable

from kraft._core.bytes.checksum import crc32c
from kraft._core.snapshot.column_check import ColumnCheck, adopt_extents
from kraft._core.log.disk import OsDisk
from kraft._core.snapshot.snapshot_file import PART_SUFFIX, SUFFIX, SnapshotReader
from kraft.errors import CorruptRecordError, InvalidRequestError, StorageError

cnp.import_array()

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *address, size_t size, int advice)

COMPACT_FORMAT, PAGED_FORMAT = 1, 2
COLUMNS_SUFFIX = ".columns"
MAGIC = b"KRAFTCOL"
SECTIONS_START = 8192

cdef enum:
    ALIGNMENT = 64
    FINGERPRINT_SIZE = 65536
    MADV_POPULATE_READ = 22         # Linux 5.14; if it is not supported, pages are read one by one
    RESERVED_DIRECTORIES = 3

# Each section's dtype and shape; the names in a shape are counts of the header.
SECTIONS = (
    ("leader", "i4", ("rows",)),
    ("leader_epoch", "i4", ("rows",)),
    ("partition_epoch", "i4", ("rows",)),
    ("topic", "i4", ("rows",)),
    ("partition", "i4", ("rows",)),
    ("isr", "u4", ("rows",)),
    ("elr", "u4", ("rows",)),
    ("last_known_elr", "u4", ("rows",)),
    ("leader_recovery_state", "i1", ("rows",)),
    ("replicas", "i4", ("rows", "stride")),
    ("directories", "u4", ("rows", "stride")),
    ("topic_entries", "i4", ("topics", 6)),
    ("topic_ids", "u1", ("topics", 16)),
    ("topic_id_slots", "u4", ("topic_id_slots",)),
    ("topic_name_text", "u1", ("topic_name_text",)),
    ("topic_name_ends", "u8", ("topics",)),
    ("topic_name_slots", "u4", ("topic_name_slots",)),
    ("directory_ids", "u1", ("directories", 16)),
    ("directory_id_slots", "u4", ("directory_id_slots",)),
    ("irregular_rows", "i4", ("irregular_rows",)),
    ("irregular_ends", "i8", ("irregular_rows",)),
    ("irregular_blocks", "i4", ("irregular_words",)),
    ("records", "u1", ("records",)),
)
cdef tuple COLUMNS = tuple(name for name, _, shape in SECTIONS if shape[0] == "rows")
cdef tuple COUNTS = tuple(
    sorted({count for _, _, shape in SECTIONS for count in shape if isinstance(count, str)})
)
# The header's numbers beside the counts.
cdef tuple NUMBERS = (
    "snapshot_size", "snapshot_crc", "end_offset", "epoch", "last_contained_log_timestamp_ms",
    "kraft_version",
)


class ColumnCheckpoint(NamedTuple):
    table: PartitionTable
    records: memoryview
    end_offset: int
    epoch: int
    last_contained_log_timestamp_ms: int
    kraft_version: int


class ColumnsRejected(NamedTuple):
    path: str
    reason: str


def columns_path(snapshot_path):
    path = os.fspath(snapshot_path)
    return path.removesuffix(SUFFIX) + COLUMNS_SUFFIX


cdef class PrivateMapping:
    """A file's bytes, mapped copy-on-write: a write changes this process's copy of a page only."""

    cdef void *_pages
    cdef Py_ssize_t _size

    def __dealloc__(self):
        if self._pages != NULL:
            munmap(self._pages, self._size)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._pages, self._size, False, flags)


cdef object map_private(file, bint populate):
    """Return a writable buffer with the bytes of a file.

    Files of the operating system are mapped, others are read.
    """
    cdef PrivateMapping mapping
    cdef OsFile of_system
    cdef int64_t size = file.size()
    if not isinstance(file, OsFile) or size == 0:
        return bytearray(file.read_at(0, size))
    of_system = file
    mapping = PrivateMapping.__new__(PrivateMapping)
    cdef void *pages
    cdef int failure = 0
    with nogil:
        pages = mmap(NULL, <size_t>size, PROT_READ | PROT_WRITE, MAP_PRIVATE, of_system._fd, 0)
        if pages == MAP_FAILED:
            failure = errno
        elif populate:
            madvise(pages, <size_t>size, MADV_POPULATE_READ)
    if failure:
        raise StorageError(f"cannot map {of_system.path}: {os.strerror(failure)}")
    mapping._pages = pages
    mapping._size = <Py_ssize_t>size
    return mapping


cdef object fingerprint(file):
    """Return size and CRC-32C of a snapshot's first and last 64 KiB.

    These have its header with its timestamps, and its footer.
    """
    cdef int64_t size = file.size()
    cdef uint32_t crc = crc32c(file.read_at(0, min(size, FINGERPRINT_SIZE)))
    return size, crc32c(file.read_at(max(0, size - FINGERPRINT_SIZE), FINGERPRINT_SIZE), crc)


cdef object layout_of(dict counts, bint is_paged):
    """Return (name, dtype, shape, position, size) of each section, and the file's size."""
    sections = []
    position = SECTIONS_START
    for number, (name, dtype, symbols) in enumerate(SECTIONS):
        if is_paged and symbols[0] == "rows":
            position = (position + PAGE - 1) // PAGE * PAGE + number * SHIFT_IN_PAGE
        shape = [counts[count] if isinstance(count, str) else count for count in symbols]
        size = int(dtype[1])
        for length in shape:
            size *= length
        sections.append((name, dtype, shape, position, size))
        position += -(-size // ALIGNMENT) * ALIGNMENT
    return sections, position


# --- saving


cdef bint is_laid_out(PartitionTable table) noexcept nogil:
    """Return whether the live table has the file's layout: its memory is written unchanged."""
    cdef int64_t topic, row = 0
    cdef const TopicEntry *entry
    if table.row_count != table.partition_count or table.topics.scattered.count:
        return False
    for topic in range(table.topics.ids.count):
        entry = table.topics.entry(topic)
        if not entry.alive:
            return False
        # A revert keeps the highest partition that ever existed; the file has the present one.
        if entry.row_count and (
            entry.first_row != row
            or entry.max_partition != entry.first_partition + entry.row_count - 1
        ):
            return False
        row += entry.row_count
    return row == table.row_count


cdef object gather(PartitionTable table, int32_t[::1] order, int32_t[::1] numbers):
    """Renumber the live topics; return each new row's old row, and its new topic."""
    cdef TopicTable topics = TopicTable()
    cdef int64_t topic, number, count, index, row = 0
    cdef int32_t name_size = 0
    cdef const uint8_t *name
    cdef int32_t *pairs
    cdef bint failed = False
    with nogil:
        for topic in range(table.topics.ids.count):
            if not table.topics.entry(topic).alive:
                continue
            name = table.topics.names.name(topic, &name_size)
            number = topics.add(name, name_size, table.topic_id(topic))
            count = 0
            pairs = table.rows_of_topic(topic, &count)
            failed = number < 0 or (pairs == NULL and count > 0)
            for index in range(0 if failed else count):
                order[row] = pairs[2 * index + 1]
                numbers[row] = <int32_t>number
                if topics.add_row(<int32_t>number, pairs[2 * index], row) < 0:
                    failed = True
                    break
                row += 1
            free(pairs)
            if failed:
                break
    if failed:
        raise MemoryError("no memory to lay out a table's rows")
    return topics


cdef object flatten_blocks(PartitionTable table, uint32_t[::1] numbers):
    """Return the irregular rows' blocks concatenated, and their ends in words of four bytes."""
    cdef int32_t **blocks = <int32_t **>table.blocks.data
    cdef int64_t index, total = 0, size
    ends = np.empty(numbers.shape[0], np.int64)
    cdef int64_t[::1] end = ends
    for index in range(numbers.shape[0]):
        total += size_of_block(blocks[numbers[index]]) // 4
        end[index] = total
    words = np.empty(total, np.int32)
    cdef int32_t[::1] out = words
    total = 0
    for index in range(numbers.shape[0]):
        size = end[index] - total
        memcpy(&out[total], blocks[numbers[index]], 4 * size)
        total = end[index]
    return words, ends


def save_columns(snapshot_path, PartitionTable table not None, *, records=b"",
                 int kraft_version=0, disk=None):
    cdef TopicTable topics = table.topics
    disk = OsDisk() if disk is None else disk
    snapshot_path = os.fspath(snapshot_path)
    if not snapshot_path.endswith(SUFFIX):
        raise InvalidRequestError(f"{snapshot_path} is not the name of a snapshot")
    table.ensure_checked()
    snapshot = SnapshotReader(snapshot_path, disk=disk).info
    file = disk.open(snapshot_path, read_only=True)
    try:
        snapshot_size, snapshot_crc = fingerprint(file)
    finally:
        file.close()

    columns = {name: table.column(name) for name in COLUMNS}
    order = None
    if not is_laid_out(table):
        order = np.empty(table.partition_count, np.int32)
        numbers = np.empty(table.partition_count, np.int32)
        topics = gather(table, order, numbers)
        columns["topic"] = numbers
        columns["isr"] = columns["isr"][order]
        columns["elr"] = columns["elr"][order]
    irregular_rows = np.flatnonzero(columns["isr"] == <uint32_t>IRREGULAR).astype(np.int32)
    words, ends = flatten_blocks(table, columns["elr"][irregular_rows])
    if len(irregular_rows):
        columns["elr"] = columns["elr"].copy()
        columns["elr"][irregular_rows] = np.arange(len(irregular_rows), dtype=np.uint32)

    ids, names = topics.ids.state(), topics.names.state()
    directories = table.directories_seen.state()
    data = columns | {
        "topic_entries": <bytes>(<const char *>topics.entries.data)[:topics.entries.size]
        if topics.entries.size else b"",
        "topic_ids": ids["keys"],
        "topic_id_slots": ids["slots"],
        "topic_name_text": names["text"],
        "topic_name_ends": names["ends"],
        "topic_name_slots": names["slots"],
        "directory_ids": directories["keys"],
        "directory_id_slots": directories["slots"],
        "irregular_rows": irregular_rows,
        "irregular_ends": ends,
        "irregular_blocks": words,
        "records": records,
    }
    counts = {
        "rows": table.partition_count,
        "stride": table.stride,
        "topics": topics.ids.count,
        "topic_id_slots": len(ids["slots"]) // 4,
        "topic_name_text": len(names["text"]),
        "topic_name_slots": len(names["slots"]) // 4,
        "directories": table.directories_seen.count,
        "directory_id_slots": len(directories["slots"]) // 4,
        "irregular_rows": len(irregular_rows),
        "irregular_words": len(words),
        "records": memoryview(records).nbytes,
    }
    is_paged = counts["rows"] >= LARGE
    sections, file_size = layout_of(counts, is_paged)
    header = {
        "format": PAGED_FORMAT if is_paged else COMPACT_FORMAT,
        "byte_order": sys.byteorder,
        "snapshot": os.path.basename(snapshot_path),
        "snapshot_size": snapshot_size,
        "snapshot_crc": snapshot_crc,
        "end_offset": snapshot.end_offset,
        "epoch": snapshot.epoch,
        "last_contained_log_timestamp_ms": snapshot.last_contained_log_timestamp_ms,
        "kraft_version": kraft_version,
        "counts": counts,
        "hash_seeds": [ids["seed"], names["seed"], directories["seed"]],
        "sections": [],
        "file_size": file_size,
    }
    path = columns_path(snapshot_path)
    file = disk.open(path + PART_SUFFIX, create=True)
    try:
        file.truncate(0)
        for name, dtype, shape, position, size in sections:
            section = data[name]
            if order is not None and name in COLUMNS and name not in ("topic", "isr", "elr"):
                section = section[order]
            section = as_bytes(section)
            if section.nbytes != size:
                raise InvalidRequestError(f"the section {name} is not {size} bytes long")
            file.append([bytes(position - file.size()), section])
            header["sections"].append([name, dtype, shape, position, size, crc32c(section)])
        file.append([bytes(file_size - file.size())])
        packed = msgpack.packb(header)
        prefix = MAGIC + struct.pack("<II", len(packed), crc32c(packed))
        if len(prefix) + len(packed) > SECTIONS_START:
            raise InvalidRequestError("the header of a column checkpoint does not fit")
        file.write_at(0, prefix + packed)
        file.sync()
    finally:
        file.close()
    disk.rename(path + PART_SUFFIX, path)
    disk.sync_directory(os.path.dirname(path) or ".")
    return path


cdef object as_bytes(section):
    """Return any section as a flat view of bytes; empty arrays do not have such a cast."""
    view = memoryview(section)
    return view.cast("B") if view.nbytes else memoryview(b"")


# --- loading


def load_columns(snapshot_path, *, bint verify=True, bint to_grow=False, disk=None):
    path = columns_path(snapshot_path)
    disk = OsDisk() if disk is None else disk
    try:
        if not disk.exists(path):
            return ColumnsRejected(path, "no such file")
        file = disk.open(os.fspath(snapshot_path), read_only=True)
        try:
            snapshot_size, snapshot_crc = fingerprint(file)
        finally:
            file.close()
        file = disk.open(path, read_only=True)
        try:
            mapping = map_private(file, verify and not to_grow)
            header = read_header(mapping)
            if (header["snapshot"], header["snapshot_size"], header["snapshot_crc"]) != (
                os.path.basename(os.fspath(snapshot_path)), snapshot_size, snapshot_crc
            ):
                raise Unfit("it belongs to another snapshot")
            sections = sections_of(mapping, header)
            table = PartitionTable(capacity=0, stride=header["counts"]["stride"])
            if to_grow:
                map_to_grow(table, file, sections, header)
        finally:
            file.close()
        if verify:
            for name, _, _, _, _, crc in header["sections"]:
                if crc32c(as_bytes(sections[name])) != crc:
                    raise Unfit(f"the section {name} does not match its CRC-32C")
        fill_table(table, sections, header, mapping, path)
        if verify:
            table.ensure_checked()
    except (Unfit, CorruptRecordError) as error:
        return ColumnsRejected(path, error.reason)
    except StorageError as error:
        return ColumnsRejected(path, str(error))
    return ColumnCheckpoint(
        table, memoryview(sections["records"]).toreadonly(), header["end_offset"],
        header["epoch"], header["last_contained_log_timestamp_ms"], header["kraft_version"],
    )


class Unfit(Exception):
    """Why a column checkpoint is rejected; caught in this module."""

    def __init__(self, reason):
        self.reason = reason


cdef object read_header(mapping):
    """Return the header of a file; raise Unfit if it is malformed or of another format."""
    view = memoryview(mapping)
    if len(view) < SECTIONS_START or bytes(view[:8]) != MAGIC:
        raise Unfit("not a column checkpoint")
    size, crc = struct.unpack_from("<II", view, 8)
    if size > SECTIONS_START - 16:
        raise Unfit("its header is larger than the space before the sections")
    packed = view[16:16 + size]
    if crc32c(packed) != crc:
        raise Unfit("its header does not match its CRC-32C")
    try:
        header = msgpack.unpackb(packed)
        if header["format"] not in (COMPACT_FORMAT, PAGED_FORMAT):
            raise Unfit(f"its format is {header['format']}, not {COMPACT_FORMAT} or {PAGED_FORMAT}")
        if header["byte_order"] != sys.byteorder:
            raise Unfit("it was written in the other byte order")
        counts = header["counts"]
        if tuple(sorted(counts)) != COUNTS or not all(
            type(count) is int and 0 <= count <= len(view) for count in counts.values()
        ):
            raise Unfit("its counts contradict its size")
        sections, file_size = layout_of(counts, header["format"] == PAGED_FORMAT)
        if file_size != len(view) or header["file_size"] != file_size:
            raise Unfit(f"it is {len(view)} bytes long where its header requires {file_size}")
        if [tuple(section[:5]) for section in header["sections"]] != sections:
            raise Unfit("its sections are not at the positions that its counts require")
        if not 1 <= counts["stride"] <= 8 or max(counts["rows"], counts["topics"]) > 0x7FFFFFFF:
            raise Unfit("its stride, or its rows or topics, are more than a table has")
        if len(header["hash_seeds"]) != 3 or not all(
            type(number) is int and 0 <= number < 1 << 64 for number in header["hash_seeds"]
        ):
            raise Unfit("its hash seeds are not three u64")
        if not all(type(header[name]) is int for name in NUMBERS):
            raise Unfit("its header has a value that is not an integer")
        _ = header["snapshot"], [section[5] for section in header["sections"]]
    except (ValueError, LookupError, TypeError, msgpack.UnpackException) as error:
        raise Unfit(f"its header is malformed: {error}") from error
    return header


cdef object sections_of(mapping, header):
    return {
        name: np.ndarray(shape, dtype, mapping, position)
        for name, dtype, shape, position, _, _ in header["sections"]
    }


cdef object map_to_grow(PartitionTable table, file, dict sections, header):
    """Map the columns once more, where rows can be added to them; small tables are copied later."""
    positions = {name: position for name, _, _, position, _, _ in header["sections"]}
    rows = header["counts"]["rows"]
    if header["format"] == PAGED_FORMAT and isinstance(file, OsFile) and table.map_columns(
        (<OsFile>file)._fd, positions, rows, table.stride
    ):
        sections.update((name, table.arrays[name][:rows]) for name in COLUMNS)


cdef object fill_table(PartitionTable table, dict sections, header, mapping, path):
    """Fill a table from the sections, after the checks whose cost depends on topics only."""
    cdef TopicTable topics = table.topics
    cdef int64_t rows = header["counts"]["rows"], count = header["counts"]["topics"]
    cdef int64_t irregular = header["counts"]["irregular_rows"]
    cdef int32_t[:, ::1] entries = sections["topic_entries"]
    id_seed, name_seed, directory_seed = header["hash_seeds"]
    try:
        topics.ids = UuidMap.from_state(
            sections["topic_ids"].reshape(-1), sections["topic_id_slots"].view(np.uint8),
            seed=id_seed, live=count, lender=mapping,
        )
        topics.names = NameMap.from_state(
            sections["topic_name_text"], sections["topic_name_ends"].view(np.uint8),
            sections["topic_name_slots"].view(np.uint8), seed=name_seed, live=count,
            lender=mapping,
        )
        table.directories_seen = UuidMap.from_state(
            sections["directory_ids"].reshape(-1), sections["directory_id_slots"].view(np.uint8),
            seed=directory_seed, live=header["counts"]["directories"], lender=mapping,
        )
        check_utf8(sections["topic_name_text"], sections["topic_name_ends"])
    except ValueError as error:
        raise Unfit(str(error)) from error
    for low in range(RESERVED_DIRECTORIES):
        if table.directories_seen.get(low.to_bytes(16, "big")) != low:
            raise Unfit("the reserved directory ids do not have their fixed numbers")
    if irregular > rows:
        raise Unfit("it has more irregular rows than rows")
    if not table.shared_ranges:
        table._adopt({name: sections[name] for name in COLUMNS}, rows, table.stride)
        table.is_lent = True
    table.row_count = table.partition_count = rows
    table.irregular_count = irregular
    if count:
        arena_borrow(&topics.entries, <uint8_t *>&entries[0, 0], count * sizeof(TopicEntry))
    adopt_extents(table, path)
    table.pending_check = ColumnCheck(sections, path)
    if not table.is_lent:
        table.own_topics()


cdef object check_utf8(text, ends):
    """Check that the text of all names is UTF-8, and that no name begins inside of a character."""
    str(text.data, "utf-8")
    if ((text[ends[ends < len(text)]] & 0xC0) == 0x80).any():
        raise ValueError("a topic's name begins inside of a character")
