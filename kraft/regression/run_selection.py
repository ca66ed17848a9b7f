"""The runs that a user names as baseline and candidate: files, or runs of a store.

``kraft regress compare`` calls this module; the tables it returns go to `regression.comparison` and
`frame_comparison`. `files_of` accepts a file, a folder or a glob; `RunSelection` selects runs of a
store by a commit, a run, or the last few.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import has_magic
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft.errors import BenchmarkFileError, InvalidRequestError
from kraft.regression import comparison
from kraft.regression.commit_order import (
    RunLike,
    Scope,
    ancestors,
    commit_graph,
    order_runs,
    runs_in_scope,
)
from kraft.regression.points import METRIC_COLUMNS
from kraft.regression.project_rules import ProjectRules
from kraft.regression.result_files import find_files
from kraft.regression.runs import BenchmarkRun, points_table
from kraft.regression.sources.conversion import ResultReading, read_runs
from kraft.regression.store import list_runs, read_table

_KEY = comparison.KEY
_BENCHMARK_KEY = [name for name in _KEY if name != "project"]
_MAIN = Scope()
_DETECTED = ResultReading()
_NO_RULES = ProjectRules()


def is_path(name: str) -> bool:
    """Return whether the name is that of an existing file, or a glob."""
    return os.path.exists(name) or has_magic(name)


def files_of(name: str) -> list[tuple[str, int]]:
    """Return the files of ``name`` with their sizes in bytes.

    They are the file itself, all ``*.json`` below a folder, or the matches of a glob (``**`` for
    any folders). Raises BenchmarkFileError if there are none, or one is not accessible.
    """
    files, problems = find_files([name])
    if problems:
        raise BenchmarkFileError(f"{problems[0].path}: {problems[0].reason}")
    if not files:
        raise BenchmarkFileError(f"{name}: no *.json in it or below it")
    return files


def runs_of(
    paths: Sequence[str], reading: ResultReading = _DETECTED, *, strict: bool = False
) -> tuple[pa.Table, list[str]]:
    """Return the points of these files, oldest run first, and the skipped input with path and
    reason.

    Raises BenchmarkFileError if no file is readable, or if ``strict`` and any input is skipped.
    """
    runs: list[BenchmarkRun] = []
    problems: list[str] = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                found = read_runs(file.read(), path, reading)
        except BenchmarkFileError as error:
            problems.append(str(error))
            continue
        except OSError as error:
            problems.append(f"{path}: cannot be read: {error.strerror or error}")
            continue
        problems += [f"{each.path}: {each.reason}" for run in found for each in run.problems]
        runs += found
    raise_on_problems(problems, count=len(runs), strict=strict)
    return points_table(sorted(runs, key=lambda run: (run.time_us, run.run_id))), problems


def raise_on_problems(problems: Sequence[str], *, count: int, strict: bool) -> None:
    """Raise BenchmarkFileError for problems if nothing was read (``count`` 0) or if ``strict``."""
    if problems and (strict or not count):
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise BenchmarkFileError(f"{problems[0]}{more}")


def with_current_names(points: pa.Table, rules: ProjectRules) -> pa.Table:
    """Return the points with the names that their benchmarks have now."""
    if not rules.rename:
        return points
    names = zip(points["suite"].to_pylist(), points["benchmark"].to_pylist(), strict=True)
    now = [rules.renamed(suite, benchmark) for suite, benchmark in names]
    for at, column in enumerate(("suite", "benchmark")):
        place = points.column_names.index(column)
        values = pa.array([name[at] for name in now], pa.string())
        points = points.set_column(place, pa.field(column, pa.string(), nullable=False), values)
    return points


@dataclass(frozen=True)
class RunSelection:
    """Runs of a store: those of one commit, one run, or the last ones of each series."""

    text: str
    last: int = 0  # runs of each series; 0 for a commit or a run

    @classmethod
    def parse(cls, text: str) -> RunSelection:
        """Parse ``last:10``, or the first digits of a commit or a run id.

        Raises InvalidRequestError for anything else.
        """
        if text.startswith("last:"):
            count = text.removeprefix("last:")
            if not count.isdecimal() or int(count) < 1:
                raise InvalidRequestError(f"{text!r}: last:N needs a number of runs, 1 or more")
            return cls(text, int(count))
        if re.fullmatch("[0-9a-fA-F]{4,64}", text):
            return cls(text.lower())
        raise InvalidRequestError(
            f"{text!r} is not a file, nor a commit, a run or last:N of the store "
            "(4 digits of a commit or run are enough)"
        )

    def read(
        self,
        store: str | os.PathLike[str],
        columns: Sequence[str],
        before: pa.Table | None = None,
        scope: Scope = _MAIN,
        rules: ProjectRules = _NO_RULES,
    ) -> pa.Table:
        """Return the selected points, oldest first: keys, ``run_id``, ``time``, commit data and
        ``columns``.

        ``before`` is the candidate, if this is its baseline. Then the last runs of ``scope`` are
        those before the candidate's branch left them (`_before_branch_point`), and a run of the
        candidate is never its own baseline. ``rules`` say which names are one benchmark; the
        result has the names of the results.

        Raises InvalidRequestError if no run matches, or if the digits match several commits.
        """
        light = [*_KEY, *METRIC_COLUMNS, "run_id", "time", "commit", "commit_time", "parents"]
        order = self._order(store, before, scope) if self.last else None
        wanted = pa.array(self._named(store), pa.string()) if order is None else order
        if order is not None:
            there = pc.field("run_id").isin(order)
            light_points = read_table(store, columns=[*_KEY, "run_id"], filters=there)
            wanted = self._of_last(light_points, before, order, rules)["run_id"]
        points = read_table(
            store,
            columns=list(dict.fromkeys([*light, *columns])),
            filters=pc.field("run_id").isin(pc.unique(wanted)),
        )
        points = _without(points, before)
        if order is not None:
            points = self._of_last(points, before, order, rules)
        if not points.num_rows:
            than = " other than the candidate" if before is not None else ""
            raise InvalidRequestError(f"{self.text}: the store has no such runs{than}")
        return points.sort_by([("time", "ascending"), ("run_id", "ascending")])

    def _order(
        self, store: str | os.PathLike[str], before: pa.Table | None, scope: Scope
    ) -> pa.Array:
        """Return the ids of the runs from which the last ones are selected, oldest first."""
        runs: Sequence[RunLike] = list_runs(store)
        if before is not None:
            projects = {each for each in before["project"].to_pylist() if each}
            runs = [
                run for run in runs if not projects or not run.project or run.project in projects
            ]
        kept, _ = runs_in_scope(runs, scope)
        graph = dict(commit_graph(runs, scope.repository))
        if before is not None:
            kept = _before_branch_point(kept, before, graph)
        return pa.array(order_runs(kept, graph), pa.string())

    def _named(self, store: str | os.PathLike[str]) -> list[str]:
        """Return the ids of the runs whose id or commit begins with the digits."""
        runs = list_runs(store)
        of_commit = [each for each in runs if (each.commit or "").lower().startswith(self.text)]
        commits = sorted({each.commit or "" for each in of_commit})
        if len(commits) > 1:
            raise InvalidRequestError(
                f"{self.text}: {len(commits)} commits match, {commits[0]} and {commits[1]} "
                "among them"
            )
        of_run = [each.run_id for each in runs if each.run_id.startswith(self.text)]
        return [each.run_id for each in of_commit] + of_run

    def _of_last(
        self, points: pa.Table, before: pa.Table | None, order: pa.Array, rules: ProjectRules
    ) -> pa.Table:
        """Return the rows of the last runs in ``order`` of each series that ``before`` contains."""
        names = [*_KEY, "run_id"]
        rows = with_current_names(_plain(points.select(names)), rules).append_column(
            "row", pa.array(np.arange(points.num_rows))
        )
        rows = rows.append_column("place", pc.index_in(rows["run_id"], order))
        rows = rows.filter(pc.is_valid(rows["place"]))
        filled = pc.fill_null(rows["project"], "")
        rows = rows.set_column(rows.column_names.index("project"), "project", filled)
        if before is not None:
            there = (
                with_current_names(_plain(before.select(_BENCHMARK_KEY)), rules)
                .group_by(_BENCHMARK_KEY)
                .aggregate([])
            )
            rows = rows.join(there, _BENCHMARK_KEY, join_type="left semi")
        if not rows.num_rows:
            return points.slice(0, 0)
        rows = rows.sort_by([*((name, "ascending") for name in _KEY), ("place", "descending")])
        begins = np.zeros(rows.num_rows, dtype=bool)
        begins[0] = True
        for name in _KEY:
            codes = rows[name].combine_chunks().dictionary_encode().indices.to_numpy()
            begins[1:] |= codes[1:] != codes[:-1]
        places = np.arange(rows.num_rows)
        since = places - np.maximum.accumulate(np.where(begins, places, 0))
        return points.take(pa.array(np.sort(rows["row"].to_numpy()[since < self.last])))


def _before_branch_point(
    runs: Sequence[RunLike], candidate: pa.Table, graph: dict[str, Sequence[str]]
) -> list[RunLike]:
    """Return the runs before the candidate's branch left them, without its own runs.

    With a commit graph, these are the runs of the candidate's commit and its ancestors: later
    merges into the base are not part of the candidate. If the graph does not contain its commit,
    they are the runs of commits that are not younger; without commits, the older runs.
    """
    rows = _plain(candidate.select(["run_id", "commit"]))
    own = set(rows["run_id"].to_pylist())
    commits = sorted({each for each in rows["commit"].to_pylist() if each})
    named = (
        candidate.select(["commit", "parents"]).to_pylist()
        if "parents" in (candidate.column_names)
        else []
    )
    graph |= {
        each["commit"]: each["parents"] for each in named if each["commit"] and each["parents"]
    }
    runs = [run for run in runs if run.run_id not in own]
    before = [found for each in commits if (found := ancestors(each, graph)) is not None]
    if before and len(before) == len(commits):
        common = set.intersection(*before)
        known = [run for run in runs if run.commit in common]
        if known:
            return known
    began = _first(candidate, "time")
    committed = _first(candidate, "commit_time")
    return [
        run
        for run in runs
        if (
            run.time_us < began
            if committed is None or run.commit_time_us is None
            else run.commit_time_us <= committed and run.commit not in commits
        )
    ]


def _first(table: pa.Table, name: str) -> Any:
    """Return the least time of a column in microseconds since 1970, None if it is empty."""
    column = table[name].combine_chunks().cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return pc.min(column).as_py()


def _plain(table: pa.Table) -> pa.Table:
    """Return the table with strings in place of dictionaries, which Arrow does not join."""
    for place, name in enumerate(table.column_names):
        if pa.types.is_dictionary(table.schema.field(place).type):
            table = table.set_column(place, name, table[name].cast(pa.string()))
    return table


def _without(points: pa.Table, others: pa.Table | None) -> pa.Table:
    """Return the points without the runs in ``others``."""
    if others is None:
        return points
    runs = pc.unique(others["run_id"].cast(pa.string()))
    return points.filter(pc.invert(pc.is_in(points["run_id"], value_set=runs)))
