"""Read pytest's report of a client's own tests (`tests.client_suites`)."""

from __future__ import annotations

from tests.client_suites import launcher, page

REPORT = """\
<testsuites><testsuite name="pytest">
<testcase classname="test.integration.test_any_integration" name="test_one[PLAIN]" time="1" />
<testcase classname="test.integration.test_any_integration.TestClass" name="test_two" time="1">
<failure message="AssertionError: assert 1 == 2&#10;more">text</failure></testcase>
<testcase classname="test.integration.test_any_integration" name="test_three" time="1">
<skipped type="pytest.skip" message="needs an old release">text</skipped></testcase>
<testcase classname="test.integration.test_any_integration" name="test_four" time="1" />
<testcase classname="test.integration.test_any_integration" name="test_four" time="1">
<error message="failed on teardown">text</error></testcase>
</testsuite></testsuites>
"""


def test_a_report_has_each_test_once_with_its_status() -> None:
    tests = launcher.read_report(REPORT)

    assert [(one.name, one.status, one.detail) for one in tests] == [
        ("test_any_integration > test_one[PLAIN]", "SUCCESSFUL", ""),
        ("test_any_integration > TestClass.test_two", "FAILED", "AssertionError: assert 1 == 2"),
        ("test_any_integration > test_three", "ABORTED", "needs an old release"),
        ("test_any_integration > test_four", "FAILED", "failed on teardown"),
    ]


def test_each_exclusion_names_a_listed_file_and_a_reason() -> None:
    suites = page.read_suites()
    names = [one.name for one in suites.classes]

    assert len(names) == len(set(names))
    for pattern in suites.exclusions:
        assert pattern.test_class in names
        assert pattern.reason
