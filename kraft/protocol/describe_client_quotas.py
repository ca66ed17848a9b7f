"""DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546). Brokers only."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.alter_client_quotas import QuotaEntity
from kraft.protocol.headers import Api

DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", 0, 1, 1)


class QuotaComponent(Struct):
    """The filter of one type of entity."""

    entity_type: str = field("string")
    # 0: the entity with this name, 1: the default entity, 2: any entity of the type.
    match_type: int = field("int8")
    match: str | None = field("string", None, nullable=True)


class DescribeClientQuotasRequestData(Message, versions=(0, 1), flexible_since=1):
    components: list[QuotaComponent] = field("[]struct", of=QuotaComponent)
    # Whether an entity with other types than the components does not match.
    strict: bool = field("bool")


class QuotaValue(Struct):
    key: str = field("string")
    value: float = field("float64")


class DescribedQuotas(Struct):
    entity: list[QuotaEntity] = field("[]struct", of=QuotaEntity)
    values: list[QuotaValue] = field("[]struct", of=QuotaValue)


class DescribeClientQuotasResponseData(Message, versions=(0, 1), flexible_since=1):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    # Null with an error.
    entries: list[DescribedQuotas] | None = field(
        "[]struct", None, nullable=True, of=DescribedQuotas
    )
