"""Which version is spoken, and how requests of a wrong shape are answered."""

from __future__ import annotations

import pytest

from kraft.errors import CorruptRecordError, UnsupportedVersionError
from kraft.raft import messages as m
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.server.rpc import classic_versions
from kraft.server.rpc import schemas as rpc
from kraft.server.rpc.api_versions import PeerVersions, version_to_retry
from kraft.server.rpc.requests import (
    UNKNOWN_TOPIC_OR_PARTITION,
    Refused,
    decode_request,
    encode_request,
)
from kraft.server.rpc.responses import decode_response, encode_response
from kraft.server.rpc.wire import (
    API_VERSIONS,
    BEGIN_QUORUM_EPOCH,
    DESCRIBE_QUORUM,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    METADATA_TOPIC,
    UPDATE_FEATURES,
    VOTE,
    Api,
    newest_common_version,
    read_response_header,
    response_header,
)

LISTENER = "CONTROLLER"


def no_slices(slice: m.LogSlice | m.SnapshotSlice) -> memoryview:
    raise AssertionError


def test_the_newest_version_that_both_know_is_spoken() -> None:
    assert newest_common_version(VOTE, {52: (0, 1)}) == 1
    assert newest_common_version(VOTE, {52: (0, 9)}) == 2
    assert newest_common_version(VOTE, {52: (3, 9)}) is None
    assert newest_common_version(VOTE, {53: (0, 1)}) is None
    # Before 13 a Fetch names topics by name, which the raft layer has no use for.
    assert newest_common_version(FETCH, {1: (4, 12)}) is None
    assert newest_common_version(FETCH, {1: (0, 17)}) == 17


def test_a_response_header_has_tags_in_flexible_versions_but_for_api_versions() -> None:
    assert response_header(VOTE, 0, 7, 10) == b"\0\0\0\x0f\0\0\0\7\0"
    assert response_header(BEGIN_QUORUM_EPOCH, 0, 7, 10) == b"\0\0\0\x0e\0\0\0\7"
    assert response_header(API_VERSIONS, 4, 7, 10) == b"\0\0\0\x0e\0\0\0\7"
    assert read_response_header(b"\0\0\0\7\1\0\2ab", VOTE, 0) == (7, 9)
    with pytest.raises(CorruptRecordError):
        read_response_header(b"\0\0\0", VOTE, 0)


WRONG_TOPICS = {
    "none": [],
    "another": [("other", [0])],
    "another-partition": [(METADATA_TOPIC, [1])],
    "two-partitions": [(METADATA_TOPIC, [0, 1])],
    "no-partition": [(METADATA_TOPIC, [])],
    "two-topics": [(METADATA_TOPIC, [0]), ("other", [0])],
}
Topics = list[tuple[str, list[int]]]


@pytest.mark.parametrize("topics", WRONG_TOPICS.values(), ids=WRONG_TOPICS.keys())
@pytest.mark.parametrize(
    ("api", "request_type", "topic_type", "partition_type"),
    [
        (VOTE, rpc.VoteRequest, rpc.VoteTopic, rpc.VotePartition),
        (BEGIN_QUORUM_EPOCH, rpc.BeginQuorumEpochRequest, rpc.BeginTopic, rpc.BeginPartition),
        (END_QUORUM_EPOCH, rpc.EndQuorumEpochRequest, rpc.EndTopic, rpc.EndPartition),
    ],
)
def test_an_election_about_another_log_is_invalid_at_the_top(
    api: Api, request_type: type, topic_type: type, partition_type: type, topics: Topics
) -> None:
    version = api.highest
    made = request_type(
        topics=[
            topic_type(name, [partition_type(partition_index=index) for index in indexes])
            for name, indexes in topics
        ]
    )
    body = request_type.schema.encode(made, version)  # type: ignore[attr-defined]
    refused = decode_request(api, version, body)
    assert isinstance(refused, Refused)
    assert decode_response(api, version, refused.body, 0, LISTENER).error == m.INVALID_REQUEST


@pytest.mark.parametrize("api", [BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH])
def test_so_is_one_in_the_oldest_version(api: Api) -> None:
    request = (
        m.BeginQuorumEpochRequest("c", 5, 1, None)
        if api is BEGIN_QUORUM_EPOCH
        else m.EndQuorumEpochRequest("c", 5, 1, (ReplicaKey(2), ReplicaKey(3)))
    )
    body = encode_request(request, 0)
    assert decode_request(api, 0, body) == request
    refused = decode_request(api, 0, body.replace(b"__cluster", b"__kluster"))
    assert isinstance(refused, Refused)
    assert decode_response(api, 0, refused.body, 0, LISTENER).error == m.INVALID_REQUEST


