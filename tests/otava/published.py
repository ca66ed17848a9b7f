"""The series in Otava's own source distribution: its examples and its tests' data.

Fetched once by pip, in the installed version, into the shared cache (git-ignored); no part of it is
in this repository. A series is a numeric column of a CSV file other than the time, or a list of
numbers in a test. A series with zeros is raised by one for both programs, because no benchmark
takes no time.
"""

from __future__ import annotations

import ast
import csv
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from tests.otava.suites import Suite

CACHE = Path(__file__).resolve().parents[2] / ".interop" / "otava"

#: A shorter list of numbers is not a history.
_FEWEST = 8
#: Columns that contain times.
_TIMES = {"time", "timestamp", "Interval_Start"}


class NotFetchedError(RuntimeError):
    """The source distribution is neither cached nor available."""


def source() -> Path:
    """Return the source distribution of the installed Otava; fetch it if it is not cached."""
    wanted = version("apache-otava")
    path = CACHE / f"apache_otava-{wanted}.tar.gz"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
        pip += ["--no-binary", "apache-otava", "-d", str(CACHE), f"apache-otava=={wanted}"]
        try:
            done = subprocess.run(pip, capture_output=True, text=True, timeout=180, check=False)
        except subprocess.TimeoutExpired:
            raise NotFetchedError(f"apache-otava {wanted} did not arrive within 180 s") from None
        if not path.exists():
            raise NotFetchedError(f"apache-otava {wanted} cannot be fetched: {done.stderr[-400:]}")
    return path


def suites() -> list[Suite]:
    """Return each published series as a benchmark, in a suite named after its file."""
    made = []
    with tarfile.open(source()) as archive:
        for member in sorted(archive.getmembers(), key=lambda each: each.name):
            path = Path(member.name)
            file = archive.extractfile(member)
            if file is None or path.suffix not in (".csv", ".py"):
                continue
            text = file.read().decode("utf-8")
            found = _of_csv(text) if path.suffix == ".csv" else _of_python(text)
            made += _suites("_".join(path.with_suffix("").parts[1:]), found)
    return made


def _suites(name: str, columns: Sequence[Sequence[float]]) -> Iterable[Suite]:
    """Group columns of the same length into a suite."""
    for length in sorted({len(column) for column in columns}):
        values = {
            f"series_{place}": np.array(column, dtype=np.float64) + (min(column) <= 0)
            for place, column in enumerate(columns)
            if len(column) == length
        }
        yield Suite(f"{name}_{length}", np.arange(length), values)


def _of_csv(text: str) -> list[list[float]]:
    """Return the columns with only numbers; comments between them are skipped."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    header = text.splitlines()[0] if not text.startswith("#") else ""
    delimiter = ";" if ";" in header else ","
    rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter))
    columns = []
    for column in zip(*rows, strict=False):
        title, *cells = column if header else ("", *column)
        if title in _TIMES:
            continue
        try:
            numbers = [float(cell) for cell in cells]
        except ValueError:
            continue
        if len(numbers) >= _FEWEST:
            columns.append(numbers)
    return columns


def _of_python(text: str) -> list[list[float]]:
    """Return the distinct lists of numbers in a test's source."""
    found: list[list[float]] = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.List):
            continue
        cells = [each.value for each in node.elts if isinstance(each, ast.Constant)]
        numbers = [float(cell) for cell in cells if isinstance(cell, int | float)]
        # Ascending numbers are expected indices.
        is_series = len(numbers) == len(node.elts) >= _FEWEST and numbers != sorted(numbers)
        if is_series and numbers not in found:
            found.append(numbers)
    return found
