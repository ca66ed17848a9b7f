"""The operation on the cluster that each API of the controller listener requires."""

from __future__ import annotations

import pytest

from kraft.errors import CLUSTER_AUTHORIZATION_FAILED, ClusterAuthorizationError
from kraft.image.security import AccessControl, AclOperation, ResourceType
from kraft.records import Uuid
from kraft.security.authorizer import Authorizer, RequestContext
from kraft.security.controller_apis import CLUSTER_OPERATIONS, check_cluster_operation
from kraft.security.principals import parse_principal


def context(api_name: str) -> RequestContext:
    return RequestContext(parse_principal("User:broker"), "10.0.0.1", api_name)


@pytest.mark.parametrize("api_name", CLUSTER_OPERATIONS)
def test_an_api_needs_its_operation_on_the_cluster(api_name: str) -> None:
    authorizer = Authorizer()
    authorizer.is_ready = True
    with pytest.raises(ClusterAuthorizationError, match=api_name) as error:
        check_cluster_operation(authorizer, context(api_name))
    assert error.value.kafka_code == CLUSTER_AUTHORIZATION_FAILED
    for operation in (AclOperation.CREATE_TOKENS, CLUSTER_OPERATIONS[api_name]):
        acl = AccessControl(
            ResourceType.CLUSTER, "kafka-cluster", 3, "User:broker", "*", operation, 3
        )
        authorizer.set_acl(Uuid(bytes(16)), acl)
        if operation is AclOperation.CREATE_TOKENS:
            with pytest.raises(ClusterAuthorizationError):
                check_cluster_operation(authorizer, context(api_name))
    check_cluster_operation(authorizer, context(api_name))


def test_other_apis_need_nothing_of_the_cluster() -> None:
    for api_name in ("ApiVersions", "CreateTopics", "SaslHandshake"):
        check_cluster_operation(Authorizer(), context(api_name))
