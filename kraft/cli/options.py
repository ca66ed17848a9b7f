"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class LogFormat(StrEnum):
    """The format of a node's log."""

    TEXT = "text"
    JSON = "json"


MetadataPath = Annotated[
    Path,
    typer.Argument(
        metavar="DIR|FILE",
        help="A log.dir, a __cluster_metadata-0 directory, a segment (.log) or a snapshot "
        "(.checkpoint).",
        show_default=False,
    ),
]

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The node's configuration, a .properties file as for Apache Kafka.",
        show_default=False,
    ),
]

FromOption = Annotated[
    Path,
    typer.Option(
        "--from",
        metavar="DIR",
        help="A metadata directory, or one segment or snapshot in it.",
        show_default=False,
    ),
]

AtOption = Annotated[
    int | None,
    typer.Option(
        "--at",
        metavar="OFFSET",
        min=0,
        help="Use the state of all records below this offset. Default: of all records.",
        show_default=False,
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

#: For commands that read a store of results.
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="VERSION|DATE",
        help="Read the store as it was at this version or date (UTC). Default: the newest version.",
        show_default=False,
    ),
]

ValidateOnlyOption = Annotated[
    bool,
    typer.Option("--validate-only", help="Let the controller check the request, change nothing."),
]

SalvageOption = Annotated[
    bool,
    typer.Option("--salvage", help="Skip damaged parts of the log, and report them."),
]

NoColumnCacheOption = Annotated[
    bool,
    typer.Option(
        "--no-column-cache", help="Decode Kafka's snapshot even if a column checkpoint exists."
    ),
]

MaxTransactionOption = Annotated[
    int | None,
    typer.Option(
        "--max-transaction-ms",
        metavar="MS",
        min=1,
        help="Abort a metadata transaction that takes longer than this, in ms. It must be below "
        "broker.session.timeout.ms, because brokers cannot be fenced or unfenced during a "
        "transaction. Default: a third of broker.session.timeout.ms.",
        show_default=False,
    ),
]

LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        help="Write the log as text lines, or as a JSON object a line (time, level, logger, "
        "node_id, message, exception).",
    ),
]

#: For the sweeps.
SweepMasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Run on this Spark cluster (spark://host:7077, local[4]), which must have kraft "
        "installed. Default: this machine's cores.",
        show_default=False,
    ),
]

SweepSparkOption = Annotated[
    bool,
    typer.Option(
        "--spark/--local",
        help="Start Spark on this machine, or use this machine's cores without Spark.",
    ),
]
