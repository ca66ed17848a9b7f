"""Convert plain CSV and Parquet files whose columns the user names.

Each row is one measured value; rows of one run that agree in benchmark and parameters are its
rounds. A run is named by the column ``run``, or by machine, project, branch, commit and time
together. A role without a named column uses the column of its own name, if there is one.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kraft.errors import BenchmarkFileError, InvalidRequestError
from kraft.regression.points import UNIT_PATTERN
from kraft.regression.sources.documents import (
    RunContext,
    benchmark,
    document,
    finite,
    iso_time,
    number_or_text,
    scaled_unit,
    statistics_of,
)

#: What a column may hold. The first two are required.
ROLES = (
    "benchmark",
    "value",
    "unit",
    "suite",
    "run",
    "time",
    "machine",
    "project",
    "branch",
    "commit",
    "commit_time",
)

#: A number above this many seconds since 1970 (in the year 5138) is in milliseconds.
_MOST_SECONDS = 1e11


@dataclass(frozen=True)
class TableMapping:
    """Which columns hold what, for values that have no column.

    ``columns`` maps roles (`ROLES`) to columns; ``params`` are the columns of parameters, by the
    names that the parameters get.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    unit: str = "s"
    bigger_is_better: bool | None = None

    @classmethod
    def parse(
        cls, columns: Sequence[str], unit: str = "s", bigger_is_better: bool | None = None
    ) -> TableMapping:
        """Parse ``role=column`` texts; ``param.NAME=column`` names a parameter.

        Raises:
            InvalidRequestError: a text has another form, an unknown role or a role twice; or the
                unit is not one.
        """
        if not UNIT_PATTERN.fullmatch(scaled_unit(unit)[1]):
            raise InvalidRequestError(
                f"the unit {unit[:40]!r} is not one of at most 24 letters, digits and % / _ . ^ * -"
            )
        roles: dict[str, str] = {}
        params: dict[str, str] = {}
        for text in columns:
            role, equals, column = text.partition("=")
            is_param = role.startswith("param.") and len(role) > len("param.")
            if not equals or not column or not (is_param or role in ROLES):
                raise InvalidRequestError(
                    f"{text!r} is not ROLE=COLUMN; roles are {', '.join(ROLES)} and param.NAME"
                )
            into, name = (params, role.removeprefix("param.")) if is_param else (roles, role)
            if name in into:
                raise InvalidRequestError(
                    f"the role {role} has two columns: {into[name]}, {column}"
                )
            into[name] = column
        return cls(roles, params, unit, bigger_is_better)


def convert(
    data: bytes, source: str, context: RunContext, mapping: TableMapping, *, is_parquet: bool
) -> list[dict[str, Any]]:
    """Return the documents of a file, oldest run first.

    Raises:
        BenchmarkFileError: the file is damaged, lacks a column, or has a value of a wrong type; the
            message has the line (of a Parquet file the row) and the column.
    """
    names, rows = _parquet(data, source) if is_parquet else _csv(data, source)
    column_of = _columns(mapping, names, context, source)
    runs: dict[tuple[str, ...], dict[tuple[Any, ...], list[float]]] = {}
    facts: dict[tuple[str, ...], dict[str, str]] = {}
    for place, row in rows:
        given = {role: _text(row[column]) for role, column in column_of.items()}
        time = context.time or _time(given.get("time", ""), source, place, column_of.get("time"))
        committed = given.get("commit_time") or None
        if committed is not None:
            committed = _time(committed, source, place, column_of["commit_time"])
        fact = {
            "time": time,
            "machine": context.machine or given.get("machine", ""),
            "project": context.project or given.get("project", ""),
            "branch": context.branch or given.get("branch", ""),
            "commit": context.commit or given.get("commit", ""),
            "commit_time": committed or "",
        }
        run = (given["run"],) if given.get("run") else tuple(fact.values())
        # The rows of one run may have the times of their values: the run has the last one.
        before = facts.setdefault(run, fact)
        before["time"] = max(before["time"], time)
        unit = given.get("unit") or mapping.unit
        value = _value(row[column_of["value"]], source, place, column_of["value"])
        name = given["benchmark"]
        if not name:
            column = column_of["benchmark"]
            raise BenchmarkFileError(
                f"{source}: {place}, column {column}: expected a name, found nothing"
            )
        params = tuple(
            (param, number_or_text(_text(row[column])))
            for param, column in mapping.params.items()
            if _text(row[column])
        )
        key = (given.get("suite") or "", name, params, unit)
        runs.setdefault(run, {}).setdefault(key, []).append(value)
    if not runs:
        raise BenchmarkFileError(f"{source}: expected rows below the names of columns, found none")
    documents = [_document(source, facts[run], inside, mapping) for run, inside in runs.items()]
    return sorted(documents, key=lambda each: str(each["datetime"]))


