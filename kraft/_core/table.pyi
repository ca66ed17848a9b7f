"""``PartitionTable``: every partition of a cluster, fed by record batches and encoded into them.

Rules: Kafka's ``PartitionRegistration``, ``TopicDelta``, ``ReplicationControlManager.replay``;
KIP-455 (reassignment), KIP-858 (directories), KIP-966 (ELR).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

from kraft._core.batch import BatchBuilder
from kraft._core.replayed_rows import ReplayedRows

class PartitionTable(ReplayedRows):
    """Partitions as rows of numpy columns; see ``PartitionColumns.column`` for what they hold.

    ``row`` is a place in the columns, ``topic`` a topic's number. Both stay what they are until
    ``compact``, or a ``revert`` to before they came.
    """

    def encode_partitions(
        self, builder: BatchBuilder, rows: ArrayLike | None = None, *, version: int
    ) -> None:
        """Adds a Partition record for each of ``rows``, in their order, or for every live row.

        ``version`` is the record version, 0 to 2; what a version cannot say is left out: below 1
        the directories, below 2 the ELRs. Raises UnsupportedVersionError for other versions,
        InvalidRequestError for a row that holds no partition, and what the builder raises.
        """

    def encode_snapshot(self, builder: BatchBuilder, *, version: int) -> None:
        """Adds what a snapshot holds of topics: each Topic record, then its Partition records.

        Raises as ``encode_partitions``.
        """

    def encode_topic_record(self, builder: BatchBuilder, topic: int) -> None:
        """Adds the Topic record of a topic. Raises UnknownTopicOrPartitionError."""

    def encode_topic_removal(self, builder: BatchBuilder, topic: int) -> None:
        """Adds a RemoveTopic record; the table stays. Raises UnknownTopicOrPartitionError."""

    def live_rows(self) -> NDArray[np.int32]:
        """The rows of topics that are alive, ascending."""

    def topic_number(self, name: str) -> int:
        """The number of the topic of this name, -1 where there is none."""

    def topic_number_by_id(self, topic_id: Buffer) -> int:
        """The number of the topic of this id, -1 where there is none. ValueError: not 16 bytes."""

    def topic_name(self, topic: int) -> str:
        """The name behind a number, of a removed topic too. IndexError where none was given out."""

    def topic_id_of(self, topic: int) -> bytes:
        """The id behind a number, 16 bytes; as ``topic_name``."""

    def topic_numbers(self) -> list[int]:
        """The numbers of the topics that are alive, in the order in which they came."""

    @property
    def topic_count(self) -> int:
        """Topics that are alive."""

    def topic_rows(self, topic: int) -> NDArray[np.int32]:
        """A topic's rows, by partition id. Raises UnknownTopicOrPartitionError."""

    def row_of(self, topic: int, partition: int) -> int:
        """The row of a partition, -1 where the topic has none of this id.

        Raises UnknownTopicOrPartitionError where no topic that is alive has this number.
        """

    def broker_rows(self, broker: int) -> NDArray[np.int32]:
        """The rows in which a broker is a replica or in the ISR or ELR, ascending.

        The first call builds the index, which costs a pass over the table; every other one costs
        what the broker holds.
        """

    def state_of(self, row: int) -> dict[str, Any]:
        """One row, regular or not, dead or alive. OffsetOutOfRangeError for a row that is not.

        Integers ``leader``, ``leader_epoch``, ``partition_epoch``, ``leader_recovery_state``; lists
        of brokers ``replicas``, ``isr``, ``elr``, ``last_known_elr``, ``removing_replicas`` and
        ``adding_replicas``; ``directories``, a list of numbers, one for each replica.
        """

    def directory_id(self, number: int) -> bytes:
        """The 16 bytes of a directory; 0 is migrating, 1 unassigned, 2 lost (``DirectoryId``)."""

    def directory_number(self, directory_id: Buffer) -> int:
        """The number of a directory id of 16 bytes; a new one where it had none."""
