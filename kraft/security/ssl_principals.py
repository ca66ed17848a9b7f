r"""Map the distinguished name of a client's certificate to the name of its principal.

``ssl.principal.mapping.rules`` is a list of rules, separated by commas; the first matching rule
decides::

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT

A rule has a regular expression that the whole name must match, a replacement with ``$1`` for the
first group, and ``L`` or ``U`` for lower or upper case. DEFAULT keeps the name as it is.

A reference to a group that the expression lacks is literal text, as in Kafka where the rule has one
such reference. Kafka reports a malformed replacement when the first client connects; here the
configuration is rejected. Java's and Python's expressions differ in rare features; a rule that
Python cannot compile is rejected.

Sources: Kafka's ``SslPrincipalMapper``, ``java.util.regex.Matcher.appendReplacement``; KIP-371.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kraft.errors import InvalidConfigError, SaslAuthenticationError

SETTING = "ssl.principal.mapping.rules"

_RULE = "RULE:"
# One field of a rule: any text without a slash, or with a backslash before the slash.
_FIELD = re.compile(r"((?:\\.|[^\\/])*)/")
_SEPARATOR = re.compile(r"\s*(?:,\s*|$)")
_JAVA_NAMED_GROUP = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z])")
_REFERENCE_BY_NAME = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}")

# A literal text, or the number or name of a group.
_Part = tuple[str, int | str | None]


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: tuple[_Part, ...]
    change_case: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        # Every match is replaced, as by Java's replaceAll: `.*` also matches the empty end.
        return self.change_case(self.pattern.sub(self._expand, name))

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(
            text if group is None else match[group] or "" for text, group in self.replacement
        )


class SslPrincipalMapper:
    """The rules of ``ssl.principal.mapping.rules``.

    Raises InvalidConfigError for a malformed rule.
    """

    def __init__(self, rules: str = "DEFAULT") -> None:
        # None is the rule DEFAULT.
        self._rules = list(_parse_rules(rules.strip()))

    def name(self, distinguished_name: str) -> str:
        """Return the principal's name for a certificate's name in the form of RFC 2253.

        Raises SaslAuthenticationError if no rule matches.
        """
        for rule in self._rules:
            found = distinguished_name if rule is None else rule.apply(distinguished_name)
            if found is not None:
                return found
        raise SaslAuthenticationError(
            f"no rule of {SETTING} matches the certificate of {distinguished_name!r:.200}"
        )


def _parse_rules(text: str) -> Iterator[_Rule | None]:
    position = 0
    while position < len(text):
        if text.startswith(_RULE, position):
            rule, position = _parse_rule(text, position + len(_RULE))
            yield rule
        elif text.startswith("DEFAULT", position):
            position += len("DEFAULT")
            yield None
        separator = _SEPARATOR.match(text, position)
        if separator is None:
            raise _invalid(
                f"{text[position:]!r:.80} is neither DEFAULT nor RULE:pattern/replacement/"
            )
        position = separator.end()


def _parse_rule(text: str, position: int) -> tuple[_Rule, int]:
    pattern = _FIELD.match(text, position)
    replacement = pattern and _FIELD.match(text, pattern.end())
    if not pattern or not replacement:
        raise _invalid(f"{text[position:]!r:.80} is not pattern/replacement/ with L, U or nothing")
    position = replacement.end()
    change_case: Callable[[str], str] = str
    if text[position : position + 1] in ("L", "U"):
        change_case = str.lower if text[position] == "L" else str.upper
        position += 1
    try:
        compiled = re.compile(_JAVA_NAMED_GROUP.sub("(?P<", pattern[1]))
    except re.error as error:
        raise _invalid(f"the pattern {pattern[1]!r:.80}: {error}") from None
    return _Rule(
        compiled, tuple(_parse_replacement(replacement[1], compiled)), change_case
    ), position


def _parse_replacement(text: str, pattern: re.Pattern[str]) -> Iterator[_Part]:
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\":
            yield text[position], None
            position += 1
        elif character != "$":
            yield character, None
        elif text[position : position + 1].isdecimal() and text[position].isascii():
            number, end = _group_number(text, position, pattern.groups)
            if number is None and not pattern.groups:
                raise _invalid(f"the replacement {text!r:.80} names a group, the pattern has none")
            yield ("$" + text[position:end], None) if number is None else ("", number)
            position = end
        else:
            named = _REFERENCE_BY_NAME.match(text, position)
            if named is None or named[1] not in pattern.groupindex:
                raise _invalid(f"a $ of the replacement {text!r:.80} is not before a group")
            yield "", named[1]
            position = named.end()


def _group_number(text: str, position: int, groups: int) -> tuple[int | None, int]:
    """Return the group of a reference, None if there is none, and the end of its digits.

    Reads further digits only as long as they form the number of an existing group.
    """
    number = int(text[position])
    end = position + 1
    if number > groups:
        return None, end
    while text[end : end + 1].isdecimal() and text[end].isascii():
        longer = number * 10 + int(text[end])
        if longer > groups:
            break
        number, end = longer, end + 1
    return number, end


def _invalid(reason: str) -> InvalidConfigError:
    return InvalidConfigError(f"{SETTING}: {reason}")
