"""The store of results: each run once, bad input reported and skipped, versions, writers."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from kraft.errors import BenchmarkFileError, StorageError
from kraft.regression import ingest as ingest_module
from kraft.regression import store as store_module
from kraft.regression.data_files import hash_ranges, series_hash
from kraft.regression.earlier_store import convert_store
from kraft.regression.ingest import IngestReport, StrictIngestError, ingest
from kraft.regression.points import METRIC_COLUMNS, POINTS
from kraft.regression.store import (
    CommitConflictError,
    commit,
    list_runs,
    open_store,
    read_table,
)
from tests.harness.result_documents import document, save


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
    report = ingest([runs], store)
    assert (report.runs_added, report.points_added, report.duplicate_runs) == (3, 6, 0)
    before = snapshot(store)

    (runs / "0001.json").rename(runs / "renamed.json")
    document_text = json.dumps(json.loads((runs / "0002.json").read_text()))
    (runs / "0002.json").write_text(document_text)  # reformatted
    report = ingest([runs, runs / "*.json"], store)

    assert (report.files, report.runs_added, report.duplicate_runs) == (3, 0, 3)
    assert report.problems == []
    assert snapshot(store) == before


def test_stored_points_read_back_unchanged(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 3)
    ingest([tmp_path / "runs"], tmp_path / "store")
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


@pytest.mark.parametrize("count", [1, 7, 100])
def test_a_range_of_hashes_contains_its_series_completely(tmp_path: Path, count: int) -> None:
    values = {f"test_{number}": [1.0] for number in range(40)}
    hourly(tmp_path / "runs", 4, values=values)
    for hour in range(4):  # four data files
        ingest([tmp_path / "runs" / f"{hour:04}.json"], tmp_path / "store")
    state = open_store(tmp_path / "store")
    assert len(state.files) == 4
    seen: Counter[str] = Counter()
    for begin, end in hash_ranges(count):
        table = state.read(series=(begin, end), columns=["benchmark", "machine", "time"])
        for name, machine in zip(table["benchmark"], table["machine"], strict=True):
            assert begin <= series_hash("bench.py", name.as_py(), "{}", machine.as_py()) < end
            seen[name.as_py()] += 1
    assert seen == dict.fromkeys(values, 4)


def test_rows_of_a_large_file_are_in_row_groups_of_few_series(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 100, values={f"test_{number}": [1.0] for number in range(200)})
    ingest([tmp_path / "runs"], tmp_path / "store")
    (file,) = (tmp_path / "store").glob("*.parquet")
    groups = pq.ParquetFile(file)
    assert groups.num_row_groups == 3
    ranges = [
        pc.min_max(groups.read_row_group(number, ["series"])["series"]).as_py()
        for number in range(3)
    ]
    assert all(one["max"] <= next_["min"] for one, next_ in pairwise(ranges))


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
    report = ingest([tmp_path / "runs"], tmp_path / "store")
    assert [path for path, _ in reasons(report)] == ["0007.json"]
    assert report.runs_added == 19
    assert read_table(tmp_path / "store").num_rows == 38


@pytest.mark.parametrize("bad", BAD)
def test_strict_rejects_all_and_leaves_the_store_untouched(tmp_path: Path, bad: str) -> None:
    hourly(tmp_path / "old", 2)
    hourly(tmp_path / "runs", 5, first=50)
    BAD[bad](tmp_path / "runs" / "0053.json")
    ingest([tmp_path / "old"], tmp_path / "store")
    before = snapshot(tmp_path / "store")

    with pytest.raises(StrictIngestError, match=r"0053\.json") as refused:
        ingest([tmp_path / "runs"], tmp_path / "store", strict=True)
    assert len(refused.value.problems) == 1
    assert snapshot(tmp_path / "store") == before

    with pytest.raises(StrictIngestError):
        ingest([tmp_path / "runs"], tmp_path / "new", strict=True)
    assert not (tmp_path / "new").exists()


def test_nan_and_zero_times_omit_only_their_benchmark(tmp_path: Path) -> None:
    content = document(at=0, values={"test_nan": [1.0], "test_zero": [0.0], "test_good": [1.0]})
    content["benchmarks"][0]["stats"]["mean"] = float("nan")
    save(tmp_path / "run.json", content)
    report = ingest([tmp_path / "run.json"], tmp_path / "store")
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
    report = ingest([tmp_path / "runs", tmp_path / "gone"], tmp_path / "store")
    assert [path for path, _ in report.problems] == [str(tmp_path / "gone")]
    (tmp_path / "hollow").mkdir()
    with pytest.raises(BenchmarkFileError, match="hollow"):
        ingest([tmp_path / "hollow"], tmp_path / "store")


def test_of_duplicates_in_one_ingest_the_copy_with_rounds_is_stored(tmp_path: Path) -> None:
    for name, keep in [("a", False), ("b", True), ("c", False), ("d", True)]:
        hourly(tmp_path / "runs" / name, 3, keep_values=keep)
    report = ingest([tmp_path / "runs"], tmp_path / "store")
    assert (report.runs_added, report.points_added, report.duplicate_runs) == (3, 6, 9)
    table = read_table(tmp_path / "store")
    assert table.num_rows == 6
    assert table["values"].null_count == 0
    assert all("/b/" in run.source for run in list_runs(tmp_path / "store"))


def test_a_copy_with_rounds_replaces_a_stored_one_without(tmp_path: Path) -> None:
    hourly(tmp_path / "bare", 3, keep_values=False)
    hourly(tmp_path / "full", 1, first=1)
    ingest([tmp_path / "bare"], tmp_path / "store")
    report = ingest([tmp_path / "full"], tmp_path / "store")
    assert (report.runs_added, report.runs_replaced, report.duplicate_runs) == (0, 1, 0)
    table = read_table(tmp_path / "store")
    assert table.num_rows == 6
    assert Counter(table["run_id"].to_pylist()).most_common(1)[0][1] == 2
    assert table["values"].null_count == 4
    assert ingest([tmp_path / "bare"], tmp_path / "store").duplicate_runs == 3
    assert read_table(tmp_path / "store").num_rows == 6


def test_a_clock_that_went_back_is_reported_and_its_run_stored(tmp_path: Path) -> None:
    runs, store = tmp_path / "runs", tmp_path / "store"
    save(runs / "0.json", document(at=5, commit="c0", committed=4, values={"t": [1.0]}))
    save(runs / "1.json", document(at=6, commit="c1", committed=7, values={"t": [1.0]}))
    report = ingest([runs], store)
    assert reasons(report) == [("1.json", "the run is older than its commit: a clock went back")]
    assert report.runs_added == 2

    save(runs / "2.json", document(at=3, commit="c2", committed=4.5, values={"t": [1.0]}))
    report = ingest([runs], store)
    assert report.runs_added == 1
    assert [path for path, _ in reasons(report)] == ["2.json", "2.json"]
    assert "older than that of an earlier commit" in report.problems[1].reason
    assert ingest([runs], store).problems == []  # a known run, reported when it was new
    with pytest.raises(StrictIngestError, match="clock"):
        ingest([runs], tmp_path / "strict", strict=True)


def test_runs_of_one_commit_or_of_two_branches_may_come_in_any_order(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for number, (at, name, committed, branch) in enumerate(
        [(5, "c0", 1, "main"), (4, "c0", 1, "main"), (3, "c1", 2, "other")]
    ):
        content = document(
            at=at, commit=name, committed=committed, branch=branch, values={"t": [1]}
        )
        save(runs / f"{number}.json", content)
    assert ingest([runs], tmp_path / "store").problems == []


# ---------------------------------------------------------------------------------------------
# Several writers; `tests/durability` kills them


def once(store: Path, count: int) -> None:
    """Assert that the store has these many runs, with two points each."""
    table = read_table(store)
    assert Counter(table["run_id"].to_pylist()) == dict.fromkeys(
        (run.run_id for run in list_runs(store)), 2
    )
    assert table.num_rows == 2 * count


def test_of_two_concurrent_commits_the_later_one_compares_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly(tmp_path / "both", 2)
    hourly(tmp_path / "mine", 1, first=5)
    store = tmp_path / "store"
    calls = []

    def interrupted(state: Any, **change: Any) -> Any:
        calls.append(state.version)
        if len(calls) == 1:  # another ingest commits first, with two of the three runs
            monkeypatch.setattr(ingest_module, "commit", commit)
            ingest([tmp_path / "both"], store)
            monkeypatch.setattr(ingest_module, "commit", interrupted)
        return commit(state, **change)

    monkeypatch.setattr(ingest_module, "commit", interrupted)
    report = ingest([tmp_path / "both", tmp_path / "mine"], store)

    assert calls == [-1, 0]
    assert (report.runs_added, report.duplicate_runs) == (1, 2)
    once(store, 3)
    named = set(open_store(store).files)
    assert {path.name for path in store.glob("*.parquet")} == named


def test_a_commit_whose_answer_was_lost_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store may accept a commit and lose the connection before it answers."""
    hourly(tmp_path / "runs", 2)

    def answer_lost(state: Any, **change: Any) -> None:
        commit(state, **change)
        raise CommitConflictError

    monkeypatch.setattr(ingest_module, "commit", answer_lost)
    assert ingest([tmp_path / "runs"], tmp_path / "store").runs_added == 2
    once(tmp_path / "store", 2)


