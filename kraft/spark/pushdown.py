"""Filters that a data source evaluates for Spark, on Arrow columns.

This module knows which of Spark's filters it can evaluate, and their semantics for nulls. The data
sources of this package mask rows before they build expensive columns, and skip whole files and
ranges.

Invariant: a row passes if and only if it passes Spark's own evaluation, nulls included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import datasource as spark_filters
from pyspark.sql.datasource import Filter

_COMPARE: dict[type[Filter], Any] = {
    spark_filters.EqualTo: pc.equal,
    spark_filters.GreaterThan: pc.greater,
    spark_filters.GreaterThanOrEqual: pc.greater_equal,
    spark_filters.LessThan: pc.less,
    spark_filters.LessThanOrEqual: pc.less_equal,
}
_TEXT: dict[type[Filter], Any] = {
    spark_filters.StringStartsWith: pc.starts_with,
    spark_filters.StringEndsWith: pc.ends_with,
    spark_filters.StringContains: pc.match_substring,
}


class Pushdown:
    """The accepted filters on ``columns`` (name and Arrow type); picklable."""

    def __init__(self, columns: Mapping[str, pa.DataType]) -> None:
        self._types = dict(columns)
        self._filters: dict[str, list[Filter]] = {}

    def take(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Accept the supported filters and yield the others, as ``pushFilters`` requires."""
        for each in filters:
            inner = each.child if isinstance(each, spark_filters.Not) else each
            path: tuple[str, ...] = getattr(inner, "attribute", ())
            if len(path) == 1 and path[0] in self._types and self._is_known(path[0], inner):
                self._filters.setdefault(path[0], []).append(each)
            else:
                yield each

    def _is_known(self, column: str, inner: Filter) -> bool:
        kind = self._types[column]
        if isinstance(inner, (spark_filters.IsNull, spark_filters.IsNotNull)):
            return True
        if type(inner) in _TEXT:
            return bool(pa.types.is_string(kind))
        if type(inner) not in (*_COMPARE, spark_filters.EqualNullSafe, spark_filters.In):
            return False
        value: Any = getattr(inner, "value")  # noqa: B009  (each of these has one)
        values = value if isinstance(inner, spark_filters.In) else (value,)
        try:
            pa.array(list(values), kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return False
        return True

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that have filters."""
        return tuple(self._filters)

    def mask(self, column: str, values: pa.Array) -> NDArray[np.bool_]:
        """Return which values of a column pass its filters: bool, one per value."""
        passed = np.ones(len(values), np.bool_)
        for each in self._filters.get(column, ()):
            made = _evaluate(each, values)
            passed &= pc.fill_null(made, False).to_numpy(zero_copy_only=False)
        return passed

    def passes(self, **values: Any) -> bool:
        """Return whether a row with these values may pass; other columns are not tested."""
        return all(
            bool(self.mask(name, pa.array([value], self._types[name]))[0])
            for name, value in values.items()
            if name in self._filters
        )

    def overlaps(self, column: str, first: int, last: int) -> bool:
        """Return whether a number from ``first`` to ``last`` (both inclusive) may pass."""
        for each in self._filters.get(column, ()):
            value: Any = getattr(each, "value", None)
            match each:
                case spark_filters.EqualTo():
                    there = first <= value <= last
                case spark_filters.GreaterThan():
                    there = last > value
                case spark_filters.GreaterThanOrEqual():
                    there = last >= value
                case spark_filters.LessThan():
                    there = first < value
                case spark_filters.LessThanOrEqual():
                    there = first <= value
                case spark_filters.In():
                    there = any(one is not None and first <= one <= last for one in each.value)
                case _:
                    there = True
            if not there:
                return False
        return True


def _evaluate(each: Filter, values: pa.Array) -> pa.Array:
    """Return true, false or null for each value, with SQL's semantics."""
    match each:
        case spark_filters.Not():
            return pc.invert(_evaluate(each.child, values))
        case spark_filters.IsNull():
            return pc.is_null(values)
        case spark_filters.IsNotNull():
            return pc.is_valid(values)
        case spark_filters.In():
            known = [value for value in each.value if value is not None]
            found = pc.is_in(values, pa.array(known, values.type))
            # In SQL, a value that is not in a list with null gives null.
            is_unknown = pc.is_null(values)
            if len(known) < len(each.value):
                is_unknown = pc.or_(is_unknown, pc.invert(found))
            return pc.if_else(is_unknown, pa.scalar(None, pa.bool_()), found)
        case spark_filters.EqualNullSafe():
            if each.value is None:
                return pc.is_null(values)
            equal = pc.equal(values, pa.scalar(each.value, values.type))
            return pc.fill_null(equal, False)
    value: Any = getattr(each, "value")  # noqa: B009
    if type(each) in _TEXT:
        return _TEXT[type(each)](values, value)
    return _COMPARE[type(each)](values, pa.scalar(value, values.type))
