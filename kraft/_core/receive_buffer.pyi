"""Memory for large frames, taken again as soon as nobody looks into it."""

from typing_extensions import Buffer

SPARE_SIZE: int

class ReceiveBuffer(Buffer):
    """``size`` writable bytes, not zeroed: whoever made it hands out only what was written.

    Its memory is that of an earlier one, of which no slice is left any more, where there is such a
    block; at most `SPARE_SIZE` bytes wait to be taken again. Raises ValueError for a size below 1,
    MemoryError.
    """

    size: int
    def __init__(self, size: int) -> None: ...
    def __len__(self) -> int: ...

def spare_size() -> int:
    """How many bytes wait to be taken again."""
