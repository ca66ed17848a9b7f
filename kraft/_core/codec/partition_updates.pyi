"""Partitions in the requests of controllers of the ZooKeeper era, and the answers of brokers.

partition_updates.pyx has the layouts. A partition is the key (topic, partition number); an update
is a named tuple (leadership, replicas, is new, offline replicas), and a leadership one of (leader,
leader epoch, ISR, controller epoch, version of the znode), with tuples of broker ids.
"""

from typing import TypeVar

from typing_extensions import Buffer

PLAIN: int
NEW_REPLICAS: int
OFFLINE_REPLICAS: int

_U = TypeVar("_U", bound=tuple[object, ...])
_Key = tuple[str, int]

def decode_updates(
    body: Buffer, layout: int, update_type: type[_U], leadership_type: type[tuple[object, ...]]
) -> tuple[int, int, dict[_Key, _U], int]:
    """Return controller id, controller epoch, updates, and the position after them.

    Raises CorruptRecordError with the position where the bytes end early or are malformed.
    """

def encode_updates(
    controller_id: int, controller_epoch: int, updates: dict[_Key, _U], layout: int
) -> bytes:
    """Return the body of a request up to the end of its partitions.

    Raises OverflowError for a number of more than 32 bits, InvalidRequestError for a topic of more
    than 32767 bytes.
    """

def decode_results(body: Buffer) -> tuple[int, dict[_Key, int]]:
    """Return the error of a response and the error of each partition. Raises CorruptRecordError."""

def encode_results(error: int, results: dict[_Key, int]) -> bytes:
    """Return a broker's answer. Raises as `encode_updates`."""

def apply_metadata(
    metadata: dict[_Key, _U], updates: dict[_Key, _U], leader_counts: dict[int, int], deleted: int
) -> int:
    """Replace the metadata of partitions, and drop those whose leader is ``deleted``.

    ``leader_counts`` are the partitions in ``metadata`` by leader. Return by how much the number of
    partitions with a replica out of sync has grown.
    """
