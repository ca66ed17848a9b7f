"""Example histories and their real analysis, for the tests of the reports."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha1

import numpy as np

from kraft.regression import series_analysis, verdict_choice
from kraft.regression.findings import (
    Analysis,
    ChangePoint,
    Comparison,
    Ratio,
    ScalingLaw,
    SeriesFinding,
)
from kraft.regression.points import Series, SeriesKey
from kraft.regression.settings import AnalysisSettings
from kraft.regression.verdicts import (
    AppliedVerdict,
    ExpectationOutcome,
    ExpectationState,
    VerdictKind,
    VerdictState,
)

MACHINE = "AMD EPYC 7763, 8 cores, 3f2a9c1d"
OTHER_MACHINE = "Apple M2, 8 cores, 77ab01e2"
HOSTILE = "Bench</script><script>alert('x')</script>::|`*_[x](http://evil.example)\x1b[31m@here"
SETTINGS = AnalysisSettings(bootstrap_samples=200)
_DAY_US = 86_400_000_000
_START_US = 1_772_000_000_000_000  # 2026-02-25


def commit(number: int) -> str:
    return sha1(str(number).encode()).hexdigest()


def series(
    benchmark: str,
    levels: list[tuple[int, float]],
    *,
    suite: str = "benchmarks/bench_table.py",
    params: str = "{}",
    machine: str = MACHINE,
    noise: float = 0.02,
    seed: int = 1,
    rounds: int | None = 20,
    one_commit: bool = False,
) -> Series:
    """Return a history of these levels, each as (runs, value); one run and one commit per day."""
    source = np.random.default_rng(seed)
    means = np.concatenate([np.full(runs, value) for runs, value in levels])
    count = len(means)
    drawn = [
        mean * (1 + source.gamma(2.0, noise / 1.4, size=rounds or 1)) * source.normal(1, noise / 2)
        for mean in means
    ]
    ids = [commit(0 if one_commit else number) for number in range(count)]
    return Series(
        key=SeriesKey(suite, benchmark, params, machine),
        run_id=np.array([f"{number:032x}" for number in range(count)], dtype=object),
        time_us=_START_US + np.arange(count, dtype=np.int64) * _DAY_US,
        commit=np.array(ids, dtype=object),
        value=np.array([np.median(each) for each in drawn]),
        rounds=drawn if rounds else None,
    )


def finding(given: Series, *, is_drawn: bool = True) -> SeriesFinding:
    found = series_analysis.analyse(given, SETTINGS)
    return replace(found, series=given if is_drawn else None)


def drifting(benchmark: str) -> Series:
    """Return a history that slows by 12 % from run 30 to run 79, the newest."""
    given = series(benchmark, [(80, 0.002)], noise=0.01, seed=6, rounds=None)
    ramp = np.asarray(1 + 0.12 * np.clip((np.arange(80) - 30) / 49, 0, 1), dtype=np.float64)
    return replace(given, value=given.value * ramp)


def scattering(benchmark: str) -> Series:
    """Return a history whose noise is 1 % up to run 59 and 8 % from then on."""
    source = np.random.default_rng(3)
    given = series(benchmark, [(100, 0.003)], noise=0.01, seed=7, rounds=None)
    wild = np.where(np.arange(100) < 60, 0.01, 0.08) * source.standard_normal(100)
    return replace(given, value=0.003 * (1 + wild))


def partitions(count: int) -> str:
    return json.dumps({"partitions": count})


def law(benchmark: str, exponent: float, *, changed: bool = False) -> ScalingLaw:
    """Return the law time ~ size ** exponent over sizes from ten thousand to ten million."""
    key = SeriesKey("benchmarks/bench_table.py", benchmark, "{}", MACHINE)
    sizes = (1e4, 1e5, 1e6, 1e7)
    wobble = (1.05, 0.93, 1.04, 0.98)
    points: tuple[ChangePoint, ...] = ()
    if changed:
        points = (
            ChangePoint(
                key=key,
                statistic="exponent",
                index=30,
                time_us=_START_US + 30 * _DAY_US,
                run_before=f"{29:032x}",
                run_after=f"{30:032x}",
                commit_before=commit(29),
                commit_after=commit(30),
                count_before=30,
                count_after=30,
                mean_before=1.0,
                mean_after=exponent,
                stddev_before=0.01,
                stddev_after=0.01,
                ratio=Ratio(exponent, exponent - 0.03, exponent + 0.03),
                p_value=1e-20,
                q_value=1e-18,
            ),
        )
    return ScalingLaw(
        key=key,
        size_param="partitions",
        sizes=sizes,
        values=tuple(
            2e-7 * (size / 10) ** exponent * w for size, w in zip(sizes, wobble, strict=True)
        ),
        exponent=exponent,
        low=exponent - 0.04,
        high=exponent + 0.05,
        change_points=points,
        run_count=60,
    )


def analysis(*, hostile: bool = False) -> Analysis:
    """Return an analysis on two machines with every kind of finding.

    Two regressions, one of them without a change of code, an improvement, two changes in one
    series, a slow drift, a change of variance, stable series, one with too little data.
    """
    million = partitions(1_000_000)
    drawn = [
        series("ElectBench::bench_elect", [(40, 0.0121), (40, 0.0138)], params=million),
        series("LoadBench::bench_load", [(30, 1.9), (30, 1.1), (40, 1.31)], params=million, seed=2),
        series(
            "CrcBench::bench_crc",
            [(50, 3.1e-7), (30, 4.4e-7)],
            machine=OTHER_MACHINE,
            one_commit=True,
            rounds=None,
        ),
        series("CodecBench::bench_decode", [(60, 4.2e-5), (40, 2.6e-5)], seed=4),
    ]
    drawn += [drifting("SlowBench::bench_slow"), scattering("WildBench::bench_wild")]
    if hostile:
        params = json.dumps({"<img src=x onerror=alert(1)>": "|`\n"})
        drawn.append(series(HOSTILE, [(30, 0.001), (30, 0.002)], params=params, seed=9))
    stable = [
        series("ScanBench::bench_scan", [(60, 0.004)], params=partitions(size), seed=size)
        for size in (10_000, 100_000)
    ]
    short = series("NewBench::bench_new", [(3, 0.5)])
    findings = [finding(each) for each in drawn]
    findings += [finding(each, is_drawn=False) for each in [*stable, short]]
    described = json.dumps(
        {"cpu": {"brand_raw": "AMD EPYC 7763", "count": 8, "flags": ["avx2"]}, "system": "Linux"}
    )
    problems = ["old/run-17.json: truncated at byte 4,096; skipped"]
    if hostile:
        problems.append("<b>bad</b>\x1b[2J: not JSON")
    return Analysis(
        settings=SETTINGS,
        series=tuple(findings),
        scaling=(
            law("LoadBench::bench_load", 1.02),
            law("ScanBench::bench_scan", 1.31, changed=True),
        ),
        machines={MACHINE: described, OTHER_MACHINE: '{"cpu": "Apple M2"}'},
        problems=tuple(problems),
    )


def with_verdicts(given: Analysis) -> Analysis:
    """Return an analysis whose worst regression is accepted, and which expects two changes."""
    worst = given.change_points[0]
    (accepted,) = verdict_choice.verdicts_on_changes(
        VerdictKind.ACCEPT,
        [verdict_choice.JudgedChange(worst)],
        verdict_choice.Judgement("ana <ana@here>", "checksums | verified"),
    )
    accepted = replace(accepted, time_us=_START_US)
    applied = replace(worst, verdict=AppliedVerdict(accepted, VerdictState.ACCEPTED))
    found = tuple(
        replace(
            each,
            change_points=tuple(
                applied if point == worst else point for point in each.change_points
            ),
        )
        for each in given.series
    )
    expected = replace(
        accepted, id="e" * 32, kind=VerdictKind.EXPECT, ratio=None, limit=1.15, within=3
    )
    key = given.series[0].key
    outcomes = (
        ExpectationOutcome(expected, key, ExpectationState.DID_NOT_COME, 9),
        ExpectationOutcome(expected, key, ExpectationState.AWAITED, 1),
    )
    return replace(given, series=found, expectations=outcomes)


def comparison(benchmark: str, base: float, candidate: float, **given: object) -> Comparison:
    """Return a comparison; a difference of more than 5 % is significant."""
    ratio = candidate / base
    fields: dict[str, object] = {
        "key": SeriesKey("benchmarks/bench_table.py", benchmark, partitions(10_000), MACHINE),
        "statistic": "median",
        "runs_base": 10,
        "runs_candidate": 3,
        "base": base,
        "candidate": candidate,
        "ratio": Ratio(ratio, ratio * 0.98, ratio * 1.02),
        "p_value": 1e-7 if abs(ratio - 1) > 0.05 else 0.4,
        "q_value": 1e-6 if abs(ratio - 1) > 0.05 else 0.5,
        "is_significant": abs(ratio - 1) > 0.05,
        "is_regression": ratio > 1.05,
        "is_improvement": ratio < 0.95,
    }
    return Comparison(**{**fields, **given})  # type: ignore[arg-type]


def comparisons() -> list[Comparison]:
    return [
        comparison("CodecBench::bench_decode", 4.2e-5, 2.6e-5),
        comparison("ScanBench::bench_scan", 0.004, 0.00401),
        comparison("ElectBench::bench_elect", 0.0121, 0.0138),
        comparison("LoadBench::bench_load", 1.9, 2.9),
        comparison(
            "NewBench::bench_new",
            0.5,
            0.7,
            runs_base=1,
            ratio=None,
            p_value=None,
            q_value=None,
            is_significant=False,
            is_regression=False,
            note="one run in the baseline: 5 are needed",
        ),
        comparison(
            "CodecBench::bench_count",
            1_234_567,
            1_334_567,
            statistic="instructions",
            p_value=None,
            q_value=None,
            note="counts do not vary",
        ),
    ]
