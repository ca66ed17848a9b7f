"""``kraft regress``: exit codes for CI, and results that do not depend on Spark."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.generate_runs import Step, Suite, generate
from tests.harness.html_pages import Page
from tests.otava.suites import Suite as Histories
from tests.otava.suites import write_runs
from tests.unit.cli.conftest import Run

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

from kraft.regression.ingest import ingest
from kraft.regression.store import list_runs

RUNS = 40


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Step]]:
    """Return a directory with ``runs`` and their ``store``, and the planted changes.

    One benchmark becomes slower, another faster.
    """
    folder = tmp_path_factory.mktemp("results")
    steps = generate(folder / "runs", Suite(runs=RUNS, benchmarks=20, rounds=5, seed=9))
    ingest([folder / "runs"], folder / "store")
    return folder, steps


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Write ten runs before and ten after the benchmark ``slower`` became 20 % slower.

    The benchmark ``steady`` does not change.
    """
    random = np.random.default_rng(3)
    slower = np.where(np.arange(20) < 10, 1.0, 1.2) * random.normal(1, 0.01, 20)
    values = {"slower": slower, "steady": random.normal(1, 0.01, 20)}
    for number, path in enumerate(write_runs([Histories("a", np.arange(20), values)], tmp_path)):
        (tmp_path / ("old" if number < 10 else "new")).mkdir(exist_ok=True)
        path.rename(tmp_path / ("old" if number < 10 else "new") / path.name)
    return tmp_path


def test_changes_are_printed_with_their_commits(
    kraft: Run, planted: tuple[Path, list[Step]]
) -> None:
    folder, steps = planted
    ran = kraft("regress", "--store", folder / "store")
    assert ran.code == 0, ran.err
    assert ran.lines[0].startswith("20 series, 2 changed (1 regression, 1 improvement)")
    for step in steps:
        assert step.commit[:10] in ran.out


def test_a_regression_fails_with_fail(kraft: Run, planted: tuple[Path, list[Step]]) -> None:
    folder, steps = planted
    slower = next(step for step in steps if step.factor > 1)
    faster = next(step for step in steps if step.factor < 1)
    everything = kraft("regress", "--store", folder / "store", "--fail", "--json")
    assert everything.code == 1
    assert everything.json["summary"]["regressions"] == 1

    def only(step: Step) -> str:
        return step.fullname.partition("[")[0]

    assert kraft("regress", "--store", folder / "store", "--fail", "--benchmark", only(slower)).code
    better = kraft("regress", "--store", folder / "store", "--fail", "--benchmark", only(faster))
    assert "improvement" in better.out
    strict = ["--min-magnitude", "1000%", "--since", slower.commit[:8]]
    assert kraft("regress", "--store", folder / "store", "--fail", *strict).code == 0


