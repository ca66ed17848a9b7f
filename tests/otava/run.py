"""Compare change points from pytest-benchmark's JSON, a store and Spark with the ``otava``
program's.

    python -m tests.otava.run --series 1000 --seed 1

At equal settings all must be equal: the series, the first run of a change and its time, and both
levels' means and standard deviations and the p value as the program prints them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kraft.regression.settings import AnalysisSettings
from tests.otava import generated, program, published
from tests.otava.program import Reported, printed
from tests.otava.suites import Suite, write_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Otava's defaults; a smaller window, a stricter p value, a minimum magnitude.
SETTINGS = {
    "Otava's defaults": AnalysisSettings.of_otava(),
    "window 20, p 1e-5, magnitude 5 %": AnalysisSettings.of_otava(
        window=20, max_p_value=1e-5, min_magnitude=0.05
    ),
}


@dataclass(frozen=True)
class Outcome:
    """The results of both programs for the same histories."""

    series: int
    of_otava: list[Reported]
    of_kraft: list[Reported]

    @property
    def differences(self) -> list[Reported]:
        """Return the change points of only one of the two."""
        return sorted(set(self.of_otava) ^ set(self.of_kraft))


def compare(
    spark: SparkSession, suites: Sequence[Suite], folder: Path, settings: AnalysisSettings
) -> Outcome:
    """Run both programs on these histories; ``folder`` holds their files."""
    return Outcome(
        series=sum(len(suite.values) for suite in suites),
        of_otava=program.change_points(suites, folder / "otava", settings),
        of_kraft=change_points(spark, suites, folder / "kraft", settings),
    )


def change_points(
    spark: SparkSession, suites: Sequence[Suite], folder: Path, settings: AnalysisSettings
) -> list[Reported]:
    """Return the change points of the whole pipeline, sorted."""
    from kraft.regression.ingest import ingest
    from kraft.spark.analysis import analyse
    from kraft.spark.store_points import read_points
    from kraft.spark.tasks import SparkTasks

    store = folder / "store"
    if not store.exists():
        write_runs(suites, folder / "runs")
        ingest([folder / "runs"], store, tasks=SparkTasks(spark))
    # The interval of a ratio is not compared.
    found = analyse(read_points(spark, store), replace(settings, bootstrap_samples=100))
    return sorted(
        Reported(
            suite=point.key.suite.removesuffix(".py"),
            benchmark=point.key.benchmark,
            index=point.index,
            time_s=point.time_us // 1_000_000,
            mean_before=printed(point.mean_before),
            mean_after=printed(point.mean_after),
            stddev_before=printed(point.stddev_before),
            stddev_after=printed(point.stddev_after),
            p_value=printed(point.p_value),
        )
        for point in found.change_points
    )


def main(arguments: Sequence[str] | None = None) -> int:
    from kraft.spark.session import spark_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000, help="generated histories")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    made: dict[str, list[Suite]] = {"generated": generated.suites(given.series, given.seed)}
    try:
        made["published"] = published.suites()
    except published.NotFetchedError as error:
        print(f"published series left out: {error}", file=sys.stderr)
    differences = 0
    print(f"{'histories':<10} {'settings':<34} {'series':>6} {'points':>8} {'changes':>7} differ")
    with spark_session(master="local[2]") as spark, tempfile.TemporaryDirectory() as folder:
        for name, suites in made.items():
            count = sum(len(suite.runs) * len(suite.values) for suite in suites)
            for described, settings in SETTINGS.items():
                outcome = compare(spark, suites, Path(folder, name), settings)
                differ = outcome.differences
                differences += len(differ)
                print(
                    f"{name:<10} {described:<34} {outcome.series:>6} {count:>8} "
                    f"{len(outcome.of_otava):>7} {len(differ):>6}"
                )
                for each in differ[:20]:
                    who = "otava" if each in outcome.of_otava else "kraft"
                    print(f"  only {who}: {each}")
    return min(differences, 1)


if __name__ == "__main__":
    sys.exit(main())
