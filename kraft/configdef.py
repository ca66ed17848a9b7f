"""Kafka's ``ConfigDef``: the kinds of a configuration's values, their text forms, their checks.

Owns how a text becomes a value of a kind (``ConfigDef.parseType``) and the validators that Kafka's
definitions use (``ConfigDef.Range``, ``ValidString``, ``ValidList``,
``ThrottledReplicaListValidator``, ``ShareGroupAutoOffsetResetStrategy.Validator``). Which
configurations there are is said elsewhere: those of a node's properties by
``kraft.server.config.settings``, those that change at run time by ``kraft.controller``.

Invariant: whoever refuses raises ``RefusedError`` with the words for what is allowed instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

#: What Java's String.trim takes away.
BLANKS = "".join(map(chr, range(33)))
#: What separates the entries of a list.
COMMA = re.compile(r"\s*,\s*", re.ASCII)

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,9})[fFdD]?"
)
_NO_NUMBER = re.compile(r"[+-]?(?:NaN|Infinity)")
_REPLICA = re.compile(r"(?:[0-9]+:[0-9]+)?", re.ASCII)
# ISO 8601 as Java's Duration.parse reads it; what follows T must not be nothing.
_DURATION = re.compile(
    r"([+-]?)P(?:([+-]?[0-9]{1,30})D)?"
    r"(?:T(?=.)(?:([+-]?[0-9]{1,30})H)?(?:([+-]?[0-9]{1,30})M)?"
    r"(?:([+-]?[0-9]{1,30})(?:[.,]([0-9]{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_SECONDS = (86_400, 3_600, 60, 1)


class Kind(Enum):
    """A type of Kafka's ConfigDef, with the words that say what is allowed."""

    BOOLEAN = "true or false"
    INT = "an integer of 32 bits"
    LONG = "an integer of 64 bits"
    DOUBLE = "a number"
    STRING = "a text"
    LIST = "a list, separated by commas"


class RefusedError(ValueError):
    """A value that is not allowed; the text says what is."""


#: Looks at a value that was read; raises RefusedError.
Check = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Between:
    """A number within these bounds, or ``also`` (``ConfigDef.Range``)."""

    lowest: float
    highest: float | None = None
    also: float | None = None

    def __call__(self, value: float) -> None:
        if value == self.also:
            return
        # A value that is no number at all lies neither below nor above, as in Java.
        if value < self.lowest or (self.highest is not None and value > self.highest):
            bounds = (
                f"at least {self.lowest}"
                if self.highest is None
                else f"between {self.lowest} and {self.highest}"
            )
            raise RefusedError(bounds if self.also is None else f"{bounds}, or {self.also}")


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these texts (``ConfigDef.ValidString``)."""

    allowed: tuple[str, ...]

    def __call__(self, value: str) -> None:
        if value not in self.allowed:
            raise RefusedError(f"one of {', '.join(self.allowed)}")


@dataclass(frozen=True, slots=True)
class SetOfEntries:
    """A list without empty entries, which may be empty itself; what comes twice counts once.

    ``allowed`` are the entries that may be, where not all may (``ConfigDef.ValidList``).
    """

    allowed: tuple[str, ...] = ()

    def __call__(self, value: tuple[str, ...]) -> None:
        if "" in value:
            raise RefusedError("a list without empty entries")
        if self.allowed and not set(value) <= set(self.allowed):
            raise RefusedError(f"a list of {', '.join(self.allowed)}")


def check_throttled_replicas(value: tuple[str, ...]) -> None:
    """``*`` or a list of partition:broker (``ThrottledReplicaListValidator``)."""
    entries = [entry.strip(BLANKS) for entry in value]
    if "".join(entries) != "*" and not all(map(_REPLICA.fullmatch, entries)):
        raise RefusedError("* or a list of partition:broker, separated by commas")


def check_share_offset_reset(value: str) -> None:
    """Where a share group begins (``ShareGroupAutoOffsetResetStrategy``)."""
    if value in ("earliest", "latest"):
        return
    strategy, _, duration = value.partition(":")
    if strategy != "by_duration" or not _is_duration(duration):
        raise RefusedError(
            "earliest, latest, or by_duration:PnDTnHnMn.nS with a duration that is not negative"
        )


def read(kind: Kind, text: str) -> Any:
    """The value of a kind that ``text`` says, blanks around it aside. Raises RefusedError."""
    return _READ[kind](text.strip(BLANKS))


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise RefusedError(Kind.BOOLEAN.value)
    return text.lower() == "true"


def _integer(kind: Kind, bits: int) -> Callable[[str], int]:
    def read_integer(text: str) -> int:
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise RefusedError(kind.value)
        return value

    return read_integer


def _double(text: str) -> float:
    if _NO_NUMBER.fullmatch(text):
        return float(text)
    if found := _DECIMAL.fullmatch(text):
        return float(found[1])
    if found := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return float("-inf" if found[1][0] == "-" else "inf")
    raise RefusedError(Kind.DOUBLE.value)


def _list(text: str) -> tuple[str, ...]:
    return tuple(COMMA.split(text)) if text else ()


def _is_duration(text: str) -> bool:
    """Whether Java takes it, and it is not negative."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:5]):
        return False
    sign, *parts, fraction = found.groups()
    seconds = [int(part or 0) * unit for part, unit in zip(parts, _SECONDS, strict=True)]
    total = sum(seconds)
    if any(not -(1 << 63) <= one < 1 << 63 for one in (*seconds, total)):
        return False
    nanoseconds = int((fraction or "").ljust(9, "0")) * (-1 if (parts[3] or "")[:1] == "-" else 1)
    total = total * 10**9 + nanoseconds
    return total <= 0 if sign == "-" else total >= 0


_READ: dict[Kind, Callable[[str], Any]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer(Kind.INT, 32),
    Kind.LONG: _integer(Kind.LONG, 64),
    Kind.DOUBLE: _double,
    Kind.STRING: lambda text: text,
    Kind.LIST: _list,
}
