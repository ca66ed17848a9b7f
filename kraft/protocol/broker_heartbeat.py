"""BrokerHeartbeat: a broker keeps its session, is unfenced or shuts down (KIP-631, 858, 1066)."""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

BROKER_HEARTBEAT = Api(63, "BrokerHeartbeat", 0, 2, 0)


class BrokerHeartbeatRequestData(Message, versions=(0, 2)):
    broker_id: int = field("int32")
    broker_epoch: int = field("int64", -1)
    current_metadata_offset: int = field("int64")
    want_fence: bool = field("bool")
    want_shut_down: bool = field("bool")
    offline_log_dirs: list[Uuid] = field("[]uuid", since=1, tag=0)
    # Null leaves the cordoned directories as they are.
    cordoned_log_dirs: list[Uuid] | None = field("[]uuid", None, since=2, tag=1, nullable=True)


class BrokerHeartbeatResponseData(Message, versions=(0, 2)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    # The broker has applied the record of its registration.
    is_caught_up: bool = field("bool")
    is_fenced: bool = field("bool", True)
    should_shut_down: bool = field("bool")
