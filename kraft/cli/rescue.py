"""``kraft rescue``: found a quorum of one from the directories left after a lost majority."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.configuration import load_configuration
from kraft.cli.exit_codes import EPILOG
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.server.config.loading import ServerConfig
    from kraft.server.rescue.assessment import Assessment
    from kraft.server.rescue.founding import FoundedQuorum

app = typer.Typer(add_completion=False)


@app.command(epilog=EPILOG)
def rescue_(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="Every metadata directory that is left: of controllers and of brokers (log.dir "
            "or metadata.log.dir), all of one cluster and of stopped nodes.",
            show_default=False,
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="Write the new quorum to this new directory; the given ones do not change.",
            show_default=False,
        ),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Change the directory of the new voter, after copying its metadata files to "
            "DIR.before-rescue-TIME.",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The configuration of the controller that becomes the only voter. Default: the "
            "controller of the best directory, at its address in the log.",
            show_default=False,
        ),
    ] = None,
    check_bootstrap: Annotated[
        str | None,
        typer.Option(
            "--check-bootstrap",
            metavar="HOST:PORT,…",
            help="Check that no controller answers at these addresses either, for example those "
            "of static voters.",
            show_default=False,
        ),
    ] = None,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline", help="Do not check whether voters answer at the addresses in the log."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Found a quorum of one from what a lost majority of controllers left.

    Without --to and --in-place nothing is changed: the command prints which log is
    the most complete, what is certain, what no file can tell, and what to type. It
    refuses directories of which a majority is left, of several clusters, of running
    nodes, and damaged ones, and a quorum whose voters answer.

    Works on directories of Apache Kafka and of kraft. No file is deleted. A report
    is written into the new directory.

    [bold]Examples[/bold]

      kraft rescue controller-2/metadata broker-*/data

      kraft rescue controller-2/metadata broker-*/data --to /var/lib/kafka/rescued
    """
    from kraft.cli.output import Output, progress
    from kraft.server.rescue.assessment import assess
    from kraft.server.rescue.founding import found_in, found_in_place, write_report
    from kraft.server.rescue.report import COLUMNS, document, rows, sections, text

    if to is not None and in_place:
        raise typer.BadParameter("give either --to or --in-place")
    output = Output(as_json=as_json)
    loaded = None if config is None else load_configuration(output, config)
    with progress("reading the directories", len(paths)) as advance:
        assessment = assess(paths, loaded, advance=advance)
    _check_unreachable(assessment, loaded, check_bootstrap, offline)
    now_ms = time.time_ns() // 1_000_000
    name = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    founded: FoundedQuorum | None = None
    if to is not None:
        founded = found_in(assessment, to, timestamp_ms=now_ms)
    elif in_place:
        log_dir = assessment.chosen.log_dir.absolute()
        keep = log_dir.with_name(f"{log_dir.name}.before-rescue-{name}")
        founded = found_in_place(assessment, keep, timestamp_ms=now_ms)
    if founded is not None:
        write_report(founded.path, text(assessment, founded, now_ms), name)
    if as_json:
        output.document(document(assessment, founded))
        return
    output.table("", COLUMNS, rows(assessment), numbers=("NODE", "LASTEPOCH", "ELECTIONEPOCH"))
    for title, sentences in sections(assessment, founded):
        print(f"\n{title}")
        for sentence in sentences:
            print(f"- {sentence}")


def _check_unreachable(
    assessment: Assessment, config: ServerConfig | None, more: str | None, offline: bool
) -> None:
    """Raise RescueRefusedError where a voter answers: it may be part of a majority that lives."""
    from kraft.admin.settings import read_addresses
    from kraft.server.rescue.reachability import answering
    from kraft.server.rescue.survivors import RescueRefusedError

    if offline and more is None:
        return
    addresses = list(read_addresses(more)) if more is not None else []
    if not offline:
        static = () if config is None else config.voters
        for voter in (*assessment.voters, *static):
            addresses += [(at.host, at.port) for at in voter.endpoints]
    found = answering(addresses)
    if found:
        listed = ", ".join(f"{host}:{port}" for host, port in found)
        raise RescueRefusedError(
            f"a process answers at {listed}, where voters of this quorum listen. If a majority of "
            "them can be started, start them: nothing needs a rescue. Otherwise stop every "
            "controller, and name its directory too. --offline skips this check, for addresses "
            "that other services use now"
        )
