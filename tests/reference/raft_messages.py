"""Strategies for the messages of the raft layer, and the fields that each wire version has."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.raft import rpc as m
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from kraft.records import Uuid

LISTENER = "CONTROLLER"

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
ids = st.integers(0, 2**31 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=40)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
ports = st.integers(0, 65535)
directories = st.none() | st.binary(min_size=16, max_size=16).filter(any).map(Uuid)
replicas = st.builds(ReplicaKey, ids, directories)
endpoints = st.lists(st.builds(Endpoint, texts, texts, ports), max_size=3).map(tuple)
hints = st.just(()) | st.builds(Endpoint, st.just(LISTENER), names, ports).map(lambda at: (at,))
cluster_ids = st.none() | texts
errors = st.integers(-1, 130)
partition_errors = errors.filter(lambda code: code not in m.TOP_LEVEL_ERRORS)
snapshot_ids = st.builds(m.OffsetAndEpoch, int64s, int32s)

REQUESTS: dict[type, st.SearchStrategy[m.Request]] = {
    m.VoteRequest: st.builds(
        m.VoteRequest,
        *(cluster_ids, int32s, replicas, st.none() | replicas, int32s, int64s, st.booleans()),
    ),
    m.BeginQuorumEpochRequest: st.builds(
        m.BeginQuorumEpochRequest, cluster_ids, int32s, int32s, st.none() | replicas, endpoints
    ),
    m.EndQuorumEpochRequest: st.builds(
        m.EndQuorumEpochRequest,
        *(cluster_ids, int32s, int32s, st.lists(replicas, max_size=4).map(tuple), endpoints),
    ),
    m.FetchRequest: st.builds(
        m.FetchRequest,
        *(cluster_ids, replicas, int32s, int64s, int32s, int32s, int32s, int64s),
    ),
    m.FetchSnapshotRequest: st.builds(
        m.FetchSnapshotRequest, cluster_ids, replicas, int32s, snapshot_ids, int64s, int32s
    ),
    m.DescribeQuorumRequest: st.builds(m.DescribeQuorumRequest),
    m.AddRaftVoterRequest: st.builds(
        m.AddRaftVoterRequest, cluster_ids, int32s, replicas, endpoints, st.booleans()
    ),
    m.RemoveRaftVoterRequest: st.builds(m.RemoveRaftVoterRequest, cluster_ids, replicas),
    m.UpdateRaftVoterRequest: st.builds(
        m.UpdateRaftVoterRequest,
        *(cluster_ids, int32s, replicas, endpoints, st.builds(KRaftVersionRange, int16s, int16s)),
    ),
    m.UpdateKRaftVersionRequest: st.builds(
        m.UpdateKRaftVersionRequest, int16s, st.booleans(), st.booleans()
    ),
}


def quorum_response(made: type, *more: st.SearchStrategy[object]) -> st.SearchStrategy[m.Response]:
    """Draw a response with an error, an epoch, a leader, its endpoints, and its other fields."""
    return st.builds(made, partition_errors, int32s, st.just(-1) | ids, hints, *more)


replica_states = st.lists(
    st.builds(m.DescribedReplica, replicas, int64s, int64s, int64s), max_size=3
)

RESPONSES: dict[type, st.SearchStrategy[m.Response]] = {
    m.VoteRequest: quorum_response(m.VoteResponse, st.booleans()),
    m.BeginQuorumEpochRequest: quorum_response(m.BeginQuorumEpochResponse),
    m.EndQuorumEpochRequest: quorum_response(m.EndQuorumEpochResponse),
    m.FetchRequest: quorum_response(
        m.FetchResponse,
        *(int64s, int64s, st.none() | st.builds(EpochEndOffset, ids, int64s)),
        *(st.none() | st.builds(m.OffsetAndEpoch, int64s, ids), st.binary(max_size=300)),
    ),
    m.FetchSnapshotRequest: quorum_response(
        m.FetchSnapshotResponse, snapshot_ids, int64s, int64s, st.binary(max_size=300)
    ),
    m.DescribeQuorumRequest: st.builds(
        m.DescribeQuorumResponse,
        *(st.just(0), int32s, ids, st.just(()), int64s),
        *(replica_states.map(tuple), replica_states.map(tuple)),
        st.dictionaries(ids, endpoints, max_size=3),
    ),
    m.AddRaftVoterRequest: st.builds(m.AddRaftVoterResponse, errors, st.none() | texts),
    m.RemoveRaftVoterRequest: st.builds(m.RemoveRaftVoterResponse, errors, st.none() | texts),
    m.UpdateRaftVoterRequest: st.builds(
        m.UpdateRaftVoterResponse, errors, int32s, st.just(-1) | ids, hints
    ),
    m.UpdateKRaftVersionRequest: st.builds(m.UpdateKRaftVersionResponse, errors, st.none() | texts),
}


def can_express(request: m.Request, version: int) -> bool:
    """Return whether the version has all required fields of the request."""
    match request:
        case m.VoteRequest(is_pre_vote=True):
            return version >= 2
        case m.AddRaftVoterRequest(ack_when_committed=False):
            return version >= 1
        case m.UpdateKRaftVersionRequest(validate_only=True):
            return version >= 1
    return True


def request_as_seen(request: m.Request, version: int) -> m.Request:
    """Return the request as its receiver decodes it in this version."""
    match request:
        case m.VoteRequest() if version == 0:
            return replace(request, voter=None, candidate=ReplicaKey(request.candidate.id))
        case m.BeginQuorumEpochRequest() if version == 0:
            return replace(request, voter=None, leader_endpoints=())
        case m.EndQuorumEpochRequest() if version == 0:
            keys = tuple(ReplicaKey(key.id) for key in request.preferred_candidates)
            return replace(request, preferred_candidates=keys, leader_endpoints=())
        case m.FetchSnapshotRequest() if version == 0:
            return replace(request, replica=ReplicaKey(request.replica.id))
        case m.FetchRequest():
            if version < 18:
                request = replace(request, high_watermark=m.ANY_HIGH_WATERMARK)
            if version < 17:
                request = replace(request, replica=ReplicaKey(request.replica.id))
    return request


def response_as_seen(response: m.Response, version: int) -> m.Response:
    """Return the response as its receiver decodes it in this version."""
    match response:
        case m.FetchResponse():
            if version < 17 or response.leader_id < 0:
                return replace(response, leader_endpoints=())
        case m.DescribeQuorumResponse():
            return described_as_seen(response, version)
        case m.UpdateRaftVoterResponse():
            if response.leader_id < 0:
                return replace(response, leader_endpoints=())
        case m.AddRaftVoterResponse() | m.RemoveRaftVoterResponse():
            return response
        case m.UpdateKRaftVersionResponse():
            return response
        case _:
            if version < 1 or response.leader_id < 0:
                return replace(response, leader_endpoints=())
    return response


def described_as_seen(response: m.DescribeQuorumResponse, version: int) -> m.DescribeQuorumResponse:
    def state(at: m.DescribedReplica) -> m.DescribedReplica:
        if version < 2:
            at = at._replace(key=ReplicaKey(at.key.id))
        if version < 1:
            at = at._replace(last_fetch_timestamp_ms=-1, last_caught_up_timestamp_ms=-1)
        return at

    nodes = response.nodes if version >= 2 else {}
    return replace(
        response,
        voters=tuple(map(state, response.voters)),
        observers=tuple(map(state, response.observers)),
        nodes=nodes,
        leader_endpoints=nodes.get(response.leader_id, ()),
    )
