"""The store of results: each run once, bad input reported and skipped, never half written."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from kraft.errors import BenchmarkFileError, StorageError
from kraft.regression.points import POINTS
from kraft.spark import store_manifest
from kraft.spark.store import (
    IngestReport,
    StrictIngestError,
    ingest,
    list_runs,
    open_store,
    read_points,
    read_table,
)
from kraft.spark.store_files import bucket_of, read_files
from kraft.spark.store_manifest import CommitConflictError, commit, load_state
from tests.harness.result_documents import document, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def hourly(folder: Path, count: int, first: int = 0, **given: Any) -> list[Path]:
    """Write runs of two benchmarks, one per hour."""
    return [
        save(
            folder / f"{hour:04}.json",
            document(
                at=hour,
                commit=f"c{hour}",
                **{"values": {"test_a": [1.0 + hour, 9.0], "test_b[7]": [2.0]}, **given},
            ),
        )
        for hour in range(first, first + count)
    ]


def snapshot(root: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def reasons(report: IngestReport) -> list[tuple[str, str]]:
    return [(os.path.basename(path), reason) for path, reason in report.problems]


def test_runs_are_stored_once_however_often_they_are_given(tmp_path: Path) -> None:
    runs, store = tmp_path / "runs", tmp_path / "store"
    hourly(runs, 3)
    report = ingest(None, [runs], store)
    assert (report.runs_added, report.points_added, report.duplicate_runs) == (3, 6, 0)
    before = snapshot(store)

    (runs / "0001.json").rename(runs / "renamed.json")
    document_text = json.dumps(json.loads((runs / "0002.json").read_text()))
    (runs / "0002.json").write_text(document_text)  # reformatted
    report = ingest(None, [runs, runs / "*.json"], store)

    assert (report.files, report.runs_added, report.duplicate_runs) == (3, 0, 3)
    assert report.problems == []
    assert snapshot(store) == before


def test_stored_points_read_back_unchanged(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 3)
    ingest(None, [tmp_path / "runs"], tmp_path / "store")
    table = read_table(tmp_path / "store")
    assert table.schema.equals(POINTS)
    assert [
        (row["benchmark"], row["params"], row["commit"], row["values"])
        for row in table.sort_by([("benchmark", "ascending"), ("time", "ascending")]).to_pylist()
    ] == [
        ("test_a", "{}", "c0", [1.0, 9.0]),
        ("test_a", "{}", "c1", [2.0, 9.0]),
        ("test_a", "{}", "c2", [3.0, 9.0]),
        ("test_b", '{"param":"7"}', "c0", [2.0]),
        ("test_b", '{"param":"7"}', "c1", [2.0]),
        ("test_b", '{"param":"7"}', "c2", [2.0]),
    ]
    some = read_table(
        tmp_path / "store", columns=["min"], filters=ds.field("benchmark") == "test_a"
    )
    assert some.to_pydict() == {"min": [1.0, 2.0, 3.0]}
    assert [run.commit for run in list_runs(tmp_path / "store")] == ["c0", "c1", "c2"]


def test_every_series_is_complete_and_sorted_in_one_bucket(tmp_path: Path) -> None:
    values = {f"test_{number}": [1.0] for number in range(40)}
    hourly(tmp_path / "runs", 4, values=values)
    for hour in range(4):  # four data files
        ingest(None, [tmp_path / "runs" / f"{hour:04}.json"], tmp_path / "store")
    state = open_store(tmp_path / "store")
    assert len(state.files) == 4
    seen: Counter[str] = Counter()
    for bucket in range(state.buckets):
        table = read_files(state, bucket=bucket, columns=["benchmark", "machine", "time"])
        for name, machine in zip(table["benchmark"], table["machine"], strict=True):
            key = ("bench.py", name.as_py(), "{}", machine.as_py())
            assert bucket_of(*key, buckets=state.buckets) == bucket
            seen[name.as_py()] += 1
    assert seen == dict.fromkeys(values, 4)


def test_spark_reads_and_writes_the_same_store(spark: SparkSession, tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 12)
    (tmp_path / "runs" / "bad.json").write_text("{")
    shares: list[float] = []
    report = ingest(spark, [tmp_path / "runs"], tmp_path / "by-spark", on_progress=shares.append)
    alone = ingest(None, [tmp_path / "runs"], tmp_path / "alone")

    assert (report.runs_added, reasons(report)) == (12, reasons(alone))
    assert len(open_store(tmp_path / "by-spark").files) > 1
    order = [("time", "ascending"), ("benchmark", "ascending")]
    expected = read_table(tmp_path / "alone").sort_by(order)
    assert read_table(tmp_path / "by-spark").sort_by(order).equals(expected)
    points = read_points(spark, tmp_path / "by-spark").orderBy("time", "benchmark")
    assert points.toArrow().to_pylist() == expected.to_pylist()
    assert ingest(spark, [tmp_path / "runs"], tmp_path / "by-spark").duplicate_runs == 12


# Bad input: reported with its path and skipped, or rejected


BAD = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "not JSON": lambda path: path.write_bytes(b"\x89PNG\r\n"),
    "foreign": lambda path: path.write_text('{"context": {}, "benchmarks": []}'),
    "a list": lambda path: path.write_text("[]"),
    "unreadable": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "no benchmarks": lambda path: save(path, document(at=99, values={})),
}


@pytest.mark.parametrize("bad", BAD)
def test_one_bad_file_is_reported_and_the_rest_is_stored(tmp_path: Path, bad: str) -> None:
    hourly(tmp_path / "runs", 20)
    BAD[bad](tmp_path / "runs" / "0007.json")
    report = ingest(None, [tmp_path / "runs"], tmp_path / "store")
    assert [path for path, _ in reasons(report)] == ["0007.json"]
    assert report.runs_added == 19
    assert read_table(tmp_path / "store").num_rows == 38


@pytest.mark.parametrize("bad", BAD)
def test_strict_rejects_all_and_leaves_the_store_untouched(tmp_path: Path, bad: str) -> None:
    hourly(tmp_path / "old", 2)
    hourly(tmp_path / "runs", 5, first=50)
    BAD[bad](tmp_path / "runs" / "0053.json")
    ingest(None, [tmp_path / "old"], tmp_path / "store")
    before = snapshot(tmp_path / "store")

    with pytest.raises(StrictIngestError, match=r"0053\.json") as refused:
        ingest(None, [tmp_path / "runs"], tmp_path / "store", strict=True)
    assert len(refused.value.problems) == 1
    assert snapshot(tmp_path / "store") == before

    with pytest.raises(StrictIngestError):
        ingest(None, [tmp_path / "runs"], tmp_path / "new", strict=True)
    assert not (tmp_path / "new").exists()


def test_nan_and_zero_times_omit_only_their_benchmark(tmp_path: Path) -> None:
    content = document(at=0, values={"test_nan": [1.0], "test_zero": [0.0], "test_good": [1.0]})
    content["benchmarks"][0]["stats"]["mean"] = float("nan")
    save(tmp_path / "run.json", content)
    report = ingest(None, [tmp_path / "run.json"], tmp_path / "store")
    assert reasons(report) == [
        ("run.json", "bench.py::test_zero: its min is 0.0 seconds"),
        ("run.json", "bench.py::test_nan: its mean is NaN or infinite"),
    ] or sorted(reasons(report)) == [
        ("run.json", "bench.py::test_nan: its mean is NaN or infinite"),
        ("run.json", "bench.py::test_zero: its min is 0.0 seconds"),
    ]
    assert read_table(tmp_path / "store")["benchmark"].to_pylist() == ["test_good"]


def test_a_missing_path_is_reported_and_no_file_is_an_error(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 1)
    report = ingest(None, [tmp_path / "runs", tmp_path / "gone"], tmp_path / "store")
    assert [path for path, _ in report.problems] == [str(tmp_path / "gone")]
    (tmp_path / "hollow").mkdir()
    with pytest.raises(BenchmarkFileError, match="hollow"):
        ingest(None, [tmp_path / "hollow"], tmp_path / "store")


def test_of_duplicates_in_one_ingest_the_copy_with_rounds_is_stored(
    tmp_path: Path, spark: SparkSession
) -> None:
    for name, keep in [("a", False), ("b", True), ("c", False), ("d", True)]:
        hourly(tmp_path / "runs" / name, 3, keep_values=keep)
    for session, store in [(None, tmp_path / "one"), (spark, tmp_path / "two")]:
        report = ingest(session, [tmp_path / "runs"], store)
        assert (report.runs_added, report.points_added, report.duplicate_runs) == (3, 6, 9)
        table = read_table(store)
        assert table.num_rows == 6
        assert table["values"].null_count == 0
        assert all("/b/" in run.source for run in list_runs(store))


def test_a_copy_with_rounds_replaces_a_stored_one_without(tmp_path: Path) -> None:
    hourly(tmp_path / "bare", 3, keep_values=False)
    hourly(tmp_path / "full", 1, first=1)
    ingest(None, [tmp_path / "bare"], tmp_path / "store")
    report = ingest(None, [tmp_path / "full"], tmp_path / "store")
    assert (report.runs_added, report.runs_replaced, report.duplicate_runs) == (0, 1, 0)
    table = read_table(tmp_path / "store")
    assert table.num_rows == 6
    assert Counter(table["run_id"].to_pylist()).most_common(1)[0][1] == 2
    assert table["values"].null_count == 4
    assert ingest(None, [tmp_path / "bare"], tmp_path / "store").duplicate_runs == 3
    assert read_table(tmp_path / "store").num_rows == 6


def test_a_clock_that_went_back_is_reported_and_its_run_stored(tmp_path: Path) -> None:
    runs, store = tmp_path / "runs", tmp_path / "store"
    save(runs / "0.json", document(at=5, commit="c0", committed=4, values={"t": [1.0]}))
    save(runs / "1.json", document(at=6, commit="c1", committed=7, values={"t": [1.0]}))
    report = ingest(None, [runs], store)
    assert reasons(report) == [("1.json", "the run is older than its commit: a clock went back")]
    assert report.runs_added == 2

    save(runs / "2.json", document(at=3, commit="c2", committed=4.5, values={"t": [1.0]}))
    report = ingest(None, [runs], store)
    assert report.runs_added == 1
    assert [path for path, _ in reasons(report)] == ["2.json", "2.json"]
    assert "older than that of an earlier commit" in report.problems[1].reason
    assert ingest(None, [runs], store).problems == []  # a known run, reported when it was new
    with pytest.raises(StrictIngestError, match="clock"):
        ingest(None, [runs], tmp_path / "strict", strict=True)


def test_runs_of_one_commit_or_of_two_branches_may_come_in_any_order(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for number, (at, name, committed, branch) in enumerate(
        [(5, "c0", 1, "main"), (4, "c0", 1, "main"), (3, "c1", 2, "other")]
    ):
        content = document(
            at=at, commit=name, committed=committed, branch=branch, values={"t": [1]}
        )
        save(runs / f"{number}.json", content)
    assert ingest(None, [runs], tmp_path / "store").problems == []


# ---------------------------------------------------------------------------------------------
# Never half written


def killed(tmp_path: Path, where: str) -> None:
    """Kill an ingest of ``tmp_path/runs`` when it calls a function."""
    program = f"""
