"""The two sparse indexes of a segment: offset -> byte position, and timestamp -> offset."""

from kraft._core.log.disk import Disk

class SparseIndex:
    """The common part of both indexes: ascending entries, kept as the bytes of their file."""

    def __init__(self, directory: str, base_offset: int) -> None: ...
    @property
    def directory(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def entry_count(self) -> int: ...
    def __len__(self) -> int: ...
    def content(self) -> bytes:
        """The file's content once every entry is written: 8 or 12 bytes an entry, big endian."""

    def restore(self, disk: Disk) -> None:
        """Make the file equal to the entries; write only if it differs."""

class OffsetIndex(SparseIndex):
    """Offset -> position, one entry about every index interval of bytes (OffsetIndex.java)."""

class TimeIndex(SparseIndex):
    """Timestamp in ms -> offset; an entry only where the largest one grew (TimeIndex.java)."""
