"""Replica placement of new partitions: Kafka's striped, rack-aware placer, same random draws."""

from collections.abc import Iterator, MutableSequence, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

MIGRATING_DIRECTORY: Final[bytes]
"""The directory id for a broker that has not reported its directories (KIP-858), 16 bytes."""

UNASSIGNED_DIRECTORY: Final[bytes]
"""The directory id for a replica whose broker has not chosen one yet (KIP-858), 16 bytes."""

class PlacementSpec(NamedTuple):
    """The partitions to place: ``num_partitions`` of one topic, from id ``start_partition`` on.

    The striped placer ignores ``start_partition``, as Kafka's does.
    """

    start_partition: int
    num_partitions: int
    replication_factor: int

class UsableBroker(NamedTuple):
    """A broker on which replicas can be placed.

    In Kafka these are the registered brokers, including fenced ones, that are not in controlled
    shutdown and have a directory that is not cordoned (BrokerHeartbeatManager.usableBrokers).
    ``directories`` are the 16-byte ids of its online log directories.
    """

    id: int
    rack: str | None = None
    fenced: bool = False
    directories: tuple[bytes, ...] = ()

class UsableBrokers(Sequence[UsableBroker]):
    """The usable brokers of a cluster, grouped by rack once for many placements. Immutable.

    The order of the brokers matters only if two racks share a bucket of a Java HashMap: then the
    rack of the first broker is shuffled first.

    Raises InvalidRequestError for an id below 0 or above 2**31 - 1, or for a duplicate.
    """

    @property
    def brokers(self) -> tuple[UsableBroker, ...]: ...
    @property
    def unfenced_count(self) -> int: ...
    def __init__(self, brokers: Sequence[UsableBroker]) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, at: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[UsableBroker]: ...

@runtime_checkable
class ReplicaPlacer(Protocol):
    """Chooses the brokers of new partitions (Kafka's ReplicaPlacer)."""

    def place(self, placement: PlacementSpec, cluster: Sequence[UsableBroker]) -> NDArray[np.int32]:
        """Return the replicas of each partition: int32 (num_partitions, replication_factor).

        Column 0 is the preferred leader; the brokers of a row are distinct. Raises
        InvalidReplicationFactorError if the cluster has too few brokers.
        """

class JavaRandom:
    """The generator of java.util.Random: 48 bits of state, one multiplication a draw.

    ``seed`` is any int, of which Java uses the low 48 bits. Not thread-safe.
    """

    def __init__(self, seed: int) -> None: ...
    def next_int(self, bound: int | None = None) -> int:
        """Return Random.nextInt(): any signed 32-bit int, or with ``bound`` one of 0 .. bound - 1.

        Raises ValueError unless ``bound`` is between 1 and 2**31 - 1.
        """

    def shuffle(self, values: MutableSequence[Any]) -> None:
        """Shuffle in place as Collections.shuffle does for a random-access list, same draws."""

class StripedPlacer:
    """Kafka's default placement (StripedReplicaPlacer).

    Stripes partitions over the racks, and over the brokers within each rack. Leaders are unfenced
    brokers; a fenced broker gets a follower only if its rack has no unfenced broker left.
    """

    @property
    def random(self) -> JavaRandom: ...
    def __init__(self, random: JavaRandom) -> None: ...
    def place(self, placement: PlacementSpec, cluster: Sequence[UsableBroker]) -> NDArray[np.int32]:
        """Return the replicas of each partition: int32 (num_partitions, replication_factor).

        Equals Kafka's result for the same state of ``random``, which advances as in Kafka, also for
        a rejected request. Runs without the GIL; a ``UsableBrokers`` as ``cluster`` saves the
        grouping of the brokers.

        Raises InvalidReplicationFactorError for a replication factor below 1 or above the number of
        brokers, or if all brokers are fenced; InvalidPartitionsError for a negative number of
        partitions; InvalidRequestError for brokers that ``UsableBrokers`` rejects.
        """

def default_directory(directories: Sequence[bytes]) -> bytes:
    """Return the directory id of a new replica on a broker with these directories.

    The only one; ``UNASSIGNED_DIRECTORY`` if it has several, because the broker chooses then;
    ``MIGRATING_DIRECTORY`` if it reported none (ClusterControlManager.defaultDir).
    """

def default_directories(
    replicas: NDArray[np.int32], cluster: Sequence[UsableBroker]
) -> tuple[list[bytes], NDArray[np.int32]]:
    """Return the default directory of every replica of a placement, without an object a replica.

    Returns the distinct directory ids, ``UNASSIGNED_DIRECTORY`` first, and an int32 array of
    indexes into them, shaped as ``replicas``. A replica whose broker is not in ``cluster`` is
    unassigned, as in Kafka.
    """
