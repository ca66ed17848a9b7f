"""The ledger of verdicts: a Delta table in the folder ``_verdicts`` of a store of results.

Rows are only appended. One commit has all rows of one command or none, and two writers do not
conflict: each commit gets a version of its own. The store's own cleaning leaves folders that begin
with an underscore alone. Any engine that reads Delta tables reads the ledger.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from kraft.errors import MissingPackageError, StorageError
from kraft.regression.points import SeriesKey
from kraft.regression.store_location import StoreLocation
from kraft.regression.verdicts import Verdict, VerdictKind, VerdictLedger

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
except ImportError as error:
    raise MissingPackageError(
        f"the ledger of verdicts needs deltalake: pip install 'kraft[regress]' ({error})"
    ) from None

#: The folder in the store.
FOLDER = "_verdicts"

_TIME = pa.timestamp("us", tz="UTC")
#: One row a verdict; the fields of `verdicts.Verdict`, its key in six columns.
ROWS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("time", _TIME, nullable=False),
        pa.field("author", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in SeriesKey._fields),
        pa.field("statistic", pa.string(), nullable=False),
        pa.field("is_worse", pa.bool_(), nullable=False),
        pa.field("size_param", pa.string()),
        pa.field("replaces", pa.string()),
        pa.field("run_before", pa.string()),
        pa.field("run_after", pa.string()),
        pa.field("commit_before", pa.string()),
        pa.field("commit_after", pa.string()),
        pa.field("surely_old_run", pa.string()),
        pa.field("surely_new_run", pa.string()),
        pa.field("ratio", pa.float64()),
        pa.field("ratio_low", pa.float64()),
        pa.field("ratio_high", pa.float64()),
        pa.field("limit", pa.float64()),
        pa.field("within", pa.int64()),
        pa.field("within_commits", pa.bool_(), nullable=False),
        pa.field("until", _TIME),
    ]
)
_RENAMED = {"time": "time_us", "until": "until_us"}
_CONFIGURATION: dict[str, str | None] = {"delta.deletedFileRetentionDuration": "interval 30 days"}
#: This many files, each of one command, are merged into one.
_MOST_FILES = 32
#: Delta's name for a merge; two of one name and number conflict.
_WRITER = "kraft-verdicts"
#: Attempts of a commit while other writers commit.
_MOST_ATTEMPTS = 100


def load_verdicts(store: str | os.PathLike[str], *, now_us: int | None = None) -> VerdictLedger:
    """Return the verdicts of a store; none if it has no ledger.

    ``now_us`` decides whether a watch is over; default: the clock. Raises StorageError for a ledger
    that is damaged.
    """
    location = _ledger_of(store)
    now_us = _now_us() if now_us is None else now_us
    try:
        table = DeltaTable(location.uri).to_pyarrow_table()
    except TableNotFoundError:
        return VerdictLedger((), now_us)
    except (DeltaError, OSError, pa.ArrowInvalid) as error:
        raise StorageError(f"{location.uri}: the verdicts cannot be read: {error}") from None
    missing = [
        field.name for field in ROWS if not field.nullable and field.name not in table.column_names
    ]
    if missing:
        raise StorageError(f"{location.uri}: not a ledger of verdicts: no column {missing[0]!r}")
    for name in ("time", "until"):
        if name in table.column_names:
            at = table.column_names.index(name)
            table = table.set_column(at, name, table[name].cast(_TIME).cast(pa.int64()))
    found = [_verdict(row) for row in table.to_pylist()]
    return VerdictLedger(tuple(sorted(found, key=lambda each: (each.time_us, each.id))), now_us)


def add_verdicts(store: str | os.PathLike[str], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Append verdicts to the ledger of a store, all or none, and return them with their times.

    They get the time of now, but a later one than all that are there: whichever clock is wrong, the
    verdict that was given last decides. They are durable on return. Raises StorageError if the
    commit fails.
    """
    assert verdicts, "no verdicts"
    known = load_verdicts(store)
    newest = max((each.time_us for each in known.verdicts), default=-1)
    at = max(_now_us(), newest + 1)
    verdicts = [replace(each, time_us=at) for each in verdicts]
    location = _ledger_of(store)
    if location.is_local:
        os.makedirs(location.uri, exist_ok=True)
    rows = pa.Table.from_pylist(list(map(_row, verdicts)), schema=ROWS)
    _commit(location, _written(location, rows, new=True))
    return verdicts


