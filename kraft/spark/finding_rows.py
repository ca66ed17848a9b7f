"""Convert findings to Arrow rows and back, to send them from Spark's workers to the driver.

The row of a value is its dataclass, field by field under the same names; the column types follow
from the annotations, so that a new field of a finding needs no change here.

A `Series` is never part of a row, because its size is that of its runs: only the histories that a
report draws are fetched (`analysis.AnalysisSource.histories`). Enumerations become texts, tuples
lists, named tuples and dataclasses structs. Floats keep every bit, also NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import pyarrow as pa

from kraft.regression.points import Series

T = TypeVar("T")

_PRIMITIVES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


@cache
def schema_of(kind: Any) -> pa.Schema:
    """Return the columns of a table of values of this dataclass."""
    return pa.schema([_field(name, hint) for name, hint in _fields(kind)])


def to_rows(kind: Any, values: Iterable[Any]) -> pa.Table:
    """Return a table with one row per value, in the given order."""
    return pa.Table.from_pylist([_plain(value) for value in values], schema=schema_of(kind))


def from_rows(kind: type[T], table: pa.Table) -> list[T]:
    """Return the values of a table, in its order."""
    return [_built(kind, row) for row in table.to_pylist()]


@cache
def _fields(kind: Any) -> list[tuple[str, Any]]:
    """Return the fields that become columns, with their types."""
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else list(hints)
    return [(name, hints[name]) for name in names if _without_none(hints[name]) is not Series]


def _without_none(hint: Any) -> Any:
    """Return X for ``X | None``; any other type unchanged."""
    if get_origin(hint) is UnionType:
        (hint,) = [each for each in get_args(hint) if each is not type(None)]
    return hint


def _field(name: str, hint: Any) -> pa.Field:
    return pa.field(name, _arrow_type(_without_none(hint)), nullable=_without_none(hint) != hint)


def _arrow_type(hint: Any) -> pa.DataType:
    if get_origin(hint) is tuple:
        item, dots = get_args(hint)
        assert dots is Ellipsis, f"{hint}: only tuples of one type and any length travel"
        return pa.list_(pa.field("item", _arrow_type(item), nullable=False))
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    if issubclass(hint, StrEnum):
        return pa.string()
    # If a struct is null, its fields are null too, so Arrow requires them to be nullable.
    return pa.struct([_field(name, inner).with_nullable(True) for name, inner in _fields(hint)])


def _plain(value: Any) -> Any:
    """Return a value as dictionaries, lists and primitives."""
    if is_dataclass(value) or hasattr(value, "_fields"):
        kind: Any = type(value)
        return {name: _plain(getattr(value, name)) for name, _ in _fields(kind)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


def _built(hint: Any, plain: Any) -> Any:
    """Return the value that `_plain` converted."""
    hint = _without_none(hint)
    if plain is None:
        return None
    if get_origin(hint) is tuple:
        return tuple(_built(get_args(hint)[0], each) for each in plain)
    if hint in _PRIMITIVES:
        return plain
    if issubclass(hint, StrEnum):
        return hint(plain)
    return hint(**{name: _built(inner, plain[name]) for name, inner in _fields(hint)})
