"""Describe, create and delete ACLs (KIP-140, KIP-290).

An ACL is an `AccessControl`, a filter an `AclFilter`; their numbers are those of the enumerations
`ResourceType`, `PatternType`, `AclOperation` and `PermissionType`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.admin.calls import ControllerCalls
from kraft.admin.results import ItemResults, in_order, result_of
from kraft.controller.security.acls import AclFilter
from kraft.image.security import AccessControl
from kraft.protocol.create_acls import (
    CREATE_ACLS,
    AclCreation,
    CreateAclsRequestData,
    CreateAclsResponseData,
)
from kraft.protocol.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilter,
    DeleteAclsRequestData,
    DeleteAclsResponseData,
)
from kraft.protocol.describe_acls import (
    DESCRIBE_ACLS,
    DescribeAclsRequestData,
    DescribeAclsResponseData,
)

#: The ACLs that a filter deletes.
DeletedAcls = ItemResults[AccessControl, None]


def describe_acls(calls: ControllerCalls, acl_filter: AclFilter) -> list[AccessControl]:
    """Return the ACLs that match a filter; ``AclFilter()`` matches all.

    Raises QuorumRefusedError (SECURITY_DISABLED without an authorizer, INVALID_REQUEST for unknown
    numbers), QuorumUnreachableError. Source: ``KafkaAdminClient.describeAcls``.
    """
    request = DescribeAclsRequestData(*acl_filter)
    response = calls.call_whole(
        DESCRIBE_ACLS, request, DescribeAclsResponseData, "describing ACLs"
    ).response
    return [
        AccessControl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def create_acls(
    calls: ControllerCalls, acls: Iterable[AccessControl]
) -> ItemResults[AccessControl, None]:
    """Create ACLs; one that exists is accepted. Return the outcome of each.

    Items fail with INVALID_REQUEST and others, all with SECURITY_DISABLED without an authorizer.
    Raises QuorumUnreachableError. Source: ``KafkaAdminClient.createAcls``.
    """
    wanted = list(dict.fromkeys(acls))
    answered = calls.call(
        CREATE_ACLS,
        CreateAclsRequestData([AclCreation(*acl) for acl in wanted]),
        CreateAclsResponseData,
        lambda response: [each.error_code for each in response.results],
    )
    results = {
        acl: result_of(
            each.error_code, each.error_message, _creating(acl), None, answered.is_repeated
        )
        # A response with fewer results than ACLs leaves the last ones without one.
        for acl, each in zip(wanted, answered.response.results, strict=False)
    }
    return in_order(wanted, results, _creating)


def delete_acls(
    calls: ControllerCalls, filters: Iterable[AclFilter]
) -> ItemResults[AclFilter, DeletedAcls]:
    """Delete the ACLs that match each filter; return the deleted ACLs by filter.

    A filter fails as a whole with INVALID_REQUEST or SECURITY_DISABLED; otherwise each ACL that
    matched has its own outcome. Raises QuorumUnreachableError. Source:
    ``KafkaAdminClient.deleteAcls``.
    """
    wanted = list(dict.fromkeys(filters))
    answered = calls.call(
        DELETE_ACLS,
        DeleteAclsRequestData([DeleteAclsFilter(*each) for each in wanted]),
        DeleteAclsResponseData,
        lambda response: [each.error_code for each in response.filter_results],
    )
    results = {}
    for acl_filter, each in zip(wanted, answered.response.filter_results, strict=False):
        deleted = {}
        for match in each.matching_acls:
            acl = AccessControl(
                match.resource_type,
                match.resource_name,
                match.pattern_type,
                match.principal,
                match.host,
                match.operation,
                match.permission_type,
            )
            deleted[acl] = result_of(match.error_code, match.error_message, f"deleting {acl}", None)
        results[acl_filter] = result_of(
            each.error_code,
            each.error_message,
            _deleting(acl_filter),
            ItemResults(deleted),
            answered.is_repeated,
        )
    return in_order(wanted, results, _deleting)


def _creating(acl: AccessControl) -> str:
    return f"creating {acl}"


def _deleting(acl_filter: AclFilter) -> str:
    return f"deleting the ACLs of {acl_filter}"
