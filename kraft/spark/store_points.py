"""Read a store of results as a DataFrame, with Delta's jar or without it."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from kraft.regression.points import POINTS
from kraft.regression.store import open_store

#: The SQL extension that a session with Delta's jar has.
_DELTA = "io.delta.sql.DeltaSparkSessionExtension"


def read_points(
    spark: SparkSession, store: str | os.PathLike[str], version: int | str | None = None
) -> DataFrame:
    """Return all points of a store at a version, by default the newest, with the columns `POINTS`.

    Spark's Delta reader reads them if the session has it, otherwise its Parquet reader with the
    list of the version's files. A column that the version lacks is null. Raises StorageError as
    `kraft.regression.store.open_store`.
    """
    state = open_store(store, version)
    schema = from_arrow_schema(POINTS)
    if _DELTA in (spark.conf.get("spark.sql.extensions", "") or ""):
        delta = spark.read.format("delta").option("versionAsOf", state.version)
        there = delta.load(state.location.uri)
        return there.select(
            *(
                F.col(field.name)
                if field.name in there.columns
                else F.lit(None).cast(field.dataType).alias(field.name)
                for field in schema
            )
        )
    if not state.files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(state.location.absolute, state.files))
