"""Detect the format of result files and convert those of other tools to pytest-benchmark's.

`converted` writes the documents of a set of files into a folder, for the store; `read_runs` returns
the runs of one file, for a comparison. pytest-benchmark's own files are detected by their first
bytes and not parsed here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import msgspec

from kraft.errors import BenchmarkFileError
from kraft.regression.results import read_run
from kraft.regression.runs import BenchmarkRun, Problem
from kraft.regression.sources import asv, google_benchmark, jmh, tables
from kraft.regression.sources.documents import RunContext, iso_time, parsed
from kraft.regression.sources.tables import TableMapping


class ResultFormat(StrEnum):
    """A format of result files."""

    PYTEST_BENCHMARK = "pytest-benchmark"
    JMH = "jmh"
    GOOGLE_BENCHMARK = "google-benchmark"
    ASV = "asv"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True)
class ResultReading:
    """How result files are read; ``format`` None detects it for each file."""

    format: ResultFormat | None = None
    context: RunContext = field(default_factory=RunContext)
    mapping: TableMapping = field(default_factory=TableMapping)
    ignore_node: bool = False


#: The first key of a pytest-benchmark file, as pytest-benchmark itself writes it.
_OWN = re.compile(rb'\s*\{\s*"(machine_info|commit_info)"')
#: Files that asv writes beside its results.
_BESIDE_ASV = ("machine.json", "benchmarks.json")
_HEAD_BYTES = 256


def format_of(data: bytes, source: str) -> ResultFormat:
    """Return the format of a file's bytes, PYTEST_BENCHMARK if it is no other."""
    if _OWN.match(data):
        return ResultFormat.PYTEST_BENCHMARK
    if data[:4] == b"PAR1":
        return ResultFormat.PARQUET
    if os.path.splitext(source)[1].lower() in (".csv", ".tsv"):
        return ResultFormat.CSV
    try:
        given = json.loads(data)
    except (RecursionError, ValueError):
        return ResultFormat.PYTEST_BENCHMARK  # which says what is wrong with it
    if (
        isinstance(given, list)
        and given
        and isinstance(given[0], dict)
        and "jmhVersion" in given[0]
    ):
        return ResultFormat.JMH
    if isinstance(given, dict):
        if "context" in given and "benchmarks" in given:
            return ResultFormat.GOOGLE_BENCHMARK
        if "commit_hash" in given and "results" in given:
            return ResultFormat.ASV
    return ResultFormat.PYTEST_BENCHMARK


def documents_of(data: bytes, source: str, reading: ResultReading) -> list[dict[str, Any]]:
    """Return the documents of a file of another tool, one for each of its runs.

    Raises:
        BenchmarkFileError: the file is not what its format requires; the message names the file,
            the place in it and what was expected.
    """
    form = reading.format or format_of(data, source)
    context = reading.context
    if form in (ResultFormat.CSV, ResultFormat.PARQUET):
        is_parquet = form is ResultFormat.PARQUET
        return tables.convert(data, source, context, reading.mapping, is_parquet=is_parquet)
    given = parsed(data, source)
    if form is ResultFormat.JMH:
        return jmh.convert(given, source, context, file_time=_file_time(source), data=data)
    if not isinstance(given, dict):
        raise BenchmarkFileError(f"{source}: expected an object of {form}, found {given!r:.60}")
    convert = google_benchmark.convert if form is ResultFormat.GOOGLE_BENCHMARK else asv.convert
    return convert(given, source, context, file_time=_file_time(source), data=data)


def read_runs(data: bytes, source: str, reading: ResultReading) -> list[BenchmarkRun]:
    """Return the runs of a file of any format.

    Raises:
        BenchmarkFileError: as `documents_of` and `results.read_run`.
    """
    form = reading.format or format_of(data, source)
    if form is ResultFormat.PYTEST_BENCHMARK:
        return [read_run(data, source, ignore_node=reading.ignore_node)]
    return [
        read_run(msgspec.json.encode(each), source, ignore_node=reading.ignore_node)
        for each in documents_of(data, source, reading)
    ]


@contextmanager
def converted(
    paths: Sequence[str], reading: ResultReading
) -> Iterator[tuple[list[str], list[Problem]]]:
    """Yield pytest-benchmark files with the runs of ``paths``, and the files that cannot be read.

    A file of pytest-benchmark is yielded as it is; the others are converted into a folder that is
    removed at the end.
    """
    with TemporaryDirectory(prefix="kraft-results-") as folder:
        files: list[str] = []
        problems: list[Problem] = []
        for path in paths:
            try:
                found = _converted(path, reading)
                if found is None and reading.context != RunContext():
                    _refuse_context(path)
            except BenchmarkFileError as error:
                problems.append(Problem(path, str(error).removeprefix(f"{path}: ")))
                continue
            except OSError as error:
                problems.append(Problem(path, f"cannot be read: {error.strerror or error}"))
                continue
            if found is None:
                files.append(path)
                continue
            for each in found:
                name = os.path.join(folder, f"{len(files)}.json")
                with open(name, "wb") as file:
                    file.write(msgspec.json.encode(each))
                files.append(name)
        yield files, problems


def _refuse_context(path: str) -> NoReturn:
    """Raise for a file that no other tool wrote: it is damaged, or has its own commit."""
    with open(path, "rb") as file:
        read_run(file.read(), path)
    raise BenchmarkFileError(
        f"{path}: a file of pytest-benchmark has its own commit, machine and time: ingest it "
        "without options for them"
    )


def _converted(path: str, reading: ResultReading) -> list[dict[str, Any]] | None:
    """Return the documents of a file, None for one of pytest-benchmark."""
    if reading.format is ResultFormat.PYTEST_BENCHMARK:
        return None
    with open(path, "rb") as file:
        data = file.read(_HEAD_BYTES)
        if reading.format is None and _OWN.match(data):
            return None
        data += file.read()
    form = reading.format or format_of(data, path)
    if form is ResultFormat.PYTEST_BENCHMARK:
        is_beside = os.path.basename(path) in _BESIDE_ASV and b'"version"' in data
        return [] if is_beside and b'"commit_info"' not in data else None
    if form is ResultFormat.ASV and os.path.basename(path) in _BESIDE_ASV:
        return []
    return documents_of(data, path, reading)


def _file_time(source: str) -> str:
    """Return when a file was written, which tools do at the end of a run; "" if it is gone."""
    try:
        return iso_time(os.stat(source).st_mtime * 1000)
    except OSError:
        return ""
