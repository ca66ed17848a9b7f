"""``kraft regress serve`` as a process, ``dashboard``, and what both reject."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

from kraft.regression.ingest import ingest
from kraft.regression.project_summary import page_name
from tests.harness.commands import KRAFT, PATIENCE_S, eventually, heed_interrupts
from tests.harness.html_pages import Page
from tests.harness.result_documents import document, save
from tests.unit.cli.conftest import Run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of two projects; one of them is 50 % slower from its 20th run on."""
    folder = tmp_path_factory.mktemp("results")
    for number, project in enumerate(("orders", "search/index")):
        for hour in range(40):
            slow = 1.5 if number == 0 and hour >= 20 else 1.0
            value = slow * (1 + 0.01 * ((hour * 7) % 5 - 2))
            content = document(
                at=hour + number / 2, commit=f"{hour:040x}", values={"lookup": [value, value]}
            )
            content["commit_info"]["project"] = project
            save(folder / "runs" / f"{number}-{hour:02}.json", content)
    ingest([folder / "runs"], folder / "store")
    return folder / "store"


def test_the_pages_are_served_until_ctrl_c(store: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*KRAFT, "regress", "serve", str(store), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=heed_interrupts,
    )
    try:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert (started["pid"], started["store"]) == (process.pid, str(store))
        url = started["url"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)

        def get(path: str) -> str:
            with urllib.request.urlopen(url + path, timeout=PATIENCE_S) as answer:
                text: str = answer.read().decode()
                return text

        found = eventually(
            lambda: json.loads(get("projects.json"))["projects"],
            until=lambda projects: projects and all(each["analysed"] for each in projects),
        )
        news = {each["project"]: each["regressions"]["new"] for each in found}
        assert news == {"orders": 1, "search/index": 0}
        assert "Benchmarks of search/index" in get(f"{page_name('search/index')}.html")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, err) == (130, "", "")
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()
        process.communicate()


def test_the_same_pages_are_written_to_a_directory(kraft: Run, store: Path, tmp_path: Path) -> None:
    site = tmp_path / "a" / "site"
    ran = kraft("regress", "dashboard", store, "--html", site)
    assert ran.code == 0, ran.err
    assert re.search(r"^ *orders .* 1 +0 +0 +0 +1 +40$", ran.out, re.M), ran.out
    assert {each.name for each in site.iterdir()} == {
        *("index.html", "projects.json", "plotly.js"),
        *(f"{page_name(each)}.{suffix}" for each in ("orders", "search/index")
          for suffix in ("html", "json")),
    }  # fmt: skip
    for page in site.glob("*.html"):
        links = [each.attributes["href"] for each in Page(page.read_text()).all("a")]
        for link in links:
            name, _, section = link.partition("#")
            target = Page((site / name).read_text() if name else page.read_text())
            assert not section or target.all("section", id=section), link
        assert "state.json" not in page.read_text()
    only = kraft("regress", "dashboard", store, "--html", site, "--project", "search*", "--json")
    assert [each["project"] for each in only.json["projects"]] == ["search/index"]
    assert only.json == json.loads((site / "projects.json").read_text())


def test_what_is_wrong_is_said_with_what_to_do(kraft: Run, store: Path, tmp_path: Path) -> None:
    missing = kraft("regress", "serve", tmp_path / "no")
    assert missing.code == 2
    assert "is not a store of results" in missing.err
    assert "kraft bench ingest" in missing.err
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = kraft("regress", "serve", store, "--port", port)
    assert taken.code == 2
    assert f"port {port} is taken: choose another one with --port; 0 takes a free one" in taken.err
    link = kraft("regress", "serve", store, "--repository-url", "javascript:alert(1)")
    assert link.code == 2
    assert kraft("regress", "dashboard", store).code == 2
    as_of = kraft("regress", "dashboard", store, "--html", tmp_path / "b", "--as-of", "7")
    assert as_of.code == 2


def test_help_has_examples(kraft: Run) -> None:
    for command in ("serve", "dashboard"):
        ran = kraft("regress", command, "--help")
        assert ran.code == 0
        assert f"kraft regress {command} results" in ran.out
