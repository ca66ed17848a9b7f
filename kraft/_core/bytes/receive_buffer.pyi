"""Reusable memory for large network frames."""

from typing_extensions import Buffer

SPARE_SIZE: int

class ReceiveBuffer(Buffer):
    """``size`` writable bytes, not zeroed: the caller hands out only the bytes that it wrote.

    Its memory is a block of an earlier buffer that has no slice left, if such a block is kept; at
    most `SPARE_SIZE` bytes are kept. Raises ValueError for a size below 1, and MemoryError.
    """

    size: int
    def __init__(self, size: int) -> None: ...
    def __len__(self) -> int: ...

def spare_size() -> int:
    """Return the number of bytes that are kept for reuse."""
