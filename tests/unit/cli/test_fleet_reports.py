"""``kraft lab fleet-report``, ``fleet-scaling``, ``fleet-calibrate`` and ``fleet-cost``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.harness.fleet_costs import varied
from tests.harness.fleet_runs import Planted, interrupted, write_run
from tests.unit.cli.conftest import Run

pytest.importorskip("plotly", reason="needs kraft[report]: pip install 'kraft[report]'")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write runs of four numbers of brokers with both quorums; return their folder."""
    folder = tmp_path_factory.mktemp("fleet")
    for quorum, factor in (("kraft", 1.0), ("kafka-4.3.1", 4.0)):
        for brokers in (12, 24, 48, 96):
            write_run(folder / f"{quorum}-{brokers}", quorum=quorum, brokers=brokers,
                      planted=Planted(factor=factor, noise=0.02))  # fmt: skip
    return folder


def test_one_run_is_printed_by_step(kraft: Run, runs: Path) -> None:
    ran = kraft("lab", "fleet-report", runs / "kraft-12")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0] == "kraft: rack-loss, 12 brokers, 10,000 partitions, seed 1"
    assert any(line.split()[:4] == ["rack", "lost", "decided", "worst"] for line in ran.lines)
    assert "second / first" not in ran.out


def test_two_runs_are_compared_in_text_json_and_page(
    kraft: Run, runs: Path, tmp_path: Path
) -> None:
    pair = [runs / "kraft-48", runs / "kafka-4.3.1-48"]
    ran = kraft("lab", "fleet-report", *pair, "--html", tmp_path / "report.html")
    assert ran.code == 0
    assert ran.err == f"note: wrote {tmp_path / 'report.html'}\n"
    assert "kafka-4.3.1  second / first" in ran.out
    assert "<h2>Timeline</h2>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    document = kraft("lab", "fleet-report", *pair, "--json").json
    assert [run["quorum"] for run in document["runs"]] == ["kraft", "kafka-4.3.1"]
    decided = [
        each for each in document["measures"]
        if (each["step"], each["name"]) == ("rack lost", "decided")
    ]  # fmt: skip
    assert [each["statistic"] for each in decided] == ["worst"]
    assert 3.5 < decided[0]["ratio"] < 4.5
    assert document["steps"][0][0]["step"] == "start up"
    assert document["faults"][0][0]["what"] == "brokers lost"
    assert document["problems"] == []


