"""The RPCs of the raft layer compared with Kafka's classes.

Kafka decodes each frame to the same message and encodes it to the same bytes, and the bodies equal
those that Kafka's raft layer builds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft import errors
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.protocol.api_versions import (
    API_VERSIONS,
    NodeFeatures,
    answer_api_versions,
    encode_api_versions_request,
)
from kraft.protocol.common import Rejected
from kraft.protocol.describe_cluster import (
    DESCRIBE_CLUSTER,
    ClusterDescription,
    encode_describe_cluster,
)
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import Api, RequestHeader, request_frame, response_header
from kraft.protocol.raft_rpcs import (
    API_OF_REQUEST,
    RAFT_APIS,
    decode_request,
    encode_request,
    encode_response,
)
from kraft.raft import rpc as m
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from kraft.records import Uuid
from kraft.security.protocols import PeerIdentity
from kraft.server.apis.api import handler_of
from kraft.server.cluster_description import describe_cluster_api
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import LineProcess
from tests.interop.raft_json import request_of, response_of
from tests.reference.raft_messages import (
    LISTENER,
    REQUESTS,
    RESPONSES,
    can_express,
    request_as_seen,
    response_as_seen,
    texts,
)

pytestmark = pytest.mark.interop

CASES = [
    pytest.param(made, api, version, id=f"{api.name}-{version}")
    for made, api in API_OF_REQUEST.items()
    if api is not API_VERSIONS
    for version in range(13 if api is FETCH else api.lowest, api.highest + 1)
]
SOME = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Oracle:
    """Kafka's classes in one process; one line for a request, one for its response."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    def ask(self, *words: object) -> str:
        return self._process.ask(" ".join(map(str, words)))

    def understood(self, kind: str, api: Api, version: int, frame: bytes) -> dict[str, Any]:
        """Return Kafka's decoding of the frame, which it must encode to the same bytes."""
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        again, _, text = self.ask(kind, api.key, version, frame[4:].hex()).partition(" ")
        assert again == frame[4:].hex(), text
        read: dict[str, Any] = json.loads(text)
        return read


@pytest.fixture(scope="module")
def oracle(jars: Jars) -> Iterator[Oracle]:
    with LineProcess(jars.oracle("MessageOracle")) as process:
        yield Oracle(process)


@pytest.mark.parametrize(("made", "api", "version"), CASES)
def test_kafka_decodes_a_request(oracle: Oracle, made: type, api: Api, version: int) -> None:
    @SOME
    @given(REQUESTS[made], texts, st.integers(-(2**31), 2**31 - 1))
    def check(request: m.Request, client_id: str, correlation: int) -> None:
        if not can_express(request, version):
            return
        frame = request_frame(
            api, version, correlation, client_id, encode_request(request, version)
        )
        body = oracle.understood("request", api, version, frame)
        assert request_of(api.name, body) == request_as_seen(request, version)

    check()


@pytest.mark.parametrize(("made", "api", "version"), CASES)
def test_kafka_decodes_a_response(oracle: Oracle, made: type, api: Api, version: int) -> None:
    @SOME
    @given(RESPONSES[made], st.integers(-(2**31), 2**31 - 1))
    def check(response: m.Response, correlation: int) -> None:
        pieces = encode_response(response, version, LISTENER, no_slices)
        header = response_header(api, version, correlation, sum(map(len, pieces)))
        body = oracle.understood("response", api, version, b"".join((header, *pieces)))
        seen = response_as_seen(response, version)
        if isinstance(seen, m.FetchResponse):
            seen = replace(seen, records=bytes(len(seen.records)))  # type: ignore[arg-type]
        elif isinstance(seen, m.FetchSnapshotResponse):
            seen = replace(seen, data=bytes(len(seen.data)))  # type: ignore[arg-type]
        assert response_of(api.name, body) == seen

    check()


def no_slices(slice: m.LogSlice | m.SnapshotSlice) -> memoryview:
    raise AssertionError("these responses have bytes, not slices")


