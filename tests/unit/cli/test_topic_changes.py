"""``kraft topics create``, ``alter``, ``delete`` and ``list``: arguments and their errors.

`tests/unit/server/test_topic_commands.py` runs them on a quorum.
"""

from __future__ import annotations

from typing import Any

import pytest
import typer

from kraft.cli.exit_codes import USAGE
from kraft.cli.topic_changes import read_assignment, read_settings, requests_of, topic_names
from tests.unit.cli.conftest import CONTROLLER, Run


def test_names_are_given_or_made_of_a_pattern() -> None:
    assert topic_names(["a", "b"], None, None) == ["a", "b"]
    assert topic_names(None, 3, "t-{:02}") == ["t-00", "t-01", "t-02"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None, None), "either --topic, or --count"),
        ((["a"], 2, "t{}"), "either --topic, or --count"),
        ((["a"], None, "t{}"), "--name-pattern needs --count"),
        ((None, 2, None), "--count needs --name-pattern"),
        ((None, 2, "t"), "has no {}"),
        ((None, 2, "t{x}"), "--name-pattern 't{x}'"),
        ((None, 2, "t{:z}"), "--name-pattern 't{:z}'"),
        ((["a", "a"], None, None), "repeats a topic"),
    ],
)
def test_contradictory_names_are_a_usage_error(arguments: Any, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        topic_names(*arguments)


def test_assignments_and_settings_are_read() -> None:
    found = read_assignment("1:2,2:3 , 3")
    assert found == [[1, 2], [2, 3], [3]]
    assert read_settings(["a=b", "c = d=e", "f="]) == [("a", "b"), ("c", "d=e"), ("f", "")]
    for wrong in ("", "1:,2", "1;2", "-1", "99999999999"):
        with pytest.raises(typer.BadParameter, match="not broker ids"):
            read_assignment(wrong)
    for wrong in ("a", "=b"):
        with pytest.raises(typer.BadParameter, match="K=V"):
            read_settings([wrong])


def test_requests_are_bounded_by_topics_and_records() -> None:
    names = list(range(250))
    assert [len(each) for each in requests_of(names, 1)] == [100, 100, 50]
    assert [len(each) for each in requests_of(names, 50)] == [100, 100, 50]
    assert {len(each) for each in requests_of(names, 1000)} == {5}
    assert {len(each) for each in requests_of(names, 1_000_000)} == {1}
    assert [name for run in requests_of(names, 33) for name in run] == names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list",), "either --from or --bootstrap-controller"),
        (("describe", "--from", CONTROLLER, "--bootstrap-controller", "a:1"), "either --from"),
        (("list", "--bootstrap-controller", "a:1", "--at", 3), "--at needs --from"),
        (("list", "--bootstrap-controller", "a"), "host:port"),
        (("create", "--topic", "a"), "--bootstrap-controller"),
        (
            ("create", "--topic", "a", "--replica-assignment", "1", "--partitions", 2,
             "--bootstrap-controller", "a:1"),
            "neither --partitions",
        ),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_a_usage_error(
    kraft: Run, words: tuple[object, ...], message: str
) -> None:
    ran = kraft("topics", *words)
    assert ran.code == USAGE
    # The message is wrapped to the terminal's width.
    assert message in " ".join(ran.err.replace("│", " ").split())


def test_names_of_a_directory_are_listed(kraft: Run) -> None:
    names = kraft("topics", "list", "--from", CONTROLLER).lines
    assert names == sorted(names)
    assert {"payments", "clicks", "__transaction_state"} <= set(names)
    others = kraft("topics", "list", "--from", CONTROLLER, "--exclude-internal", "--json").json
    assert set(names) - set(others) == {name for name in names if name.startswith("__")}
