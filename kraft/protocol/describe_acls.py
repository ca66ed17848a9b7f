"""DescribeAcls: list the ACLs that match a filter (KIP-140, 290)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DESCRIBE_ACLS = Api(29, "DescribeAcls", 1, 3, 2)


class DescribeAclsRequestData(Message, versions=(1, 3), flexible_since=2):
    """A filter; a null string matches any value."""

    resource_type_filter: int = field("int8")
    resource_name_filter: str | None = field("string", None, nullable=True)
    # 3 is a literal name.
    pattern_type_filter: int = field("int8", 3)
    principal_filter: str | None = field("string", None, nullable=True)
    host_filter: str | None = field("string", None, nullable=True)
    operation: int = field("int8")
    permission_type: int = field("int8")


class DescribedAcl(Struct):
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


class DescribedAclResource(Struct):
    """A resource and its ACLs."""

    resource_type: int = field("int8")
    resource_name: str = field("string")
    pattern_type: int = field("int8", 3)
    acls: list[DescribedAcl] = field("[]struct", of=DescribedAcl)


class DescribeAclsResponseData(Message, versions=(1, 3), flexible_since=2):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    resources: list[DescribedAclResource] = field("[]struct", of=DescribedAclResource)
