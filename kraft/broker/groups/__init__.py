"""Classic consumer groups and their committed offsets, stored in ``__consumer_offsets``.

Pure: no socket, file, clock or random source. A broker makes one `GroupCoordinators`, tells it the
partitions that it leads, and gives it requests, times and high watermarks; each returns the replies
that are ready. The design is that of Apache Kafka 4.3's group coordinator.

- ``service``: all partitions of a broker; ``coordinator``: one partition, its records and replies.
- ``membership`` and ``rebalance``: members and generations; ``offsets``: committed offsets.
- ``group``, ``member``, ``group_table``, ``offset_store``: the state; ``replay``: how it is loaded.
- ``requests``: the messages that a coordinator takes and returns; ``records``: the topic's records.
"""

from __future__ import annotations

from kraft.broker.groups.config import GroupCoordinatorConfig
from kraft.broker.groups.coordinator import CoordinatorState, GroupCoordinator, OffsetsLog
from kraft.broker.groups.errors import GroupError
from kraft.broker.groups.listing import GroupListing
from kraft.broker.groups.partitioning import OFFSETS_TOPIC, partition_of_group
from kraft.broker.groups.requests import ClientContext
from kraft.broker.groups.service import GroupCoordinators
from kraft.broker.groups.writes import GroupReply

__all__ = [
    "OFFSETS_TOPIC",
    "ClientContext",
    "CoordinatorState",
    "GroupCoordinator",
    "GroupCoordinatorConfig",
    "GroupCoordinators",
    "GroupError",
    "GroupListing",
    "GroupReply",
    "OffsetsLog",
    "partition_of_group",
]
