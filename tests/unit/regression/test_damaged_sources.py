"""Files of other tools in which one value is another, or missing: an error of the file, or runs."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="needs kraft[regress]")

from kraft.errors import BenchmarkFileError, InvalidRequestError
from kraft.regression.sources.conversion import (
    ResultFormat,
    ResultReading,
    converted,
    documents_of,
    read_runs,
)
from kraft.regression.sources.documents import RunContext
from kraft.regression.sources.tables import TableMapping

TOOLS = Path(__file__).parents[2] / "data" / "benchmark_tools"
CONTEXT = RunContext(machine="m")
#: Each replaces each value of a file.
ODD: list[Any] = [None, True, -1.5, 10**400, 1e300, "", "x", "\ud800", [], [None], ["x", {}]]
ODD += [{}, {"a": [1]}]

Keys = tuple[Any, ...]


def small(value: Any) -> Any:
    """Return the same with at most two elements in each list."""
    if isinstance(value, list):
        return [small(each) for each in value[:2]]
    return {key: small(each) for key, each in value.items()} if isinstance(value, dict) else value


def places(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Yield the keys of every value in a JSON value."""
    yield keys
    inside = dict(enumerate(value)) if isinstance(value, list) else value
    for key, each in inside.items() if isinstance(inside, dict) else ():
        yield from places(each, (*keys, key))


def replaced(value: Any, keys: Keys, *new: Any) -> Any:
    """Return a copy with another value at a place, or with none."""
    if not keys:
        return new[0] if new else None
    value = copy.copy(value)
    if len(keys) == 1 and not new:
        del value[keys[0]]
    else:
        value[keys[0]] = replaced(value[keys[0]], keys[1:], *new)
    return value


def damaged(value: Any) -> Iterator[tuple[Keys, bytes]]:
    """Yield every file with one other or missing value."""
    for keys in places(value):
        yield keys, json.dumps(replaced(value, keys)).encode()
        for odd in ODD:
            yield keys, json.dumps(replaced(value, keys, odd)).encode()


def jmh() -> Any:
    given = json.loads((TOOLS / "jmh.json").read_text())
    sample = next(each for each in given if each["mode"] == "sample")
    for each in (given[0], sample):
        each["secondaryMetrics"] = dict(list(each["secondaryMetrics"].items())[:1])
    return [small(given[0]), small(sample)]


def google() -> Any:
    given = json.loads((TOOLS / "google-benchmark-repeated.json").read_text())
    rows = given["benchmarks"]
    aggregates = [row for row in rows if row["run_type"] == "aggregate"]
    errors = [row for row in rows if row.get("error_occurred")]
    return {
        "context": small(given["context"]),
        "benchmarks": [*rows[:2], *aggregates[:2], *errors[:1]],
    }


def asv(folder: Path) -> tuple[Any, Any, Path]:
    """Return a result, its `benchmarks.json`, and its path in a copy of the folder."""
    shutil.copytree(TOOLS / "asv", folder)
    path = next((folder / "bench-1").glob("83f5bba0*.json"))
    given = json.loads(path.read_text())
    kept = ("bench_lists.Fill.time_fill", "bench_lists.mem_list")
    given["results"] = {name: given["results"][name] for name in kept}
    known = json.loads((folder / "benchmarks.json").read_text())
    return given, {name: known[name] for name in kept}, path


def tolerates(data: bytes, form: str, keys: Keys, source: str = "x.json") -> None:
    try:
        read_runs(data, source, ResultReading(ResultFormat(form), CONTEXT))
    except BenchmarkFileError:
        pass
    except Exception as error:
        raise AssertionError(f"{form} with another value at {keys}: {data!r:.200}") from error


