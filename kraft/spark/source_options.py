"""Read the options of this package's data sources: paths, modes, columns.

All data sources call these functions for ``load(...)`` and ``option(...)``, so that they behave
alike.
"""

from __future__ import annotations

import glob
import json
import logging
import os
from collections.abc import Collection, Mapping
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kraft.errors import InvalidRequestError, StorageError

#: An unreadable file fails the query, or is omitted and logged by the worker.
FAILFAST, PERMISSIVE = "FAILFAST", "PERMISSIVE"

_TYPES: dict[str, DataType] = {
    "array<int>": ArrayType(IntegerType()),
    "array<string>": ArrayType(StringType()),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "double": DoubleType(),
    "int": IntegerType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "smallint": ShortType(),
    "string": StringType(),
    "timestamp": TimestampType(),
    "tinyint": ByteType(),
}

log = logging.getLogger("kraft.spark")


def columns(text: str) -> StructType:
    """Return the schema of ``"name type, name type"`` with Spark's type names; all columns are
    nullable.

    Spark's own parser runs in the JVM, which a worker does not have.
    """
    pairs = (each.split(" ") for each in text.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])


def refuse_unknown(source: str, options: Mapping[str, str], known: Collection[str]) -> None:
    """Reject options that the data source ``source`` does not have.

    Spark ignores options that a source does not read, so a misspelt option would have no effect.
    ``path`` and ``paths`` come from ``load``; Spark ignores the case of names.

    Raises :class:`InvalidRequestError`, which lists the valid options.
    """
    there = {name.lower() for name in (*known, "path", "paths")}
    unknown = sorted(name for name in options if name.lower() not in there)
    if unknown:
        raise InvalidRequestError(
            f"{source} has no option {unknown[0]!r}; it has: {', '.join(sorted(known))}"
        )


def flag_of(options: Mapping[str, str], name: str) -> bool:
    """Return a boolean option, false if it is not given.

    Raises :class:`InvalidRequestError` for anything else.
    """
    text = options.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidRequestError(f"{name} is true or false, not {text!r}")
    return text == "true"


def paths_of(options: Mapping[str, str]) -> list[str]:
    """Return the paths given to ``load``; patterns (``runs/*.trace``) are not expanded.

    Raises :class:`InvalidRequestError` if there is none, or for a path of another file system: the
    driver and every executor open the paths themselves.
    """
    given = json.loads(options["paths"]) if "paths" in options else []
    if "path" in options:
        given.append(options["path"])
    if not given:
        raise InvalidRequestError("no path given: use load(path)")
    return [_local(path) for path in given]


def expanded(paths: list[str]) -> list[str]:
    """Return the paths with patterns expanded, in order; a plain path is kept whether it exists or
    not.

    Raises :class:`StorageError` for a pattern without matches.
    """
    found: list[str] = []
    for path in paths:
        if not os.path.exists(path) and glob.has_magic(path):
            matches = sorted(glob.glob(path, recursive=True))
            if not matches:
                raise StorageError(f"nothing matches {path}")
            found += matches
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def mode_of(options: Mapping[str, str]) -> str:
    """Return FAILFAST (default) or PERMISSIVE. Raises :class:`InvalidRequestError` for another
    mode.
    """
    mode = options.get("mode", FAILFAST).upper()
    if mode not in (FAILFAST, PERMISSIVE):
        raise InvalidRequestError(f"mode is {FAILFAST} or {PERMISSIVE}, not {mode!r}")
    return mode


def number_of(options: Mapping[str, str], name: str, default: int) -> int:
    """Return a positive whole number. Raises :class:`InvalidRequestError` for anything else."""
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidRequestError(f"{name} is a positive whole number, not {text!r}")
    return int(text)


def takes_filters(options: Mapping[str, str]) -> bool:
    """Return whether the option ``pushdown`` lets the source evaluate filters for Spark.

    Off by default, because Spark (4.1 to 4.3) reuses the plan that a Python source made with a
    filter for all DataFrames of the same ``load``: another filter on it, or none, would silently
    return the rows of the first one. A DataFrame that is loaded for one query is safe.

    Raises :class:`InvalidRequestError` for anything but true and false.
    """
    return flag_of(options, "pushdown")


def arrow_schema(asked: StructType, declared: StructType) -> pa.Schema:
    """Return the Arrow schema of the columns to read: all, or those of ``.schema(...)``.

    Spark does not report to a Python source which columns a query needs; naming fewer columns
    avoids sending the others to the JVM. Raises :class:`InvalidRequestError` for an unknown column
    or another type.
    """
    types = {field.name: field.dataType for field in declared}
    for field in asked:
        if field.name not in types:
            raise InvalidRequestError(f"unknown column {field.name!r}; known: {', '.join(types)}")
        if field.dataType != types[field.name]:
            raise InvalidRequestError(
                f"column {field.name} is {types[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return to_arrow_schema(asked, timezone="UTC")


def _local(path: str) -> str:
    parts = urlparse(path)
    if parts.scheme == "file":
        return unquote(parts.path)
    if len(parts.scheme) > 1:
        raise InvalidRequestError(
            f"{path}: the path must be on a file system that the driver and all executors share"
        )
    return path
