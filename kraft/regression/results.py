"""Read pytest-benchmark's JSON files, of any version and project, as `runs.BenchmarkRun`.

This module identifies the run, its machine, and its benchmarks with their parameters, and rejects
invalid values. The store, the data source and ``kraft regress compare`` pass it a file's bytes.

Differences between versions (checked in the wheels 3.0.0 to 5.3.1): 3.0 writes neither ``params``
nor ``extra_info``, ``ops``, ``total`` or ``cpu``, and of a commit only ``id`` and ``dirty``; 3.1
and later write all of them. The processor's name is ``brand``, and ``brand_raw`` from py-cpuinfo 6
on. ``datetime`` is UTC, without a zone up to 4.0 and with one from 5.0 on; a zero fraction is
omitted. ``stats.data`` holds the rounds if the user saved them. All versions write ``NaN`` and
``Infinity``, which JSON does not allow, and ``UNSERIALIZABLE[...]`` for values that JSON cannot
express.

The files of other tools are first converted to this format (`kraft.regression.sources`). Their
documents have three more fields: ``converted_from`` (the original file, for messages and
`BenchmarkRun.source`), ``run_id``, and in the ``extra_info`` of a benchmark ``metric``: an object
with the ``unit`` of its values, and ``bigger_is_better`` if the unit does not decide it. Any
project may add such a ``metric`` to a benchmark whose values are not seconds.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kraft.errors import BenchmarkFileError
from kraft.regression.points import UNIT_PATTERN
from kraft.regression.runs import STATISTIC_COLUMNS, BenchmarkRun, Problem

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MINUTE_US = 60_000_000
#: Texts that pytest-benchmark writes for an unknown commit or branch.
_NO_COMMIT = ("", "unversioned", "unknown")
_NO_BRANCH = ("", "(unknown)", "(detached head)")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

#: A result of another tool has at least one of these statistics.
_VALUES = ("min", "mean", "median")

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class _Stats(msgspec.Struct):
    min: float | None
    mean: float | None
    max: float | None = None
    stddev: float | None = None
    median: float | None = None
    iqr: float | None = None
    q1: float | None = None
    q3: float | None = None
    ops: float | None = None
    total: float | None = None
    rounds: _Count | None = None
    iterations: _Count | None = None
    data: list[float | None] | None = None


class _Benchmark(msgspec.Struct):
    fullname: str
    stats: _Stats
    group: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    param: str | None = None
    extra_info: msgspec.Raw = msgspec.Raw(b"{}")


class _Document(msgspec.Struct):
    benchmarks: list[_Benchmark]
    machine_info: msgspec.Raw
    datetime: str
    commit_info: msgspec.Raw = msgspec.Raw(b"null")
    converted_from: str | None = None
    run_id: str | None = None
    version: str | None = None


_decode = msgspec.json.Decoder(_Document).decode
_statistics_of = attrgetter(*STATISTIC_COLUMNS)


def read_run(data: bytes, source: str, *, ignore_node: bool = False) -> BenchmarkRun:
    """Return the run in a file's bytes.

    ``source`` is the file's path, for `BenchmarkRun.source` and for messages. With ``ignore_node``,
    machines that differ only in their host name count as one: CI services give runners random
    names.

    A benchmark with invalid times (NaN, zero, negative) is omitted and reported in
    `BenchmarkRun.problems`; the others are kept. One without any value, which another tool skipped
    or whose code failed, is omitted and counted in `BenchmarkRun.without_value`. Raises
    BenchmarkFileError with the file's name if
    the file is truncated, not JSON, or not a result of pytest-benchmark; no other exception,
    whatever the bytes are.
    """
    try:
        return _run(data, source, ignore_node)
    except RecursionError:
        # The stack depth left depends on the caller, so any step may raise this.
        raise BenchmarkFileError(
            f"{source}: JSON cannot be read: brackets are nested too deep"
        ) from None
    except (OverflowError, ValueError) as error:
        raise BenchmarkFileError(f"{source}: invalid value: {error}") from None


def _run(data: bytes, source: str, ignore_node: bool) -> BenchmarkRun:
    document = _document(data, source)
    source = document.converted_from or source
    identity, machine, machine_info = _machine(bytes(document.machine_info), ignore_node)
    commit = _commit(document.commit_info)
    time_us = _time_us(document.datetime)
    if time_us is None:
        raise BenchmarkFileError(f"{source}: its datetime {document.datetime!r} is not a time")
    given = document.benchmarks
    names = [
        _name(benchmark.fullname, bytes(benchmark.params), benchmark.param) for benchmark in given
    ]
    rows = [_statistics_of(benchmark.stats) for benchmark in given]
    statistics: NDArray[np.float64] = np.array(rows, np.float64)  # None becomes NaN
    statistics = statistics.reshape(len(given), len(STATISTIC_COLUMNS))
    run_id = document.run_id or _run_id(time_us, identity, commit.id, given, names, statistics)
    extra = [_extra_info(bytes(benchmark.extra_info)) for benchmark in given]
    is_converted = document.converted_from is not None
    reasons = _reasons(given, names, statistics, extra, is_converted)
    empty = _without_value(statistics) if is_converted else set()
    problems = [
        Problem(source, f"{given[at].fullname.removeprefix('::')}: {why}")
        for at, why in reasons.items()
        if at not in empty
    ]
    if not given:
        problems.append(Problem(source, "the file contains no benchmarks"))
    if reasons or empty:
        kept = [at for at in range(len(given)) if at not in reasons and at not in empty]
        given = [given[at] for at in kept]
        names = [names[at] for at in kept]
        extra = [extra[at] for at in kept]
        statistics = statistics[kept]
    _complete(statistics, given)
    return BenchmarkRun(
        run_id=run_id,
        source=source,
        machine=machine,
        machine_info=machine_info,
        time_us=time_us,
        project=commit.project,
        branch=commit.branch,
        commit=commit.id,
        commit_time_us=commit.time_us,
        dirty=commit.dirty,
        parents=commit.parents,
        version=document.version,
        suite=[name.suite for name in names],
        benchmark=[name.benchmark for name in names],
        params=[name.params for name in names],
        group=[benchmark.group for benchmark in given],
        rounds=[benchmark.stats.rounds for benchmark in given],
        iterations=[benchmark.stats.iterations for benchmark in given],
        statistics=statistics,
        instructions=[each.instructions for each in extra],
        # `_reasons` omitted every benchmark with a round that is None.
        values=[benchmark.stats.data for benchmark in given],  # type: ignore[misc]
        extra_info=[each.text for each in extra],
        unit=[each.unit for each in extra],
        bigger_is_better=[each.bigger_is_better for each in extra],
        problems=tuple(problems),
        without_value=len(empty),
    )


def _document(data: bytes, source: str) -> _Document:
    try:
        try:
            return _decode(data)
        except msgspec.ValidationError:
            json.loads(data)  # a truncated file of another form: its end is what is wrong
            raise
        except msgspec.DecodeError:
            if b"NaN" not in data and b"Infinity" not in data:
                raise
            # Python's json module accepts NaN and Infinity; msgspec encodes them as null, which
            # `_reasons` finds.
            return _decode(msgspec.json.encode(json.loads(data)))
    except msgspec.ValidationError as error:
        raise BenchmarkFileError(f"{source}: not a pytest-benchmark result: {error}") from None
    except (msgspec.DecodeError, OverflowError, ValueError) as error:
        raise BenchmarkFileError(f"{source}: not JSON: {error}") from None


def _reasons(
    given: list[_Benchmark],
    names: list[_Name],
    statistics: NDArray[np.float64],
    extra: list[_ExtraInfo],
    is_converted: bool,
) -> dict[int, str]:
    """Return the reason for each invalid benchmark, by its index.

    Other tools do not write every statistic: of a converted file one is enough; `_without_value`
    finds the benchmarks that have none.
    """
    reasons: dict[int, str] = {}
    is_time = np.array([each.unit in (None, "s") for each in extra], np.bool_)
    columns = _VALUES if is_converted else ("min", "mean")
    values = statistics[:, [STATISTIC_COLUMNS.index(column) for column in columns]]
    good = np.isfinite(values) & ((values > 0) | ((values == 0) & ~is_time[:, None]))
    absent = np.isnan(values) & is_converted
    for place, column in enumerate(columns):
        for at in map(int, np.flatnonzero(~(good[:, place] | absent[:, place]))):
            value = float(values[at, place])
            unit = "seconds" if is_time[at] else extra[at].unit
            what = "NaN or infinite" if not math.isfinite(value) else f"{value!r} {unit}".rstrip()
            reasons.setdefault(at, f"its {column} is {what}")
    for at, each in enumerate(extra):
        if each.unit is not None and not UNIT_PATTERN.fullmatch(each.unit):
            reasons.setdefault(
                at,
                f"its unit {each.unit[:40]!r} is not one of at most 24 letters, digits and % / _ . "
                "^ * -",
            )
    for at, benchmark in enumerate(given):
        rounds = benchmark.stats.data
        if rounds is not None and None in rounds:
            reasons.setdefault(at, f"round {rounds.index(None)} is NaN or infinite")
    if len(set(names)) < len(names):
        seen: set[_Name] = set()
        for at, name in enumerate(names):
            if name in seen:
                reasons.setdefault(at, "duplicate in this run; the first one is used")
            seen.add(name)
    return reasons


def _without_value(statistics: NDArray[np.float64]) -> set[int]:
    """Return the indices of the benchmarks that were skipped, or whose code failed."""
    values = statistics[:, [STATISTIC_COLUMNS.index(column) for column in _VALUES]]
    return set(map(int, np.flatnonzero(np.isnan(values).all(axis=1))))


def _complete(statistics: NDArray[np.float64], given: list[_Benchmark]) -> None:
    """Compute the statistics that version 3.0 does not write."""
    mean, ops, total = (
        statistics[:, STATISTIC_COLUMNS.index(name)] for name in ("mean", "ops", "total")
    )
    np.divide(1.0, mean, out=ops, where=np.isnan(ops) & (mean > 0))
    for at in map(int, np.flatnonzero(np.isnan(total))):
        stats = given[at].stats
        if stats.data:
            total[at] = math.fsum(value for value in stats.data if value is not None)


# Identity of the measurement: benchmark, machine, commit


class _Name(NamedTuple):
    suite: str
    benchmark: str
    params: str


@lru_cache(maxsize=1 << 16)
def _name(fullname: str, raw_params: bytes, param: str | None) -> _Name:
    """Parse ``path/file.py::Class::test[1-a]`` and the parameters. Cached: names recur in every
    run.
    """
    suite, _, rest = fullname.partition("::")
    if not rest:
        suite, rest = "", fullname
    benchmark, bracket, inside = rest.partition("[")
    benchmark = benchmark.replace("::()::", "::")  # as pytest named methods before version 4
    inside = inside.removesuffix("]") if bracket else (param or "")
    params = msgspec.json.decode(raw_params)
    if not isinstance(params, dict) or not params:
        params = {"param": inside} if inside else {}
    elif "UNSERIALIZABLE[" in (text := canonical_json(params)):
        # An object's repr contains its address, which differs in every run. The pytest id
        # distinguishes objects with equal reprs.
        params = {**json.loads(_ADDRESS.sub("", text)), "param": inside}
    return _Name(suite, benchmark, canonical_json(params))


def canonical_json(value: object) -> str:
    """Return the canonical JSON text of a value: keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=4096)
