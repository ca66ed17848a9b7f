"""Every operation that sequences are made of."""

from __future__ import annotations

from tests.differential import brokers, configs, replication, topics
from tests.differential.operation import Operation

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for module in (brokers, topics, replication, configs)
    for operation in module.OPERATIONS
}
