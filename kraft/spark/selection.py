"""What a user names as baseline and candidate: files that hold runs, or runs of a store.

Owns those names and how they are read into tables, without Spark. `files_of` takes a file, a folder
or a glob; `Runs` is what of a store is meant: a commit, a run, the last few. Fed by ``kraft regress
compare``; feeds `regression.comparison` and `comparing`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import has_magic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft.errors import BenchmarkFileError, InvalidRequestError
from kraft.regression.points import SeriesKey
from kraft.regression.results import read_run
from kraft.regression.runs import Run, points_table
from kraft.spark.result_files import find_files
from kraft.spark.store import list_runs, read_table

_KEY = list(SeriesKey._fields)


def is_path(name: str) -> bool:
    """Whether files are meant: something is called so, or it is a glob."""
    return os.path.exists(name) or has_magic(name)


def files_of(name: str) -> list[tuple[str, int]]:
    """The files that ``name`` says, with their bytes: itself, all ``*.json`` below a folder, or
    what a glob matches (``**`` for any folders).

    Raises BenchmarkFileError where there are none, or one cannot be looked at.
    """
    files, problems = find_files([name])
    if problems:
        raise BenchmarkFileError(f"{problems[0].path}: {problems[0].reason}")
    if not files:
        raise BenchmarkFileError(f"{name}: no *.json in it or below it")
    return files


def runs_of(
    paths: Sequence[str], *, strict: bool = False, ignore_node: bool = False
) -> tuple[pa.Table, list[str]]:
    """The points of these files, oldest run first, and what was skipped, with its path and why.

    Raises BenchmarkFileError where nothing can be read, or ``strict`` and not all of it.
    """
    runs: list[Run] = []
    problems: list[str] = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                run = read_run(file.read(), path, ignore_node=ignore_node)
        except BenchmarkFileError as error:
            problems.append(str(error))
            continue
        except OSError as error:
            problems.append(f"{path}: it cannot be read: {error.strerror or error}")
            continue
        problems += [f"{problem.path}: {problem.reason}" for problem in run.problems]
        runs.append(run)
    refuse(problems, count=len(runs), strict=strict)
    return points_table(sorted(runs, key=lambda run: (run.time_us, run.run_id))), problems


def refuse(problems: Sequence[str], *, count: int, strict: bool) -> None:
    """Raises BenchmarkFileError where nothing was read (``count`` 0), or ``strict`` and not all."""
    if problems and (strict or not count):
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise BenchmarkFileError(f"{problems[0]}{more}")


@dataclass(frozen=True)
class Runs:
    """Runs of a store: those of one commit, one run, or the last ones of each series."""

    text: str
    last: int = 0  # runs of each series; 0 where a commit or a run is meant

    @classmethod
    def parse(cls, text: str) -> Runs:
        """``last:10``, or the first digits of a commit or of a run's id.

        Raises InvalidRequestError for anything else.
        """
        if text.startswith("last:"):
            count = text.removeprefix("last:")
            if not count.isdecimal() or int(count) < 1:
                raise InvalidRequestError(f"{text!r}: last:N wants a number of runs, 1 or more")
            return cls(text, int(count))
        if re.fullmatch("[0-9a-fA-F]{4,64}", text):
            return cls(text.lower())
        raise InvalidRequestError(
            f"{text!r} is no file, and neither a commit, a run nor last:N of the store "
            "(4 digits of a commit or run are enough)"
        )

    def read(
        self, store: str | os.PathLike[str], columns: Sequence[str], before: pa.Table | None = None
    ) -> pa.Table:
        """The points that are meant, with their keys, ``run_id``, ``time`` and ``columns``, oldest
        first.

        ``before`` is the candidate, where its baseline is looked for: of each series the last runs
        are those that are older than all of the candidate's, and a run of the candidate is never
        its own baseline.

        Raises InvalidRequestError where no run is meant, or the digits fit several commits.
        """
        light = [*_KEY, "run_id", "time"]
        if self.last:
            run_ids = self._of_last(read_table(store, columns=light), before)["run_id"]
        else:
            run_ids = pa.array(self._named(store), pa.string())
        points = read_table(
            store,
            columns=list(dict.fromkeys([*light, *columns])),
            filters=pc.field("run_id").isin(pc.unique(run_ids)),
        )
        points = self._of_last(points, before) if self.last else _without(points, before)
        if not points.num_rows:
            than = " beside the candidate" if before is not None else ""
            raise InvalidRequestError(f"{self.text}: the store holds no such runs{than}")
        return points.sort_by([("time", "ascending"), ("run_id", "ascending")])

    def _named(self, store: str | os.PathLike[str]) -> list[str]:
        """The ids of the runs that the digits mean."""
        runs = list_runs(store)
        of_commit = [each for each in runs if (each.commit or "").lower().startswith(self.text)]
        commits = sorted({each.commit or "" for each in of_commit})
        if len(commits) > 1:
            raise InvalidRequestError(
                f"{self.text}: {len(commits)} commits begin so, {commits[0]} and {commits[1]} "
                "among them"
            )
        of_run = [each.run_id for each in runs if each.run_id.startswith(self.text)]
        return [each.run_id for each in of_commit] + of_run

    def _of_last(self, points: pa.Table, before: pa.Table | None) -> pa.Table:
        """The rows of the last runs of each series."""
        points = _without(points, before)
        rows = points.select([*_KEY, "run_id", "time"])
        rows = rows.append_column("row", pa.array(np.arange(points.num_rows)))
        if before is not None:
            oldest = before.group_by(_KEY).aggregate([("time", "min")])
            rows = rows.join(_plain(oldest), _KEY, join_type="inner")
            rows = rows.filter(pc.less(rows["time"], rows["time_min"]))
        if not rows.num_rows:
            return points.slice(0, 0)
        newest = [("time", "descending"), ("run_id", "descending")]
        rows = rows.sort_by([*((name, "ascending") for name in _KEY), *newest])
        begins = np.zeros(rows.num_rows, dtype=bool)
        begins[0] = True
        for name in _KEY:
            codes = rows[name].combine_chunks().dictionary_encode().indices.to_numpy()
            begins[1:] |= codes[1:] != codes[:-1]
        places = np.arange(rows.num_rows)
        since = places - np.maximum.accumulate(np.where(begins, places, 0))
        return points.take(pa.array(np.sort(rows["row"].to_numpy()[since < self.last])))


def _plain(table: pa.Table) -> pa.Table:
    """With strings for dictionaries of strings, which do not join."""
    for place, name in enumerate(table.column_names):
        if pa.types.is_dictionary(table.schema.field(place).type):
            table = table.set_column(place, name, table[name].cast(pa.string()))
    return table


def _without(points: pa.Table, others: pa.Table | None) -> pa.Table:
    """Without the runs that are among ``others``."""
    if others is None:
        return points
    runs = pc.unique(others["run_id"].cast(pa.string()))
    return points.filter(pc.invert(pc.is_in(points["run_id"], value_set=runs)))
