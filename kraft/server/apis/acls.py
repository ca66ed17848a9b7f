"""APIs of ACLs: CreateAcls, DeleteAcls, DescribeAcls.

The controller checks each ACL and filter. Without an authorizer all three have the error
SECURITY_DISABLED. Source: ``AclApis`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from kraft.controller.runtime import security_requests
from kraft.controller.security.acls import AclFilter, describe_acls
from kraft.errors import KraftError
from kraft.image.security import AccessControl
from kraft.protocol.create_acls import (
    CREATE_ACLS,
    AclCreationResult,
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
from kraft.server.controller import ControllerRunner


def acl_apis(runner: ControllerRunner) -> Iterator[AnyApi]:
    """Yield the APIs of ACLs."""
    yield _create_acls(runner)
    yield _delete_acls(runner)
    yield _describe_acls(runner)


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
        return CreateAclsResponseData(results=list(map(_created, await runner.submit(operation))))

    def failed(data: CreateAclsRequestData, error: KraftError) -> CreateAclsResponseData:
        return CreateAclsResponseData(results=[_created(error) for _ in data.creations])

    return ListenerApi(CREATE_ACLS, CreateAclsRequestData.decode, answer, failed)


def _created(error: KraftError | None) -> AclCreationResult:
    return AclCreationResult() if error is None else AclCreationResult(error.kafka_code, str(error))


def _delete_acls(runner: ControllerRunner) -> AnyApi:
    async def answer(data: DeleteAclsRequestData, context: CallContext) -> DeleteAclsResponseData:
        operation = security_requests.delete_acls(
            [_filter(each) for each in data.filters], has_authorizer=context.authorizer is not None
        )
        return DeleteAclsResponseData(
            filter_results=list(map(_deleted, await runner.submit(operation)))
        )

    def failed(data: DeleteAclsRequestData, error: KraftError) -> DeleteAclsResponseData:
        return DeleteAclsResponseData(filter_results=[_deleted(error) for _ in data.filters])

    return ListenerApi(DELETE_ACLS, DeleteAclsRequestData.decode, answer, failed)


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


def _describe_acls(runner: ControllerRunner) -> AnyApi:
    async def answer(
        data: DescribeAclsRequestData, context: CallContext
    ) -> DescribeAclsResponseData:
        acls = describe_acls(
            runner.controller.cluster,
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
