"""How one setting of a Kafka configuration is said and read: its kind, default and range.

Owns what a setting is and the words in which a value is refused, with where it stands. The text
forms are those of ``kraft.configdef``. A setting is a field of a dataclass:
``controller_quorum_voters`` is ``controller.quorum.voters``.
"""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any, NamedTuple

from kraft.configdef import BLANKS, COMMA, Kind, RefusedError, read
from kraft.errors import InvalidConfigError


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
        value: Any = read(self.kind, text)
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
        entries: tuple[str, ...] = read(Kind.LIST, text)
        return entries

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
    entries = COMMA.split(text)
    while entries and not entries[-1]:
        del entries[-1]
    for entry in entries:
        key, colon, value = entry.rpartition(":")
        if not colon:
            raise RefusedError("a list of name:value, separated by commas")
        pairs[key.strip(BLANKS)] = value.strip(BLANKS)
    return pairs
