"""UnregisterController: remove a controller's registration (KIP-1312, Kafka 4.4)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

UNREGISTER_CONTROLLER = Api(94, "UnregisterController", 0, 0, 0)


class UnregisterControllerRequestData(Message, versions=(0, 0)):
    controller_id: int = field("int32")


class UnregisterControllerResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
