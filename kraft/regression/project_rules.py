"""Rules of a project for its benchmarks: the file ``kraft-regress.toml`` in its repository.

The file has thresholds, units and directions by benchmark or pattern, and the new names of renamed
benchmarks:

.. code-block:: toml

    threshold = "2%"

    [[benchmarks]]
    match = "bench_load.py::*"
    threshold = "10%"
    unit = "ops/s"
    bigger_is_better = true

    [rename]
    "bench_old.py::lookup" = "bench_table.py::Table::lookup"

`load` reads it and rejects what it does not know. `ruled_source` applies the rules to an analysis,
`comparison.with_rules` to a comparison.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from kraft.errors import InvalidConfigError
from kraft.regression.commit_order import glob_pattern
from kraft.regression.points import UNIT_PATTERN, BenchmarkMetric, SeriesKey

#: The name of the file.
FILE_NAME = "kraft-regress.toml"

T = TypeVar("T")


@dataclass(frozen=True)
class BenchmarkRule:
    """Rule for the benchmarks that ``match``: a glob for ``benchmark``, ``suite::benchmark`` or
    ``suite::benchmark[param=value]``. None leaves a value as it is.
    """

    match: str
    threshold: float | None = None  # ignore smaller relative changes: 0.05 is 5 %
    unit: str | None = None
    bigger_is_better: bool | None = None

    def applies_to(self, key: SeriesKey) -> bool:
        pattern = re.compile(glob_pattern(self.match))
        names = (key.benchmark, f"{key.suite}::{key.benchmark}", key.name)
        return any(pattern.search(name) for name in names)


@dataclass(frozen=True)
class ProjectRules:
    """All rules of a file. Of several rules for a benchmark, the last one decides each value.

    ``rename`` maps an old suite, or ``suite::benchmark``, to the new one.
    """

    threshold: float | None = None
    benchmarks: tuple[BenchmarkRule, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self != ProjectRules()

    def threshold_of(self, key: SeriesKey, default: float) -> float:
        """Return the smallest relative change that counts, ``default`` without a rule for it."""
        return _last((each.threshold for each in self._of(key)), default)

    def metric_of(self, key: SeriesKey, metric: BenchmarkMetric) -> BenchmarkMetric:
        """Return the metric of a benchmark whose results say ``metric``."""
        rules = self._of(key)
        unit = _last((each.unit for each in rules), None)
        if unit is not None:
            metric = BenchmarkMetric.of(unit, None)
        bigger = _last((each.bigger_is_better for each in rules), metric.bigger_is_better)
        return metric._replace(bigger_is_better=bigger)

    def renamed(self, suite: str, benchmark: str) -> tuple[str, str]:
        """Return the suite and the name that a benchmark has now."""
        name = suite, benchmark
        for _, *now in self._renames_of(suite, benchmark):
            name = now[0], now[1]
        return name

    def now(self, key: SeriesKey) -> SeriesKey:
        """Return the key that a series has now."""
        suite, benchmark = self.renamed(key.suite, key.benchmark)
        return key._replace(suite=suite, benchmark=benchmark)

    def unused_renames(self, keys: Iterable[SeriesKey]) -> list[str]:
        """Return the old names that no series has."""
        used = {old for key in keys for old, *_ in self._renames_of(key.suite, key.benchmark)}
        return [old for old in self.rename if old not in used]

    def _renames_of(self, suite: str, benchmark: str) -> Iterator[tuple[str, str, str]]:
        """Yield each old name on the way to a benchmark's name of today, and what it became."""
        while True:
            full = f"{suite}::{benchmark}"
            if full in self.rename:
                old = full
                suite, _, benchmark = self.rename[full].partition("::")
            elif suite in self.rename:
                old, suite = suite, self.rename[suite]
            else:
                return
            yield old, suite, benchmark

    def _of(self, key: SeriesKey) -> list[BenchmarkRule]:
        return [rule for rule in self.benchmarks if rule.applies_to(key)]


def _last(values: Iterable[T | None], default: T) -> T:
    found = [value for value in values if value is not None]
    return found[-1] if found else default


