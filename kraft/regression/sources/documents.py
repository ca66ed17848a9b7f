"""Documents of pytest-benchmark, the one format that `regression.results` reads.

The converters of this package build them. Times are in seconds; the ``metric`` of a benchmark
(`points.BenchmarkMetric`) names any other unit.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from kraft.errors import BenchmarkFileError, InvalidRequestError

#: Seconds per unit of time, by the names that tools write.
SECONDS_PER_UNIT = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "μs": 1e-6,
    "µs": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "m": 60.0,
    "hr": 3600.0,
    "h": 3600.0,
    "day": 86400.0,
}

_BYTES = ("b", "byte", "bytes")


@dataclass(frozen=True)
class RunContext:
    """Facts about runs that a user states; None uses the file's own.

    ``time`` is an ISO 8601 text, UTC by default.
    """

    project: str | None = None
    branch: str | None = None
    commit: str | None = None
    machine: str | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        if self.time is not None:
            try:
                datetime.fromisoformat(self.time)
            except ValueError:
                raise InvalidRequestError(
                    f"time is {self.time!r}, must be an ISO 8601 time: 2026-11-21T14:30"
                ) from None


def document(
    source: str,
    *,
    tool: str,
    benchmarks: Sequence[Mapping[str, Any]],
    machine_info: Mapping[str, Any],
    context: RunContext,
    time: str,
    identity: str | bytes,
    commit_info: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the document of one run.

    ``identity`` and the run's commit and machine decide the id of the run: a run that is converted
    twice is one run. ``context`` replaces the values of ``machine_info`` (``node``) and
    ``commit_info`` (``id``, ``project``, ``branch``).
    """
    given = dict(commit_info or {})
    stated = {"id": context.commit, "project": context.project, "branch": context.branch}
    given |= {name: value for name, value in stated.items() if value is not None}
    machine = dict(machine_info)
    if context.machine is not None:
        machine["node"] = context.machine
    digest = blake2b(identity.encode() if isinstance(identity, str) else identity, digest_size=16)
    digest.update(repr((machine.get("node"), given.get("id"), given.get("project"))).encode())
    return {
        "machine_info": machine,
        "commit_info": given,
        "benchmarks": list(benchmarks),
        "datetime": context.time or time,
        "version": tool,
        "converted_from": source,
        "run_id": digest.hexdigest(),
    }


def benchmark(
    suite: str,
    name: str,
    params: Mapping[str, Any],
    stats: Mapping[str, Any],
    unit: str,
    *,
    bigger_is_better: bool | None = None,
    extra_info: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one benchmark of a document. ``unit`` is that of ``stats``."""
    metric: dict[str, Any] = {"unit": unit}
    if bigger_is_better is not None:
        metric["bigger_is_better"] = bigger_is_better
    # "[" begins the parameters in a name of pytest.
    full = f"{suite}::{name}".replace("[", "(").replace("]", ")")
    return {
        "fullname": full,
        "params": dict(params) or None,
        "stats": {"min": None, "mean": None, **stats},
        "extra_info": {**(extra_info or {}), "metric": metric},
    }


def statistics_of(values: Sequence[float], factor: float = 1.0) -> dict[str, Any]:
    """Return the statistics of a run's rounds, each multiplied by ``factor``."""
    rounds = [value * factor for value in values]
    ordered = sorted(rounds)
    several = len(rounds) > 1
    q1, _, q3 = statistics.quantiles(ordered, n=4, method="inclusive") if several else ordered * 3
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": statistics.fmean(ordered),
        "median": statistics.median(ordered),
        "stddev": statistics.stdev(ordered) if several else 0.0,
        "q1": q1,
        "q3": q3,
        "iqr": q3 - q1,
        "rounds": len(rounds),
        "data": rounds,
    }


def scaled_unit(unit: str) -> tuple[float, str]:
    """Return the factor and the unit that values in ``unit`` are stored in.

    Times become seconds, rates per time rates per second, and bytes ``B``: ``us/op`` is (1e-6,
    "s"), ``ops/ms`` (1000, "ops/s").
    """
    name = unit.strip()
    over, slash, under = name.partition("/")
    if slash and under in ("op", "ops", "iter"):
        return scaled_unit(over)
    if slash and under in SECONDS_PER_UNIT:
        return 1 / SECONDS_PER_UNIT[under], f"{over}/s"
    if not slash and name in SECONDS_PER_UNIT:
        return SECONDS_PER_UNIT[name], "s"
    if name.lower() in _BYTES:
        return 1.0, "B"
    return 1.0, "" if name in ("count", "counts", "#", "unit") else name.replace(" ", "_")


def parsed(data: bytes, source: str) -> Any:
    """Return the value of a JSON file, of which NaN and infinity are numbers.

    Raises BenchmarkFileError with the file if it is not JSON.
    """
    try:
        given = json.loads(data)
        if b"\\ud" in data.lower():
            # json accepts half a surrogate pair, which no document can contain.
            json.dumps(given, ensure_ascii=False).encode()
    except RecursionError:
        raise BenchmarkFileError(f"{source}: brackets are nested too deep") from None
    except UnicodeEncodeError as error:
        raise BenchmarkFileError(f"{source}: not Unicode: {error}") from None
    except ValueError as error:
        raise BenchmarkFileError(f"{source}: not JSON: {error}") from None
    return given


def number_or_text(text: str) -> int | float | str:
    """Return a parameter as a number if it is one, so that scaling laws find sizes."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def finite(value: object) -> float | None:
    """Return a number of a JSON file; None for anything else, and for NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an int of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def field(given: Mapping[str, Any], name: str, kind: type, source: str, place: str) -> Any:
    """Return a field of a JSON object.

    Raises BenchmarkFileError with the file, the place and the expected type.
    """
    value = given.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = {str: "a text", list: "a list", dict: "an object", int: "a number"}
        found = "nothing" if name not in given else repr(value)[:60]
        raise BenchmarkFileError(f"{source}: {place}.{name}: expected {kinds[kind]}, found {found}")
    return value


def iso_time(milliseconds: float) -> str:
    """Return milliseconds since 1970 as ISO 8601 in UTC.

    Raises OverflowError or ValueError for a time outside of the years 1 to 9999.
    """
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
