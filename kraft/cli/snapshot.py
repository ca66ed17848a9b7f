"""``kraft snapshot``: write, verify and compare Kafka's metadata snapshots.

A snapshot is written to the directory that ``--to`` names and never replaces a file.
``kraft.metadata.diff`` computes differences.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.admin_client import ClientConfigOption, QuorumOptions
from kraft.cli.differences import difference_document, difference_line, summary_line
from kraft.cli.exit_codes import EPILOG, FAILED, FOUND
from kraft.cli.metadata_source import QuorumOption
from kraft.cli.options import AtOption, FromOption, JsonOption, MetadataPath
from kraft.cli.snapshot_watch import watch_quorum

if TYPE_CHECKING:
    from kraft.metadata.directory import SnapshotFile
    from kraft.metadata.source import MetadataSource

app = typer.Typer(no_args_is_help=True, add_completion=False, epilog=EPILOG)

# From about this size on, comparing takes longer than a second.
_LONG_WORK_ROWS = 200_000


@app.callback()
def _snapshot() -> None:
    """Write, verify and compare snapshots of the metadata."""


@app.command(epilog=EPILOG)
def write(
    from_: FromOption,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="DIR", help="Write the snapshot to this directory.", show_default=False
        ),
    ],
    at: AtOption = None,
    no_columns: Annotated[
        bool,
        typer.Option("--no-columns", help="Write only Kafka's file, without a column checkpoint."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the state as a snapshot file that Kafka reads, named by its end offset and epoch.

    The column checkpoint beside it (.columns) makes the next opening faster; it
    is a cache and may be deleted at any time.

    [bold]Examples[/bold]

      kraft snapshot write --from /var/lib/kafka/metadata --to /tmp/snapshots

      kraft snapshot write --from /var/lib/kafka/metadata --at 1200 --to /tmp/snapshots --no-columns
    """
    from kraft._core.snapshot.column_checkpoint import columns_path
    from kraft.cli.output import Output, progress
    from kraft.errors import InvalidRequestError
    from kraft.metadata.facade import open_metadata

    metadata = open_metadata(from_, at=at)
    start = _open_transaction(metadata.source, at)
    if start is not None:
        raise InvalidRequestError(
            f"the metadata transaction of offset {start} is open at this offset, and a snapshot "
            f"must end before it: give --at {start}"
        )
    _create(to)
    with progress("writing", None, shown=len(metadata.partitions) >= _LONG_WORK_ROWS):
        written = metadata.write_snapshot(to, columns=not no_columns)
    files = [written] if no_columns else [written, Path(columns_path(written))]
    document = {
        "endOffset": metadata.next_offset,
        "epoch": metadata.epoch,
        "files": [{"path": str(path), "size": path.stat().st_size} for path in files],
    }
    output = Output(as_json=as_json)
    if as_json:
        output.document(document)
        return
    for path in files:
        print(f"{path}  {path.stat().st_size:,} bytes")


@app.command(epilog=EPILOG)
def verify(path: MetadataPath, as_json: JsonOption = False) -> None:
    """Verify every record of one snapshot, or of every snapshot in a directory.

    Checks header and footer, offsets and epoch, every CRC, every record, that the
    records can be replayed, and that a column checkpoint has the same state.
    Exit code 4: a snapshot is damaged; 3: only a column checkpoint is not usable.

    [bold]Examples[/bold]

      kraft snapshot verify /var/lib/kafka/metadata

      kraft snapshot verify 00000000000000002334-0000000001.checkpoint --json
    """
    from kraft.cli.output import Output
    from kraft.errors import StorageError
    from kraft.metadata.directory import MetadataDirectory

    snapshots = MetadataDirectory.find(path).snapshots
    if not snapshots:
        raise StorageError(f"{path} holds no snapshot: looked for %020d-%010d.checkpoint")
    documents = [_verified(snapshot) for snapshot in snapshots]
    output = Output(as_json=as_json)
    if as_json:
        output.document(documents)
    else:
        names = ("file", "result", "endOffset", "epoch", "records", "batches", "size", "columns")
        output.table(
            "",
            [name.upper() for name in names],
            [[each[name] for name in names] for each in documents],
            numbers=("ENDOFFSET", "EPOCH", "RECORDS", "BATCHES", "SIZE"),
        )
    damaged = [each for each in documents if each["result"] != "ok"]
    for each in damaged:
        print(f"error: {each['file']}: {each['result']}", file=sys.stderr)
    if damaged:
        raise typer.Exit(FAILED)
    if any(each["columns"] not in ("ok", "none") for each in documents):
        raise typer.Exit(FOUND)


