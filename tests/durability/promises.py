"""The promises in a node's messages, and the state that its disk must have at that moment.

Reads the messages of a quorum from the recordings of its nodes. A response does not identify its
request, so the requests of all nodes are read first. A promise counts from the system call that
sent the end of its message:

- an epoch in any message: ``quorum-state`` has it, or a later one;
- a requested or granted vote: ``quorum-state`` has that vote;
- the offset of a Fetch: the log is on the device up to that offset;
- records that a node acknowledged to its clients (its notes): the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraft.errors import CorruptRecordError
from kraft.protocol.common import Rejected
from kraft.protocol.headers import Api, read_response_header
from kraft.protocol.raft_rpcs import RAFT_APIS, decode_request, decode_response
from kraft.raft.rpc import FetchRequest, Request, VoteRequest
from tests.durability.recording import Call, Kind

#: A connection: the ports of sender and receiver.
Way = tuple[int, int]


class Asked(NamedTuple):
    """A request in a recording."""

    api: Api
    version: int
    request: Request


class Promise(NamedTuple):
    """The promises of a message; -1 and None stand for no promise."""

    epoch: int = -1
    voted_id: int | None = None
    end_offset: int = -1


class Frames:
    """Assembles the sends of one recording to frames, by connection."""

    def __init__(self) -> None:
        self._begun: dict[Way, bytearray] = {}

    def take(self, call: Call) -> Iterator[bytes]:
        """Add a send and return the frames that it completes."""
        begun = self._begun.setdefault((call.at, call.of), bytearray())
        begun += call.data
        while len(begun) >= 4:
            size = 4 + int.from_bytes(begun[:4], "big")
            if len(begun) < size:
                return
            yield bytes(begun[4:size])
            del begun[:size]


def requests_in(calls: Iterable[Call], ports: set[int]) -> dict[tuple[Way, int], Asked]:
    """Return every request of one node by its connection and correlation id.

    ``ports`` are the listeners of the nodes.
    """
    asked: dict[tuple[Way, int], Asked] = {}
    frames = Frames()
    for call in calls:
        if call.kind is Kind.SEND and call.of in ports:
            for frame in frames.take(call):
                request = request_of(frame)
                if request is not None:
                    correlation = int.from_bytes(frame[4:8], "big", signed=True)
                    asked[(call.at, call.of), correlation] = request
    return asked


def request_of(frame: bytes) -> Asked | None:
    """Return the raft request in a frame; None for any other API."""
    api = RAFT_APIS.get(int.from_bytes(frame[:2], "big"))
    version = int.from_bytes(frame[2:4], "big")
    if api is None or version not in api:
        return None
    client_size = int.from_bytes(frame[8:10], "big", signed=True)
    body = 10 + max(client_size, 0) + (version >= api.flexible_since)
    request = decode_request(api, version, frame, body)
    return None if isinstance(request, Rejected) else Asked(api, version, request)


class Promises:
    """The promises of one node; ``asked`` are the other nodes' requests, ``port`` is its own."""

    def __init__(self, id: int, port: int, asked: dict[tuple[Way, int], Asked]) -> None:
        self._id = id
        self._port = port
        self._asked = asked
        self._frames = Frames()

    def of(self, call: Call) -> Iterator[Promise]:
        """Return the promises of a send."""
        for frame in self._frames.take(call):
            if call.at == self._port:
                yield from self._answered(frame, call)
            else:
                asked = request_of(frame)
                if asked is not None:
                    yield from self._requested(asked.request)

    def _requested(self, request: Request) -> Iterator[Promise]:
        yield Promise(getattr(request, "epoch", -1))
        if isinstance(request, VoteRequest) and not request.is_pre_vote:
            yield Promise(request.epoch, request.candidate.id)
        if isinstance(request, FetchRequest) and request.replica.id == self._id:
            yield Promise(request.epoch, end_offset=request.offset)

    def _answered(self, frame: bytes, call: Call) -> Iterator[Promise]:
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        asked = self._asked.get(((call.of, call.at), correlation))
        if asked is None:
            return
        api, version, request = asked
        _, body = read_response_header(frame, api, version)
        try:
            response = decode_response(api, version, frame, body, "CONTROLLER")
        except CorruptRecordError:
            return
        yield Promise(getattr(response, "epoch", -1))
        is_granted = getattr(response, "is_granted", False)
        if isinstance(request, VoteRequest) and not request.is_pre_vote and is_granted:
            yield Promise(request.epoch, request.candidate.id)


def noted(data: bytes) -> Iterator[Promise]:
    """Return the promises of the notes of `load_node`."""
    for line in data.split(b"\n"):
        if line.startswith(b"A ") and line.endswith(b";"):
            yield Promise(end_offset=int(line[:-1].split()[3]) + 1)


def election_in(content: bytes) -> tuple[int, int]:
    """Return epoch and vote of a ``quorum-state``; (0, -1) without one."""
    if not content:
        return 0, -1
    fields = json.loads(content)
    return fields["leaderEpoch"], fields["votedId"]