def _machine(raw: bytes, ignore_node: bool) -> tuple[str, str, str]:
    """Return a machine's identity with its host name, its id, and its description as JSON on one
    line.
    """
    try:
        info = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        info = None
    text = msgspec.json.format(raw, indent=-1).decode() if isinstance(info, dict) else "{}"
    if not isinstance(info, dict):
        info = {}
    cpu = info.get("cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    brand = cpu.get("brand_raw") or cpu.get("brand") or info.get("processor") or ""
    # Other tools run on other runtimes; their converters write these two fields.
    runtime = info.get("python_implementation", info.get("runtime"))
    version = info.get("python_version", info.get("runtime_version", ""))
    python = ".".join(str(version).split(".")[:2])
    kind = [
        brand,
        cpu.get("count"),
        info.get("machine"),
        info.get("system"),
        runtime,
        python,
    ]
    node = info.get("node")
    identity = canonical_json([node, *kind])
    compared = canonical_json(kind) if ignore_node else identity
    readable = _slug([*([] if ignore_node else [node]), brand or info.get("machine")])
    digest = blake2b(compared.encode(), digest_size=4).hexdigest()
    return identity, f"{readable or 'machine'}-{digest}", text


def _slug(words: list[object]) -> str:
    """Return words as a readable name: letters, digits and dashes, at most 48 characters."""
    text = " ".join(str(word) for word in words if word).lower()
    text = re.sub(r"\(r\)|\(tm\)|@.*|\b(cpu|processor)\b", " ", text)
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:48].rstrip("-")


