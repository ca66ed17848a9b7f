"""InitProducerId: a new producer id for an idempotent producer, or the next epoch of its id.

Version 6, for two-phase commits of transactions, is unstable in Kafka 4.3.1 and left out. Sources:
``InitProducerIdRequest``, ``InitProducerIdResponse``; KIP-98, KIP-360.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.headers import Api

INIT_PRODUCER_ID = Api(22, "InitProducerId", 0, 5, 2)


class InitProducerIdRequestData(Message, versions=(0, 5), flexible_since=2):
    # Null for a producer without transactions.
    transactional_id: str | None = field("string", None, nullable=True)
    transaction_timeout_ms: int = field("int32")
    producer_id: int = field("int64", -1, since=3)
    producer_epoch: int = field("int16", -1, since=3)


class InitProducerIdResponseData(Message, versions=(0, 5), flexible_since=2):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    producer_id: int = field("int64", -1)
    producer_epoch: int = field("int16")
