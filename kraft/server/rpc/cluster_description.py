"""DescribeCluster on the controller listener: how a client finds the active controller (KIP-919).

Owns both sides of the exchange. Kafka's Admin client with ``bootstrap.controllers`` asks it first,
and sends everything that only the leader can answer to the controller that is named here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from kraft.server.rpc import schemas as rpc
from kraft.server.rpc.handler import Handler
from kraft.server.rpc.wire import DESCRIBE_CLUSTER, RequestHeader

MISMATCHED_ENDPOINT_TYPE = 114
UNSUPPORTED_ENDPOINT_TYPE = 115

_BROKERS = 1
_CONTROLLERS = 2


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The controllers of a cluster: (host, port) by id, and the id of the leader, -1 for none."""

    cluster_id: str
    leader_id: int = -1
    controllers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    error: int = 0
    message: str | None = None


def describe_cluster_handler(describe: Callable[[], ClusterDescription]) -> Handler:
    """A handler that tells what ``describe`` says at the time."""

    async def answer(header: RequestHeader, body: bytes | memoryview) -> bytes:
        schema = rpc.DescribeClusterRequest.schema
        request = cast(rpc.DescribeClusterRequest, schema.decode(body, header.version))
        return _encode(request, header.version, describe())

    return Handler(DESCRIBE_CLUSTER, answer)


def _encode(
    request: rpc.DescribeClusterRequest, version: int, cluster: ClusterDescription
) -> bytes:
    response = rpc.DescribeClusterResponse()
    if version >= 1:
        response.endpoint_type = request.endpoint_type
    if request.endpoint_type == _CONTROLLERS:
        response.cluster_id = cluster.cluster_id
        response.controller_id = cluster.leader_id
        response.brokers = [
            rpc.DescribedNode(id, host, port)
            for id, (host, port) in sorted(cluster.controllers.items())
        ]
    elif request.endpoint_type == _BROKERS:
        response.error_code = MISMATCHED_ENDPOINT_TYPE
        response.error_message = "this is a controller's listener: ask for endpoint type 2"
    else:
        response.error_code = UNSUPPORTED_ENDPOINT_TYPE
        response.error_message = f"there is no endpoint type {request.endpoint_type}"
    return rpc.DescribeClusterResponse.schema.encode(response, version)


def encode_describe_cluster(version: int) -> bytes:
    """The body of a request for the controllers; version 0 cannot say it.

    Raises UnsupportedVersionError.
    """
    request = rpc.DescribeClusterRequest(endpoint_type=_CONTROLLERS)
    return rpc.DescribeClusterRequest.schema.encode(request, version)


def decode_describe_cluster(
    version: int, body: bytes | memoryview, position: int
) -> ClusterDescription:
    """Raises CorruptRecordError."""
    schema = rpc.DescribeClusterResponse.schema
    made = cast(rpc.DescribeClusterResponse, schema.decode(body, version, position))
    return ClusterDescription(
        made.cluster_id,
        made.controller_id,
        {node.broker_id: (node.host, node.port) for node in made.brokers},
        made.error_code,
        made.error_message,
    )
