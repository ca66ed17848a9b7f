"""Seeds on Spark: the same counts as on one machine, and minimised failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kraft.simulation.replays import CONTROLLERS, QUORUM
from kraft.simulation.seeds import (
    SeedSummary,
    ShrunkFailure,
    failures_to_shrink,
    run_locally,
    run_seeds,
    shrink_failure,
    shrink_locally,
)
from kraft.spark import seeds as spark_seeds
from kraft.spark.seeds import shrink_on_spark, simulate_seeds
from tests.harness.planted import the_high_watermark_is_one_too_high

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def figures(summary: SeedSummary) -> tuple[object, ...]:
    return (
        summary.kind.name,
        summary.seeds,
        summary.events,
        summary.digest,
        round(summary.simulated_ms, 3),
        summary.counts,
        summary.failures,
    )


@pytest.mark.parametrize(
    ("seeds", "controllers", "events"), [(range(5, 25), False, 400), (range(4), True, 300)]
)
def test_spark_counts_what_this_machine_counts(
    spark: SparkSession, seeds: range, controllers: bool, events: int
) -> None:
    kind = CONTROLLERS if controllers else QUORUM
    here = SeedSummary(kind)
    for part in run_locally(seeds, kind, events, jobs=1):
        here.add(part)

    swept = simulate_seeds(spark, seeds, controllers=controllers, events=events)

    assert figures(swept.summary) == figures(here)
    assert swept.summary.seeds == len(seeds)
    assert swept.findings == []


def test_waves_come_in_the_order_of_the_seeds(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This order lets an interrupted sweep report where to continue."""
    monkeypatch.setattr(spark_seeds, "TASKS_OF_A_CORE", 2)
    waves = list(spark_seeds.run_on_spark(spark, range(24), QUORUM, 200))
    assert len(waves) > 1
    done = 0
    for wave in waves:
        again = SeedSummary(QUORUM)
        for part in run_locally(range(done, done + wave.seeds), QUORUM, 200, jobs=1):
            again.add(part)
        assert figures(wave) == figures(again)
        done += wave.seeds
    assert done == 24


def test_failures_are_minimised_and_equal_those_of_one_machine(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task plants the fault where it runs and removes it afterwards."""

    def run_with_fault(seeds: range, kind_name: str, event_limit: int) -> SeedSummary:
        with the_high_watermark_is_one_too_high():
            return run_seeds(seeds, kind_name, event_limit)

    def shrink_with_fault(replay: str) -> ShrunkFailure | None:
        with the_high_watermark_is_one_too_high():
            return shrink_failure(replay)

    with the_high_watermark_is_one_too_high():
        here = SeedSummary(QUORUM)
        for part in run_locally(range(5, 16), QUORUM, 300, jobs=1):
            here.add(part)
        small = shrink_locally(failures_to_shrink(here, 300), jobs=1)
    monkeypatch.setattr(spark_seeds, "run_seeds", run_with_fault)
    monkeypatch.setattr(spark_seeds, "shrink_failure", shrink_with_fault)

    swept = simulate_seeds(spark, range(5, 16), events=300)

    assert len(swept.summary.failures) > 5
    assert figures(swept.summary) == figures(here)
    assert swept.findings == small
    # The fault in the code needs no fault of the network, except where an election comes first.
    assert all(finding.faults < finding.faults_before / 2 for finding in swept.findings)
    assert 0 in {finding.faults for finding in swept.findings}
    assert simulate_seeds(spark, range(5, 16), events=300, shrink=False).findings == []


def test_a_failure_that_does_not_reproduce_is_an_error(spark: SparkSession) -> None:
    assert shrink_on_spark(spark, []) == []
    with pytest.raises(AssertionError, match="does not fail again"):
        shrink_on_spark(spark, ["quorum:5:300"])
