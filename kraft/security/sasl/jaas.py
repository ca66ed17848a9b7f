"""Parse a line of ``sasl.jaas.config``: login modules with their options.

::

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="admin-secret" user_admin="admin-secret" user_alice="x";

A word without quotes begins with a letter, ``_`` or ``$`` and continues with these, digits, ``.``
and ``-``; numbers need quotes. Quotes are single or double, with the escapes of Java's
StreamTokenizer.
Comments are ``/`` and ``//`` to the end of the line, and ``/* */``; a single ``/`` also skips the
character after it, even the end of the line.

No error holds the value of an option. Sources: Kafka's ``JaasConfig``, ``JaasContext``,
``PlainServerCallbackHandler`` (4.3.1), ``java.io.StreamTokenizer``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kraft.errors import InvalidConfigError

PLAIN_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

_USER_PREFIX = "user_"
_CONTROL_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
# Compiled at first use, as that takes 5 ms, and most nodes start without SASL.
_TOKEN = r"""(?P<skipped>[\0-\x20]+|/\*.*?(?:\*/|\Z)|//[^\r\n]*|/(?:.[^\r\n]*)?)
    |(?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?:(?P=quote)|(?=[\r\n])|\Z)
    |(?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z_$\xa0-\U0010ffff0-9.-]*)
    |(?P<sign>-?(?:[0-9]+\.?[0-9]*|\.[0-9]*)|.)"""
_ESCAPE = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _Token(NamedTuple):
    """A word; or a sign, such as ``;``, ``=`` and a number, which is neither a name nor a value."""

    text: str
    is_sign: bool = False


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry of a JAAS configuration."""

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The passwords of the options ``user_<name>``, which PLAIN accepts."""
        return {
            key[len(_USER_PREFIX) :]: value
            for key, value in self.options.items()
            if key.startswith(_USER_PREFIX)
        }


def parse_jaas(text: str) -> list[LoginModule]:
    """Return the login modules of a JAAS configuration, at least one.

    Raises InvalidConfigError for malformed text.
    """
    tokens = _tokens(text)
    modules = [_parse_module(token, tokens) for token in tokens]
    if not modules:
        raise _invalid("it names no login module")
    return modules


def parse_jaas_of_listener(text: str) -> LoginModule:
    """Return the only login module of a listener's ``sasl.jaas.config``.

    Raises InvalidConfigError for malformed text, and for several modules.
    """
    modules = parse_jaas(text)
    if len(modules) > 1:
        raise _invalid(f"it names {len(modules)} login modules, and only one is allowed")
    return modules[0]


def _tokens(text: str) -> Iterator[_Token]:
    token = re.compile(_TOKEN, re.VERBOSE | re.DOTALL)
    position = 0
    while position < len(text):
        found = token.match(text, position)
        assert found is not None, "every character begins a token"
        position = found.end()
        if found["sign"]:
            yield _Token(found["sign"], is_sign=True)
        elif found["word"]:
            yield _Token(found["word"])
        elif found["quote"]:
            yield _Token(_ESCAPE.sub(_unescape, found["quoted"]))


def _unescape(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 8))
    return _ESCAPED.get(escape[2], escape[2])


def _parse_module(name: _Token, tokens: Iterator[_Token]) -> LoginModule:
    if name.is_sign:
        raise _invalid(f"it has {name.text!r} in the place of a login module")
    flag = next(tokens, None)
    if flag is None or flag.text.upper() not in _CONTROL_FLAGS:
        raise _invalid(
            f"the login module {name.text!r:.200} has no control flag: write "
            f"{', '.join(_CONTROL_FLAGS).lower()} after it"
        )
    options: dict[str, str] = {}
    for key in tokens:
        if key == _Token(";", is_sign=True):
            return LoginModule(name.text, options)
        equals, value = next(tokens, None), next(tokens, None)
        if key.is_sign or equals != _Token("=", is_sign=True) or value is None or value.is_sign:
            raise _invalid(
                f"the option {key.text!r:.200} has no value: write {key.text:.200}=value"
            )
        options[key.text] = value.text
    raise _invalid("it does not end with a semicolon")


def _invalid(reason: str) -> InvalidConfigError:
    return InvalidConfigError(f"sasl.jaas.config: {reason}")