class _Commit(NamedTuple):
    id: str | None
    time_us: int | None
    dirty: bool | None
    project: str | None
    branch: str | None
    parents: list[str] | None  # pytest_benchmark_update_commit_info may add them


def _commit(raw: msgspec.Raw) -> _Commit:
    info = msgspec.json.decode(raw)
    if not isinstance(info, dict):
        info = {}

    def text(name: str, unknown: tuple[str, ...] = ("",)) -> str | None:
        value = info.get(name)
        return value if isinstance(value, str) and value not in unknown else None

    when = text("time")
    dirty = info.get("dirty")
    return _Commit(
        text("id", _NO_COMMIT),
        None if when is None else _time_us(when),
        dirty if isinstance(dirty, bool) else None,
        text("project"),
        text("branch", _NO_BRANCH),
        _parents(info.get("parents")),
    )


def _parents(given: object) -> list[str] | None:
    """Return the parents given as a list, or as one text as ``git log --format=%P`` prints it."""
    if isinstance(given, str):
        given = given.split()
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        return None
    return given


def _time_us(text: str) -> int | None:
    """Return an ISO 8601 time as microseconds since 1970; without a zone it is UTC, as
    pytest-benchmark's.

    Return None for invalid text, and for a time before the year 1 or after 9999 in UTC.
    """
    try:
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (OverflowError, ValueError):
        return None
    return (time - _EPOCH) // _MICROSECOND