def test_a_missing_package_is_named_and_only_where_it_is_needed(
    kraft: Run, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert kraft("lab", "fleet-report", runs / "kraft-12").code == 0
    for arguments in (["fleet-report", runs / "kraft-12", "--html", tmp_path / "x.html"],
                      ["fleet-scaling", runs]):  # fmt: skip
        ran = kraft("lab", *arguments)
        assert ran.code == 1
        assert "pip install 'kraft[report]'" in ran.err
    assert not (tmp_path / "x.html").exists()


def test_a_bad_line_is_an_error_or_a_finding(kraft: Run, tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", extra_lines=('{"at_ms": 1}',))
    number = len((run / "trace.jsonl").read_text().splitlines())
    ran = kraft("lab", "fleet-report", run)
    assert ran.code == 1
    assert f"error: {run}/trace.jsonl:{number}: 'step' is missing" in ran.err
    skipped = kraft("lab", "fleet-report", run, "--skip-bad-lines", "--json")
    assert skipped.code == 3
    assert f"note: skipped: {run}/trace.jsonl:{number}: 'step' is missing" in skipped.err
    assert len(skipped.json["problems"]) == 1


def test_an_interrupted_run_is_a_finding(kraft: Run, runs: Path, tmp_path: Path) -> None:
    cut = interrupted(tmp_path / "cut", brokers=6)
    for arguments in (["fleet-report", cut], ["fleet-scaling", runs, cut, "--json"]):
        ran = kraft("lab", *arguments)
        assert ran.code == 3
        assert "note: run kraft-6-10000-1 was interrupted in step 'rack lost'" in ran.err


def test_results_are_those_that_regress_reads(kraft: Run, runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")
    from kraft.regression.ingest import ingest

    files = [runs / f"kraft-{brokers}" / "benchmark.json" for brokers in (12, 24, 48, 96)]
    ingest(files, tmp_path / "store")
    document = kraft("regress", "--store", tmp_path / "store", "--json").json
    names = {each["benchmark"] for each in document["series"]}
    assert names == {"applied", "decided", "first_write"}
    (law,) = [
        each for each in document["scaling"]
        if each["benchmark"] == "applied" and each["size_param"] == "brokers"
    ]  # fmt: skip
    assert law["exponent"] == pytest.approx(0.5, abs=0.2)
    slower = write_run(tmp_path / "slower", brokers=12, planted=Planted(factor=2))
    compared = kraft("regress", "compare", files[0], slower / "benchmark.json", "--json")
    assert compared.code == 1, compared.err
    assert compared.json["summary"]["compared"] == 3
    assert compared.json["summary"]["regressions"] >= 1


def test_wrong_runs_are_rejected(kraft: Run, runs: Path, tmp_path: Path) -> None:
    three = kraft("lab", "fleet-report", *[runs / "kraft-12"] * 3)
    assert three.code == 2
    assert "a report has one or two" in three.err
    for command in ("fleet-report", "fleet-scaling", "fleet-calibrate"):
        ran = kraft("lab", command, tmp_path / "none")
        assert ran.code == 1
        assert ran.err.startswith("error: ")
        assert "none" in ran.err


def test_laws_are_printed_drawn_and_json(kraft: Run, runs: Path, tmp_path: Path) -> None:
    asked = ["--measure", "applied", "--step", "steady"]
    ran = kraft("lab", "fleet-scaling", runs, *asked, "--html", tmp_path / "scaling.html")
    assert ran.code == 0, ran.err
    assert ran.lines[0] == "Scaling laws of 8 runs"
    assert {line.split()[3:5][0] for line in ran.lines[2:]} == {"applied"}
    assert "Scaling of the fleet" in (tmp_path / "scaling.html").read_text(encoding="utf-8")
    document = kraft("lab", "fleet-scaling", runs, *asked, "--json").json
    laws = [law for law in document["laws"] if law["statistic"] == "p50"]
    assert [law["quorum"] for law in laws] == ["kafka-4.3.1", "kraft"]
    for law in laws:
        assert law["against"] == "brokers"
        assert law["exponent"] == pytest.approx(0.5, abs=0.2)
        assert law["standardError"] > 0


def test_runs_of_one_size_have_no_law(kraft: Run, runs: Path, tmp_path: Path) -> None:
    ran = kraft("lab", "fleet-scaling", runs / "kraft-12")
    assert ran.code == 0
    assert "add runs" in ran.err
    two = kraft("lab", "fleet-scaling", runs / "kraft-12", runs / "kraft-24", "--step", "steady")
    assert two.code == 0
    assert "2 sizes of brokers at equal partitions, 3 are needed" in two.err


def test_costs_are_calibrated_and_used(kraft: Run, tmp_path: Path) -> None:
    varied(tmp_path / "runs")
    costs = tmp_path / "costs.json"
    ran = kraft("lab", "fleet-calibrate", tmp_path / "runs", "--out", costs)
    assert ran.code == 0, ran.err
    assert ran.lines[0] == "Costs of kraft, from 10 steps of 10 runs"
    assert ran.err == f"note: wrote {costs}\n"
    estimated = kraft("lab", "fleet-cost", "--costs", costs, "--fan-out", 16)
    assert (estimated.code, estimated.err) == (0, "")
    assert "10,000 brokers, 10,000,000 partitions" in estimated.lines[0]
    assert any(line.split()[0] == "CPU" and "±" in line for line in estimated.lines)
    assert "steady: CPU" in estimated.out
    document = kraft("lab", "fleet-cost", "--costs", costs, "--json").json
    assert document["clusters"][0]["work"]["CPU"]["unit"] == "cores"
    assert document["clusters"][0]["quorum"] == "kraft"
    assert kraft("lab", "fleet-calibrate", tmp_path / "runs", "--json").json["quorum"] == "kraft"
    wrong = kraft("lab", "fleet-cost", "--costs", costs, "--quorum", "kafka")
    assert wrong.code == 1
    assert "--quorum kafka does not go with the costs of kraft: leave out" in wrong.err
    for label, options, kind in (
        ("kafka-4.3.1", (), "kafka"),
        ("mine", ("--quorum", "kafka"), "kafka"),
        ("mine", (), None),
    ):
        costs.write_text(json.dumps({**json.loads(costs.read_text()), "quorum": label}))
        ran = kraft("lab", "fleet-cost", "--costs", costs, "--json", *options)
        if kind is None:
            assert "the costs are those of the quorum 'mine': say with --quorum" in ran.err
        else:
            assert ran.json["clusters"][0]["quorum"] == kind


def test_the_costs_of_both_quorums_differ_in_fetches(kraft: Run) -> None:
    fetches = {
        kind: kraft("lab", "fleet-cost", "--json", *options).json["clusters"][0]["work"][
            "observer fetches"
        ]["value"]
        for kind, options in (("kraft", ()), ("kafka", ("--quorum", "kafka")))
    }
    assert fetches == {"kraft": 20_000, "kafka": 40_000}


def test_costs_are_optional_and_checked(kraft: Run, tmp_path: Path) -> None:
    ran = kraft("lab", "fleet-cost", "--brokers", 1000, "--partitions", 1_000_000)
    assert (ran.code, ran.err) == (0, "")
    assert "not estimated: they need --costs" in ran.lines[-1]
    assert "steady: CPU" not in ran.out
    (tmp_path / "costs.json").write_text("{}")
    wrong = kraft("lab", "fleet-cost", "--costs", tmp_path / "costs.json")
    assert wrong.code == 1
    assert "costs.json: not a file of kraft lab fleet-calibrate" in wrong.err
    assert kraft("lab", "fleet-cost", "--costs", tmp_path / "none").code == 1
    few = kraft("lab", "fleet-cost", "--brokers", 2)
    assert few.code == 1
    assert "2 brokers are fewer than 3 racks" in few.err
