"""Hash maps from uuids and names to small dense numbers, without a Python object an entry."""

from typing import Any

from typing_extensions import Buffer

class UuidMap:
    """Uuids (16 bytes) to dense numbers from 0, in the order in which they came."""

    count: int
    """Numbers given out, those of removed entries included."""

    def __init__(self, *, seed: int = ...) -> None: ...
    def __len__(self) -> int: ...
    def get(self, uuid: Buffer) -> int:
        """The number of ``uuid``, -1 where it is not there."""

    def put(self, uuid: Buffer) -> int:
        """The number of ``uuid``, a new one where it had none."""

    def remove(self, number: int) -> None:
        """Makes an entry unfindable; its number stays taken. Raises KeyError where it is not
        findable.
        """

    def bring_back(self, number: int) -> None:
        """Undoes ``remove``."""

    def key(self, number: int) -> bytes:
        """The 16 bytes behind ``number``, removed or not."""

    @property
    def memory_size(self) -> int:
        """Bytes held, borrowed ones included."""

    def state(self) -> dict[str, Any]:
        """The arrays as bytes, and the two scalars ``seed`` and ``live``, as ``from_state`` takes
        them.
        """

    @staticmethod
    def from_state(
        keys: Buffer, slots: Buffer, *, seed: int, live: int, lender: object = None
    ) -> UuidMap:
        """A map over borrowed, writable memory, without rehashing. Raises ValueError where the
        slots contradict the keys.
        """

class NameMap:
    """Names to dense numbers from 0, in the order in which they came."""

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
