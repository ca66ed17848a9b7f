"""Reading the files of every version of pytest-benchmark."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.errors import BenchmarkFileError
from kraft.regression import report_text
from kraft.regression.points import POINTS, SeriesKey
from kraft.regression.results import read_run
from kraft.regression.runs import BenchmarkRun, points_table
from tests.harness.result_documents import BEGIN, benchmark, document

FILES = Path(__file__).parents[2] / "data" / "pytest-benchmark"
VERSIONS = ("3.0.0", "3.1.1", "3.2.3", "3.4.1", "4.0.0", "5.0.0", "5.3.1")


def run_of(content: Any, source: str = "run.json", **given: Any) -> BenchmarkRun:
    data = content if isinstance(content, bytes) else json.dumps(content, indent=4).encode()
    return read_run(data, source, **given)


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_files_of_each_version_become_the_same_series(version: str) -> None:
    path = FILES / f"{version}.json"
    run = read_run(path.read_bytes(), str(path))

    assert run.problems == ()
    assert run.version == version
    assert run.suite == ["test_sample.py"] * 4
    assert run.benchmark == ["TestSized::test_sum"] * 2 + [
        "test_plain",
        "test_odd",
    ]
    # 3.0.0 wrote no parameters, only pytest's id of them.
    sized = ['{"param":"1000"}', '{"param":"10000"}']
    odd = '{"param":"odd0"}'
    if version != "3.0.0":
        sized = ['{"partitions":1000}', '{"partitions":10000}']
        odd = '{"odd":"UNSERIALIZABLE[<test_sample.Odd object>]","param":"odd0"}'
    assert run.params == [*sized, "{}", odd]
    assert run.group == [None, None, "plain", None]
    assert run.instructions == [None, None, None if version == "3.0.0" else 12345.0, None]
    assert run.commit == "8b3de1f0c2a94d6d9c41a3a9f2f4ab6f5c1f7e11"
    assert run.branch is None
    assert run.project == (None if version == "3.0.0" else "sample")
    assert run.dirty is False
    assert run.machine.startswith("build-7-")

    table = pa.Table.from_batches([run.batch])
    assert table.schema.equals(POINTS)
    for row in table.to_pylist():
        assert row["rounds"] == len(row["values"]) == 3
        assert row["min"] == min(row["values"])
        assert math.isclose(row["total"], sum(row["values"]))
        assert math.isclose(row["ops"], 1 / row["mean"])
        assert row["time"].year == 2026
    assert json.loads(table["machine_info"][0].as_py())["node"] == "build-7"


def test_a_run_saved_twice_by_pytest_benchmark_is_one_run() -> None:
    # --benchmark-json and --benchmark-save wrote one run; the second has another datetime and no
    # rounds.
    whole, saved = (
        run_of((FILES / name).read_bytes()) for name in ("5.3.1.json", "5.3.1-saved.json")
    )
    assert whole.time_us != saved.time_us
    assert whole.run_id == saved.run_id
    assert (whole.has_values, saved.has_values) == (True, False)
    assert saved.batch["values"].null_count == len(saved)


def test_a_run_is_known_by_what_it_measured() -> None:
    values = {"test_a": [1.5, 2.0], "test_b": [1e-05]}
    content = document(at=0, values=values)
    run_id = run_of(content).run_id

    assert run_of(json.dumps(content).encode(), "elsewhere.json").run_id == run_id
    assert run_of(document(at=0, values=values, keep_values=False)).run_id == run_id
    assert run_of({**content, "benchmarks": content["benchmarks"][::-1]}).run_id == run_id
    assert run_of(content, ignore_node=True).run_id == run_id
    assert run_of(document(at=1, values=values)).run_id != run_id
    assert run_of(document(at=0, values=values, commit="c1")).run_id != run_id
    assert run_of(document(at=0, values=values, node="build-8")).run_id != run_id
    assert run_of(document(at=0, values={**values, "test_b": [2e-05]})).run_id != run_id


def test_machines_are_distinguished_by_names_unless_these_are_ignored() -> None:
    one, other = (document(at=0, values={"t": [1.0]}, node=node) for node in ("a-1", "a-2"))
    assert run_of(one).machine.startswith("a-1-amd-epyc-7763-64-core-")
    assert run_of(one).machine != run_of(other).machine
    assert run_of(one, ignore_node=True).machine == run_of(other, ignore_node=True).machine
    assert "a-1" not in run_of(one, ignore_node=True).machine

    one["machine_info"]["release"] = "6.2.0"  # a kernel update does not make another machine
    one["machine_info"]["python_version"] = "3.11.9"
    before = document(at=0, values={"t": [1.0]}, node="a-1")
    assert run_of(one).machine == run_of(before).machine
    for change in ({"python_version": "3.12.1"}, {"python_implementation": "PyPy"}):
        changed = {**one, "machine_info": {**one["machine_info"], **change}}
        assert run_of(changed).machine != run_of(one).machine


@pytest.mark.parametrize(
    ("fullname", "given", "expected"),
    [
        ("a/b.py::test_x", {}, ("a/b.py", "test_x", "{}")),
        ("b.py::A::B::test_x[1-y]", {}, ("b.py", "A::B::test_x", '{"param":"1-y"}')),
        ("b.py::A::()::test_x", {}, ("b.py", "A::test_x", "{}")),
        ("b.py::test_x[a::b[c]]", {}, ("b.py", "test_x", '{"param":"a::b[c]"}')),
        (
            "b.py::test_x[1-2]",
            {"params": {"z": 1, "a": {"q": [1.5, None]}}},
            ("b.py", "test_x", '{"a":{"q":[1.5,null]},"z":1}'),
        ),
        ("test_x", {"param": "7"}, ("", "test_x", '{"param":"7"}')),
        ("b.py::test_x[ü]", {"params": {"n": "ü"}}, ("b.py", "test_x", '{"n":"ü"}')),
    ],
)
def test_a_full_name_has_suite_benchmark_and_parameters(
    fullname: str, given: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    content = document(at=0, values={})
    content["benchmarks"] = [benchmark(fullname, [1.0], **given)]
    run = run_of(content)
    assert (run.suite[0], run.benchmark[0], run.params[0]) == expected


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2026-01-01T02:00:00", 2.0),
        ("2026-01-01T02:00:00.500000", 2.0 + 0.5 / 3600),
        ("2026-01-01T02:00:00+00:00", 2.0),
        ("2026-01-01T02:00:00+02:00", 0.0),
        ("2026-01-01T02:00:00Z", 2.0),
    ],
)
def test_times_are_utc_with_or_without_a_zone(text: str, hours: float) -> None:
    content = {**document(at=0, values={"t": [1.0]}), "datetime": text}
    assert run_of(content).time_us == round((BEGIN.timestamp() + hours * 3600) * 1e6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"min": math.nan}, "its min is NaN or infinite"),
        ({"mean": math.inf}, "its mean is NaN or infinite"),
        ({"min": None}, "its min is NaN or infinite"),
        ({"min": 0.0}, "its min is 0.0 seconds"),
        ({"mean": -1.0}, "its mean is -1.0 seconds"),
        ({"data": [1.0, math.nan]}, "round 1 is NaN or infinite"),
    ],
)
def test_invalid_times_omit_only_their_benchmark(change: dict[str, Any], said: str) -> None:
    content = document(at=0, values={"test_bad": [1.0, 2.0], "test_good": [3.0]})
    content["benchmarks"][0]["stats"].update(change)
    run = run_of(content, "dir/run.json")
    assert run.benchmark == ["test_good"]
    assert [(problem.path, problem.reason) for problem in run.problems] == [
        ("dir/run.json", f"bench.py::test_bad: {said}")
    ]


def test_a_duplicate_benchmark_is_used_once() -> None:
    content = document(at=0, values={})
    content["benchmarks"] = [benchmark("b.py::t", [1.0]), benchmark("b.py::t", [2.0])]
    run = run_of(content)
    assert run.values == [[1.0]]
    assert "duplicate in this run; the first one is used" in run.problems[0].reason


def test_a_run_without_benchmarks_is_a_problem() -> None:
    run = run_of(document(at=0, values={}))
    assert len(run) == 0
    assert run.problems[0].reason == "the file contains no benchmarks"


def test_a_missing_statistic_is_null() -> None:
    content = document(at=0, values={"t": [2.0]})
    for name in ("ops", "iqr", "total", "data", "iterations"):
        del content["benchmarks"][0]["stats"][name]
    (row,) = run_of(content).batch.to_pylist()
    assert row["ops"] == 0.5
    assert [row[name] for name in ("iqr", "total", "values", "iterations")] == [None] * 4


WHOLE = json.dumps(document(at=0, values={"test_a": [1.0]}), indent=4).encode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON: Input data was truncated"),
        (WHOLE[: len(WHOLE) // 2], "not JSON: Input data was truncated"),
        (WHOLE[:-1], "not JSON: Input data was truncated"),
        (b"\x00" * 100, "not JSON"),
        (b"\xff\xfe{\x00}\x00", "not JSON"),
        (b'{"extra": ' + b"[" * 100_000, "JSON cannot be read: brackets are nested too deep"),
        (b"NaN", "not a pytest-benchmark result"),
        (b"[1, 2]", "not a pytest-benchmark result"),
        (b'{"benchmarks": []}', "not a pytest-benchmark result"),
        (b'{"context": {}, "benchmarks": [{"name": "BM_x"}]}', "not a pytest-benchmark result"),
        (WHOLE.replace(b'"min": 1.0', b'"min": "1.0"'), r"\$\.benchmarks\[0\]\.stats\.min"),
        (WHOLE.replace(b"2026-01-01T00:00:00", b"yesterday"), "is not a time"),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else None,
)
def test_an_invalid_file_is_rejected_with_its_path(data: bytes, said: str) -> None:
    with pytest.raises(BenchmarkFileError, match=rf"^dir/x\.json: .*{said}"):
        read_run(data, "dir/x.json")


def test_every_truncation_is_rejected() -> None:
    for length in range(0, len(WHOLE), 7):
        with pytest.raises(BenchmarkFileError, match=r"^x\.json: not JSON"):
            read_run(WHOLE[:length], "x.json")


def test_nan_in_an_unused_field_is_accepted() -> None:
    content = document(at=0, values={"t": [1.0]})
    content["benchmarks"][0]["extra_info"] = {"ratio": math.nan}
    run = run_of(content)
    assert run.problems == ()
    assert run.extra_info == ['{"ratio":null}']


def test_instructions_are_numbers_only() -> None:
    for count, expected in [(5, 5.0), (2.5, 2.5), (True, None), ("7", None), (None, None)]:
        content = document(at=0, values={"t": [1.0]})
        content["benchmarks"][0]["extra_info"] = {"instructions": count}
        assert run_of(content).instructions == [expected]


def test_runs_make_one_table_with_dictionaries_per_run() -> None:
    runs = [
        run_of(document(at=hour, values={"a": [1.0, 2.0], "b": [3.0]}, keep_values=hour != 1))
        for hour in range(3)
    ]
    table = points_table(runs)
    assert len(table["machine_info"].combine_chunks().dictionary) == 1
    assert len(table["run_id"].combine_chunks().dictionary) == 3
    plain = points_table(runs, plain=True)
    assert plain.schema.equals(POINTS)
    assert plain.equals(table.cast(POINTS))
    assert plain["values"].to_pylist() == [[1.0, 2.0], [3.0], None, None, [1.0, 2.0], [3.0]]
    assert runs[0].only([1]).batch.to_pylist() == runs[0].batch.to_pylist()[1:]


# Files with arbitrary content

DEEP = b"[" * 100_000


@pytest.mark.parametrize("name", ["machine_info", "commit_info", "params", "extra_info", "other"])
@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_nested_brackets_are_a_bad_file(name: str, opening: bytes, closing: bytes) -> None:
    content = document(at=0, values={"test_a": [1.0]})
    (content if name in content else content["benchmarks"][0])[name] = "HERE"
    data = json.dumps(content).encode()
    for depth in (100, *range(850, 1010, 7), 3_000, 100_000):
        nested = opening * depth + b"1" + closing * depth
        for changed in (data, data.replace(b'"version": ', b'"extra": NaN, "version": ')):
            run_or_refusal(changed.replace(b'"HERE"', nested))


def test_a_file_of_opening_brackets_is_rejected_with_its_path() -> None:
    with pytest.raises(BenchmarkFileError, match=r"^run\.json: "):
        read_run(DEEP, "run.json")


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("datetime", "0001-01-01T00:00:00+23:59"),
        ("datetime", "9999-12-31T23:59:59-23:59"),
        ("version", "\udc80"),
        ("benchmarks.0.fullname", "\ud800"),
        ("benchmarks.0.extra_info", {"instructions": 10**400}),
        ("benchmarks.0.params", {"n": 10**400}),
        ("benchmarks.0.params", {"n": 'UNSERIALIZABLE[<a at 0x1>"\\'}),
        ("benchmarks.0.stats.total", 10**400),
        ("benchmarks.0.stats.min", 1e308),
        ("machine_info.cpu", {"count": 10**400, "brand_raw": ["x"]}),
        ("commit_info.time", "0001-01-01T00:00:00+23:59"),
    ],
)
def test_out_of_range_values_are_a_bad_file(change: str, value: Any) -> None:
    content: Any = document(at=0, values={"test_a": [1.0]})
    *path, last = change.split(".")
    place = content
    for name in path:
        place = place[int(name) if name.isdecimal() else name]
    place[last] = value
    for extra in ({}, {"not_finite": float("nan")}):
        run_or_refusal(json.dumps({**content, **extra}).encode())


def run_or_refusal(data: bytes) -> None:
    """Check that the file is rejected, or that its points convert to Arrow."""
    try:
        run = read_run(data, "run.json")
    except BenchmarkFileError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert said.startswith("run.json: ")
        return
    batch = run.batch
    batch.validate(full=True)
    if len(run):
        assert report_text.iso_time(run.time_us)
        for key in zip(run.suite, run.benchmark, run.params, strict=True):
            assert SeriesKey(*key, run.machine).name


_JSON: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(
        ["2026-01-01T00:00:00", "0001-01-01T00:00:00+10:00", "a::b[1]", "UNSERIALIZABLE["]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
_PLACES = (
    "benchmarks",
    "machine_info",
    "commit_info",
    "datetime",
    "version",
    "benchmarks.0",
    "benchmarks.0.fullname",
    "benchmarks.0.stats",
    "benchmarks.0.params",
    "benchmarks.0.param",
    "benchmarks.0.extra_info",
    "benchmarks.0.stats.min",
    "benchmarks.0.stats.data",
    "benchmarks.0.stats.rounds",
    "machine_info.cpu",
    "machine_info.python_version",
    "commit_info.id",
    "commit_info.time",
)


@given(st.dictionaries(st.sampled_from(_PLACES), _JSON, max_size=3))
@settings(max_examples=400, deadline=None)
def test_any_json_at_any_place_is_a_run_or_a_bad_file(changes: dict[str, Any]) -> None:
    content: Any = document(at=0, values={"test_a": [1.0, 2.0]})
    for change, value in sorted(changes.items(), reverse=True):
        *path, last = change.split(".")
        place = content
        try:
            for name in path:
                place = place[int(name) if name.isdecimal() else name]
            place[int(last) if last.isdecimal() else last] = value
        except (TypeError, KeyError, IndexError):
            continue
    run_or_refusal(json.dumps(content).encode())


@given(st.binary(max_size=200), st.integers(0, 2000), st.integers(0, 200))
@settings(max_examples=400, deadline=None)
def test_any_bytes_anywhere_are_a_run_or_a_bad_file(junk: bytes, at: int, cut: int) -> None:
    data = json.dumps(document(at=0, values={"test_a": [1.0, 2.0]})).encode()
    run_or_refusal(data[:at] + junk + data[at + cut :])
    run_or_refusal(junk)
