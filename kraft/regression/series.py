"""Build a `Series` from the rows of one benchmark, parameter set and machine.

`table_analysis` calls `series_of` with groups of a store's rows, in any order.

Runs are ordered by the column ``place`` (`commit_order.order_runs`), or by time if it is missing,
then by run id, so that a history does not depend on where it was built.

Runs whose value is missing, NaN or infinite are omitted and counted; so are times of zero, which
were not measured, and negative values. Runs in another unit than the newest one are omitted, too:
they are not comparable.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft.regression.points import INSTRUCTIONS, SECONDS, BenchmarkMetric, Series, SeriesKey

#: The columns that `series_of` reads. ``value`` is the statistic; ``rounds`` may be missing, and so
#: may ``unit`` and ``bigger_is_better`` of times.
COLUMNS = ("run_id", "time", "commit", "value", "rounds", "unit", "bigger_is_better")


def series_of(key: SeriesKey, rows: pa.Table, statistic: str) -> tuple[Series, int]:
    """Return the series in ``rows`` and the number of runs that were omitted.

    ``rows`` has the columns `COLUMNS` in any order of rows; ``value`` is the ``statistic``.
    """
    has_places = "place" in rows.column_names
    names = ["place" if has_places else "time", "run_id", "value"]
    rows = rows.sort_by([(name, "ascending") for name in names])
    value = rows["value"].to_numpy().astype(np.float64)  # null becomes NaN
    metric, same_unit = _metric(rows, statistic)
    # A time of zero was not measured; a count of zero may be correct.
    good = np.isfinite(value) & ((value > 0) if metric.unit == "s" else (value >= 0)) & same_unit
    left_out = int(len(good) - good.sum())
    if left_out:
        rows, value = rows.filter(pa.array(good)), value[good]
    series = Series(
        key=key,
        run_id=_objects(rows["run_id"]),
        time_us=rows["time"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy(),
        commit=_objects(rows["commit"]),
        value=value,
        rounds=_rounds(rows["rounds"], metric) if "rounds" in rows.column_names else None,
        place=rows["place"].to_numpy().astype(np.int64) if has_places else None,
        metric=metric,
    )
    return series, left_out


def _metric(rows: pa.Table, statistic: str) -> tuple[BenchmarkMetric, NDArray[np.bool_]]:
    """Return the metric of the newest of the sorted rows, and which rows have its unit."""
    every = np.ones(rows.num_rows, np.bool_)
    if statistic == "instructions":
        return INSTRUCTIONS, every
    if "unit" not in rows.column_names or not rows.num_rows:
        return SECONDS, every
    units = rows["unit"]
    metric = BenchmarkMetric.of(units[-1].as_py(), rows["bigger_is_better"][-1].as_py())
    if units.null_count == rows.num_rows:
        return metric, every
    same = [("s" if unit is None else unit) == metric.unit for unit in units.to_pylist()]
    return metric, np.array(same, np.bool_)


def _objects(column: pa.ChunkedArray) -> NDArray[np.object_]:
    return np.array(column.to_pylist(), dtype=object)


def _rounds(column: pa.ChunkedArray, metric: BenchmarkMetric) -> list[NDArray[np.float64]]:
    """Return each run's valid round values; empty if they were not saved."""
    lists = column.combine_chunks()
    flat = lists.values.to_numpy(zero_copy_only=False)
    ends = lists.offsets.to_numpy()
    rounds = [flat[start:end] for start, end in pairwise(ends)]
    least = np.nextafter(0, 1) if metric.unit == "s" else 0.0
    if (np.isfinite(flat) & (flat >= least)).all():
        return rounds
    return [each[np.isfinite(each) & (each >= least)] for each in rounds]
