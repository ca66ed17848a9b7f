"""Partitions as an Arrow table; needs ``pyarrow`` (the extra ``kraft[arrow]``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft._core.table import PartitionTable
from kraft.metadata.partitions import Partitions


def partitions_to_arrow(table: PartitionTable, partitions: Partitions) -> pa.Table:
    """One row a live partition: topic (dictionary), scalars without copying where no row is dead,
    lists.
    """
    live = partitions.live
    everything = bool(live.all())

    def column(name: str) -> pa.Array:
        values = table.column(name)
        return pa.array(values if everything else values[live])

    def lists(members: NDArray[np.int32]) -> pa.Array:
        rows = members if everything else members[live]
        present = rows >= 0
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(present.sum(axis=1), out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows[present]))

    numbers = table.topic_numbers()
    dense = np.full(max(numbers, default=-1) + 1, -1, np.int32)
    dense[numbers] = np.arange(len(numbers), dtype=np.int32)
    topics = table.column("topic")
    topics = dense[topics if everything else topics[live]]
    names = pa.array([table.topic_name(number) for number in numbers], pa.string())
    return pa.table(
        {
            "topic": pa.DictionaryArray.from_arrays(pa.array(topics), names),
            "partition": column("partition"),
            "leader": column("leader"),
            "leader_epoch": column("leader_epoch"),
            "partition_epoch": column("partition_epoch"),
            "leader_recovery_state": column("leader_recovery_state"),
            "replicas": lists(partitions.replica_matrix()),
            "isr": lists(partitions.members("isr")),
            "elr": lists(partitions.members("elr")),
            "last_known_elr": lists(partitions.members("last_known_elr")),
        }
    )
