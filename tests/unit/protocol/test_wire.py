"""The choice of versions, and the rejection of malformed requests."""

from __future__ import annotations

import pytest

from kraft import errors
from kraft._core.codec.fetch import METADATA_TOPIC
from kraft.errors import UNKNOWN_TOPIC_OR_PARTITION, CorruptRecordError, UnsupportedVersionError
from kraft.protocol.api_versions import API_VERSIONS, PeerVersions, version_to_retry
from kraft.protocol.begin_quorum_epoch import (
    BEGIN_QUORUM_EPOCH,
    BeginPartition,
    BeginQuorumEpochRequestData,
    BeginTopic,
)
from kraft.protocol.common import Rejected
from kraft.protocol.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribePartition,
    DescribeQuorumRequestData,
    DescribeQuorumResponseData,
    DescribeTopic,
    QuorumPartition,
    QuorumTopic,
)
from kraft.protocol.end_quorum_epoch import (
    END_QUORUM_EPOCH,
    EndPartition,
    EndQuorumEpochRequestData,
    EndTopic,
)
from kraft.protocol.fetch import FETCH
from kraft.protocol.fetch_snapshot import (
    FETCH_SNAPSHOT,
    FetchSnapshotRequestData,
    RejectedFetchSnapshotData,
    SnapshotPartition,
    SnapshotTopic,
)
from kraft.protocol.headers import Api, newest_common_version, read_response_header, response_header
from kraft.protocol.raft_rpcs import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.protocol.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateData,
    UpdateFeaturesRequestData,
    UpdateFeaturesResponseData,
)
from kraft.protocol.vote import VOTE, VotePartition, VoteRequestData, VoteTopic
from kraft.raft import rpc as m
from kraft.raft.voters import Endpoint, ReplicaKey

LISTENER = "CONTROLLER"


def no_slices(slice: m.LogSlice | m.SnapshotSlice) -> memoryview:
    raise AssertionError


def test_the_newest_common_version_is_used() -> None:
    assert newest_common_version(VOTE, {52: (0, 1)}) == 1
    assert newest_common_version(VOTE, {52: (0, 9)}) == 2
    assert newest_common_version(VOTE, {52: (3, 9)}) is None
    assert newest_common_version(VOTE, {53: (0, 1)}) is None
    # Before version 13 a Fetch names topics by name; the raft layer needs ids.
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
        (VOTE, VoteRequestData, VoteTopic, VotePartition),
        (BEGIN_QUORUM_EPOCH, BeginQuorumEpochRequestData, BeginTopic, BeginPartition),
        (END_QUORUM_EPOCH, EndQuorumEpochRequestData, EndTopic, EndPartition),
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
    assert isinstance(refused, Rejected)
    assert decode_response(api, version, refused.body, 0, LISTENER).error == errors.INVALID_REQUEST


@pytest.mark.parametrize("api", [BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH])
def test_an_election_about_another_log_is_invalid_in_the_oldest_version(api: Api) -> None:
    request = (
        m.BeginQuorumEpochRequest("c", 5, 1, None)
        if api is BEGIN_QUORUM_EPOCH
        else m.EndQuorumEpochRequest("c", 5, 1, (ReplicaKey(2), ReplicaKey(3)))
    )
    body = encode_request(request, 0)
    assert decode_request(api, 0, body) == request
    refused = decode_request(api, 0, body.replace(b"__cluster", b"__kluster"))
    assert isinstance(refused, Rejected)
    assert decode_response(api, 0, refused.body, 0, LISTENER).error == errors.INVALID_REQUEST


