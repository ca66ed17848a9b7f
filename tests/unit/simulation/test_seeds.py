"""Sweeps over seeds: ranges, sums, and the failures to minimise."""

from collections import Counter

import pytest

from kraft.errors import InvalidRequestError
from kraft.simulation.replays import QUORUM
from kraft.simulation.seeds import (
    Failure,
    SeedSummary,
    failures_to_shrink,
    parse_seeds,
    run_locally,
    run_seeds,
    shrink_failure,
    tasks,
)


def total(parts: list[SeedSummary]) -> SeedSummary:
    summary = SeedSummary(QUORUM)
    for part in parts:
        summary.add(part)
    return summary


def figures(summary: SeedSummary) -> tuple[object, ...]:
    return (
        summary.seeds,
        summary.events,
        summary.digest,
        round(summary.simulated_ms, 3),
        summary.counts,
        summary.failures,
    )


def test_summaries_do_not_depend_on_the_ranges() -> None:
    whole = run_seeds(range(4, 12), "quorum", 300)
    assert whole.seeds == 8
    parts = [run_seeds(range(10, 12), "quorum", 300), run_seeds(range(4, 10), "quorum", 300)]
    assert figures(total(parts)) == figures(whole)
    spread = list(run_locally(range(4, 12), QUORUM, 300, jobs=2))
    assert len(spread) > 1
    assert figures(total(spread)) == figures(whole)


def test_ranges_cover_all_seeds_in_order() -> None:
    for seeds, events, workers in ((range(1000), 10_000, 2), (range(5, 9), 400, 16)):
        pieces = list(tasks(seeds, events, workers))
        assert [seed for piece in pieces for seed in piece] == list(seeds)
        assert len(pieces) >= min(len(seeds), workers)
    assert max(map(len, tasks(range(10_000), 10_000, 2))) == 6


def test_the_shortest_failures_of_each_invariant_are_minimised() -> None:
    failures = [Failure(seed, 900 - seed, "logs_match", "") for seed in range(9)]
    failures.append(Failure(70, 5000, "acknowledged_is_committed", ""))
    summary = SeedSummary(QUORUM, counts=Counter(), failures=failures)
    assert failures_to_shrink(summary, 1000) == [
        "quorum:8:1000",
        "quorum:7:1000",
        "quorum:6:1000",
        "quorum:70:1000",
    ]


def test_a_seed_without_a_violation_is_not_minimised() -> None:
    assert shrink_failure("quorum:5:300") is None


def test_ranges_of_seeds_are_parsed() -> None:
    assert parse_seeds("0..1000000") == range(1_000_000)
    assert parse_seeds("17") == range(17, 18)
    for text in ("", "a..b", "5..5", "9..3", "-4..3", "1...3"):
        with pytest.raises(InvalidRequestError, match="is not a range of seeds"):
            parse_seeds(text)
