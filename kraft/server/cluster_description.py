"""DescribeCluster on a controller listener: the controllers at this listener, and the active one.

Lists the registered controllers, as Kafka does, and in addition voters that have not registered:
a client finds the leader also while no leader can commit a registration. Sources: Kafka's
``ControllerApis.handleDescribeCluster``, ``AuthHelper.computeDescribeClusterResponse``,
``ControllerRegistrationsPublisher`` (4.3.1), KIP-919.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.errors import UnsupportedVersionError
from kraft.image.publishing import Image
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.common import endpoint_of
from kraft.protocol.describe_cluster import (
    CONTROLLERS,
    DESCRIBE_CLUSTER,
    ClusterDescription,
    DescribeClusterRequestData,
    DescribeClusterResponseData,
    DescribedNode,
    endpoint_mismatch,
)
from kraft.raft.node import Node
from kraft.records.versions import METADATA_VERSION, MetadataVersion
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.security.operations import authorized_operations
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi


def describe_cluster_api(describe: Callable[[str], ClusterDescription]) -> AnyApi:
    """Return the API DescribeCluster; ``describe`` returns the controllers at a listener."""

    async def answer(
        data: DescribeClusterRequestData, context: CallContext
    ) -> DescribeClusterResponseData:
        cluster = describe(context.listener)
        if data.endpoint_type != CONTROLLERS:
            return endpoint_mismatch(CONTROLLERS, data.endpoint_type, context.version)
        response = DescribeClusterResponseData(
            endpoint_type=CONTROLLERS,
            cluster_id=cluster.cluster_id,
            # A client could not connect to a leader that is not listed.
            controller_id=cluster.leader_id if cluster.leader_id in cluster.controllers else -1,
            brokers=[
                DescribedNode(id, host, port)
                for id, (host, port) in sorted(cluster.controllers.items())
            ],
        )
        if data.include_cluster_authorized_operations:
            response.cluster_authorized_operations = _authorized_operations(context)
        return response

    return ListenerApi(
        DESCRIBE_CLUSTER,
        DescribeClusterRequestData.decode,
        answer,
        lambda _, error: _failed(error.kafka_code, str(error)),
    )


def _failed(code: int, message: str) -> DescribeClusterResponseData:
    return DescribeClusterResponseData(error_code=code, error_message=message)


def _authorized_operations(context: CallContext) -> int:
    """Return the operations on the cluster that the client may do, as bits by their numbers."""
    if not context.allows_on_cluster(AclOperation.DESCRIBE):
        return 0
    return authorized_operations(context.allows, ResourceType.CLUSTER, CLUSTER_NAME)


def describe_controllers(
    cluster_id: str, listener: str, node: Node | None, image: Image | None
) -> ClusterDescription:
    """Return the controllers that have this listener, as ``node`` and its last image know them.

    Raises UnsupportedVersionError below metadata.version 3.7-IV0, as Kafka: clients of that time
    send their requests to brokers. Before the first metadata.version it lists the voters.
    """
    controllers: dict[int, tuple[str, int]] = {}
    if image is not None and METADATA_VERSION in image.state.features:
        level = MetadataVersion.from_level(image.state.metadata_version)
        if not level.is_controller_registration_supported:
            raise UnsupportedVersionError(
                f"metadata.version {level.text} is too old for requests of clients to controllers"
            )
        for registration in image.state.controllers.values():
            registered = registration.endpoints.get(listener)
            if registered is not None:
                controllers[registration.id] = (registered.host, registered.port)
    if node is None:
        return ClusterDescription(cluster_id, -1, controllers)
    for voter in node.voters:
        endpoint = endpoint_of(node.endpoints_of(voter.id), listener)
        if voter.id not in controllers and endpoint is not None:
            controllers[voter.id] = (endpoint.host, endpoint.port)
    return ClusterDescription(cluster_id, node.leader_id, controllers)
