"""pytest-benchmark's JSON -> runs, whatever version wrote it, of whatever project.

Owns what a file means: which run it is, on which machine, which benchmarks with which parameters,
and what in it cannot be. Fed by the store, the data source and `kraft regress compare` with the
bytes of a file; gives a `runs.Run`.

What versions write (looked up in their wheels, 3.0.0 to 5.3.1): 3.0 has neither ``params`` nor
``extra_info``, ``ops``, ``total`` or a ``cpu``, and of a commit only ``id`` and ``dirty``; from
3.1 on all are there, the processor's name as ``brand`` and from py-cpuinfo 6 on ``brand_raw``;
``datetime`` is UTC without a zone up to 4.0 and with one from 5.0 on, and has no fraction where it
is zero. Rounds (``stats.data``) are there where the user saved them. All write ``NaN`` and
``Infinity`` as Python does, which is no JSON, and what is no JSON value as ``UNSERIALIZABLE[...]``.
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
from kraft.regression.runs import STATISTIC_COLUMNS, Problem, Run

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MINUTE_US = 60_000_000
#: What pytest-benchmark writes where it does not know.
_NO_COMMIT = ("", "unversioned", "unknown")
_NO_BRANCH = ("", "(unknown)", "(detached head)")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

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
    version: str | None = None


_decode = msgspec.json.Decoder(_Document).decode
_statistics_of = attrgetter(*STATISTIC_COLUMNS)


def read_run(data: bytes, source: str, *, ignore_node: bool = False) -> Run:
    """The run that a file holds.

    ``source`` is the file's path, for `Run.source` and for messages. ``ignore_node`` takes machines
    of one kind for one machine whatever they are called: runners of a CI service have random names.

    A benchmark whose times cannot be (NaN, zero, negative) is left out and told in `Run.problems`;
    the others are kept. Raises BenchmarkFileError, which names the file, where it is truncated, no
    JSON, or no result of pytest-benchmark, and nothing else, whatever the bytes are.
    """
    try:
        return _run(data, source, ignore_node)
    except RecursionError:
        # Where brackets end the stack depends on how deep the caller already is: any step may.
        raise BenchmarkFileError(
            f"{source}: no JSON that can be read: brackets are nested too deep"
        ) from None
    except (OverflowError, ValueError) as error:
        raise BenchmarkFileError(f"{source}: a value cannot be: {error}") from None


def _run(data: bytes, source: str, ignore_node: bool) -> Run:
    document = _document(data, source)
    identity, machine, machine_info = _machine(bytes(document.machine_info), ignore_node)
    commit = _commit(document.commit_info)
    time_us = _time_us(document.datetime)
    if time_us is None:
        raise BenchmarkFileError(f"{source}: its datetime {document.datetime!r} is no time")
    given = document.benchmarks
    names = [
        _name(benchmark.fullname, bytes(benchmark.params), benchmark.param) for benchmark in given
    ]
    rows = [_statistics_of(benchmark.stats) for benchmark in given]
    statistics: NDArray[np.float64] = np.array(rows, np.float64)  # None becomes NaN
    statistics = statistics.reshape(len(given), len(STATISTIC_COLUMNS))
    run_id = _run_id(time_us, identity, commit.id, given, names, statistics)
    reasons = _reasons(given, names, statistics)
    problems = [Problem(source, f"{given[at].fullname}: {why}") for at, why in reasons.items()]
    if not given:
        problems.append(Problem(source, "it holds no benchmarks"))
    if reasons:
        kept = [at for at in range(len(given)) if at not in reasons]
        given = [given[at] for at in kept]
        names = [names[at] for at in kept]
        statistics = statistics[kept]
    _complete(statistics, given)
    extra = [_extra_info(bytes(benchmark.extra_info)) for benchmark in given]
    return Run(
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
        instructions=[instructions for _, instructions in extra],
        # `_reasons` has left out every benchmark with a round that is None.
        values=[benchmark.stats.data for benchmark in given],  # type: ignore[misc]
        extra_info=[text for text, _ in extra],
        problems=tuple(problems),
    )


def _document(data: bytes, source: str) -> _Document:
    try:
        try:
            return _decode(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if b"NaN" not in data and b"Infinity" not in data:
                raise
            # Python's own reader takes them; written again they are null, which is seen below.
            return _decode(msgspec.json.encode(json.loads(data)))
    except msgspec.ValidationError as error:
        raise BenchmarkFileError(f"{source}: no result of pytest-benchmark: {error}") from None
    except (msgspec.DecodeError, OverflowError, ValueError) as error:
        raise BenchmarkFileError(f"{source}: no JSON: {error}") from None


def _reasons(
    given: list[_Benchmark], names: list[_Name], statistics: NDArray[np.float64]
) -> dict[int, str]:
    """Which benchmarks cannot be, and why."""
    reasons: dict[int, str] = {}
    for column in ("min", "mean"):
        times = statistics[:, STATISTIC_COLUMNS.index(column)]
        for at in map(int, np.flatnonzero(~(np.isfinite(times) & (times > 0)))):
            value = float(times[at])
            what = "NaN or infinite" if not math.isfinite(value) else f"{value!r} seconds"
            reasons.setdefault(at, f"its {column} is {what}")
    for at, benchmark in enumerate(given):
        rounds = benchmark.stats.data
        if rounds is not None and None in rounds:
            reasons.setdefault(at, f"round {rounds.index(None)} is NaN or infinite")
    if len(set(names)) < len(names):
        seen: set[_Name] = set()
        for at, name in enumerate(names):
            if name in seen:
                reasons.setdefault(at, "it appears twice in this run; the first one is taken")
            seen.add(name)
    return reasons


def _complete(statistics: NDArray[np.float64], given: list[_Benchmark]) -> None:
    """What version 3.0 did not write yet and follows from what it wrote."""
    mean, ops, total = (
        statistics[:, STATISTIC_COLUMNS.index(name)] for name in ("mean", "ops", "total")
    )
    np.divide(1.0, mean, out=ops, where=np.isnan(ops))
    for at in map(int, np.flatnonzero(np.isnan(total))):
        stats = given[at].stats
        if stats.data:
            total[at] = math.fsum(value for value in stats.data if value is not None)


# ---------------------------------------------------------------------------------------------
# Whose measurement it is


class _Name(NamedTuple):
    suite: str
    benchmark: str
    params: str


@lru_cache(maxsize=1 << 16)
def _name(fullname: str, raw_params: bytes, param: str | None) -> _Name:
    """``path/file.py::Class::test[1-a]`` and its params. A suite's names recur in every run."""
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
        # The repr of an object holds its address, which is another one in every run; pytest's id
        # tells objects apart that look the same without it.
        params = {**json.loads(_ADDRESS.sub("", text)), "param": inside}
    return _Name(suite, benchmark, canonical_json(params))


