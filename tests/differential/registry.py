"""The registry of all operations."""

from __future__ import annotations

from tests.differential import (
    brokers,
    configs,
    features,
    heartbeats,
    quotas,
    replication,
    security,
    topics,
)
from tests.differential.operation import Operation

#: The two groups of operations: on partitions and brokers, and on the other state of a controller.
_PARTITIONS = (brokers, heartbeats, topics, replication, configs)
_REST = (configs, features, quotas, security)

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for module in dict.fromkeys((*_PARTITIONS, *_REST))
    for operation in module.OPERATIONS
}

#: The operations of one sequence: half of all sequences use only partitions and brokers.
SUBJECTS: tuple[tuple[Operation, ...], ...] = (
    tuple(operation for module in _PARTITIONS for operation in module.OPERATIONS),
    tuple(operation for module in _PARTITIONS for operation in module.OPERATIONS),
    tuple(operation for module in _REST for operation in module.OPERATIONS),
    tuple(OPERATIONS.values()),
)
