"""FindCoordinator: the brokers that coordinate groups or transactions.

A request of version 4 or later has several keys, and the response a coordinator for each. Source:
``FindCoordinatorRequest``, ``FindCoordinatorResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

FIND_COORDINATOR = Api(10, "FindCoordinator", 0, 6, 3)


class FindCoordinatorRequestData(Message, versions=(0, 6), flexible_since=3):
    key: str = field("string", until=3)
    # 0: a group; 1: a transactional id; 2: a share group's partition.
    key_type: int = field("int8", since=1)
    coordinator_keys: list[str] = field("[]string", since=4)


class CoordinatorData(Struct):
    key: str = field("string")
    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


class FindCoordinatorResponseData(Message, versions=(0, 6), flexible_since=3):
    throttle_time_ms: int = field("int32", since=1, ignorable=True)
    error_code: int = field("int16", until=3)
    error_message: str | None = field(
        "string", None, since=1, until=3, nullable=True, ignorable=True
    )
    node_id: int = field("int32", until=3)
    host: str = field("string", until=3)
    port: int = field("int32", until=3)
    coordinators: list[CoordinatorData] = field("[]struct", since=4, of=CoordinatorData)
