"""Turn finished tests into outcomes: passed, failed or not applicable, with the reason.

`suites.toml` lists the classes, and the tests that do not apply. A listed test that passes counts
as passed, so a stale entry hides nothing. The outcomes of a full run are stored in `results`: the
page is written from them, and a test that passed there must not fail later.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.kafka_suites.launcher import FinishedTest

_HERE = Path(__file__).parent
PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not applicable"
#: The start of the message of `NotApplicable.java`.
_ABORTED = re.compile(r"not applicable: (.*)")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test; ``reason`` is empty if it passed."""

    outcome: str
    reason: str = ""


#: By test name, without the name of its class.
Outcomes = dict[str, Outcome]


@dataclass(frozen=True)
class MethodPattern:
    """A pattern of tests of a class, and why they do not apply or fail with kraft."""

    test_class: str
    methods: re.Pattern[str]
    reason: str


@dataclass(frozen=True)
class SuiteClass:
    """A published test class.

    ``methods`` is the pattern of the methods that `make kafka-tests` runs, ``ci_methods`` of those
    that CI runs.
    """

    name: str
    timeout_s: float
    ci_methods: str | None
    methods: str = ".*"

    @property
    def simple_name(self) -> str:
        """Return the name without its package."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class SuiteList:
    """The content of `suites.toml`."""

    classes: tuple[SuiteClass, ...]
    exclusions: tuple[MethodPattern, ...]
    known_failures: tuple[MethodPattern, ...]


def read_list(path: Path = _HERE / "suites.toml") -> SuiteList:
    """Read the list of classes and exclusions."""
    content = tomllib.loads(path.read_text())
    return SuiteList(
        classes=tuple(
            SuiteClass(
                one["name"],
                one.get("timeout_s", 900),
                one.get("ci_methods"),
                one.get("methods", ".*"),
            )
            for one in content["classes"]
        ),
        exclusions=_patterns(content.get("not_applicable", ())),
        known_failures=_patterns(content.get("known_failures", ())),
    )


def _patterns(entries: Iterable[dict[str, str]]) -> tuple[MethodPattern, ...]:
    return tuple(
        MethodPattern(one["class"], re.compile(one["methods"]), one["reason"]) for one in entries
    )


def judge(
    tests: Iterable[FinishedTest], exclusions: Iterable[MethodPattern]
) -> dict[str, Outcomes]:
    """Return the outcome of each test, by the simple name of its class and by its name."""
    excluded = tuple(exclusions)
    judged: dict[str, Outcomes] = {}
    for test in tests:
        test_class, _, name = test.name.partition(" > ")
        judged.setdefault(test_class, {})[name] = _judge(test_class, name, test, excluded)
    return judged


def _judge(
    test_class: str, name: str, test: FinishedTest, exclusions: tuple[MethodPattern, ...]
) -> Outcome:
    if test.status == "SUCCESSFUL":
        return Outcome(PASSED)
    if aborted := _ABORTED.search(test.detail):
        return Outcome(NOT_APPLICABLE, aborted[1])
    for exclusion in exclusions:
        if exclusion.test_class == test_class and exclusion.methods.match(name):
            return Outcome(NOT_APPLICABLE, exclusion.reason)
    if test.status == "FAILED":
        return Outcome(FAILED, test.detail)
    return Outcome(NOT_APPLICABLE, test.detail or "skipped by the test itself")


def counts(outcomes: Mapping[str, Outcome]) -> Counter[str]:
    """Return the number of tests of each outcome."""
    return Counter(one.outcome for one in outcomes.values())


def report(judged: Mapping[str, Outcomes], taken_s: float) -> None:
    """Print the counts of each class, and its tests that failed."""
    for name, outcomes in judged.items():
        of = counts(outcomes)
        print(
            f"{name}: {of[PASSED]} passed, {of[FAILED]} failed, "
            f"{of[NOT_APPLICABLE]} not applicable, {taken_s:.0f} s",
            flush=True,
        )
        for test, outcome in outcomes.items():
            if outcome.outcome == FAILED:
                print(f"  failed: {test}: {outcome.reason}", flush=True)


def kept_path(backend: str) -> Path:
    """Return the path of the outcomes of the last recorded run."""
    return _HERE / "results" / f"{backend}.json"


def load(path: Path) -> dict[str, Outcomes]:
    """Read recorded outcomes; return none if the file is missing."""
    if not path.exists():
        return {}
    return {
        test_class: {name: Outcome(**one) for name, one in tests.items()}
        for test_class, tests in json.loads(path.read_text()).items()
    }


def save(path: Path, judged: Mapping[str, Outcomes]) -> None:
    """Write outcomes, sorted, so that a change of one test changes one line."""
    content = {
        test_class: {name: asdict(one) for name, one in sorted(judged[test_class].items())}
        for test_class in sorted(judged)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def regressions(now: Mapping[str, Outcomes], before: Mapping[str, Outcomes]) -> list[str]:
    """Return the tests that fail now and passed before, with the reasons."""
    return [
        f"{test_class} > {name}: {one.reason}"
        for test_class, tests in now.items()
        for name, one in tests.items()
        if one.outcome == FAILED
        and before.get(test_class, {}).get(name, Outcome(FAILED)).outcome == PASSED
    ]