@pytest.mark.parametrize("topics", WRONG_TOPICS.values(), ids=WRONG_TOPICS.keys())
def test_another_quorum_is_unknown_partition_by_partition(topics: Topics) -> None:
    asked = rpc.DescribeQuorumRequest(
        [rpc.DescribeTopic(name, list(map(rpc.DescribePartition, at))) for name, at in topics]
    )
    body = rpc.DescribeQuorumRequest.schema.encode(asked, 2)
    refused = decode_request(DESCRIBE_QUORUM, 2, body)
    assert isinstance(refused, Refused)
    said = rpc.DescribeQuorumResponse.schema.decode(refused.body, 2)
    assert isinstance(said, rpc.DescribeQuorumResponse)
    assert said.error_code == 0
    told = [
        (topic.topic_name, [at.partition_index for at in topic.partitions]) for topic in said.topics
    ]
    assert told == topics
    codes = {at.error_code for topic in said.topics for at in topic.partitions}
    assert codes <= {UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("topics", WRONG_TOPICS.values(), ids=WRONG_TOPICS.keys())
@pytest.mark.parametrize("version", [0, 1])
def test_a_snapshot_of_another_log_is_unknown_or_invalid(topics: Topics, version: int) -> None:
    asked = rpc.FetchSnapshotRequest(
        topics=[
            rpc.SnapshotTopic(name, [rpc.SnapshotPartition(index) for index in at])
            for name, at in topics
        ]
    )
    body = rpc.FetchSnapshotRequest.schema.encode(asked, version)
    refused = decode_request(FETCH_SNAPSHOT, version, body)
    assert isinstance(refused, Refused)
    schema = rpc.RefusedFetchSnapshotResponse.schema
    said = schema.decode(refused.body, version)
    assert isinstance(said, rpc.RefusedFetchSnapshotResponse)
    if len(topics) == 1 and len(topics[0][1]) == 1:
        assert said.error_code == 0
        assert said.topics[0].topic_name == topics[0][0]
        assert said.topics[0].partitions[0].error_code == UNKNOWN_TOPIC_OR_PARTITION
    else:
        assert (said.error_code, said.topics) == (m.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_by_name_is_refused_where_its_version_has_a_place_for_it(version: int) -> None:
    refused = decode_request(FETCH, version, b"not even read")
    assert isinstance(refused, Refused)
    assert (b"\0\x2a" in refused.body) == (version >= 7)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_other_than_kraft_version_wait_for_the_controller(version: int) -> None:
    updates = [rpc.FeatureUpdate("kraft.version", 1), rpc.FeatureUpdate("metadata.version", 29)]
    asked = rpc.UpdateFeaturesRequest(feature_updates=updates)
    body = rpc.UpdateFeaturesRequest.schema.encode(asked, version)
    refused = decode_request(UPDATE_FEATURES, version, body)
    assert isinstance(refused, Refused)
    said = rpc.UpdateFeaturesResponse.schema.decode(refused.body, version)
    assert isinstance(said, rpc.UpdateFeaturesResponse)
    assert said.error_code == m.INVALID_UPDATE_VERSION
    features = [result.feature for result in said.results]
    assert features == (["kraft.version", "metadata.version"] if version <= 1 else [])


def test_a_refused_describe_quorum_still_names_the_leader() -> None:
    """Kafka leaves the leader at 0 there, which must not be taken for node 0."""
    hint = (Endpoint(LISTENER, "leader", 9093),)
    ours = m.DescribeQuorumResponse(m.NOT_LEADER_OR_FOLLOWER, 7, 2, hint)
    body = b"".join(encode_response(ours, 2, LISTENER, no_slices))
    read = decode_response(DESCRIBE_QUORUM, 2, body, 0, LISTENER)
    assert isinstance(read, m.DescribeQuorumResponse)
    assert (read.leader_id, read.leader_endpoints) == (2, hint)
    partition = rpc.QuorumPartition(error_code=m.NOT_LEADER_OR_FOLLOWER)
    kafkas = rpc.DescribeQuorumResponse(topics=[rpc.QuorumTopic(METADATA_TOPIC, [partition])])
    body = rpc.DescribeQuorumResponse.schema.encode(kafkas, 2)
    read = decode_response(DESCRIBE_QUORUM, 2, body, 0, LISTENER)
    assert isinstance(read, m.DescribeQuorumResponse)
    assert (read.leader_id, read.leader_endpoints) == (-1, ())


def test_only_the_listeners_own_endpoint_of_the_leader_is_told() -> None:
    both = (Endpoint("OTHER", "inside", 1), Endpoint(LISTENER, "outside", 2))
    response = m.VoteResponse(0, 5, 1, both)
    body = b"".join(encode_response(response, 2, LISTENER, no_slices))
    read = decode_response(VOTE, 2, body, 0, LISTENER)
    assert isinstance(read, m.VoteResponse)
    assert read.leader_endpoints == both[1:]
    body = b"".join(encode_response(response, 2, "THIRD", no_slices))
    read = decode_response(VOTE, 2, body, 0, LISTENER)
    assert isinstance(read, m.VoteResponse)
    assert read.leader_endpoints == ()


def test_a_peer_without_a_common_api_versions_cannot_be_talked_to() -> None:
    assert version_to_retry(PeerVersions(35, {18: (0, 2)}, {}, {})) == 2
    assert version_to_retry(PeerVersions(35, {}, {}, {})) == 0
    with pytest.raises(UnsupportedVersionError):
        version_to_retry(PeerVersions(35, {18: (5, 6)}, {}, {}))


def test_claimed_counts_are_held_against_the_bytes() -> None:
    """In the oldest versions too, whose counts have 32 bits."""
    with pytest.raises(CorruptRecordError):
        classic_versions.decode_epoch_response(b"\0\0\x7f\xff\xff\xff", 0)
    with pytest.raises(CorruptRecordError):
        classic_versions.decode_epoch_request(b"\xff\xff\x7f\xff\xff\xff", 0, is_end=True)
    with pytest.raises(CorruptRecordError):
        classic_versions.decode_api_versions(b"\0\0\x7f\xff\xff\xff", 0, 0)