def test_a_merge_whose_answer_was_lost_keeps_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_MOST_SMALL_FILES", 3)
    store = tmp_path / "store"
    first, second, third = hourly(tmp_path / "runs", 3)
    for path in (first, second):
        ingest([path], store)

    def answer_lost(state: Any, **change: Any) -> None:
        commit(state, **change)
        raise CommitConflictError

    monkeypatch.setattr(store_module, "commit", answer_lost)
    ingest([third], store)
    assert len(open_store(store).files) == 1
    once(store, 3)


def test_concurrent_ingests_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 12)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(
            target=ingest,
            args=([str(tmp_path / "runs" / f"00{part}*.json")], tmp_path / "store"),
        )
        for part in ("0", "1", "[01]", "0")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0] * 4
    once(tmp_path / "store", 12)


def test_two_cannot_commit_the_same_version(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 1)
    ingest([tmp_path / "runs"], tmp_path / "store")
    state = open_store(tmp_path / "store")
    (name,) = state.files
    commit(state, add=[], remove=[name])
    with pytest.raises(CommitConflictError):
        commit(state, add=[], remove=[name])
    assert open_store(tmp_path / "store").version == 1


def test_a_commit_that_fails_without_a_newer_version_is_an_error(tmp_path: Path) -> None:
    """A retry would not end: the reason is not another writer."""
    hourly(tmp_path / "runs", 1)
    ingest([tmp_path / "runs"], tmp_path / "store")
    state = open_store(tmp_path / "store")
    log = tmp_path / "store" / "_delta_log"
    shutil.copy(log / f"{0:020}.json", tmp_path / "saved")
    (log / f"{1:020}.json").mkdir()  # no file can have this name
    with pytest.raises(StorageError, match="the commit failed"):
        commit(state, add=[], remove=list(state.files))


