"""Heartbeat: a member of a classic group stays in it, and learns of a rebalance.

Source: ``HeartbeatRequest``, ``HeartbeatResponse`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

HEARTBEAT = Api(12, "Heartbeat", 0, 4, 4)


class HeartbeatRequestData(Message, versions=(0, 4), flexible_since=4):
    group_id: str = field("string")
    generation_id: int = field("int32")
    member_id: str = field("string")
    group_instance_id: str | None = field("string", None, since=3, nullable=True)


class HeartbeatResponseData(Message, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = field("int32", since=1, ignorable=True)
    error_code: int = field("int16")
