"""ControllerRegistration: a controller reports its listeners and features (KIP-919)."""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.headers import Api

CONTROLLER_REGISTRATION = Api(70, "ControllerRegistration", 0, 0, 0)


class ControllerRegistrationRequestData(Message, versions=(0, 0)):
    controller_id: int = field("int32")
    # Drawn at each start of the controller's process.
    incarnation_id: Uuid = field("uuid")
    zk_migration_ready: bool = field("bool")
    listeners: list[AdvertisedListener] = field("[]struct", of=AdvertisedListener)
    features: list[SupportedFeatureRange] = field("[]struct", of=SupportedFeatureRange)


class ControllerRegistrationResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
