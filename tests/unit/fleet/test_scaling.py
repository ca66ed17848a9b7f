"""Scaling laws: planted exponents and knees are found, and noise is not taken for a knee."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kraft.errors import MissingPackageError
from kraft.fleet import plots
from kraft.fleet.scaling import LawKey, Point, PowerLaw, Refusal, fit_law, laws
from kraft.fleet.scaling_page import growth_text, knee_text, page
from kraft.fleet.scaling_report import scaling_of
from tests.harness.fleet_runs import Planted, interrupted, write_run
from tests.harness.html_pages import Page

KEY = LawKey("kraft", "idle", "steady", "applied", "p99", "ms", "brokers")
SIZES = (10, 30, 100, 300, 1000, 3000)


def points(
    value: Callable[[int, int], float],
    *,
    brokers: Sequence[int] = SIZES,
    partitions: Sequence[int] = (1000,),
    seeds: int = 1,
    noise: float = 0.0,
    random: np.random.Generator | None = None,
) -> list[Point]:
    random = random or np.random.default_rng(1)
    return [
        Point(*KEY[:6], b, p, seed, value(b, p) * math.exp(random.normal(0, noise)))
        for p in partitions
        for b in brokers
        for seed in range(seeds)
    ]


def law_of(found: list[Point], against: str = "brokers") -> PowerLaw:
    law = fit_law(KEY._replace(against=against), found)
    assert isinstance(law, PowerLaw)
    return law


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 0.7, 1.0, 2.0])
def test_an_exact_exponent_is_found(exponent: float) -> None:
    law = law_of(points(lambda b, p: 3 * b**exponent))
    assert law.exponent == pytest.approx(exponent, abs=1e-9)
    assert law.error < 1e-9
    assert law.knee is None
    assert law.fit.at(np.array([100.0]))[0] == pytest.approx(3 * 100**exponent)
    assert law.sizes == SIZES


def test_the_interval_contains_the_exponent_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    hits = 0
    for _ in range(400):
        law = law_of(points(lambda b, p: b**0.6, noise=0.2, seeds=2, random=random))
        hits += law.low <= 0.6 <= law.high
    # 95 % of 400 is 380, with a standard deviation of 4.4.
    assert 362 <= hits <= 397


def test_the_error_is_that_of_the_textbook() -> None:
    found = points(lambda b, p: b**0.6, noise=0.3)
    law = law_of(found)
    x, y = np.log(SIZES), np.log([point.value for point in found])
    slope, covariance = np.polyfit(x, y, 1, cov=True)
    assert law.exponent == pytest.approx(slope[0])
    assert law.error == pytest.approx(math.sqrt(covariance[0, 0]))


def test_a_grid_gives_a_law_of_each_size() -> None:
    found, refused = laws(
        points(lambda b, p: b**0.5 * p**0.9, partitions=(100, 1000, 10_000), noise=0.02, seeds=2)
    )
    assert not refused
    assert {law.against: round(law.exponent, 1) for law in found} == {
        "brokers": 0.5, "partitions": 0.9,
    }  # fmt: skip
    assert all(len(law.sizes) == 36 for law in found)


def test_two_sizes_at_each_of_three_levels_are_enough_together() -> None:
    """Each pair alone says nothing about the error; together they have three sizes."""
    pairs = [((10, 30), 1), ((30, 100), 2), ((10, 100), 3)]
    found = [
        point
        for brokers, partitions in pairs
        for point in points(lambda b, p: b**0.5 * p, brokers=brokers, partitions=(partitions,))
    ]
    assert law_of(found).exponent == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("brokers", "reason"),
    [((10, 30), "2 sizes of brokers at equal partitions, 3 are needed"), ((10,), "0 sizes")],
)
def test_too_few_sizes_are_refused(brokers: tuple[int, ...], reason: str) -> None:
    refused = fit_law(KEY, points(lambda b, p: b, brokers=brokers, seeds=9))
    assert isinstance(refused, Refusal)
    assert refused.reason.startswith(reason)


def test_sizes_that_vary_together_are_refused() -> None:
    """Ten times the brokers with ten times the partitions: whose exponent is it?"""
    found = [
        point
        for size in (10, 100, 1000)
        for point in points(lambda b, p: b * p, brokers=(size,), partitions=(size,))
    ]
    law_list, refused = laws(found)
    assert not law_list
    assert [each.against for each in refused] == ["brokers", "partitions"]
    assert "3 of 3 values are 0 or have no partner" in refused[0].reason


def test_values_of_zero_have_no_logarithm() -> None:
    found = [replace_value(point, 0.0) for point in points(lambda b, p: b)]
    refused = fit_law(KEY, found)
    assert isinstance(refused, Refusal)
    assert "6 of 6 values are 0" in refused.reason


def replace_value(point: Point, value: float) -> Point:
    return point._replace(value=value)


def test_a_size_that_does_not_vary_is_not_mentioned() -> None:
    found, refused = laws(points(lambda b, p: b))
    assert [law.against for law in found] == ["brokers"]
    assert not refused


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.1])
@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (0.5, 1.5), (1.2, 0.2)])
def test_a_planted_knee_is_found(before: float, after: float, noise: float) -> None:
    def value(brokers: int, partitions: int) -> float:
        low = min(brokers, 300)
        return float(2 * low**before * (brokers / low) ** after)

    (law,), _ = laws(points(value, seeds=4, noise=noise))
    assert law.knee is not None
    assert law.knee.size == pytest.approx(300, rel=0.001 if not noise else 0.5)
    assert law.knee.before == pytest.approx(before, abs=3 * noise + 1e-6)
    assert law.knee.after == pytest.approx(after, abs=3 * noise + 1e-6)
    assert law.knee.q_value <= 0.05
    assert law.knee.bic > 0
    assert law.knee.fit.at(np.array([300.0]))[0] == pytest.approx(
        value(300, 1), rel=4 * noise + 1e-3
    )


@pytest.mark.parametrize(
    ("sizes", "seeds"), [(SIZES, 1), (SIZES, 5), ((10, 30, 100, 300, 1000), 5)]
)
def test_noise_alone_has_a_knee_in_few_of_a_hundred(sizes: tuple[int, ...], seeds: int) -> None:
    random = np.random.default_rng(11)
    found = sum(
        laws(points(lambda b, p: b**0.7, brokers=sizes, seeds=seeds, noise=0.1, random=random))[0][
            0
        ].knee
        is not None
        for _ in range(400)
    )
    assert found <= 20


def test_knees_are_corrected_for_the_number_of_laws() -> None:
    """400 laws of noise in one report have almost no knee, where one of each 60 alone has one."""
    random = np.random.default_rng(11)
    everything = [
        point._replace(name=f"measure-{number:03d}")
        for number in range(400)
        for point in points(lambda b, p: b**0.7, seeds=1, noise=0.1, random=random)
    ]
    found, _ = laws(everything)
    assert len(found) == 400
    assert sum(law.knee is not None for law in found) <= 2


def test_four_sizes_have_no_knee() -> None:
    law = law_of(points(lambda b, p: b if b < 100 else 100.0, brokers=(10, 30, 100, 300), seeds=9))
    assert law.knee is None
    assert law.knee_tests == 0


def test_without_scipy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'kraft\[report\]'"):
        law_of(points(lambda b, p: b))


def test_texts() -> None:
    def value(brokers: int, partitions: int) -> float:
        return 1.0 if brokers < 300 else (brokers / 300) ** 2

    (law,), _ = laws(points(value, seeds=2))
    assert knee_text(law) == "^0.00 below 300, ^2.00 above"
    assert law.knee is not None
    # A fit of constant values can be a little below zero; which one depends on the processor.
    below = replace(law, knee=replace(law.knee, before=-1e-16))
    assert knee_text(below) == "^0.00 below 300, ^2.00 above"
    assert knee_text(replace(law, knee=None)) == "-"
    assert growth_text(1.0) == "x10"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write runs of six numbers of brokers and three of partitions, with two quorums and seeds."""
    folder = tmp_path_factory.mktemp("many")
    sizes = [(brokers, 10_000) for brokers in (10, 20, 40, 80, 160, 320)]
    sizes += [(40, 20_000), (40, 40_000)]
    written = []
    for quorum, law in (
        ("kraft", Planted(applied_exponent=0.2, decided_exponent=0.9, noise=0.03)),
        ("kafka-4.3.1", Planted(applied_exponent=0.2, knee=60, after_knee=1.5, noise=0.03)),
    ):
        for brokers, partitions in sizes:
            for seed in (1, 2):
                place = folder / f"{quorum}-{brokers}-{partitions}-{seed}"
                written.append(
                    write_run(
                        place,
                        quorum=quorum,
                        brokers=brokers,
                        partitions=partitions,
                        seed=seed,
                        planted=law,
                    )
                )
    return written


