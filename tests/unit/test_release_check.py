"""The rules of a release: version, changelog, metadata."""

import pytest

from tests.package.release import changelog_problems, version_problems
from tests.package.run import ROOT

RELEASED = "# Changelog\n\n## 1.2.0 (2026-11-22)\n\nText.\n\n## 1.1.3 (2026-10-01)\n"


@pytest.mark.parametrize(
    ("changelog", "version", "problem"),
    [
        (RELEASED, "1.2.0", None),
        (RELEASED, "1.3.0", "begins with 1.2.0, the version is 1.3.0"),
        (RELEASED.replace("2026-11-22", "unreleased"), "1.2.0", "marked 'unreleased'"),
        (RELEASED.replace("1.1.3", "1.2.1"), "1.2.0", "not in descending order"),
        ("# Changelog\n", "1.2.0", "has no entry"),
    ],
)
def test_the_changelogs_top_entry_is_the_released_version(
    changelog: str, version: str, problem: str | None
) -> None:
    problems = list(changelog_problems(changelog, version))
    assert len(problems) == (problem is not None)
    assert problem is None or problem in problems[0]


def test_the_version_is_the_same_in_all_files() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = [
        line.split('"')[1] for line in project.splitlines() if line.startswith("version = ")
    ]
    assert list(version_problems(version)) == []
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = [each for each in changelog_problems(changelog, version) if "marked" not in each]
    assert unreleased == []
