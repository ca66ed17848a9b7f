"""Which runs make a history, and in which order.

Owns the choice of projects, branches and clean trees, and the order of runs: that of the commit
graph where it is known (parents that results name, or a repository), by commit time else, by the
time of the run last. So a commit that is measured late lands where it belongs. Called by
`kraft.spark.analysis` and `kraft.spark.selection` with the runs of a store or a DataFrame.
"""

from __future__ import annotations

import heapq
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Protocol

from kraft.errors import InvalidRequestError
from kraft.regression.findings import SeriesFinding

#: The main branch of a project, the first of these that it has; else the one with most runs.
MAIN_BRANCHES = ("main", "master", "trunk", "develop")

#: A series that so many newer runs of its suite lack has ended.
ENDED_AFTER = 3

#: Commit -> its parents.
Graph = Mapping[str, Sequence[str]]


class RunLike(Protocol):
    """What is known of a run without its points."""

    @property
    def run_id(self) -> str: ...
    @property
    def machine(self) -> str: ...
    @property
    def project(self) -> str | None: ...
    @property
    def branch(self) -> str | None: ...
    @property
    def commit(self) -> str | None: ...
    @property
    def commit_time_us(self) -> int | None: ...
    @property
    def time_us(self) -> int: ...
    @property
    def dirty(self) -> bool | None: ...
    @property
    def parents(self) -> Sequence[str] | None: ...


@dataclass(frozen=True)
class RunInfo:
    """One run; the time is microseconds since 1970, UTC."""

    run_id: str
    machine: str
    project: str | None
    branch: str | None
    commit: str | None
    commit_time_us: int | None
    time_us: int
    dirty: bool | None
    parents: Sequence[str] | None = None


@dataclass(frozen=True)
class Scope:
    """Which runs are looked at. The globs know ``*`` and ``?``.

    ``branch`` None is each project's main branch. ``repository`` is a working copy or a bare
    repository of git that knows the commits.
    """

    project: str | None = None
    branch: str | None = None
    include_dirty: bool = False
    repository: str | PathLike[str] | None = None


def glob_pattern(glob: str) -> str:
    """A glob as a regular expression, the same to Python, Java and Arrow.

    ``*`` is any text, ``?`` one character; everything else is itself, brackets included, as they
    are part of parametrised names.
    """
    special = {"*": ".*", "?": "."}
    return "^" + "".join(special.get(each) or re.escape(each) for each in glob) + "$"


def chosen(runs: Sequence[RunLike], scope: Scope) -> tuple[list[RunLike], list[str]]:
    """Return the runs of ``scope`` and a line for each kind of run that it leaves out."""
    problems = []
    if scope.project is not None:
        wanted = re.compile(glob_pattern(scope.project))
        runs = [run for run in runs if wanted.search(run.project or "")]
    if scope.branch is not None:
        wanted = re.compile(glob_pattern(scope.branch))
        kept = [run for run in runs if wanted.search(run.branch or "")]
    else:
        main = main_branches(runs)
        kept = [run for run in runs if (run.branch or "") == main[run.project or ""]]
        others = Counter((run.branch or "unknown") for run in runs) - Counter(
            (run.branch or "unknown") for run in kept
        )
        if others:
            names = ", ".join(f"{name} ({count})" for name, count in others.most_common(5))
            more = f" and {len(others) - 5} more" if len(others) > 5 else ""
            problems.append(
                f"runs of other branches are left out: {names}{more}; --branch NAME or '*' takes "
                "them"
            )
    clean = [run for run in kept if not run.dirty]
    if len(clean) < len(kept):
        count = len(kept) - len(clean)
        runs_of = f"{count:,} {'run' if count == 1 else 'runs'} of dirty trees"
        if scope.include_dirty:
            problems.append(f"{runs_of} in these histories: what they measured is in no commit")
        else:
            problems.append(f"{runs_of} left out; --include-dirty takes them")
            kept = clean
    return kept, problems


def main_branches(runs: Iterable[RunLike]) -> dict[str, str]:
    """Return the main branch of each project; "" is a project or branch that is not known."""
    found: dict[str, Counter[str]] = {}
    for run in runs:
        found.setdefault(run.project or "", Counter())[run.branch or ""] += 1
    return {project: _main(branches) for project, branches in found.items()}


def _main(branches: Counter[str]) -> str:
    for name in MAIN_BRANCHES:
        if branches[name]:
            return name
    named = {name: count for name, count in branches.items() if name}
    # Of as many runs the first by name, so that the answer does not depend on the order of runs.
    return min(named or branches, key=lambda name: (-branches[name], name))


