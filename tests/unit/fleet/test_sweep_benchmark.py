"""The measures of a sweep as a benchmark, for ``kraft bench ingest`` and ``kraft regress``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.fleet.scaling_report import points_of
from kraft.fleet.sweep_benchmark import sweep_document
from kraft.fleet.traces import read_run
from kraft.regression.analysis import analyse_store
from kraft.regression.ingest import ingest
from kraft.regression.results import read_run as read_results
from kraft.regression.settings import AnalysisSettings
from tests.harness.fleet_runs import Planted, write_run

pytest.importorskip("deltalake", reason="needs kraft[regress]: pip install 'kraft[regress]'")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the benchmark file of a sweep of four sizes with two seeds; return its path."""
    folder = tmp_path_factory.mktemp("sweep")
    runs = [
        read_run(
            write_run(
                folder / f"{brokers}-{seed}",
                brokers=brokers,
                seed=seed,
                planted=Planted(applied_exponent=0.7),
            )
        )
        for brokers in (10, 20, 40, 80)
        for seed in (1, 2)
    ]
    points = [point for run in runs for point in points_of(run)]
    path = folder / "benchmark.json"
    path.write_text(json.dumps(sweep_document(points, [run.info for run in runs])))
    return path


def test_every_measure_has_the_values_of_all_seeds(document: Path) -> None:
    results = read_results(document.read_bytes(), "benchmark.json")
    assert results.problems == ()
    units = dict(zip(results.benchmark, results.unit, strict=True))
    assert units["(run)_controller_rss_worst"] == "bytes"
    assert units["(run)_controller_cpu_mean"] == "cores"
    # Seconds are the format's own unit.
    assert units["rack lost_decided_worst"] is None
    entries = json.loads(document.read_text())["benchmarks"]
    (decided,) = [
        each for each in entries
        if each["name"].startswith("rack lost_decided_worst") and each["params"]["brokers"] == 40
    ]  # fmt: skip
    assert decided["extra_info"]["seeds"] == [1, 2]
    assert decided["params"] == {"brokers": 40, "partitions": 10_000, "quorum": "kraft"}
    assert decided["stats"]["data"] == [0.04, 0.04]


def test_regress_fits_laws_to_time_and_to_memory(document: Path, tmp_path: Path) -> None:
    report = ingest([document], tmp_path / "store", strict=True)
    assert (report.runs_added, report.problems) == (1, [])
    # The same sweep is stored once.
    assert ingest([document], tmp_path / "store").runs_added == 0
    laws = analyse_store(tmp_path / "store", AnalysisSettings(bootstrap_samples=100)).scaling
    by_name = {law.key.benchmark: law for law in laws}
    assert {law.size_param for law in laws} == {"brokers"}
    assert by_name["(run)_applied_p50"].exponent == pytest.approx(0.7, abs=0.1)
    assert by_name["(run)_controller_rss_worst"].sizes == (10.0, 20.0, 40.0, 80.0)
    assert by_name["(run)_network_bytes_total"].exponent == pytest.approx(1.0, abs=0.05)
