"""From the bytes of record batches to rows, with no Python object a record and without the GIL."""

from collections.abc import Callable
from os import PathLike

from typing_extensions import Buffer

from kraft._core.partition_runs import PartitionRuns

class ReplayedRows(PartitionRuns):
    """Rows that batches are applied to; ``PartitionTable`` is the class to use."""

    def apply(
        self,
        buffer: Buffer,
        *,
        start_offset: int = 0,
        end_offset: int = ...,
        verify_crc: bool = True,
        on_record: Callable[[int, bytes], object] | None = None,
        on_control: Callable[[int, int, int, bytes], object] | None = None,
        on_topic_removed: Callable[[int, str], object] | None = None,
        path: str | PathLike[str] | None = None,
        base_position: int = 0,
    ) -> int:
        """Replays the records of whole batches with ``start_offset <= offset < end_offset``.

        Gives the offset behind the last batch that was looked at (at most ``end_offset``), or -1
        where there was none. Topic, Partition, PartitionChange, RemoveTopic and NoOp records take
        effect here, outside the GIL and with no Python object a record. Others go to
        ``on_record(offset, value)`` in their place in the order, frame included; control records to
        ``on_control(offset, epoch, control_type, value)``; each topic that goes, after it went, to
        ``on_topic_removed(offset, name)``. A callback may revert the table or clear ELRs, and must
        not add to it; what it raises comes out of here.

        Raises CorruptRecordError (with ``path``, offset, and position counted from
        ``base_position``) for bytes that are no batches or records and for CRCs that do not match,
        UnsupportedVersionError for what a newer Kafka wrote and for compressed batches, ReplayError
        where a record contradicts the table: a topic that exists, one that does not, an unknown
        partition, an offset that falls. What was applied before stays applied; with a journal
        ``revert`` takes it back.
        """

    @property
    def counts_by_key(self) -> dict[int, int]:
        """How many records of each api key were applied or handed over; keys of 63 and up as 63."""
