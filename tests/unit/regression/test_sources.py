"""Conversion of result files of other tools: files that the tools wrote, and damaged ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraft.errors import BenchmarkFileError, InvalidRequestError
from kraft.regression.points import BenchmarkMetric
from kraft.regression.runs import STATISTIC_COLUMNS, BenchmarkRun
from kraft.regression.sources.conversion import ResultFormat, ResultReading, format_of, read_runs
from kraft.regression.sources.documents import RunContext, scaled_unit
from kraft.regression.sources.tables import TableMapping

pa = pytest.importorskip("pyarrow", reason="needs kraft[regress]")

TOOLS = Path(__file__).parents[2] / "data" / "benchmark_tools"
ON_CI = ResultReading(context=RunContext(machine="ci-1"))
ASV = sorted((TOOLS / "asv" / "bench-1").glob("*-*.json"))


def read(path: Path, reading: ResultReading = ON_CI) -> list[BenchmarkRun]:
    return read_runs(path.read_bytes(), str(path), reading)


def point(run: BenchmarkRun, benchmark: str, **params: Any) -> dict[str, Any]:
    """Return the statistics and the metric of one benchmark of a run."""
    wanted = json.dumps(params, sort_keys=True, separators=(",", ":"))
    (at,) = [
        at for at in range(len(run)) if (run.benchmark[at], run.params[at]) == (benchmark, wanted)
    ]
    numbers = dict(zip(STATISTIC_COLUMNS, map(float, run.statistics[at]), strict=True))
    metric = BenchmarkMetric.of(run.unit[at], run.bigger_is_better[at])
    return {**numbers, "suite": run.suite[at], "rounds": run.rounds[at], "metric": metric}


def test_jmh_has_times_in_seconds_and_throughput_where_bigger_is_better() -> None:
    (run,) = read(TOOLS / "jmh.json")
    fill = point(run, "fill", mode="thrpt", size=100)
    assert fill["metric"] == BenchmarkMetric("ops/s", bigger_is_better=True)
    assert fill["suite"] == "bench.Lists"
    assert fill["mean"] == pytest.approx(109411.20246587614)  # JMH's score
    assert fill["rounds"] == 6
    total = point(run, "sum", mode="avgt", size=100)
    assert total["metric"] == BenchmarkMetric("s")
    given = json.loads((TOOLS / "jmh.json").read_text())[2]
    assert given["primaryMetric"]["scoreUnit"] == "us/op"
    assert total["mean"] == pytest.approx(given["primaryMetric"]["score"] * 1e-6)
    assert run.version == "JMH 1.37"
    assert run.machine.startswith("ci-1-")
    assert run.source == str(TOOLS / "jmh.json")


def test_jmh_sampling_has_its_percentiles_and_profilers_their_own_benchmarks() -> None:
    (run,) = read(TOOLS / "jmh.json")
    sampled = point(run, "sampled", mode="sample", size=100)
    assert sampled["median"] == pytest.approx(110e-9)
    assert sampled["rounds"] is None
    norm = point(run, "fill:gc.alloc.rate.norm", mode="thrpt", size=100)
    assert norm["metric"] == BenchmarkMetric("B")
    rate = point(run, "fill:gc.alloc.rate", mode="thrpt", size=100)
    assert rate["metric"] == BenchmarkMetric("MB/s", bigger_is_better=False)
    assert point(run, "sum:gc.count", mode="avgt", size=100)["mean"] == 0
    assert not [name for name in run.benchmark if ":p0" in name or ":p1" in name]
    assert run.problems == ()


def test_jmh_needs_the_name_of_the_machine() -> None:
    with pytest.raises(BenchmarkFileError, match=r"jmh\.json: .*--of-machine NAME"):
        read(TOOLS / "jmh.json", ResultReading())


def test_google_benchmark_has_repetitions_as_rounds_and_context_as_commit() -> None:
    (run,) = read(TOOLS / "google-benchmark-repeated.json", ResultReading())
    assert (run.project, run.branch) == ("lists", "main")
    assert run.commit == "4f1d0c2a9be7a3d05f6c11e2b7a8d9c0e1f2a3b4"
    assert run.machine.startswith("build-1-")
    fill = point(run, "fill", arg=100)
    rows = json.loads((TOOLS / "google-benchmark-repeated.json").read_text())["benchmarks"]
    times = [
        row["real_time"] * 1e-6
        for row in rows
        if (row["run_name"], row["run_type"]) == ("fill/100", "iteration")
    ]
    assert len(times) == 3
    assert fill["min"] == pytest.approx(min(times))
    assert fill["mean"] == pytest.approx(sum(times) / 3)
    assert fill["rounds"] == 3
    assert point(run, "fill:items_per_second", arg=100)["metric"] == BenchmarkMetric(
        "items/s", bigger_is_better=True
    )
    assert point(run, "join:length", threads=2)["metric"] == BenchmarkMetric("")
    assert point(run, "join:cpu_time", threads=2)["metric"] == BenchmarkMetric("s")


def test_google_benchmark_counts_an_error_and_reads_single_runs() -> None:
    (run,) = read(TOOLS / "google-benchmark-single.json", ResultReading())
    assert (run.problems, run.without_value) == ((), 1)
    assert "broken" not in run.benchmark
    assert point(run, "fill", arg=10000)["median"] == pytest.approx(12.268936055468977e-6)


def test_google_benchmark_reads_aggregates_alone() -> None:
    given = json.loads((TOOLS / "google-benchmark-repeated.json").read_text())
    given["benchmarks"] = [row for row in given["benchmarks"] if row["run_type"] == "aggregate"]
    assert len(given["benchmarks"]) > 3
    (run,) = read_runs(json.dumps(given).encode(), "only.json", ResultReading())
    (median,) = [
        row["real_time"] * 1e-6 for row in given["benchmarks"] if row["name"] == "fill/100_median"
    ]
    assert point(run, "fill", arg=100)["median"] == pytest.approx(median)


@pytest.mark.parametrize(
    ("name", "named", "params"),
    [
        ("fill<std::pair<int, a/b>>/8/64", "fill<std::pair<int, a/b>>", {"arg0": 8, "arg1": 64}),
        ("fill/size:5/iterations:3/manual_time", "fill", {"size": 5}),
        ("group/fill/7/threads:4", "group/fill", {"arg": 7, "threads": 4}),
    ],
)
def test_google_benchmark_names(name: str, named: str, params: dict[str, Any]) -> None:
    row = {"name": name, "run_name": name, "real_time": 2.0, "cpu_time": 1.0, "time_unit": "ms"}
    given = {"context": {"date": "2026-11-01T10:00:00"}, "benchmarks": [row]}
    (run,) = read_runs(json.dumps(given).encode(), "x.json", ResultReading())
    assert point(run, named, **params)["mean"] == 0.002


def test_asv_has_its_parameters_units_and_samples() -> None:
    (first,), (second,) = (read(path, ResultReading()) for path in ASV)
    assert first.commit == "793ff7fde69c0fb00bfd5ef3ef724e21075b35ff"
    fill = point(first, "Fill.time_fill", kind="text", size=100)
    assert fill["median"] == pytest.approx(0.00018314099997951416)
    assert fill["suite"] == "bench_lists"
    assert point(first, "mem_list")["metric"] == BenchmarkMetric("B")
    assert point(first, "track_speed")["metric"] == BenchmarkMetric("ops/s", bigger_is_better=True)
    assert point(first, "track_share")["metric"] == BenchmarkMetric("percent")
    assert (first.problems, first.without_value) == ((), 1)  # time_broken fails
    sampled = point(second, "Fill.time_fill", kind="text", size=100)
    assert sampled["rounds"] == 10  # of asv run --record-samples
    assert sampled["median"] == pytest.approx(5.311820606094085e-05)
    assert first.commit_time_us == 1793613600000_000


def test_asv_results_of_another_day_are_another_run_and_old_versions_none() -> None:
    given = json.loads(ASV[0].read_text())
    names = given["result_columns"]
    given["results"]["bench_lists.mem_list"][names.index("started_at")] += 86_400_000
    given["results"]["bench_lists.track_share"][names.index("version")] = "older"
    runs = read_runs(json.dumps(given).encode(), str(ASV[0]), ResultReading())
    assert [run.benchmark[-1] for run in runs] == ["track_speed", "mem_list"]
    assert [len(run) for run in runs] == [5, 1]
    assert len({run.run_id for run in runs}) == 2


def test_a_run_has_one_id_and_another_commit_another() -> None:
    at_commit = ResultReading(context=RunContext(machine="ci-1", commit="a" * 40))
    ids = [read(TOOLS / "jmh.json", reading)[0].run_id for reading in (ON_CI, ON_CI, at_commit)]
    assert ids[0] == ids[1] != ids[2]


def table(text: str, *columns: str, **more: Any) -> list[BenchmarkRun]:
    mapping = TableMapping.parse(columns, **more)
    return read_runs(text.encode(), "load.csv", ResultReading(mapping=mapping))


CSV = """at,test,ms,host,sha,size
2026-11-01T10:00:00,read,1.5,m1,aaaa,10
2026-11-01T10:00:00,read,2.5,m1,aaaa,10
2026-11-01T10:00:00,"write, all",4,m1,aaaa,10
1793700000,read,3,m1,bbbb,10
"""
COLUMNS = ("benchmark=test", "value=ms", "time=at", "machine=host", "commit=sha", "param.size=size")


def test_csv_rows_are_grouped_to_runs_and_rounds() -> None:
    first, second = table(CSV, *COLUMNS, unit="ms")
    assert (first.commit, second.commit) == ("aaaa", "bbbb")
    read = point(first, "read", size=10)
    assert (read["mean"], read["rounds"]) == (0.002, 2)
    assert point(first, "write, all", size=10)["mean"] == 0.004
    assert second.time_us == 1793700000_000_000
    assert second.values == [None]


def test_csv_units_and_directions() -> None:
    (run,) = table(
        "benchmark,value,unit,time,machine\na,5,ops/ms,2026-11-01,m\nb,3,MB,2026-11-01,m\n"
    )
    assert point(run, "a")["mean"] == 5000
    assert point(run, "a")["metric"] == BenchmarkMetric("ops/s", bigger_is_better=True)
    (run,) = table(
        "benchmark,value,time,machine\na,5,2026-11-01,m\n", unit="score", bigger_is_better=True
    )
    assert point(run, "a")["metric"] == BenchmarkMetric("score", bigger_is_better=True)


def test_parquet_gives_what_csv_gives(tmp_path: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet as pq

    path = tmp_path / "load.parquet"
    pq.write_table(pyarrow.csv.read_csv(pa.BufferReader(CSV.encode())), path)
    reading = ResultReading(mapping=TableMapping.parse(COLUMNS, "ms"))
    of_parquet = read(path, reading)
    of_csv = table(CSV, *COLUMNS, unit="ms")
    assert [run.run_id for run in of_parquet] == [run.run_id for run in of_csv]
    assert [run.time_us for run in of_parquet] == [run.time_us for run in of_csv]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_parquet_file_is_read_without_threads_that_could_abort_the_exit(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"benchmark": pa.array([], "str"), "value": pa.array([], "f8")}), path)
    program = """