class _ExtraInfo(NamedTuple):
    text: str  # JSON on one line
    instructions: float | None = None
    unit: str | None = None
    bigger_is_better: bool | None = None


@lru_cache(maxsize=1 << 16)
def _extra_info(raw: bytes) -> _ExtraInfo:
    """Parse the extra_info of a benchmark; of invalid fields only the text is kept."""
    info: Any = msgspec.json.decode(raw)
    if not isinstance(info, dict):
        return _ExtraInfo("{}")
    count = info.get("instructions")
    instructions = None
    if isinstance(count, (int, float)) and not isinstance(count, bool) and abs(count) < 1 << 62:
        instructions = float(count)
    metric = info.get("metric")
    metric = metric if isinstance(metric, dict) else {}
    unit, bigger = metric.get("unit"), metric.get("bigger_is_better")
    return _ExtraInfo(
        msgspec.json.format(raw, indent=-1).decode(),
        instructions,
        unit if isinstance(unit, str) else None,
        bigger if isinstance(bigger, bool) else None,
    )


def _run_id(
    time_us: int,
    identity: str,
    commit: str | None,
    given: list[_Benchmark],
    names: list[_Name],
    statistics: NDArray[np.float64],
) -> str:
    """Return a hash of the measurement, 32 hex digits, equal for every saved copy of one run.

    ``--benchmark-json`` and ``--benchmark-save`` write one run twice: each file has its own
    datetime, and the second has no rounds. So the hash covers the minute, and no rounds. It always
    covers the host name, so that ``ignore_node`` does not change the id of a run.
    """
    order = sorted(range(len(given)), key=lambda at: names[at])
    columns = [STATISTIC_COLUMNS.index(name) for name in ("min", "mean")]
    rounds = [given[at].stats.rounds or 0 for at in order]
    digest = blake2b(digest_size=16)
    digest.update(canonical_json([time_us // _MINUTE_US, identity, commit]).encode())
    digest.update(canonical_json([names[at] for at in order]).encode())
    digest.update(np.ascontiguousarray(statistics[order][:, columns]).astype("<f8").tobytes())
    digest.update(np.array(rounds, "<i8").tobytes())
    return digest.hexdigest()
