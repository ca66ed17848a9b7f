"""APIs of ACLs: CreateAcls, DeleteAcls, DescribeAcls.

The controller checks each ACL and filter. Without an authorizer all three have the error
SECURITY_DISABLED. Source: ``AclApis`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter

from kraft.controller.runtime import security_requests
from kraft.controller.security.acls import AclFilter, describe_acls
from kraft.controller.state import ReadableMetadata
from kraft.errors import KraftError
from kraft.image.security import AccessControl
from kraft.protocol.create_acls import (
    CREATE_ACLS,
    CreateAclsRequestData,
    CreateAclsResponseData,
)
from kraft.protocol.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequestData,
    DeleteAclsResponseData,
    DeletedAcl,
)
from kraft.protocol.describe_acls import (
    DESCRIBE_ACLS,
    DescribeAclsRequestData,
    DescribeAclsResponseData,
    DescribedAcl,
    DescribedAclResource,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi
from kraft.server.apis.error_responses import created_acl, reject_create_acls, reject_delete_acls
from kraft.server.controller import ControllerRunner


def acl_apis(runner: ControllerRunner) -> Iterator[AnyApi]:
    """Yield the APIs of ACLs."""
    yield _create_acls(runner)
    yield _delete_acls(runner)
    yield describe_acls_api(lambda: _committed(runner))


def _committed(runner: ControllerRunner) -> ReadableMetadata:
    """Return the published metadata: those of an active controller may be reverted.

    Before the first image a controller has not been active, and all of its metadata are committed.
    """
    return runner.publishing.images.image or runner.controller.cluster


def _create_acls(runner: ControllerRunner) -> AnyApi:
    async def answer(data: CreateAclsRequestData, context: CallContext) -> CreateAclsResponseData:
        acls = [
            AccessControl(
                each.resource_type,
                each.resource_name,
                each.resource_pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            for each in data.creations
        ]
        operation = security_requests.create_acls(
            acls, has_authorizer=context.authorizer is not None
        )
        results = map(created_acl, await runner.submit(operation))
        return CreateAclsResponseData(results=list(results))

    return ListenerApi(CREATE_ACLS, CreateAclsRequestData.decode, answer, reject_create_acls)


def _delete_acls(runner: ControllerRunner) -> AnyApi:
    async def answer(data: DeleteAclsRequestData, context: CallContext) -> DeleteAclsResponseData:
        operation = security_requests.delete_acls(
            [_filter(each) for each in data.filters], has_authorizer=context.authorizer is not None
        )
        return DeleteAclsResponseData(
            filter_results=list(map(_deleted, await runner.submit(operation)))
        )

    return ListenerApi(DELETE_ACLS, DeleteAclsRequestData.decode, answer, reject_delete_acls)


def _filter(data: DeleteAclsFilter | DescribeAclsRequestData) -> AclFilter:
    return AclFilter(
        data.resource_type_filter,
        data.resource_name_filter,
        data.pattern_type_filter,
        data.principal_filter,
        data.host_filter,
        data.operation,
        data.permission_type,
    )


def _deleted(result: list[AccessControl] | KraftError) -> DeleteAclsFilterResult:
    if isinstance(result, KraftError):
        return DeleteAclsFilterResult(result.kafka_code, str(result))
    return DeleteAclsFilterResult(matching_acls=[DeletedAcl(0, None, *acl) for acl in result])


def describe_acls_api(metadata: Callable[[], ReadableMetadata]) -> AnyApi:
    """Return the API DescribeAcls over the committed metadata of a controller or broker."""

    async def answer(
        data: DescribeAclsRequestData, context: CallContext
    ) -> DescribeAclsResponseData:
        acls = describe_acls(
            metadata(),
            _filter(data),
            has_authorizer=context.authorizer is not None,
        )
        # `describe_acls` sorts by the fields of a resource first.
        return DescribeAclsResponseData(
            resources=[
                DescribedAclResource(
                    resource_type, name, pattern_type, [DescribedAcl(*acl[3:]) for acl in found]
                )
                for (resource_type, name, pattern_type), found in groupby(acls, itemgetter(0, 1, 2))
            ]
        )

    return ListenerApi(
        DESCRIBE_ACLS,
        DescribeAclsRequestData.decode,
        answer,
        lambda _, error: DescribeAclsResponseData(
            error_code=error.kafka_code, error_message=str(error)
        ),
    )
