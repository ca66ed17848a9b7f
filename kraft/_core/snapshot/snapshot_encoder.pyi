"""A snapshot of an image, encoded in memory a few records at a time.

``snapshot_file`` has the layout.
"""

from collections.abc import Iterable

from typing_extensions import Buffer

from kraft._core.table.images import TableImage

class SnapshotEncoder:
    """Encodes a snapshot as a list of buffers, with the same bytes as ``SnapshotWriter``.

    The caller writes the buffers one after the other. ``control_records`` are (type, value) pairs
    after the SnapshotHeader. After an error the object is unusable: it may have half a record.
    """

    next_offset: int
    """The offset of the next record inside of the snapshot."""

    def __init__(
        self,
        epoch: int,
        *,
        last_contained_log_timestamp_ms: int,
        timestamp_ms: int,
        control_records: Iterable[tuple[int, Buffer]] = (),
        max_batch_records: int = ...,
        chunk_size: int = ...,
    ) -> None: ...
    def append_value(self, value: bytes) -> None:
        """Append one record. Raises RecordTooLargeError."""

    def append_topics(self, image: TableImage, *, version: int, max_steps: int) -> bool:
        """Append the next Topic and Partition records of the image; return True after the last.

        Continues after the last call, whatever changed in the table since. ``version`` is that of
        Partition. A topic and a record each cost one of ``max_steps``. The first call checks a
        mapped table that was not checked yet, which costs a pass over it. Raises
        UnsupportedVersionError, InvalidRequestError for another image than before.
        """

    def finish(self) -> None:
        """Append the footer; nothing may be appended after it."""

    def take(self) -> list[memoryview]:
        """Return the finished buffers, each once."""
