"""Analyse a table of points in one process: findings of its series, scaling laws.

This module divides rows into series and knows the columns that this needs. It is pure: a table in,
values out. `store_source` and `kraft.spark.frame_source` call it, in this process or in Spark's
workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft.regression import scaling, series_analysis
from kraft.regression.findings import ScalingLaw, SeriesFinding
from kraft.regression.points import METRIC_COLUMNS, Series, SeriesKey
from kraft.regression.series import series_of
from kraft.regression.settings import AnalysisSettings

#: Round values used per run. A fast function has 100,000 of them, and 10,000 such runs do not fit
#: into a worker; an even selection shows their variation as well.
MOST_ROUNDS = 256

#: Columns that identify a series, and those that identify a benchmark with several sizes.
KEY = list(SeriesKey._fields)
BENCHMARK = ["suite", "benchmark", "machine"]

Benchmark = tuple[str, str, str]


@dataclass(frozen=True)
class AnalysedSeries:
    """The finding of one series."""

    finding: SeriesFinding
    left_out: int  # omitted runs without a usable value


def analyse_rows(
    rows: pa.Table, settings: AnalysisSettings, order: pa.Array | None = None
) -> list[AnalysedSeries]:
    """Return the finding of every series in ``rows``, which must contain each series completely.

    ``order`` holds the ids of the runs to analyse, oldest first; None analyses all by time.
    """
    analysed = []
    for key, group in series_rows(with_places(rows, order)):
        series, left_out = series_of(key, group, settings.statistic)
        analysed.append(AnalysedSeries(series_analysis.analyse(series, settings), left_out))
    return analysed


def fit_laws(
    rows: pa.Table,
    settings: AnalysisSettings,
    size_param: str | None,
    order: pa.Array | None = None,
) -> list[ScalingLaw]:
    """Return the scaling laws of the benchmarks in ``rows``, which must contain all their sizes."""
    return scaling.laws(histories(rows, settings, order).values(), settings, size_param)


def histories(
    rows: pa.Table, settings: AnalysisSettings, order: pa.Array | None = None
) -> dict[SeriesKey, Series]:
    """Return every series in ``rows``."""
    return {
        key: series_of(key, group, settings.statistic)[0]
        for key, group in series_rows(with_places(rows, order))
    }


def with_places(rows: pa.Table, order: pa.Array | None) -> pa.Table:
    """Return the rows of the runs in ``order``, with the position in it as ``place``.

    Unknown projects and branches become "".
    """
    for name in ("project", "branch"):
        column = pc.fill_null(rows[name].cast(pa.string()), "")
        rows = rows.set_column(rows.column_names.index(name), name, column)
    if order is None:
        return rows
    rows = rows.append_column("place", pc.index_in(rows["run_id"].cast(pa.string()), order))
    return rows.filter(pc.is_valid(rows["place"]))


def series_rows(rows: pa.Table) -> Iterator[tuple[SeriesKey, pa.Table]]:
    """Yield each series of a table with the columns `KEY` and its rows, in the order of keys."""
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


def columns(settings: AnalysisSettings, *, rounds: bool = True) -> list[str]:
    """Return the columns of `points.POINTS` that an analysis needs in addition to the keys."""
    names = ["run_id", "time", "commit", *METRIC_COLUMNS, settings.statistic]
    # The rounds are times; an analysis of instructions does not use them.
    return [*names, "values"] if rounds and settings.statistic != "instructions" else names


def prepared(points: pa.Table, settings: AnalysisSettings) -> pa.Table:
    """Return a table with `columns` as input of `analyse_rows`, at most `MOST_ROUNDS` rounds per
    run.
    """
    metric = [name for name in METRIC_COLUMNS if name in points.column_names]
    names = [*KEY, "run_id", "time", "commit", *metric]
    rows = points.select(names).append_column("value", points[settings.statistic])
    if "values" in points.column_names:
        rows = rows.append_column("rounds", _thinned(points["values"].combine_chunks()))
    return rows


def _thinned(rounds: pa.ListArray) -> pa.ListArray:
    """Return the lists, with an even selection of those that are too long."""
    rounds = pa.concat_arrays([rounds])  # makes the offsets of a slice begin at 0
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


def benchmarks_with_sizes(
    keys: Iterable[SeriesKey], size_param: str | None
) -> dict[Benchmark, list[SeriesKey]]:
    """Return the benchmarks with a parameter of enough different numbers to fit a law, and their
    series.
    """
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
