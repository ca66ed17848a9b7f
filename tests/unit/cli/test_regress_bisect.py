"""``kraft regress bisect`` on a git repository whose commits contain their own results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.command_line import run_command
from tests.harness.result_documents import document, save
from tests.unit.cli.conftest import Run

pytest.importorskip("msgspec", reason="needs kraft[regress]")

ROOT = Path(__file__).parents[3]
COMMITS, SLOW = 30, 19
WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "a"), ("EMAIL", "a@example.org"))
}
#: Each commit has its result in a file, as if it had just been measured.
MEASURE = "cp result.json $KRAFT_RESULT"


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    env = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


def level(commit: int) -> float:
    """Return a commit's value: 20 % slower from commit `SLOW` on, with 1 % noise."""
    return (1.2 if commit >= SLOW else 1.0) * (1 + 0.01 * ((commit * 7) % 5 - 2))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that the tests do not change."""
    place = tmp_path_factory.mktemp("project")
    git(place, "init", "-q", "-b", "main", ".")
    for commit in range(COMMITS):
        # Measured again, on another machine: 30 % slower.
        content = document(at=500, node="m2", values={"test_a": [1.3 * level(commit)]})
        save(place / "result.json", content)
        git(place, "add", "result.json")
        git(place, "commit", "-q", "-m", f"Change {commit}")
    (place / "unsaved.txt").write_text("work in progress")
    return place


@pytest.fixture(scope="module")
def commits(repository: Path) -> list[str]:
    return git(repository, "rev-list", "--reverse", "main").split()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, commits: list[str]) -> Path:
    """A store in which every third commit was measured three times."""
    place = tmp_path_factory.mktemp("history")
    for run in range(COMMITS):
        commit = run // 3 * 3
        value = (1.2 if commit >= SLOW else 1.0) * (1 + 0.005 * (run % 3 - 1))
        content = document(at=run, commit=commits[commit], values={"test_a": [value]})
        save(place / "runs" / f"{run}.json", content)
    ran = run_command("bench", "ingest", place / "runs", "--store", place / "store")
    assert ran.code == 0
    return place / "store"


def worktrees(repository: Path) -> int:
    return len(git(repository, "worktree", "list").splitlines())


def test_the_commit_is_named_with_few_runs(
    kraft: Run, repository: Path, commits: list[str], store: Path, tmp_path: Path
) -> None:
    head = git(repository, "status", "--short", "--branch")
    results = tmp_path / "results"
    options = ("--store", store, "--repository", repository, "--results", results)
    ran = kraft("regress", "bisect", *options, "--run", MEASURE, "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert found["commit"] == commits[SLOW]
    assert found["subject"] == f"Change {SLOW}"
    assert found["probability"] >= 0.95
    assert found["ratio"] == pytest.approx(1.2, abs=0.02)
    assert found["runs"] == len(list(results.iterdir())) <= 12
    assert found["next"] is None
    assert "run 1: " in ran.err
    assert git(repository, "status", "--short", "--branch") == head
    assert worktrees(repository) == 1
    # The results are enough to answer again, and text has the same commit.
    again = kraft("regress", "bisect", *options, "--run", "exit 1")
    assert again.code == 0
    assert f"{commits[SLOW]} Change {SLOW}" in again.out


def test_dry_runs_lead_to_the_commit_too(
    kraft: Run, repository: Path, commits: list[str], store: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    options = ("--store", store, "--repository", repository, "--results", results, "--dry-run")
    for number in range(20):
        found = kraft("regress", "bisect", *options, "--json").json
        if found["commit"]:
            break
        place = commits.index(found["next"]["commit"])
        content = document(at=number, commit=commits[place], values={"test_a": [level(place)]})
        save(results / f"mine-{number}.json", content)
    assert found["commit"] == commits[SLOW]
    assert found["runs"] == number
    (results / "notes.txt").write_text("no result")
    ran = kraft("regress", "bisect", *options)
    assert ran.code == 0
    assert "notes.txt" in ran.err


def test_a_dry_run_says_what_to_measure_next(
    kraft: Run, repository: Path, commits: list[str], store: Path, tmp_path: Path
) -> None:
    ran = kraft(
        *("regress", "bisect", "--store", store, "--repository", repository, "--dry-run"),
        *("--old", commits[2], "--new", commits[28], "--results", tmp_path / "none"),
    )
    assert ran.code == 0
    assert f"Measure {commits[2]} next, 1 time" in ran.out
    assert not (tmp_path / "none").exists()


def test_commits_that_cannot_be_measured_are_skipped(
    kraft: Run, repository: Path, commits: list[str], store: Path, tmp_path: Path
) -> None:
    broken = commits[SLOW]
    command = f'test "$KRAFT_COMMIT" != {broken} && {MEASURE}'
    ran = kraft(
        *("regress", "bisect", "--store", store, "--repository", repository, "--json"),
        *("--results", tmp_path / "results", "--run", command),
    )
    assert ran.code == 3
    assert ran.json["commit"] is None
    assert ran.json["skipped"] == [broken]
    likely = {each["commit"] for each in ran.json["likely"][:2]}
    assert likely == {broken, commits[SLOW + 1]}
    assert f"{broken[:10]} is skipped: the command failed: exit code 1" in ran.err
    assert worktrees(repository) == 1


def test_runs_without_the_change_name_no_commit(
    kraft: Run, repository: Path, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "same.json").write_text(json.dumps(document(at=1, values={"test_a": [1.0]})))
    ran = kraft(
        *("regress", "bisect", "--store", store, "--repository", repository),
        *("--results", tmp_path / "results", "--run", f"cp {tmp_path}/same.json $KRAFT_RESULT"),
    )
    assert ran.code == 3
    assert "No commit: the new runs show no change" in ran.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name a command with --run, or ask what to run with --dry-run"),
        (("--dry-run", "--change", "abcdef12"), "no change at abcdef12 in 1 series"),
        (("--dry-run", "--benchmark", "test_z"), "no series matches"),
        (("--dry-run", "--confidence", "30%"), "'30%' is not a confidence"),
        (("--dry-run", "--old", "nosuchcommit"), "the repository has no commit nosuchcommit"),
        (("--dry-run", "--old", "main", "--new", "main~3"), "main is not an ancestor of main~3"),
    ],
)
def test_bad_input_exits_with_2(
    kraft: Run, repository: Path, store: Path, options: tuple[str, ...], message: str
) -> None:
    ran = kraft("regress", "bisect", "--store", store, "--repository", repository, *options)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_command_and_removes_the_worktree(
    repository: Path, store: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Also a child of the command that ignores SIGTERM."""
    pids = tmp_path / "pids"
    child = f"(trap '' TERM; exec sleep 300) & echo $! $$ > {pids}"
    command = f"{child}; pwd > {pids}.part; mv {pids}.part {pids}.tree; wait"
    arguments = ["regress", "bisect", "--store", store, "--repository", repository]
    arguments += ["--results", tmp_path / "results", "--run", command]
    process = subprocess.Popen(
        [sys.executable, "-c", "from kraft.cli import main; main()", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        await_(lambda: (tmp_path / "pids.tree").exists() or process.poll() is not None, 120)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(120) == 130
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
    for pid in map(int, pids.read_text().split()):
        await_(lambda pid=pid: not is_running(pid), 60)
    assert worktrees(repository) == 1
    tree = (tmp_path / "pids.tree").read_text().strip()
    assert "kraft-bisect-" in tree
    assert not Path(tree).exists()
    assert list((tmp_path / "results").iterdir()) == []


def await_(holds: object, seconds: float) -> None:
    assert callable(holds)
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Return whether a process exists; one that has ended and was not waited for does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return False
    return state != "Z"
