"""A snapshot as pieces of memory, made a little at a time; the layout is in ``snapshot_file``."""

from collections.abc import Iterable

from typing_extensions import Buffer

from kraft._core.history import TableImage

class SnapshotPieces:
    """The bytes that a ``SnapshotWriter`` given the same records writes, in pieces that are to be
    written one behind the other.

    ``control_records`` are (type, value) pairs that follow the SnapshotHeader. Whoever was raised
    at throws it away: it may have half a record.
    """

    next_offset: int
    """The offset inside the snapshot of the next record."""

    def __init__(
        self,
        epoch: int,
        *,
        last_contained_log_timestamp_ms: int,
        timestamp_ms: int,
        control_records: Iterable[tuple[int, Buffer]] = (),
        max_batch_records: int = ...,
        piece_size: int = ...,
    ) -> None: ...
    def append_value(self, value: bytes) -> None:
        """One record. Raises RecordTooLargeError."""

    def append_topics(self, image: TableImage, *, version: int, max_steps: int) -> bool:
        """The next Topic and Partition records of the image, ``version`` being that of Partition.

        Goes on where the last call ended, whatever happened to the tip since; a topic costs a step,
        as does a record. True once all of the image is written. A table that was mapped and not
        checked yet is checked by the first call, which costs a pass over it. Raises
        UnsupportedVersionError, InvalidRequestError for another image than before.
        """

    def finish(self) -> None:
        """The footer; nothing may be appended behind it."""

    def take(self) -> list[memoryview]:
        """The pieces that are ready, each once."""
