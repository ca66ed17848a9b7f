"""Kafka's ``ConfigDef``: types of configuration values, their text forms and their validators.

Parses texts as ``ConfigDef.parseType`` does, and holds the validators that Kafka's definitions use
(``ConfigDef.Range``, ``ValidString``, ``ValidList``, ``ThrottledReplicaListValidator``,
``ShareGroupAutoOffsetResetStrategy.Validator``). The definitions themselves are elsewhere:
``kraft.server.config.settings`` has those of a node's properties, ``kraft.controller`` those that
change at run time.

Invariant: a rejected value raises ``ConfigValueError``, whose text says which values are allowed,
and whose ``sentence`` ends Kafka's message "Invalid value … for configuration …: ".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

#: The characters that Java's String.trim removes.
BLANKS = "".join(map(chr, range(33)))
#: The separator of list entries.
COMMA = re.compile(r"\s*,\s*", re.ASCII)

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL = r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?)[fFdD]?"
_HEXADECIMAL = (
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,9})[fFdD]?"
)
_NO_NUMBER = r"[+-]?(?:NaN|Infinity)"
_REPLICA = re.compile(r"(?:[0-9]+:[0-9]+)?", re.ASCII)
# ISO 8601 as Java's Duration.parse reads it; at least one part must follow the T.
_DURATION = (
    r"([+-]?)P(?:([+-]?[0-9]{1,30})D)?"
    r"(?:T(?=.)(?:([+-]?[0-9]{1,30})H)?(?:([+-]?[0-9]{1,30})M)?"
    r"(?:([+-]?[0-9]{1,30})(?:[.,]([0-9]{0,9}))?S)?)?"
)
_SECONDS = (86_400, 3_600, 60, 1)
_INFINITY = float("inf")


class ConfigType(Enum):
    """A type of Kafka's ConfigDef; the value describes the allowed texts."""

    BOOLEAN = "true or false"
    INT = "an integer of 32 bits"
    LONG = "an integer of 64 bits"
    SHORT = "an integer of 16 bits"
    DOUBLE = "a number"
    STRING = "a text"
    LIST = "a list, separated by commas"
    CLASS = "the name of a class"
    PASSWORD = "a secret"


class ConfigValueError(ValueError):
    """A value is not allowed; the message describes the allowed ones.

    ``sentence`` is what Kafka says of them, or the message where Kafka says less.
    """

    def __init__(self, allowed: str, sentence: str | None = None) -> None:
        super().__init__(allowed)
        self.sentence = sentence or f"expected {allowed}"

    def message(self, name: str, text: str) -> str:
        """Return Kafka's message for the configuration ``name`` with the value ``text``."""
        shown = text if text and text.isprintable() else repr(text)
        return f"Invalid value {shown:.80} for configuration {name}: {self.sentence}"


#: Checks a parsed value; raises ConfigValueError.
Validator = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Between:
    """A check that a number is within these bounds, or equals ``also`` (``ConfigDef.Range``)."""

    lowest: float
    highest: float | None = None
    also: float | None = None

    def __call__(self, value: float) -> None:
        if value == self.also:
            return
        # NaN is neither below nor above the bounds, as in Java.
        if value < self.lowest or (self.highest is not None and value > self.highest):
            bounds = (
                f"at least {self.lowest}"
                if self.highest is None
                else f"between {self.lowest} and {self.highest}"
            )
            if self.also is not None:
                raise ConfigValueError(f"{bounds}, or {self.also}")
            sentence = (
                f"Value must be at least {self.lowest}"
                if value < self.lowest
                else f"Value must be no more than {self.highest}"
            )
            raise ConfigValueError(bounds, sentence)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A check that a text is one of ``allowed`` (``ConfigDef.ValidString``)."""

    allowed: tuple[str, ...]

    def __call__(self, value: str) -> None:
        if value not in self.allowed:
            allowed = ", ".join(self.allowed)
            raise ConfigValueError(f"one of {allowed}", f"String must be one of: {allowed}")


@dataclass(frozen=True, slots=True)
class SetOfEntries:
    """A check that a list has no empty entry; the list itself may be empty (``ValidList``).

    Duplicates count once. ``allowed`` are the allowed entries; empty: all.
    """

    allowed: tuple[str, ...] = ()

    def __call__(self, value: tuple[str, ...]) -> None:
        if "" in value:
            raise ConfigValueError("a list without empty entries")
        if self.allowed and not set(value) <= set(self.allowed):
            raise ConfigValueError(f"a list of {', '.join(self.allowed)}")


def check_throttled_replicas(value: tuple[str, ...]) -> None:
    """Allow ``*`` or a list of partition:broker (``ThrottledReplicaListValidator``)."""
    entries = [entry.strip(BLANKS) for entry in value]
    if "".join(entries) != "*" and not all(map(_REPLICA.fullmatch, entries)):
        raise ConfigValueError("* or a list of partition:broker, separated by commas")


def check_share_offset_reset(value: str) -> None:
    """Check where a share group starts reading (``ShareGroupAutoOffsetResetStrategy``)."""
    if value in ("earliest", "latest"):
        return
    strategy, _, duration = value.partition(":")
    if strategy != "by_duration" or not _is_duration(duration):
        raise ConfigValueError(
            "earliest, latest, or by_duration:PnDTnHnMn.nS with a duration that is not negative"
        )


def read(kind: ConfigType, text: str) -> Any:
    """Parse ``text``, without surrounding blanks, as ``kind``. Raises ConfigValueError."""
    return _READ[kind](text.strip(BLANKS))


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigValueError(ConfigType.BOOLEAN.value)
    return text.lower() == "true"


def _integer(kind: ConfigType, bits: int) -> Callable[[str], int]:
    def read_integer(text: str) -> int:
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise ConfigValueError(kind.value)
        return value

    return read_integer


def _double(text: str) -> float:
    if re.fullmatch(_NO_NUMBER, text):
        return float(text)
    if found := re.fullmatch(_DECIMAL, text):
        return float(found[1])
    if found := re.fullmatch(_HEXADECIMAL, text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return float("-inf" if found[1][0] == "-" else "inf")
    raise ConfigValueError(ConfigType.DOUBLE.value)


def _list(text: str) -> tuple[str, ...]:
    return tuple(COMMA.split(text)) if text else ()


def _is_duration(text: str) -> bool:
    """Return whether Java's Duration.parse accepts ``text`` and it is not negative."""
    found = re.fullmatch(_DURATION, text, re.ASCII | re.IGNORECASE)
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


_READ: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.INT: _integer(ConfigType.INT, 32),
    ConfigType.LONG: _integer(ConfigType.LONG, 64),
    ConfigType.SHORT: _integer(ConfigType.SHORT, 16),
    ConfigType.DOUBLE: _double,
    ConfigType.STRING: lambda text: text,
    ConfigType.LIST: _list,
    ConfigType.CLASS: lambda text: text,
    ConfigType.PASSWORD: lambda text: text,
}


def text_of(value: Any) -> str | None:
    """Return the text of a parsed value, as Java writes it (``ConfigDef.convertToString``)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return double_text(value) if isinstance(value, float) else str(value)


def double_text(value: float) -> str:
    """Return Java's ``Double.toString``, which has an exponent below 0.001 and from 10**7 on."""
    if value != value or value in (_INFINITY, -_INFINITY):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    # Imported here: few values need it, and every start of kraft would pay for it.
    from decimal import Decimal

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, digits)
    mantissa = f"{first}.{''.join(rest) or '0'}"
    return f"{'-' if sign else ''}{mantissa}E{exponent + len(rest)}"