def test_run_directories_give_the_planted_laws(runs: list[Path]) -> None:
    report = scaling_of(runs)
    assert report.runs == 32
    found = {
        (law.quorum, law.name, law.statistic, law.against): law
        for law in report.laws if law.step in ("steady", "rack lost")
    }  # fmt: skip
    decided = found["kraft", "decided", "worst", "partitions"]
    assert decided.exponent == pytest.approx(0.9, abs=0.1)
    applied = found["kraft", "applied", "p50", "brokers"]
    assert applied.exponent == pytest.approx(0.2, abs=0.1)
    (steep,) = [
        law
        for law in report.only(measure="applied", step="steady").laws
        if (law.quorum, law.statistic, law.against) == ("kafka-4.3.1", "p50", "brokers")
    ]
    assert steep.knee is not None
    assert 35 < steep.knee.size < 110
    assert steep.knee.after == pytest.approx(1.5, abs=0.3)
    assert not any(law.name == "broker_registered" for law in report.laws)


def test_the_whole_run_is_a_step_of_its_own(runs: list[Path]) -> None:
    only = scaling_of(runs).only(step="(run)", measure="*_cpu")
    assert {law.step for law in only.laws} == {"(run)"}
    assert {law.name for law in only.laws} == {"controller_cpu", "fleet_cpu"}


