"""``spark.read.format("kraft-metadata")``: the metadata of Kafka clusters as rows.

This module reads the options, chooses the view's schema and divides a cluster into tasks.
``state_views`` (partitions, topics, brokers as of an offset) and ``record_view`` (every record of
logs and snapshots) produce the rows; ``kraft.metadata.source`` handles damage.

Invariants: all tasks of a query read a cluster as of one offset, which is fixed during planning, so
that later appends are not visible; every row is in exactly one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import fspath

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kraft.errors import InvalidRequestError, KraftError
from kraft.metadata.source import MetadataSource
from kraft.spark.pushdown import Pushdown
from kraft.spark.record_view import RECORDS, RecordRange, read_records, record_ranges
from kraft.spark.source_options import (
    FAILFAST,
    PERMISSIVE,
    arrow_schema,
    expanded,
    flag_of,
    log,
    mode_of,
    number_of,
    paths_of,
    refuse_unknown,
    takes_filters,
)
from kraft.spark.state_views import STATE_VIEWS, StatePart, read_state

#: Bytes per task. A task of the records view decodes them. A task of a state view loads the whole
#: cluster, which is fast compared with returning the rows, and returns its part of them.
_RECORD_BYTES = 16 << 20
_STATE_BYTES = 64 << 20

OPTIONS = ("maxPartitionBytes", "mode", "offset", "pushdown", "showSecrets", "view")

VIEWS: dict[str, StructType] = {"records": RECORDS, **STATE_VIEWS}


class KraftMetadataSource(DataSource):
    """The data source. Options: ``view`` (partitions, topics, brokers, records), ``offset`` (all
    views but records), ``mode`` (FAILFAST, PERMISSIVE), ``maxPartitionBytes``, ``pushdown``,
    ``showSecrets``.

    A path is one for ``open_metadata``, or a pattern; each path is a separate cluster, which the
    column ``source`` identifies.
    """

    @classmethod
    def name(cls) -> str:
        return "kraft-metadata"

    def schema(self) -> StructType:
        refuse_unknown("kraft-metadata", self.options, OPTIONS)
        return VIEWS[_view_of(self.options)]

    def reader(self, schema: StructType) -> _MetadataReader:
        made = _FilteringMetadataReader if takes_filters(self.options) else _MetadataReader
        return made(self.options, schema)


class _MetadataReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        refuse_unknown("kraft-metadata", options, OPTIONS)
        self.view = _view_of(options)
        self.paths = paths_of(options)
        self.mode = mode_of(options)
        self.offset = _offset_of(options, self.view)
        self.show_secrets = flag_of(options, "showSecrets")
        self.schema = arrow_schema(schema, VIEWS[self.view])
        default = _RECORD_BYTES if self.view == "records" else _STATE_BYTES
        self.range_bytes = number_of(options, "maxPartitionBytes", default)
        declared = to_arrow_schema(VIEWS[self.view], timezone="UTC")
        self.pushdown = Pushdown(
            {
                field.name: field.type
                for field in declared
                # Lists and JSON are built last, for the remaining rows only.
                if not pa.types.is_list(field.type) and field.name != "value"
            }
        )

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks; reject or omit a cluster that cannot be opened."""
        parts: list[InputPartition] = []
        for path in expanded(self.paths):
            if not self.pushdown.passes(source=path):
                continue
            try:
                parts += self._parts_of(path)
            except KraftError as error:
                if self.mode == FAILFAST:
                    raise
                log.warning("the file is omitted: %s", error)
        # For an empty list Spark would read a partition that does not exist.
        return parts or [InputPartition(None)]

    def _parts_of(self, path: str) -> list[InputPartition]:
        source = MetadataSource(path, salvage=self.mode == PERMISSIVE)
        if source.torn_tail is not None:
            torn = source.torn_tail
            log.warning("%s is cut short at byte %d (%s)", torn.path, torn.position, torn.reason)
        for gap in source.gaps:
            log.warning(
                "%s: records are missing from byte %d on (%s)", gap.path, gap.position, gap.reason
            )
        if self.view == "records":
            return list(
                record_ranges(
                    source,
                    path,
                    self.range_bytes,
                    with_transactions="transaction" in (*self.schema.names, *self.pushdown.columns),
                    pushdown=self.pushdown,
                    is_strict=self.mode == FAILFAST,
                )
            )
        if source.is_partial:
            raise InvalidRequestError(
                f"{path} begins in the middle of a log: it has records but no state"
            )
        at = source.offset_range[1] if self.offset is None else self.offset
        sizes = [each.size for each in source.directory.segments]
        sizes += [each.size for each in source.directory.snapshots]
        count = max(1, -(-sum(sizes) // self.range_bytes)) if self.view == "partitions" else 1
        return [StatePart(fspath(path), at, number, count) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        try:
            if isinstance(partition, RecordRange):
                yield from read_records(
                    partition, self.schema, self.pushdown, show_secrets=self.show_secrets
                )
            elif isinstance(partition, StatePart):
                salvage = self.mode == PERMISSIVE
                yield from read_state(
                    self.view, partition, self.schema, self.pushdown, salvage=salvage
                )
        except KraftError as error:
            if self.mode == FAILFAST:
                raise
            log.warning("the rest of the file is omitted: %s", error)


class _FilteringMetadataReader(_MetadataReader):
    """A reader that evaluates filters for Spark; see ``takes_filters``."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return self.pushdown.take(filters)


def _view_of(options: Mapping[str, str]) -> str:
    view = options.get("view", "partitions")
    if view not in VIEWS:
        raise InvalidRequestError(f"unknown view {view!r}; known: {', '.join(VIEWS)}")
    return view


def _offset_of(options: Mapping[str, str], view: str) -> int | None:
    text = options.get("offset")
    if text is None:
        return None
    if view == "records":
        raise InvalidRequestError(
            "the view records has no option offset; filter by the column `offset`"
        )
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequestError(f"offset is a whole number, not {text!r}")
    return int(text)
