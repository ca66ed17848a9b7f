"""Select the runs of a history and order them by the commit graph.

This module selects projects, branches and clean trees. It orders runs by the commit graph if it is
known (from parents in the results, or from a repository), else by commit time, last by the time of
the run. So a commit that is measured late is placed where it belongs. `analysis` and
`run_selection` call it with the runs of a store or a DataFrame.
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

#: A project's main branch is the first of these that it has, else the branch with most runs.
MAIN_BRANCHES = ("main", "master", "trunk", "develop")

#: A series has ended if this many newer runs of its suite do not contain it.
ENDED_AFTER = 3

#: Commit -> its parents.
Graph = Mapping[str, Sequence[str]]


class RunLike(Protocol):
    """A run without its points."""

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
    """One run; times are microseconds since 1970, UTC."""

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
    """Which runs an analysis reads. The globs support ``*`` and ``?``.

    ``branch`` None selects each project's main branch. ``repository`` is a git working copy or bare
    repository that contains the commits. ``only`` is the one project that is read, by its name and
    not as a glob; "" is that of runs without one.
    """

    project: str | None = None
    branch: str | None = None
    include_dirty: bool = False
    repository: str | PathLike[str] | None = None
    only: str | None = None


def glob_pattern(glob: str) -> str:
    """Return a glob as a regular expression that Python, Java and Arrow interpret alike.

    ``*`` is any text, ``?`` one character. All other characters match themselves, also brackets,
    which are part of parametrised names.
    """
    special = {"*": ".*", "?": "."}
    return "^" + "".join(special.get(each) or re.escape(each) for each in glob) + "$"


def runs_in_scope(runs: Sequence[RunLike], scope: Scope) -> tuple[list[RunLike], list[str]]:
    """Return the runs of ``scope`` and one line for each kind of run that it omits."""
    problems = []
    if scope.only is not None:
        runs = [run for run in runs if (run.project or "") == scope.only]
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
                f"runs of other branches are omitted: {names}{more}; --branch NAME or '*' includes "
                "them"
            )
    clean = [run for run in kept if not run.dirty]
    if len(clean) < len(kept):
        count = len(kept) - len(clean)
        runs_of = f"{count:,} {'run' if count == 1 else 'runs'} of dirty trees"
        if scope.include_dirty:
            problems.append(f"{runs_of} included: no commit contains the code they measured")
        else:
            problems.append(f"{runs_of} omitted; --include-dirty includes them")
            kept = clean
    return kept, problems


def main_branches(runs: Iterable[RunLike]) -> dict[str, str]:
    """Return the main branch of each project; "" is an unknown project or branch."""
    found: dict[str, Counter[str]] = {}
    for run in runs:
        found.setdefault(run.project or "", Counter())[run.branch or ""] += 1
    return {project: _main(branches) for project, branches in found.items()}


def _main(branches: Counter[str]) -> str:
    for name in MAIN_BRANCHES:
        if branches[name]:
            return name
    named = {name: count for name, count in branches.items() if name}
    # Ties are resolved by name, so that the result does not depend on the order of runs.
    return min(named or branches, key=lambda name: (-branches[name], name))


def commit_graph(runs: Iterable[RunLike], repository: str | PathLike[str] | None) -> Graph:
    """Return the parents of commits, as in the results and, if given, in a repository.

    Raises:
        InvalidRequestError: git cannot read the repository.
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


def order_runs(runs: Sequence[RunLike], graph: Graph) -> list[str]:
    """Return the ids of ``runs`` in the order of their commits, oldest first.

    A commit follows all its ancestors, whatever the clocks say. Commits that the graph does not
    relate are ordered by commit time, or by their first run without one. Runs of one commit are
    ordered by time, then by id.
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
    # Parents in the results may form a cycle: those runs come last, by time.
    done = {run.run_id for run in places}
    rest = [run for run in runs if run.run_id not in done]
    places += sorted(rest, key=lambda run: (run.time_us, run.run_id))
    return [run.run_id for run in places]


def ancestors(commit: str, graph: Graph) -> set[str] | None:
    """Return ``commit`` and all its ancestors, None if the graph does not contain it."""
    if commit not in graph:
        return None
    found, waiting = {commit}, [commit]
    while waiting:
        for parent in graph.get(waiting.pop(), ()):
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found


def mark_ended(
    findings: Sequence[SeriesFinding], order: Sequence[str], runs: Iterable[RunLike]
) -> tuple[SeriesFinding, ...]:
    """Return the findings; those that ended, began or were renamed are marked as such.

    A series has ended if at least `ENDED_AFTER` later runs of its project, branch and machine
    exist, and the last of them contains another series of its suite. It was renamed if a series of
    the same benchmark begins after it in another suite; or if it ended, and the next run contains
    exactly one new series with its suite and parameters. A series began if at least `ENDED_AFTER`
    older runs of its project, branch and machine contain other series of its suite, and it does not
    continue a renamed one.
    """
    place = {run_id: at for at, run_id in enumerate(order)}
    lines: dict[tuple[str, ...], list[int]] = {}
    for run in runs:
        line = (run.machine, run.project or "", run.branch or "")
        lines.setdefault(line, []).append(place[run.run_id])
    rank = {
        at: number for places in lines.values() for number, at in enumerate(sorted(places))
    }  # position of a run within its machine, project and branch

    def last(each: SeriesFinding) -> int:
        return rank[place[each.last_run]] if each.last_run in place else -1

    def first(each: SeriesFinding) -> int:
        return rank[place[each.first_run]] if each.first_run in place else -1

    newest: dict[tuple[str, ...], int] = {}
    oldest: dict[tuple[str, ...], int] = {}
    moved: dict[tuple[str, ...], list[SeriesFinding]] = {}
    begun: dict[tuple[object, ...], list[SeriesFinding]] = {}
    for each in findings:
        key = each.key
        line = key[3:]
        newest[(key.suite, *line)] = max(newest.get((key.suite, *line), -1), last(each))
        if first(each) >= 0:
            suite = (key.suite, *line)
            oldest[suite] = min(oldest.get(suite, first(each)), first(each))
        moved.setdefault((key.benchmark, key.params, *line), []).append(each)
        begun.setdefault((key.suite, key.params, first(each), *line), []).append(each)
    marked = []
    continuing: set[str] = set()
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
            continuing.add(name)
            each = replace(each, ended=True, renamed_to=name)
        elif ended:
            each = replace(each, ended=True)
        marked.append(each)
    return tuple(
        replace(each, began=True)
        if each.key.name not in continuing
        and first(each) >= oldest.get((each.key.suite, *each.key[3:]), first(each)) + ENDED_AFTER
        else each
        for each in marked
    )


def _time(runs: Sequence[RunLike]) -> int:
    committed = [run.commit_time_us for run in runs if run.commit_time_us is not None]
    return min(committed) if committed else min(run.time_us for run in runs)


def _nearest(commits: Iterable[str], graph: Graph) -> dict[str, set[str]]:
    """Return for each measured commit its nearest measured ancestors."""
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
