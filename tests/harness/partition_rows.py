"""The partitions of a cluster as rows, read one by one: what Arrow and Spark must return."""

from __future__ import annotations

from typing import Any

from kraft.metadata.facade import Metadata


def partition_rows(metadata: Metadata) -> list[dict[str, Any]]:
    """Return every partition as a dict, read one by one from ``Partitions.row``."""
    return [
        {
            "topic": info.topic,
            "topic_id": str(metadata.topics[info.topic].id),
            "partition": info.partition,
            "leader": info.leader,
            "leader_epoch": info.leader_epoch,
            "partition_epoch": info.partition_epoch,
            "leader_recovery_state": info.leader_recovery_state,
            "replicas": list(info.replicas),
            "isr": list(info.isr),
            "elr": list(info.elr),
            "last_known_elr": list(info.last_known_elr),
            "adding_replicas": list(info.adding_replicas),
            "removing_replicas": list(info.removing_replicas),
            "directories": [str(each) for each in info.directories],
        }
        for info in metadata.partitions
    ]
