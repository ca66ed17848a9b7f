"""How one setting of a Kafka configuration is said and read: its kind, default and range.

Owns the text forms of Kafka's ``ConfigDef`` types (``ConfigDef.parseType``) and its validators
(``ConfigDef.Range``, ``ConfigDef.ValidList``), and the words in which a value is refused. A setting
is a field of a dataclass: ``controller_quorum_voters`` is ``controller.quorum.voters``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, field
from enum import Enum
from typing import Any, NamedTuple

from kraft.errors import InvalidConfigError

# What Java's String.trim takes away.
_BLANKS = "".join(map(chr, range(33)))
_COMMA = re.compile(r"\s*,\s*", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


class Kind(Enum):
    """A type of Kafka's ConfigDef, with the words that say what is allowed."""

    BOOLEAN = "true or false"
    INT = "an integer of 32 bits"
    LONG = "an integer of 64 bits"
    STRING = "a text"
    LIST = "a list, separated by commas"


class RefusedError(ValueError):
    """A value that is not allowed; the text says what is."""


class Setting(NamedTuple):
    """One setting; ``default`` is MISSING where a value must be given.

    ``lowest`` bounds a number. A list with ``is_set`` has entries, none of them empty, and each
    counts once; ``allowed`` are the entries or the values that may be. A setting without
    ``has_effect`` is checked as Kafka does, and nothing of the node heeds it.
    """

    name: str
    kind: Kind
    default: Any
    lowest: int | None = None
    is_set: bool = False
    allowed: tuple[str, ...] = ()
    has_effect: bool = True

    def read(self, text: str) -> Any:
        """The value that ``text`` says. Raises RefusedError."""
        trimmed = text.strip(_BLANKS)
        value: Any = _READ[self.kind](trimmed)
        if self.lowest is not None and value < self.lowest:
            raise RefusedError(f"at least {self.lowest}")
        if self.is_set:
            value = tuple(dict.fromkeys(value))
            self._check_set(value)
        elif self.allowed and value not in self.allowed:
            raise RefusedError(f"one of {', '.join(self.allowed)}")
        return value

    def entries(self, text: str) -> tuple[str, ...]:
        """The entries of a list as they are written, those that come again included."""
        return _list(text.strip(_BLANKS))

    def _check_set(self, values: tuple[str, ...]) -> None:
        of = f" of {', '.join(self.allowed)}" if self.allowed else ""
        if not values:
            raise RefusedError(f"at least one{of}")
        if "" in values:
            raise RefusedError("a list without empty entries")
        if self.allowed and not set(values) <= set(self.allowed):
            raise RefusedError(f"one or more{of}")


def setting(
    kind: Kind,
    default: Any = MISSING,
    *,
    lowest: int | None = None,
    is_set: bool = False,
    allowed: tuple[str, ...] = (),
    has_effect: bool = True,
) -> Any:
    """A field of a dataclass that is a setting; its name is that of the field, with dots."""
    rule = Setting("", kind, default, lowest, is_set, allowed, has_effect)
    return field(default=default, metadata={"setting": rule})


def read_setting(rule: Setting, text: str, where: str) -> Any:
    """The value, or an InvalidConfigError that names ``where`` it stands and what is allowed."""
    try:
        return rule.read(text)
    except RefusedError as refused:
        raise InvalidConfigError(
            f"{where}: {rule.name} is {text!r:.80}, allowed is {refused}"
        ) from None


def read_csv_map(text: str) -> dict[str, str]:
    """``key:value,…``, each parted at its last colon (Kafka's ``Csv``). Raises RefusedError."""
    pairs: dict[str, str] = {}
    entries = _COMMA.split(text)
    while entries and not entries[-1]:
        del entries[-1]
    for entry in entries:
        key, colon, value = entry.rpartition(":")
        if not colon:
            raise RefusedError("a list of name:value, separated by commas")
        pairs[key.strip(_BLANKS)] = value.strip(_BLANKS)
    return pairs


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise RefusedError(Kind.BOOLEAN.value)
    return text.lower() == "true"


def _integer(kind: Kind, bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise RefusedError(kind.value)
        return value

    return read


def _list(text: str) -> tuple[str, ...]:
    return tuple(_COMMA.split(text)) if text else ()


_READ: dict[Kind, Callable[[str], Any]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer(Kind.INT, 32),
    Kind.LONG: _integer(Kind.LONG, 64),
    Kind.STRING: lambda text: text,
    Kind.LIST: _list,
}
