"""The start of a node without typer reads its options as typer does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.cli import server
from kraft.cli.node_start import StartOptions, read_plain_arguments
from tests.harness.command_line import run_command

WORDS = (
    *("node.properties", "", "-", "--", "--help", "-h", "--overrid", "-o"),
    *("--override", "a=b", "--override=a=b=c", "--override=", "--override=-x"),
    *("--max-transaction-ms", "5000", "0", "-1", "007", "1_000", "٣", "--max-transaction-ms=8"),
    *("--log-format", "json", "text", "JSON", "--log-format=json", "--log-format=xml"),
    *("--until-stdin-closes", "--until-stdin-closes=1", "--no-until-stdin-closes"),
)
SOUND = st.one_of(
    st.just(("--until-stdin-closes",)),
    st.sampled_from((("--override", "a=b"), ("--override=c=d=e",), ("--override", "plain"))),
    st.sampled_from((("--max-transaction-ms", "70"), ("--max-transaction-ms=8",))),
    st.sampled_from((("--log-format", "json"), ("--log-format=text",))),
)


@pytest.fixture(scope="module")
def started() -> Iterator[list[StartOptions]]:
    """The options with which typer's command starts nodes."""
    options: list[StartOptions] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "start_node", options.append)
        yield options


def read_by_typer(started: list[StartOptions], arguments: list[str]) -> StartOptions | None:
    started.clear()
    run_command("server", "start", *arguments)
    return started[0] if started else None


@given(options=st.lists(SOUND, max_size=4), place=st.integers(0, 4))
def test_sound_options_need_no_typer_and_are_read_as_by_it(
    started: list[StartOptions], options: list[tuple[str, ...]], place: int
) -> None:
    parts = [*options[:place], ("node.properties",), *options[place:]]
    arguments = [word for part in parts for word in part]
    read = read_plain_arguments(arguments)
    assert read is not None
    assert read.config == Path("node.properties")
    assert read == read_by_typer(started, arguments)


@given(arguments=st.lists(st.sampled_from(WORDS), max_size=5))
def test_anything_else_is_left_to_typer_or_read_as_by_it(
    started: list[StartOptions], arguments: list[str]
) -> None:
    read = read_plain_arguments(arguments)
    assert read is None or read == read_by_typer(started, arguments)


def test_a_starting_node_imports_no_modules_of_settings_that_it_lacks() -> None:
    code = (
        "import sys, kraft.cli.configuration, kraft.server.process; "
        "print([m for m in ('typer', 'difflib', 'cryptography', 'kraft.network.tls_context', "
        "'kraft.server.config.key_stores', 'kraft.controller.configs.java_pattern', "
        "'kraft.server.observation.routes') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout.strip() == "[]", printed.stderr
