"""Every example in the README and the pages of docs/ prints what the page shows."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from kraft.cli.commands import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Its examples share one Spark session: tests/unit/spark/test_page.py.
SPARK = ROOT / "docs" / "spark.md"


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """Return each ``$ kraft …`` of a console block with the output below it."""
    parts = [part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, printed.rstrip()) for command, _, printed in parts]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != SPARK and "\n>>> " in page.read_text(encoding="utf-8")],
    ids=name,
)
def test_python_examples_print_what_is_shown(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0
    assert tried > 0


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_python_example_is_run(page: Path) -> None:
    """A block without a prompt would be skipped by doctest."""
    for block in blocks(page, "python"):
        assert block.startswith(">>> ")
        assert block.endswith("\n\n"), "doctest reads the output up to an empty line"
    assert not blocks(page, "py(?:con|3)?")


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{name(page)}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, "console"))
    ],
)
def test_commands_print_what_is_shown(block: str, tmp_path: Path) -> None:
    """An ellipsis stands for any text. /tmp is a fresh directory for each block."""
    assert commands(block)
    for command, printed in commands(block.replace("/tmp/", f"{tmp_path}/")):
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


def shell_commands(page: Path) -> list[list[str]]:
    """Return the words of each ``kraft`` command in the shell blocks of a page."""
    found = []
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            split = shlex.split(line, comments=True)
            for stop in ("|", "&", "&&", ">", ";"):
                if stop in split:
                    split = split[: split.index(stop)]
            if split and Path(split[0]).name == "kraft":
                found.append(split[1:])
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if shell_commands(page)], ids=name)
def test_commands_in_shell_blocks_parse(page: Path) -> None:
    """They need a cluster, so that only their options are checked here."""
    for arguments in shell_commands(page):
        command, rest = get_command(app), arguments
        if rest == ["--version"]:
            continue
        while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
            subcommand = command.get_command(Context(command), rest[0])
            assert subcommand is not None, arguments
            command, rest = subcommand, rest[1:]
        command.make_context(command.name, rest)
