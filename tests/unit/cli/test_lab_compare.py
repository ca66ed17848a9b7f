"""``kraft lab compare``: progress, the table, exit codes, and an interrupt."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from kraft.cli.exit_codes import FAILED, FOUND, INTERRUPTED
from kraft.cli.lab_compare import compare
from kraft.generations import comparison
from kraft.generations.comparison import ComparisonReport, ComparisonRequest
from kraft.generations.measures import Outcome, RunResult, ScriptStep

Ended = Callable[[RunResult], object]


def a_run(size: int, seconds: float, outcome: Outcome = Outcome.MEASURED) -> RunResult:
    run = RunResult("kraft", size, outcome, "" if outcome is Outcome.MEASURED else "create: late")
    if seconds:
        run.seconds[ScriptStep.CREATE, "known"] = seconds
    return run


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a comparison end with these runs, or with the error after them."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def plan(*runs: RunResult, error: BaseException | None = None) -> None:
        def carry_out(request: ComparisonRequest, on_step: Any, on_run: Ended) -> ComparisonReport:
            for run in runs:
                on_step(run, "create")
                on_run(run)
            if error is not None:
                raise error
            return comparison.report_of(request, runs)

        monkeypatch.setattr(comparison, "compare", carry_out)

    return plan


def test_the_table_marks_what_is_extrapolated(
    planned: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = a_run(2_000_000, 0, Outcome.SKIPPED)
    planned(a_run(100, 0.1), a_run(1000, 1.0), a_run(10_000, 10.0), skipped)
    compare(partitions="100,1000,10000,2000000", modes="kraft")
    shown = capsys.readouterr()
    heading, row = shown.out.splitlines()[1:3]
    assert heading.split()[:6] == ["Measure", "Mode", "100", "1,000", "10,000", "2,000,000"]
    assert [cell.strip() for cell in row.split("  ") if cell] == [
        *("create known", "kraft", "100 ms", "1 s", "10 s", "~33.3 min"),
        *("1.00 [1.00, 1.00]", "1.00"),
    ]
    assert "run 4 of 4: kraft, 2,000,000 partitions: skipped: create: late" in shown.err


@pytest.mark.parametrize(
    ("outcome", "code"), [(Outcome.TIMED_OUT, FOUND), (Outcome.FAILED, FAILED)]
)
def test_a_run_without_an_end_sets_the_exit_code(
    outcome: Outcome, code: int, planned: Callable[..., None]
) -> None:
    planned(a_run(100, 0.1), a_run(1000, 0, outcome))
    with pytest.raises(typer.Exit) as ended:
        compare(partitions="100,1000", modes="kraft", as_json=True)
    assert ended.value.exit_code == code


def test_an_interrupt_keeps_the_runs_so_far(
    planned: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    planned(a_run(100, 0.1), error=KeyboardInterrupt())
    with pytest.raises(typer.Exit) as ended:
        compare(partitions="100,1000", modes="kraft", out=tmp_path)
    assert ended.value.exit_code == INTERRUPTED
    assert f"{tmp_path} has the runs so far" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "results.json").read_text())["runs"]) == 1
