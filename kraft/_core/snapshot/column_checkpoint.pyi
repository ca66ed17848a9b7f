"""The column checkpoint: a table's arrays beside Kafka's snapshot, mapped instead of replayed."""

from os import PathLike
from typing import Final, NamedTuple

from typing_extensions import Buffer

from kraft._core.log.disk import Disk
from kraft._core.table.table import PartitionTable

COMPACT_FORMAT: Final[int]
PAGED_FORMAT: Final[int]
COLUMNS_SUFFIX: Final[str]
MAGIC: Final[bytes]
SECTIONS_START: Final[int]
SECTIONS: Final[tuple[tuple[str, str, tuple[str | int, ...]], ...]]

class ColumnCheckpoint(NamedTuple):
    """A loaded column checkpoint.

    ``records`` are the bytes saved beside the table, a read-only view of the mapping; the other
    fields are the snapshot's.
    """

    table: PartitionTable
    records: memoryview
    end_offset: int
    epoch: int
    last_contained_log_timestamp_ms: int
    kraft_version: int

class ColumnsRejected(NamedTuple):
    """Why a column checkpoint cannot be used; this does not affect the snapshot itself."""

    path: str
    reason: str

def columns_path(snapshot_path: str | PathLike[str]) -> str:
    """Return the path of a snapshot's column checkpoint: the same stem, ``.columns``."""

def save_columns(
    snapshot_path: str | PathLike[str],
    table: PartitionTable,
    *,
    records: Buffer = b"",
    kraft_version: int = 0,
    disk: Disk | None = None,
) -> str:
    """Write the column checkpoint of the snapshot at ``snapshot_path``, with the same content.

    The table is not changed; if it is not compact, its columns are gathered one at a time.
    ``records`` are stored unchanged: the encoded batches of all state except partitions. Returns
    the path. Raises InvalidRequestError if the path is not a snapshot's, CorruptRecordError if the
    snapshot is damaged, StorageError.
    """

def load_columns(
    snapshot_path: str | PathLike[str],
    *,
    verify: bool = True,
    to_grow: bool = False,
    disk: Disk | None = None,
) -> ColumnCheckpoint | ColumnsRejected:
    """Load the table beside the snapshot at ``snapshot_path``, or return why it cannot be used.

    Raises nothing for the content of either file except MemoryError.

    Always checked, in time that grows with topics and not with partitions: the header's CRC-32C,
    format and byte order, that every section has the position and size that the counts require, the
    snapshot's name, size and fingerprint (CRC-32C of its first and last 64 KiB), hash slots, names,
    and that the topics' rows fill the table.

    ``verify`` also checks every section's CRC-32C and every row (`ColumnCheck`). Without it the
    rows are checked at the first operation over them or change of them: `apply`, `encode_*`,
    `ensure_index`, `compact`, `start_journal`, … then raise CorruptRecordError for a damaged file.
    Look-ups of topics and single rows before that stay inside of the memory, but return a damaged
    row's values as they are in the file.

    The table may be changed freely; the file is mapped copy-on-write and never written. With
    ``to_grow`` a large table's columns are mapped where rows can be added, so that `start_journal`
    and the first new topic need not copy them; `PartitionColumns.copy_shared_pages` frees it of the
    file.
    """
