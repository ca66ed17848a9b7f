"""The files of a comparison: ``results.json``, ``benchmark.json`` and ``compare.html``.

``benchmark.json`` is in the format of pytest-benchmark, so that ``kraft regress`` and
``kraft.spark`` read it; an extrapolated value is in none of its entries.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kraft.errors import StorageError
from kraft.fleet.trace import SHORTEST_S, benchmark_entry, benchmark_results
from kraft.generations import page
from kraft.generations.comparison import ComparisonReport

RESULTS_FILE = "results.json"
BENCHMARK_FILE = "benchmark.json"
PAGE_FILE = "compare.html"


def write_results(report: ComparisonReport, directory: Path) -> None:
    """Write the files. Raises StorageError, MissingPackageError without plotly."""
    try:
        for name, document in (
            (RESULTS_FILE, report.as_dict()),
            (BENCHMARK_FILE, benchmark_document(report)),
        ):
            (directory / name).write_text(json.dumps(document, indent=1) + "\n")
        # Last: the numbers are kept where plotly is missing.
        (directory / PAGE_FILE).write_text(page.page(report), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write to {directory}: {error}") from None


def benchmark_document(report: ComparisonReport) -> dict[str, Any]:
    """Return the measures as a document of pytest-benchmark."""
    request = report.request
    entries = [
        benchmark_entry(
            f"{step.value}_{measure}",
            suite="compare",
            group=step.value,
            params={
                "mode": run.mode,
                "partitions": run.partitions,
                "brokers": request.brokers,
            },
            data=[max(value, SHORTEST_S)],
            extra_info={
                "run": report.run,
                "controller_cpu_s": run.cpu_s.get(step),
                "session_timeout_ms": request.session_timeout_ms,
            },
        )
        for run in report.runs
        for (step, measure), value in run.seconds.items()
    ]
    return benchmark_results(
        entries,
        machine=report.machine,
        started_at=datetime.now(UTC).isoformat(),
        project="kraft-compare",
        branch="generations",
    )