@app.command(epilog=EPILOG)
def diff(
    a: Annotated[
        Path | None,
        typer.Argument(
            metavar="A", help="A metadata directory, segment or snapshot.", show_default=False
        ),
    ] = None,
    b: Annotated[
        Path | None,
        typer.Argument(metavar="[B]", help="The other state. Default: A.", show_default=False),
    ] = None,
    at_a: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET",
            min=0,
            help="Use A as of this offset. Default: its last offset.",
            show_default=False,
        ),
    ] = None,
    at_b: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET",
            min=0,
            help="Use B as of this offset. Default: its last offset.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Search this log for causes. Default: the log of B, of A, or of the snapshot's "
            "directory.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Print the changes of a running quorum as they are committed, until Ctrl-C.",
        ),
    ] = False,
    bootstrap_controller: QuorumOption = None,
    command_config: ClientConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the differences of two states, and the record that caused each.

    A difference is a topic, a field of a partition or a broker, a setting or a
    quota, not a byte. Where a log has the records between the states, each
    difference names the last record that set it. Exit code 0: no difference; 3:
    differences.

    With --watch and --bootstrap-controller it prints the same for each change of a
    running quorum; --json prints one object a line. Ctrl-C ends it (130).

    [bold]Examples[/bold]

      kraft snapshot diff /var/lib/kafka/metadata --at-a 1000 --at-b 1200

      kraft snapshot diff old.checkpoint new.checkpoint --json

      kraft snapshot diff --watch --bootstrap-controller localhost:9093
    """
    from kraft.cli.output import Output, progress
    from kraft.metadata.diff import diff as diff_metadata
    from kraft.metadata.facade import open_metadata

    if watch:
        given = (a, b, at_a, at_b, log)
        if bootstrap_controller is None or any(each is not None for each in given):
            raise typer.BadParameter(
                "--watch needs --bootstrap-controller, and no files or offsets"
            )
        watch_quorum(QuorumOptions(bootstrap_controller, command_config), as_json=as_json)
        return
    if bootstrap_controller is not None or command_config is not None:
        raise typer.BadParameter("--bootstrap-controller and --command-config need --watch")
    if a is None:
        raise typer.BadParameter("give a metadata directory, segment or snapshot, or --watch")
    before = open_metadata(a, at=at_a)
    after = open_metadata(a if b is None else b, at=at_b)
    size = len(before.partitions) + abs(after.next_offset - before.next_offset)
    with progress("comparing", None, shown=size >= _LONG_WORK_ROWS):
        differences = diff_metadata(before, after, log=_log(log, b or a, a))
        counts = differences.counts()
    output = Output(as_json=as_json)
    if as_json:
        output.document_with_list(
            {
                "a": {"path": str(a), "offset": before.next_offset},
                "b": {"path": str(b or a), "offset": after.next_offset},
                "counts": counts,
            },
            "differences",
            map(difference_document, differences),
        )
    else:
        for each in differences:
            print(difference_line(each))
        print(summary_line(before.next_offset, after.next_offset, counts))
    if differences:
        raise typer.Exit(FOUND)


def _create(directory: Path) -> None:
    from kraft.errors import StorageError

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create {directory}: {error.strerror}") from error


def _open_transaction(source: MetadataSource | None, at: int | None) -> int | None:
    from kraft.metadata.record_counts import RecordCounts

    counts = RecordCounts()
    if source is not None:
        for piece in source.slices():
            counts.add(piece.data, end_offset=at)
    return counts.open_transaction


def _verified(snapshot: SnapshotFile) -> dict[str, Any]:
    """Return one snapshot's row; ``result`` and ``columns`` are "ok" or the problem."""
    from kraft._core.snapshot.snapshot_file import SnapshotReader
    from kraft.errors import KraftError
    from kraft.metadata.snapshots import load_snapshot

    document: dict[str, Any] = {
        "file": str(snapshot.path),
        "result": "ok",
        "endOffset": snapshot.end_offset,
        "epoch": snapshot.epoch,
        "records": None,
        "batches": None,
        "size": snapshot.size,
        "lastContainedLogTimestamp": None,
        "columns": "none",
    }
    try:
        info = SnapshotReader(snapshot.path).info
        document["records"] = info.record_count
        document["batches"] = info.batch_count
        document["lastContainedLogTimestamp"] = info.last_contained_log_timestamp_ms
        load_snapshot(snapshot, use_column_cache=False)
    except KraftError as error:
        document["result"] = str(error)
        return document
    document["columns"] = _columns(snapshot)
    return document


def _columns(snapshot: SnapshotFile) -> str:
    from kraft._core.snapshot.column_checkpoint import ColumnsRejected, columns_path, load_columns
    from kraft.metadata.diff import diff as diff_metadata
    from kraft.metadata.facade import Metadata
    from kraft.metadata.snapshots import load_snapshot

    if not Path(columns_path(snapshot.path)).exists():
        return "none"
    loaded = load_columns(snapshot.path)
    if isinstance(loaded, ColumnsRejected):
        return loaded.reason
    cached = Metadata(load_snapshot(snapshot, use_column_cache=True))
    decoded = Metadata(load_snapshot(snapshot, use_column_cache=False))
    differences = diff_metadata(decoded, cached)
    return f"differs in {len(differences)} places" if differences else "ok"


def _log(named: Path | None, b: Path, a: Path) -> MetadataSource | None:
    """Return the log to search for causes; None to use the logs of the two states."""
    from kraft.errors import KraftError
    from kraft.metadata.source import MetadataSource

    if named is not None:
        return MetadataSource(named)
    for path in (b, a):
        if path.suffix != ".checkpoint":
            continue
        try:
            source = MetadataSource(path.absolute().parent)
        except KraftError:
            # A snapshot may be in any directory, with or without a log.
            continue
        if source.log is not None:
            return source
    return None
