"""ApiVersions: the APIs and features that a node supports (KIP-35, 511, 584).

Every connection begins with this exchange. An unknown version is answered in version 0 with
UNSUPPORTED_VERSION and the range of ApiVersions itself, so that any client can retry (KIP-511). A
client's software name must match Kafka's pattern. Features whose lowest level is 0 are left out
before version 4, since old clients fail on them (KAFKA-17011).

Versions 0 to 2 are older than flexible encoding:

    request    empty
    response   int16 error | [int16 key | int16 min | int16 max] | int32 throttle time (1, 2)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import NamedTuple, cast

from kraft._core.bytes.wire import Reader, Writer
from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Struct
from kraft.errors import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION, UnsupportedVersionError
from kraft.protocol.headers import Api, Body, Ranges
from kraft.raft.voters import KRaftVersionRange

API_VERSIONS = Api(18, "ApiVersions", 0, 4, 3)
SOFTWARE_NAME = "kraft"

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)

_FIRST_FLEXIBLE = API_VERSIONS.flexible_since
_FIRST_WITH_LEVEL_ZERO = 4


class ApiVersionsRequestData(Struct, versions=(3, 4)):
    client_software_name: str = field("string")
    client_software_version: str = field("string")


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


class ApiVersionsResponseData(Struct, versions=(3, 4)):
    error_code: int = field("int16")
    api_keys: list[ApiVersion] = field("[]struct", of=ApiVersion)
    throttle_time_ms: int = field("int32")
    supported_features: list[SupportedFeature] = field("[]struct", tag=0, of=SupportedFeature)
    finalized_features_epoch: int = field("int64", -1, tag=1)
    finalized_features: list[FinalizedFeature] = field("[]struct", tag=2, of=FinalizedFeature)
    zk_migration_ready: bool = field("bool", tag=3)


@dataclass(frozen=True, slots=True)
class NodeFeatures:
    """The features of a node, by name.

    ``supported``: the levels that the node supports. ``finalized``: the levels of the cluster as of
    the offset ``finalized_epoch``, -1 where unknown.
    """

    supported: dict[str, KRaftVersionRange] = dataclass_field(default_factory=dict)
    finalized: dict[str, int] = dataclass_field(default_factory=dict)
    finalized_epoch: int = -1


class PeerVersions(NamedTuple):
    """The content of a peer's ApiVersions response."""

    error: int
    ranges: Ranges
    supported: dict[str, KRaftVersionRange]
    finalized: dict[str, int]


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
        own = [(API_VERSIONS.key, API_VERSIONS.lowest, API_VERSIONS.highest)]
        return 0, encode_classic_response(UNSUPPORTED_VERSION, own, 0)
    ranges = [(api.key, api.lowest, api.highest) for api in sorted(apis)]
    if version < _FIRST_FLEXIBLE:
        return version, encode_classic_response(NONE, ranges, version)
    schema = ApiVersionsRequestData.schema
    request = cast(ApiVersionsRequestData, schema.decode(body, version, position))
    names = (request.client_software_name, request.client_software_version)
    if not all(map(_SOFTWARE.fullmatch, names)):
        response = ApiVersionsResponseData(error_code=INVALID_REQUEST)
        return version, ApiVersionsResponseData.schema.encode(response, version)
    response = ApiVersionsResponseData(
        api_keys=[ApiVersion(*numbers) for numbers in ranges],
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
    return version, ApiVersionsResponseData.schema.encode(response, version)


def encode_api_versions_request(version: int, software_version: str) -> bytes:
    """Return the body of a request."""
    if version < _FIRST_FLEXIBLE:
        return b""
    request = ApiVersionsRequestData(SOFTWARE_NAME, software_version)
    return ApiVersionsRequestData.schema.encode(request, version)


def decode_api_versions_response(version: int, body: Body, position: int) -> PeerVersions:
    """Decode a response to a request of this version. Raises CorruptRecordError.

    An UNSUPPORTED_VERSION response is always in version 0, and has the range of ApiVersions.
    """
    is_unsupported = bytes(body[position : position + 2]) == UNSUPPORTED_VERSION.to_bytes(2, "big")
    if version < _FIRST_FLEXIBLE or is_unsupported:
        error, listed = decode_classic_response(body, position, 0 if is_unsupported else version)
        return PeerVersions(error, {key: (low, high) for key, low, high in listed}, {}, {})
    schema = ApiVersionsResponseData.schema
    data = cast(ApiVersionsResponseData, schema.decode(body, version, position))
    return PeerVersions(
        data.error_code,
        {api.api_key: (api.min_version, api.max_version) for api in data.api_keys},
        {
            at.name: KRaftVersionRange(at.min_version, at.max_version)
            for at in data.supported_features
        },
        {at.name: at.max_version_level for at in data.finalized_features},
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


# -- versions 0 to 2


def encode_classic_response(
    error: int, ranges: Iterable[tuple[int, int, int]], version: int
) -> bytes:
    """Encode a response; ``ranges`` are (api key, lowest version, highest version)."""
    listed = tuple(ranges)
    writer = Writer()
    writer.write_int16(error)
    writer.write_array_count(len(listed))
    for numbers in listed:
        for number in numbers:
            writer.write_int16(number)
    if version >= 1:
        writer.write_int32(0)
    return writer.getvalue()


def decode_classic_response(
    body: Body, position: int, version: int
) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the error and the ranges. Raises CorruptRecordError."""
    reader = Reader(body, position)
    error = reader.read_int16()
    count = reader.read_array_count(6)
    ranges = [(reader.read_int16(), reader.read_int16(), reader.read_int16()) for _ in range(count)]
    if version >= 1:
        reader.read_int32()
    return error, ranges
