"""Every operation that sequences are made of."""

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

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for module in (brokers, heartbeats, topics, replication, configs, features, quotas, security)
    for operation in module.OPERATIONS
}
