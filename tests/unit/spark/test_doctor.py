"""``kraft doctor --spark`` runs a job in a real session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from kraft.cli.commands import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_spark_session_starts_and_counts_to_ten(spark: SparkSession) -> None:
    ran = CliRunner().invoke(app, ["doctor", "--spark", "--json"])
    assert ran.exit_code == 0, ran.output
    found = {each["name"]: each for each in json.loads(ran.stdout)["checks"]}["Spark session"]
    assert found["status"] == "ok"
    assert found["required"] is True
    assert found["found"].startswith("counted to 10 in ")
    assert spark.range(3).count() == 3, "the command must not stop an existing session"
