"""Hash maps from uuids and names to dense numbers, without a Python object an entry."""

from typing import Any

from typing_extensions import Buffer

class UuidMap:
    """A map from uuids (16 bytes) to dense numbers from 0, in the order of insertion."""

    count: int
    """Assigned numbers, including those of removed entries."""

    def __init__(self, *, seed: int = ...) -> None: ...
    def __len__(self) -> int: ...
    def get(self, uuid: Buffer) -> int:
        """Return the number of ``uuid``, -1 if it is absent."""

    def put(self, uuid: Buffer) -> int:
        """Return the number of ``uuid``; insert it if it is absent."""

    def remove(self, number: int) -> None:
        """Remove an entry; its number is not reused. Raises KeyError if it is absent."""

    def bring_back(self, number: int) -> None:
        """Undo ``remove``."""

    def key(self, number: int) -> bytes:
        """Return the 16 bytes of ``number``, removed or not."""

    @property
    def memory_size(self) -> int:
        """Bytes held, including borrowed ones."""

    def state(self) -> dict[str, Any]:
        """Return the arrays as bytes, and the scalars ``seed`` and ``live``, for ``from_state``."""

    @staticmethod
    def from_state(
        keys: Buffer, slots: Buffer, *, seed: int, live: int, lender: object = None
    ) -> UuidMap:
        """Return a map over borrowed, writable memory, without rehashing.

        Raises ValueError if the slots contradict the keys.
        """

class NameMap:
    """A map from names to dense numbers from 0, in the order of insertion."""

    count: int

    def __init__(self, *, seed: int = ...) -> None: ...
    def __len__(self) -> int: ...
    def get(self, name: str) -> int: ...
    def put(self, name: str) -> int: ...
    def remove(self, number: int) -> None: ...
    def bring_back(self, number: int) -> None: ...
    def key(self, number: int) -> str: ...
    @property
    def memory_size(self) -> int: ...
    def state(self) -> dict[str, Any]: ...
    @staticmethod
    def from_state(
        text: Buffer, ends: Buffer, slots: Buffer, *, seed: int, live: int, lender: object = None
    ) -> NameMap: ...
