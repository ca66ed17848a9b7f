"""Write the tables of docs/regressions.md: what the regression analysis finds on known histories.

``python -m benchmarks.sensitivity_page`` (`make sensitivity`, minutes) runs all measurements of
`benchmarks.sensitivity` and replaces the text between the marks of the page. It exits with 1 and
the names of the missed `bars`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.bisection_sensitivity import BISECTED_COMMITS, BISECTED_STEPS, MOST_RUNS, Bisected
from benchmarks.histories import NOISES
from benchmarks.sensitivity import (
    AFTER,
    ANALYSED,
    BUMP_RUNS,
    BUMPS,
    DRIFT_RUNS,
    DRIFTS,
    NEAR,
    SIZES,
    STEPS,
    VARIANCE_RUNS,
    VARIANCES,
    Alarms,
    Cell,
    Compared,
    Drifts,
    Exponents,
    Recall,
    cells,
)

PAGE = Path(__file__).parents[1] / "docs" / "regressions.md"
BEGIN, END = "<!-- sensitivity: begin -->", "<!-- sensitivity: end -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def share(value: float) -> str:
    """Return a percentage that is 100 only if nothing is missing."""
    return f"{value:.1f}" if 0 < value < 100 else f"{value:.0f}"


def percent(value: float) -> str:
    return f"{100 * value:g} %"


def page(results: dict[tuple[object, ...], object], series: int, seed: int) -> str:
    """Return the tables as Markdown."""
    r: dict[tuple[object, ...], object] = results
    power = table(
        ["step \\ noise", *map(percent, SIZES)],
        [
            [percent(step), *(share(_recall(r, "power", step, size).found) for size in SIZES)]
            for step in STEPS
        ],
    )
    step = _recall(r, "power", 0.05, 0.02)
    after = table(
        ["step \\ runs since", *map(str, AFTER)],
        [
            [percent(step), *(share(_recall(r, "after", step, each).found) for each in AFTER)]
            for step in (0.03, 0.05, 0.10, 0.20)
        ],
    )
    kinds = table(
        [
            "noise, 2 %",
            "alarms: Otava's defaults",
            "Otava at p 1e-5",
            "**here**",
            "clipped",
            "found: 5 % steps",
            "10 % steps",
            "5 %, clipped",
        ],
        [
            [
                noise,
                str(_alarms(r, noise, "otava").each_alone),
                str(_alarms(r, noise, "strict").each_alone),
                _both(_alarms(r, noise, "ours")),
                str(_alarms(r, noise, "clipped").each_alone),
                share(_recall(r, "kinds", noise, 0.05).found),
                share(_recall(r, "kinds", noise, 0.10).found),
                share(_recall(r, "clipped", noise).found),
            ]
            for noise in NOISES
        ],
    )
    lengths = (1, 2, 5, 10, 30)
    held = table(
        ["runs after the change", *map(str, lengths)],
        [
            [noise, *(share(_number(r["coverage", noise, each])) for each in lengths)]
            for noise in ("normal", "skewed (exponential above a floor)")
        ],
    )
    sides = table(
        [
            "runs, baseline : candidate",
            "false, no threshold",
            "found, no threshold",
            "false, threshold 5 %",
            "found, threshold 5 %",
        ],
        [
            [f"{base} : {runs}", *_compared_row(r, base, runs)]
            for base, runs in ((1, 1), (5, 1), (20, 1), (3, 3), (5, 5))
        ],
    )
    laws = table(
        ["exponent changes by", "found in the exponent", "found in any single size"],
        [
            [
                f"{change:g}",
                share(_exponents(r, change).exponent),
                share(_exponents(r, change).any_size),
            ]
            for change in (0.0, 0.005, 0.01, 0.02)
        ],
    )
    temporary = table(
        ["slower by \\ runs", *map(str, BUMP_RUNS)],
        [
            [percent(by), *(share(_number(r["bumps", by, runs])) for runs in BUMP_RUNS)]
            for by in BUMPS
        ],
    )
    rises = table(
        ["rise \\ over runs", *map(str, DRIFT_RUNS)],
        [
            [
                percent(rise),
                *(share(_drifts(r, rise, runs, "normal").named) for runs in DRIFT_RUNS),
            ]
            for rise in DRIFTS
        ],
    )
    rise = _drifts(r, 0.10, 50, "normal")
    scatter = table(
        ["noise times \\ runs since", *map(str, VARIANCE_RUNS)],
        [
            [
                f"{factor:g}",
                *(share(_number(r["variances", factor, runs])) for runs in VARIANCE_RUNS),
            ]
            for factor in VARIANCES
        ],
    )
    trends = table(
        ["noise, 2 %", "drift of 10 % over 50 runs", "noise times 3, 30 runs since"],
        [
            [noise, share(_drifts(r, noise).named), share(_number(r["variances", noise]))]
            for noise in NOISES
        ],
    )
    verdicts = "\n".join(
        f"- {bar}: {'yes' if holds else '**no**'} ({found})" for bar, found, holds in bars(r)
    )
    long_ours, long_otava = _alarms_of(r["long", "ours"]), _alarms_of(r["long", "otava"])
    return f"""\
