"""Read a store of results as a DataFrame, without Delta's jar."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kraft.regression.points import POINTS
from kraft.regression.store import open_store


def read_points(
    spark: SparkSession, store: str | os.PathLike[str], version: int | str | None = None
) -> DataFrame:
    """Return all points of a store at a version, by default the newest, with the columns `POINTS`.

    Spark's Parquet reader gets the list of the version's files: Delta's jar follows releases of
    Spark late. A column that the version lacks is null. Raises StorageError as
    `kraft.regression.store.open_store`.
    """
    state = open_store(store, version)
    schema = from_arrow_schema(POINTS)
    if not state.files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(state.location.absolute, state.files))
