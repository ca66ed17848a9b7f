"""`RepeatedResponse`: the response of the raft layer that a broker of this process got last.

A thousand brokers get the same bytes for the same offset: each receives its copy, and one of them
decodes it. Created by `broker_context`, called by the connections of `light_broker`.
"""

from __future__ import annotations

from kraft.protocol.headers import Api, Body
from kraft.protocol.raft_rpcs import decode_response
from kraft.raft.rpc import Response

#: The most bytes of a body that are compared with the last one.
_COMPARED_SIZE = 4096


class RepeatedResponse:
    """The last small body, and the response that it is; no receiver changes it."""

    def __init__(self) -> None:
        self._last: tuple[int, int, str, Body] | None = None
        self._response: Response

    def decode(self, api: Api, version: int, frame: Body, position: int, listener: str) -> Response:
        """Return what ``raft_rpcs.decode_response`` returns for these arguments."""
        if len(frame) > _COMPARED_SIZE:
            return decode_response(api, version, frame, position, listener)
        received = api.key, version, listener, frame[position:]
        if received != self._last:
            self._response = decode_response(api, version, frame, position, listener)
            self._last = received
        return self._response