import os, signal
import kraft.spark.store as store
def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
store.{where} = die
store.ingest(None, [{str(tmp_path / "runs")!r}], {str(tmp_path / "store")!r})
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("where", ["store_group", "commit", "sync_directory"])
def test_after_a_killed_ingest_the_store_is_readable_and_the_next_one_completes(
    tmp_path: Path, where: str
) -> None:
    hourly(tmp_path / "old", 2)
    hourly(tmp_path / "runs", 3, first=10)
    ingest(None, [tmp_path / "old"], tmp_path / "store")
    before = read_table(tmp_path / "store")

    killed(tmp_path, where)
    assert read_table(tmp_path / "store").equals(before)
    assert len(list((tmp_path / "store" / "data").iterdir())) == 2

    report = ingest(None, [tmp_path / "runs"], tmp_path / "store")
    assert report.runs_added == 3
    assert read_table(tmp_path / "store").num_rows == 10
    named = {Path(name).parts[1] for name in open_store(tmp_path / "store").files}
    assert {path.name for path in (tmp_path / "store" / "data").iterdir()} == named


def test_a_first_ingest_that_is_killed_leaves_no_store(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 3)
    killed(tmp_path, "commit")
    with pytest.raises(StorageError, match="not a store"):
        read_table(tmp_path / "store")
    assert ingest(None, [tmp_path / "runs"], tmp_path / "store").runs_added == 3


