"""Validation of regular expressions in Java's syntax."""

from __future__ import annotations

import pytest

from kraft.controller.configs.java_pattern import is_java_pattern


@pytest.mark.parametrize(
    "text",
    [
        *("", "Java", "11.1.*", "a|b", "|", "(a|b)+?", "(?:a)(?=b)(?!c)(?<=d)(?<!e)(?>f)"),
        *("(?<x>a)\\k<x>", "(?i)a", "(?i-s:a)", "a{2}", "a{2,}", "a{2,3}+", "a{2}{3}", "^*$"),
        *("[a-z]", "[^]a]", "[]a]", "[a-z&&[^b]]", "[\\d-x]", "[a-]", "]", "}", "\\Qa(\\E", "\\Q("),
        *("\\p{Alpha}", "\\pL", "\\P{Lu}", "\\p{IsLatin}", "\\x41", "\\x{41}", "\\u0041", "\\07"),
        *("\\.", "\\b", "\\R", "\\1", "(a)*"),
    ],
)
def test_valid_patterns(text: str) -> None:
    assert is_java_pattern(text)


@pytest.mark.parametrize(
    "text",
    [
        *("*", "a**", "(*a)", "a|*", "(a", "a)", "[a", "[z-a]", "a{", "a{b}", "a{3,2}", "(?"),
        *("(?<x>a)(?<x>b)", "\\k<x>", "(?z)", "\\", "\\y", "\\p{Alphabet}", "\\p", "\\x4", "\\08"),
        *("[", "[]", "[^]", "[\\b]", "(?i)*", "(" * 200 + ")" * 200),
    ],
)
def test_invalid_patterns(text: str) -> None:
    assert not is_java_pattern(text)