def _commit(location: StoreLocation, add: AddAction) -> None:
    for attempt in range(_MOST_ATTEMPTS):
        before = _version(location)
        try:
            if before < 0:
                create_table_with_add_actions(
                    location.uri, Schema.from_arrow(ROWS), [add], configuration=_CONFIGURATION
                )
            else:
                table = DeltaTable(location.uri)
                table.create_write_transaction([add], "append", table.schema())
        except (CommitFailedError, DeltaError) as error:
            if attempt + 1 < _MOST_ATTEMPTS and _version(location) > before:
                continue  # another writer was first
            raise StorageError(f"{location.uri}: the commit failed: {error}") from None
        break
    table = DeltaTable(location.uri)
    for version in range(before + 1, table.version() + 1):  # one of them is this commit
        location.sync(f"_delta_log/{version:020}.json")
    if len(table.file_uris()) >= _MOST_FILES:
        _merge(location, table)


def _merge(location: StoreLocation, table: DeltaTable) -> None:
    """Replace all files of a version by one; do nothing if another writer commits meanwhile.

    Not `DeltaTable.optimize`: two that ran at the same time doubled rows (deltalake 1.6).
    """
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    now = _now_us() // 1000
    rows = table.to_pyarrow_table()
    removes = [RemoveAction(each["path"], False, now, each["size_bytes"], {}) for each in actions]
    add = _written(location, rows, new=False)
    version = table.version() + 1
    properties = CommitProperties(
        # No retry: another writer may have replaced the same files.
        max_commit_retries=0,
        app_transactions=[Transaction(_WRITER, version)],
    )
    try:
        table.create_write_transaction(
            [add, *removes], "append", table.schema(), commit_properties=properties
        )
    except (CommitFailedError, DeltaError):
        # The new file stays until a vacuum: perhaps only the answer of the commit was lost.
        return
    location.sync(f"_delta_log/{version:020}.json")
    table = DeltaTable(location.uri)
    if table.vacuum():  # a dry run: a vacuum without work would still commit
        table.vacuum(dry_run=False)


def _written(location: StoreLocation, rows: pa.Table, *, new: bool) -> AddAction:
    """Write rows as a file that no version names yet; ``new`` is whether they change the table."""
    file = f"verdicts-{uuid4().hex}.parquet"
    with location.filesystem.open_output_stream(file) as stream:
        pq.write_table(rows, stream)
    location.sync(file)
    return AddAction(
        path=file,
        size=location.filesystem.get_file_info(file).size,
        partition_values={},
        modification_time=_now_us() // 1000,
        data_change=new,
        stats=f'{{"numRecords":{rows.num_rows}}}',
    )


def ledger_version(store: str | os.PathLike[str]) -> int:
    """Return the number of the ledger's newest version, -1 without a ledger.

    Raises StorageError if the ledger cannot be read.
    """
    location = _ledger_of(store)
    try:
        return _version(location)
    except (DeltaError, OSError) as error:
        raise StorageError(f"{location.uri}: the verdicts cannot be read: {error}") from None


def _version(location: StoreLocation) -> int:
    try:
        return DeltaTable(location.uri).version()
    except TableNotFoundError:
        return -1


def _ledger_of(store: str | os.PathLike[str]) -> StoreLocation:
    return StoreLocation(StoreLocation.of(store).absolute(FOLDER))


def _row(verdict: Verdict) -> dict[str, Any]:
    fields = dict(vars(verdict))
    key = fields.pop("key")
    for column, name in _RENAMED.items():
        fields[column] = fields.pop(name)
    return {**fields, **key._asdict(), "kind": verdict.kind.value}


def _verdict(row: dict[str, Any]) -> Verdict:
    """Return the verdict of a row; columns of a later kraft are ignored, missing ones are None."""
    names = {**_RENAMED, **{name: name for name in Verdict.__dataclass_fields__}}
    given = {name: row[column] for column, name in names.items() if column in row}
    given["key"] = SeriesKey(*(row[name] for name in SeriesKey._fields))
    given["kind"] = VerdictKind(row["kind"])
    return Verdict(**given)


def _now_us() -> int:
    return time.time_ns() // 1000
