"""Convert Google Benchmark's results (``--benchmark_out_format=json``).

A file is one run; the executable is the suite. ``fill/100/threads:2`` is the benchmark ``fill``
with the parameters ``arg`` 100 and ``threads`` 2; ``fill/size:100`` has the parameter ``size``.
Repetitions are rounds. Beside the real time, the CPU time (``fill:cpu_time``), the rates
``items_per_second`` and ``bytes_per_second`` and the user's counters are benchmarks of their own.

The commit, project and branch are those of ``--benchmark_context=commit=...,project=...``, unless
the user states them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kraft.errors import BenchmarkFileError
from kraft.regression.sources.documents import (
    SECONDS_PER_UNIT,
    RunContext,
    benchmark,
    document,
    field,
    finite,
    number_or_text,
    statistics_of,
)

#: Fields of a result that are no measured values.
_FACTS = frozenset(
    {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions"}
    | {"repetition_index", "threads", "iterations", "time_unit", "label", "aggregate_name"}
    | {"aggregate_unit", "error_occurred", "error_message", "skipped", "skip_message"}
    | {"big_o", "rms", "cpu_coefficient", "real_coefficient"}
)
_UNITS = {"items_per_second": "items/s", "bytes_per_second": "B/s"}
_AGGREGATES = ("mean", "median", "stddev")
#: Parts of a name that describe how the benchmark is timed.
_TIMING = re.compile(r"real_time|process_time|manual_time|(iterations|repeats|min_time):.*")


def convert(
    given: Any, source: str, context: RunContext, *, file_time: str, data: bytes
) -> list[dict[str, Any]]:
    """Return the document of a parsed file.

    Raises:
        BenchmarkFileError: the file is not a result of Google Benchmark.
    """
    facts = field(given, "context", dict, source, "$")
    results = field(given, "benchmarks", list, source, "$")
    found: dict[str, list[Mapping[str, Any]]] = {}
    for at, each in enumerate(results):
        place = f"benchmarks[{at}]"
        if not isinstance(each, dict):
            raise BenchmarkFileError(f"{source}: {place}: expected an object, found {each!r:.60}")
        name = each.get("run_name") or field(each, "name", str, source, place)
        unit = each.get("time_unit", "ns")
        if not isinstance(unit, str) or unit not in SECONDS_PER_UNIT:
            raise BenchmarkFileError(
                f"{source}: {place}.time_unit: expected ns, us, ms or s, found {unit!r:.60}"
            )
        kind = each.get("run_type", "iteration")
        if kind not in ("iteration", "aggregate"):
            raise BenchmarkFileError(
                f"{source}: {place}.run_type: expected iteration or aggregate, found {kind!r:.60}"
            )
        found.setdefault(str(name), []).append(each)
    suite = os.path.basename(str(facts.get("executable") or "benchmark"))
    benchmarks = [
        converted for name, rows in found.items() for converted in _benchmarks(suite, name, rows)
    ]
    made = document(
        source,
        tool="Google Benchmark",
        benchmarks=benchmarks,
        machine_info={
            "node": facts.get("host_name"),
            "cpu": {"count": facts.get("num_cpus")},
            "mhz_per_cpu": facts.get("mhz_per_cpu"),
            "library_build_type": facts.get("library_build_type"),
        },
        commit_info={
            "id": facts.get("commit"),
            "project": facts.get("project"),
            "branch": facts.get("branch"),
        },
        context=context,
        time=str(facts.get("date") or file_time),
        identity=data,
    )
    return [made]


def _benchmarks(
    suite: str, run_name: str, rows: list[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the real time of one benchmark, and its other values."""
    name, params = _name(run_name)
    failed = [row for row in rows if row.get("error_occurred") or row.get("skipped")]
    if failed:
        # `results` counts the benchmarks without a value.
        yield benchmark(suite, name, params, {}, "s")
        return
    single = [row for row in rows if row.get("run_type", "iteration") == "iteration"]
    aggregates = {
        str(row.get("aggregate_name")): row for row in rows if row.get("run_type") == "aggregate"
    }
    sample = single[0] if single else next(iter(aggregates.values()))
    factor = SECONDS_PER_UNIT[str(sample.get("time_unit", "ns"))]
    values = ["real_time", "cpu_time", *(key for key in sample if key not in _FACTS)]
    for value in dict.fromkeys(values):
        is_time = value in ("real_time", "cpu_time")
        unit = "s" if is_time else _UNITS.get(value, "")
        rounds = [number for row in single if (number := finite(row.get(value))) is not None]
        scale = factor if is_time else 1.0
        if rounds:
            stats = statistics_of(rounds, scale)
            stats["iterations"] = sample.get("iterations")
        else:
            numbers = {each: finite(aggregates.get(each, {}).get(value)) for each in _AGGREGATES}
            if numbers["mean"] is None and numbers["median"] is None:
                continue
            stats = {each: None if got is None else got * scale for each, got in numbers.items()}
        yield benchmark(
            suite, name if value == "real_time" else f"{name}:{value}", params, stats, unit
        )


def _name(run_name: str) -> tuple[str, dict[str, Any]]:
    """Return the benchmark and the parameters of ``fill<int>/100/size:5/real_time``."""
    name, *parts = re.split(r"/(?![^<]*>)", run_name)
    params: dict[str, Any] = {}
    unnamed = []
    for part in parts:
        if _TIMING.fullmatch(part):
            continue
        key, colon, value = part.partition(":")
        number = number_or_text(value if colon else part)
        if colon:
            params[key] = number
        elif isinstance(number, str):
            name += f"/{part}"
        else:
            unnamed.append(number)
    if len(unnamed) == 1:
        params["arg"] = unnamed[0]
    else:
        params |= {f"arg{at}": number for at, number in enumerate(unnamed)}
    return name, params
