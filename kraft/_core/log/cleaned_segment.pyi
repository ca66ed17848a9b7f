"""A segment that a compaction writes, and that then takes the place of others."""

from typing import final

from typing_extensions import Buffer

from kraft._core.log.disk import Disk
from kraft._core.log.segment import Segment

@final
class CleanedSegment(Segment):
    """A segment whose files have the suffix `.cleaned`; existing ones are emptied.

    It belongs to no log until `DataLog.replace_segments`.
    """

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int
    ) -> None: ...
    def add(self, batches: Buffer) -> None:
        """Append whole batches, in the order of their offsets."""

    def complete(self, transactions: bytes = b"") -> None:
        """Write the indexes, and `.txnindex` if it has content; make all durable; close the files.

        Raises StorageError.
        """

    def discard(self) -> None:
        """Remove the files, if they are still there."""
