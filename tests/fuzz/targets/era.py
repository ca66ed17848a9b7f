"""Requests of controllers of the ZooKeeper era, and the answers of brokers.

A request that is read can be written in the same version, and reads as the same then.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.errors import KraftError
from kraft.zookeeper.broker_requests import (
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    PartitionUpdate,
    StopReplica,
    UpdateMetadata,
)
from kraft.zookeeper.context import Leadership
from kraft.zookeeper.controller_rpcs import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    VERSIONS_0_8,
    VERSIONS_1_1,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress

PREFIX = 1
HOLDS_BATCHES = False

# The first byte's choice: even a request, odd the answer to one.
_CHOICES = [
    (api, getattr(versions, field), versions)
    for versions in (VERSIONS_0_8, VERSIONS_1_1)
    for api, field in (
        (LEADER_AND_ISR, "leader_and_isr"),
        (UPDATE_METADATA, "update_metadata"),
        (STOP_REPLICA, "stop_replica"),
    )
]
_STATE = Leadership(1, 5, (1, 2), 7, 3)
_LIVE = [BrokerZnode(1, (ListenerAddress("host", 9092),), "rack")]
_REQUESTS: tuple[BrokerRequest, ...] = (
    LeaderAndIsr(
        901,
        8,
        {("t", number): PartitionUpdate(_STATE, (1, 2, 3), True) for number in range(3)},
        _LIVE,
    ),
    UpdateMetadata(
        901, 8, {("t", 0): PartitionUpdate(_STATE, (1, 2), offline_replicas=(2,))}, _LIVE
    ),
    StopReplica(901, 8, True, [("t", 0), ("u", 1)]),
)


def seeds() -> Iterator[bytes]:
    for number, (_, version, versions) in enumerate(_CHOICES):
        request = _REQUESTS[number % len(_REQUESTS)]
        yield bytes((2 * number,)) + encode_request(request, versions)[2]
        codes = {} if isinstance(request, UpdateMetadata) else {("t", 0): 0, ("u", 1): 11}
        answer = encode_response(request, version, BrokerResponse(0, codes))
        yield bytes((2 * number + 1,)) + answer


def run(data: bytes) -> None:
    if not data:
        return
    number, is_answer = divmod(data[0] % (2 * len(_CHOICES)), 2)
    api, version, versions = _CHOICES[number]
    body = memoryview(data)[1:]
    try:
        if is_answer:
            response = decode_response(api, version, body)
        else:
            request = decode_request(api.key, version, body)
    except KraftError:
        return
    if is_answer:
        again = encode_response(_REQUESTS[number % len(_REQUESTS)], version, response)
        assert decode_response(api, version, memoryview(again)) == response
    else:
        written = encode_request(request, versions)[2]
        assert decode_request(api.key, version, memoryview(written)) == request
