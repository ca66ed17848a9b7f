"""DescribeCluster: the brokers of a cluster (KIP-700), or its controllers (KIP-919).

Kafka's Admin client with ``bootstrap.controllers`` sends it first, and then sends each request for
the leader to the controller that the response names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import INVALID_REQUEST, MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE
from kraft.protocol.headers import Api, Body

DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 2, 0)

#: The endpoint types (``EndpointType``).
BROKERS = 1
CONTROLLERS = 2
_ENDPOINT_TYPES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


class DescribeClusterRequestData(Message, versions=(0, 2)):
    include_cluster_authorized_operations: bool = field("bool")
    endpoint_type: int = field("int8", 1, since=1)
    include_fenced_brokers: bool = field("bool", since=2)


class DescribedNode(Struct):
    broker_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", None, nullable=True)
    is_fenced: bool = field("bool", since=2)


class DescribeClusterResponseData(Message, versions=(0, 2)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    endpoint_type: int = field("int8", 1, since=1)
    cluster_id: str = field("string")
    controller_id: int = field("int32", -1)
    brokers: list[DescribedNode] = field("[]struct", of=DescribedNode)
    cluster_authorized_operations: int = field("int32", -2147483648)


def endpoint_mismatch(served: int, asked: int, version: int) -> DescribeClusterResponseData:
    """Return the response to a request for nodes other than those that a listener serves.

    ``served`` and ``asked`` are endpoint types. Version 0 always asks for brokers. Source:
    ``AuthHelper.computeDescribeClusterResponse``.
    """
    own, name = _ENDPOINT_TYPES[served], _ENDPOINT_TYPES.get(asked)
    if name is None:
        return DescribeClusterResponseData(
            error_code=UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"there is no endpoint type {asked}; {served} is {own.lower()}",
        )
    return DescribeClusterResponseData(
        error_code=INVALID_REQUEST if version == 0 else MISMATCHED_ENDPOINT_TYPE,
        error_message=(f"this is an endpoint of type {own}, and the request asks for type {name}"),
    )


class ClusterDescription(NamedTuple):
    """The controllers of a cluster: (host, port) by id, and the id of the leader, -1 for none."""

    cluster_id: str
    leader_id: int = -1
    controllers: Mapping[int, tuple[str, int]] = MappingProxyType({})
    error: int = 0
    message: str | None = None


def encode_describe_cluster(version: int) -> bytes:
    """Return the body of a request for the controllers.

    Raises UnsupportedVersionError for version 0, which has no endpoint type.
    """
    request = DescribeClusterRequestData(endpoint_type=CONTROLLERS)
    return request.encode(version)


def decode_describe_cluster(version: int, body: Body, position: int) -> ClusterDescription:
    """Decode a response. Raises CorruptRecordError."""
    data = DescribeClusterResponseData.decode(body, version, position)
    return ClusterDescription(
        data.cluster_id,
        data.controller_id,
        {node.broker_id: (node.host, node.port) for node in data.brokers},
        data.error_code,
        data.error_message,
    )