def test_a_comparison_has_a_page(kraft: Run, pair: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = kraft("regress", "compare", pair / "old", pair / "new", "--html", page)
    assert ran.code == 1, ran.err
    found = Page(page.read_text())
    assert found.all("h1")[0].text == f"{pair / 'new'} compared with {pair / 'old'}"
    assert list(found.plots) == ["ratios"]


def test_the_page_has_the_history_of_each_exponent(
    kraft: Run, planted: tuple[Path, list[Step]], tmp_path: Path
) -> None:
    folder, _ = planted
    page = tmp_path / "page.html"
    ran = kraft("regress", "--store", folder / "store", "--html", page, "--json")
    laws = ran.json["scaling"]
    assert len(laws) == 4
    plots = Page(page.read_text()).plots
    for place in range(len(laws)):
        assert plots[f"law-{place}-history"]["run"] == list(range(1, RUNS + 1))


def test_pages_and_comments_are_written(
    kraft: Run, planted: tuple[Path, list[Step]], tmp_path: Path
) -> None:
    pytest.importorskip("plotly", reason="needs plotly: pip install 'kraft[spark]'")
    files = ["--html", tmp_path / "r.html", "--markdown", tmp_path / "r.md"]
    ran = kraft("regress", "--store", planted[0] / "store", *files)
    assert ran.code == 0, ran.err
    assert f"note: wrote {tmp_path / 'r.html'}\n" in ran.err
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "series-0" in html
    assert "1 regression" in (tmp_path / "r.md").read_text(encoding="utf-8")


def test_a_size_parameter_that_no_benchmark_has_is_a_problem(
    kraft: Run, planted: tuple[Path, list[Step]]
) -> None:
    folder, _ = planted
    ran = kraft("regress", "--store", folder / "store", "--size-param", "sice", "--json")
    assert ran.json["problems"] == [
        "size parameter 'sice': no benchmark has three numeric sizes of it"
    ]


def test_options_become_settings(kraft: Run, planted: tuple[Path, list[Step]]) -> None:
    asked = ["--statistic", "min", "--max-p-value", "1e-9", "--min-magnitude", "2%"]
    asked += ["--window", "30", "--min-runs", "10", "--false-discovery-rate", "0.01"]
    asked += ["--clip-outliers", "4"]
    settings = kraft("regress", "--store", planted[0] / "store", "--json", *asked).json["settings"]
    assert settings["statistic"] == "min"
    assert settings["max_p_value"] == 1e-9
    assert settings["min_magnitude"] == 0.02
    assert (settings["window"], settings["min_runs"]) == (30, 10)
    assert settings["false_discovery_rate"] == 0.01
    assert settings["clip_outliers"] == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing option '--store'"),
        (["--store", "nowhere"], "error: nowhere: this folder is not a store of results"),
        (["--store", "STORE", "--benchmark", "no*thing"], "no runs of benchmark 'no*thing'"),
        (["--store", "STORE", "--machine", "none"], "no runs of machine 'none'"),
        (["--store", "STORE", "--since", "yesterday"], "'yesterday' is neither a date"),
        (["--store", "STORE", "--statistic", "mode"], "statistic is mode, must be one of"),
        (
            ["--store", "STORE", "--min-magnitude", "much"],
            "'much' is not a change: write 5% or 0.05",
        ),
        (["--store", "STORE", "--min-magnitude", "5"], "'5' is not a change: write 5%"),
        (["--store", "STORE", "--as-of", "99"], "the store has no version 99; the newest is 0"),
        (["--store", "torn.json"], "torn.json: this is a file; a store of results is a folder"),
        (["--store", ""], "the name of the store is empty"),
        (["--store", "STORE", "--html", "no/page"], "error: no/page: No such file or directory"),
        (["compare", "nowhere", "STORE"], "error: nowhere: "),
        (["compare", "empty", "empty"], "error: empty: no *.json"),
        (["compare", "torn.json", "torn.json"], "error: torn.json: "),
        (["compare", "last:0", "abcd", "--store", "STORE"], "has no such runs"),
        (["compare", "abcd", "last:x", "--store", "STORE"], "last:N needs a number"),
        (["compare", "last:3", "me", "--store", "STORE"], "'me' is not a file, nor a commit"),
        (["compare", "last:3", "RUN", "--threshold", "-1%"], "'-1%' is not a change"),
    ],
)
def test_bad_input_has_another_exit_code_than_a_regression(
    kraft: Run,
    planted: tuple[Path, list[Step]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn.json").write_text('{"benchmarks": [')
    folder, _ = planted
    known = {"STORE": str(folder / "store"), "RUN": str(min((folder / "runs").iterdir()))}
    ran = kraft("regress", *[known.get(each, each) for each in arguments])
    assert ran.code == 2
    assert says in ran.err
    assert ran.out == ""


def test_a_regression_beyond_the_threshold_is_exit_code_1(kraft: Run, pair: Path) -> None:
    ran = kraft("regress", "compare", pair / "old", pair / "new", "--json")
    assert ran.code == 1
    assert ran.json["summary"] == {"compared": 2, "regressions": 1, "improvements": 0}
    worst = ran.json["comparisons"][0]
    assert worst["runs_base"] == worst["runs_candidate"] == 10
    assert kraft("regress", "compare", pair / "old", pair / "new", "--threshold", "30%").code == 0
    assert kraft("regress", "compare", pair / "old", pair / "new", "--threshold", "0.3").code == 0
    back = kraft("regress", "compare", pair / "new", pair / "old")
    assert back.code == 0
    assert "1 improvement" in back.out


def test_files_folders_and_globs_are_the_same_to_compare(kraft: Run, pair: Path) -> None:
    folders = kraft("regress", "compare", pair / "old", pair / "new", "--json")
    globs = kraft("regress", "compare", f"{pair}/o*/*.json", f"{pair}/**/0001?.json", "--json")
    assert globs == folders
    one, other = min((pair / "old").iterdir()), min((pair / "new").iterdir())
    single = kraft("regress", "compare", one, other)
    assert single.code == 0
    assert "noise unknown" in single.out


def test_a_comment_of_a_comparison_is_written(kraft: Run, pair: Path, tmp_path: Path) -> None:
    comment = tmp_path / "comment.md"
    kraft("regress", "compare", pair / "old", pair / "new", "--markdown", comment)
    assert "slower" in comment.read_text(encoding="utf-8")


def test_an_unreadable_file_is_reported_and_skipped(kraft: Run, pair: Path) -> None:
    torn = pair / "old" / "torn.json"
    torn.write_text('{"benchmarks": [')
    ran = kraft("regress", "compare", pair / "old", pair / "new")
    assert ran.code == 1
    assert str(torn) in ran.err
    strict = kraft("regress", "compare", pair / "old", pair / "new", "--strict")
    assert strict.code == 2
    assert str(torn) in strict.err


def test_the_last_runs_of_a_store_are_a_baseline(kraft: Run, pair: Path, tmp_path: Path) -> None:
    """The candidate may be a new file, a commit of the store or a run of the store."""
    store = tmp_path / "store"
    ingest([pair / "old", pair / "new"], store)
    runs = list_runs(store)
    newest = max((pair / "new").iterdir())
    for candidate in (newest, runs[-1].commit, runs[-1].run_id[:12], "last:1"):
        ran = kraft("regress", "compare", "last:9", candidate, "--store", store, "--json")
        assert ran.code == 0, ran.err
        found = {each["benchmark"]: each for each in ran.json["comparisons"]}
        assert {each["runs_base"] for each in found.values()} == {9}
        assert {each["runs_candidate"] for each in found.values()} == {1}
    # Compare the first slow run with the nine fast runs before it.
    ran = kraft("regress", "compare", "last:9", runs[10].run_id, "--store", store, "--json")
    assert ran.code == 1
    assert ran.json["comparisons"][0]["benchmark"] == "slower"


def test_an_ambiguous_commit_is_rejected(kraft: Run, pair: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest([pair / "old", pair / "new"], store)
    ran = kraft("regress", "compare", "0000", "last:1", "--store", store)
    assert ran.code == 2
    assert "20 commits match" in ran.err


def test_help_says_what_exit_codes_mean(kraft: Run) -> None:
    for arguments in (["regress", "--help"], ["regress", "compare", "--help"]):
        said = " ".join(kraft(*arguments).out.split())
        assert "1 a regression" in said
        assert "2 bad input" in said


def test_the_documents_of_json_are_json(kraft: Run, planted: tuple[Path, list[Step]]) -> None:
    ran = kraft("regress", "--store", planted[0] / "store", "--json")
    assert json.dumps(ran.json, allow_nan=False)
    assert ran.json["summary"]["series"] == 20


def test_projects_branches_and_repositories_are_chosen(
    kraft: Run, planted: tuple[Path, list[Step]], tmp_path: Path
) -> None:
    store = planted[0] / "store"
    (project, branch), *others = {(run.project, run.branch) for run in list_runs(store)}
    assert not others
    given = ["--project", project or "", "--branch", branch or ""]
    assert kraft("regress", "--store", store, *given).lines[0].startswith("20 series, 2 changed")
    for name, text in (("project", "nobody's"), ("branch", "nowhere")):
        ran = kraft("regress", "--store", store, f"--{name}", text)
        assert ran.code == 2
        assert f"{name} {text!r}" in ran.err
    ran = kraft("regress", "--store", store, "--repository", tmp_path)
    assert ran.code == 2
    assert "git cannot list the commits of this repository" in ran.err
