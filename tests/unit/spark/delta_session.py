"""Print the points of a store of results as Spark reads them with Delta's jar, as JSON.

    python -m tests.unit.spark.delta_session STORE VERSION JAR...

A program of its own, because a JVM gets its jars when it starts.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    store, version, *jars = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(jars))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )
    points = spark.read.format("delta").option("versionAsOf", version).load(store)
    rows = points.select("run_id", "benchmark", "median", "values").orderBy("run_id", "benchmark")
    print(json.dumps([list(row) for row in rows.collect()]))
    spark.stop()


if __name__ == "__main__":
    main()
