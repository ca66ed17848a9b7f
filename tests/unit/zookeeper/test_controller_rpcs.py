"""The bytes of the controller's RPCs, field by field as Kafka 0.8.2 and 1.1 read them."""

from __future__ import annotations

import struct

import pytest

from kraft.errors import CorruptRecordError
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
    VERSIONS_0_8,
    VERSIONS_1_1,
    RequestVersions,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_shutdown_response,
)
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress

LEADERSHIP = Leadership(1, 5, (1, 2), 7, 3)
BROKER = BrokerZnode(1, (ListenerAddress("h", 9092), ListenerAddress("s", 9093, "IN", "SSL")), "r")
LEADER_AND_ISR = LeaderAndIsr(
    1001, 8, {("t", 4): PartitionUpdate(LEADERSHIP, (1, 2, 3), is_new=True)}, [BROKER]
)
UPDATE_METADATA = UpdateMetadata(
    1001, 8, {("t", 4): PartitionUpdate(LEADERSHIP, (1, 2, 3), offline_replicas=(3,))}, [BROKER]
)
STOP_REPLICA = StopReplica(1001, 8, True, [("t", 4), ("u", 0)])


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}i", *values)


def array(*values: int) -> bytes:
    return numbers(len(values), *values)


PARTITION = text("t") + numbers(4, 7, 1, 5) + array(1, 2) + numbers(3) + array(1, 2, 3)


def test_leader_and_isr() -> None:
    api, version, body = encode_request(LEADER_AND_ISR)
    assert (api.key, version) == (4, 1)
    assert body == (
        numbers(1001, 8, 1) + PARTITION + b"\1" + numbers(1, 1) + text("h") + numbers(9092)
    )
    response = struct.pack(">hi", 0, 1) + text("t") + struct.pack(">ih", 4, 56)
    assert decode_response(api, version, memoryview(response)) == BrokerResponse(0, {("t", 4): 56})


def test_update_metadata() -> None:
    api, version, body = encode_request(UPDATE_METADATA)
    assert (api.key, version) == (6, 4)
    endpoints = (
        numbers(2)
        + (numbers(9092) + text("h") + text("PLAINTEXT") + struct.pack(">h", 0))
        + (numbers(9093) + text("s") + text("IN") + struct.pack(">h", 1))
    )
    assert body == (
        numbers(1001, 8, 1) + PARTITION + array(3) + numbers(1, 1) + endpoints + text("r")
    )
    assert decode_response(api, version, memoryview(b"\0\x0b")) == BrokerResponse(11, {})


def test_stop_replica() -> None:
    api, version, body = encode_request(STOP_REPLICA)
    assert (api.key, version) == (5, 0)
    assert body == numbers(1001, 8) + b"\1" + numbers(2) + text("t") + numbers(4) + text(
        "u"
    ) + numbers(0)


def test_the_response_to_a_controlled_shutdown() -> None:
    assert encode_shutdown_response(0, [("t", 4)]) == struct.pack(">hi", 0, 1) + text(
        "t"
    ) + numbers(4)


def test_the_requests_of_0_8() -> None:
    api, version, body = encode_request(LEADER_AND_ISR, VERSIONS_0_8)
    assert (api.key, version) == (4, 0)
    assert body == numbers(1001, 8, 1) + PARTITION + numbers(1, 1) + text("h") + numbers(9092)
    api, version, body = encode_request(UPDATE_METADATA, VERSIONS_0_8)
    assert (api.key, version) == (6, 0)
    assert body == numbers(1001, 8, 1) + PARTITION + numbers(1, 1) + text("h") + numbers(9092)
    assert encode_request(STOP_REPLICA, VERSIONS_0_8) == encode_request(STOP_REPLICA)
    # A broker without a plaintext listener has no address in 0.8.
    secured = BrokerZnode(1, (ListenerAddress("s", 9093, "IN", "SSL"),))
    metadata = UpdateMetadata(1001, 8, {}, [secured])
    assert encode_request(metadata, VERSIONS_0_8)[2] == numbers(1001, 8, 0, 0)


@pytest.mark.parametrize("versions", [VERSIONS_0_8, VERSIONS_1_1])
@pytest.mark.parametrize("request_", [LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA])
def test_a_broker_reads_what_the_controller_wrote(
    request_: BrokerRequest, versions: RequestVersions
) -> None:
    api, version, body = encode_request(request_, versions)
    read = decode_request(api.key, version, memoryview(body))
    # In 0.8, and of a leader, brokers learn only one address.
    plain = BrokerZnode(1, (ListenerAddress("h", 9092),))
    if isinstance(request_, LeaderAndIsr):
        update = PartitionUpdate(LEADERSHIP, (1, 2, 3), is_new=versions is VERSIONS_1_1)
        request_ = LeaderAndIsr(1001, 8, {("t", 4): update}, [plain])
    elif isinstance(request_, UpdateMetadata) and versions is VERSIONS_0_8:
        update = PartitionUpdate(LEADERSHIP, (1, 2, 3))
        request_ = UpdateMetadata(1001, 8, {("t", 4): update}, [plain])
    assert read == request_
    codes = {} if isinstance(request_, UpdateMetadata) else {("t", 4): 11}
    answered = encode_response(read, version, BrokerResponse(11, codes))
    assert decode_response(api, version, memoryview(answered)) == BrokerResponse(11, codes)


def test_a_leader_without_a_plaintext_listener_has_no_address() -> None:
    secured = BrokerZnode(1, (ListenerAddress("s", 9093, "IN", "SSL"),))
    request = LeaderAndIsr(1001, 8, {}, [secured])
    assert encode_request(request)[2] == numbers(1001, 8, 0, 0)


def test_malformed_requests_are_refused() -> None:
    api, version, body = encode_request(UPDATE_METADATA)
    for end in range(len(body)):
        with pytest.raises(CorruptRecordError):
            decode_request(api.key, version, memoryview(body[:end]))
    with pytest.raises(CorruptRecordError, match="no controller sends API 6 in version 3"):
        decode_request(6, 3, memoryview(body))
    unknown = body[: -len(text("r")) - 2] + b"\0\7" + text("r")
    with pytest.raises(CorruptRecordError, match="there is no security protocol 7"):
        decode_request(6, 4, memoryview(unknown))