def find(directory: Path) -> ProjectRules:
    """Return the rules in a directory's ``kraft-regress.toml``, no rules if it has none.

    Raises InvalidConfigError as `load`.
    """
    path = directory / FILE_NAME
    return load(path) if path.is_file() else ProjectRules()


def load(path: Path) -> ProjectRules:
    """Return the rules in a file.

    Raises:
        InvalidConfigError: the file cannot be read, is not TOML, or has an unknown key or a wrong
            value; the message has the file and the key, and of an unknown key the nearest one.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidConfigError(f"{path}: not TOML: {error}") from None
    _refuse_unknown(given, ProjectRules, str(path), "")
    rules = given.get("benchmarks", [])
    if not isinstance(rules, list) or not all(isinstance(each, dict) for each in rules):
        raise InvalidConfigError(f"{path}: benchmarks: expected [[benchmarks]] tables")
    rename = given.get("rename", {})
    if not isinstance(rename, dict) or not all(isinstance(each, str) for each in rename.values()):
        raise InvalidConfigError(f'{path}: rename: expected "old" = "new" texts')
    _check_renames(rename, str(path))
    threshold = given.get("threshold")
    return ProjectRules(
        None if threshold is None else _share(threshold, str(path), "threshold"),
        tuple(_rule(each, str(path), f"benchmarks[{at}]") for at, each in enumerate(rules)),
        rename,
    )


def _rule(given: Mapping[str, Any], path: str, place: str) -> BenchmarkRule:
    _refuse_unknown(given, BenchmarkRule, path, f"{place}.")
    for name, kind, expected in (
        ("match", str, "a pattern"),
        ("unit", str, "a text"),
        ("bigger_is_better", bool, "true or false"),
    ):
        if name in given and not isinstance(given[name], kind):
            raise InvalidConfigError(
                f"{path}: {place}.{name}: expected {expected}, found {given[name]!r}"
            )
    if not UNIT_PATTERN.fullmatch(given.get("unit", "")):
        raise InvalidConfigError(
            f"{path}: {place}.unit: expected at most 24 letters, digits and % / _ . ^ * -, found "
            f"{given['unit']!r:.60}"
        )
    if not given.get("match"):
        raise InvalidConfigError(f"{path}: {place}: the key match is missing")
    if len(given) == 1:
        raise InvalidConfigError(
            f"{path}: {place}: expected threshold, unit or bigger_is_better beside match"
        )
    rule = dict(given)
    if "threshold" in rule:
        rule["threshold"] = _share(rule["threshold"], path, f"{place}.threshold")
    return BenchmarkRule(**rule)


def _refuse_unknown(given: Mapping[str, Any], kind: type, path: str, place: str) -> None:
    known = [each.name for each in fields(kind)]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1, 0.4)
            meant = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(known)}"
            raise InvalidConfigError(f"{path}: {place}{name}: unknown key; {meant}")


def _check_renames(rename: Mapping[str, str], path: str) -> None:
    for old, new in rename.items():
        if ("::" in old) != ("::" in new) or not old or not new:
            raise InvalidConfigError(
                f"{path}: rename {old!r} to {new!r}: both are suites, or both suite::benchmark"
            )
    rules = ProjectRules(rename=rename)
    for old in rename:
        suite, _, benchmark = old.partition("::")
        # A name that occurs twice on its way would go on for ever.
        seen = {(suite, benchmark)}
        for _, *now in rules._renames_of(suite, benchmark):
            if tuple(now) in seen:
                raise InvalidConfigError(f"{path}: rename {old!r}: it is renamed in a circle")
            seen.add((now[0], now[1]))


def _share(value: object, path: str, place: str) -> float:
    """Return a threshold, ``"5%"`` or 0.05, as a float."""
    share = -1.0
    if isinstance(value, str):
        try:
            share = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            share = -1.0
    elif isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value)
    is_percent = isinstance(value, str) and value.endswith("%")
    if not 0 <= share < (float("inf") if is_percent else 1):  # 5 may mean 5 % or 500 %
        raise InvalidConfigError(f'{path}: {place}: expected "5%" or 0.05, found {value!r}')
    return share
