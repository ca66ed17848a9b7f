"""Options of the data sources: batch and stream reject unknown and invalid ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource

from kraft.errors import InvalidRequestError
from kraft.spark import kraft_metadata, kraft_trace, pytest_benchmark
from kraft.spark.kraft_metadata import KraftMetadataSource
from kraft.spark.kraft_trace import KraftTraceSource
from kraft.spark.pytest_benchmark import PytestBenchmarkSource, _is_whole

SOURCES: dict[type[DataSource], tuple[str, ...]] = {
    KraftMetadataSource: kraft_metadata.OPTIONS,
    KraftTraceSource: kraft_trace.OPTIONS,
    PytestBenchmarkSource: pytest_benchmark.OPTIONS,
}
STREAMS = (KraftTraceSource, PytestBenchmarkSource)


def readers_of(source: type[DataSource], options: dict[str, str]) -> list[Callable[[], Any]]:
    """Return the readers that a source makes of these options."""
    made = source(options)
    plain = source({"path": options["path"]}).schema()
    found: list[Callable[[], Any]] = [lambda: made.reader(plain)]
    if source in STREAMS:
        found.append(lambda: made.streamReader(plain))
    return found


@pytest.mark.parametrize("source", SOURCES)
def test_an_unknown_option_is_rejected_with_the_known_ones(
    source: type[DataSource], tmp_path: Path
) -> None:
    for name in ("pushDowns", "modes", "recursiveFileLookup"):
        for way in readers_of(source, {"path": str(tmp_path), name: "true"}):
            with pytest.raises(InvalidRequestError) as refused:
                way()
            said = str(refused.value)
            assert said.startswith(f"{source.name()} has no option {name!r}; it has: ")
            assert all(known in said for known in SOURCES[source])


@pytest.mark.parametrize("source", SOURCES)
def test_a_flag_is_true_or_false(source: type[DataSource], tmp_path: Path) -> None:
    flags = {"pushdown", "ignoreNode", "showSecrets"} & set(SOURCES[source])
    for name in flags:
        for text in ("yes", "1", "", "truE!"):
            for way in readers_of(source, {"path": str(tmp_path), name: text}):
                with pytest.raises(InvalidRequestError, match=f"{name} is true or false, not"):
                    way()
        for text in ("true", "FALSE", " True "):
            for way in readers_of(
                source, {"path": str(tmp_path), name.lower(): text, "MODE": "failfast"}
            ):
                way()


def test_a_permanently_unreadable_file_is_not_awaited() -> None:
    for opening in (b"[", b'{"a":'):
        assert _is_whole(opening * 100_000)
        assert _is_whole(b"[NaN," + opening * 100_000)
    assert not _is_whole(b'{"benchmarks": [')
