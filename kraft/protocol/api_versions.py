"""ApiVersions: the APIs and features that a node supports (KIP-35, 511, 584).

Every connection begins with this exchange. An unknown version is answered in version 0 with
UNSUPPORTED_VERSION and the range of ApiVersions itself, so that any client can retry (KIP-511). A
client's software name must match Kafka's pattern. Features whose lowest level is 0 are left out
before version 4, since old clients fail on them (KAFKA-17011).

Version 5 is Kafka 4.4's: the request names the node that it is meant for (KIP-1242). A node that is
not this one answers REBOOTSTRAP_REQUIRED, and the client forgets the addresses that it had learned.
Kafka's brokers do so; its controllers ignore the names. This package sends version 4, which 4.3
answers at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import (
    INVALID_REQUEST,
    REBOOTSTRAP_REQUIRED,
    UNSUPPORTED_VERSION,
    UnsupportedVersionError,
)
from kraft.protocol.headers import Api, Body, Ranges
from kraft.raft.voters import KRaftVersionRange

API_VERSIONS = Api(18, "ApiVersions", 0, 5, 3)
#: The version of the first request on a connection, before the peer's range is known.
FIRST_SENT_VERSION = 4
SOFTWARE_NAME = "kraft"

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)

_FIRST_WITH_LEVEL_ZERO = 4


class ApiVersionsRequestData(Message, versions=(0, 5), flexible_since=3):
    client_software_name: str = field("string", since=3, ignorable=True)
    client_software_version: str = field("string", since=3, ignorable=True)
    # The node that the client means to talk to; null and -1 if it does not know.
    cluster_id: str | None = field("string", None, since=5, nullable=True, ignorable=True)
    node_id: int = field("int32", -1, since=5, ignorable=True)


class ApiVersion(Struct):
    api_key: int = field("int16")
    min_version: int = field("int16")
    max_version: int = field("int16")


class SupportedFeature(Struct):
    name: str = field("string")
    min_version: int = field("int16")
    max_version: int = field("int16")


class FinalizedFeature(Struct):
    name: str = field("string")
    max_version_level: int = field("int16")
    min_version_level: int = field("int16")


class ApiVersionsResponseData(Message, versions=(0, 5), flexible_since=3):
    error_code: int = field("int16")
    api_keys: list[ApiVersion] = field("[]struct", of=ApiVersion)
    throttle_time_ms: int = field("int32", since=1, ignorable=True)
    supported_features: list[SupportedFeature] = field(
        "[]struct", since=3, tag=0, ignorable=True, of=SupportedFeature
    )
    finalized_features_epoch: int = field("int64", -1, since=3, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeature] = field(
        "[]struct", since=3, tag=2, ignorable=True, of=FinalizedFeature
    )
    zk_migration_ready: bool = field("bool", since=3, tag=3, ignorable=True)


class NodeFeatures(NamedTuple):
    """The features of a node, by name, and the node.

    ``supported``: the levels that the node supports. ``finalized``: the levels of the cluster as of
    the offset ``finalized_epoch``, -1 where unknown. ``cluster_id`` and ``node_id`` are those of
    the node; without a cluster id it answers requests that are meant for any node.
    """

    supported: Mapping[str, KRaftVersionRange] = MappingProxyType({})
    finalized: Mapping[str, int] = MappingProxyType({})
    finalized_epoch: int = -1
    cluster_id: str | None = None
    node_id: int = -1


class PeerVersions(NamedTuple):
    """The content of a peer's ApiVersions response."""

    error: int
    ranges: Ranges
    supported: dict[str, KRaftVersionRange]
    finalized: dict[str, int]
    #: The offset that ``finalized`` is as of; -1 where unknown.
    finalized_epoch: int = -1


def answer_api_versions(
    version: int,
    body: Body,
    position: int,
    apis: Iterable[Api],
    features: NodeFeatures,
) -> tuple[int, bytes]:
    """Return the version of the response and its body.

    Raises CorruptRecordError for a malformed request.
    """
    if version not in API_VERSIONS:
        own = ApiVersion(API_VERSIONS.key, API_VERSIONS.lowest, API_VERSIONS.highest)
        return 0, ApiVersionsResponseData(UNSUPPORTED_VERSION, [own]).encode(0)
    request = ApiVersionsRequestData.decode(body, version, position)
    names = (request.client_software_name, request.client_software_version)
    if version >= API_VERSIONS.flexible_since and not all(map(_SOFTWARE.fullmatch, names)):
        return version, ApiVersionsResponseData(INVALID_REQUEST).encode(version)
    if _is_misrouted(request, features):
        return version, ApiVersionsResponseData(REBOOTSTRAP_REQUIRED).encode(version)
    response = ApiVersionsResponseData(
        api_keys=[ApiVersion(api.key, api.lowest, api.highest) for api in sorted(apis)],
        supported_features=[
            SupportedFeature(name, levels.min, levels.max)
            for name, levels in sorted(features.supported.items())
            if levels.min > 0 or version >= _FIRST_WITH_LEVEL_ZERO
        ],
        finalized_features_epoch=features.finalized_epoch,
        finalized_features=[
            FinalizedFeature(name, level, level)
            for name, level in sorted(features.finalized.items())
        ],
    )
    return version, response.encode(version)


def _is_misrouted(request: ApiVersionsRequestData, node: NodeFeatures) -> bool:
    """Return whether the request is meant for another node (``KafkaApis`` of Kafka 4.4).

    A request without a cluster id is meant for any node.
    """
    if request.cluster_id is None or node.cluster_id is None:
        return False
    return (request.cluster_id, request.node_id) != (node.cluster_id, node.node_id)


def encode_api_versions_request(version: int, software_version: str) -> bytes:
    """Return the body of a request."""
    return ApiVersionsRequestData(SOFTWARE_NAME, software_version).encode(version)


def decode_api_versions_response(version: int, body: Body, position: int) -> PeerVersions:
    """Decode a response to a request of this version. Raises CorruptRecordError.

    An UNSUPPORTED_VERSION response is always in version 0, and has the range of ApiVersions.
    """
    is_unsupported = bytes(body[position : position + 2]) == UNSUPPORTED_VERSION.to_bytes(2, "big")
    data = ApiVersionsResponseData.decode(body, 0 if is_unsupported else version, position)
    return PeerVersions(
        data.error_code,
        {api.api_key: (api.min_version, api.max_version) for api in data.api_keys},
        {
            at.name: KRaftVersionRange(at.min_version, at.max_version)
            for at in data.supported_features
        },
        {at.name: at.max_version_level for at in data.finalized_features},
        data.finalized_features_epoch,
    )


def version_to_retry(peer: PeerVersions) -> int:
    """Return the version for the next request to a peer that does not support ours.

    Raises UnsupportedVersionError where no version is common.
    """
    lowest, highest = peer.ranges.get(API_VERSIONS.key, (0, 0))
    version = min(highest, API_VERSIONS.highest)
    if version < max(lowest, API_VERSIONS.lowest):
        raise UnsupportedVersionError(
            f"the peer serves ApiVersions {lowest} to {highest}, and this node knows "
            f"{API_VERSIONS.lowest} to {API_VERSIONS.highest}"
        )
    return version
