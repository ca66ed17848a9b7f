"""Filters evaluated for Spark have Spark's semantics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from kraft.spark.pushdown import Pushdown

N, T = ("number",), ("text",)
NUMBERS = [None, -3, 0, 1, 2, 3, 7]
TEXTS = [None, "", "a", "ab", "ba", "abc"]

#: Each filter and the SQL from which Spark makes it.
CASES: list[tuple[Filter, str]] = [
    (EqualTo(N, 2), "number = 2"),
    (EqualNullSafe(N, 2), "number <=> 2"),
    (EqualNullSafe(N, None), "number <=> null"),
    (GreaterThan(N, 1), "number > 1"),
    (GreaterThanOrEqual(N, 1), "number >= 1"),
    (LessThan(N, 1), "number < 1"),
    (LessThanOrEqual(N, 1), "number <= 1"),
    (In(N, (1, 7, 99)), "number in (1, 7, 99)"),
    (In(N, (1, None)), "number in (1, null)"),
    (IsNull(N), "number is null"),
    (IsNotNull(N), "number is not null"),
    (StringStartsWith(T, "a"), "text like 'a%'"),
    (StringEndsWith(T, "b"), "text like '%b'"),
    (StringContains(T, "b"), "text like '%b%'"),
    (EqualTo(T, "ab"), "text = 'ab'"),
]


def test_every_filter_passes_what_spark_passes(spark: SparkSession) -> None:
    values: dict[str, list[Any]] = {"number": NUMBERS, "text": TEXTS}
    types = {"number": pa.int32(), "text": pa.string()}
    rows = spark.createDataFrame(
        [(number, text) for number in NUMBERS for text in TEXTS], "number int, text string"
    )
    cases = [*CASES, *((Not(each), f"not ({sql})") for each, sql in CASES)]
    exprs = [f"coalesce({sql}, false) as c{place}" for place, (_, sql) in enumerate(cases)]
    answers = rows.selectExpr("number", "text", *exprs).collect()
    for place, (each, sql) in enumerate(cases):
        pushdown = Pushdown(types)
        assert list(pushdown.take([each])) == [], sql
        (column,) = pushdown.columns
        mask = pushdown.mask(column, pa.array(values[column], types[column]))
        passed = dict(zip(values[column], mask.tolist(), strict=True))
        for row in answers:
            assert passed[row[column]] == row[f"c{place}"], (sql, row[column])
            assert pushdown.passes(**{column: row[column]}) == row[f"c{place}"]


def test_unsupported_filters_are_returned() -> None:
    pushdown = Pushdown({"number": pa.int32()})
    strange: list[Filter] = [
        EqualTo(("other",), 1),
        EqualTo(("number", "field"), 1),
        EqualTo(N, "a word"),
        EqualTo(N, 1 << 40),
        StringStartsWith(N, "1"),
        Not(EqualTo(("other",), 1)),
    ]
    assert list(pushdown.take(strange)) == strange
    assert pushdown.columns == ()
    assert pushdown.mask("number", pa.array([1, None], pa.int32())).tolist() == [True, True]


@pytest.mark.parametrize("each", [case[0] for case in CASES if case[0].attribute == N], ids=str)  # type: ignore[attr-defined]
def test_a_skipped_range_contains_no_passing_value(each: Filter) -> None:
    for taken in (each, Not(each)):
        pushdown = Pushdown({"number": pa.int32()})
        assert list(pushdown.take([taken])) == []
        for first in range(-5, 9):
            for last in range(first, 9):
                inside = pa.array(range(first, last + 1), pa.int32())
                if pushdown.mask("number", inside).any():
                    assert pushdown.overlaps("number", first, last)
    pushdown = Pushdown({"number": pa.int32()})
    assert list(pushdown.take([GreaterThan(N, 5), LessThan(N, 9)])) == []
    assert not pushdown.overlaps("number", 1, 5)
    assert not pushdown.overlaps("number", 9, 12)
    assert pushdown.overlaps("number", 1, 6)