def refusals() -> Iterator[tuple[Api, int, bytes]]:
    """Return malformed requests in every version of every API with topics."""
    for api in RAFT_APIS.values():
        for version in range(api.lowest, api.highest + 1):
            if api is FETCH and version >= 13:
                replica = b"\xff" * 4 if version <= 14 else b""
                yield api, version, replica + b"\0" * 21 + b"\1\1\1\0"
            elif api.name in ("Vote", "FetchSnapshot"):
                start = b"\0" if api.name == "Vote" else b"\0" * 8
                start += b"\0" * 4 if api.name == "Vote" and version >= 1 else b""
                yield api, version, start + b"\1\0"
            elif api.name == "DescribeQuorum":
                yield api, version, b"\2\2t\2\0\0\0\7\0\0\0"
            elif api.name == "UpdateFeatures":
                more = b"\0" if version >= 1 else b""
                yield api, version, b"\0\0\0\1\2\2f\0\1\1\0" + more + b"\0"
            elif api is FETCH:
                yield api, version, b""


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [pytest.param(*case, id=f"{case[0].name}-{case[1]}") for case in refusals()],
)
def test_kafka_decodes_a_rejection(oracle: Oracle, api: Api, version: int, body: bytes) -> None:
    refused = decode_request(api, version, body)
    assert isinstance(refused, Rejected)
    header = response_header(api, version, 1, len(refused.body))
    read = oracle.understood("response", api, version, header + refused.body)
    if api.name == "DescribeQuorum":
        partition = read["topics"][0]["partitions"][0]
        assert (partition["partitionIndex"], partition["errorCode"]) == (7, 3)
    elif api.name == "UpdateFeatures":
        assert read["errorCode"] == errors.INVALID_UPDATE_VERSION
    else:
        assert read.get("errorCode", errors.INVALID_REQUEST) == errors.INVALID_REQUEST


@pytest.mark.parametrize("version", range(5))
def test_kafka_decodes_api_versions(oracle: Oracle, version: int) -> None:
    asked = encode_api_versions_request(version, "1.0")
    oracle.understood(
        "request", API_VERSIONS, version, request_frame(API_VERSIONS, version, 1, "x", asked)
    )
    features = NodeFeatures(
        {"kraft.version": KRaftVersionRange(0, 1), "metadata.version": KRaftVersionRange(7, 29)},
        {"metadata.version": 29},
        77,
    )
    said, body = answer_api_versions(version, asked, 0, RAFT_APIS.values(), features)
    frame = response_header(API_VERSIONS, said, 1, len(body)) + body
    read = oracle.understood("response", API_VERSIONS, version, frame)
    assert {api["apiKey"]: (api["minVersion"], api["maxVersion"]) for api in read["apiKeys"]} == {
        api.key: (api.lowest, api.highest) for api in RAFT_APIS.values()
    }
    supported = [feature["name"] for feature in read.get("supportedFeatures", [])]
    assert (
        supported
        == ([], [], [], ["metadata.version"], ["kraft.version", "metadata.version"])[version]
    )
    assert read.get("finalizedFeaturesEpoch", 77) == 77


@pytest.mark.parametrize("version", range(3))
def test_kafka_decodes_describe_cluster(oracle: Oracle, version: int) -> None:
    cluster = ClusterDescription("the-cluster", 2, {1: ("a", 9093), 2: ("b", 70000)})
    handler = handler_of(describe_cluster_api(lambda listener: cluster), None, None, Counter())
    asked = b"\0\0" if version == 0 else encode_describe_cluster(version)
    frame = request_frame(DESCRIBE_CLUSTER, version, 1, "x", asked)
    oracle.understood("request", DESCRIBE_CLUSTER, version, frame)
    header = RequestHeader(DESCRIBE_CLUSTER, version, 1, "x")
    answering = handler.answer(header, asked, PeerIdentity("127.0.0.1", listener=LISTENER))
    with pytest.raises(StopIteration) as answered:
        answering.__await__().__next__()
    body = answered.value.value.body
    frame = response_header(DESCRIBE_CLUSTER, version, 1, len(body)) + body
    read = oracle.understood("response", DESCRIBE_CLUSTER, version, frame)
    if version == 0:
        # This version can only request brokers, which a controller does not list.
        assert read["errorCode"] == errors.INVALID_REQUEST
    else:
        assert (read["clusterId"], read["controllerId"]) == ("the-cluster", 2)
        assert [(at["brokerId"], at["host"], at["port"]) for at in read["brokers"]] == [
            (1, "a", 9093),
            (2, "b", 70000),
        ]


