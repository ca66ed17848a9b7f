"""AllocateProducerIds: allocate producer ids to brokers in blocks of a thousand.

Source: Kafka's ``ProducerIdControlManager`` (4.3.1).

Invariant: blocks are allocated in ascending order and never twice; `kraft.image` rejects a record
that goes back.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft import records
from kraft.controller.brokers.broker_lifecycle import check_broker_epoch
from kraft.controller.decision import Decision, Records
from kraft.controller.state import ClusterMetadata
from kraft.errors import ProducerIdsExhaustedError

#: The number of ids of a block.
BLOCK_SIZE = 1_000

_LAST_ID = (1 << 63) - 1


class ProducerIdBlock(NamedTuple):
    """A block of ``size`` ids from ``first`` on."""

    first: int
    size: int


def allocate_producer_ids(
    cluster: ClusterMetadata, broker_id: int, broker_epoch: int
) -> Decision[ProducerIdBlock]:
    """Allocate the next block to a broker; unused ids of a block are lost.

    Raises StaleBrokerEpochError, and ProducerIdsExhaustedError if no whole block is left.
    """
    check_broker_epoch(cluster, broker_id, broker_epoch)
    first = max(cluster.state.next_producer_id, 0)
    if first > _LAST_ID - BLOCK_SIZE:
        raise ProducerIdsExhaustedError(
            f"the next block of producer ids would begin at {first} and go beyond 64 bits"
        )
    record = records.ProducerIds(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    level = cluster.state.metadata_version
    return Decision(Records.of([record], level), ProducerIdBlock(first, BLOCK_SIZE))
