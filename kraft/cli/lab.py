"""``kraft lab``: scenarios on clusters that nobody has at hand."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exits import EPILOG, FAILED, FOUND, INTERRUPTED
from kraft.cli.options import JsonOption

if TYPE_CHECKING:
    from kraft.metadata.facade import Metadata

#: What a checkout carries: the metadata directory of a controller of a real cluster.
_SEED_IN_CHECKOUT = Path("tests") / "data" / "kafka-4.3" / "controller-101"

app = typer.Typer(
    help="Scenarios on clusters of a million partitions.",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
)


@app.callback()
def _lab() -> None:
    """Scenarios on clusters of a million partitions."""


@app.command("million", epilog=EPILOG)
def million(
    partitions: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000_000, help="Partitions in all.")
    ] = 1_000_000,
    brokers: Annotated[int, typer.Option(metavar="B", min=1, help="Brokers in all.")] = 300,
    racks: Annotated[int, typer.Option(metavar="R", min=1, help="Racks they stand in.")] = 3,
    replication_factor: Annotated[
        int,
        typer.Option(metavar="F", min=1, max=32, help="Replicas of each new partition."),
    ] = 3,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="The metadata directory of the seed. Default: the real one that the checkout "
            "carries.",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Write here, and leave it there: an empty directory, or a new one. Default: a "
            "temporary directory that is removed afterwards.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the temporary directory and say where it is.")
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="SEED", help="Of all choices; the same one gives the same run.")
    ] = 0,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Write every event of the controller to this new file: what, when, how long, "
            "how many records. `kraft lab trace` reads it.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Grows a real cluster's metadata to a million partitions, and lives a cluster's life on it.

    Places and creates the partitions (decided, encoded, appended to a log, fsynced), fences a broker, loses its rack, brings it back, elects preferred leaders, deletes a topic, writes a snapshot. Then everything is dropped, loaded cold from disk and compared column by column: exit code 4 where it is not the same.

    [bold]Examples[/bold]

      kraft lab million

      kraft lab million --partitions 10000000 --brokers 1000 --dir /data/lab

      kraft lab million --from /var/lib/kafka/metadata --json

      kraft lab million --trace million.trace && kraft lab trace million.trace
    """  # noqa: E501  (help joins no lines: each paragraph is one)
    from kraft.cli.open import print_summary, summary
    from kraft.cli.output import Output, progress
    from kraft.lab.million import run
    from kraft.lab.report import HEADINGS
    from kraft.lab.scenario import Settings
    from kraft.lab.trace import TraceHeader, TraceWriter

    output = Output(as_json=as_json)
    seeds: list[dict[str, Any]] = []

    def show_seed(metadata: Metadata) -> None:
        seeds.append(summary(metadata))
        if not as_json:
            print_summary(output, seeds[0])

    settings = Settings(
        source=from_ or _default_seed(),
        partitions=partitions,
        brokers=brokers,
        racks=racks,
        replication_factor=replication_factor,
        seed=seed,
        directory=directory,
        keep=keep,
    )
    # To be stopped is to be interrupted: what was begun is cleared away either way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            writer = None
            if trace is not None:
                header = TraceHeader.of("lab million", settings.as_dict())
                writer = stack.enter_context(TraceWriter(trace, header))
            report = run(settings, progress, show_seed, writer)
    except KeyboardInterrupt:
        left = (
            "nothing is left behind" if directory is None else f"{directory} holds what there was"
        )
        if trace is not None:
            left += f"; {trace} has what happened until then"
        print(f"interrupted: {left}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        output.document({"seed": seeds[0], **report.as_dict()})
    else:
        output.table(report.title, HEADINGS, report.rows(), numbers=HEADINGS[1:])
        output.fields("Result", report.closing())
    if not report.is_equal:
        print("error: the loaded state is not the one that was dropped", file=sys.stderr)
        raise typer.Exit(FAILED)


@app.command("trace", epilog=EPILOG)
def trace(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Traces, as --trace writes them."),
    ],
    as_json: JsonOption = False,
) -> None:
    """What a trace says: of each kind of event how many there were and how long they took.

    [bold]Examples[/bold]

      kraft lab trace million.trace

      kraft lab trace million.trace --json | jq '.kinds[] | select(.what == "append") | .p99Seconds'
    """
    from kraft.cli.output import Output
    from kraft.lab.trace import Trace
    from kraft.lab.trace_summary import HEADINGS, Summary

    output = Output(as_json=as_json)
    summary = Summary.of(Trace(path) for path in files)
    if as_json:
        output.document(summary.as_dict())
    else:
        output.table(summary.title, HEADINGS, summary.rows(), numbers=HEADINGS[1:])
    for torn in summary.torn:
        output.note(
            f"torn: {torn.size} bytes from byte {torn.position} of {torn.path} are left out "
            f"({torn.reason})"
        )
    if summary.torn:
        raise typer.Exit(FOUND)


def _default_seed() -> Path:
    """The seed of the checkout that this package is run from, or that the user stands in."""
    for root in (Path(__file__).resolve().parents[2], Path.cwd()):
        if (root / _SEED_IN_CHECKOUT).is_dir():
            return root / _SEED_IN_CHECKOUT
    from kraft.errors import StorageError

    raise StorageError(
        f"there is no {_SEED_IN_CHECKOUT} here to be the seed: name a metadata directory (--from)"
    )
