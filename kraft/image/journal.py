"""The journal of old values, and the mappings that write to it.

Before each change the map appends a note ``(offset, map, key, old value)``. Undoing the notes from
the newest to the oldest restores the state before an offset. The same notes give the delta since
an offset.

Invariants:
- Offsets in the journal never descend, and a note is written before its map changes.
- A map changes only through ``_put`` and ``_drop`` (groups: ``_set`` and ``_unset``) and
  ``_restore``, which all notify the watchers of the map.
- Notes that a live image (``kraft.image.overlays``) needs are neither forgotten nor reverted.
- A change, a revert and a delta cost as much as changed, not as much as exists.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar, overload
from weakref import ref

from kraft.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownKeyError
from kraft.records import Record

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


# The old value of a key that was absent; None may be a value. A plain object, because the garbage
# collector does not track it.
ABSENT: Final = object()

# Offset, number of the map, key, old value. A number instead of the map, so that the garbage
# collector stops tracking the note: a long journal then costs it nothing.
Note = tuple[int, int, Any, Any]


class AsOf(Protocol):
    """A reader of an earlier state: needs every note of a record at ``offset`` or after it."""

    @property
    def offset(self) -> int: ...


class Journal:
    """Old values since ``start_offset``, oldest first.

    ``recording`` is off while a state is loaded cold: no note is made then. ``forgotten`` counts
    the notes that were dropped at the old end, so that every note keeps its sequence number.
    ``revert_count`` grows when sequence numbers are reused.
    """

    __slots__ = (
        "_readers",
        "forgotten",
        "maps",
        "notes",
        "recording",
        "revert_count",
        "start_offset",
    )

    def __init__(self, *, recording: bool) -> None:
        self.maps: list[JournaledMap[Any, Any]] = []
        self.notes: deque[Note] = deque()
        self.recording = recording
        self.start_offset = 0
        self.forgotten = 0
        self.revert_count = 0
        self._readers: list[ref[AsOf]] = []

    @property
    def end_sequence(self) -> int:
        """The sequence number of the next note."""
        return self.forgotten + len(self.notes)

    def keep_for(self, reader: AsOf) -> None:
        """Keep the notes that ``reader`` needs as long as it is alive.

        Raises :class:`OffsetOutOfRangeError` if some of them were dropped already.
        """
        self.check(reader.offset)
        self._readers.append(ref(reader))

    def start(self, offset: int) -> None:
        """Start to record; the present state is the state before ``offset``.

        Raises :class:`InvalidRequestError` while an image is alive, as `stop` does.
        """
        self._refuse_beside_images("start a journal", -1)
        self.notes.clear()
        self.recording = True
        self.start_offset = offset
        self.revert_count += 1

    def stop(self) -> None:
        """Drop every note and record no more."""
        self._refuse_beside_images("stop the journal", -1)
        self.notes.clear()
        self.recording = False

    def forget(self, offset: int) -> None:
        """Drop the notes before ``offset``, except those that a live image needs."""
        offset = min([offset, *self._offsets_in_use()])
        notes = self.notes
        while notes and notes[0][0] < offset:
            notes.popleft()
            self.forgotten += 1
        self.start_offset = max(self.start_offset, offset)

    def check_revert(self, offset: int) -> None:
        """Raise the error that `revert` would raise, if any."""
        self.check(offset)
        self._refuse_beside_images(f"revert to offset {offset}", offset)

    def revert(self, offset: int) -> None:
        """Undo every change of a record at ``offset`` or after it.

        Raises :class:`OffsetOutOfRangeError` as `check`, :class:`InvalidRequestError` while an
        image of a later offset is alive.
        """
        self.check_revert(offset)
        self.revert_count += 1
        notes = self.notes
        while notes and notes[-1][0] >= offset:
            _, number, key, old = notes.pop()
            self.maps[number]._restore(key, old)

    def _offsets_in_use(self) -> list[int]:
        if not self._readers:
            return []
        alive = [reader for reference in self._readers if (reader := reference()) is not None]
        self._readers = [ref(reader) for reader in alive]
        return [reader.offset for reader in alive]

    def _refuse_beside_images(self, what: str, offset: int) -> None:
        later = [used for used in self._offsets_in_use() if used > offset]
        if later:
            raise InvalidRequestError(
                f"cannot {what}: an image as of offset {min(later)} is in use"
            )

    def since(self, offset: int) -> Iterator[Note]:
        """Iterate over the notes of records at ``offset`` or after it, newest first."""
        self.check(offset)
        for note in reversed(self.notes):
            if note[0] < offset:
                return
            yield note

    def check(self, offset: int) -> None:
        """Raise :class:`OffsetOutOfRangeError` if the journal does not reach back to ``offset``."""
        if not self.recording:
            raise OffsetOutOfRangeError(
                f"the state before offset {offset} is not available: the journal is off"
            )
        if offset < self.start_offset:
            raise OffsetOutOfRangeError(
                f"the state before offset {offset} is not available any more: "
                f"the journal begins at offset {self.start_offset}"
            )


class Touched(set[Any]):
    """The keys of a map that changed or were reverted since the watcher last emptied this set."""

    __slots__ = ()


class JournaledMap(Mapping[K, V], Generic[K, V]):
    """A mapping that is read-only outside its module and notes each change in the journal.

    ``kind`` is the name of the map in deltas and differences. The order of the keys has no meaning:
    a key that a revert restores comes last, since keeping its place would cost the size of the map.
    """

    __slots__ = ("_entries", "_journal", "_number", "_watchers")
    kind: ClassVar[str]

    def __init__(self, journal: Journal) -> None:
        self._entries: dict[K, V] = {}
        self._journal = journal
        self._number = len(journal.maps)
        self._watchers: list[ref[Touched]] = []
        journal.maps.append(self)

    def watch(self) -> Touched:
        """Return a set to which every later change and revert adds its key.

        With it a caller updates derived data at the cost of the changes. The map references the
        set weakly.
        """
        touched = Touched()
        self._watchers.append(ref(touched))
        return touched

    def _touch(self, key: Any) -> None:
        for watcher in list(self._watchers):
            touched = watcher()
            if touched is None:
                self._watchers.remove(watcher)
            else:
                touched.add(key)

    def __getitem__(self, key: K) -> V:
        try:
            return self._entries[key]
        except (KeyError, TypeError):
            raise self._unknown(key) from None

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: Any, default: Any = None, /) -> Any:
        """Return the value of ``key``, or ``default``, also for a key that cannot be hashed."""
        try:
            return self._entries.get(key, default)
        except TypeError:
            return default

    def _unknown(self, key: Any) -> UnknownKeyError:
        return UnknownKeyError(f"there is no {self.kind} {key!r}")

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        try:
            return key in self._entries
        except TypeError:
            return False

    def __eq__(self, other: object) -> bool:
        if isinstance(other, JournaledMap):
            return self.kind == other.kind and self._entries == other._entries
        return self._entries == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{key!r}: {value!r}" for key, value in islice(self.items(), 5))
        more = f", … {len(self) - 5} more" if len(self) > 5 else ""
        return f"{type(self).__name__}({{{shown}{more}}})"

    def _put(self, key: K, value: V, offset: int) -> None:
        entries = self._entries
        journal = self._journal
        if journal.recording:
            journal.notes.append((offset, self._number, key, entries.get(key, ABSENT)))
        entries[key] = value
        if self._watchers:
            self._touch(key)

    def _drop(self, key: K, offset: int) -> None:
        old = self._entries.pop(key, ABSENT)
        if old is not ABSENT and self._journal.recording:
            self._journal.notes.append((offset, self._number, key, old))
        if self._watchers:
            self._touch(key)

    def _restore(self, key: Any, old: Any) -> None:
        if self._watchers:
            self._touch(key)
        if old is ABSENT:
            del self._entries[key]
        else:
            self._entries[key] = old

    def show(self, past: Any) -> None:
        """Show the entries of another map as of an offset (a ``past.PastEntries``) from now on.

        The map is then read-only: those entries reject changes.
        """
        self._entries = past

    def snapshot_keys(self) -> list[Any]:
        """Return the keys that a snapshot may hold, unordered.

        For an image these include absent keys, for which `snapshot_records_of` returns nothing.
        """
        entries: Any = self._entries
        # The entries of an image have a faster method than iterating over them in Python.
        return list(entries) if type(entries) is dict else entries.keys_now_or_then()

    @staticmethod
    def snapshot_order(key: Any) -> Any:
        """Return the sort key of ``key`` in a snapshot."""
        return key

    @abstractmethod
    def snapshot_records_of(self, key: Any, metadata_version: int) -> Iterator[Record]:
        """Return the snapshot's records of one key at this metadata.version; none if absent."""

    def snapshot_records_in_order(self, metadata_version: int) -> Iterator[Any]:
        """Return the snapshot's records of the whole map."""
        for key in sorted(self.snapshot_keys(), key=self.snapshot_order):
            yield from self.snapshot_records_of(key, metadata_version)

    def keys_that_differ(self, other: JournaledMap[K, V]) -> list[K]:
        """Return the keys whose values differ or that only one side has, unordered."""
        mine, theirs = self._entries, other._entries
        keys = [key for key, value in mine.items() if theirs.get(key, ABSENT) != value]
        keys.extend(key for key in theirs if key not in mine)
        return keys

    def _now(self, key: Any) -> Any:
        """Return the present value of a key in the journal's form, or ABSENT."""
        return self._entries.get(key, ABSENT)

    def _copy_entries(self, source: JournaledMap[K, V]) -> None:
        self._entries = dict(source._entries)