import os, sys
from pathlib import Path
import pyarrow.parquet
from kraft.errors import BenchmarkFileError
from kraft.regression.sources.conversion import ResultReading, read_runs
from kraft.regression.sources.documents import RunContext
threads = len(os.listdir("/proc/self/task"))
data = Path(sys.argv[1]).read_bytes()
try:
    read_runs(data, sys.argv[1], ResultReading(context=RunContext(time="2026-11-21", machine="m")))
except BenchmarkFileError as error:
    print(error, len(os.listdir("/proc/self/task")) - threads, sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=300
    )
    said, new_threads = done.stdout.splitlines()
    assert "expected rows" in said
    assert new_threads == "0"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column for benchmark: name it with --column benchmark=COLUMN; its columns are"),
        ("benchmark,value,time\na,1,2026-11-01\n", "no column for machine: .*or --of-machine"),
        ("benchmark,value,time,machine\n", "expected rows"),
        (
            "benchmark,value,time,machine\na,1,2026-11-01,m\na,fast,2026-11-01,m\n",
            r"load\.csv: line 3, column value: expected a number, found 'fast'",
        ),
        ("benchmark,value,time,machine\na,1,soon,m\n", "line 2, column time: expected a time"),
        ("benchmark,value,time,machine\na,1,2026-11-01\n", "line 2: expected 4 columns"),
        ("benchmark,value,time,machine\n,1,2026-11-01,m\n", "column benchmark: expected a name"),
        ('benchmark,value,time,machine\n"a,1,2026-11-01,m\n', "line 2: unexpected end of data"),
    ],
)
def test_a_bad_csv_names_its_line_and_column(text: str, message: str) -> None:
    with pytest.raises(BenchmarkFileError, match=message):
        table(text)


