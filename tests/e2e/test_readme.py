"""What the README and the reference show is what happens when it is typed."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "library.md",
    ROOT / "docs" / "controller.md",
    ROOT / "docs" / "cli.md",
]


def commands(page: Path) -> list[tuple[str, str]]:
    """Each ``$ kraft …`` in a console block, and what the page prints below it."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    found = []
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed.rstrip()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_library_answers_as_shown(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0
    assert tried > 0 or page.name == "cli.md"


@pytest.mark.parametrize(
    ("command", "printed"),
    [pair for page in PAGES for pair in commands(page)],
    ids=lambda text: text[:60],
)
def test_commands_print_what_is_shown(command: str, printed: str, tmp_path: Path) -> None:
    """An ellipsis stands for anything. /tmp is a fresh directory in each run."""
    command, printed = (text.replace("/tmp/", f"{tmp_path}/") for text in (command, printed))
    program, *arguments = command.split()
    assert program == "kraft"
    ran = subprocess.run(
        [sys.executable, "-c", "from kraft.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ran.stderr == ""
    pattern = re.escape(printed).replace("…", ".*")
    assert re.fullmatch(pattern, ran.stdout.rstrip(), re.DOTALL), ran.stdout
