"""Build a `Series` from the rows of one benchmark, parameter set and machine.

`table_analysis` calls `series_of` with groups of a store's rows, in any order.

Runs are ordered by the column ``place`` (`commit_order.order_runs`), or by time if it is missing,
then by run id, so that a history does not depend on where it was built.

Runs whose value is missing, NaN or infinite are omitted and counted; so are times of zero, which
were not measured.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft.regression.points import Series, SeriesKey

#: The columns that `series_of` reads. ``value`` is the statistic; ``rounds`` may be missing.
COLUMNS = ("run_id", "time", "commit", "value", "rounds")


def series_of(key: SeriesKey, rows: pa.Table, statistic: str) -> tuple[Series, int]:
    """Return the series in ``rows`` and the number of runs that were omitted.

    ``rows`` has the columns `COLUMNS` in any order of rows; ``value`` is the ``statistic``.
    """
    has_places = "place" in rows.column_names
    names = ["place" if has_places else "time", "run_id", "value"]
    rows = rows.sort_by([(name, "ascending") for name in names])
    value = rows["value"].to_numpy().astype(np.float64)  # null becomes NaN
    # A time of zero was not measured; a count of zero may be correct.
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
    """Return each run's valid round times; empty if they were not saved."""
    lists = column.combine_chunks()
    flat = lists.values.to_numpy(zero_copy_only=False)
    ends = lists.offsets.to_numpy()
    rounds = [flat[start:end] for start, end in pairwise(ends)]
    good = np.isfinite(flat) & (flat > 0)
    if good.all():
        return rounds
    return [each[np.isfinite(each) & (each > 0)] for each in rounds]
