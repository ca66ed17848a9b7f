"""What a data source of this package is told: paths, modes, columns.

Owns how ``load(...)`` and ``option(...)`` are read, so that all sources read them alike.
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

#: An unreadable file ends the query, or is left out and told in the log of the worker.
FAILFAST, PERMISSIVE = "FAILFAST", "PERMISSIVE"

_TYPES: dict[str, DataType] = {
    "array<int>": ArrayType(IntegerType()),
    "array<string>": ArrayType(StringType()),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "smallint": ShortType(),
    "string": StringType(),
    "timestamp": TimestampType(),
    "tinyint": ByteType(),
}

log = logging.getLogger("kraft.spark")


def columns(text: str) -> StructType:
    """The schema of ``"name type, name type"``, each nullable, types in Spark's words.

    Spark's own parser lies in the JVM, which a worker does not have.
    """
    pairs = (each.split(" ") for each in text.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])


def refuse_unknown(source: str, options: Mapping[str, str], known: Collection[str]) -> None:
    """Check that the data source ``source`` has every option that a query gives it.

    Spark drops what a source does not ask for, so that a misspelt option would change nothing
    without a word. ``path`` and ``paths`` are those of ``load``; Spark ignores the case of names.

    Raises :class:`InvalidRequestError`, which lists the options that there are.
    """
    there = {name.lower() for name in (*known, "path", "paths")}
    unknown = sorted(name for name in options if name.lower() not in there)
    if unknown:
        raise InvalidRequestError(
            f"{source} has no option {unknown[0]!r}; it has: {', '.join(sorted(known))}"
        )


def flag_of(options: Mapping[str, str], name: str) -> bool:
    """Return an option that is true or false, false if it is not given.

    Raises :class:`InvalidRequestError` for anything else.
    """
    text = options.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidRequestError(f"{name} is true or false, not {text!r}")
    return text == "true"


def paths_of(options: Mapping[str, str]) -> list[str]:
    """What was given to ``load``: one path or several, patterns (``runs/*.trace``) not expanded.

    Raises :class:`InvalidRequestError` where there is none, or one of another file system: the
    driver and every executor open these themselves.
    """
    given = json.loads(options["paths"]) if "paths" in options else []
    if "path" in options:
        given.append(options["path"])
    if not given:
        raise InvalidRequestError("no path is given: load(path)")
    return [_local(path) for path in given]


def expanded(paths: list[str]) -> list[str]:
    """The paths with their patterns expanded, in order; a plain path stays, whether it is there.

    Raises :class:`StorageError` for a pattern that nothing matches.
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
    """FAILFAST (default) or PERMISSIVE. Raises :class:`InvalidRequestError` for another."""
    mode = options.get("mode", FAILFAST).upper()
    if mode not in (FAILFAST, PERMISSIVE):
        raise InvalidRequestError(f"mode is {FAILFAST} or {PERMISSIVE}, not {mode!r}")
    return mode


def number_of(options: Mapping[str, str], name: str, default: int) -> int:
    """A positive whole number. Raises :class:`InvalidRequestError` for anything else."""
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidRequestError(f"{name} is a positive whole number, not {text!r}")
    return int(text)


def takes_filters(options: Mapping[str, str]) -> bool:
    """Whether the option ``pushdown`` has the source take filters over from Spark.

    Only where it is asked for: Spark (4.1 to 4.3) keeps what a Python source planned with a filter
    for everything else that is made of the same ``load``, so that another filter on it, or none,
    would silently get the rows of the first. A DataFrame that is loaded for one query is safe.

    Raises :class:`InvalidRequestError` for anything but true and false.
    """
    return flag_of(options, "pushdown")


def arrow_schema(asked: StructType, declared: StructType) -> pa.Schema:
    """The Arrow schema of the columns that are read: all, or those of ``.schema(...)``.

    Spark does not tell a Python source which columns a query needs; naming fewer saves their way
    into the JVM. Raises :class:`InvalidRequestError` for a column that there is not, or of another
    type.
    """
    types = {field.name: field.dataType for field in declared}
    for field in asked:
        if field.name not in types:
            raise InvalidRequestError(
                f"there is no column {field.name!r}; there are: {', '.join(types)}"
            )
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
            f"{path}: paths are those of a file system that the driver and all executors see"
        )
    return path
