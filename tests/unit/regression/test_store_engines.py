"""DuckDB, Polars, pandas and Arrow read the same rows of a store, also of an earlier version.

Spark: tests/unit/spark/test_store.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

from deltalake import DeltaTable

from kraft.regression.ingest import ingest
from kraft.regression.store import open_store, read_table
from tests.harness.result_documents import document, save

COLUMNS = ["run_id", "benchmark", "time", "dirty", "rounds", "median", "instructions", "values"]

Rows = list[dict[str, Any]]


def by_duckdb(table: DeltaTable) -> Rows:
    duckdb = pytest.importorskip("duckdb", reason="needs DuckDB: pip install duckdb")
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    query = f"SELECT {names} FROM read_parquet($files)"
    found = duckdb.execute(query, {"files": table.file_uris()}).fetchall()
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]


def by_polars(table: DeltaTable) -> Rows:
    polars = pytest.importorskip("polars", reason="needs Polars: pip install polars")
    frame = polars.scan_delta(table.table_uri, version=table.version())
    found: Rows = frame.select(COLUMNS).collect().to_dicts()
    return found


def by_pandas(table: DeltaTable) -> Rows:
    pytest.importorskip("pandas", reason="needs pandas: pip install pandas")
    frame = table.to_pandas(columns=COLUMNS)
    rows: Rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [
        {**row, "values": row["values"] if row["values"] is None else list(row["values"])}
        for row in rows
    ]


def by_arrow(table: DeltaTable) -> Rows:
    found: Rows = table.to_pyarrow_table(columns=COLUMNS).to_pylist()
    return found


@pytest.mark.parametrize("engine", [by_duckdb, by_polars, by_pandas, by_arrow])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_engine_reads_the_same_rows(
    tmp_path: Path, engine: Callable[[DeltaTable], Rows], version: int
) -> None:
    store = tmp_path / "store"
    for hour, keep_values in ((0, False), (1, True), (0, True)):  # the last one replaces a run
        values = {"test_a": [1.0 + hour, 9.0], "test_b[7]": [0.1]}
        content = document(at=hour, commit=f"c{hour}", values=values, keep_values=keep_values)
        save(tmp_path / "run.json", content)
        ingest([tmp_path / "run.json"], store)
    assert open_store(store).version == 2
    expected = read_table(store, version=version, columns=COLUMNS).to_pylist()
    assert len(expected) == (2, 4, 4)[version]
    found = engine(DeltaTable(str(store), version=version))

    def order(row: dict[str, Any]) -> tuple[str, str]:
        return row["run_id"], row["benchmark"]

    assert sorted(found, key=order) == sorted(expected, key=order)