# ---------------------------------------------------------------------------------------------
# Versions, merged files, other programs


def test_earlier_versions_are_read_by_number_and_time(tmp_path: Path) -> None:
    for path in hourly(tmp_path / "runs", 3):
        ingest([path], tmp_path / "store")
    store = tmp_path / "store"
    assert [len(list_runs(store, version)) for version in (0, 1, 2, "1", None)] == [1, 2, 3, 2, 3]
    assert read_table(store, version=1).num_rows == 4
    assert open_store(store, "2200-01-01").version == 2
    with pytest.raises(StorageError, match="did not exist at 2026-01-01"):
        open_store(store, "2026-01-01")
    with pytest.raises(StorageError, match="no version 7; the newest is 2"):
        open_store(store, 7)
    with pytest.raises(StorageError, match="'soon' is neither a version"):
        open_store(store, "soon")


def test_small_files_are_merged_and_earlier_versions_kept(tmp_path: Path) -> None:
    for path in hourly(tmp_path / "runs", 70):
        ingest([path], tmp_path / "store")
    state = open_store(tmp_path / "store")
    assert len(state.files) < 40
    assert state.version == 69 + 2  # two merges
    once(tmp_path / "store", 70)
    assert len(list_runs(tmp_path / "store", 20)) == 21
    assert read_table(tmp_path / "store", version=20).num_rows == 42


