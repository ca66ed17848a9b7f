"""The README's commands from pytest-benchmark to a report page, each run as a process."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.result_documents import document, save

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")
pytest.importorskip("plotly", reason="needs kraft[spark]: pip install 'kraft[spark]'")

# Only the work advances the clock, so that a busy machine does not change the results.
_CLOCK = """
from random import Random

_noise = Random(1)
_now_s = 0.0

def read():
    global _now_s
    _now_s += 1e-9
    return _now_s

def work(units):
    global _now_s
    _now_s += units * 1e-6 * _noise.uniform(1.0, 1.02)
"""
_SUITE = """
import clock
import pytest

@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_sum(benchmark, size):
    benchmark.pedantic(clock.work, (size * {times},), rounds=20, warmup_rounds=2)
"""
_LOOKUP = """
import clock

def test_lookup(benchmark):
    benchmark.pedantic(clock.work, ({times},), rounds=20)
"""


#: Commits of the project, and the first one with twice the work.
_COMMITS, _SLOW = 24, 14


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # pytest-benchmark measures nothing in a worker of pytest-xdist.
    environment = {name: os.environ[name] for name in os.environ if "PYTEST_XDIST" not in name}
    environment["PYTHONPATH"] = str(folder)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def measured(folder: Path, name: str, *, times: int) -> None:
    """Run a suite whose work is repeated `times` times; pytest-benchmark writes the result."""
    (folder / "clock.py").write_text(_CLOCK)
    (folder / "test_sum.py").write_text(_SUITE.format(times=times))
    options = ["-q", "-p", "no:cacheprovider", "--benchmark-timer=clock.read"]
    options += [f"--benchmark-json={name}"]
    done = ran([sys.executable, "-m", "pytest", *options, "test_sum.py"], folder)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two results of a suite; the second does three times the work."""
    measured(tmp_path, "main.json", times=1)
    measured(tmp_path, "branch.json", times=3)
    return tmp_path


def test_results_become_a_store_a_table_and_a_page(folder: Path) -> None:
    kraft = str(Path(sys.executable).with_name("kraft"))
    ingested = ran([kraft, "bench", "ingest", "main.json", "--store", "build/results"], folder)
    assert ingested.returncode == 0, ingested.stderr
    again = ran([kraft, "bench", "ingest", "*.json", "--store", "build/results"], folder)
    assert again.returncode == 0, again.stderr
    page = ["--html", "report.html"]
    looked = ran([kraft, "regress", "--store", "build/results", *page], folder)
    assert looked.returncode == 0, looked.stderr
    assert "3 series" in looked.stdout
    assert "too little data" in looked.stdout
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert "test_sum" in html
    assert "<script src=" not in html


def test_a_slower_branch_fails_and_a_faster_one_does_not(folder: Path) -> None:
    kraft = str(Path(sys.executable).with_name("kraft"))
    compare = [kraft, "regress", "compare"]
    slower = ran([*compare, "main.json", "branch.json", "--threshold", "5%"], folder)
    assert slower.returncode == 1, slower.stderr
    assert "test_sum[size=100000]" in slower.stdout
    assert ran([*compare, "branch.json", "main.json"], folder).returncode == 0
    same = folder / "same.json"
    shutil.copy(folder / "main.json", same)
    assert ran([*compare, "main.json", "same.json"], folder).returncode == 0
    refused = ran([*compare, "main.json", "missing.json"], folder)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: missing.json: ")


def commands_of_the_readme() -> dict[str, list[str]]:
    """Return the words of each command for a project, by the words before its first option."""
    page = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (block,) = [part for part in page.split("```sh\n") if part.startswith("pytest ")]
    found = {}
    for line in block.partition("```")[0].replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        name = " ".join(words).partition(" --")[0]
        found[f"{name} --fail" if "--fail" in words else name] = words
    return found


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, list[str]]:
    """Return a git repository with a suite, whose store has every second commit, and the ids of its
    commits. The suite is ten times as slow here as on the machine of the store.
    """
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "clock.py").write_text(_CLOCK)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --benchmark-timer=clock.read\n")
    (folder / ".gitignore").write_text(
        "__pycache__\n.*_cache\nbuild\n/kraft-bisect\n/result.json\n"
    )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    assert ran([*git, "init", "-q", "-b", "main", "."], folder).returncode == 0
    for commit in range(_COMMITS):
        times = 20 if commit >= _SLOW else 10
        (folder / "test_table.py").write_text(f"# {commit}\n" + _LOOKUP.format(times=times))
        for command in (["add", "."], ["commit", "-q", "-m", f"Change {commit}"]):
            done = ran([*git, *command], folder)
            assert done.returncode == 0, done.stderr
    commits = ran([*git, "rev-list", "--reverse", "main"], folder).stdout.split()
    for at in range(_COMMITS):
        commit = at // 2 * 2
        values = {"test_lookup": [(2 if commit >= _SLOW else 1) * (1 + at % 3 / 200)]}
        content = document(at=at, commit=commits[commit], values=values, suite="test_table.py")
        save(tmp_path / "runs" / f"{at}.json", content)
    kraft = str(Path(sys.executable).with_name("kraft"))
    store = str(folder / "build" / "results")
    stored = ran([kraft, "bench", "ingest", "runs", "--store", store], tmp_path)
    assert stored.returncode == 0, stored.stderr
    return folder, commits


def test_the_readme_s_commands_as_typed_in_a_project(project: tuple[Path, list[str]]) -> None:
    folder, commits = project
    typed = commands_of_the_readme()

    def run(name: str) -> str:
        done = ran(typed[name], folder)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    run("pytest")
    assert "points added   1" in run("kraft bench ingest result.json")
    assert "1 regression," in run("kraft regress")
    assert "test_lookup" in (folder / "build" / "report.html").read_text(encoding="utf-8")
    named = run("kraft regress bisect")
    assert f"{commits[_SLOW]} Change {_SLOW}" in named
    assert ran(typed["kraft regress --fail"], folder).returncode == 1
    assert "checksums are verified now" in run("kraft regress accept")
    assert "covered by verdicts" in run("kraft regress --fail")
    sent = run("kraft regress comment build/comment.md")
    assert sent.startswith("POST https://api.github.com/repos/owner/name/issues/12/comments")
    assert "test_lookup" in sent
    # The others have tests above, and in tests/unit/cli/test_regress_serve.py.
    assert typed.keys() >= {
        "kraft regress compare main.json branch.json",
        "kraft regress serve build/results",
    }
    assert len(typed) == 9
