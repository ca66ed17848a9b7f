"""Analyse the points of any DataFrame; `kraft.regression.analysis` analyses stores."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame

from kraft.regression.analysis import MAIN, NO_RULES, analyse_source
from kraft.regression.commit_order import Scope
from kraft.regression.findings import Analysis
from kraft.regression.project_rules import ProjectRules
from kraft.regression.settings import AnalysisSettings
from kraft.spark.frame_source import FrameSource


def analyse(
    points: DataFrame,
    settings: AnalysisSettings,
    *,
    benchmark: str | None = None,
    machine: str | None = None,
    since: datetime | str | None = None,
    size_param: str | None = None,
    kept_runs: int = 0,
    scope: Scope = MAIN,
    rules: ProjectRules = NO_RULES,
) -> Analysis:
    """Return the findings of every history in a DataFrame of points.

    The arguments are those of `kraft.regression.analysis.analyse_store`.
    """
    named = None if rules.rename else benchmark
    source = FrameSource(points, benchmark=named, machine=machine)
    return analyse_source(
        source, settings, since, size_param, kept_runs, scope, rules, benchmark=benchmark
    )
