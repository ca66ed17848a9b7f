"""The arguments that several commands take, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MetadataPath = Annotated[
    Path,
    typer.Argument(
        metavar="DIR|FILE",
        help="A log.dir, a __cluster_metadata-0 directory, a segment (.log) or a snapshot "
        "(.checkpoint).",
        show_default=False,
    ),
]

FromOption = Annotated[
    Path,
    typer.Option(
        "--from",
        metavar="DIR",
        help="The metadata directory, or one segment or snapshot in it.",
        show_default=False,
    ),
]

AtOption = Annotated[
    int | None,
    typer.Option(
        "--at",
        metavar="OFFSET",
        min=0,
        help="As of this offset: the state that all records below it make. Default: of all that "
        "are there.",
        show_default=False,
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

SalvageOption = Annotated[
    bool,
    typer.Option("--salvage", help="Read past damage that valid batches follow, and report it."),
]

NoColumnCacheOption = Annotated[
    bool,
    typer.Option(
        "--no-column-cache", help="Do not use column checkpoints; decode Kafka's snapshot."
    ),
]

MaxTransactionOption = Annotated[
    int | None,
    typer.Option(
        "--max-transaction-ms",
        metavar="MS",
        min=1,
        help="How long one metadata transaction may take before it is taken back; below "
        "broker.session.timeout.ms, as brokers cannot be fenced or unfenced meanwhile. Default: a "
        "third of it.",
        show_default=False,
    ),
]

#: Of the sweeps.
SweepMasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Sweep on this Spark (spark://host:7077, local[4]), where kraft is installed, instead "
        "of on this machine's cores.",
        show_default=False,
    ),
]

SweepSparkOption = Annotated[
    bool,
    typer.Option(
        "--spark/--local",
        help="Sweep on a Spark that is started here, or on this machine's cores alone.",
    ),
]
