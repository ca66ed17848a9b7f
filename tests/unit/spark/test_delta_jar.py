"""A store of results read by Spark with Delta's jar.

Skipped where Maven's registry has no jar for the installed PySpark: Delta follows releases of Spark
late. `DELTA` is its newest version; `docs/result-store.md` has the last result.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install 'kraft[spark]'")
pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

import pyspark

from kraft.regression.ingest import ingest
from kraft.regression.store import open_store, read_table
from tests.harness.result_documents import document, save

DELTA = "4.4.0"
NAMES = ["run_id", "benchmark", "median", "values"]


def fetched(artifact: str, folder: Path) -> str:
    """Return the path of a jar of Delta; skip the test if it cannot be fetched."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("needs Maven, which fetches Delta's jars")
    coordinates = f"io.delta:{artifact}:{DELTA}"
    copy = ["dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}"]
    for offline in (["-o"], []):
        ran = subprocess.run(
            [maven, "-q", "-B", *offline, *copy],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        if ran.returncode == 0:
            return str(folder / f"{artifact}-{DELTA}.jar")
    pytest.skip(f"Maven's registry has no {coordinates}, or is out of reach")


@pytest.mark.spark
def test_spark_with_deltas_jar_reads_the_same_points(tmp_path: Path) -> None:
    spark = ".".join(pyspark.__version__.split(".")[:2])
    names = (f"delta-spark_{spark}_2.13", "delta-storage", "delta-kernel-api")
    jars = [fetched(name, tmp_path / "jars") for name in (*names, "delta-kernel-defaults")]
    store = tmp_path / "store"
    for hour in range(2):
        values = {"test_a": [1.0 + hour, 9.0], "test_b": [2.0 + hour]}
        run = save(tmp_path / f"{hour}.json", document(at=hour, commit=f"c{hour}", values=values))
        ingest([run], store)
    assert open_store(store).version == 1
    for version in (0, 1):
        command = [sys.executable, "-m", "tests.unit.spark.delta_session", str(store)]
        ran = subprocess.run(
            [*command, str(version), *jars],
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        rows = read_table(store, version=version, columns=NAMES).sort_by(
            [("run_id", "ascending"), ("benchmark", "ascending")]
        )
        expected = [list(row.values()) for row in rows.to_pylist()]
        assert len(expected) == 2 * (version + 1)
        assert json.loads(ran.stdout) == expected
