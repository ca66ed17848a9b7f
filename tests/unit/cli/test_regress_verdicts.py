"""Verdicts on changes, as typed, and what ``--fail`` makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'kraft[regress]'")

from kraft.regression.ingest import ingest
from kraft.regression.verdict_store import add_verdicts, load_verdicts
from tests.harness.result_documents import document, save
from tests.unit.cli.conftest import Run


class History:
    """A store of one benchmark, one run an hour; each commit is named by its hour."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.runs = 0

    def add(
        self, level: float, runs: int, *, name: str = "test_a", suite: str = "bench.py"
    ) -> None:
        """Append runs of a level with a noise of 0.3 %."""
        files = []
        for run in range(self.runs, self.runs + runs):
            wobble = 1 + 0.002 * (run * 7 % 5 - 2)
            content = document(
                at=run,
                commit=f"{run:02x}" + "0" * 38,
                values={name: [level * wobble]},
                suite=suite,
            )
            files.append(save(self.folder / "runs" / f"{run}.json", content))
        self.runs += runs
        ingest(files, self.store)


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A benchmark that became 20 % slower at the commit 14 of 30."""
    monkeypatch.chdir(tmp_path)  # without the repository's own kraft-regress.toml
    made = History(tmp_path)
    made.add(1.0, 20)
    made.add(1.2, 10)
    return made


Fails = Callable[..., int]


@pytest.fixture
def fails(kraft: Run, history: History) -> Fails:
    """Return the exit code of ``kraft regress --fail``."""
    return lambda *options: kraft("regress", "--store", history.store, "--fail", *options).code


def say(kraft: Run, history: History, kind: str, *options: object) -> list[dict[str, Any]]:
    """Record verdicts by ana and return them."""
    always = ("--store", history.store, "--reason", "checksums", "--by", "ana", "--json")
    ran = kraft("regress", kind, *always, *options)
    assert ran.code == 0, ran.err
    recorded: list[dict[str, Any]] = ran.json["recorded"]
    return recorded


def test_an_accepted_change_stays_quiet_and_a_further_worsening_alarms(
    kraft: Run, history: History, fails: Fails
) -> None:
    assert fails() == 1
    (verdict,) = say(kraft, history, "accept", "--change", "14")
    assert (verdict["by"], verdict["reason"], verdict["direction"]) == (
        "ana",
        "checksums",
        "regression",
    )
    assert verdict["commit_after"].startswith("14")
    assert fails() == 0
    history.add(1.2, 10)
    assert fails() == 0
    history.add(1.4, 10)
    assert fails() == 1
    found = kraft("regress", "--store", history.store, "--json").json
    states = {
        point["commit_after"][:2]: (point["verdict"] or {}).get("state")
        for point in found["change_points"]
    }
    assert states == {"14": "accepted", "28": None}
    assert (found["summary"]["regressions"], found["summary"]["alarms"]) == (2, 1)


def test_a_worsening_that_joins_the_accepted_change_alarms(
    kraft: Run, history: History, fails: Fails, tmp_path: Path
) -> None:
    """Two runs after the accepted change everything is 40 % slower: one change for the analysis."""
    other = History(tmp_path / "other")
    other.add(1.0, 20)
    other.add(1.2, 2)
    say(kraft, other, "accept", "--change", "14")
    assert kraft("regress", "--store", other.store, "--fail").code == 0
    other.add(1.4, 20)
    ran = kraft("regress", "--store", other.store, "--fail", "--json")
    assert ran.code == 1
    states = [(point["verdict"] or {}).get("state") for point in ran.json["change_points"]]
    assert states.count("accepted") < len(states)


def test_a_limit_decides_what_is_accepted(kraft: Run, history: History, fails: Fails) -> None:
    say(kraft, history, "accept", "--benchmark", "test_a", "--at-most", "10%")
    assert fails() == 1
    shown = kraft("regress", "--store", history.store)
    assert "worse than accepted by ana" in shown.out
    assert "(at most +10.0 %)" in shown.out
    say(kraft, history, "accept", "--benchmark", "bench.py::*", "--at-most", "25%")
    assert fails() == 0


def test_nothing_is_recorded_by_a_dry_run_or_twice(
    kraft: Run, history: History, fails: Fails
) -> None:
    assert len(say(kraft, history, "accept", "--all", "--dry-run")) == 1
    assert load_verdicts(history.store).verdicts == ()
    assert len(say(kraft, history, "accept", "--all")) == 1
    ran = kraft("regress", "accept", "--store", history.store, "--all", "--reason", "again")
    assert ran.code == 0
    assert "1 of 1 changes have this verdict already" in ran.err
    assert len(load_verdicts(history.store).verdicts) == 1


def test_a_watch_ends_at_its_date_and_becomes_an_acceptance(
    kraft: Run, history: History, fails: Fails
) -> None:
    (verdict,) = say(kraft, history, "watch", "--change", "14", "--until", "2999-01-01")
    assert verdict["until"] == "2999-01-01T00:00:00.000000Z"
    assert fails() == 0
    # The same watch, until a date that is past.
    (watched,) = load_verdicts(history.store).in_force
    add_verdicts(
        history.store, [replace(watched, id="f" * 32, replaces=watched.id, until_us=1_000_000)]
    )
    assert fails() == 1
    assert "no longer watched by ana" in kraft("regress", "--store", history.store).out
    say(kraft, history, "accept", "--change", "14")
    assert fails() == 0
    assert len(load_verdicts(history.store).in_force) == 1


def test_a_reopened_change_alarms_again(kraft: Run, history: History, fails: Fails) -> None:
    (verdict,) = say(kraft, history, "accept", "--all")
    listed = kraft("regress", "verdicts", "--store", history.store)
    assert verdict["id"][:8] in listed.out
    assert "checksums" in listed.out
    say(kraft, history, "reopen", verdict["id"][:8])
    assert fails() == 1
    assert kraft("regress", "verdicts", "--store", history.store, "--json").json["verdicts"] == []
    every = kraft("regress", "verdicts", "--store", history.store, "--all", "--json").json
    assert [(each["kind"], each["in_force"]) for each in every["verdicts"]] == [
        ("reopen", False),
        ("accept", False),
    ]
    again = kraft("regress", "reopen", "--store", history.store, "--reason", "x", verdict["id"])
    assert again.code == 2
    assert "no verdict in force has the id" in again.err


def expected(kraft: Run, history: History) -> list[str]:
    found = kraft("regress", "--store", history.store, "--json").json
    return [each["state"] for each in found["expectations"]]


def test_an_expected_change_is_quiet_when_it_comes(
    kraft: Run, history: History, fails: Fails
) -> None:
    say(kraft, history, "accept", "--all")
    options = ("--benchmark", "test_a", "--slower", "--within-runs", "4", "--at-most", "30%")
    (verdict,) = say(kraft, history, "expect", *options)
    assert (verdict["within"], verdict["within_unit"], verdict["limit"]) == (4, "runs", 1.3)
    assert expected(kraft, history) == ["awaited"]
    history.add(1.2, 2)
    history.add(1.5, 10)
    assert fails() == 0
    assert expected(kraft, history) == ["came"]
    # Another one is not expected.
    history.add(1.8, 10)
    assert fails() == 1


@pytest.mark.parametrize(
    ("level", "direction", "before", "limit"),
    [
        (1.5, "--faster", 2, ()),  # the other direction
        (1.5, "--slower", 12, ()),  # too late
        (1.5, "--slower", 2, ("--at-most", "10%")),  # too much
    ],
)
def test_an_unexpected_change_alarms(
    kraft: Run,
    history: History,
    fails: Fails,
    level: float,
    direction: str,
    before: int,
    limit: tuple[str, ...],
) -> None:
    say(kraft, history, "accept", "--all")
    options = ("--benchmark", "test_a", direction, "--within-runs", "4", *limit)
    say(kraft, history, "expect", *options)
    history.add(1.2, before)
    assert fails() == 0
    history.add(level, 10)
    assert fails() == 1


def test_an_expected_change_that_did_not_come_is_reported(
    kraft: Run, history: History, fails: Fails, tmp_path: Path
) -> None:
    say(kraft, history, "accept", "--all")
    options = ("--benchmark", "test_a", "--faster", "--within-commits", "3")
    (verdict,) = say(kraft, history, "expect", *options)
    history.add(1.2, 3)
    assert expected(kraft, history) == ["awaited"]
    history.add(1.2, 3)
    assert expected(kraft, history) == ["did not come"]
    assert fails() == 0
    page, comment = tmp_path / "page.html", tmp_path / "comment.md"
    shown = kraft("regress", "--store", history.store, "--html", page, "--markdown", comment)
    assert "1 expected change did not come" in shown.out
    for text in (shown.out, page.read_text(), comment.read_text()):
        assert "Expected changes" in text
        assert f"expected by ana on 20{verdict['time'][2:10]} ({verdict['id'][:8]})" in text
    say(kraft, history, "reopen", verdict["id"])
    assert expected(kraft, history) == []


def test_a_change_that_is_known_is_not_the_expected_one(
    kraft: Run, history: History, fails: Fails, tmp_path: Path
) -> None:
    """It is the newest level, of two runs: as near as the estimate of an expected change may be."""
    other = History(tmp_path / "other")
    other.add(1.0, 20)
    other.add(1.2, 2)
    say(kraft, other, "expect", "--benchmark", "test_a", "--slower")
    assert kraft("regress", "--store", other.store, "--fail").code == 1


def test_verdicts_follow_a_renamed_benchmark(
    kraft: Run, history: History, fails: Fails, tmp_path: Path
) -> None:
    say(kraft, history, "accept", "--change", "14")
    history.add(1.2, 10, name="test_z", suite="new.py")
    rules = tmp_path / "rules.toml"
    rules.write_text('[rename]\n"bench.py::test_a" = "new.py::test_z"\n')
    assert fails("--rules", rules) == 0
    found = kraft("regress", "--store", history.store, "--rules", rules, "--json").json
    (point,) = found["change_points"]
    assert (point["benchmark"], point["verdict"]["state"]) == ("test_z", "accepted")
    # Without the rule, the old name has ended and keeps its verdict.
    assert fails() == 0


def test_late_runs_of_old_commits_do_not_move_a_verdict(
    kraft: Run, history: History, fails: Fails
) -> None:
    say(kraft, history, "accept", "--change", "14")
    files = []
    for number in range(10):
        content = document(
            at=100 + number,
            committed=5 + 0.01 * number,
            commit=f"ff{number}" + "0" * 37,
            values={"test_a": [1.0 + 0.001 * (number % 3)]},
        )
        files.append(save(history.folder / "late" / f"{number}.json", content))
    ingest(files, history.store)
    found = kraft("regress", "--store", history.store, "--json").json
    (point,) = found["change_points"]
    assert point["index"] == 30
    assert fails() == 0


def test_reports_show_verdicts(kraft: Run, history: History, tmp_path: Path) -> None:
    (verdict,) = say(kraft, history, "accept", "--all")
    page, comment = tmp_path / "page.html", tmp_path / "comment.md"
    shown = kraft("regress", "--store", history.store, "--html", page, "--markdown", comment)
    assert "1 regression covered by verdicts" in shown.lines[0]
    assert "Regressions covered by verdicts" in shown.out
    said = f"accepted by ana on {verdict['time'][:10]} ({verdict['id'][:8]}): checksums"
    assert said in shown.out
    assert page.read_text().count(said) == 2  # the cell, the history
    text = comment.read_text()
    assert text.startswith("### Benchmarks: no new regression\n")
    assert said in text
    sent = kraft("regress", "comment", comment, "--webhook", "https://host/x", "--json").json
    assert sent["requests"][0]["body"]["conclusion"] == "success"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["accept", "--reason", "x"], "name what to accept with --benchmark or --change"),
        (["accept", "--reason", "x", "--all", "--change", "14"], "or everything with --all"),
        (["accept", "--reason", " ", "--all"], "--reason is empty"),
        (["accept", "--reason", "x", "--all", "--by", " "], "--by is empty"),
        (["accept", "--reason", "x", "--change", "99"], "no change at 99 in 1 series"),
        (["accept", "--reason", "x", "--benchmark", "z*"], "no regression of 'z*' in 1 series"),
        (["accept", "--reason", "x", "--all", "--at-most", "much"], "'much' is not a change"),
        (["watch", "--reason", "x", "--all", "--until", "soon"], "'soon' is no date"),
        (["watch", "--reason", "x", "--all", "--until", "2020-01-01"], "2020-01-01 is past"),
        (["expect", "--reason", "x", "--benchmark", "z*", "--slower"], "no series matches 'z*'"),
        (
            ["expect", "--reason", "x", "--benchmark", "*", "--faster", "--at-most", "5%"],
            "--at-most is the limit of a regression",
        ),
        (
            [
                "expect",
                "--reason",
                "x",
                "--benchmark",
                "*",
                "--slower",
                "--within-runs",
                "3",
                "--within-commits",
                "3",
            ],
            "exclude each other",
        ),
        (["reopen", "abc", "--reason", "x"], "no verdict in force has the id 'abc'"),
    ],
)
def test_bad_input_records_nothing(
    kraft: Run, history: History, arguments: list[str], says: str
) -> None:
    ran = kraft("regress", *arguments, "--store", history.store)
    assert ran.code == 2
    assert says in ran.err
    assert not (history.store / "_verdicts").exists()


def test_a_folder_without_a_store_is_refused(kraft: Run, tmp_path: Path) -> None:
    for command in (["verdicts"], ["reopen", "a", "--reason", "x"]):
        ran = kraft("regress", *command, "--store", tmp_path / "no")
        assert ran.code == 2
        assert "not a store of results" in ran.err
    assert not (tmp_path / "no").exists()


def test_the_ledger_is_listed_as_json(kraft: Run, history: History) -> None:
    assert "no verdicts" in kraft("regress", "verdicts", "--store", history.store).err
    say(kraft, history, "accept", "--all")
    ran = kraft("regress", "verdicts", "--store", history.store, "--json")
    (verdict,) = json.loads(ran.out)["verdicts"]
    assert verdict["in_force"] is True
    assert verdict["ratio"]["low"] < 1.2 < verdict["ratio"]["high"]
    assert verdict["limit"] == verdict["ratio"]["high"]
    none = kraft("regress", "verdicts", "--store", history.store, "--benchmark", "z*", "--json")
    assert none.json["verdicts"] == []
