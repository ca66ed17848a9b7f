"""The rules of ``kraft-regress.toml`` in an analysis and a comparison, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.result_documents import document, save
from tests.unit.cli.conftest import Run

pytest.importorskip("msgspec", reason="needs kraft[regress]")


@pytest.fixture
def store(kraft: Run, tmp_path: Path) -> Path:
    """A store of 40 runs: test_a was in old.py for 20 and became 20 % slower with the move; test_b
    became 3 % slower at the same time; test_c exists from run 10 on.
    """
    for run in range(40):
        level = 1.2 if run >= 20 else 1.0
        wobble = 1 + 0.002 * (run * 7 % 5 - 2)
        suite = "new.py" if run >= 20 else "old.py"
        content = document(
            at=run, commit=f"{run:040x}", values={"test_a": [level * wobble]}, suite=suite
        )
        others = {"test_b": [(1.03 if run >= 20 else 1.0) * wobble]}
        if run >= 10:
            others["test_c"] = [wobble]
        content["benchmarks"] += document(at=run, values=others)["benchmarks"]
        save(tmp_path / "runs" / f"{run}.json", content)
    store = tmp_path / "store"
    assert kraft("bench", "ingest", tmp_path / "runs", "--store", store).code == 0
    return store


def rules(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    return path


def changes(kraft: Run, store: Path, *options: object) -> dict[str, float]:
    found = kraft("regress", "--store", store, "--json", *options).json
    return {
        f"{each['suite']}::{each['benchmark']}": round(each["ratio"]["value"], 2)
        for each in found["change_points"]
    }


def test_a_renamed_benchmark_has_one_history(kraft: Run, store: Path, tmp_path: Path) -> None:
    path = rules(tmp_path, '[rename]\n"old.py" = "new.py"\n"gone.py" = "new.py"\n')
    assert changes(kraft, store) == {"bench.py::test_b": 1.03}
    both = {"bench.py::test_b": 1.03, "new.py::test_a": 1.2}
    assert changes(kraft, store, "--rules", path) == both
    found = kraft("regress", "--store", store, "--rules", path, "--json").json
    series = {f"{each['suite']}::{each['benchmark']}": each for each in found["series"]}
    assert series["new.py::test_a"]["runs"] == 40
    assert "old.py::test_a" not in series
    assert any("rename 'gone.py': no series has this name" in each for each in found["problems"])
    # A glob means the names of today, and a page draws the joined history.
    page = tmp_path / "page.html"
    named = ("--rules", path, "--benchmark", "new.py::*", "--html", page)
    assert changes(kraft, store, *named) == {"new.py::test_a": 1.2}
    assert "old.py" not in page.read_text()


def test_thresholds_of_patterns(kraft: Run, store: Path, tmp_path: Path) -> None:
    text = '[rename]\n"old.py::test_a" = "new.py::test_a"\n'
    path = rules(tmp_path, f'{text}[[benchmarks]]\nmatch = "*test_b"\nthreshold = "5%"\n')
    assert changes(kraft, store, "--rules", path) == {"new.py::test_a": 1.2}
    path = rules(
        tmp_path,
        f'threshold = "30%"\n{text}[[benchmarks]]\nmatch = "bench.py::*"\nthreshold = "1%"\n',
    )
    assert changes(kraft, store, "--rules", path) == {"bench.py::test_b": 1.03}


def test_a_direction_turns_a_regression_into_an_improvement(
    kraft: Run, store: Path, tmp_path: Path
) -> None:
    assert kraft("regress", "--store", store, "--fail").code == 1
    text = '[[benchmarks]]\nmatch = "test_b"\nunit = "hits"\nbigger_is_better = true\n'
    path = rules(tmp_path, text)
    ran = kraft("regress", "--store", store, "--fail", "--rules", path, "--json")
    assert ran.code == 0
    (point,) = ran.json["change_points"]
    assert (point["kind"], point["unit"]) == ("improvement", "hits")


def test_series_that_began_and_ended_are_reported(kraft: Run, store: Path, tmp_path: Path) -> None:
    found = kraft("regress", "--store", store, "--json").json
    began = [each["benchmark"] for each in found["series"] if each["began"]]
    assert began == ["test_c"]  # new.py::test_a continues old.py::test_a
    assert found["summary"]["began"] == 1
    page, comment = tmp_path / "page.html", tmp_path / "comment.md"
    shown = kraft("regress", "--store", store, "--html", page, "--markdown", comment)
    assert "Began: 1 series" in shown.out
    assert "test_c: first run 2026-01-01" in shown.out
    assert "began: first run 2026-01-01" in page.read_text()
    assert "1 series began" in comment.read_text()


def test_a_comparison_finds_the_baseline_under_its_old_name(
    kraft: Run, store: Path, tmp_path: Path
) -> None:
    candidate = tmp_path / "candidate.json"
    content = document(at=60, commit="b" * 40, values={"test_z": [1.5]}, suite="newest.py")
    save(candidate, content)
    text = '[rename]\n"old.py" = "new.py"\n"new.py::test_a" = "newest.py::test_z"\n'
    path = rules(tmp_path, text)
    options = ("--store", store, "--json", "--rules")
    ran = kraft("regress", "compare", "last:10", candidate, *options, path)
    (found,) = ran.json["comparisons"]
    assert (found["runs_base"], found["regression"], ran.code) == (10, True, 1)
    path = rules(tmp_path, text + '[[benchmarks]]\nmatch = "newest.py::*"\nthreshold = "30%"\n')
    ran = kraft("regress", "compare", "last:10", candidate, *options, path)
    assert (ran.json["comparisons"][0]["regression"], ran.code) == (False, 0)
    without = kraft("regress", "compare", "last:10", candidate, "--store", store)
    assert without.code == 2
    one = tmp_path / "one.json"
    save(one, document(at=10, values={"test_a": [1.0] * 20}, suite="old.py"))
    ran = kraft("regress", "compare", one, candidate, "--rules", path, "--json")
    assert [each["benchmark"] for each in ran.json["comparisons"]] == ["test_z"]


def test_the_rules_of_the_repository_are_the_default_and_errors_exit_with_2(
    kraft: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "project"
    place.mkdir()
    (place / "kraft-regress.toml").write_text('threshold = "10%"\n')
    monkeypatch.chdir(place)
    assert changes(kraft, store) == {}
    (place / "kraft-regress.toml").write_text("treshold = 1\n")
    ran = kraft("regress", "--store", store)
    assert ran.code == 2
    assert "kraft-regress.toml: treshold: unknown key; did you mean threshold?" in ran.err
    assert json.dumps(changes(kraft, store, "--rules", rules(tmp_path, ""))) == (
        '{"bench.py::test_b": 1.03}'
    )
