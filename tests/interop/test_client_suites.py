"""Some of kafka-python's own integration tests at kraft's broker: they must pass.

`make client-tests` runs all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client_suites import launcher
from tests.client_suites.page import kept_path, read_suites
from tests.harness.missing_tools import skipped_if_missing
from tests.kafka_suites.outcomes import PASSED, judge, load, regressions

pytestmark = pytest.mark.interop
#: By file, in pytest's syntax of ``-k``: what sets up one broker, and takes seconds.
CHOSEN = {
    "test_admin_integration": "acls or configs or groups or records or quorum or topic",
    "test_producer_integration": "end_to_end or in_flight",
    "test_ssl_integration": "ssl",
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("file", CHOSEN)
def test_what_passed_of_kafka_pythons_own_tests_passes(file: str, tmp_path: Path) -> None:
    with skipped_if_missing():
        tests = launcher.run(file, "kraft", tmp_path, timeout_s=300, selected=CHOSEN[file])
    judged = judge(tests, read_suites().exclusions)
    recorded = load(kept_path("kraft"))
    assert not regressions(judged, recorded)
    # Detect a file that cannot be imported, or a selection that matches nothing.
    passed = [name for name, one in judged.get(file, {}).items() if one.outcome == PASSED]
    assert len(passed) > 1, (tmp_path / f"{file}.txt").read_text()[-3000:]


def test_every_test_file_of_the_source_distribution_is_listed() -> None:
    with skipped_if_missing():
        assert launcher.files([one.name for one in read_suites().classes]) == []
