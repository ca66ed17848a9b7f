"""Groups of options: a command gets a dataclass, its user sees single options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from kraft.cli.option_groups import takes_groups
from kraft.cli.options import JsonOption


@dataclass(frozen=True)
class Place:
    city: Annotated[str, typer.Option("--city", metavar="NAME", help="The city.")]
    streets: Annotated[list[str] | None, typer.Option("--street")] = None


app = typer.Typer()
given: list[tuple[Place, int, bool]] = []


@app.command()
@takes_groups
def visit(place: Place, count: int = 1, as_json: JsonOption = False) -> None:
    """Visit a place."""
    given.append((place, count, as_json))


def test_a_command_gets_its_group() -> None:
    given.clear()
    words = ["--city", "Bern", "--count", "2", "--street", "a", "--street", "b", "--json"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, ["--city", "Bern"]).exit_code == 0
    assert given == [
        (Place("Bern", ["a", "b"]), 2, True),
        (Place("Bern", None), 1, False),
    ]


def test_the_help_has_the_options_of_the_group_in_place() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100", "TERM": "dumb"}).stdout
    places = [shown.index(option) for option in ("Visit a place.", "--city", "--street", "--count")]
    assert places == sorted(places)
    assert "The city." in shown


def test_a_required_option_of_a_group_is_required() -> None:
    result = CliRunner().invoke(app, ["--count", "2"])
    assert result.exit_code == 2
    assert "--city" in result.stderr
