"""What is done to a table of points in one process: histories looked at, scaling laws fitted.

Owns the cut of rows into series, and which columns that needs. Pure: a table in, values out, no
Spark. Called in Spark's workers by `analysis`, or in the process itself where a store is small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft.regression import history, scaling
from kraft.regression.findings import ScalingLaw, SeriesFinding
from kraft.regression.points import Series, SeriesKey
from kraft.regression.series import gather
from kraft.regression.settings import Settings

#: Round values of a run that are looked at. A fast function has 100,000 of them, and 10,000 runs of
#: it would not fit into a worker; an even selection says as much of how they vary.
MOST_ROUNDS = 256

#: What makes a series, and what makes a benchmark whose sizes follow a law.
KEY = list(SeriesKey._fields)
BENCHMARK = ["suite", "benchmark", "machine"]

Benchmark = tuple[str, str, str]


@dataclass(frozen=True)
class Looked:
    """What is told of one series."""

    finding: SeriesFinding
    left_out: int  # runs without a usable value


def look(rows: pa.Table, settings: Settings, order: pa.Array | None = None) -> list[Looked]:
    """Every series in ``rows``, each of which has to be there whole.

    ``order`` holds the ids of the runs that are looked at, oldest first; None takes all by time.
    """
    looked = []
    for key, group in series_rows(placed(rows, order)):
        series, left_out = gather(key, group, settings.statistic)
        looked.append(Looked(history.analyse(series, settings), left_out))
    return looked


def fit(
    rows: pa.Table, settings: Settings, size_param: str | None, order: pa.Array | None = None
) -> list[ScalingLaw]:
    """The laws of the benchmarks in ``rows``, each of which has to be there with all its sizes."""
    return scaling.laws(histories(rows, settings, order).values(), settings, size_param)


def histories(
    rows: pa.Table, settings: Settings, order: pa.Array | None = None
) -> dict[SeriesKey, Series]:
    """Every series in ``rows``."""
    return {
        key: gather(key, group, settings.statistic)[0]
        for key, group in series_rows(placed(rows, order))
    }


def placed(rows: pa.Table, order: pa.Array | None) -> pa.Table:
    """The rows of the runs in ``order`` with their ``place`` in it, and "" for projects and
    branches that are not known."""
    for name in ("project", "branch"):
        column = pc.fill_null(rows[name].cast(pa.string()), "")
        rows = rows.set_column(rows.column_names.index(name), name, column)
    if order is None:
        return rows
    rows = rows.append_column("place", pc.index_in(rows["run_id"].cast(pa.string()), order))
    return rows.filter(pc.is_valid(rows["place"]))


def series_rows(rows: pa.Table) -> Iterator[tuple[SeriesKey, pa.Table]]:
    """The series in a table with the columns `KEY`, each with its rows, in the order of keys."""
    if rows.num_rows == 0:
        return
    rows = rows.combine_chunks().sort_by([(name, "ascending") for name in KEY])
    changes = np.zeros(rows.num_rows - 1, dtype=bool)
    for name in KEY:
        codes = rows[name].combine_chunks().dictionary_encode().indices.to_numpy()
        changes |= codes[1:] != codes[:-1]
    inner = [int(at) + 1 for at in np.flatnonzero(changes)]
    for start, end in pairwise([0, *inner, rows.num_rows]):
        key = SeriesKey(*(rows[name][start].as_py() for name in KEY))
        yield key, rows.slice(start, end - start)


def columns(settings: Settings, *, rounds: bool = True) -> list[str]:
    """The columns of `points.POINTS` that are read beside the keys."""
    names = ["run_id", "time", "commit", settings.statistic]
    # Instructions count something else than the rounds time.
    return [*names, "values"] if rounds and settings.statistic != "instructions" else names


def prepared(points: pa.Table, settings: Settings) -> pa.Table:
    """A table with `columns` as one for `look`, with `MOST_ROUNDS` a run at most."""
    names = [*KEY, "run_id", "time", "commit"]
    rows = points.select(names).append_column("value", points[settings.statistic])
    if "values" in points.column_names:
        rows = rows.append_column("rounds", _thinned(points["values"].combine_chunks()))
    return rows


def _thinned(rounds: pa.ListArray) -> pa.ListArray:
    """The same lists; of those that are too long an even selection."""
    rounds = pa.concat_arrays([rounds])  # of a slice, the offsets begin at 0 then
    offsets = rounds.offsets.to_numpy()
    sizes = np.diff(offsets)
    if not (sizes > MOST_ROUNDS).any():
        return rounds
    kept = np.minimum(sizes, MOST_ROUNDS)
    ends = np.concatenate([[0], np.cumsum(kept)])
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], kept)
    places = np.repeat(offsets[:-1], kept) + within * np.repeat(sizes, kept) // np.repeat(
        np.maximum(kept, 1), kept
    )
    values = rounds.values.take(pa.array(places))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def sized(keys: Iterable[SeriesKey], size_param: str | None) -> dict[Benchmark, list[SeriesKey]]:
    """The benchmarks with a parameter that has enough different numbers to fit a law to, and
    their series."""
    found: dict[Benchmark, list[SeriesKey]] = {}
    for key in keys:
        found.setdefault((key.suite, key.benchmark, key.machine), []).append(key)
    return {each: series for each, series in found.items() if _has_sizes(series, size_param)}


def _has_sizes(keys: Sequence[SeriesKey], size_param: str | None) -> bool:
    sizes: dict[str, set[float]] = {}
    for key in keys:
        for name, value in json.loads(key.params).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                sizes.setdefault(name, set()).add(value)
    return any(
        len(values) >= scaling.FEWEST_SIZES
        for name, values in sizes.items()
        if size_param in (None, name)
    )
