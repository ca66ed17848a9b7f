"""CreateAcls: add ACLs (KIP-140, 290)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

CREATE_ACLS = Api(30, "CreateAcls", 1, 3, 2)


class AclCreation(Struct):
    resource_type: int = field("int8")
    resource_name: str = field("string")
    # 3 is a literal name.
    resource_pattern_type: int = field("int8", 3)
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


class CreateAclsRequestData(Message, versions=(1, 3), flexible_since=2):
    creations: list[AclCreation] = field("[]struct", of=AclCreation)


class AclCreationResult(Struct):
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


class CreateAclsResponseData(Message, versions=(1, 3), flexible_since=2):
    throttle_time_ms: int = field("int32")
    results: list[AclCreationResult] = field("[]struct", of=AclCreationResult)
