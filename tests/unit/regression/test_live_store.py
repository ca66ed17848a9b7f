"""A store that is shown live: what is analysed when, and what the server answers."""

from __future__ import annotations

import http.client
import io
import json
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

from kraft.errors import StorageError
from kraft.regression import live_store as live_store_module
from kraft.regression import page_server, page_worker
from kraft.regression.ingest import ingest
from kraft.regression.live_store import LiveStore
from kraft.regression.page_server import MOST_CONNECTIONS, PageServer, PageServerError
from kraft.regression.page_worker import PageWorker, WorkerTask
from kraft.regression.points import SeriesKey
from kraft.regression.project_pages import PagesRequest
from kraft.regression.project_summary import ProjectSummary, page_name
from kraft.regression.settings import AnalysisSettings
from kraft.regression.store import newest_version
from kraft.regression.verdict_store import add_verdicts
from kraft.regression.verdicts import Verdict, VerdictKind
from tests.harness.html_pages import Page
from tests.harness.result_documents import document, save

PATIENCE_S = 120.0


def add(store: Path, project: str, hours: range) -> None:
    """Add a run of two benchmarks per hour."""
    files = []
    for hour in hours:
        # Two runs of one time and machine would be one run.
        at = hour + len(project) / 100
        content = document(at=at, commit=f"{hour:040x}", values={"a": [1.0 + hour % 3, 2.0]})
        content["commit_info"]["project"] = project
        name = f"{page_name(project)}-{hour:04}.json"
        files.append(save(store.parent / "runs" / name, content))
    ingest(files, store)


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


class InProcessWorker:
    """Does a task like `PageWorker`, without the second that a process takes to start."""

    failure = ""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task

    def results(self) -> Iterator[ProjectSummary]:
        output = io.BytesIO()
        page_worker._run(self._task, output)
        output.seek(0)
        for _ in self._task.projects:
            yield pickle.load(output)

    def stop(self) -> None:
        pass


