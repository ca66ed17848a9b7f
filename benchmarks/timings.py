"""Wall and CPU time of rounds, and summaries of many single timings."""

from __future__ import annotations

import resource
from statistics import median
from time import perf_counter
from typing import Any

#: CPU seconds at the beginning and the end of each round of the current benchmark.
_cpu_samples: list[float] = []


def wall_clock() -> float:
    """Return `time.perf_counter()`, and record the CPU time of the same moment.

    conftest makes it pytest-benchmark's timer, which is called at the beginning and at the end of
    each round, so the CPU time excludes the set-up of a round. Sampling does not count towards the
    round, because it is the first step at the beginning and the last at the end.
    """
    if len(_cpu_samples) % 2 == 0:
        _cpu_samples.append(cpu_seconds())
        return perf_counter()
    now = perf_counter()
    _cpu_samples.append(cpu_seconds())
    return now


def begin_cpu_samples() -> None:
    """Forget the rounds of earlier benchmarks."""
    _cpu_samples.clear()


def cpu_seconds() -> float:
    """Return user and system time of this process, all threads, and of its ended children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def cpu_seconds_a_round(rounds: int) -> float:
    """Return the mean CPU seconds of the newest rounds that `wall_clock` timed."""
    samples = _cpu_samples[-2 * rounds :]
    return sum(end - begin for begin, end in zip(samples[::2], samples[1::2], strict=True)) / rounds


def summary(seconds: list[float]) -> dict[str, Any]:
    """Return all timings, their median, 99th percentile, best and worst."""
    ordered = sorted(seconds)
    return {
        "values_s": seconds,
        "median_s": median(ordered),
        "p99_s": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "best_s": ordered[0],
        "worst_s": ordered[-1],
    }
