"""Run every script of this folder."""

from pathlib import Path

import pytest

from tests.scenarios.script import Scenario, ScenarioFailedError

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path) -> None:
    Scenario(path, tmp_path).run()


def run(text: str, tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_text(text)
    Scenario(path, tmp_path).run()


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("see 1 is Leader epoch 7", "not seen"),
        ("never 1 is Leader *", "was not to be"),
        ("expect 1 epoch 7", "1 epoch is 1, not 7"),
        ("expect 1 is Follower", "is is Leader"),
        ("run until 1 commits 99", "20 seconds went by"),
        ("dance", "no such command"),
        ("clean 1 1 9-9", "a node died"),
    ],
)
def test_a_failed_expectation_prints_the_trace(lines: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioFailedError, match=why) as failure:
        run(f"voters 1\nstart\nrun 100\n{lines}\n", tmp_path)
    assert "1 is Leader epoch 1" in str(failure.value)
