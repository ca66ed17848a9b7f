"""DeleteAcls: remove the ACLs that match filters (KIP-140, 290)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DELETE_ACLS = Api(31, "DeleteAcls", 1, 3, 2)


class DeleteAclsFilter(Struct):
    """A filter; a null string matches any value."""

    resource_type_filter: int = field("int8")
    resource_name_filter: str | None = field("string", None, nullable=True)
    # 3 is a literal name.
    pattern_type_filter: int = field("int8", 3)
    principal_filter: str | None = field("string", None, nullable=True)
    host_filter: str | None = field("string", None, nullable=True)
    operation: int = field("int8")
    permission_type: int = field("int8")


class DeleteAclsRequestData(Message, versions=(1, 3), flexible_since=2):
    filters: list[DeleteAclsFilter] = field("[]struct", of=DeleteAclsFilter)


class DeletedAcl(Struct):
    """An ACL that matched, and why it was not deleted if ``error_code`` is not 0."""

    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    resource_type: int = field("int8")
    resource_name: str = field("string")
    pattern_type: int = field("int8", 3)
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


class DeleteAclsFilterResult(Struct):
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    matching_acls: list[DeletedAcl] = field("[]struct", of=DeletedAcl)


class DeleteAclsResponseData(Message, versions=(1, 3), flexible_since=2):
    throttle_time_ms: int = field("int32")
    filter_results: list[DeleteAclsFilterResult] = field("[]struct", of=DeleteAclsFilterResult)
