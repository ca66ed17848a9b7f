"""UpdateFeatures, as far as it concerns kraft.version (KIP-584, 853).

The raft layer decides kraft.version. A request with any other feature is rejected here; the
controller's API handles those.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import INVALID_UPDATE_VERSION
from kraft.protocol.common import RaftRpc, Rejected, Resolve
from kraft.protocol.headers import Api, Body
from kraft.raft.rpc import UpdateKRaftVersionRequest, UpdateKRaftVersionResponse

UPDATE_FEATURES = Api(57, "UpdateFeatures", 0, 2, 0)
KRAFT_VERSION = "kraft.version"

_UPGRADE = 1
_SAFE_DOWNGRADE = 2


class FeatureUpdateData(Struct):
    feature: str = field("string")
    max_version_level: int = field("int16")
    allow_downgrade: bool = field("bool", until=0)
    upgrade_type: int = field("int8", 1, since=1)


class UpdateFeaturesRequestData(Message, versions=(0, 2)):
    timeout_ms: int = field("int32", 60000)
    feature_updates: list[FeatureUpdateData] = field("[]struct", of=FeatureUpdateData)
    validate_only: bool = field("bool", since=1)


class FeatureResult(Struct):
    feature: str = field("string")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


class UpdateFeaturesResponseData(Message, versions=(0, 2)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    results: list[FeatureResult] = field("[]struct", until=1, of=FeatureResult)


def encode_request(request: UpdateKRaftVersionRequest, version: int) -> bytes:
    if version == 0:
        update = FeatureUpdateData(
            KRAFT_VERSION, request.level, allow_downgrade=not request.is_upgrade
        )
    else:
        upgrade_type = _UPGRADE if request.is_upgrade else _SAFE_DOWNGRADE
        update = FeatureUpdateData(KRAFT_VERSION, request.level, upgrade_type=upgrade_type)
    data = UpdateFeaturesRequestData(feature_updates=[update], validate_only=request.validate_only)
    return data.encode(version)


def decode_request(version: int, body: Body, position: int) -> UpdateKRaftVersionRequest | Rejected:
    data = UpdateFeaturesRequestData.decode(body, version, position)
    updates = data.feature_updates
    if [update.feature for update in updates] == [KRAFT_VERSION]:
        is_upgrade = (
            not updates[0].allow_downgrade if version == 0 else updates[0].upgrade_type == _UPGRADE
        )
        return UpdateKRaftVersionRequest(
            updates[0].max_version_level, is_upgrade, data.validate_only
        )
    message = f"only {KRAFT_VERSION}, by itself, can be updated here"
    rejection = UpdateFeaturesResponseData(error_code=INVALID_UPDATE_VERSION, error_message=message)
    if version <= 1:
        rejection.results = [
            FeatureResult(update.feature, INVALID_UPDATE_VERSION, message) for update in updates
        ]
    return Rejected(rejection.encode(version))


def encode_response(
    response: UpdateKRaftVersionResponse, version: int, _: str, __: Resolve
) -> bytes:
    data = UpdateFeaturesResponseData(error_code=response.error, error_message=response.message)
    if version <= 1:
        data.results = [FeatureResult(KRAFT_VERSION, response.error, response.message)]
    return data.encode(version)


def decode_response(version: int, body: Body, position: int, _: str) -> UpdateKRaftVersionResponse:
    data = UpdateFeaturesResponseData.decode(body, version, position)
    if data.error_code == 0:
        for result in data.results:
            if result.error_code != 0:
                return UpdateKRaftVersionResponse(result.error_code, result.error_message)
    return UpdateKRaftVersionResponse(data.error_code, data.error_message)


RPC = RaftRpc(
    UPDATE_FEATURES,
    UpdateKRaftVersionRequest,
    UpdateKRaftVersionResponse,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
)