class JournaledGroups(JournaledMap[K, Mapping[str, V]]):
    """A mapping of groups (a resource, an entity) to their settings by name; a group without
    settings is absent.

    In the journal and in deltas a key is ``(group, name)``, so that changing one of a thousand
    settings notes only that one.
    """

    __slots__ = ()
    _entries: dict[K, dict[str, V]]  # type: ignore[assignment]

    def __getitem__(self, key: K) -> Mapping[str, V]:
        return MappingProxyType(super().__getitem__(key))

    def get(self, key: Any, default: Any = None, /) -> Any:
        """Return the settings of ``key``, read-only, or ``default``."""
        settings: Any = super().get(key, ABSENT)
        return default if settings is ABSENT else MappingProxyType(settings)

    def _set(self, group: K, name: str, value: V, offset: int) -> None:
        settings = self._entries.get(group)
        if settings is None:
            settings = self._entries[group] = {}
        journal = self._journal
        if journal.recording:
            old = settings.get(name, ABSENT)
            journal.notes.append((offset, self._number, (group, name), old))
        settings[name] = value
        if self._watchers:
            self._touch((group, name))

    def _unset(self, group: K, name: str, offset: int) -> None:
        settings = self._entries.get(group)
        if settings is None or name not in settings:
            return
        old = settings.pop(name)
        if not settings:
            del self._entries[group]
        if self._journal.recording:
            self._journal.notes.append((offset, self._number, (group, name), old))
        if self._watchers:
            self._touch((group, name))

    def _restore(self, key: Any, old: Any) -> None:
        if self._watchers:
            self._touch(key)
        group, name = key
        if old is not ABSENT:
            self._entries.setdefault(group, {})[name] = old
            return
        settings = self._entries[group]
        del settings[name]
        if not settings:
            del self._entries[group]

    def _now(self, key: Any) -> Any:
        group, name = key
        settings = self._entries.get(group)
        return ABSENT if settings is None else settings.get(name, ABSENT)

    def _copy_entries(self, source: JournaledMap[K, Mapping[str, V]]) -> None:
        self._entries = {group: dict(settings) for group, settings in source._entries.items()}
