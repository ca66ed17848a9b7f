"""The response that AddRaftVoter and RemoveRaftVoter share (KIP-853)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message
from kraft.protocol.common import Resolve
from kraft.protocol.headers import Body
from kraft.raft.rpc import AddRaftVoterResponse, RemoveRaftVoterResponse


class RaftVoterResponseData(Message, versions=(0, 1)):
    """AddRaftVoterResponse and RemoveRaftVoterResponse, which have the same layout."""

    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


def encode_response(
    response: AddRaftVoterResponse | RemoveRaftVoterResponse, version: int, _: str, __: Resolve
) -> bytes:
    data = RaftVoterResponseData(error_code=response.error, error_message=response.message)
    return data.encode(version)


def decode_response(version: int, body: Body, position: int) -> tuple[int, str | None]:
    """Return error and message."""
    data = RaftVoterResponseData.decode(body, version, position)
    return data.error_code, data.error_message
