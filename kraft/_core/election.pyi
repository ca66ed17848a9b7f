"""Who leads, and who is in sync, after brokers come and go: Kafka's rules over many rows.

Rules: ``PartitionChangeBuilder``, ``ReplicationControlManager``, ``PartitionReassignmentReplicas``,
``PartitionReassignmentRevert`` of Kafka 4.3.1; KIP-966 (ELR), KIP-858 (directories).
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kraft._core.batch import BatchBuilder
from kraft._core.election_rules import ElectionRules
from kraft._core.table import PartitionTable

class RegisteredBroker(Protocol):
    """What an election asks of a registration (``kraft.image.BrokerRegistration`` has it)."""

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
    """The brokers, directories and switches that decisions about a table's partitions look at.

    Every method emits PartitionChange records into a ``BatchBuilder``, in the order of the rows (of
    the argument where rows are given), at most one for each row, and changes nothing else. All look
    at the state that the table has when they are called. Brokers are active where they are
    registered, not fenced and not in controlled shutdown. Not for use by two threads at a time.
    A context may be kept while the cluster goes on, if it is told what changed.

    Raises `InvalidRequestError` where a directory id has not 16 bytes, `UnsupportedVersionError`
    for a ``metadata_version`` below 1.
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
        for topics that the mappings, by topic number, do not name.
        """

    is_numbered: bool
    """Whether the numbers of topics are those by which the overrides were set: a compaction of the
    table gives out others, and this context is then of no use.
    """
    knows_directories: bool
    """Whether every directory that the table has interned was looked at by `take_brokers`."""

    def set_defaults(self, min_isr: int, unclean: bool) -> None:
        """What holds for topics that set nothing themselves."""

    def set_topic_min_isr(self, topic: int, value: int | None) -> None:
        """What topic number ``topic`` sets itself, None for nothing."""

    def set_topic_unclean(self, topic: int, value: bool | None) -> None: ...
    def update_broker(self, broker: RegisteredBroker) -> bool:
        """Takes over what a registration now says; False, and nothing done, where it names other
        directories than before or is new: that takes `take_brokers`.
        """

    def take_brokers(self, brokers: Iterable[RegisteredBroker]) -> None:
        """The registered brokers, in the place of those that were known."""

    def row_rules(self) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint8]]:
        """What decisions about each row of the table go by, for sweeps over many outages.

        ``candidates`` u64 [n]: bit i is set where replica i may lead as things are (it is active,
        and its directory online; where a broker is named twice, the first time counts).
        ``min_isr`` i32 [n]: min.insync.replicas, at most the replication factor of the topic's
        first partition. ``unclean`` u8 [n]: 1 where unclean elections are allowed. 0 in rows that
        hold no partition. Costs a pass over the table. Raises CorruptRecordError as
        ``ensure_checked`` does.
        """

    def remove_from_isr(
        self,
        builder: BatchBuilder,
        brokers: Iterable[int],
        *,
        and_elr: bool = False,
        unclean_shutdown: bool = False,
    ) -> int:
        """Takes brokers out of every ISR and elects where one of them leads; how many records.

        As when a broker is fenced or shuts down. ``and_elr``: rows that name one in the ELR are
        looked at too, as when it is unregistered. ``unclean_shutdown``: they leave the ELRs as
        well. Several brokers leave at once: one record a partition. Costs the rows that the brokers
        hold, not those of the cluster.
        """

    def remove_directory(self, builder: BatchBuilder, broker: int, directory: bytes) -> int:
        """Takes ``broker`` out of the ISRs of what lies in its offline directory; how many
        records.
        """

    def elect_leaderless(self, builder: BatchBuilder, unfenced: int | None = None) -> int:
        """An election for every partition without a leader; how many records.

        The broker ``unfenced`` may lead although its registration says that it is fenced.
        """

    @overload
    def elect_preferred(
        self, builder: BatchBuilder, rows: None = None, *, limit: int = ...
    ) -> int: ...
    @overload
    def elect_preferred(
        self, builder: BatchBuilder, rows: ArrayLike, *, limit: int = ...
    ) -> NDArray[np.int8]:
        """The first replica leads again where it can; at most ``limit`` records.

        Without ``rows`` for every partition that another one leads, and gives how many records;
        else gives for each row 1 where there is a record and 0 where not. Raises
        `InvalidRequestError` for a row that holds no partition.
        """

    @overload
    def elect_unclean(
        self, builder: BatchBuilder, rows: None = None, *, limit: int = ...
    ) -> int: ...
    @overload
    def elect_unclean(
        self, builder: BatchBuilder, rows: ArrayLike, *, limit: int = ...
    ) -> NDArray[np.int8]:
        """Leaders for leaderless partitions, out of sync ones if need be; as `elect_preferred`.

        Without ``rows`` only where the topic allows it.
        """

    @overload
    def expand_isrs(self, builder: BatchBuilder, rows: None = None) -> int: ...
    @overload
    def expand_isrs(self, builder: BatchBuilder, rows: ArrayLike) -> NDArray[np.int8]:
        """Every replica that is alive joins its ISR, as if each leader had sent AlterPartition.

        The members that are alive come first, in their order, then the others in that of the
        replicas; the recovery of the leader is over. Reassignments that wait for nothing else
        complete. Partitions without an active leader stay as they are.
        """

    def alter_partition(
        self, builder: BatchBuilder, row: int, isr: Sequence[int], recovery: int
    ) -> tuple[int, int, int, tuple[int, ...], int] | None:
        """The ISR and the recovery state that a leader asks for, unchecked.

        Gives the leader, its epoch, the partition's epoch, the ISR and the recovery state as they
        then are; None: no record, and nothing changes.
        """

    def reassign(self, builder: BatchBuilder, row: int, replicas: Sequence[int]) -> bool:
        """A reassignment to these replicas begins, or is done where nothing need be waited for.

        False where nothing changes. Raises `InvalidReplicaAssignmentError` for an empty list, a
        broker that is named twice, or more than 64 replicas at a time.
        """

    def cancel_reassignment(self, builder: BatchBuilder, row: int) -> bool:
        """The replicas are again those before the reassignment; False where nothing changes.

        Raises `NoReassignmentInProgressError`, and `InvalidReplicaAssignmentError` where that would
        take an unclean election and the topic forbids it.
        """
