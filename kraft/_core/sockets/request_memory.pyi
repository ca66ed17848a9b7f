"""The memory of large requests in progress, counted by several threads."""

from typing import final

@final
class RequestMemory:
    """A count of bytes with a limit; every method may be called by any thread."""

    @property
    def taken(self) -> int:
        """The bytes that are counted now."""

    def take(self, more: int, most: int) -> bool:
        """Count ``more`` bytes; return False, and count nothing, where it would exceed ``most``."""

    def give_back(self, size: int) -> None:
        """Count ``size`` bytes less: the memory of a request that is done."""
