"""The groups of one coordinator by id: as they are now, and which of them are committed.

A group that was added or removed by records that are not committed yet is not seen, or still seen,
by those who list and describe groups. The members of a group have no such past: they are as they
are now. Source: the ``TimelineHashMap`` of ``GroupMetadataManager.groups``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kraft.broker.groups.group import ClassicGroup


class GroupTable:
    """Groups by id, with the changes since the last commit.

    A change belongs to the next append: `stamp` gives it that offset, `revert` takes it back.
    """

    __slots__ = ("_changes", "_groups", "_previous", "_unstamped")

    def __init__(self) -> None:
        self._groups: dict[str, ClassicGroup] = {}
        #: Group id -> its committed state and those after it, but for the present one.
        self._previous: dict[str, deque[ClassicGroup | None]] = {}
        self._changes: deque[tuple[int, str]] = deque()
        self._unstamped: list[str] = []

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(self._groups.values())

    def ids(self) -> list[str]:
        """Return the ids of all groups as they are now."""
        return list(self._groups)

    def get(self, group_id: str) -> ClassicGroup | None:
        """Return the group as it is now, or None."""
        return self._groups.get(group_id)

    def committed(self, group_id: str) -> ClassicGroup | None:
        """Return the group if it exists by committed records."""
        previous = self._previous.get(group_id)
        return previous[0] if previous else self._groups.get(group_id)

    def all_committed(self) -> Iterator[ClassicGroup]:
        """Return the groups that exist by committed records."""
        for group_id, group in self._groups.items():
            if group_id not in self._previous:
                yield group
        for previous in self._previous.values():
            if previous[0] is not None:
                yield previous[0]

    def load(self, group_id: str, group: ClassicGroup | None) -> None:
        """Set or remove a group by a record that is committed."""
        if group is None:
            self._groups.pop(group_id, None)
        else:
            self._groups[group_id] = group

    def set(self, group_id: str, group: ClassicGroup | None) -> None:
        """Add, replace or remove a group by the next append."""
        self._previous.setdefault(group_id, deque()).append(self._groups.get(group_id))
        self._unstamped.append(group_id)
        self.load(group_id, group)

    def stamp(self, last_offset: int) -> None:
        """Note that the changes since the last append are in the log up to this offset."""
        for group_id in self._unstamped:
            self._changes.append((last_offset, group_id))
        self._unstamped.clear()

    def revert(self) -> None:
        """Take back the changes since the last append."""
        for group_id in reversed(self._unstamped):
            previous = self._previous[group_id]
            self.load(group_id, previous.pop())
            if not previous:
                del self._previous[group_id]
        self._unstamped.clear()

    def commit(self, high_watermark: int) -> None:
        """Forget the past of changes below the high watermark."""
        while self._changes and self._changes[0][0] < high_watermark:
            group_id = self._changes.popleft()[1]
            previous = self._previous[group_id]
            previous.popleft()
            if not previous:
                del self._previous[group_id]