REPLICA = ReplicaKey(2, Uuid((2).to_bytes(8, "big") + (3).to_bytes(8, "big")))
VOTER = ReplicaKey(1, Uuid((4).to_bytes(8, "big") + (5).to_bytes(8, "big")))
ENDPOINTS = (Endpoint(LISTENER, "somewhere", 9093),)
CLUSTER = "the-cluster"

#: The messages that Kafka's RaftUtil builds, in ``MessageOracle.built``.
BUILT: dict[type, tuple[m.Request, m.Response | None]] = {
    m.VoteRequest: (
        m.VoteRequest(CLUSTER, 7, REPLICA, VOTER, 6, 100),
        m.VoteResponse(0, 7, 1, ENDPOINTS, True),
    ),
    m.BeginQuorumEpochRequest: (
        m.BeginQuorumEpochRequest(CLUSTER, 7, 1, REPLICA, ENDPOINTS),
        m.BeginQuorumEpochResponse(errors.FENCED_LEADER_EPOCH, 7, 1, ENDPOINTS),
    ),
    m.EndQuorumEpochRequest: (
        m.EndQuorumEpochRequest(CLUSTER, 7, 1, (REPLICA, VOTER)),
        m.EndQuorumEpochResponse(0, 7, 1, ENDPOINTS),
    ),
    m.FetchSnapshotRequest: (
        m.FetchSnapshotRequest(CLUSTER, REPLICA, 7, m.OffsetAndEpoch(90, 5), 4096, 1000),
        m.FetchSnapshotResponse(
            0, 7, 1, ENDPOINTS, m.OffsetAndEpoch(90, 5), size=5000, position=4096
        ),
    ),
    m.DescribeQuorumRequest: (m.DescribeQuorumRequest(), None),
    m.AddRaftVoterRequest: (m.AddRaftVoterRequest(CLUSTER, 30000, REPLICA, ENDPOINTS), None),
    m.RemoveRaftVoterRequest: (m.RemoveRaftVoterRequest(CLUSTER, REPLICA), None),
    m.UpdateRaftVoterRequest: (
        m.UpdateRaftVoterRequest(CLUSTER, 7, REPLICA, ENDPOINTS, KRaftVersionRange(0, 1)),
        m.UpdateRaftVoterResponse(0, 7, 1, ENDPOINTS),
    ),
}
FETCHED = m.FetchResponse(
    errors.NOT_LEADER_OR_FOLLOWER, 7, 1, ENDPOINTS, 95, 3, diverging_epoch=EpochEndOffset(6, 80)
)


@pytest.mark.parametrize(
    ("made", "api", "version"),
    [case for case in CASES if case.values[0] in BUILT],
)
def test_the_bodies_equal_those_of_kafkas_raft_layer(
    oracle: Oracle, made: type, api: Api, version: int
) -> None:
    request, response = BUILT[made]
    if isinstance(request, m.VoteRequest):
        request = replace(request, is_pre_vote=version >= 2)
    elif isinstance(request, m.AddRaftVoterRequest):
        request = replace(request, ack_when_committed=version == 0)
    built = oracle.ask("built", made.__name__, version)
    assert encode_request(request, version).hex() == built
    if response is not None:
        built = oracle.ask("built", type(response).__name__, version)
        pieces = encode_response(response, version, LISTENER, no_slices)
        assert b"".join(pieces).hex() == built


@pytest.mark.parametrize("version", range(13, 19))
def test_a_fetch_response_equals_that_of_kafkas_raft_layer(oracle: Oracle, version: int) -> None:
    pieces = encode_response(FETCHED, version, LISTENER, no_slices)
    assert b"".join(pieces).hex() == oracle.ask("built", "FetchResponse", version)
