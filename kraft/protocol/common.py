"""Types and functions that several RPC modules share: endpoints, replica keys, the raft codec.

Every RPC of the raft layer is about one partition, that of the metadata log. On the wire it is
nested in topics and partitions; the messages of ``kraft.raft`` have neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kraft._core.codec.fetch import METADATA_TOPIC
from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Struct
from kraft.errors import InvalidRequestError
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import LogSlice, Request, Response, SnapshotSlice
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.records import ZERO_UUID, Uuid

Resolve = Callable[[LogSlice | SnapshotSlice], memoryview]
Endpoints = tuple[Endpoint, ...]


class Rejected(NamedTuple):
    """A malformed request, with the body of the response; the raft node never sees it."""

    body: bytes


class RaftRpc(NamedTuple):
    """The codec of one RPC of the raft layer; every RPC module has one, ``RPC``.

    ``encode_request``: message, version -> body. Raises UnsupportedVersionError where the version
    cannot carry the request.
    ``decode_request``: version, buffer, position of the body -> message, or `Rejected`. Raises
    CorruptRecordError.
    ``encode_response``: message, version, name of the listener that received the request, function
    that returns the bytes of a slice -> body, or the list of its buffers.
    ``decode_response``: version, buffer, position of the body, name for endpoints, which have none
    on the wire -> message. Raises CorruptRecordError, and InvalidRequestError for another partition
    than that of the metadata log.
    """

    api: Api
    request_type: type[Request]
    response_type: type[Response]
    encode_request: Callable[[Any, int], bytes]
    decode_request: Callable[[int, Body, int], Request | Rejected]
    encode_response: Callable[[Any, int, str, Resolve], bytes | list[Body]]
    decode_response: Callable[[int, Body, int, str], Response]


class ListenerData(Struct):
    """The address of a listener, with the listener's name."""

    name: str = field("string")
    host: str = field("string")
    port: int = field("uint16")


class AdvertisedListener(Struct):
    """A listener in the registration of a broker or controller."""

    name: str = field("string")
    host: str = field("string")
    port: int = field("uint16")
    security_protocol: int = field("int16")


class SupportedFeatureRange(Struct):
    """The levels of a feature that a broker or controller supports."""

    name: str = field("string")
    min_supported_version: int = field("int16")
    max_supported_version: int = field("int16")


class NodeEndpointData(Struct):
    """The address of a node at the listener that received the request."""

    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("uint16")


class BrokerEndpoint(Struct):
    """The address of a broker, in a response of one that does not lead a partition (KIP-951)."""

    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", None, nullable=True)


class LeaderIdAndEpoch(Struct):
    """The leader of a partition; -1 for unknown."""

    leader_id: int = field("int32", -1)
    leader_epoch: int = field("int32", -1)


def to_listeners(endpoints: Iterable[Endpoint]) -> list[ListenerData]:
    return [ListenerData(name, host, port) for name, host, port in endpoints]


def to_endpoints(listeners: Iterable[ListenerData]) -> Endpoints:
    return tuple(Endpoint(at.name, at.host, at.port) for at in listeners)


def endpoint_of(endpoints: Endpoints, listener: str) -> Endpoint | None:
    """Return the endpoint of this listener; None where there is none."""
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint
    return None


def to_node_endpoints(
    leader_id: int, endpoints: Endpoints, listener: str
) -> list[NodeEndpointData]:
    """Return the leader's endpoint at this listener, as the list of a response has it."""
    endpoint = endpoint_of(endpoints, listener)
    if endpoint is None or leader_id < 0:
        return []
    return [NodeEndpointData(leader_id, endpoint.host, endpoint.port)]


def leader_endpoints(leader_id: int, nodes: Sequence[NodeEndpointData], listener: str) -> Endpoints:
    """Return the leader's endpoint among those of a response, named after ``listener``."""
    for node in nodes:
        if node.node_id == leader_id and leader_id >= 0:
            return (Endpoint(listener, node.host, node.port),)
    return ()


def directory_or_none(directory_id: Uuid) -> Uuid | None:
    """Return None for the zero uuid, which stands for an unknown directory on the wire."""
    return None if directory_id == ZERO_UUID else directory_id


def directory_or_zero(directory_id: Uuid | None) -> Uuid:
    return ZERO_UUID if directory_id is None else directory_id


def replica_key(id: int, directory_id: Uuid) -> ReplicaKey:
    return ReplicaKey(id, directory_or_none(directory_id))


def receiver(voter_id: int, directory_id: Uuid) -> ReplicaKey | None:
    """Return the voter that a request is addressed to; None for id -1, the default."""
    return None if voter_id < 0 else replica_key(voter_id, directory_id)


def only_partition(topics: list[Any]) -> Any:
    """Return the metadata log's partition if a message is about that only, else None."""
    if len(topics) == 1 and topics[0].topic_name == METADATA_TOPIC:
        partitions = topics[0].partitions
        if len(partitions) == 1 and partitions[0].partition_index == 0:
            return partitions[0]
    return None


def metadata_partition(topics: list[Any], name: str) -> Any:
    """Return the metadata log's partition of a response; else raise InvalidRequestError."""
    partition = only_partition(topics)
    if partition is None:
        raise InvalidRequestError(f"a {name} response is not of the metadata log")
    return partition
