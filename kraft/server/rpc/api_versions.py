"""ApiVersions: what a node serves, and what its peer does.

Owns both sides of the exchange with which every connection begins. A version that is not known is
answered in version 0 with UNSUPPORTED_VERSION and the range of ApiVersions itself, so that any
client can try again (KIP-511); a client's software name must look like one. Features whose lowest
level is 0 are left out before version 4, where old clients fail on them (KAFKA-17011).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from kraft.errors import UnsupportedVersionError
from kraft.raft.messages import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION
from kraft.raft.voters import VersionRange
from kraft.server.rpc import classic_versions as classic
from kraft.server.rpc import schemas as rpc
from kraft.server.rpc.wire import API_VERSIONS, Api, Ranges

SOFTWARE_NAME = "kraft"

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)

_FIRST_FLEXIBLE = API_VERSIONS.flexible_since
_FIRST_WITH_LEVEL_ZERO = 4


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a node, by name.

    ``supported``: the levels that it can run with. ``finalized``: the levels that the cluster runs
    with as of the offset ``finalized_epoch``, -1 while none is known.
    """

    supported: dict[str, VersionRange] = field(default_factory=dict)
    finalized: dict[str, int] = field(default_factory=dict)
    finalized_epoch: int = -1


class PeerVersions(NamedTuple):
    """What a peer said in its ApiVersions response."""

    error: int
    ranges: Ranges
    supported: dict[str, VersionRange]
    finalized: dict[str, int]


def answer_api_versions(
    version: int,
    body: bytes | memoryview,
    position: int,
    apis: Iterable[Api],
    features: Features,
) -> tuple[int, bytes]:
    """The version of the response and its body.

    Raises CorruptRecordError for a malformed request.
    """
    if version not in API_VERSIONS:
        own = [(API_VERSIONS.key, API_VERSIONS.lowest, API_VERSIONS.highest)]
        return 0, classic.encode_api_versions(UNSUPPORTED_VERSION, own, 0)
    ranges = [(api.key, api.lowest, api.highest) for api in sorted(apis)]
    if version < _FIRST_FLEXIBLE:
        return version, classic.encode_api_versions(NONE, ranges, version)
    schema = rpc.ApiVersionsRequest.schema
    request = cast(rpc.ApiVersionsRequest, schema.decode(body, version, position))
    names = (request.client_software_name, request.client_software_version)
    if not all(map(_SOFTWARE.fullmatch, names)):
        response = rpc.ApiVersionsResponse(error_code=INVALID_REQUEST)
        return version, rpc.ApiVersionsResponse.schema.encode(response, version)
    response = rpc.ApiVersionsResponse(
        api_keys=[rpc.ApiVersion(*numbers) for numbers in ranges],
        supported_features=[
            rpc.SupportedFeature(name, levels.min, levels.max)
            for name, levels in sorted(features.supported.items())
            if levels.min > 0 or version >= _FIRST_WITH_LEVEL_ZERO
        ],
        finalized_features_epoch=features.finalized_epoch,
        finalized_features=[
            rpc.FinalizedFeature(name, level, level)
            for name, level in sorted(features.finalized.items())
        ],
    )
    return version, rpc.ApiVersionsResponse.schema.encode(response, version)


def encode_api_versions_request(version: int, software_version: str) -> bytes:
    """The body of the request."""
    if version < _FIRST_FLEXIBLE:
        return b""
    request = rpc.ApiVersionsRequest(SOFTWARE_NAME, software_version)
    return rpc.ApiVersionsRequest.schema.encode(request, version)


def decode_api_versions_response(
    version: int, body: bytes | memoryview, position: int
) -> PeerVersions:
    """Raises CorruptRecordError.

    A refusal comes in version 0, whatever was asked in, and names the range of ApiVersions.
    """
    is_refusal = bytes(body[position : position + 2]) == UNSUPPORTED_VERSION.to_bytes(2, "big")
    if version < _FIRST_FLEXIBLE or is_refusal:
        old_version = 0 if is_refusal else version
        error, listed = classic.decode_api_versions(body, position, old_version)
        return PeerVersions(error, {key: (low, high) for key, low, high in listed}, {}, {})
    schema = rpc.ApiVersionsResponse.schema
    made = cast(rpc.ApiVersionsResponse, schema.decode(body, version, position))
    return PeerVersions(
        made.error_code,
        {api.api_key: (api.min_version, api.max_version) for api in made.api_keys},
        {at.name: VersionRange(at.min_version, at.max_version) for at in made.supported_features},
        {at.name: at.max_version_level for at in made.finalized_features},
    )


def version_to_retry(peer: PeerVersions) -> int:
    """The version with which to ask again a peer that refused ours.

    Raises UnsupportedVersionError where there is none in common.
    """
    lowest, highest = peer.ranges.get(API_VERSIONS.key, (0, 0))
    version = min(highest, API_VERSIONS.highest)
    if version < max(lowest, API_VERSIONS.lowest):
        raise UnsupportedVersionError(
            f"the peer serves ApiVersions {lowest} to {highest}, and this node knows "
            f"{API_VERSIONS.lowest} to {API_VERSIONS.highest}"
        )
    return version
