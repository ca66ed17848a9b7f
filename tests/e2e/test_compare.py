"""``kraft lab compare`` as a user runs it: both kinds of clusters, every step, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.generations.measures import MEASURES
from tests.harness.commands import kraft
from tests.harness.html_pages import Page

SIZE = ("--brokers", 5, "--partitions", 50)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", ["kraft", "zk-2018"])
def test_the_script_runs_in_each_kind_of_cluster(mode: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = kraft(
        *("lab", "compare", *SIZE, "--modes", mode, "--session-timeout-ms", 4000),
        *("--time-limit-s", 250, "--out", out, "--json"),
        timeout_s=350,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"run 1 of 1: {mode}, 50 partitions: measured" in ran.stderr
    report = json.loads(ran.stdout)
    (run,) = report["runs"]
    found = {(each["step"], each["measure"]): each["value"] for each in run["seconds"]}
    assert list(found) == list(MEASURES)
    assert min(found.values()) >= 0
    # The session of a broker that was killed has to time out first: 9 s, or 4 s. It may have been
    # renewed up to 2 s before, and longer ago after a standstill of the machine.
    assert found["crash", "detected"] >= (5.0 if mode == "kraft" else 1.5)
    failover = [found["failover", each] for each in ("detected", "first_write", "total")]
    assert failover == sorted(failover)
    # No write is accepted at once when the controller was killed.
    assert failover[1] > 0
    assert json.loads((out / "results.json").read_text())["runs"] == report["runs"]
    plots = Page((out / "compare.html").read_text()).plots
    assert set(plots) == {f"{step}-{measure}" for step, measure in MEASURES}


def test_what_cannot_run_is_rejected_at_once(tmp_path: Path) -> None:
    for arguments, said in (
        (("--modes", "zk-2077"), "error: there is no mode 'zk-2077'"),
        (("--partitions", "many"), "error: 'many' is no number of partitions"),
        (("--modes", "kafka-1.1.1", "--kafka-home", f"1.1.1={tmp_path}"), "holds no release"),
        (("--replication-factor", 6), "error: a replication factor of 6 does not fit"),
    ):
        ran = kraft("lab", "compare", *SIZE, *arguments)
        assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
        assert said in ran.stderr


def test_the_modes_are_listed() -> None:
    ran = kraft("lab", "compare", "--list-modes", "--json")
    modes = {each["mode"]: each for each in json.loads(ran.stdout)}
    assert modes["kraft"] == {
        "mode": "kraft",
        "title": "kraft's KRaft controllers",
        "metadata": "quorum",
        "largest": 1_000_000,
        "kafkaRelease": None,
    }
    assert modes["kafka-1.1.1"]["kafkaRelease"] == "1.1.1"
    assert "kafka-4.3=" not in kraft("lab", "compare", "--list-modes").stdout
