"""``spark.read.format("kraft-fleet")``: runs of the fleet as DataFrames.

This module defines the columns and makes a task of each run directory; `kraft.fleet.traces` reads
and checks the files, `kraft.fleet.measures` computes the measures. A path is a run directory or a
folder with such directories below it.

Options:

``table``  ``events`` (default): one row an event; ``measures``: percentiles, sums and sizes of
           each step; ``runs``: the content of ``run.json``; ``problems``: what ``PERMISSIVE`` omits
``mode``   ``FAILFAST`` (default): a bad line fails the query with its file and number;
           ``PERMISSIVE``: it is omitted, logged, and a row of ``problems``
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kraft.errors import InvalidRequestError
from kraft.fleet.measures import measures_of
from kraft.fleet.traces import RecordedRun, read_or_report, run_directories
from kraft.spark.source_options import (
    FAILFAST,
    PERMISSIVE,
    arrow_schema,
    columns,
    expanded,
    log,
    mode_of,
    paths_of,
    refuse_unknown,
)

_OF_RUN = "run string, quorum string, scenario string, brokers int, partitions bigint, seed bigint"

#: The columns of each table.
TABLES: dict[str, StructType] = {
    "events": columns(
        f"{_OF_RUN}, at_ms double, step string, name string, broker int, value double"
    ),
    "measures": columns(
        f"{_OF_RUN}, step string, name string, statistic string, unit string, value double, "
        "events bigint, is_complete boolean"
    ),
    "runs": columns(
        f"{_OF_RUN}, controllers int, processes int, kraft_version string, started_at timestamp, "
        "machine string, directory string"
    ),
    "problems": columns("path string, line bigint, reason string"),
}
OPTIONS = ("mode", "table")


class KraftFleetSource(DataSource):
    """The data source; see the module."""

    @classmethod
    def name(cls) -> str:
        return "kraft-fleet"

    def schema(self) -> StructType:
        return TABLES[_table_of(self.options)]

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FleetReader(self.options, schema)


@dataclass
class _Directory(InputPartition):
    """One run directory; an empty path has no rows."""

    path: str


class _FleetReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        refuse_unknown("kraft-fleet", options, OPTIONS)
        self._table = _table_of(options)
        self._paths = paths_of(options)
        # A query for the problems does not fail because of them.
        self._mode = PERMISSIVE if self._table == "problems" else mode_of(options)
        self._schema = arrow_schema(schema, TABLES[self._table])

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task a run. Raises FleetRunError for a path without runs."""
        found = run_directories(expanded(self._paths))
        # For an empty list Spark would read a partition that does not exist.
        return [_Directory(str(path)) for path in found] or [_Directory("")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Directory)
        if not partition.path:
            return
        run, problems = read_or_report(partition.path, skip_bad_lines=self._mode != FAILFAST)
        if self._table == "problems":
            rows = pa.Table.from_pylist([each._asdict() for each in problems], self._schema)
            yield from rows.to_batches()
            return
        for problem in problems:
            log.warning("omitted: %s", problem)
        if run is not None:
            yield from table_of_run(run, self._table, self._schema).to_batches(1 << 16)


def table_of_run(run: RecordedRun, table: str, schema: pa.Schema | None = None) -> pa.Table:
    """Return the rows of a run in one of `TABLES` but ``problems``; ``schema`` selects columns."""
    if table == "events":
        found = run.trace.to_arrow()
    elif table == "measures":
        found = _measures(run)
    else:
        found = _description(run)
    wanted = arrow_schema(TABLES[table], TABLES[table]) if schema is None else schema
    arrays = [
        found[field.name].cast(field.type)
        if field.name in found.column_names
        else pa.repeat(pa.scalar(getattr(run.info, field.name), field.type), len(found))
        for field in wanted
    ]
    return pa.Table.from_arrays(arrays, schema=wanted)


def _table_of(options: Mapping[str, str]) -> str:
    table = options.get("table", "events").lower()
    if table not in TABLES:
        raise InvalidRequestError(f"table is {', '.join(TABLES)}, not {table!r}")
    return table


def _measures(run: RecordedRun) -> pa.Table:
    schema = pa.schema(
        [(name, pa.string()) for name in ("step", "name", "statistic", "unit")]
        + [("value", pa.float64()), ("events", pa.int64()), ("is_complete", pa.bool_())]
    )
    return pa.Table.from_pylist([each.as_dict() for each in measures_of(run.trace)], schema)


def _description(run: RecordedRun) -> pa.Table:
    return pa.table(
        {
            "started_at": pa.array([run.info.started_at], pa.timestamp("us", "UTC")),
            "machine": [json.dumps(dict(run.info.machine), sort_keys=True)],
            "directory": [str(run.directory)],
        }
    )
