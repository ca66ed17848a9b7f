"""AllocateProducerIds: a broker gets a block of producer ids (KIP-730)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

ALLOCATE_PRODUCER_IDS = Api(67, "AllocateProducerIds", 0, 0, 0)


class AllocateProducerIdsRequestData(Message, versions=(0, 0)):
    broker_id: int = field("int32")
    broker_epoch: int = field("int64", -1)


class AllocateProducerIdsResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    producer_id_start: int = field("int64")
    producer_id_len: int = field("int32")
