"""Run the ``otava`` program on histories: CSV and a configuration in, change points out.

This module runs the console script of the installed wheel, once for all histories, and reads its
JSON report. It imports nothing of Otava.

A row of Otava's CSV cannot have a missing value: an empty cell fails the whole test, a NaN disables
every window that contains it. So each set of runs has its own CSV, which omits the runs for which a
benchmark has no number.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kraft.regression.settings import AnalysisSettings
from tests.otava.suites import Suite, time_s

#: Time limit of one invocation.
_LONGEST_S = 1800


@dataclass(frozen=True, order=True)
class Reported:
    """One change point in the form of both programs; numbers as Otava prints them."""

    suite: str
    benchmark: str
    index: int  # of the first run of the new level, among those that have a number
    time_s: int  # of that run
    mean_before: str
    mean_after: str
    stddev_before: str
    stddev_after: str
    p_value: str


def printed(value: float) -> str:
    """Return a number as Otava's report prints it."""
    return f"{value:-0f}"


def change_points(
    suites: Iterable[Suite], folder: Path, settings: AnalysisSettings
) -> list[Reported]:
    """Return the program's change points of these histories, sorted."""
    folder.mkdir(parents=True, exist_ok=True)
    tests = {}
    for place, suite in enumerate(_without_gaps(suites)):
        test = f"test_{place}"
        tests[test] = suite
        _write_csv(suite, folder / f"{test}.csv")
    configuration = {
        "tests": {
            test: {
                "type": "csv",
                "file": str(folder / f"{test}.csv"),
                "time_column": "time",
                "metrics": list(suite.values),
            }
            for test, suite in tests.items()
        }
    }
    config = folder / "otava.yaml"
    config.write_text(json.dumps(configuration), encoding="utf-8")  # JSON is YAML
    found: list[Reported] = []
    for line in _run(config, list(tests), settings).splitlines():
        ((test, groups),) = json.loads(line).items()
        for group in groups:
            found += [_reported(tests[test].name, change) for change in group["changes"]]
    return sorted(found)


def _reported(suite: str, change: dict[str, str]) -> Reported:
    return Reported(
        suite,
        change["metric"],
        int(change["index"]),
        int(change["time"]),
        change["mean_before"],
        change["mean_after"],
        change["stddev_before"],
        change["stddev_after"],
        change["pvalue"],
    )


def _without_gaps(suites: Iterable[Suite]) -> Iterable[Suite]:
    """Yield the same histories, each suite with only the runs that all its benchmarks have."""
    for suite in suites:
        there = {name: ~np.isnan(values) for name, values in suite.values.items()}
        whole = {name: suite.values[name] for name, good in there.items() if good.all()}
        if whole:
            yield Suite(suite.name, suite.runs, whole)
        for name, good in there.items():
            if good.any() and not good.all():
                yield Suite(suite.name, suite.runs[good], {name: suite.values[name][good]})


def _write_csv(suite: Suite, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["time", *suite.values])
        columns = [values.tolist() for values in suite.values.values()]
        for run, *row in zip(suite.runs.tolist(), *columns, strict=True):
            writer.writerow([time_s(run), *map(repr, row)])


def _run(config: Path, tests: Sequence[str], settings: AnalysisSettings) -> str:
    """Run the program; return its report: a line of JSON for each test."""
    program = Path(sys.executable).with_name("otava")
    command = [str(program), "analyze", *tests, "--config-file", str(config), "--output", "json"]
    command += ["--since", "1971-01-01", "--window", str(settings.window)]
    command += ["--magnitude", repr(settings.min_magnitude)]
    command += ["-P, --p-value", repr(settings.max_p_value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("INFO:")]
    assert done.returncode == 0, f"otava failed: {done.stderr[-2000:]}"
    assert not errors, f"otava complains: {errors[:5]}"
    return done.stdout
