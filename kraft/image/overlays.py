"""The mappings of a state as of an offset, while the state itself moves on.

``Overlay`` reads from the journal the old value of each key that changed since the offset;
``PastEntries`` is a mapping of these old values over the present entries. Creating them costs only
the number of mappings; reading costs the changes since the offset, each once. The counterpart for
partitions is ``kraft._core.table.images``.

Invariants: the journal keeps the notes that a live overlay needs, and rejects a revert to before
its offset. A revert reuses sequence numbers of notes, so an overlay then reads the journal from the
start. The state must not change during an iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from kraft.image.journal import ABSENT, Journal, JournaledGroups, JournaledMap

_NOT_CHANGED: Final = object()


class Overlay:
    """The values before ``offset`` of all keys that records changed since.

    Raises :class:`OffsetOutOfRangeError` where the journal does not reach back that far.
    """

    __slots__ = (
        "__weakref__",
        "_is_grouped",
        "_journal",
        "_olds",
        "_seen",
        "_seen_reverts",
        "offset",
    )

    def __init__(self, journal: Journal, offset: int) -> None:
        self.offset = offset
        self._journal = journal
        self._is_grouped = [isinstance(each, JournaledGroups) for each in journal.maps]
        self._olds: list[dict[Any, Any]] = [{} for _ in journal.maps]
        self._seen = -1
        self._seen_reverts = -1
        journal.keep_for(self)

    def of(self, number: int) -> dict[Any, Any]:
        """Return the old values of one map by key, or by group and name; ABSENT: no such key."""
        journal = self._journal
        if self._seen_reverts != journal.revert_count:
            for olds in self._olds:
                olds.clear()
            self._take({note[1:3]: note[3] for note in journal.since(self.offset)})
        elif self._seen != journal.end_sequence:
            # Newest first, so that the oldest new note of a key remains in the dictionary.
            new = islice(reversed(journal.notes), journal.end_sequence - self._seen)
            self._take({note[1:3]: note[3] for note in new})
        self._seen = journal.end_sequence
        self._seen_reverts = journal.revert_count
        return self._olds[number]

    def _take(self, new: dict[tuple[Any, ...], Any]) -> None:
        for (number, key), old in new.items():
            olds = self._olds[number]
            if self._is_grouped[number]:
                group, key = key
                olds = olds.setdefault(group, {})
            # A value that is known already is older.
            olds.setdefault(key, old)


class PastEntries(Mapping[Any, Any]):
    """The entries of a map as of an overlay's offset."""

    __slots__ = ("_number", "_overlay", "source")

    def __init__(self, source: JournaledMap[Any, Any], number: int, overlay: Overlay) -> None:
        self.source = source
        self._number = number
        self._overlay = overlay

    def olds(self) -> dict[Any, Any]:
        """Return the old values, which may differ from the present ones: see `Overlay.of`."""
        return self._overlay.of(self._number)

    def get(self, key: Any, default: Any = None) -> Any:
        old = self.olds().get(key, _NOT_CHANGED)
        if old is _NOT_CHANGED:
            return self.source._entries.get(key, default)
        return default if old is ABSENT else old

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, ABSENT)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self.get(key, ABSENT) is not ABSENT

    def __iter__(self) -> Iterator[Any]:
        if not self.olds():
            yield from self.source._entries
            return
        for key in self.keys_now_or_then():
            if key in self:
                yield key

    def __len__(self) -> int:
        now = self.source._entries
        return len(now) + sum((key in self) - (key in now) for key in self.olds())

    def keys_now_or_then(self) -> list[Any]:
        """Return the present keys, and those that existed only then."""
        now = self.source._entries
        return [*now, *(key for key in self.olds() if key not in now and key in self)]


class PastGroups(PastEntries):
    """The entries of a map of groups as of an overlay's offset; old values are single settings."""

    __slots__ = ()

    def get(self, key: Any, default: Any = None) -> Any:
        olds = self.olds().get(key)
        if olds is None:
            return self.source._entries.get(key, default)
        then = dict(self.source._entries.get(key, ()))
        for name, old in olds.items():
            if old is ABSENT:
                then.pop(name, None)
            else:
                then[name] = old
        return then or default
