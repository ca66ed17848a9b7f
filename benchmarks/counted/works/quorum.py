"""Counted works of the quorum (steps, RPC bodies), and of metadata records that become objects."""

from __future__ import annotations

from typing import Any

from benchmarks import generate
from benchmarks.counted.work import Work, counted
from benchmarks.quorum_trace import record, replay
from kraft.protocol.fetch import FETCH
from kraft.protocol.raft_rpcs import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.protocol.vote import VOTE
from kraft.raft.rpc import FetchRequest, FetchResponse, VoteRequest, VoteResponse
from kraft.raft.voters import ReplicaKey
from kraft.records import Uuid
from kraft.records.values import decode_value, encode_value

LISTENER = "CONTROLLER"


@counted
def raft_steps() -> Work:
    """Replay the recorded events of all nodes of a small quorum to fresh nodes."""
    recorded = list(record(300).values())

    def run(_: None) -> list[Any]:
        return [replay(node) for node in recorded]

    def check(_: None, ends: list[Any]) -> None:
        assert ends == [node.end for node in recorded]

    return Work("steps", sum(len(node.events) for node in recorded), lambda: None, run, check)


def no_slices(_: Any) -> memoryview:
    raise AssertionError("nothing of these responses lies in a log")


@counted
def rpc_bodies() -> Work:
    """Encode and decode the requests and responses of Fetch and Vote."""
    replica = ReplicaKey(2, Uuid(bytes(range(16))))
    records = generate.make_data_batch().read_bytes()[:4096]
    fetch = FetchRequest("quorum", replica, 7, 1_000_000, 7, 500)
    fetched = FetchResponse(0, 7, 1, (), 1_000_000, 0, records=records)
    vote = VoteRequest("quorum", 8, replica, ReplicaKey(3), 7, 1_000_000)
    voted = VoteResponse(0, 8, -1, (), True)
    exchanges = ((FETCH, 17, fetch, fetched), (VOTE, 2, vote, voted))

    def run(_: None) -> list[Any]:
        for _turn in range(200):
            seen: list[Any] = []
            for api, version, request, response in exchanges:
                seen.append(decode_request(api, version, encode_request(request, version)))
                body = b"".join(encode_response(response, version, LISTENER, no_slices))
                seen.append(decode_response(api, version, body, 0, LISTENER))
        return seen

    def check(_: None, seen: list[Any]) -> None:
        read_fetch, read_fetched, read_vote, read_voted = seen
        assert (read_fetch.replica, read_fetch.offset) == (replica, fetch.offset)
        assert bytes(read_fetched.records) == records
        assert read_vote.last_offset == vote.last_offset
        assert read_voted.is_granted

    return Work("exchanges", 400, lambda: None, run, check)


@counted
def metadata_records() -> Work:
    """Encode and decode records that become objects: features and brokers."""
    values = generate.prefix_values(300)

    def run(_: None) -> list[bytes]:
        return [encode_value(decode_value(value)) for value in values]

    def check(_: None, written: list[bytes]) -> None:
        assert written == values

    return Work("records", len(values), lambda: None, run, check)