def test_files_of_middle_size_are_merged_until_few_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *first, last = hourly(tmp_path / "runs", 10)
    store = tmp_path / "store"
    for path in first:
        ingest([path], store)
    monkeypatch.setattr(store_module, "_SMALL_FILE_POINTS", 2)
    monkeypatch.setattr(store_module, "_MIDDLE_FILE_POINTS", 5)
    monkeypatch.setattr(store_module, "_MOST_MIDDLE_FILES", 4)
    monkeypatch.setattr(store_module, "_MERGED_MIDDLE_POINTS", 6)
    ingest([last], store)
    state = open_store(store)
    assert sorted(file.rows for file in state.files.values()) == [2, 6, 6, 6]
    assert state.version == 9 + 3
    once(store, 10)


def test_the_metadata_of_all_files_is_never_kept_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    for path in hourly(tmp_path / "runs", 20):
        ingest([path], store)
    opened = []
    dataset = ds.dataset

    def counted(files: list[str], **options: Any) -> Any:
        opened.append(len(files))
        return dataset(files, **options)

    monkeypatch.setattr(ds, "dataset", counted)
    once(store, 20)
    assert opened == [16, 4]


def test_a_merge_removes_expired_files_that_no_version_names(tmp_path: Path) -> None:
    """Those of an ingest that was killed 31 days ago go, those of one that runs now stay."""
    store = tmp_path / "store"
    store.mkdir()
    for name in ("part-old.parquet", "part-young.parquet"):
        (store / name).write_bytes(b"not whole")
    aged = (store / "part-young.parquet").stat().st_mtime - 31 * 86_400
    os.utime(store / "part-old.parquet", (aged, aged))
    for path in hourly(tmp_path / "runs", 32):
        ingest([path], store)
    assert not (store / "part-old.parquet").exists()
    assert (store / "part-young.parquet").exists()
    once(store, 32)


def test_a_store_that_another_program_rewrote_still_works(tmp_path: Path) -> None:
    """Its data files do not describe their runs, so that the columns do."""
    hourly(tmp_path / "runs", 3)
    ingest([tmp_path / "runs"], tmp_path / "store")
    before = list_runs(tmp_path / "store")
    table = pq.read_table(next((tmp_path / "store").glob("*.parquet")))
    write_deltalake(str(tmp_path / "store"), table, mode="overwrite")
    after = list_runs(tmp_path / "store")
    assert [(run.run_id, run.commit, run.time_us, run.has_values, run.points) for run in after] == [
        (run.run_id, run.commit, run.time_us, run.has_values, run.points) for run in before
    ]
    assert [run.commit_time_us for run in after] == [run.commit_time_us for run in before]
    assert ingest([tmp_path / "runs"], tmp_path / "store").duplicate_runs == 3
    hourly(tmp_path / "runs", 1, first=3)
    assert ingest([tmp_path / "runs"], tmp_path / "store").runs_added == 1
    once(tmp_path / "store", 4)


def test_a_store_gets_columns_that_it_lacks_and_keeps_those_of_others(tmp_path: Path) -> None:
    store = tmp_path / "store"
    hourly(tmp_path / "runs", 2)
    ingest([tmp_path / "runs"], tmp_path / "full")
    table = pq.read_table(next((tmp_path / "full").glob("*.parquet")))
    table = table.drop_columns(["parents", *METRIC_COLUMNS])
    table = table.append_column("note", np.array(["x"] * 4))
    write_deltalake(str(store), table)

    for name in ("parents", *METRIC_COLUMNS):
        assert read_table(store)[name].null_count == 4
    hourly(tmp_path / "bare", 1, first=2, keep_values=False)
    assert ingest([tmp_path / "bare"], store).runs_added == 1
    hourly(tmp_path / "runs", 1, first=2)
    assert ingest([tmp_path / "runs"], store).runs_replaced == 1
    once(store, 3)
    whole = DeltaTable(str(store)).to_pyarrow_table()
    assert set(POINTS.names) < set(whole.column_names)
    assert Counter(whole["note"].to_pylist()) == {"x": 4, None: 2}


def test_tables_that_are_not_stores_are_rejected(tmp_path: Path) -> None:
    write_deltalake(
        str(tmp_path / "other"), ds.dataset(_some_points(tmp_path)).to_table(["machine"])
    )
    with pytest.raises(StorageError, match="it has no column 'run_id'"):
        open_store(tmp_path / "other")
    with pytest.raises(StorageError, match="not a store"):
        open_store(tmp_path / "nowhere")
    features = {"delta.enableDeletionVectors": "true"}
    table = ds.dataset(_some_points(tmp_path)).to_table()
    write_deltalake(str(tmp_path / "newer"), table, configuration=features)
    with pytest.raises(StorageError, match="deletionVectors"):
        open_store(tmp_path / "newer")