_Written by `make sensitivity`: seed {seed}, {series:,} histories for each cell of the first table
and of the alarms, {max(series // 2, 1):,} for the others unless said; at the default settings._

{verdicts}

### Steps found

Percent, ten runs after the step, with 100 to 124 runs before it and normal noise. The step is the
only change among {ANALYSED:,} series of an analysis, which is the hardest case for the correction.
A change point at most {NEAR} runs from the true step counts as found.

{power}

Of 5 % steps at 2 % noise {share(step.found)} % are found among {ANALYSED:,} series, and
{share(step.found_alone)} % where the series is analysed alone; of those found,
{share(step.within_two)} % lie at most two runs from the truth. In {share(step.other)} % of these
histories there is a change point elsewhere, too.

### How soon

The same by the number of runs since the step, at 2 % noise.

{after}

### False alarms, and kinds of noise

Number of {series:,} stable series of 100 runs with a false change, each analysed by itself; in
brackets, where it differs, all of them in one analysis. Then the percent of steps found, as above.
Noise is 2 %; "clipped" has `clip_outliers` at 4.

{kinds}

Of {max(series // 20, 1)} stable series of 10,000 runs each, with normal noise, {long_ours.together}
have a false alarm here, and {long_otava.each_alone} with Otava's defaults.

### Temporary regressions

Percent found of regressions that begin and end within 100 runs, at 2 % noise, as the only change
among {ANALYSED:,} series. Both ends must be found, at most two runs off.

{temporary}

### Slow drifts

Percent of rises, spread evenly over so many runs, that are reported as a drift, at 2 % noise, with
50 to 74 runs before and up to 24 after the rise, as the only change among {ANALYSED:,} series.

{rises}

Of drifts of 10 % over 50 runs {share(rise.named)} % are reported as drifts, {share(rise.close)} %
of these with a start and an end at most 12 runs off; beside or instead of a drift, steps are
reported in {share(rise.as_steps)} %.

### Changes of variance

Percent of changes of the noise, from 2 % to a multiple of it, that are found at most 10 runs off,
by the runs since; 100 to 124 runs before it, as the only change among {ANALYSED:,} series.

{scatter}

Drifts and changes of variance in other noise ({max(series // 4, 1):,} histories each):

{trends}

### Intervals

Percent of the 95 % intervals that contain the true ratio: 2 % noise between runs, 2 % between the
ten rounds of a run, 50 runs before the change.

{held}

### Comparisons

`kraft regress compare`: percent of benchmarks reported as regressions, by the number of runs. Ten
of 100 benchmarks are 10 % slower, the others are not; 2 % between runs, 1 % within.

{sides}

### Scaling laws

Four sizes from 10,000 to 10 million, 2 % noise, 30 runs before and after the change; percent of
{max(series // 4, 1):,} benchmarks in which a change was found.

{laws}

{bisection(r, series)}"""


def bisection(results: dict[tuple[object, ...], object], series: int) -> str:
    """Return the section on ``kraft regress bisect``."""
    r = results

    def runs(*cell: object) -> str:
        found = _bisected(r, *cell)
        return f"{found.runs:.1f} ({share(found.wrong)} %)"

    sizes = table(
        ["step \\ commits", *map(str, BISECTED_COMMITS), "plain bisection, 64"],
        [
            [
                percent(step),
                *(runs("bisected", commits, step) for commits in BISECTED_COMMITS),
                runs("plain", step),
            ]
            for step in BISECTED_STEPS
        ],
    )
    kinds = table(
        ["noise, 2 %", "wrong commit, %", "none named, %", "runs", "in 95 of 100 at most"],
        [
            [
                noise,
                share(found.wrong),
                share(found.unnamed),
                f"{found.runs:.1f}",
                f"{found.most:.0f}",
            ]
            for noise in NOISES
            for found in [_bisected(r, "bisected", noise)]
        ],
    )
    return f"""\
### Bisection

`kraft regress bisect` at 95 % confidence: average number of runs until a commit is named, and in
brackets the percent of trials that named a wrong one. {max(series // 2, 1):,} trials of 5 % steps,
{max(series // 4, 1):,} of others; 2 % noise, 100 runs of the history before the change and 10
since. New runs have another level than the history's (5 % standard deviation). Plain bisection
tests each commit by the fewest runs with which it is wrong in at most 5 of 100 trials; it has to
know that number.

{sizes}

A step of 5 % within 64 commits in other noise; a trial ends after {MOST_RUNS} runs:

{kinds}
"""


Bar = tuple[str, str, bool]


def bars(results: dict[tuple[object, ...], object]) -> list[Bar]:
    """Return the requirements, the results, and whether they are met."""
    r = results
    step = _recall(r, "power", 0.05, 0.02)
    bump = _number(r["bumps", 0.25, 10])
    rise = _drifts(r, 0.10, 50, "normal").named
    false = _alarms(r, "normal", "ours")
    commit = _bisected(r, "bisected", 64, 0.05)
    return [
        (
            "5 % steps at 2 % noise found within 10 runs, 95 %",
            f"{step.found:.1f} %",
            step.found >= 95,
        ),
        ("+25 % for 10 runs at 2 % noise found, 95 %", f"{bump:.1f} %", bump >= 95),
        ("drifts of 10 % over 50 runs named so, 90 %", f"{rise:.1f} %", rise >= 90),
        (
            "at most 1 stable series in 1,000 with an alarm",
            str(false.each_alone),
            false.each_alone <= max(false.series // 1000, 1),
        ),
        (
            "5 % steps within 64 commits: wrong at 95 % confidence, at most 5 %",
            f"{commit.wrong:.1f} %, {commit.runs:.1f} runs",
            commit.wrong <= 5,
        ),
    ]


def _recall(results: dict[tuple[object, ...], object], *cell: object) -> Recall:
    found = results[cell]
    assert isinstance(found, Recall)
    return found


def _alarms(results: dict[tuple[object, ...], object], noise: str, name: str) -> Alarms:
    return _alarms_of(results["alarms", noise, name])


def _alarms_of(found: object) -> Alarms:
    assert isinstance(found, Alarms)
    return found


def _both(found: Alarms) -> str:
    same = found.together == found.each_alone
    return f"**{found.each_alone}**" + ("" if same else f" ({found.together})")


def _drifts(results: dict[tuple[object, ...], object], *cell: object) -> Drifts:
    found = results["drifts", *cell]
    assert isinstance(found, Drifts)
    return found


def _number(found: object) -> float:
    assert isinstance(found, float)
    return found


def _bisected(results: dict[tuple[object, ...], object], *cell: object) -> Bisected:
    found = results[cell]
    assert isinstance(found, Bisected)
    return found


def _exponents(results: dict[tuple[object, ...], object], change: float) -> Exponents:
    found = results["exponents", change]
    assert isinstance(found, Exponents)
    return found


def _compared_row(results: dict[tuple[object, ...], object], base: int, runs: int) -> list[str]:
    row = []
    for threshold in (0.0, 0.05):
        found = results["compared", base, runs, threshold]
        assert isinstance(found, Compared)
        row += [share(found.stable), share(found.slower)]
    return row


def _measure(job: tuple[tuple[object, ...], Cell]) -> tuple[tuple[object, ...], object]:
    name, cell = job
    return name, cell()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=1000, help="histories of a cell")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--dry-run", action="store_true", help="print, do not write the page")
    options = parser.parse_args()
    jobs = cells(options.series, options.seed)
    started = time.monotonic()
    results: dict[tuple[object, ...], object] = {}
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for name, found in pool.imap_unordered(_measure, jobs.items()):
            results[name] = found
            spent = time.monotonic() - started
            print(f"{spent:5.0f} s  {len(results):3d}/{len(jobs)}  {name}  {found}", flush=True)
    text = page(results, options.series, options.seed)
    print(text)
    if not options.dry_run:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, end, after = rest.partition(END)
        assert end, f"{PAGE} has lost its marks: {BEGIN} ... {END}"
        PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")
    missed = [bar for bar, _, holds in bars(results) if not holds]
    if missed:
        sys.exit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