def test_a_missing_column_is_named_with_those_of_the_file() -> None:
    with pytest.raises(BenchmarkFileError, match=r"the column 'sec' for value; its columns are at"):
        table(CSV, "value=sec")
    with pytest.raises(InvalidRequestError, match=r"'speed=x' is not ROLE=COLUMN; roles are"):
        TableMapping.parse(["speed=x"])
    with pytest.raises(InvalidRequestError, match=r"role value has two columns: a, b"):
        TableMapping.parse(["value=a", "value=b"])


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("jmh", [], "expected JMH's list of results, found none"),
        ("jmh", [{"mode": "thrpt"}], r"\[0\]\.benchmark: expected a text, found nothing"),
        (
            "jmh",
            [{"benchmark": "a.B.c", "mode": "avgt", "primaryMetric": {"scoreUnit": 3}}],
            r"\[0\]\.primaryMetric\.scoreUnit: expected a text, found 3",
        ),
        ("google-benchmark", {"benchmarks": []}, r"\$\.context: expected an object"),
        (
            "google-benchmark",
            {"context": {}, "benchmarks": [{"name": "a", "time_unit": "fortnight"}]},
            r"benchmarks\[0\]\.time_unit: expected ns, us, ms or s, found 'fortnight'",
        ),
        ("asv", {"version": 1}, "version: expected 2 .*, found 1"),
        (
            "asv",
            {"version": 2, "result_columns": ["result"], "results": {"a.b": 4}, "commit_hash": "a"},
            r"results\.a\.b: expected a list, found 4",
        ),
        ("asv", [1], "expected an object of asv"),
    ],
)
def test_a_bad_file_is_named_with_the_place_and_what_was_expected(
    form: str, content: Any, message: str
) -> None:
    reading = ResultReading(ResultFormat(form), RunContext(machine="m"))
    with pytest.raises(BenchmarkFileError, match=rf"^x\.json: {message}"):
        read_runs(json.dumps(content).encode(), "x.json", reading)


