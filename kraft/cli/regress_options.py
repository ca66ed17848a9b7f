"""Options of the commands that analyse a store of results, and how they become an analysis."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.exit_codes import USAGE

if TYPE_CHECKING:
    from kraft.regression.commit_order import Scope
    from kraft.regression.findings import Analysis
    from kraft.regression.project_rules import ProjectRules
    from kraft.regression.settings import AnalysisSettings

#: Below this number of points, this process is faster than Spark. It needs 1 s and 20 s for each
#: million points ("Many points" in docs/regressions.md has the law up to 100 million); with Spark
#: 100,000 points took 16.7 s on two cores instead of 2.5 s, so that even eight cores gain next to
#: nothing from it below a million.
_LOCAL_POINTS = 1_000_000

BenchmarkOption = Annotated[
    str | None,
    typer.Option(
        metavar="GLOB",
        help="Only benchmarks that match this glob: function, Class::function or file::function; "
        "* matches any text, ? any character. Default: all.",
        show_default=False,
    ),
]
MachineOption = Annotated[
    str | None,
    typer.Option(
        metavar="GLOB", help="Only machines that match this glob. Default: all.", show_default=False
    ),
]
StatisticOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="The statistic to analyse: min, median, mean, max, instructions."
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Compute on this Spark cluster: local[2], spark://host:7077. Default: this machine, "
        "small inputs without Spark.",
        show_default=False,
    ),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="GLOB", help="Only projects that match this glob. Default: all.", show_default=False
    ),
]
BranchOption = Annotated[
    str | None,
    typer.Option(
        metavar="GLOB",
        help="Only runs of branches that match this glob; '*' means all. Default: each project's "
        "main branch (main, master, trunk, develop, else the one with most runs).",
        show_default=False,
    ),
]
RepositoryOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Order runs by the history of this git repository. Default: by the parent commits in "
        "the results, commit time, run time.",
        show_default=False,
    ),
]
DirtyOption = Annotated[
    bool,
    typer.Option("--include-dirty", help="Include runs of trees with uncommitted changes."),
]
RulesOption = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="Thresholds, units, directions and new names of benchmarks. Default: "
        "kraft-regress.toml in --repository, or in this directory, if it exists.",
        show_default=False,
    ),
]
MaxPValueOption = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        help="Ignore change points with a larger p-value than this. Default: 1e-5.",
        show_default=False,
    ),
]
MinMagnitudeOption = Annotated[
    str | None,
    typer.Option(
        metavar="CHANGE",
        help="Ignore changes smaller than this: 5% or 0.05. Default: that of --rules, else 0.",
        show_default=False,
    ),
]
WindowOption = Annotated[
    int | None,
    typer.Option(metavar="RUNS", help="Runs per window. Default: 50.", show_default=False),
]
MinRunsOption = Annotated[
    int | None,
    typer.Option(
        metavar="RUNS",
        help="Skip series with fewer runs than this. Default: 8.",
        show_default=False,
    ),
]
ClipOutliersOption = Annotated[
    float | None,
    typer.Option(
        metavar="LIMIT",
        help="Clip outliers to this number of robust standard deviations, for a machine with "
        "occasional disturbances (recommended: 4). Default: no clipping.",
        show_default=False,
    ),
]
FalseDiscoveryRateOption = Annotated[
    float | None,
    typer.Option(
        metavar="RATE",
        help="The allowed share of false changes among all reported. Default: 0.05.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """The runs of a store that are analysed, and the rules for their benchmarks."""

    machine: MachineOption = None
    project: ProjectOption = None
    branch: BranchOption = None
    repository: RepositoryOption = None
    include_dirty: DirtyOption = False
    rules: RulesOption = None

    @property
    def scope(self) -> Scope:
        return scope_of(self.project, self.branch, self.repository, self.include_dirty)


@dataclass(frozen=True)
class DetectionOptions:
    """How changes are found; what is None has the default of `AnalysisSettings`."""

    statistic: StatisticOption = "median"
    max_p_value: MaxPValueOption = None
    min_magnitude: MinMagnitudeOption = None
    window: WindowOption = None
    min_runs: MinRunsOption = None
    clip_outliers: ClipOutliersOption = None
    false_discovery_rate: FalseDiscoveryRateOption = None

    def settings(self, threshold: float | None) -> AnalysisSettings:
        """Return them; ``threshold`` is that of the rules, for changes of any size."""
        least = self.min_magnitude
        return settings_of(
            **{**vars(self), "min_magnitude": threshold if least is None else share_of(least)}
        )


def analysis_of(
    store: str,
    runs: RunOptions,
    detection: DetectionOptions,
    master: str | None,
    *,
    version: int | str | None = None,
    **asked: Any,
) -> Analysis:
    """Return the analysis of a store, with its verdicts, that `kraft regress` reports."""
    from kraft.regression.analysis import analyse_store
    from kraft.regression.store import open_store
    from kraft.regression.verdict_store import load_verdicts

    rules = rules_of(runs.rules, runs.repository)
    settings = detection.settings(rules.threshold)
    asked |= {
        "version": version,
        "machine": runs.machine,
        "scope": runs.scope,
        "rules": rules,
        "verdicts": load_verdicts(store),
    }
    points = open_store(store, version).points
    if master is None and (points < _LOCAL_POINTS or find_spec("pyspark") is None):
        return analyse_store(store, settings, **asked)
    from kraft.spark.session import spark_session
    from kraft.spark.tasks import SparkTasks

    with spark_session(
        master=master or "local[*]", app_name="kraft regress", progress=sys.stderr.isatty()
    ) as spark:
        return analyse_store(store, settings, tasks=SparkTasks(spark), **asked)


def scope_of(
    project: str | None, branch: str | None, repository: Path | None, include_dirty: bool
) -> Scope:
    from kraft.regression.commit_order import Scope

    return Scope(project, branch, include_dirty, repository)


def rules_of(path: Path | None, repository: Path | None) -> ProjectRules:
    """Return the rules in the given file, else in that of the repository or this directory."""
    from kraft.regression import project_rules

    if path is not None:
        return project_rules.load(path)
    return project_rules.find(repository or Path())


def settings_of(**given: Any) -> AnalysisSettings:
    """Return the given settings; those that are None keep their defaults."""
    from kraft.regression.settings import AnalysisSettings

    return AnalysisSettings(**{name: value for name, value in given.items() if value is not None})


def share_of(text: str) -> float:
    """Return ``5%`` or ``0.05`` as a float; from 1 on only with a percent sign."""
    from kraft.errors import InvalidConfigError

    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < (float("inf") if text.endswith("%") else 1):
        raise InvalidConfigError(f"{text!r} is not a change: write 5% or 0.05")
    return share


@contextmanager
def refusing_bad_input() -> Iterator[None]:
    """Exit with `USAGE` for bad input, as 1 means a regression."""
    from kraft.cli.exit_codes import text_of
    from kraft.errors import KraftError

    try:
        yield
    except BrokenPipeError:
        raise
    except ImportError as error:
        extra = "spark" if (error.name or "").startswith(("pyspark", "py4j")) else "regress"
        print(
            f"error: this needs kraft[{extra}]: pip install 'kraft[{extra}]' ({error})",
            file=sys.stderr,
        )
        raise typer.Exit(USAGE) from None
    except (KraftError, OSError) as error:
        print(f"error: {text_of(error)}", file=sys.stderr)
        raise typer.Exit(USAGE) from None
