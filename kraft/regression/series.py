"""Rows of one benchmark, parameters and machine -> the `Series` that the statistics work on.

Owns the order of a history and what is left out of it. Fed by `kraft.spark.analysis` with groups
of a store of any size, in whatever order Spark hands out rows.

The order is that of the column ``place`` (`lineage.ordered`), or of time where it is missing; runs
of the same microsecond are ordered by their ids, so that a history is the same wherever and however
often it is put together.

A run whose value is missing, NaN or infinite says nothing, nor does a time of zero, which was not
measured; it is left out, and counted.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft.regression.points import Series, SeriesKey

#: The columns that `gather` reads. ``value`` is the statistic; ``rounds`` may be missing.
COLUMNS = ("run_id", "time", "commit", "value", "rounds")


def gather(key: SeriesKey, rows: pa.Table, statistic: str) -> tuple[Series, int]:
    """The history in ``rows`` (`COLUMNS`, any order; ``value`` is the ``statistic``), and how many
    runs were left out of it."""
    has_places = "place" in rows.column_names
    names = ["place" if has_places else "time", "run_id", "value"]
    rows = rows.sort_by([(name, "ascending") for name in names])
    value = rows["value"].to_numpy().astype(np.float64)  # null becomes NaN
    # Nothing takes no time; but nothing may well be counted.
    good = np.isfinite(value) & ((value >= 0) if statistic == "instructions" else (value > 0))
    left_out = int(len(good) - good.sum())
    if left_out:
        rows, value = rows.filter(pa.array(good)), value[good]
    series = Series(
        key=key,
        run_id=_objects(rows["run_id"]),
        time_us=rows["time"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy(),
        commit=_objects(rows["commit"]),
        value=value,
        rounds=_rounds(rows["rounds"]) if "rounds" in rows.column_names else None,
        place=rows["place"].to_numpy().astype(np.int64) if has_places else None,
    )
    return series, left_out


def _objects(column: pa.ChunkedArray) -> NDArray[np.object_]:
    return np.array(column.to_pylist(), dtype=object)


def _rounds(column: pa.ChunkedArray) -> list[NDArray[np.float64]]:
    """The round values of each run that are times; empty where they were not saved."""
    lists = column.combine_chunks()
    flat = lists.values.to_numpy(zero_copy_only=False)
    ends = lists.offsets.to_numpy()
    rounds = [flat[start:end] for start, end in pairwise(ends)]
    good = np.isfinite(flat) & (flat > 0)
    if good.all():
        return rounds
    return [each[np.isfinite(each) & (each > 0)] for each in rounds]