def test_any_value_of_a_file_may_be_damaged(tmp_path: Path) -> None:
    result, known, path = asv(tmp_path / "asv")
    files: list[tuple[str, Any, str]] = [
        ("jmh", jmh(), str(TOOLS / "jmh.json")),  # whose time is that of the run
        ("google-benchmark", google(), "x.json"),
        ("asv", result, str(path)),
    ]
    for form, given, source in files:
        read_runs(json.dumps(given).encode(), source, ResultReading(ResultFormat(form), CONTEXT))
        for keys, data in damaged(given):
            tolerates(data, form, keys, source)
    for keys, data in damaged(known):
        (tmp_path / "asv" / "benchmarks.json").write_bytes(data)
        tolerates(json.dumps(result).encode(), "asv", keys, str(path))


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        (
            "jmh",
            [{"benchmark": "a.B.c", "mode": "avgt", "params": ["size"]}],
            r"\[0\]\.params: expected an object, found \['size'\]",
        ),
        (
            "google-benchmark",
            {"context": {}, "benchmarks": [{"name": "a", "run_type": "mean"}]},
            r"benchmarks\[0\]\.run_type: expected iteration or aggregate, found 'mean'",
        ),
        (
            "asv",
            {"version": 2, "result_columns": [["result"]], "results": {}, "commit_hash": "a"},
            r"\$\.result_columns: expected names, found \[\['result'\]\]",
        ),
        (
            "asv",
            {
                "version": 2,
                "result_columns": ["result", "params"],
                "results": {"a.b": [[1], 5]},
                "commit_hash": "a",
            },
            r"results\.a\.b: expected a list of values for each parameter, found 5",
        ),
        (
            "asv",
            {
                "version": 2,
                "result_columns": ["result", "params"],
                "results": {"a.b": [None, [["0", "1"]] * 21]},
                "commit_hash": "a",
            },
            r"results\.a\.b: expected 2097152 results, .* found None",
        ),
        (
            "asv",
            {
                "version": 2,
                "result_columns": ["result"],
                "results": {"a.b": [[1]]},
                "commit_hash": "a",
                "date": 1e300,
            },
            r"\$\.date: expected milliseconds since 1970, found 1e\+300",
        ),
    ],
)
def test_a_damaged_value_is_named(form: str, content: Any, message: str) -> None:
    reading = ResultReading(ResultFormat(form), CONTEXT)
    with pytest.raises(BenchmarkFileError, match=rf"^x\.json: {message}"):
        documents_of(json.dumps(content).encode(), "x.json", reading)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b'[{"jmhVersion": "1.37",', "not JSON: Expecting property name"),
        (b"[" * 100_000, "nested too deep"),
        (b"{}", "not a pytest-benchmark result"),
        (b'{"machine_info": {}, "benchmarks": [', "truncated"),
    ],
    ids=range(5),
)
def test_an_unreadable_file_is_no_file_with_its_own_commit(
    data: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with converted([str(path)], ResultReading(context=CONTEXT)) as (files, problems):
        assert files == []
        assert [problem.path for problem in problems] == [str(path)]
        assert reason in problems[0].reason


def test_tabs_separate_the_columns_of_a_tsv() -> None:
    data = b"benchmark\tvalue\ttime\tmachine\nload, cold\t2\t2026-11-01\tm\n"
    (run,) = read_runs(data, "load.tsv", ResultReading(mapping=TableMapping()))
    assert (run.benchmark, run.machine) == (["load, cold"], "m-" + run.machine.rpartition("-")[2])


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = b"benchmark,value,time,machine,value\na,1,2026-11-01,m,2\n"
    with pytest.raises(BenchmarkFileError, match="'value' occurs twice in benchmark, value"):
        read_runs(data, "load.csv", ResultReading())
    table = pa.table([["a"], [1.0], [2.0]], names=["benchmark", "value", "value"])
    pq.write_table(table, tmp_path / "load.parquet")
    with pytest.raises(BenchmarkFileError, match="'value' occurs twice in benchmark, value"):
        read_runs((tmp_path / "load.parquet").read_bytes(), "load.parquet", ResultReading())


def test_a_unit_has_no_markup() -> None:
    with pytest.raises(InvalidRequestError, match="the unit '<b>' is not one of at most 24"):
        TableMapping.parse([], "<b>")
    assert TableMapping.parse([], "requests per page").unit == "requests per page"
