"""Frames and headers of requests and responses, and the choice of a version.

    frame            int32 size of what follows | header | body
    request header   int16 api key | int16 version | int32 correlation id
                     | nullable string client id (int16 length, always) | tags in flexible versions
    response header  int32 correlation id | tags in flexible versions, but never of ApiVersions

The RPC modules encode and decode the bodies. Sources: ``RequestHeader``, ``ApiMessageType`` and
``ApiKeys`` of Kafka 4.3.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kraft._core.bytes.wire import Reader
from kraft.errors import CorruptRecordError

# api key -> the lowest and the highest version that a peer supports.
Ranges = dict[int, tuple[int, int]]
Body = bytes | memoryview

_API_VERSIONS_KEY = 18
_REQUEST_START = struct.Struct(">ihhih")
_RESPONSE_START = struct.Struct(">ii")


class Api(NamedTuple):
    """An RPC: its key, the supported versions, and the first flexible one.

    ``lowest_sent`` is the lowest version that this package sends, where that is above ``lowest``.
    """

    key: int
    name: str
    lowest: int
    highest: int
    flexible_since: int
    lowest_sent: int = 0

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


class RequestHeader(NamedTuple):
    """The header of a received request."""

    api: Api
    version: int
    correlation: int
    client_id: str | None


def newest_common_version(api: Api, peer: Ranges) -> int | None:
    """Return the highest version that both sides support; None where there is none."""
    served = peer.get(api.key)
    if served is None:
        return None
    lowest, highest = served
    version = highest if highest < api.highest else api.highest
    is_common = version >= lowest and version >= api.lowest and version >= api.lowest_sent
    return version if is_common else None


def request_frame(
    api: Api, version: int, correlation: int, client_id: str | None, body: bytes
) -> bytes:
    """Return a request with its size and header."""
    client = b"" if client_id is None else client_id.encode()
    tags = b"\0" if version >= api.flexible_since else b""
    return b"".join(
        (
            _REQUEST_START.pack(
                10 + len(client) + len(tags) + len(body),
                api.key,
                version,
                correlation,
                -1 if client_id is None else len(client),
            ),
            client,
            tags,
            body,
        )
    )


def response_header(api: Api, version: int, correlation: int, body_size: int) -> bytes:
    """Return the size and header before a response's body."""
    if version >= api.flexible_since and api.key != _API_VERSIONS_KEY:
        return _RESPONSE_START.pack(5 + body_size, correlation) + b"\0"
    return _RESPONSE_START.pack(4 + body_size, correlation)


def read_response_header(frame: Body, api: Api, version: int) -> tuple[int, int]:
    """Return the correlation id of a response, and the position of its body.

    Raises CorruptRecordError.
    """
    if len(frame) < 4:
        raise CorruptRecordError("a response header ends early", position=len(frame))
    correlation = int.from_bytes(frame[:4], "big", signed=True)
    if version < api.flexible_since or api.key == _API_VERSIONS_KEY:
        return correlation, 4
    if len(frame) > 4 and frame[4] == 0:
        return correlation, 5
    reader = Reader(frame, 4)
    reader.read_tagged()
    return correlation, reader.position
