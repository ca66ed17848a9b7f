"""Options of the commands that read result files of any tool: their format and their metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kraft.regression.sources.conversion import ResultReading

FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The format of the files: pytest-benchmark, jmh, google-benchmark, asv, csv, parquet. "
        "Default: detected for each file.",
        show_default=False,
    ),
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=COLUMN",
        help="The column of a CSV or Parquet file that holds this; repeat it. Roles: benchmark, "
        "value, unit, suite, run, time, machine, project, branch, commit, commit_time, "
        "param.NAME. Default: the column with the name of the role.",
        show_default=False,
    ),
]
UnitOption = Annotated[
    str,
    typer.Option(
        metavar="UNIT", help="The unit of a CSV or Parquet file's values: ms, ops/s, B, %."
    ),
]
BiggerOption = Annotated[
    bool | None,
    typer.Option(
        "--bigger-is-better/--smaller-is-better",
        help="The direction of a CSV or Parquet file's values. Default: bigger for rates (.../s), "
        "else smaller.",
        show_default=False,
    ),
]
OfMachineOption = Annotated[
    str | None,
    typer.Option(
        "--of-machine",
        metavar="NAME",
        help="The machine that measured the files of another tool. Required for JMH. Default: the "
        "one in the file.",
        show_default=False,
    ),
]


def reading_of(
    *,
    format_name: str | None,
    columns: list[str] | None,
    unit: str,
    bigger_is_better: bool | None,
    ignore_node: bool,
    machine: str | None,
    project: str | None = None,
    branch: str | None = None,
    commit: str | None = None,
    time: str | None = None,
) -> ResultReading:
    """Return how the files are read.

    Raises InvalidRequestError for an unknown format, a wrong column or time.
    """
    from kraft.errors import InvalidRequestError
    from kraft.regression.sources.conversion import ResultFormat, ResultReading
    from kraft.regression.sources.documents import RunContext
    from kraft.regression.sources.tables import TableMapping

    formats = [each.value for each in ResultFormat]
    if format_name is not None and format_name not in formats:
        raise InvalidRequestError(
            f"the format {format_name!r} is unknown; formats are {', '.join(formats)}"
        )
    return ResultReading(
        format=None if format_name is None else ResultFormat(format_name),
        context=RunContext(
            project=project, branch=branch, commit=commit, machine=machine, time=time
        ),
        mapping=TableMapping.parse(columns or [], unit, bigger_is_better),
        ignore_node=ignore_node,
    )
