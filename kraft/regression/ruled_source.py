"""`RuledSource`: a source of points with the rules of a project's ``kraft-regress.toml`` applied.

Renamed benchmarks have one history under their new name, thresholds and metrics are those of the
rules. Only series that a rule changes are read again: their histories are small and are analysed in
this process, wherever the source analyses the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import inf

import numpy as np
import pyarrow as pa

from kraft.regression import scaling, series_analysis
from kraft.regression.analysis import AnalysisSource
from kraft.regression.commit_order import RunLike, glob_pattern
from kraft.regression.findings import ScalingLaw, SeriesFinding
from kraft.regression.points import SECONDS, Series, SeriesKey
from kraft.regression.project_rules import ProjectRules
from kraft.regression.settings import AnalysisSettings
from kraft.regression.table_analysis import AnalysedSeries, Benchmark


class RuledSource:
    """The series of ``source`` under ``rules``; with a ``benchmark`` glob, only those whose name
    now matches. `problems` lists the rules that had no effect, once the series are analysed.
    """

    def __init__(
        self, source: AnalysisSource, rules: ProjectRules, benchmark: str | None = None
    ) -> None:
        self._source = source
        self._rules = rules
        self._wanted = re.compile(glob_pattern("*" if benchmark is None else benchmark))
        self._old_names: dict[SeriesKey, list[SeriesKey]] = {}  # series now -> in the source
        self.problems: list[str] = []

    def runs(self) -> Sequence[RunLike]:
        return self._source.runs()

    def analysed(self, settings: AnalysisSettings, order: pa.Array) -> list[AnalysedSeries]:
        thresholds = [rule.threshold for rule in self._rules.benchmarks]
        least = min([settings.min_magnitude, *(each for each in thresholds if each is not None)])
        found = list(self._source.analysed(replace(settings, min_magnitude=least), order))
        self.problems += [
            f"rename {old!r}: no series has this name"
            for old in self._rules.unused_renames(each.finding.key for each in found)
        ]
        now = [self._rules.now(each.finding.key) for each in found]
        found = [each for each, key in zip(found, now, strict=True) if self._is_wanted(key)]
        for each in found:
            key = each.finding.key
            self._old_names.setdefault(self._rules.now(key), []).append(key)
        again: list[SeriesKey] = []
        results = []
        left_out: dict[SeriesKey, int] = {}
        for each in found:
            key = self._rules.now(each.finding.key)
            left_out[key] = left_out.get(key, 0) + each.left_out
            threshold = self._rules.threshold_of(key, settings.min_magnitude)
            is_renamed = self._old_names[key] != [key]
            if is_renamed or _smallest_change(each.finding) < threshold:
                again.append(key)
            else:
                results.append(replace(each, finding=self._with_metric(each.finding)))
        again = list(dict.fromkeys(again))
        for key, series in self.histories(again, settings, order).items():
            threshold = self._rules.threshold_of(key, settings.min_magnitude)
            finding = series_analysis.analyse(series, replace(settings, min_magnitude=threshold))
            results.append(AnalysedSeries(finding, left_out[key]))
        return results

    def laws(
        self,
        of: dict[Benchmark, list[SeriesKey]],
        settings: AnalysisSettings,
        size_param: str | None,
        order: pa.Array,
    ) -> list[ScalingLaw]:
        plain = {
            benchmark: keys
            for benchmark, keys in of.items()
            if all(self._old_names.get(key) == [key] for key in keys)
            and all(self._rules.metric_of(key, SECONDS) == SECONDS for key in keys)
        }
        laws = list(self._source.laws(plain, settings, size_param, order)) if plain else []
        rest = [key for benchmark, keys in of.items() if benchmark not in plain for key in keys]
        if rest:
            found = self.histories(rest, settings, order)
            laws += scaling.laws(found.values(), settings, size_param)
        return laws

    def histories(
        self, keys: Sequence[SeriesKey], settings: AnalysisSettings, order: pa.Array
    ) -> dict[SeriesKey, Series]:
        wanted = [old for key in keys for old in self._old_names.get(key, [key])]
        found = self._source.histories(wanted, settings, order) if wanted else {}
        merged: dict[SeriesKey, Series] = {}
        for key in keys:
            parts = [found[old] for old in self._old_names.get(key, [key]) if old in found]
            if parts:
                series = _joined(key, parts)
                merged[key] = replace(series, metric=self._rules.metric_of(key, series.metric))
        return merged

    def machines(self) -> dict[str, str]:
        return self._source.machines()

    def first_run_of(self, commit: str) -> datetime | None:
        return self._source.first_run_of(commit)

    def _is_wanted(self, key: SeriesKey) -> bool:
        names = (key.benchmark, f"{key.suite}::{key.benchmark}")
        return any(self._wanted.search(name) for name in names)

    def _with_metric(self, finding: SeriesFinding) -> SeriesFinding:
        metric = self._rules.metric_of(finding.key, finding.metric)
        if metric == finding.metric:
            return finding
        return replace(
            finding,
            metric=metric,
            change_points=tuple(replace(each, metric=metric) for each in finding.change_points),
            drifts=tuple(replace(each, metric=metric) for each in finding.drifts),
        )


def _smallest_change(finding: SeriesFinding) -> float:
    """Return the smallest relative change of a finding, infinity without one."""
    ratios = [each.ratio.value for each in finding.change_points]
    ratios += [each.ratio.value for each in finding.drifts]
    return min((max(each, 1 / each) - 1 if each > 0 else inf for each in ratios), default=inf)


def _joined(key: SeriesKey, parts: Sequence[Series]) -> Series:
    """Return one history of several; of a run with two names, the value under the new one."""
    parts = sorted(parts, key=lambda each: each.key != key)
    runs: set[str] = set()
    kept: list[tuple[int, str, Series, int]] = []
    for series in parts:
        places = series.time_us if series.place is None else series.place
        new = [at for at, run_id in enumerate(series.run_id) if run_id not in runs]
        kept += [(int(places[at]), str(series.run_id[at]), series, at) for at in new]
        runs |= set(series.run_id)
    kept.sort(key=lambda each: each[:2])
    rows = [(series, at) for _, _, series, at in kept]
    has_rounds = all(series.rounds is not None for series in parts)
    newest = rows[-1][0] if rows else parts[0]
    return Series(
        key=key,
        run_id=np.array([series.run_id[at] for series, at in rows], dtype=object),
        time_us=np.array([series.time_us[at] for series, at in rows], dtype=np.int64),
        commit=np.array([series.commit[at] for series, at in rows], dtype=object),
        value=np.array([series.value[at] for series, at in rows], dtype=np.float64),
        rounds=[series.rounds[at] for series, at in rows if series.rounds is not None]
        if has_rounds
        else None,
        place=None
        if any(series.place is None for series in parts)
        else np.array([place for place, *_ in kept], dtype=np.int64),
        metric=newest.metric,
    )