def test_a_damaged_log_is_reported(tmp_path: Path) -> None:
    for path in hourly(tmp_path / "runs", 3):
        ingest([path], tmp_path / "store")
    log = tmp_path / "store" / "_delta_log" / f"{1:020}.json"
    whole = log.read_bytes()
    log.write_bytes(whole[:50])
    with pytest.raises(StorageError, match=str(tmp_path / "store")):
        open_store(tmp_path / "store")
    log.unlink()
    with pytest.raises(StorageError, match=str(tmp_path / "store")):
        open_store(tmp_path / "store")


def _some_points(folder: Path) -> list[str]:
    hourly(folder / "some", 1)
    ingest([folder / "some"], folder / "store-of-some")
    return [str(path) for path in (folder / "store-of-some").glob("*.parquet")]


# ---------------------------------------------------------------------------------------------
# Stores of an earlier kraft

#: Three commits, the second one complete: it replaced a run by its copy with rounds.
EARLIER = Path(__file__).parents[2] / "data" / "results-store-1"


def test_a_store_of_an_earlier_kraft_is_copied(tmp_path: Path) -> None:
    added = convert_store(EARLIER, tmp_path / "store")
    assert (len(added.runs), added.duplicates) == (3, 0)
    hourly(tmp_path / "runs", 3)
    expected = ingest([tmp_path / "runs"], tmp_path / "fresh")
    assert expected.points_added == 6
    order = [("time", "ascending"), ("benchmark", "ascending")]
    names = [name for name in POINTS.names if name != "source"]
    assert read_table(tmp_path / "store", columns=names).sort_by(order) == read_table(
        tmp_path / "fresh", columns=names
    ).sort_by(order)
    assert [run.digest for run in list_runs(tmp_path / "store")] == [
        run.digest for run in list_runs(tmp_path / "fresh")
    ]


def test_a_copy_keeps_units_and_directions(tmp_path: Path) -> None:
    shutil.copytree(EARLIER, tmp_path / "earlier")
    for path in (tmp_path / "earlier" / "data").rglob("*.parquet"):
        table = pq.ParquetFile(path).read()
        table = table.append_column("unit", [["ops"] * table.num_rows])
        table = table.append_column("bigger_is_better", [[True] * table.num_rows])
        pq.write_table(table, path)
    convert_store(tmp_path / "earlier", tmp_path / "store")
    found = read_table(tmp_path / "store", columns=METRIC_COLUMNS).to_pylist()
    assert found == [{"unit": "ops", "bigger_is_better": True}] * 6


def test_a_copy_can_be_repeated(tmp_path: Path) -> None:
    hourly(tmp_path / "runs", 2)
    ingest([tmp_path / "runs"], tmp_path / "store")
    added = convert_store(EARLIER, tmp_path / "store")
    assert (len(added.runs), added.duplicates) == (1, 2)
    again = convert_store(EARLIER, tmp_path / "store")
    assert (len(again.runs), again.duplicates) == (0, 3)
    once(tmp_path / "store", 3)


def test_an_earlier_store_is_not_opened_and_the_error_names_the_command() -> None:
    with pytest.raises(StorageError, match=r"kraft bench convert .* --store NEW"):
        open_store(EARLIER)


def test_a_damaged_earlier_store_is_reported(tmp_path: Path) -> None:
    shutil.copytree(EARLIER, tmp_path / "earlier")
    commits = tmp_path / "earlier" / "commits"
    whole = (commits / "00000003.json").read_bytes()
    for damage in (b"", whole[:50], whole.replace(b'"format":1', b'"format":9')):
        (commits / "00000003.json").write_bytes(damage)
        with pytest.raises(StorageError, match=r"00000003\.json"):
            convert_store(tmp_path / "earlier", tmp_path / "store")
    (commits / "00000003.json").rename(commits / "00000004.json")
    (commits / "00000004.json").write_bytes(whole)
    with pytest.raises(StorageError, match=r"00000003\.json is missing"):
        convert_store(tmp_path / "earlier", tmp_path / "store")
    with pytest.raises(StorageError, match="not a store of an earlier kraft"):
        convert_store(tmp_path, tmp_path / "store")
    assert not (tmp_path / "store").exists()
