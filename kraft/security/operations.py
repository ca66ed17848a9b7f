"""The operations on a topic, a group or the cluster that a client may do, for its responses.

Sources: Kafka's ``AclEntry.supportedOperations``, ``AuthHelper.authorizedOperations`` (4.3.1),
KIP-430.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from kraft.image.security import AclOperation, ResourceType

#: The operations that an ACL of a resource can name, by its type.
SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


class OperationCheck(Protocol):
    """Tells whether the client of a request may do an operation; `CallContext.allows` is one."""

    def __call__(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """Return whether it is allowed. Raises AuthorizerNotReadyError."""


def authorized_operations(
    allows: OperationCheck | None, resource_type: ResourceType, name: str
) -> int:
    """Return the operations that the client may do, as bits by their numbers.

    ``allows`` is None if there is no authorizer: all of them.
    """
    supported = SUPPORTED_OPERATIONS[resource_type]
    return sum(
        1 << operation
        for operation in supported
        if allows is None or allows(operation, resource_type, name, log_if_denied=False)
    )
