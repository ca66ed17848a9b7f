"""BrokerRegistration: a broker joins the cluster and gets its epoch (KIP-631, 866, 858, 966)."""

from __future__ import annotations

from kraft._core.codec.message_schema import Uuid, field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.headers import Api

BROKER_REGISTRATION = Api(62, "BrokerRegistration", 0, 4, 0)


class BrokerRegistrationRequestData(Message, versions=(0, 4)):
    broker_id: int = field("int32")
    cluster_id: str = field("string")
    # Drawn at each start of the broker's process.
    incarnation_id: Uuid = field("uuid")
    listeners: list[AdvertisedListener] = field("[]struct", of=AdvertisedListener)
    features: list[SupportedFeatureRange] = field("[]struct", of=SupportedFeatureRange)
    rack: str | None = field("string", None, nullable=True)
    is_migrating_zk_broker: bool = field("bool", since=1)
    log_dirs: list[Uuid] = field("[]uuid", since=2, ignorable=True)
    # The epoch before the last clean shutdown, -1 for none.
    previous_broker_epoch: int = field("int64", -1, since=3, ignorable=True)


class BrokerRegistrationResponseData(Message, versions=(0, 4)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    broker_epoch: int = field("int64", -1)
