"""The differences of two states by meaning.

Compares the fields of a broker or the value of a setting, not bytes or the order of records. The
command line and ``kraft.metadata.diff`` call it with two states.

Invariants: swapping ``before`` and ``after`` swaps the two sides of every change; no salt or key
of a credential leaves this module.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from kraft.image.journal import JournaledGroups, JournaledMap
from kraft.image.nodes import BrokerRegistration, ControllerRegistration
from kraft.image.quorum import Quorum
from kraft.image.security import AccessControl, ScramCredential, Token
from kraft.image.view import StateImage, StateView

HIDDEN: Final = "[hidden]"

_SECRET_FIELDS = frozenset({"salt", "stored_key", "server_key"})
# The offset of a registration depends on where the state was read from, not on the cluster.
_NO_MEANING = frozenset({"registration_offset"})


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: ``field`` of the entry ``key`` of a ``kind`` was ``before`` and is ``after``.

    For an entry that only one side has, ``field`` is empty and the other side is None.
    """

    kind: str
    key: Hashable
    field: str
    before: object
    after: object

    def __str__(self) -> str:
        entry = f"{self.kind} {self.key}"
        if self.field:
            return f"{entry}: {self.field} {self.before!r} -> {self.after!r}"
        if self.before is None:
            return f"{entry}: added {self.after!r}"
        return f"{entry}: removed {self.before!r}"


def diff(before: StateView, after: StateView) -> list[Change]:
    """Return the differences from ``before`` to ``after``, by kind as in a snapshot, then by key.

    Settings and quotas are compared one by one: ``field`` is then the name of the setting, and the
    side that lacks it is None. Of the quorum only kraft.version and voters are compared: a
    snapshot keeps nothing else of it.
    """
    changes: list[Change] = []
    for old, new in zip(before.journaled_maps(), after.journaled_maps(), strict=True):
        if isinstance(old, JournaledGroups):
            changes.extend(_diff_groups(old, new))
        else:
            changes.extend(_diff_values(old, new))
    changes.extend(_diff_quorums(before.quorum, after.quorum))
    return changes


def changes_between(before: StateImage, after: StateImage) -> list[Change]:
    """Return `diff` of two images of one state, at the cost of the records in between.

    Raises :class:`OffsetOutOfRangeError` for images of two states, or in the wrong order.
    """
    found = after.changes_since(before)
    changes: list[Change] = []
    for each in after.journaled_maps():
        entries = found.get(each.kind, {})
        for key in _in_order(list(entries)):
            was, now = entries[key]
            if isinstance(each, JournaledGroups):
                group, name = key
                changes.append(Change(each.kind, group, name, was, now))
            else:
                changes.extend(_diff_value(each.kind, key, was, now))
    changes.extend(_diff_quorums(before.quorum, after.quorum))
    return changes


def _diff_quorums(before: Quorum, after: Quorum) -> Iterator[Change]:
    for name in ("kraft_version", "voters"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            yield Change("quorum", "", name, was, now)


def _diff_values(before: JournaledMap[Any, Any], after: JournaledMap[Any, Any]) -> Iterator[Change]:
    kind = before.kind
    for key in _in_order(before.keys_that_differ(after)):
        yield from _diff_value(kind, key, before.get(key), after.get(key))


def _diff_value(kind: str, key: Hashable, old: Any, new: Any) -> Iterator[Change]:
    if old is None or new is None:
        yield Change(kind, key, "", old, new)
        return
    was, now = _fields_of(old), _fields_of(new)
    for name in was:
        if was[name] == now[name]:
            continue
        if name in _SECRET_FIELDS:
            yield Change(kind, key, name, HIDDEN, HIDDEN)
        else:
            yield Change(kind, key, name, was[name], now[name])


def _diff_groups(
    before: JournaledGroups[Any, Any], after: JournaledMap[Any, Any]
) -> Iterator[Change]:
    for group in _in_order(before.keys_that_differ(after)):
        old: Mapping[str, Any] = before.get(group, {})
        new: Mapping[str, Any] = after.get(group, {})
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield Change(before.kind, group, name, old.get(name), new.get(name))


def _in_order(keys: list[Any]) -> list[Any]:
    # A quota entity may hold None, which does not compare with text.
    return sorted(keys, key=lambda key: key if isinstance(key, int) else repr(key))


def _fields_of(value: Any) -> Mapping[str, Any]:
    if isinstance(value, AccessControl):
        return value._asdict()
    if isinstance(value, (BrokerRegistration, ControllerRegistration, ScramCredential, Token)):
        return {
            each.name: getattr(value, each.name)
            for each in fields(value)
            if each.name not in _NO_MEANING
        }
    return {"value": value}
