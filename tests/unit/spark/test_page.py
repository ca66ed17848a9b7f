"""The examples of docs/spark.md produce the output that the page shows."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]


def test_the_page_shows_what_happens(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / "spark.md"),
        module_relative=False,
        encoding="utf-8",
        optionflags=doctest.ELLIPSIS,
    )
    assert failed == 0
    assert tried > 15
