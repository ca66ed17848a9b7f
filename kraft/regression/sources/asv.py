"""Convert airspeed velocity's results (``results/<machine>/<commit>-<environment>.json``).

A file holds all results of one commit in one environment, also of later days; those that were
measured without a pause of an hour are one run. The module is the suite. Units, parameter names and
versions come from ``benchmarks.json`` in the folder of the results; without it, names decide the
unit (``time_``: seconds, ``mem_`` and ``peakmem_``: bytes). Results of an older version of a
benchmark are omitted, as asv itself does.

asv knows no direction: bigger is better for rates only (``ops/s``). ``machine.json`` beside the
results describes the machine. asv writes the median of its samples, and their quartiles; the
samples themselves with ``asv run --record-samples``.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kraft.errors import BenchmarkFileError
from kraft.regression.sources.documents import (
    RunContext,
    benchmark,
    document,
    field,
    finite,
    iso_time,
    parsed,
    scaled_unit,
    statistics_of,
)

#: A longer pause between two results begins another run.
_PAUSE_MS = 3_600_000
#: Combinations of one benchmark's parameters: more would be a damaged file.
_MOST_COMBINATIONS = 1 << 20
_UNITS = {"time": "s", "timeraw": "s", "mem": "B", "peakmem": "B"}


class _Result(NamedTuple):
    name: str
    started_ms: float
    ended_ms: float
    benchmarks: list[dict[str, Any]]


def convert(
    given: Any, source: str, context: RunContext, *, file_time: str, data: bytes
) -> list[dict[str, Any]]:
    """Return the documents of a parsed file, oldest first.

    Raises:
        BenchmarkFileError: the file is not a result of asv, or of a version before 2.
    """
    if given.get("version") != 2:
        raise BenchmarkFileError(
            f"{source}: version: expected 2 (asv 0.4 and later), found {given.get('version')!r:.60}"
        )
    columns = field(given, "result_columns", list, source, "$")
    if not all(isinstance(column, str) for column in columns):
        raise BenchmarkFileError(
            f"{source}: $.result_columns: expected names, found {columns!r:.60}"
        )
    results = field(given, "results", dict, source, "$")
    commit = field(given, "commit_hash", str, source, "$")
    committed_ms = finite(given.get("date"))
    committed = None if committed_ms is None else _iso_time(committed_ms, source, "$.date")
    machine = given.get("params") if isinstance(given.get("params"), dict) else {}
    assert isinstance(machine, dict)
    known = _described(source)
    found = []
    for name, row in results.items():
        if not isinstance(row, list):
            raise BenchmarkFileError(
                f"{source}: results.{name}: expected a list, found {row!r:.60}"
            )
        values = dict(zip(columns, row, strict=False))
        facts = known.get(name, {})
        facts = facts if isinstance(facts, dict) else {}
        if facts and values.get("version") not in (None, facts.get("version")):
            continue
        started = finite(values.get("started_at")) or committed_ms or 0.0
        ended = started + 1000 * (finite(values.get("duration")) or 0.0)
        made = list(_benchmarks(name, values, facts, source))
        found.append(_Result(name, started, ended, made))
    info = {
        "node": machine.get("machine"),
        "processor": machine.get("cpu"),
        "machine": machine.get("arch"),
        "system": machine.get("os"),
        "cpu": {"count": machine.get("num_cpu")},
        "ram": machine.get("ram"),
        "runtime": given.get("env_name"),
    }
    documents = []
    for session in _sessions(found):
        began = session[0]
        each = [made for result in session for made in result.benchmarks]
        names = json.dumps([(result.name, result.started_ms) for result in session])
        documents.append(
            document(
                source,
                tool="asv",
                benchmarks=each,
                machine_info=info,
                commit_info={"id": commit, "time": committed},
                context=context,
                time=_iso_time(began.started_ms, source, f"results.{began.name}.started_at")
                if began.started_ms
                else file_time,
                identity=f"{given.get('env_name')} {names}",
            )
        )
    return documents


def _sessions(results: Sequence[_Result]) -> Iterator[list[_Result]]:
    """Yield the results that were measured without a long pause, oldest first."""
    session: list[_Result] = []
    for result in sorted(results, key=lambda each: (each.started_ms, each.name)):
        if session and result.started_ms - session[-1].ended_ms > _PAUSE_MS:
            yield session
            session = []
        session.append(result)
    if session:
        yield session


def _iso_time(milliseconds: float, source: str, place: str) -> str:
    try:
        return iso_time(milliseconds)
    except (OverflowError, ValueError):
        raise BenchmarkFileError(
            f"{source}: {place}: expected milliseconds since 1970, found {milliseconds}"
        ) from None


def _described(source: str) -> Mapping[str, Any]:
    """Return the content of ``benchmarks.json`` of these results, nothing if it is missing."""
    path = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(source))), "benchmarks.json"
    )
    try:
        with open(path, "rb") as file:
            known = parsed(file.read(), path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BenchmarkFileError(
            f"{path}: asv's list of benchmarks cannot be read: {error.strerror or error}"
        ) from None
    return known if isinstance(known, dict) else {}


def _benchmarks(
    name: str, values: Mapping[str, Any], facts: Mapping[str, Any], source: str
) -> Iterator[dict[str, Any]]:
    """Yield a result for each combination of parameters."""
    place = f"results.{name}"
    suite, _, function = name.partition(".")
    kind = function.rpartition(".")[2].partition("_")[0]
    factor, unit = scaled_unit(str(facts.get("unit") or _UNITS.get(kind, "")))
    choices = values.get("params") or []
    if not isinstance(choices, list) or not all(isinstance(each, list) for each in choices):
        raise BenchmarkFileError(
            f"{source}: {place}: expected a list of values for each parameter, found "
            f"{choices!r:.60}"
        )
    names = facts.get("param_names")
    if not isinstance(names, list) or not names:
        names = [f"param{at + 1}" for at in range(len(choices))]
    results = values.get("result")
    count = math.prod(map(len, choices))
    if results is None and count <= _MOST_COMBINATIONS:
        results = [None] * count  # all of them failed
    if not isinstance(results, list) or len(results) != count:
        raise BenchmarkFileError(
            f"{source}: {place}: expected {count} results, one for each combination of "
            f"parameters, found {results!r:.60}"
        )
    for at, texts in enumerate(itertools.product(*choices)):
        params = {str(param): _parameter(text) for param, text in zip(names, texts, strict=False)}
        samples = _at(values, "samples", at) or []
        if not isinstance(samples, list):
            raise BenchmarkFileError(
                f"{source}: {place}: expected a list of samples, found {samples!r:.60}"
            )
        rounds = [number for each in samples if (number := finite(each)) is not None]
        result = finite(results[at])
        if rounds and result is not None:
            stats = statistics_of(rounds, factor)
        else:
            quartiles = {"q1": "stats_q_25", "q3": "stats_q_75"}
            given = {stat: finite(_at(values, column, at)) for stat, column in quartiles.items()}
            given["median"] = result
            stats = {stat: None if got is None else got * factor for stat, got in given.items()}
        yield benchmark(suite, function, params, stats, unit)


def _at(values: Mapping[str, Any], column: str, at: int) -> Any:
    """Return one combination's entry of a column, None if the column is missing."""
    given = values.get(column)
    return given[at] if isinstance(given, list) and at < len(given) else None


def _parameter(text: object) -> Any:
    """Return a parameter, which asv writes as Python's repr, as a number or a text."""
    try:
        value = ast.literal_eval(str(text))
    except (SyntaxError, ValueError):
        return str(text)
    return value if isinstance(value, int | float | str | bool) else str(text)
