"""``Health``: masks over the rows of the partition table for partitions that need attention.

Implements the rules of ``kafka-topics --describe`` with ``--under-replicated-partitions`` and the
like (Kafka's ``TopicCommand.PartitionDescription``), each in one pass over columns. Called by the
command line and the lab; the rows of removed topics are never marked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kraft.image.configs import TOPIC
from kraft.metadata.arguments import instance_of

if TYPE_CHECKING:
    from kraft.metadata.facade import Metadata

Mask = NDArray[np.bool_]

MIN_ISR = "min.insync.replicas"
_DEFAULT_MIN_ISR = 1


class Health:
    """The health of every partition of ``metadata`` when this object was made: bool (n,) masks."""

    def __init__(self, metadata: Metadata) -> None:
        # Imported here, as the facade imports this package's lower modules.
        from kraft.metadata.facade import Metadata

        self._metadata = instance_of(metadata, Metadata, "metadata")
        partitions = metadata.partitions
        self.live: Mask = partitions.live
        self._leader: NDArray[np.int32] = partitions.leader
        self._isr_size = partitions.isr_size()

    @property
    def without_leader(self) -> Mask:
        """The partition has no leader."""
        return self.live & (self._leader < 0)

    @property
    def unavailable(self) -> Mask:
        """The leader is missing, fenced or not registered."""
        brokers = self._metadata.brokers.values()
        unfenced = np.array([each.id for each in brokers if not each.fenced], np.int32)
        return self.live & ~np.isin(self._leader, unfenced)

    @property
    def reassigning(self) -> Mask:
        """Replicas are being added or removed."""
        partitions = self._metadata.partitions
        mask = np.zeros(len(self.live), np.bool_)
        # Only irregular rows can have a reassignment in flight.
        for row in partitions.irregular_rows:
            info = partitions.row(int(row))
            mask[row] = bool(info.adding_replicas or info.removing_replicas)
        return mask

    @property
    def under_replicated(self) -> Mask:
        """Fewer replicas are in sync than the replication factor.

        During a reassignment the factor does not count the replicas that are being added.
        """
        partitions = self._metadata.partitions
        factor = partitions.replica_count()
        for row in partitions.irregular_rows:
            factor[row] -= len(partitions.row(int(row)).adding_replicas)
        return self.live & (factor > self._isr_size)

    @property
    def under_min_isr(self) -> Mask:
        """There is no leader, or fewer replicas are in sync than ``min.insync.replicas``."""
        return self.live & ((self._leader < 0) | (self._isr_size < self.min_isr))

    @property
    def at_min_isr(self) -> Mask:
        """Exactly ``min.insync.replicas`` replicas are in sync: losing one stops writes."""
        return np.asarray(self.live & (self._isr_size == self.min_isr))

    @property
    def min_isr(self) -> NDArray[np.int32]:
        """``min.insync.replicas`` of each row: the topic's own, else the cluster's default, else 1:
        i32 (n,).

        A broker's own configuration file is not in the metadata and does not count.
        """
        metadata = self._metadata
        topic = metadata.partitions.topic
        default = _number(metadata.configs.cluster_default().get(MIN_ISR), _DEFAULT_MIN_ISR)
        by_topic = np.full(int(topic.max(initial=-1)) + 1, default, np.int32)
        for (resource_type, name), settings in metadata.configs.items():
            if resource_type == TOPIC and MIN_ISR in settings and name in metadata.topics:
                number = metadata.topics[name].number
                # A topic without partitions may have a number beyond every row's.
                if number < len(by_topic):
                    by_topic[number] = _number(settings[MIN_ISR], default)
        if len(by_topic) == 0:
            return np.zeros(len(topic), np.int32)
        return np.asarray(by_topic[topic])


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default
