"""``PartitionTable``: the partitions of a cluster, replayed from record batches and encoded back.

Rules: Kafka's ``PartitionRegistration``, ``TopicDelta``, ``ReplicationControlManager.replay``;
KIP-455 (reassignment), KIP-858 (directories), KIP-966 (ELR).
"""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.table.compaction import Compaction
from kraft._core.table.images import TableDelta, TableImage
from kraft._core.table.rows import TableRows

class PartitionTable(TableRows):
    """Partitions as rows of numpy columns; see ``PartitionColumns.column`` for what they hold.

    ``row`` is an index of the columns, ``topic`` a topic's number. Both are valid until
    ``compact``, or until a ``revert`` to before they were added.
    """

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
        """Replay the records of whole batches with ``start_offset <= offset < end_offset``.

        Returns the offset after the last batch that was read (at most ``end_offset``), or -1
        without one. Topic, Partition, PartitionChange, RemoveTopic and NoOp records are applied
        here, without the GIL and without a Python object a record. In the order of the log, all
        other records go to ``on_record(offset, value)``, frame included, control records to
        ``on_control(offset, epoch, control_type, value)``, and each removed topic, after its
        removal, to ``on_topic_removed(offset, name)``. A callback may revert the table or clear
        ELRs, but must not add to it; its exceptions propagate.

        Raises CorruptRecordError (with ``path``, offset, and position counted from
        ``base_position``) for malformed batches or records and for CRCs that do not match,
        UnsupportedVersionError for versions of a newer Kafka and for compressed batches,
        ReplayError where a record contradicts the table: an existing or unknown topic, an unknown
        partition, a descending offset. Records before the failure stay applied; with a journal
        ``revert`` undoes them.
        """

    @property
    def counts_by_key(self) -> dict[int, int]:
        """The number of replayed records by API key; keys of 63 and above count as 63."""

    @property
    def election_counts(self) -> tuple[int, int]:
        """The replayed PartitionChange records that elected a leader uncleanly, and from the ELR.

        As Kafka's ``TopicDelta`` counts them; a revert does not change the counts.
        """

    def clear_elr(self, topic: str | None, offset: int) -> None:
        """Apply a ClearElr record at ``offset`` to one topic, or with None to all.

        Clears ELR and last known ELR of each partition that has either, and increments its
        partition epoch (KIP-966). Costs a pass over the table. Raises ReplayError for an unknown
        topic.
        """

    def image(self, offset: int | None = None) -> TableImage:
        """Return the table before the record at ``offset``; later changes do not show. O(1).

        By default after the last offset in the journal. Raises OffsetOutOfRangeError where the
        journal does not reach back to ``offset``.
        """

    def delta(self, since_offset: int, offset: int | None = None) -> TableDelta:
        """Return the changes by records from ``since_offset`` to before ``offset``; O(1)."""

    @staticmethod
    def from_image(image: TableImage) -> PartitionTable:
        """Return an independent, compact table without a journal; costs the size of the table.

        Rows and topics get new numbers, directories keep theirs.
        """

    def begin_compaction(self) -> Compaction:
        """Begin to drop the rows of removed topics; see :class:`Compaction`.

        Raises ReplayError while the journal holds changes that were not forgotten: they name rows.
        """

    def compact(self) -> None:
        """Compact the table at once: a pass over it.

        Raises as ``begin_compaction``.
        """

    def encode_partitions(
        self, builder: BatchBuilder, rows: ArrayLike | None = None, *, version: int
    ) -> None:
        """Append a Partition record for each of ``rows``, in their order, or for every live row.

        ``version`` is the record version, 0 to 2. Lower versions omit fields: below 1 the
        directories, below 2 the ELRs. Raises UnsupportedVersionError for other versions,
        InvalidRequestError for a row without a partition, and the errors of the builder.
        """

    def encode_snapshot(self, builder: BatchBuilder, *, version: int) -> None:
        """Append all topics for a snapshot: each Topic record, then its Partition records.

        Raises as ``encode_partitions``.
        """

    def encode_topic_record(self, builder: BatchBuilder, topic: int) -> None:
        """Append the Topic record of a topic. Raises UnknownTopicOrPartitionError."""

    def encode_topic_removal(self, builder: BatchBuilder, topic: int) -> None:
        """Append a RemoveTopic record; the table does not change.

        Raises UnknownTopicOrPartitionError.
        """

    def live_rows(self) -> NDArray[np.int32]:
        """Return the rows of live topics, ascending."""

    def topic_number(self, name: str) -> int:
        """Return the number of the topic of this name, -1 if absent."""

    def topic_number_by_id(self, topic_id: Buffer) -> int:
        """Return the number of the topic of this id, -1 if absent. ValueError: not 16 bytes."""

    def topic_name(self, topic: int) -> str:
        """Return the name of a topic, removed or not. IndexError for an unassigned number."""

    def topic_id_of(self, topic: int) -> bytes:
        """Return the id of a topic, 16 bytes; raises as ``topic_name``."""

    def topic_numbers(self) -> list[int]:
        """Return the numbers of the live topics, in the order of creation."""

    @property
    def topic_count(self) -> int:
        """The number of live topics."""

    def topic_rows(self, topic: int) -> NDArray[np.int32]:
        """Return a topic's rows, by partition id. Raises UnknownTopicOrPartitionError."""

    def row_of(self, topic: int, partition: int) -> int:
        """Return the row of a partition, -1 if the topic has no such partition.

        Raises UnknownTopicOrPartitionError if no live topic has this number.
        """

    def broker_rows(self, broker: int) -> NDArray[np.int32]:
        """Return the rows in which a broker is a replica or in the ISR or ELR, ascending.

        The first call builds the index, which costs a pass over the table; later calls cost the
        rows that the broker holds.
        """

    def state_of(self, row: int) -> dict[str, Any]:
        """Return one row, regular or not, live or dead. OffsetOutOfRangeError for others.

        Integers ``leader``, ``leader_epoch``, ``partition_epoch``, ``leader_recovery_state``; lists
        of brokers ``replicas``, ``isr``, ``elr``, ``last_known_elr``, ``removing_replicas`` and
        ``adding_replicas``; ``directories``, a list of numbers, one for each replica.
        """

    def directory_id(self, number: int) -> bytes:
        """Return the 16 bytes of a directory id.

        Numbers 0 to 2 are migrating, unassigned and lost (``DirectoryId``).
        """

    def directory_number(self, directory_id: Buffer) -> int:
        """Return the number of a directory id of 16 bytes; insert it if absent."""