def _document(
    source: str,
    fact: Mapping[str, str],
    values: Mapping[tuple[Any, ...], list[float]],
    mapping: TableMapping,
) -> dict[str, Any]:
    benchmarks = []
    for (suite, name, params, unit), rounds in values.items():
        factor, stored = scaled_unit(unit)
        stats = statistics_of(rounds, factor)
        if len(rounds) == 1:
            stats["data"] = None  # one value says nothing about rounds
        bigger = mapping.bigger_is_better
        benchmarks.append(
            benchmark(suite, name, dict(params), stats, stored, bigger_is_better=bigger)
        )
    return document(
        source,
        tool="table",
        benchmarks=benchmarks,
        machine_info={"node": fact["machine"]},
        commit_info={
            "id": fact["commit"] or None,
            "project": fact["project"] or None,
            "branch": fact["branch"] or None,
            "time": fact["commit_time"] or None,
        },
        context=RunContext(),  # it is part of `fact`
        time=fact["time"],
        identity=repr((sorted(fact.items()), sorted(map(repr, values.items())))),
    )


def _columns(
    mapping: TableMapping, names: Sequence[str], context: RunContext, source: str
) -> dict[str, str]:
    """Return role -> column of the roles that this file has."""
    there = ", ".join(map(str, names)) or "none"
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BenchmarkFileError(
            f"{source}: expected one column of each name; {twice[0]!r} occurs twice in {there}"
        )
    for role, column in (*mapping.columns.items(), *mapping.params.items()):
        if column not in names:
            raise BenchmarkFileError(
                f"{source}: expected the column {column!r} for {role}; its columns are {there}"
            )
    found = {role: mapping.columns.get(role, role) for role in ROLES}
    found = {role: column for role, column in found.items() if column in names}
    stated = {"time": context.time, "machine": context.machine}
    for role in ("benchmark", "value", *stated):
        if role not in found and stated.get(role) is None:
            option = {"time": ", or --time", "machine": ", or --of-machine"}.get(role, "")
            raise BenchmarkFileError(
                f"{source}: no column for {role}: name it with --column {role}=COLUMN{option}; its "
                f"columns are {there}"
            )
    return found


def _csv(data: bytes, source: str) -> tuple[list[str], Iterator[tuple[str, Mapping[str, Any]]]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BenchmarkFileError(f"{source}: line {line}: expected UTF-8 text") from None
    delimiter = "\t" if os.path.splitext(source)[1].lower() == ".tsv" else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)

    def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise BenchmarkFileError(
                    f"{source}: line {reader.reader.line_num}: {error}"
                ) from None
            place = f"line {reader.line_num}"
            if None in row or None in row.values():
                many = len(names)
                raise BenchmarkFileError(
                    f"{source}: {place}: expected {many} columns, as the first line has"
                )
            yield place, row

    try:
        names = list(reader.fieldnames or [])
    except csv.Error as error:
        raise BenchmarkFileError(f"{source}: line 1: {error}") from None
    return names, rows()


def _parquet(data: bytes, source: str) -> tuple[list[str], Iterator[tuple[str, Mapping[str, Any]]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # No threads and no Python file: a thread of Arrow that still holds one when the process
        # exits aborts it now and then (apache/arrow#34314, #50482).
        file = pq.ParquetFile(pa.BufferReader(data))
        names = file.schema_arrow.names
        # Of two columns with one name `to_pylist` would have one; `_columns` rejects them.
        rows = [] if len(set(names)) < len(names) else file.read(use_threads=False).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise BenchmarkFileError(f"{source}: not a Parquet file: {error}") from None
    return names, ((f"row {number}", row) for number, row in enumerate(rows, 1))


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, datetime) else str(value).strip()


def _value(value: object, source: str, place: str, column: str) -> float:
    number = finite(value)
    if number is None:
        try:
            number = finite(float(_text(value)))
        except ValueError:
            number = None
    if number is None:
        raise BenchmarkFileError(
            f"{source}: {place}, column {column}: expected a number, found {_text(value)[:40]!r}"
        )
    return number


def _time(text: str, source: str, place: str, column: str | None) -> str:
    """Return a time as ISO 8601: ISO itself, or seconds or milliseconds since 1970."""
    if re.fullmatch(r"\d{9,}(\.\d+)?", text):
        number = float(text)
        try:
            return iso_time(number if number > _MOST_SECONDS else 1000 * number)
        except (OverflowError, ValueError):
            pass
    else:
        try:
            return datetime.fromisoformat(text).isoformat()
        except ValueError:
            pass
    raise BenchmarkFileError(
        f"{source}: {place}, column {column}: expected a time (2026-11-21T14:30, or seconds since "
        f"1970), found {text[:40]!r}"
    )
