"""Where the replicas of new partitions go: Kafka's striped, rack-aware placement, draw for draw."""

from collections.abc import Iterator, MutableSequence, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

MIGRATING_DIRECTORY: Final[bytes]
"""The id that stands for the directories of a broker that has not told them (KIP-858), 16 bytes."""

UNASSIGNED_DIRECTORY: Final[bytes]
"""The id that stands for a directory that the broker is still to choose (KIP-858), 16 bytes."""

class PlacementSpec(NamedTuple):
    """What is to be placed: ``num_partitions`` of one topic, from number ``start_partition`` on.

    ``start_partition`` is for placements that look at it; the striped one does not, as Kafka's.
    """

    start_partition: int
    num_partitions: int
    replication_factor: int

class UsableBroker(NamedTuple):
    """A broker that may be given replicas.

    Usable are, in Kafka, the registered brokers, fenced ones included, that are not in controlled
    shutdown and have a directory that is not cordoned (BrokerHeartbeatManager.usableBrokers).
    ``directories`` are the 16-byte ids of its online log directories.
    """

    id: int
    rack: str | None = None
    fenced: bool = False
    directories: tuple[bytes, ...] = ()

class UsableBrokers(Sequence[UsableBroker]):
    """The usable brokers of a cluster, grouped by rack once, to place many topics on. Immutable.

    The order of the brokers matters only where two racks meet in one bucket of a Java HashMap: then
    the rack whose broker comes first is shuffled first.

    Raises InvalidRequestError for an id below 0 or above 2**31 - 1, or one that is listed twice.
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
        """The replicas of each partition: int32 (num_partitions, replication_factor).

        Column 0 is the preferred leader; a row holds no broker twice. Raises
        InvalidReplicationFactorError where the cluster cannot hold that many replicas.
        """

class JavaRandom:
    """The generator of java.util.Random: 48 bits of state, one multiplication a draw.

    ``seed`` is any int; as in Java its low 48 bits count. Not for use by two threads at a time.
    """

    def __init__(self, seed: int) -> None: ...
    def next_int(self, bound: int | None = None) -> int:
        """Random.nextInt(): any 32-bit signed int; with ``bound`` one of 0 .. bound - 1.

        Raises ValueError unless ``bound`` is between 1 and 2**31 - 1.
        """

    def shuffle(self, values: MutableSequence[Any]) -> None:
        """Collections.shuffle of a list with random access, in place, with the same draws."""

class StripedPlacer:
    """Kafka's default placement (StripedReplicaPlacer).

    Partitions are striped over the racks, and over the brokers within each rack; leaders are
    unfenced brokers, and a fenced broker gets a follower only where its rack has no other to give.
    """

    @property
    def random(self) -> JavaRandom: ...
    def __init__(self, random: JavaRandom) -> None: ...
    def place(self, placement: PlacementSpec, cluster: Sequence[UsableBroker]) -> NDArray[np.int32]:
        """The replicas of each partition: int32 (num_partitions, replication_factor), C order.

        The same as Kafka's for the same state of ``random``, which moves on as Kafka's does, also
        where the request is refused. Runs outside the GIL; a ``UsableBrokers`` as ``cluster``
        spares the grouping of the brokers.

        Raises InvalidReplicationFactorError for a replication factor below 1 or above the number of
        brokers, or where all brokers are fenced; InvalidPartitionsError for a negative number of
        partitions; InvalidRequestError for brokers that ``UsableBrokers`` refuses.
        """

def default_directory(directories: Sequence[bytes]) -> bytes:
    """The directory that the record of a new replica names, of a broker with these directories.

    Its only one; ``UNASSIGNED_DIRECTORY`` where it has several, as the broker chooses then;
    ``MIGRATING_DIRECTORY`` where it has told none (ClusterControlManager.defaultDir).
    """

def default_directories(
    replicas: NDArray[np.int32], cluster: Sequence[UsableBroker]
) -> tuple[list[bytes], NDArray[np.int32]]:
    """The default directory of every replica of a placement, without an object a replica.

    Gives the distinct directory ids, ``UNASSIGNED_DIRECTORY`` first, and an int32 array shaped as
    ``replicas`` of indexes into them. A replica whose broker is not in ``cluster`` is unassigned,
    as in Kafka.
    """
