"""AlterClientQuotas: set or remove quotas of users, client ids and addresses (KIP-546, 612)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

ALTER_CLIENT_QUOTAS = Api(49, "AlterClientQuotas", 0, 1, 1)


class QuotaEntity(Struct):
    """One part of an entity, as user "a"; a null name is the default entity of the type."""

    entity_type: str = field("string")
    entity_name: str | None = field("string", None, nullable=True)


class QuotaOp(Struct):
    key: str = field("string")
    value: float = field("float64")
    remove: bool = field("bool")


class QuotaEntry(Struct):
    entity: list[QuotaEntity] = field("[]struct", of=QuotaEntity)
    ops: list[QuotaOp] = field("[]struct", of=QuotaOp)


class AlterClientQuotasRequestData(Message, versions=(0, 1), flexible_since=1):
    entries: list[QuotaEntry] = field("[]struct", of=QuotaEntry)
    validate_only: bool = field("bool")


class QuotaEntryResult(Struct):
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    entity: list[QuotaEntity] = field("[]struct", of=QuotaEntity)


class AlterClientQuotasResponseData(Message, versions=(0, 1), flexible_since=1):
    throttle_time_ms: int = field("int32")
    entries: list[QuotaEntryResult] = field("[]struct", of=QuotaEntryResult)