def test_files_of_a_running_ingest_are_not_removed(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 1)
    folder = tmp_path / "store" / "data" / "of-another"
    folder.mkdir(parents=True)
    with open(folder / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "00000.parquet").write_bytes(b"not yet whole")
        ingest(None, [tmp_path / "runs"], tmp_path / "store")
        assert (folder / "00000.parquet").exists()
    hourly(tmp_path / "runs", 1, first=1)
    ingest(None, [tmp_path / "runs"], tmp_path / "store")
    assert not folder.exists()


def test_of_two_concurrent_commits_the_later_one_reloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly(tmp_path / "both", 2)
    hourly(tmp_path / "mine", 1, first=5)
    store = tmp_path / "store"
    calls = []

    def interrupted(state: Any, **change: Any) -> Any:
        calls.append(state.number)
        if len(calls) == 1:  # another ingest commits first, with two of the three runs
            monkeypatch.setattr("kraft.spark.store.commit", commit)
            ingest(None, [tmp_path / "both"], store)
            monkeypatch.setattr("kraft.spark.store.commit", interrupted)
        return commit(state, **change)

    monkeypatch.setattr("kraft.spark.store.commit", interrupted)
    report = ingest(None, [tmp_path / "both", tmp_path / "mine"], store)

    assert calls == [0, 1]
    assert (report.runs_added, report.duplicate_runs) == (1, 2)
    assert read_table(store).num_rows == 6
    assert Counter(read_table(store)["run_id"].to_pylist()) == dict.fromkeys(
        load_state(store).runs, 2
    )


