"""``kraft verify``: check whether the files of metadata directories contradict one another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exit_codes import EPILOG, FAILED, FOUND
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.metadata.verification import Verification, VerifiedDirectory
    from kraft.metadata.verification_findings import VerificationFinding

app = typer.Typer(add_completion=False)

_COLUMNS = ("DIRECTORY", "NODE", "LOG", "SNAPSHOTS", "REPLAYED")


@app.command(epilog=EPILOG)
def verify_(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="Metadata directories (log.dir or __cluster_metadata-0). Several must belong to "
            "the nodes of one quorum.",
            show_default=False,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Check log, snapshots, indexes and small files for contradictions.

    Replays the log against every snapshot beside it, checks every batch, index,
    leader epoch and text file, and compares the logs and snapshots of several
    nodes. Nothing is changed. While a node writes to the directory, findings may
    be temporary.

    Exit code 0: sound. 3: sound except for notes (an interrupted write, a missing
    index, a log that the next start empties for a later snapshot) and contradictions
    that Apache Kafka is known to write. 4: a file contradicts another. 1: a path has
    no metadata, or cannot be read.

    [bold]Examples[/bold]

      kraft verify /var/lib/kafka/metadata

      kraft verify node-1/metadata node-2/metadata node-3/metadata --json
    """
    from kraft.cli.output import Output, progress
    from kraft.metadata.verification import verify, work_of
    from kraft.metadata.verification_findings import Severity

    with progress("verifying", work_of(paths)) as advance:
        result = verify(paths, advance=advance)
    output = Output(as_json=as_json)
    if as_json:
        output.document(_document(result))
    else:
        rows = [_row(each) for each in result.directories]
        output.table("", _COLUMNS, rows, numbers=("NODE", "SNAPSHOTS", "REPLAYED"))
        for each in result.findings:
            print(each)
    contradictions = result.count(Severity.CONTRADICTION)
    if contradictions:
        plural = "s" if contradictions != 1 else ""
        print(f"error: {contradictions} contradiction{plural}", file=sys.stderr)
        raise typer.Exit(FAILED)
    if result.findings:
        raise typer.Exit(FOUND)


def _row(each: VerifiedDirectory) -> tuple[object, ...]:
    log = f"{each.log_start_offset} to {each.log_end_offset}" if each.log_end_offset >= 0 else ""
    return str(each.path), each.node_id, log, each.snapshot_count, each.snapshots


def _document(result: Verification) -> dict[str, Any]:
    return {
        "isSound": result.is_sound,
        "directories": [
            {
                "path": str(each.path),
                "nodeId": each.node_id,
                "logStartOffset": each.log_start_offset,
                "logEndOffset": each.log_end_offset,
                "snapshots": each.snapshot_count,
                "replayedSnapshots": each.snapshots,
            }
            for each in result.directories
        ],
        "findings": [_finding(each) for each in result.findings],
    }


def _finding(each: VerificationFinding) -> dict[str, Any]:
    return {
        "severity": str(each.severity),
        "path": str(each.path),
        "offset": None if each.offset < 0 else each.offset,
        "message": each.message,
        "other": None if each.other is None else str(each.other),
        "reason": each.reason,
    }
