"""The column checkpoint: a table's arrays beside Kafka's snapshot, mapped instead of replayed."""

from os import PathLike
from typing import Final, NamedTuple

from typing_extensions import Buffer

from kraft._core.disk import Disk
from kraft._core.table import PartitionTable

FORMAT_VERSION: Final[int]
COLUMNS_SUFFIX: Final[str]
MAGIC: Final[bytes]
SECTIONS_START: Final[int]
SECTIONS: Final[tuple[tuple[str, str, tuple[str | int, ...]], ...]]

class ColumnCheckpoint(NamedTuple):
    """A loaded column checkpoint.

    ``records`` is what was saved beside the table, a read-only view into the mapping; the rest is
    of the snapshot that it belongs to.
    """

    table: PartitionTable
    records: memoryview
    end_offset: int
    epoch: int
    last_contained_log_timestamp_ms: int
    kraft_version: int

class ColumnsRejected(NamedTuple):
    """Why there is no column checkpoint to use; the snapshot itself is as good as ever."""

    path: str
    reason: str

def columns_path(snapshot_path: str | PathLike[str]) -> str:
    """Where the column checkpoint of a snapshot lies: the same stem, ``.columns``."""

def save_columns(
    snapshot_path: str | PathLike[str],
    table: PartitionTable,
    *,
    records: Buffer = b"",
    kraft_version: int = 0,
    disk: Disk | None = None,
) -> str:
    """Writes the column checkpoint of the snapshot at ``snapshot_path``, which says the same.

    The table is not changed. Where it is not compact its columns are gathered one at a time.
    ``records`` are kept as they are: the encoded batches of everything that is no partition.
    The path. Raises InvalidRequestError where the path is no snapshot's name, CorruptRecordError
    where the snapshot is damaged, StorageError.
    """

def load_columns(
    snapshot_path: str | PathLike[str], *, verify: bool = True, disk: Disk | None = None
) -> ColumnCheckpoint | ColumnsRejected:
    """The table beside the snapshot at ``snapshot_path``, or why it cannot be used. Raises nothing
    for what lies in either file, MemoryError apart.

    Checked always, in time that grows with topics and not with partitions: the header's CRC-32C,
    format and byte order, that every section lies where the counts ask for, the snapshot's name,
    size and fingerprint (CRC-32C of its first and last 64 KiB), hash slots, names, and that the
    topics' rows tile the table.

    ``verify`` also checks every section's CRC-32C, and every row (`ColumnCheck`). Without it the
    rows are checked when something first goes over them or changes them: `apply`, `encode_*`,
    `ensure_index`, `compact`, `start_journal`, … then raise CorruptRecordError where the file is
    damaged. Looking up topics and single rows before that stays inside of the memory; a damaged
    row's plain values are then given as they lie there.

    The table may be changed freely; the file is mapped copy-on-write and never written.
    """