@pytest.mark.parametrize("form", ["jmh", "google-benchmark", "asv", "csv", "parquet"])
@pytest.mark.parametrize(
    "data", [b"", b"{", b"[[[", b"\xff\xfe", b"[" * 100_000, b"PAR1xx"], ids=range(6)
)
def test_damaged_bytes_are_an_error_of_the_file(form: str, data: bytes) -> None:
    reading = ResultReading(ResultFormat(form), RunContext(machine="m"))
    with pytest.raises(BenchmarkFileError, match=r"^x\.json: "):
        read_runs(data, "x.json", reading)


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (TOOLS / "jmh.json", ResultFormat.JMH),
        (TOOLS / "google-benchmark-single.json", ResultFormat.GOOGLE_BENCHMARK),
        (ASV[0], ResultFormat.ASV),
        (TOOLS.parent / "pytest-benchmark" / "5.3.1.json", ResultFormat.PYTEST_BENCHMARK),
    ],
)
def test_the_format_is_detected_also_without_the_tools_layout(
    path: Path, form: ResultFormat
) -> None:
    data = path.read_bytes()
    assert format_of(data, str(path)) is form
    compact = json.dumps(json.loads(data), sort_keys=True).encode()
    assert format_of(compact, "x.json") is form


@pytest.mark.parametrize(
    ("unit", "stored"),
    [
        ("us/op", (1e-6, "s")),
        ("ops/ms", (1000.0, "ops/s")),
        ("MB/sec", (1.0, "MB/s")),
        ("seconds", (1.0, "s")),
        ("bytes", (1.0, "B")),
        ("counts", (1.0, "")),
        ("requests per page", (1.0, "requests_per_page")),
    ],
)
def test_units(unit: str, stored: tuple[float, str]) -> None:
    factor, name = scaled_unit(unit)
    assert (factor, name) == (pytest.approx(stored[0]), stored[1])
