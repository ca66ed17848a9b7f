"""Leader elections and ISR changes over many rows, by Kafka's rules.

Rules: ``PartitionChangeBuilder``, ``ReplicationControlManager``, ``PartitionReassignmentReplicas``,
``PartitionReassignmentRevert`` of Kafka 4.3.1; KIP-966 (ELR), KIP-858 (directories).
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.election_rules import ElectionRules
from kraft._core.table.table import PartitionTable

class RegisteredBroker(Protocol):
    """The fields of a registration that an election reads (see ``image.BrokerRegistration``)."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def fenced(self) -> bool: ...
    @property
    def in_controlled_shutdown(self) -> bool: ...
    @property
    def log_dirs(self) -> Sequence[bytes]: ...

class ElectionContext(ElectionRules):
    """The brokers, directories and settings for decisions about a table's partitions.

    Every method appends PartitionChange records to a ``BatchBuilder``, in the order of the rows (of
    the argument, if given), at most one for each row, and changes nothing else. All read the
    present state of the table. A broker is active if it is registered, not fenced and not in
    controlled shutdown. Not thread-safe. The caller may keep a context while the cluster changes,
    if it passes on the changes of brokers and settings.

    Raises `InvalidRequestError` for a directory id that has not 16 bytes,
    `UnsupportedVersionError` for a ``metadata_version`` below 1.
    """

    table: PartitionTable
    metadata_version: int
    is_elr_enabled: bool
    def __init__(
        self,
        table: PartitionTable,
        brokers: Iterable[RegisteredBroker],
        *,
        metadata_version: int,
        is_elr_enabled: bool = False,
        min_isr: int = 1,
        unclean: bool = False,
        topic_min_isr: dict[int, int] | None = None,
        topic_unclean: dict[int, bool] | None = None,
    ) -> None:
        """``min_isr`` and ``unclean`` are min.insync.replicas and unclean.leader.election.enable
        of the topics that are not in the two mappings, whose keys are topic numbers.
        """

    is_numbered: bool
    """Whether topics still have the numbers of the overrides: a compaction of the table changes
    them, and this context is then unusable.
    """
    knows_directories: bool
    """Whether `take_brokers` has seen every directory that the table has interned."""

    def set_defaults(self, min_isr: int, unclean: bool) -> None:
        """Set the values of topics without overrides."""

    def set_topic_min_isr(self, topic: int, value: int | None) -> None:
        """Set the override of topic number ``topic``; None: no override."""

    def set_topic_unclean(self, topic: int, value: bool | None) -> None: ...
    def update_broker(self, broker: RegisteredBroker) -> bool:
        """Update a broker from its registration, or add a new one; costs its directories.

        Returns False, without an update, if the broker has other directories than before, or is new
        while `knows_directories` is false: then call `take_brokers`.
        """

    def take_brokers(self, brokers: Iterable[RegisteredBroker]) -> None:
        """Replace all known brokers by these registered ones."""

    def row_rules(self) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint8]]:
        """Return the inputs of decisions about each row, for sweeps over many outages.

        ``candidates`` u64 [n]: bit i is set if replica i may lead now (it is active, and its
        directory online; of a duplicate broker the first counts). ``min_isr`` i32 [n]:
        min.insync.replicas, at most the replication factor of the topic's first partition.
        ``unclean`` u8 [n]: 1 if unclean elections are allowed. 0 in rows without a partition. Costs
        a pass over the table. Raises CorruptRecordError as ``ensure_checked`` does.
        """

    def remove_from_isr(
        self,
        builder: BatchBuilder,
        brokers: Iterable[int],
        *,
        and_elr: bool = False,
        unclean_shutdown: bool = False,
    ) -> int:
        """Remove brokers from every ISR, elect leaders in their place, return the record count.

        For brokers that are fenced or shut down. ``and_elr``: include rows with one of them in the
        ELR, as for an unregistered broker. ``unclean_shutdown``: remove them from the ELRs as well.
        All brokers leave at once, with one record a partition. Costs the rows that the brokers
        hold, not those of the cluster.
        """

    def remove_directory(self, builder: BatchBuilder, broker: int, directory: bytes) -> int:
        """Remove ``broker`` from the ISRs of its replicas in an offline directory.

        Returns the number of records.
        """

    def elect_leaderless(
        self, builder: BatchBuilder, unfenced: int, rows: ArrayLike | None = None
    ) -> None:
        """Hold an election for every partition without a leader, or for those among ``rows``.

        The broker ``unfenced`` may lead although its registration is still fenced. Each row that
        has no leader afterwards has no active replica that may be elected.
        """

    @overload
    def elect_preferred(
        self, builder: BatchBuilder, rows: None = None, *, limit: int = ...
    ) -> int: ...
    @overload
    def elect_preferred(
        self, builder: BatchBuilder, rows: ArrayLike, *, limit: int = ...
    ) -> NDArray[np.int8]:
        """Elect the first replica of each partition, where it can lead; at most ``limit`` records.

        Without ``rows`` for every partition with another leader, and returns the number of records;
        else returns for each row 1 if it has a record, else 0. Raises `InvalidRequestError` for a
        row without a partition.
        """

    @overload
    def elect_unclean(
        self, builder: BatchBuilder, rows: None = None, *, limit: int = ...
    ) -> int: ...
    @overload
    def elect_unclean(
        self, builder: BatchBuilder, rows: ArrayLike, *, limit: int = ...
    ) -> NDArray[np.int8]:
        """Elect leaders for leaderless partitions, also replicas that are not in sync.

        Otherwise as `elect_preferred`. Without ``rows`` only where the topic allows it.
        """

    @overload
    def expand_isrs(self, builder: BatchBuilder, rows: None = None) -> int: ...
    @overload
    def expand_isrs(self, builder: BatchBuilder, rows: ArrayLike) -> NDArray[np.int8]:
        """Add every active replica to its ISR, as if each leader had sent AlterPartition.

        The active members come first, in their order, then the others in the order of the replicas;
        the leader's recovery ends. Reassignments that only wait for these replicas complete.
        Partitions without an active leader do not change.
        """

    def alter_partition(
        self, builder: BatchBuilder, row: int, isr: Sequence[int], recovery: int
    ) -> tuple[int, int, int, tuple[int, ...], int] | None:
        """Set the ISR and the recovery state that a leader requested, without checks.

        Returns the new leader, leader epoch, partition epoch, ISR and recovery state; None if
        nothing changes.
        """

    def reassign(self, builder: BatchBuilder, row: int, replicas: Sequence[int]) -> bool:
        """Begin a reassignment to these replicas, or complete it at once if no replica must catch
        up.

        Returns False if nothing changes. Raises `InvalidReplicaAssignmentError` for an empty list,
        a duplicate broker, or more than 64 replicas at a time.
        """

    def cancel_reassignment(self, builder: BatchBuilder, row: int) -> bool:
        """Restore the replicas before the reassignment; return False if nothing changes.

        Raises `NoReassignmentInProgressError`, and `InvalidReplicaAssignmentError` if that needs an
        unclean election and the topic forbids it.
        """
