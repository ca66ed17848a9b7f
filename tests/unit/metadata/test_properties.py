"""Java's properties format: entries are read back as written, with their line numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.metadata.properties import Property, parse_properties, property_line, read_properties


def test_entries_know_the_line_on_which_they_begin() -> None:
    text = "# a comment\n\na = 1\\\n  2\n! another\nb:3\na 4"
    assert list(read_properties(text)) == [
        Property("a", "12", 3),
        Property("b", "3", 6),
        Property("a", "4", 7),
    ]
    assert parse_properties(text) == {"a": "4", "b": "3"}


@given(st.text(max_size=20), st.text(max_size=20))
def test_written_properties_read_back(key: str, value: str) -> None:
    line = property_line(key, value)
    assert line.isascii()
    assert parse_properties(line) == {key: value}


@pytest.mark.parametrize("line", ["a=\\ud83d\\ude00", "a=\\uD83D\\uDE00"])
def test_two_escapes_make_one_character(line: str) -> None:
    assert parse_properties(line) == {"a": "\U0001f600"}
