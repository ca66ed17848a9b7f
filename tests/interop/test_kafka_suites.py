"""Some of Kafka's own integration tests, with kraft as the controller: they must pass.

The tests are chosen from those that passed in the recorded run; `make kafka-tests` runs all.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kafka_suites import launcher
from tests.kafka_suites.outcomes import (
    PASSED,
    judge,
    kept_path,
    load,
    read_list,
    regressions,
)

pytestmark = pytest.mark.interop
TIMEOUT_S = 500


@pytest.mark.timeout(600)
def test_what_passed_of_kafkas_own_tests_passes(tmp_path: Path) -> None:
    suite_list = read_list()
    chosen = [one for one in suite_list.classes if one.ci_methods]
    methods = "|".join(f"{re.escape(one.name)}#({one.ci_methods})" for one in chosen)
    tests = launcher.run(
        [*(f"--select-class={one.name}" for one in chosen), f"--include-methodname={methods}"],
        "kraft",
        tmp_path,
        timeout_s=TIMEOUT_S,
    )
    judged = judge(tests, suite_list.exclusions)
    recorded = load(kept_path("kraft"))
    assert not regressions(judged, recorded)
    # Detect a class that no longer starts, or a pattern that matches nothing.
    for one in chosen:
        passed = {
            name
            for name, outcome in recorded[one.simple_name].items()
            if outcome.outcome == PASSED and re.match(f"({one.ci_methods})\\b", name)
        }
        assert passed
        assert passed <= judged.get(one.simple_name, {}).keys()
