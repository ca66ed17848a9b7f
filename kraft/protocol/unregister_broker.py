"""UnregisterBroker: remove a broker's registration (KIP-500)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

UNREGISTER_BROKER = Api(64, "UnregisterBroker", 0, 0, 0)


class UnregisterBrokerRequestData(Message, versions=(0, 0)):
    broker_id: int = field("int32")


class UnregisterBrokerResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
