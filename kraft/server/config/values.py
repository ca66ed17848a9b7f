"""One setting of a Kafka configuration: its kind, default and range, and how to read it.

Responsible for reading a value and for the error that names its place and the allowed values. The
text forms are those of ``kraft.configdef``. A setting is a field of a dataclass:
``controller_quorum_voters`` is ``controller.quorum.voters``.
"""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any, NamedTuple

from kraft.configdef import BLANKS, COMMA, ConfigType, ConfigValueError, read
from kraft.errors import InvalidConfigError


class Setting(NamedTuple):
    """One setting; ``default`` is MISSING where a value must be given.

    ``lowest`` bounds a number. A list with ``is_set`` has at least one entry unless
    ``may_be_empty``, no empty entry, and each entry counts once. ``allowed`` are the allowed values
    or entries. A setting without ``has_effect`` is checked as in Kafka, and the node does not use
    it.
    """

    name: str
    kind: ConfigType
    default: Any
    lowest: int | None = None
    is_set: bool = False
    allowed: tuple[str, ...] = ()
    has_effect: bool = True
    may_be_empty: bool = False

    def read(self, text: str) -> Any:
        """Return the value of ``text``. Raises ConfigValueError."""
        value: Any = read(self.kind, text)
        if self.lowest is not None and value < self.lowest:
            raise ConfigValueError(f"at least {self.lowest}")
        if self.is_set:
            value = tuple(dict.fromkeys(value))
            self._check_set(value)
        elif self.allowed and value not in self.allowed:
            raise ConfigValueError(f"one of {', '.join(self.allowed)}")
        return value

    def entries(self, text: str) -> tuple[str, ...]:
        """Return the entries of a list as written, with repeated ones."""
        entries: tuple[str, ...] = read(ConfigType.LIST, text)
        return entries

    def _check_set(self, values: tuple[str, ...]) -> None:
        of = f" of {', '.join(self.allowed)}" if self.allowed else ""
        if not values and not self.may_be_empty:
            raise ConfigValueError(f"at least one{of}")
        if "" in values:
            raise ConfigValueError("a list without empty entries")
        if self.allowed and not set(values) <= set(self.allowed):
            raise ConfigValueError(f"one or more{of}")


def setting(
    kind: ConfigType,
    default: Any = MISSING,
    *,
    lowest: int | None = None,
    is_set: bool = False,
    allowed: tuple[str, ...] = (),
    has_effect: bool = True,
    may_be_empty: bool = False,
) -> Any:
    """Return a dataclass field that is a setting; the setting's name has dots for underscores."""
    rule = Setting("", kind, default, lowest, is_set, allowed, has_effect, may_be_empty)
    return field(default=default, metadata={"setting": rule})


def read_setting(rule: Setting, text: str, where: str) -> Any:
    """Return the value. Raises InvalidConfigError with ``where`` and the allowed values."""
    try:
        return rule.read(text)
    except ConfigValueError as refused:
        raise InvalidConfigError(
            f"{where}: {rule.name} is {text!r:.80}; expected {refused}"
        ) from None


def read_csv_map(text: str) -> dict[str, str]:
    """Parse ``key:value,…``, split at the last colon (Kafka's ``Csv``). Raises ConfigValueError."""
    pairs: dict[str, str] = {}
    entries = COMMA.split(text)
    while entries and not entries[-1]:
        del entries[-1]
    for entry in entries:
        key, colon, value = entry.rpartition(":")
        if not colon:
            raise ConfigValueError("a list of name:value, separated by commas")
        pairs[key.strip(BLANKS)] = value.strip(BLANKS)
    return pairs
