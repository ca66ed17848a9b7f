"""Convert JMH's results (``-rf json``).

A file is one run. The class is the suite, the method the benchmark; the mode (``thrpt``, ``avgt``,
``sample``, ``ss``) is a parameter. Each iteration of each fork is a round. In mode ``sample`` JMH
writes percentiles instead of rounds. Secondary metrics (profilers such as ``-prof gc``) are
benchmarks of their own, ``method:gc.alloc.rate.norm``.

The format has no time, commit or machine: the user states them; the time is that of the file
otherwise. JMH writes "NaN" as a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kraft.errors import BenchmarkFileError
from kraft.regression.sources.documents import (
    RunContext,
    benchmark,
    document,
    field,
    finite,
    number_or_text,
    scaled_unit,
    statistics_of,
)

_PERCENTILE = re.compile(r"p[01]\.\d+")
_PERCENTILES = {"min": "0.0", "median": "50.0", "max": "100.0"}


def convert(
    given: Any, source: str, context: RunContext, *, file_time: str, data: bytes
) -> list[dict[str, Any]]:
    """Return the document of a parsed file.

    Raises:
        BenchmarkFileError: the file is not a result of JMH; or neither it nor ``context`` names
            the machine.
    """
    if not isinstance(given, list) or not given:
        raise BenchmarkFileError(f"{source}: expected JMH's list of results, found none")
    for at, each in enumerate(given):
        if not isinstance(each, dict):
            raise BenchmarkFileError(f"{source}: [{at}]: expected an object, found {each!r:.60}")
    if context.machine is None:
        raise BenchmarkFileError(
            f"{source}: JMH does not write the name of the machine: give it with --of-machine NAME"
        )
    first = given[0]
    info = {
        "runtime": first.get("vmName"),
        "runtime_version": first.get("jdkVersion"),
        "vm_version": first.get("vmVersion"),
    }
    benchmarks = [
        converted
        for at, each in enumerate(given)
        for converted in _benchmarks(each, source, f"[{at}]")
    ]
    made = document(
        source,
        tool=f"JMH {first.get('jmhVersion', '')}".strip(),
        benchmarks=benchmarks,
        machine_info=info,
        context=context,
        time=file_time,
        identity=data,
    )
    return [made]


def _benchmarks(given: Mapping[str, Any], source: str, place: str) -> Iterator[dict[str, Any]]:
    suite, _, name = field(given, "benchmark", str, source, place).rpartition(".")
    mode = field(given, "mode", str, source, place)
    stated = given.get("params") or {}
    if not isinstance(stated, dict):
        raise BenchmarkFileError(
            f"{source}: {place}.params: expected an object, found {stated!r:.60}"
        )
    params = {param: number_or_text(str(value)) for param, value in stated.items()}
    threads = given.get("threads")
    named = {"mode": mode, **({"threads": threads} if threads not in (None, 1) else {}), **params}
    primary = field(given, "primaryMetric", dict, source, place)
    yield _metric(primary, suite, name, named, source, f"{place}.primaryMetric")
    secondary = given.get("secondaryMetrics") or {}
    if not isinstance(secondary, dict):
        raise BenchmarkFileError(f"{source}: {place}.secondaryMetrics: expected an object")
    for metric, values in secondary.items():
        where = f"{place}.secondaryMetrics.{metric}"
        if not isinstance(values, dict):
            raise BenchmarkFileError(f"{source}: {where}: expected an object, found {values!r:.60}")
        # JMH up to 1.36 begins such names with "·". Mode "sample" repeats its percentiles here.
        label = metric.rpartition("·")[2]
        if not (mode == "sample" and _PERCENTILE.fullmatch(label)):
            yield _metric(values, suite, f"{name}:{label}", named, source, where)


def _metric(
    given: Mapping[str, Any],
    suite: str,
    name: str,
    params: Mapping[str, Any],
    source: str,
    place: str,
) -> dict[str, Any]:
    factor, unit = scaled_unit(field(given, "scoreUnit", str, source, place))
    raw = given.get("rawData")
    rounds = _rounds(raw, source, place) if raw is not None else []
    if rounds:
        stats = statistics_of(rounds, factor)
    else:
        percentiles = given.get("scorePercentiles")
        percentiles = percentiles if isinstance(percentiles, dict) else {}
        found = {stat: finite(percentiles.get(text)) for stat, text in _PERCENTILES.items()}
        found["mean"] = finite(given.get("score"))
        stats = {stat: None if value is None else value * factor for stat, value in found.items()}
    # A profiler's rate, such as of allocation, is a cost.
    bigger = False if ":" in name else None
    return benchmark(suite, name, params, stats, unit, bigger_is_better=bigger)


def _rounds(raw: object, source: str, place: str) -> list[float]:
    """Return the iterations of all forks, which JMH lists fork by fork."""
    if not isinstance(raw, list) or not all(isinstance(fork, list) for fork in raw):
        raise BenchmarkFileError(f"{source}: {place}.rawData: expected lists of numbers, by fork")
    values = [finite(value) for fork in raw for value in fork]
    return [value for value in values if value is not None]