def test_concurrent_ingests_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 12)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(
            target=ingest,
            args=(None, [str(tmp_path / "runs" / f"00{part}*.json")], tmp_path / "store"),
        )
        for part in ("0", "1", "[01]", "0")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0] * 4
    table = read_table(tmp_path / "store")
    assert Counter(table["run_id"].to_pylist()) == dict.fromkeys(
        load_state(tmp_path / "store").runs, 2
    )
    assert table.num_rows == 24


def test_small_files_are_merged(tmp_path: Path) -> None:
    for path in hourly(tmp_path / "runs", 70):
        ingest(None, [path], tmp_path / "store")
    state = open_store(tmp_path / "store")
    assert len(state.files) < 40
    assert len(state.runs) == 70
    table = read_table(tmp_path / "store")
    assert table.num_rows == 140
    assert set(table["run_id"].to_pylist()) == set(state.runs)
    assert all(run.file in state.files for run in state.runs.values())


def test_two_cannot_commit_the_same_number(tmp_path: Path) -> None:
    state = load_state(tmp_path)
    commit(state, add=[], remove=[], runs=[])
    with pytest.raises(CommitConflictError):
        commit(state, add=[], remove=[], runs=[])
    assert load_state(tmp_path).number == 1
    assert [path.name for path in (tmp_path / "commits").iterdir()] == ["00000001.json"]


def test_a_damaged_or_missing_manifest_is_reported(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 3)
    for hour in range(3):
        ingest(None, [tmp_path / "runs" / f"{hour:04}.json"], tmp_path / "store")
    commits = tmp_path / "store" / "commits"
    whole = (commits / "00000002.json").read_bytes()
    for damage in (b"", whole[:50], whole.replace(b'"format":1', b'"format":9')):
        (commits / "00000002.json").write_bytes(damage)
        with pytest.raises(StorageError, match=r"00000002\.json"):
            open_store(tmp_path / "store")
    (commits / "00000002.json").unlink()
    with pytest.raises(StorageError, match=r"00000002\.json is missing"):
        open_store(tmp_path / "store")


def test_removed_files_are_kept_for_readers_and_deleted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    hourly(tmp_path / "bare", 1, keep_values=False)
    ingest(None, [tmp_path / "bare"], store)
    reader = open_store(store)
    hourly(tmp_path / "full", 1)
    ingest(None, [tmp_path / "full"], store)
    assert read_files(reader).num_rows == 2

    monkeypatch.setattr(store_manifest, "_GRACE_S", -1.0)
    hourly(tmp_path / "full", 1, first=1)
    ingest(None, [tmp_path / "full"], store)
    old = [path for path in reader.files if (store / path).exists()]
    assert old == []
    assert read_table(store).num_rows == 4
