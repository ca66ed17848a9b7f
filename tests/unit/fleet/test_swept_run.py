"""One run of a sweep as a child process: finished, failed, timed out, and never left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
from pathlib import Path

from kraft.fleet.library import named_scenario
from kraft.fleet.run_slot import take_slot
from kraft.fleet.sweep_grid import SweepSettings, SweptRun
from kraft.fleet.swept_run import ERROR_FILE, SweptRunOutcome, SweptRunResult, carry_out
from tests.harness.commands import eventually, is_gone
from tests.harness.recorded_fleet import PID_FILE, RECORDED

RUN = SweptRun(3, 1000, 6, "kraft")


def carried_out(work: Path, time_limit_s: float = 300.0, **fate: str) -> SweptRunResult:
    """Carry out a run of 6 brokers with the generated program; ``fate`` are its settings."""
    settings = SweepSettings(
        named_scenario("rack-loss"),
        quorum_settings={name.replace("_", "."): value for name, value in fate.items()},
        time_limit_s=time_limit_s,
    )
    return carry_out(RUN, settings, work, owner="a", program=RECORDED)


def left_in(work: Path) -> list[str]:
    return [path.name for path in (work / f"kraft-sweep-{os.getuid()}").iterdir()]


def test_a_finished_run_returns_its_files(tmp_path: Path) -> None:
    result = carried_out(tmp_path, a="b")
    assert (result.outcome, result.reason) == (SweptRunOutcome.FINISHED, "")
    assert set(result.files) == {"run.json", "trace.jsonl", "benchmark.json", "report.json"}
    info = json.loads(result.files["run.json"])
    assert (info["brokers"], info["partitions"], info["seed"]) == (6, 1000, 3)
    assert info["scenario"] == "rack-loss"
    assert json.loads(result.files["report.json"]) == {"brokers": 6, "settings": {"a": "b"}}
    assert left_in(tmp_path) == ["slot-0.lock"]


def test_a_rejected_run_says_why(tmp_path: Path) -> None:
    result = carried_out(tmp_path, fail_brokers="6")
    assert result.outcome is SweptRunOutcome.FAILED
    assert result.reason == "6 brokers do not fit on this machine"
    assert set(result.files) == {ERROR_FILE, "report.json"}


def test_a_run_whose_check_failed_keeps_its_files(tmp_path: Path) -> None:
    result = carried_out(tmp_path, breach_brokers="6")
    assert result.outcome is SweptRunOutcome.FAILED
    assert result.reason.startswith("its check failed: a partition broke a rule: leader 3")
    assert {"trace.jsonl", ERROR_FILE} < set(result.files)
    assert b"step start" in result.files[ERROR_FILE]


def test_a_trace_that_cannot_be_read_is_no_result(tmp_path: Path) -> None:
    result = carried_out(tmp_path, tear_brokers="6")
    assert result.outcome is SweptRunOutcome.FAILED
    assert "trace.jsonl:" in result.reason
    assert "not JSON" in result.reason


def test_a_step_that_fails_is_named(tmp_path: Path) -> None:
    result = carried_out(tmp_path, stop_brokers="6")
    assert result.outcome is SweptRunOutcome.FAILED
    assert result.reason == "after 120 s 3 partitions have replicas out of sync (in step lose)"


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    result = carried_out(tmp_path, 0.5, hang_brokers="6", pid_directory=str(tmp_path))
    assert result.outcome is SweptRunOutcome.TIMED_OUT
    # How far it has come depends on the machine.
    assert re.fullmatch(
        r"it did not end within 0\.5 s \((before its first step|in step (start|lose))\)",
        result.reason,
    )
    assert left_in(tmp_path) == ["slot-0.lock"]
    slot = take_slot(tmp_path, 1, "b")
    assert slot is not None, "the child still holds the slot"
    slot.release()


def test_a_run_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A cancelled task of Spark is a worker that is killed."""
    options = {"hang_brokers": "6", "pid_directory": str(tmp_path)}
    worker = multiprocessing.get_context("spawn").Process(
        target=carried_out, args=(tmp_path,), kwargs=options
    )
    worker.start()
    assert worker.pid is not None
    try:
        eventually((tmp_path / PID_FILE).exists)
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
    child = int((tmp_path / PID_FILE).read_text())
    eventually(lambda: is_gone(child))
    # The killed worker could not remove the files; the next run does.
    assert set(left_in(tmp_path)) == {"slot-0.lock", "slot-0"}
    assert carried_out(tmp_path).outcome is SweptRunOutcome.FINISHED
    assert left_in(tmp_path) == ["slot-0.lock"]


def test_a_run_without_a_slot_has_not_begun(tmp_path: Path) -> None:
    slot = take_slot(tmp_path, 1, "other")
    assert slot is not None
    with slot:
        assert carried_out(tmp_path).outcome is SweptRunOutcome.WAITING
