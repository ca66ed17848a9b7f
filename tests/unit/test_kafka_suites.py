"""Read the output of Kafka's own tests and judge each test (`tests.kafka_suites`)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kafka_suites import page, run
from tests.kafka_suites.launcher import FinishedTest, read_feed
from tests.kafka_suites.outcomes import (
    FAILED,
    NOT_APPLICABLE,
    PASSED,
    MethodPattern,
    Outcome,
    judge,
    load,
    read_list,
    regressions,
)

FEED = """\
JUnit Jupiter > AnyTest > testOne(boolean) > testOne(boolean)[1] :: STARTED
text of a test. JUnit Jupiter > AnyTest > testOne(boolean) > testOne(boolean)[1] :: SUCCESSFUL
JUnit Jupiter > AnyTest > testTwo() :: STARTED
JUnit Jupiter > AnyTest > testTwo() :: FAILED
\torg.opentest4j.AssertionFailedError: expected: <1> but was: <2>
\t\tat kafka.AnyTest.testTwo(AnyTest.java:1)
JUnit Jupiter > AnyTest > testThree() :: STARTED
JUnit Jupiter > AnyTest > testThree() :: ABORTED
\tkraft.suites.NotApplicable: not applicable: it is combined
JUnit Jupiter > AnyTest > testFour() :: STARTED
"""


def test_the_output_of_the_test_launcher_is_parsed() -> None:
    tests = read_feed(FEED.splitlines(), timed_out=True)

    assert [(test.name, test.status) for test in tests] == [
        ("AnyTest > testOne(boolean) > testOne(boolean)[1]", "SUCCESSFUL"),
        ("AnyTest > testTwo()", "FAILED"),
        ("AnyTest > testThree()", "ABORTED"),
        ("AnyTest > testFour()", "FAILED"),
    ]
    assert tests[1].detail.startswith("org.opentest4j.AssertionFailedError: expected: <1>")
    assert tests[3].detail == "it did not end within the time limit"


def test_each_test_has_its_outcome_and_reason() -> None:
    excluded = (MethodPattern("AnyTest", re.compile("test(One|Two)"), "reads metrics"),)

    outcomes = judge(read_feed(FEED.splitlines()), excluded)["AnyTest"]

    # A test that passes is reported as passed, even if an entry excludes it.
    assert outcomes["testOne(boolean) > testOne(boolean)[1]"] == Outcome(PASSED)
    assert outcomes["testTwo()"] == Outcome(NOT_APPLICABLE, "reads metrics")
    assert outcomes["testThree()"] == Outcome(NOT_APPLICABLE, "it is combined")
    assert outcomes["testFour()"] == Outcome(FAILED, "the JVM ended")


def test_only_a_test_that_passed_before_can_regress() -> None:
    tests = [FinishedTest(f"AnyTest > {name}", "FAILED", "why") for name in ("a()", "b()", "c()")]
    before = {"AnyTest": {"a()": Outcome(PASSED), "b()": Outcome(FAILED, "why")}}

    assert regressions(judge(tests, ()), before) == ["AnyTest > a(): why"]


def test_a_run_of_some_methods_replaces_only_their_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "kept_path", lambda backend: tmp_path / f"{backend}.json")
    monkeypatch.setattr(page, "write", lambda: None)
    failed, passed = Outcome(FAILED, "why"), Outcome(PASSED)

    run.record("kraft", {"A": {"a()": failed, "b()": failed}, "B": {"c()": passed}}, is_part=False)
    run.record("kraft", {"A": {"a()": passed}}, is_part=True)
    assert load(tmp_path / "kraft.json") == {
        "A": {"a()": passed, "b()": failed},
        "B": {"c()": passed},
    }

    run.record("kraft", {"A": {"a()": passed}}, is_part=False)
    assert load(tmp_path / "kraft.json")["A"] == {"a()": passed}


def test_each_class_is_listed_once_and_each_pattern_names_a_listed_class() -> None:
    suite_list = read_list()
    names = [one.simple_name for one in suite_list.classes]

    assert len(names) == len(set(names))
    for pattern in (*suite_list.exclusions, *suite_list.known_failures):
        assert pattern.test_class in names
        assert pattern.reason