def graph_of(runs: Iterable[RunLike], repository: str | PathLike[str] | None) -> Graph:
    """Return the parents of commits: those that results name, and all of a repository.

    Raises:
        InvalidRequestError: the repository cannot be read by git.
    """
    graph: dict[str, Sequence[str]] = {
        run.commit: run.parents for run in runs if run.commit and run.parents
    }
    if repository is None:
        return graph
    command = ["git", "-C", str(repository), "rev-list", "--all", "HEAD", "--parents"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise InvalidRequestError(
            f"{repository}: git cannot list the commits of this repository: {said.strip()}"
        ) from None
    for line in listed.stdout.splitlines():
        commit, *parents = line.split()
        graph[commit] = parents
    return graph


def ordered(runs: Sequence[RunLike], graph: Graph) -> list[str]:
    """Return the ids of ``runs`` in the order of their commits, oldest first.

    A commit comes behind all its ancestors, whatever clocks say; commits that the graph does not
    relate are ordered by commit time, a commit without one by its first run. Runs of one commit
    are ordered by their times, then by their ids.
    """
    of_commit: dict[str, list[RunLike]] = {}
    for run in runs:
        of_commit.setdefault(run.commit or f"\n{run.run_id}", []).append(run)
    when = {commit: _time(inside) for commit, inside in of_commit.items()}
    before = _nearest(of_commit.keys(), graph)
    behind: dict[str, list[str]] = {}
    for commit, ancestors in before.items():
        for ancestor in ancestors:
            behind.setdefault(ancestor, []).append(commit)
    waiting = {commit: len(ancestors) for commit, ancestors in before.items()}
    ready = [(when[commit], commit) for commit, count in waiting.items() if not count]
    heapq.heapify(ready)
    places = []
    while ready:
        _, commit = heapq.heappop(ready)
        places += sorted(of_commit[commit], key=lambda run: (run.time_us, run.run_id))
        for later in behind.get(commit, ()):
            waiting[later] -= 1
            if not waiting[later]:
                heapq.heappush(ready, (when[later], later))
    # Parents that results name may make a circle: those runs come last, by their times.
    done = {run.run_id for run in places}
    rest = [run for run in runs if run.run_id not in done]
    places += sorted(rest, key=lambda run: (run.time_us, run.run_id))
    return [run.run_id for run in places]


def ancestors(commit: str, graph: Graph) -> set[str] | None:
    """Return ``commit`` and all commits before it, None if the graph does not know it."""
    if commit not in graph:
        return None
    found, waiting = {commit}, [commit]
    while waiting:
        for parent in graph.get(waiting.pop(), ()):
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found


def with_ends(
    findings: Sequence[SeriesFinding], order: Sequence[str], runs: Iterable[RunLike]
) -> tuple[SeriesFinding, ...]:
    """Return the findings, those that ended or were renamed marked as such.

    A series ended if `ENDED_AFTER` runs or more of its project, branch and machine came after it,
    and another series of its suite is in one of them that far on. It was renamed if a series of the
    same benchmark begins after it in another suite; or if it ended, and the next run has exactly
    one series of its suite and parameters that is new.
    """
    place = {run_id: at for at, run_id in enumerate(order)}
    lines: dict[tuple[str, ...], list[int]] = {}
    for run in runs:
        line = (run.machine, run.project or "", run.branch or "")
        lines.setdefault(line, []).append(place[run.run_id])
    rank = {
        at: number for places in lines.values() for number, at in enumerate(sorted(places))
    }  # of a run among those of its machine, project and branch

    def last(each: SeriesFinding) -> int:
        return rank[place[each.last_run]] if each.last_run in place else -1

    def first(each: SeriesFinding) -> int:
        return rank[place[each.first_run]] if each.first_run in place else -1

    newest: dict[tuple[str, ...], int] = {}
    moved: dict[tuple[str, ...], list[SeriesFinding]] = {}
    begun: dict[tuple[object, ...], list[SeriesFinding]] = {}
    for each in findings:
        key = each.key
        line = key[3:]
        newest[(key.suite, *line)] = max(newest.get((key.suite, *line), -1), last(each))
        moved.setdefault((key.benchmark, key.params, *line), []).append(each)
        begun.setdefault((key.suite, key.params, first(each), *line), []).append(each)
    marked = []
    for each in findings:
        key, end = each.key, last(each)
        line = key[3:]
        ended = end >= 0 and newest[(key.suite, *line)] >= end + ENDED_AFTER
        others = [
            other
            for other in moved[(key.benchmark, key.params, *line)]
            if end >= 0 and first(other) > end and other.key.suite != key.suite
        ]
        if not others and ended:
            fresh = begun.get((key.suite, key.params, end + 1, *line), [])
            others = fresh if len(fresh) == 1 else []
        if others:
            name = min(others, key=first).key.name
            each = replace(each, ended=True, renamed_to=name)
        elif ended:
            each = replace(each, ended=True)
        marked.append(each)
    return tuple(marked)


def _time(runs: Sequence[RunLike]) -> int:
    committed = [run.commit_time_us for run in runs if run.commit_time_us is not None]
    return min(committed) if committed else min(run.time_us for run in runs)


def _nearest(commits: Iterable[str], graph: Graph) -> dict[str, set[str]]:
    """Return for each commit the measured commits that come before it with none in between."""
    measured = set(commits)
    nearest: dict[str, set[str]] = {}
    for commit in measured:
        found: set[str] = set()
        seen, waiting = {commit}, list(graph.get(commit, ()))
        while waiting:
            parent = waiting.pop()
            if parent in seen:
                continue
            seen.add(parent)
            if parent in measured:
                found.add(parent)
            else:
                waiting += graph.get(parent, ())
        nearest[commit] = found
    return nearest