class Watched:
    """A live store; `tasks` has the projects of each analysis, `worker` the kind of the next."""

    def __init__(self, store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[list[str]] = []
        self.worker: Callable[[WorkerTask], Any] = InProcessWorker

        def start(task: WorkerTask) -> Any:
            self.tasks.append([project.project for project, _ in task.projects])
            return self.worker(task)

        monkeypatch.setattr(live_store_module, "PageWorker", start)
        folder.mkdir()
        request = PagesRequest(str(store), AnalysisSettings())
        self.live = LiveStore(request, folder, interval_s=0.02)
        self.folder = folder

    @contextmanager
    def running(self) -> Iterator[LiveStore]:
        self.live.start()
        try:
            yield self.live
        finally:
            self.live.stop()

    def settle(self, pages: int) -> None:
        """Wait until that many projects have their newest pages."""
        state = self.live.state

        def is_settled() -> bool:
            nonlocal state
            state = self.live.state
            return not state.to_analyse and len(state.generations) == pages

        until(is_settled)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    add(tmp_path / "store", "orders", range(10))
    add(tmp_path / "store", "searching", range(10))
    return tmp_path / "store"


@pytest.fixture
def watched(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(store, tmp_path / "pages", monkeypatch)


@contextmanager
def served(watched: Watched) -> Iterator[Callable[..., tuple[int, str]]]:
    """Yield a function that asks for a path and returns the status and the text."""
    with PageServer(watched.live, watched.folder, "results", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        port = server.server_address[1]

        def get(path: str, method: str = "GET", host: str = "localhost") -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", host)
            connection.endheaders()
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            return answer.status, text

        try:
            yield get
        finally:
            server.shutdown()
            thread.join()


def test_only_projects_with_new_runs_or_verdicts_are_analysed_again(
    store: Path, watched: Watched
) -> None:
    with watched.running() as live:
        watched.settle(2)
        assert watched.tasks == [["orders", "searching"]]
        first = dict(live.state.generations)
        orders, search = page_name("orders"), page_name("searching")
        assert live.state.projects[orders].runs == 10
        add(store, "orders", range(10, 12))
        until(lambda: live.state.generations[orders] != first[orders])
        watched.settle(2)
        assert live.state.projects[orders].runs == 12
        assert live.state.generations[search] == first[search]
        assert watched.tasks == [["orders", "searching"], ["orders"]]
        key = SeriesKey("bench.py", "a", "{}", "m", "searching", "main")
        verdict = Verdict("1" * 32, VerdictKind.WATCH, 0, "ana", "why", key, "median", True)
        add_verdicts(store, [verdict])
        until(lambda: live.state.generations[search] != first[search])
        assert watched.tasks[2:] == [["searching"]]
        # A project that begins, and one that was already there in another version.
        add(store, "another", range(3))
        watched.settle(3)
        assert watched.tasks[3:] == [["another"]]


def test_nothing_is_analysed_while_nothing_changes(store: Path, watched: Watched) -> None:
    looked = 0

    def counted(of: str) -> int:
        nonlocal looked
        looked += 1
        return newest_version(of)

    with pytest.MonkeyPatch.context() as patch, watched.running() as live:
        watched.settle(2)
        changes = live.state.changes
        patch.setattr(live_store_module, "newest_version", counted)
        patch.setattr(live_store_module, "load_state", lambda *_, **__: pytest.fail("read again"))
        until(lambda: looked > 20)
        assert live.state.changes == changes
        assert live.state.error == ""
        assert len(watched.tasks) == 1


def test_a_watch_that_ends_is_a_change(
    store: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = SeriesKey("bench.py", "a", "{}", "m", "orders", "main")
    later = time.time_ns() // 1000 + 10**12
    verdict = Verdict(
        "2" * 32, VerdictKind.WATCH, 0, "ana", "why", key, "median", True, until_us=later
    )
    add_verdicts(store, [verdict])
    with watched.running():
        watched.settle(2)
        assert len(watched.tasks) == 1
        monkeypatch.setattr(live_store_module, "_now_us", lambda: later)
        until(lambda: len(watched.tasks) > 1)
        watched.settle(2)
        assert watched.tasks[1:] == [["orders"]]


def test_pages_say_that_the_analysis_runs_and_then_show_it(watched: Watched) -> None:
    orders = page_name("orders")
    watched.worker = PageWorker
    with served(watched) as get:
        # Nothing is analysed yet.
        status, text = get("/")
        assert status == 200
        assert "kraft bench ingest" in text
        with watched.running() as live:
            watched.settle(2)
            status, text = get("/?x=1")
            (row, _) = [each for each in Page(text).all("tr") if "data-name" in each.attributes]
            assert (status, row.attributes["data-name"]) == (200, "orders")
            status, text = get(f"/{orders}.html")
            assert status == 200
            (title,) = Page(text).all("h1")
            assert title.text == "Benchmarks of orders"
            scripts = Page(text).all("script")
            assert scripts[-1].attributes["data-generation"] == live.state.generations[orders]
            state = json.loads(get("/state.json")[1])
            assert state["pages"][orders] == live.state.generations[orders]
            assert (state["analysing"], state["error"]) == (False, None)
            assert json.loads(get(f"/{orders}.json")[1])["summary"]["series"] == 1
            found = json.loads(get("/projects.json")[1])
            assert [each["project"] for each in found["projects"]] == ["orders", "searching"]
            assert get("/plotly.js")[1].count("plotly.js v") == 1
            # A project whose page is not written yet.
            state = live.state
            live.state = type(state)(state.version, state.projects, to_analyse=2, analysed=1)
            status, text = get(f"/{orders}.html")
            assert (status, "The analysis of this project runs" in text) == (503, True)
            assert get(f"/{orders}.json")[0] == 503
            assert "The analysis runs: 1 of 2 projects done" in get("/")[1]
            live.state = state


@pytest.mark.parametrize(
    "path",
    [
        "/../store/_delta_log/00000000000000000000.json",
        "/..%2fworker.log",
        "/worker.log",
        "//etc/passwd",
        "/.plotly.js.new",
        "/orders.html/",
        "/\x00",
        "/%00",
        "/nothing.html",
    ],
)
def test_only_the_pages_of_the_store_are_sent(watched: Watched, path: str) -> None:
    (watched.folder / "worker.log").write_text("root:")
    with served(watched) as get:
        try:
            status, text = get(path)
        except http.client.InvalidURL:
            return
        assert status == 404
        assert "root:" not in text
        assert "metaData" not in text


def test_other_methods_and_other_hosts_are_rejected(watched: Watched) -> None:
    with served(watched) as get:
        assert get("/", host="127.0.0.1:8600")[0] == 200
        assert get("/", host="[::1]:8600")[0] == 200
        assert get("/", host="attacker.example")[0] == 403
        assert get("/", method="POST")[0] == 501
        status, text = get("/", method="HEAD")
        assert (status, text) == (200, "")


def test_connections_that_ask_for_nothing_leave_the_server_usable(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server._Handler, "timeout", 10 * PATIENCE_S)
    with served(watched) as get, PageServer(watched.live, watched.folder, "s", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        address = "127.0.0.1", server.server_address[1]
        idle = [socket.create_connection(address) for _ in range(MOST_CONNECTIONS)]
        # The next one is closed at once.
        extra = socket.create_connection(address, timeout=PATIENCE_S)
        assert extra.recv(1) == b""
        for each in (*idle, extra):
            each.close()
        server.shutdown()
        thread.join()
        assert get("/")[0] == 200


def test_a_worker_that_dies_is_reported_and_tried_again(
    store: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_projects(task: WorkerTask) -> PageWorker:
        return PageWorker(WorkerTask(task.request, (), task.folder))

    monkeypatch.setattr(live_store_module, "RETRY_S", 0.05)
    watched.worker = without_projects
    with watched.running() as live:
        until(lambda: "the analysis ended with exit code" in live.state.error)
        assert live.state.to_analyse == 0
        assert live.state.message == live.state.error
        watched.worker = InProcessWorker
        watched.settle(2)
        until(lambda: live.state.error == "")


def test_a_killed_worker_ends_its_task_and_stop_ends_a_running_one(
    store: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    request = PagesRequest(str(store), AnalysisSettings())
    worker = PageWorker(WorkerTask(request, (), folder))
    os.kill(worker._process.pid, signal.SIGSTOP)
    worker.stop()
    assert list(worker.results()) == []
    assert "exit code -9: no message" in worker.failure


def test_stop_ends_an_analysis_that_runs(watched: Watched) -> None:
    workers: list[PageWorker] = []

    def stopped(task: WorkerTask) -> PageWorker:
        workers.append(PageWorker(task))
        os.kill(workers[-1]._process.pid, signal.SIGSTOP)
        return workers[-1]

    watched.worker = stopped
    with watched.running() as live:
        until(lambda: workers)
        assert live.state.to_analyse == 2
    assert workers[0]._process.returncode == -signal.SIGKILL
    assert live.state.error == ""


def test_a_store_that_vanishes_is_reported_and_its_pages_stay(
    store: Path, watched: Watched
) -> None:
    with watched.running() as live:
        watched.settle(2)
        log = store / "_delta_log" / f"{0:020}.json"
        kept = log.read_bytes()
        log.write_text("{")
        until(lambda: live.state.error.startswith("the store cannot be read"))
        assert len(live.state.generations) == 2
        log.write_bytes(kept)
        until(lambda: live.state.error == "")


def test_no_store_and_a_taken_port_are_errors(store: Path, watched: Watched) -> None:
    with pytest.raises(StorageError, match="not a store of results"):
        LiveStore(PagesRequest(str(store.parent / "no"), AnalysisSettings()), watched.folder)
    with (
        PageServer(watched.live, watched.folder, "s", 0) as server,
        pytest.raises(PageServerError, match="is taken: choose another one with --port"),
    ):
        PageServer(watched.live, watched.folder, "s", server.server_address[1])


def test_a_project_that_cannot_be_analysed_says_why(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kraft.regression import project_pages

    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("part-1.parquet: damaged")

    monkeypatch.setattr(project_pages, "analyse_store", fail)
    request = PagesRequest(str(store), AnalysisSettings())
    found = project_pages.write_dashboard(request, tmp_path / "site", lambda *_: None)
    assert [each.error for each in found] == ["part-1.parquet: damaged"] * 2
    page = (tmp_path / "site" / f"{page_name('orders')}.html").read_text()
    assert "part-1.parquet: damaged" in page
    assert "part-1.parquet: damaged" in (tmp_path / "site" / "index.html").read_text()


def test_runs_of_a_project_are_compared_live(store: Path, watched: Watched) -> None:
    orders = page_name("orders")
    with served(watched) as get, watched.running():
        watched.settle(2)
        links = [each.attributes["href"] for each in Page(get("/")[1]).all("a")]
        assert f"compare?project={orders}" in links
        links = [each.attributes["href"] for each in Page(get(f"/{orders}.html")[1]).all("a")]
        assert f"compare?project={orders}" in links

        # The newest commit, with the runs before it.
        status, text = get(f"/compare?project={orders}")
        page = Page(text)
        assert status == 200
        assert [each.text for each in page.all("h1")] == ["000000000000 compared with last:10"]
        (row,) = [each for each in page.all("tr") if "data-name" in each.attributes]
        assert "9 : 1" in row.text
        assert list(page.plots) == ["ratios"]
        assert {"index.html", f"{orders}.html"} <= {
            each.attributes["href"] for each in page.all("a")
        }
        # The commit was measured in the other project, too.
        status, text = get(f"/compare?project={orders}&base={3:040x}&candidate={7:040x}")
        (row,) = [each for each in Page(text).all("tr") if "data-name" in each.attributes]
        assert (status, "1 : 1" in row.text) == (200, True)
        given = {
            each.attributes["name"]: each.attributes["value"]
            for each in Page(text).all("input", size="14")
        }
        assert given == {"base": f"{3:040x}", "candidate": f"{7:040x}"}

        status, text = get(f"/compare?project={orders}&base=%3Cb%3E&candidate=last:1")
        assert status == 400
        assert "&lt;b&gt;&#x27; is not a file, nor a commit" in text
        assert not Page(text).all("b")
        assert get("/compare?project=nobody")[0] == 404
        assert get("/compare")[0] == 404

        # A new run is a new version of the store: the next page compares it.
        add(store, "orders", range(10, 12))
        watched.settle(2)
        until(lambda: "10 : 1" in get(f"/compare?project={orders}&candidate={11:040x}")[1])