def canonical_json(value: object) -> str:
    """The one text of a value: keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=4096)
def _machine(raw: bytes, ignore_node: bool) -> tuple[str, str, str]:
    """What makes a machine, all of it; its id; its description as one line of JSON."""
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
    python = ".".join(str(info.get("python_version", "")).split(".")[:2])
    kind = [
        brand,
        cpu.get("count"),
        info.get("machine"),
        info.get("system"),
        info.get("python_implementation"),
        python,
    ]
    node = info.get("node")
    identity = canonical_json([node, *kind])
    compared = canonical_json(kind) if ignore_node else identity
    readable = _slug([*([] if ignore_node else [node]), brand or info.get("machine")])
    digest = blake2b(compared.encode(), digest_size=4).hexdigest()
    return identity, f"{readable or 'machine'}-{digest}", text


def _slug(words: list[object]) -> str:
    """Words as a name for people: letters, digits and dashes, at most 48 of them."""
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
    """A list of commits, or one text of them, as ``git log --format=%P`` prints it."""
    if isinstance(given, str):
        given = given.split()
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        return None
    return given


def _time_us(text: str) -> int | None:
    """ISO 8601 -> microseconds since 1970; without a zone it is UTC, as pytest-benchmark's is.

    None for a text that is no time, and for one before the year 1 or after 9999 in UTC.
    """
    try:
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (OverflowError, ValueError):
        return None
    return (time - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=1 << 16)
def _extra_info(raw: bytes) -> tuple[str, float | None]:
    """extra_info as one line of JSON, and the instructions that it tells."""
    info: Any = msgspec.json.decode(raw)
    if not isinstance(info, dict):
        return "{}", None
    count = info.get("instructions")
    instructions = None
    if isinstance(count, (int, float)) and not isinstance(count, bool) and abs(count) < 1 << 62:
        instructions = float(count)
    return msgspec.json.format(raw, indent=-1).decode(), instructions


def _run_id(
    time_us: int,
    identity: str,
    commit: str | None,
    given: list[_Benchmark],
    names: list[_Name],
    statistics: NDArray[np.float64],
) -> str:
    """What was measured, hashed: 32 hex digits, the same however and how often it was saved.

    ``--benchmark-json`` and ``--benchmark-save`` of one run are written one after the other with a
    datetime of their own, and the second without rounds: so the minute counts, and no rounds. The
    node's name counts always, so that ``ignore_node`` does not make another run of it.
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