@pytest.mark.parametrize("topics", WRONG_TOPICS.values(), ids=WRONG_TOPICS.keys())
def test_partitions_of_another_quorum_are_unknown(topics: Topics) -> None:
    asked = DescribeQuorumRequestData(
        [DescribeTopic(name, list(map(DescribePartition, at))) for name, at in topics]
    )
    body = DescribeQuorumRequestData.schema.encode(asked, 2)
    refused = decode_request(DESCRIBE_QUORUM, 2, body)
    assert isinstance(refused, Rejected)
    said = DescribeQuorumResponseData.schema.decode(refused.body, 2)
    assert isinstance(said, DescribeQuorumResponseData)
    assert said.error_code == 0
    returned = [
        (topic.topic_name, [at.partition_index for at in topic.partitions]) for topic in said.topics
    ]
    assert returned == topics
    codes = {at.error_code for topic in said.topics for at in topic.partitions}
    assert codes <= {UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("topics", WRONG_TOPICS.values(), ids=WRONG_TOPICS.keys())
@pytest.mark.parametrize("version", [0, 1])
def test_a_snapshot_of_another_log_is_unknown_or_invalid(topics: Topics, version: int) -> None:
    asked = FetchSnapshotRequestData(
        topics=[
            SnapshotTopic(name, [SnapshotPartition(index) for index in at]) for name, at in topics
        ]
    )
    body = FetchSnapshotRequestData.schema.encode(asked, version)
    refused = decode_request(FETCH_SNAPSHOT, version, body)
    assert isinstance(refused, Rejected)
    schema = RejectedFetchSnapshotData.schema
    said = schema.decode(refused.body, version)
    assert isinstance(said, RejectedFetchSnapshotData)
    if len(topics) == 1 and len(topics[0][1]) == 1:
        assert said.error_code == 0
        assert said.topics[0].topic_name == topics[0][0]
        assert said.topics[0].partitions[0].error_code == UNKNOWN_TOPIC_OR_PARTITION
    else:
        assert (said.error_code, said.topics) == (errors.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_by_name_is_rejected_where_its_version_has_a_top_level_error(version: int) -> None:
    refused = decode_request(FETCH, version, b"not even read")
    assert isinstance(refused, Rejected)
    assert (b"\0\x2a" in refused.body) == (version >= 7)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_other_than_kraft_version_are_rejected(version: int) -> None:
    updates = [
        FeatureUpdateData("kraft.version", 1),
        FeatureUpdateData("metadata.version", 29),
    ]
    asked = UpdateFeaturesRequestData(feature_updates=updates)
    body = UpdateFeaturesRequestData.schema.encode(asked, version)
    refused = decode_request(UPDATE_FEATURES, version, body)
    assert isinstance(refused, Rejected)
    said = UpdateFeaturesResponseData.schema.decode(refused.body, version)
    assert isinstance(said, UpdateFeaturesResponseData)
    assert said.error_code == errors.INVALID_UPDATE_VERSION
    features = [result.feature for result in said.results]
    assert features == (["kraft.version", "metadata.version"] if version <= 1 else [])


def test_an_error_of_describe_quorum_still_names_the_leader() -> None:
    """In an error Kafka leaves the leader id at its default 0, which does not mean node 0."""
    hint = (Endpoint(LISTENER, "leader", 9093),)
    ours = m.DescribeQuorumResponse(errors.NOT_LEADER_OR_FOLLOWER, 7, 2, hint)
    body = b"".join(encode_response(ours, 2, LISTENER, no_slices))
    read = decode_response(DESCRIBE_QUORUM, 2, body, 0, LISTENER)
    assert isinstance(read, m.DescribeQuorumResponse)
    assert (read.leader_id, read.leader_endpoints) == (2, hint)
    partition = QuorumPartition(error_code=errors.NOT_LEADER_OR_FOLLOWER)
    kafkas = DescribeQuorumResponseData(topics=[QuorumTopic(METADATA_TOPIC, [partition])])
    body = DescribeQuorumResponseData.schema.encode(kafkas, 2)
    read = decode_response(DESCRIBE_QUORUM, 2, body, 0, LISTENER)
    assert isinstance(read, m.DescribeQuorumResponse)
    assert (read.leader_id, read.leader_endpoints) == (-1, ())


def test_a_response_has_the_leaders_endpoint_of_the_listener_only() -> None:
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


def test_a_peer_without_a_common_api_versions_is_unsupported() -> None:
    assert version_to_retry(PeerVersions(35, {18: (0, 2)}, {}, {})) == 2
    assert version_to_retry(PeerVersions(35, {}, {}, {})) == 0
    with pytest.raises(UnsupportedVersionError):
        version_to_retry(PeerVersions(35, {18: (6, 7)}, {}, {}))


def test_a_snapshot_that_was_removed_meanwhile_is_not_found() -> None:
    """The leader decides on a part, and its disk may have removed the file before it is read."""
    id = m.OffsetAndEpoch(100, 3)

    def received(found: bytes, max_size: int = 10) -> tuple[int, bytes]:
        slice = m.SnapshotSlice(id, 50, max_size)
        sent = m.FetchSnapshotResponse(
            0, 3, 1, (), snapshot_id=id, size=70, position=50, data=slice
        )
        parts = encode_response(sent, 1, LISTENER, lambda _: memoryview(found))
        read = decode_response(FETCH_SNAPSHOT, 1, b"".join(parts), 0, LISTENER)
        assert isinstance(read, m.FetchSnapshotResponse)
        assert not isinstance(read.data, m.SnapshotSlice)
        return read.error, bytes(read.data)

    assert received(b"0123456789") == (errors.NONE, b"0123456789")
    assert received(b"") == (errors.SNAPSHOT_NOT_FOUND, b"")
    # Who asks for no bytes gets none.
    assert received(b"", max_size=0) == (errors.NONE, b"")
