"""Read replicas: which replica a leader names to a consumer of a rack (KIP-392).

Rules: ``ReplicaManager.findPreferredReadReplica``, ``RackAwareReplicaSelector``.
"""

from __future__ import annotations

from kraft.broker.replication.context import ReplicationContext
from kraft.broker.replication.partition import HostedPartition


def preferred_read_replica(
    partition: HostedPartition, rack: str, fetch_offset: int, context: ReplicationContext
) -> int | None:
    """Return the in-sync replica of ``rack`` that has most records; None: read from this broker.

    The leader of that rack comes first. A replica must have the offset: its end may be behind the
    leader's, its start before it.
    """
    leading, brokers = partition.leading, context.brokers
    if leading is None or brokers.rack_of(context.broker_id) == rack:
        return None
    found: tuple[int, int] | None = None
    for id, progress in leading.followers.items():
        if (
            id in leading.isr
            and progress.start_offset <= fetch_offset <= progress.end_offset
            and brokers.rack_of(id) == rack
            and (found is None or progress.end_offset > found[0])
        ):
            found = progress.end_offset, id
    return None if found is None else found[1]
