"""A store of results in an object store: the same as in a directory, by moto's S3 server."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")
pytest.importorskip("moto", reason="needs moto: pip install 'moto[s3]'")
pytest.importorskip("flask_cors", reason="moto's server needs flask and flask-cors")

from kraft.errors import StorageError
from kraft.regression import ingest as ingest_module
from kraft.regression import store as store_module
from kraft.regression.analysis import analyse_store
from kraft.regression.ingest import ingest
from kraft.regression.points import SeriesKey
from kraft.regression.settings import AnalysisSettings
from kraft.regression.store import (
    CommitConflictError,
    commit,
    list_runs,
    open_store,
    read_table,
)
from kraft.regression.store_location import StoreLocation
from kraft.regression.verdict_store import add_verdicts, load_verdicts
from kraft.regression.verdicts import Verdict, VerdictKind
from tests.harness.result_documents import document, save
from tests.harness.s3_server import one_change_at_a_time, s3_server

ORDER = [("time", "ascending"), ("benchmark", "ascending")]


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3_server("bucket") as environment:
        yield environment


@pytest.fixture(autouse=True)
def settings(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    return f"s3://bucket/{request.node.name}"


def test_the_server_makes_one_change_at_a_time() -> None:
    """moto alone lets both of two conditional writes succeed now and then, unlike S3."""
    inside = 0
    most = 0
    readers = threading.Barrier(2, timeout=60)
    ignored: Any = None

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        nonlocal inside, most
        if environ["REQUEST_METHOD"] == "GET":
            readers.wait()  # returns if both are inside
            return []
        inside += 1
        most = max(most, inside)
        time.sleep(0.1)
        inside -= 1
        return []

    served = one_change_at_a_time(application)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: served({"REQUEST_METHOD": "PUT"}, ignored), range(4)))
        list(pool.map(lambda _: served({"REQUEST_METHOD": "GET"}, ignored), range(2)))
    assert most == 1


def hourly(folder: Path, hours: range, *, keep_values: bool = True) -> list[Path]:
    return [
        save(
            folder / f"{hour:04}.json",
            document(
                at=hour,
                commit=f"c{hour}",
                values={"test_a": [1.0 + hour, 9.0], "test_b": [2.0]},
                keep_values=keep_values,
            ),
        )
        for hour in hours
    ]


def names_in(store: str) -> set[str]:
    files = StoreLocation.of(store).filesystem
    from pyarrow.fs import FileSelector

    return {each.base_name for each in files.get_file_info(FileSelector("/")) if each.is_file}


def test_verdicts_are_kept_beside_the_results(store: str, tmp_path: Path) -> None:
    ingest(hourly(tmp_path, range(1)), store)
    assert load_verdicts(store).verdicts == ()
    key = SeriesKey("bench.py", "test_a", "{}", "machine")
    for number in range(2):
        made = Verdict(
            f"{number:032x}", VerdictKind.ACCEPT, 0, "ana", "why", key, "median", is_worse=True
        )
        add_verdicts(store, [made])
    assert [each.id[-1] for each in load_verdicts(store).verdicts] == ["0", "1"]
    assert len(list_runs(store)) == 1


def test_runs_are_stored_once_and_analysed_as_in_a_directory(store: str, tmp_path: Path) -> None:
    hourly(tmp_path / "bare", range(3), keep_values=False)
    hourly(tmp_path / "runs", range(12))
    for where in (store, tmp_path / "local"):
        assert ingest([tmp_path / "bare"], where).runs_added == 3
        report = ingest([tmp_path / "runs"], where)
        assert (report.runs_added, report.runs_replaced) == (9, 3)
        assert ingest([tmp_path / "runs"], where).duplicate_runs == 12
    assert read_table(store).sort_by(ORDER) == read_table(tmp_path / "local").sort_by(ORDER)
    assert len(list_runs(store, 0)) == 3
    assert names_in(store) >= set(open_store(store).files)
    settings = AnalysisSettings(bootstrap_samples=100)
    assert analyse_store(store, settings) == analyse_store(tmp_path / "local", settings)


def test_the_later_of_two_commits_fails(store: str, tmp_path: Path) -> None:
    ingest(hourly(tmp_path, range(1)), store)
    state = open_store(store)
    commit(state, add=[], remove=list(state.files))
    with pytest.raises(CommitConflictError):
        commit(state, add=[], remove=list(state.files))


def test_a_later_writer_compares_again_and_leaves_no_objects(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = hourly(tmp_path, range(3))
    ingest(files[:1], store)

    def interrupted(*args: object, **kwargs: object) -> None:
        monkeypatch.setattr(ingest_module, "commit", commit)
        ingest(files[:2], store)
        commit(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(ingest_module, "commit", interrupted)
    assert ingest(files[1:], store).runs_added == 1
    assert names_in(store) == set(open_store(store).files)
    assert set(Counter(read_table(store)["run_id"].to_pylist()).values()) == {2}


def test_small_files_are_merged(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_MOST_SMALL_FILES", 4)
    for path in hourly(tmp_path, range(5)):
        ingest([path], store)
    assert len(open_store(store).files) == 2
    assert len(list_runs(store)) == 5


def test_concurrent_writers_lose_and_duplicate_nothing(store: str, tmp_path: Path) -> None:
    hourly(tmp_path / "runs", range(12))
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=ingest, args=([str(tmp_path / "runs" / f"00{part}*.json")], store))
        for part in ("0", "[01]", "1")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0] * 3
    counts = Counter(read_table(store)["run_id"].to_pylist())
    assert counts == dict.fromkeys((run.run_id for run in list_runs(store)), 2)
    assert len(counts) == 12


def test_a_strict_ingest_with_problems_leaves_no_objects(store: str, tmp_path: Path) -> None:
    hourly(tmp_path / "runs", range(2))
    (tmp_path / "runs" / "bad.json").write_text("{")
    with pytest.raises(ingest_module.StrictIngestError):
        ingest([tmp_path / "runs"], store, strict=True)
    with pytest.raises(StorageError, match="not a store"):
        open_store(store)
