"""Topics in responses of Metadata and DescribeTopicPartitions, from the columns of an image."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.images import TableImage

class ListenerBrokers:
    """The brokers of an image as the clients of one listener see them."""

    directory_count: int

    def __new__(
        cls, image: TableImage, brokers: list[tuple[int, bool, bool, Sequence[bytes]]]
    ) -> Self:
        """``brokers``: id, is fenced, has the listener, ids of online log directories.

        Each id is there once. Without directories every replica's directory counts as online.
        """
    @property
    def is_current(self) -> bool:
        """Whether the table knows no directory that it did not know when this was made."""

def partition_counts(image: TableImage, topics: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return how many partitions each topic had, by numbers of topics.

    Raises UnknownTopicOrPartitionError for a topic that did not exist.
    """

def metadata_body(
    image: TableImage,
    brokers: ListenerBrokers,
    version: int,
    topics: NDArray[np.int32],
    operations: NDArray[np.int32],
    internal: NDArray[np.int32],
    head: bytes,
    others: bytes,
    other_count: int,
    tail: bytes,
) -> bytes:
    """Return the body of a Metadata response: ``head``, the array of topics, ``tail``.

    The array has ``others``, the bytes of ``other_count`` topics, then the ``topics`` that had
    partitions. ``operations`` has the authorized operations of each topic; ``internal`` are the
    internal topics. Raises UnknownTopicOrPartitionError for a topic that did not exist,
    InvalidRequestError for arrays of different lengths or brokers of another table,
    UnsupportedVersionError.
    """

def described_topic(
    image: TableImage,
    brokers: ListenerBrokers,
    topic: int,
    is_internal: bool,
    first: int,
    limit: int,
    operations: int,
) -> tuple[bytes, int, int]:
    """Return a topic of a DescribeTopicPartitions response, its partitions, and the next one.

    Describes the partitions from ``first`` on, at most ``limit``. The next partition is -1 after
    the last one. Raises like `metadata_body`.
    """