def test_the_page_has_every_law_and_its_knee(runs: list[Path]) -> None:
    report = scaling_of(runs).only(measure="applied", step="steady")
    parsed = Page(page(report))
    laws_shown = [each for each in parsed.all("section") if each.attributes["id"].startswith("law")]
    assert len(laws_shown) == len(report.laws)
    assert "knee: ^" in "".join(each.text for each in laws_shown)
    figures = [plots.law_plot(law) for law in report.laws]
    for law, figure in zip(report.laws, figures, strict=True):
        assert bool(figure["layout"]["shapes"]) == (law.knee is not None)
        json.dumps(figure, allow_nan=False)


def test_an_interrupted_run_counts_only_with_its_complete_steps(
    runs: list[Path], tmp_path: Path
) -> None:
    cut = interrupted(tmp_path / "cut", brokers=5)
    report = scaling_of([*runs, cut])
    assert report.interrupted == ("run kraft-5-10000-1 was interrupted in step 'rack lost'",)
    smallest = {
        law.step: min(law.sizes)
        for law in report.laws
        if (law.quorum, law.name, law.against) == ("kraft", "controller_cpu", "brokers")
    }
    assert smallest["steady"] == 5
    assert smallest["rack lost"] == smallest["(run)"] == 10
    assert "Interrupted runs" in page(report)


def test_a_bad_run_fails_or_is_reported(runs: list[Path], tmp_path: Path) -> None:
    bad = write_run(tmp_path / "bad", extra_lines=("{",))
    worse = write_run(tmp_path / "worse")
    (worse / "run.json").write_text("[]")
    report = scaling_of([*runs[:3], bad, worse], skip_bad_lines=True)
    assert report.runs == 4
    assert [problem.line > 0 for problem in report.problems] == [True, False]
    assert "Lines that were not read" in page(report)
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))["problems"]
