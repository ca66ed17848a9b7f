"""Responses with the same bytes are decoded once, and all others as by the protocol's function."""

from __future__ import annotations

from itertools import pairwise

from kraft.fleet.repeated_response import RepeatedResponse
from kraft.protocol.fetch import FETCH
from kraft.protocol.raft_rpcs import decode_response, encode_response
from kraft.raft import rpc as m
from kraft.raft.voters import Endpoint

RECORDS = {1: b"a", 2: b"b", 3: bytes(5000)}


def frame_of(response: m.FetchResponse, version: int, correlation: int) -> bytes:
    pieces = encode_response(
        response, version, "CONTROLLER", lambda records: memoryview(RECORDS[records.offset])
    )
    return correlation.to_bytes(4, "big") + b"".join(map(bytes, pieces))


def test_a_response_is_that_of_its_own_bytes() -> None:
    repeated = RepeatedResponse()
    leader = (Endpoint("CONTROLLER", "leader", 9093),)
    sent = [
        (m.FetchResponse(0, 5, 1, leader, high_watermark, records=records), version, listener)
        for high_watermark in (7, 8)
        for records in (b"", m.LogSlice(1, 2, 1), m.LogSlice(2, 3, 1), m.LogSlice(3, 4, 9999))
        for version, listener in ((17, "CONTROLLER"), (18, "CONTROLLER"), (18, "OTHER"))
        for _ in range(2)
    ]
    got = []
    for number, (response, version, listener) in enumerate(sent):
        frame = frame_of(response, version, number)
        got.append(repeated.decode(FETCH, version, frame, 4, listener))
        assert got[-1] == decode_response(FETCH, version, frame, 4, listener)
    once = [one is other for one, other in pairwise(got)]
    assert once == [
        sent[at] == sent[at + 1] and sent[at][0].records != m.LogSlice(3, 4, 9999)
        for at in range(len(sent) - 1)
    ]
