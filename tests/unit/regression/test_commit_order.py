"""The runs of a history, their order, and the end of a history."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kraft.errors import InvalidRequestError
from kraft.regression import commit_order
from kraft.regression.commit_order import (
    RunInfo,
    Scope,
    commit_graph,
    mark_ended,
    order_runs,
    runs_in_scope,
)
from kraft.regression.findings import SeriesFinding, SeriesOutcome
from kraft.regression.points import SeriesKey


def run(
    name: str,
    time: int,
    *,
    commit: str | None = None,
    committed: int | None = None,
    parents: Sequence[str] | None = None,
    project: str | None = "p",
    branch: str | None = "main",
    dirty: bool | None = False,
) -> RunInfo:
    return RunInfo(name, "box", project, branch, commit, committed, time, dirty, parents)


def test_a_history_is_that_of_each_projects_main_branch() -> None:
    runs = [
        run("a", 1),
        run("b", 2, branch="feature"),
        run("c", 3, branch="feature"),
        run("d", 4, project="q", branch="release"),
        run("e", 5, project="q", branch=None),
        run("f", 6, project=None, branch=None),
    ]
    kept, (said,) = runs_in_scope(runs, Scope())
    assert [each.run_id for each in kept] == ["a", "d", "f"]
    assert said.startswith("runs of other branches are omitted: feature (2), unknown (1)")
    assert [each.run_id for each in runs_in_scope(runs, Scope(branch="feat*"))[0]] == ["b", "c"]
    assert len(runs_in_scope(runs, Scope(branch="*"))[0]) == 6
    assert [each.run_id for each in runs_in_scope(runs, Scope(project="q"))[0]] == ["d"]
    assert commit_order.main_branches(runs) == {"p": "main", "q": "release", "": ""}


def test_runs_of_dirty_trees_are_omitted_and_reported() -> None:
    runs = [run("a", 1), run("b", 2, dirty=True), run("c", 3, dirty=None)]
    kept, (said,) = runs_in_scope(runs, Scope())
    assert [each.run_id for each in kept] == ["a", "c"]
    assert said == "1 run of dirty trees omitted; --include-dirty includes them"
    kept, problems = runs_in_scope(runs, Scope(include_dirty=True))
    assert len(kept) == 3
    assert problems == ["1 run of dirty trees included: no commit contains the code they measured"]


def test_runs_are_ordered_by_graph_then_commit_time_then_run_time() -> None:
    # c2 was committed by a machine whose clock was a day slow; c1 was measured last.
    runs = [
        run("r1", 900, commit="c1", committed=100),
        run("r2", 200, commit="c2", committed=20, parents=["x"]),
        run("r3", 300, commit="c3", committed=300, parents=["c2"]),
        run("r0", 50),
        run("r4", 400, commit="c4"),
    ]
    graph = {"x": ["c1"], **commit_graph(runs, None)}
    assert order_runs(runs, graph) == ["r0", "r1", "r2", "r3", "r4"]
    assert order_runs(runs, {}) == ["r2", "r0", "r1", "r3", "r4"]
    assert order_runs(runs[::-1], graph) == order_runs(runs, graph)


def test_a_cycle_of_parents_loses_no_run() -> None:
    runs = [
        run("a", 1, commit="c1", parents=["c2"]),
        run("b", 2, commit="c2", parents=["c1"]),
        run("c", 3, commit="c3"),
    ]
    assert sorted(order_runs(runs, commit_graph(runs, None))) == ["a", "b", "c"]


def test_a_repository_determines_the_order(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    commits = []
    for number in range(3):
        git("commit", "-q", "--allow-empty", "-m", str(number))
        commits.append(git("rev-parse", "HEAD"))
    runs = [run(f"r{n}", 10 - n, commit=each, committed=10 - n) for n, each in enumerate(commits)]
    assert order_runs(runs, {}) == ["r2", "r1", "r0"]
    graph = commit_graph(runs, tmp_path)
    assert order_runs(runs, graph) == ["r0", "r1", "r2"]
    assert commit_order.ancestors(commits[1], graph) == set(commits[:2])
    assert commit_order.ancestors("elsewhere", graph) is None
    with pytest.raises(InvalidRequestError, match="git cannot list the commits"):
        commit_graph(runs, tmp_path / "absent")


def finding(benchmark: str, first: int, last: int, suite: str = "a.py") -> SeriesFinding:
    return SeriesFinding(
        key=SeriesKey(suite, benchmark, "{}", "box", "p", "main"),
        outcome=SeriesOutcome.STABLE,
        run_count=last - first + 1,
        first_time_us=first,
        last_time_us=last,
        last_value=1.0,
        noise=0.0,
        first_run=f"r{first}",
        last_run=f"r{last}",
    )


def test_a_benchmark_that_newer_runs_lack_has_ended() -> None:
    runs = [run(f"r{at}", at) for at in range(12)]
    order = [each.run_id for each in runs]
    found = mark_ended(
        [
            finding("stays", 0, 11),
            finding("ended", 0, 5),
            finding("just missing", 0, 9),
            finding("old name", 0, 7),
            finding("new name", 8, 11),
            finding("late", 3, 11),
            finding("soon", 2, 11),
            finding("moved", 0, 3, "b.py"),
            finding("moved", 4, 11, "c.py"),
            finding("alone in its suite", 0, 2, "d.py"),
        ],
        order,
        runs,
    )
    assert {
        (each.key.suite, each.key.benchmark): each.renamed_to for each in found if each.ended
    } == {
        ("a.py", "ended"): None,
        ("a.py", "old name"): "a.py::new name",
        ("b.py", "moved"): "c.py::moved",
    }
    # The new name of another benchmark did not begin.
    assert [each.key.benchmark for each in found if each.began] == ["late"]
    # Runs of another branch do not end a benchmark.
    others = [*runs[:6], *(replace(each, branch="x") for each in runs[6:])]
    assert not mark_ended([finding("ended", 0, 5)], order, others)[0].ended
