"""Sweep outages on Spark: the cluster is sent once to each executor, the work as ranges.

This module writes the arrays of a sweep to a file (one after another in numpy's format, so that all
workers of an executor map the same pages) and distributes the ranges. Sweep, kernels and report are
those of `kraft.lab.outages`, so the figures are equal.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from kraft._core.sweep.kernels import FIGURES, Sweep, evaluate, outage_count
from kraft._core.sweep.masks import Holders, Rows
from kraft.lab.outages import plan_outages, report_of, sweep_arrays, unit_ranges
from kraft.metadata.facade import Metadata, open_metadata

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kraft.lab.outage_report import OutagePlan, OutageReport

#: Ranges per core of the cluster: their costs differ, and several ranges even them out.
_RANGES_A_CORE = 4
#: Alignment of each array in the file, in bytes.
_ALIGNMENT = 64


def sweep(
    spark: SparkSession,
    metadata: Metadata | str | PathLike[str],
    outages: OutagePlan | None = None,
) -> OutageReport:
    """Sweep every outage of a plan (default: that of `plan_outages`) on ``spark``.

    ``metadata`` may be a path for `open_metadata`; the driver reads it and sends its arrays (about
    25 bytes per partition) to each executor once. The report is that of
    `kraft.lab.outages.sweep_outages`; its ``to_arrow()`` makes a DataFrame. Raises the errors of
    these functions, and Spark's if the job fails.
    """
    if not isinstance(metadata, Metadata):
        metadata = open_metadata(metadata)
    plan = plan_outages(metadata) if outages is None else outages
    arrays = sweep_arrays(metadata, plan)
    context = spark.sparkContext
    ranges = unit_ranges(arrays, _RANGES_A_CORE * context.defaultParallelism)
    figures = np.empty((len(plan), len(FIGURES)), np.int32)
    if ranges:
        # Each sweep of a session has its own file name, because Spark does not replace a file once
        # sent.
        name = f"kraft-sweep-{uuid4().hex}"
        with tempfile.TemporaryDirectory(prefix="kraft-") as folder:
            path = Path(folder) / name
            save(arrays, path)
            context.addFile(str(path))
            for outage, found in _spread(spark, name, ranges):
                figures[outage : outage + len(found)] = found
    return report_of(metadata, plan, arrays, figures)


def _spread(
    spark: SparkSession, name: str, ranges: list[tuple[int, int]]
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Yield the first outage and the figures of each range."""
    import pyarrow as pa

    def swept(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import SparkFiles

        arrays = load(SparkFiles.get(name))
        for batch in batches:
            for task in batch.column(0).to_pylist():
                first, last = ranges[task]
                found = evaluate(arrays, first, last)
                yield pa.RecordBatch.from_pydict(
                    {"outage": [outage_count(arrays, first)], "figures": [found.tobytes()]}
                )

    tasks = spark.range(0, len(ranges), 1, len(ranges))
    result = tasks.mapInArrow(swept, "outage long, figures binary").toArrow()
    for outage, packed in zip(*(column.to_pylist() for column in result.columns), strict=True):
        yield outage, np.frombuffer(packed, np.int32).reshape(-1, len(FIGURES))


# -- the arrays as a file


def save(arrays: Sweep, path: str | PathLike[str]) -> None:
    """Write the arrays of a sweep to a file for `load`."""
    with Path(path).open("wb") as file:
        for array in _flat(arrays):
            file.write(bytes(-file.tell() % _ALIGNMENT))
            np.save(file, np.ascontiguousarray(array), allow_pickle=False)


@lru_cache(maxsize=2)
def load(path: str) -> Sweep:
    """Map the arrays that `save` wrote; cached for the next range of this process."""
    with Path(path).open("rb") as file:
        # A private mapping: the kernels require writable arrays, although none of them writes.
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        parts = iter([_next_array(file, memory) for _ in range(_ARRAYS)])
    return Sweep._make(
        field._make(next(parts) for _ in field._fields) if field is not None else next(parts)
        for field in _FIELDS
    )


#: The tuples among the fields of `Sweep`; None for an array.
_FIELDS: tuple[Any, ...] = (Rows, Holders, Rows, Holders) + (None,) * (len(Sweep._fields) - 4)
_ARRAYS = sum(1 if field is None else len(field._fields) for field in _FIELDS)


def _flat(arrays: Sweep) -> Iterator[NDArray[Any]]:
    for value in arrays:
        if isinstance(value, tuple):
            yield from value
        else:
            yield value


def _next_array(file: BinaryIO, memory: mmap.mmap) -> NDArray[Any]:
    file.seek(-file.tell() % _ALIGNMENT, 1)
    numpy_format: Any = np.lib.format
    version = numpy_format.read_magic(file)
    assert version == (1, 0)
    shape, _, dtype = numpy_format.read_array_header_1_0(file)
    array: NDArray[Any] = np.ndarray(shape, dtype, memory, file.tell())
    file.seek(array.nbytes, 1)
    return array
