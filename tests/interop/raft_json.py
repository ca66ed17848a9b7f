"""Convert Kafka's JSON of its own message classes to raft messages."""

from __future__ import annotations

from typing import Any

from kraft._core.codec.fetch import METADATA_TOPIC, METADATA_TOPIC_ID
from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.raft import rpc as m
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from kraft.records import ZERO_UUID, Uuid
from tests.reference.raft_messages import LISTENER

Json = dict[str, Any]


def key_of(id: int, directory: str | None) -> ReplicaKey:
    directory_id = ZERO_UUID if directory is None else Uuid.parse(directory)
    return ReplicaKey(id, None if directory_id == ZERO_UUID else directory_id)


def endpoints_of(listeners: list[Json]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(at["name"], at["host"], at["port"]) for at in listeners)


def hint_of(body: Json, leader_id: int) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(LISTENER, at["host"], at["port"])
        for at in body.get("nodeEndpoints", [])
        if at["nodeId"] == leader_id
    )


def partition_of(body: Json) -> Json:
    """Return the only partition, after a check of its topic."""
    (topic,) = body["responses"] if "responses" in body else body["topics"]
    if "topicId" in topic:
        assert topic["topicId"] == str(METADATA_TOPIC_ID)
    else:
        assert (topic["topicName"] if "topicName" in topic else topic["name"]) == METADATA_TOPIC
    (partition,) = topic["partitions"]
    index = [
        partition[name] for name in ("partitionIndex", "partition", "index") if name in partition
    ]
    assert index == [0]
    found: Json = partition
    return found


def request_of(name: str, body: Json) -> m.Request:
    """Return the request of Kafka's message ``name``."""
    cluster_id = body.get("clusterId")
    match name:
        case "Vote":
            at = partition_of(body)
            voter = None
            if body.get("voterId", -1) >= 0:
                voter = key_of(body["voterId"], at["voterDirectoryId"])
            return m.VoteRequest(
                cluster_id,
                at["replicaEpoch"],
                key_of(at["replicaId"], at.get("replicaDirectoryId")),
                voter,
                at["lastOffsetEpoch"],
                at["lastOffset"],
                at.get("preVote", False),
            )
        case "BeginQuorumEpoch":
            at = partition_of(body)
            voter = None
            if body.get("voterId", -1) >= 0:
                voter = key_of(body["voterId"], at["voterDirectoryId"])
            endpoints = endpoints_of(body.get("leaderEndpoints", []))
            return m.BeginQuorumEpochRequest(
                cluster_id, at["leaderEpoch"], at["leaderId"], voter, endpoints
            )
        case "EndQuorumEpoch":
            at = partition_of(body)
            successors = [ReplicaKey(id) for id in at.get("preferredSuccessors", [])]
            for one in at.get("preferredCandidates", []):
                successors.append(key_of(one["candidateId"], one["candidateDirectoryId"]))
            endpoints = endpoints_of(body.get("leaderEndpoints", []))
            return m.EndQuorumEpochRequest(
                cluster_id, at["leaderEpoch"], at["leaderId"], tuple(successors), endpoints
            )
        case "Fetch":
            at = partition_of(body)
            id = body.get("replicaId", -1)
            if "replicaState" in body:
                id = body["replicaState"]["replicaId"]
            return m.FetchRequest(
                cluster_id,
                key_of(id, at.get("replicaDirectoryId")),
                at["currentLeaderEpoch"],
                at["fetchOffset"],
                at["lastFetchedEpoch"],
                body["maxWaitMs"],
                body["maxBytes"],
                at.get("highWatermark", m.ANY_HIGH_WATERMARK),
            )
        case "FetchSnapshot":
            at = partition_of(body)
            return m.FetchSnapshotRequest(
                cluster_id,
                key_of(body["replicaId"], at.get("replicaDirectoryId")),
                at["currentLeaderEpoch"],
                m.OffsetAndEpoch(at["snapshotId"]["endOffset"], at["snapshotId"]["epoch"]),
                at["position"],
                body["maxBytes"],
            )
        case "DescribeQuorum":
            partition_of(body)
            return m.DescribeQuorumRequest()
        case "AddRaftVoter":
            return m.AddRaftVoterRequest(
                cluster_id,
                body["timeoutMs"],
                key_of(body["voterId"], body["voterDirectoryId"]),
                endpoints_of(body["listeners"]),
                body.get("ackWhenCommitted", True),
            )
        case "RemoveRaftVoter":
            return m.RemoveRaftVoterRequest(
                cluster_id, key_of(body["voterId"], body["voterDirectoryId"])
            )
        case "UpdateRaftVoter":
            levels = body["kRaftVersionFeature"]
            return m.UpdateRaftVoterRequest(
                cluster_id,
                body["currentLeaderEpoch"],
                key_of(body["voterId"], body["voterDirectoryId"]),
                endpoints_of(body["listeners"]),
                KRaftVersionRange(levels["minSupportedVersion"], levels["maxSupportedVersion"]),
            )
        case "UpdateFeatures":
            (update,) = body["featureUpdates"]
            assert update["feature"] == "kraft.version"
            is_upgrade = (
                not update["allowDowngrade"]
                if "allowDowngrade" in update
                else update["upgradeType"] == 1
            )
            return m.UpdateKRaftVersionRequest(
                update["maxVersionLevel"], is_upgrade, body.get("validateOnly", False)
            )
    raise AssertionError(f"no request is called {name}")


def response_of(name: str, body: Json) -> m.Response:
    """Return the response of Kafka's message ``name``; its records are zeros of the same size."""
    match name:
        case "AddRaftVoter":
            return m.AddRaftVoterResponse(body["errorCode"], body["errorMessage"])
        case "RemoveRaftVoter":
            return m.RemoveRaftVoterResponse(body["errorCode"], body["errorMessage"])
        case "UpdateFeatures":
            for result in body.get("results", []):
                assert result["errorCode"] == body["errorCode"]
                assert result["feature"] == "kraft.version"
            return m.UpdateKRaftVersionResponse(body["errorCode"], body["errorMessage"])
        case "UpdateRaftVoter":
            leader = body.get("currentLeader", {"leaderId": -1, "leaderEpoch": -1, "host": ""})
            hint = (Endpoint(LISTENER, leader["host"], leader["port"]),) if leader["host"] else ()
            return m.UpdateRaftVoterResponse(
                body["errorCode"], leader["leaderEpoch"], leader["leaderId"], hint
            )
    assert body.get("errorCode", 0) == 0
    at = partition_of(body)
    leader = at.get("currentLeader", at)
    id, epoch = leader.get("leaderId", -1), leader.get("leaderEpoch", -1)
    hint = hint_of(body, id)
    match name:
        case "Vote":
            return m.VoteResponse(at["errorCode"], epoch, id, hint, at["voteGranted"])
        case "BeginQuorumEpoch":
            return m.BeginQuorumEpochResponse(at["errorCode"], epoch, id, hint)
        case "EndQuorumEpoch":
            return m.EndQuorumEpochResponse(at["errorCode"], epoch, id, hint)
        case "Fetch":
            diverging, snapshot = at.get("divergingEpoch"), at.get("snapshotId")
            return m.FetchResponse(
                *(at["errorCode"], epoch, id, hint, at["highWatermark"], at["logStartOffset"]),
                diverging and EpochEndOffset(diverging["epoch"], diverging["endOffset"]),
                snapshot and m.OffsetAndEpoch(snapshot["endOffset"], snapshot["epoch"]),
                bytes(at["recordsSizeInBytes"]),
            )
        case "FetchSnapshot":
            if "currentLeader" not in at:
                id, epoch = 0, 0
            snapshot = m.OffsetAndEpoch(at["snapshotId"]["endOffset"], at["snapshotId"]["epoch"])
            return m.FetchSnapshotResponse(
                *(at["errorCode"], epoch, id, hint_of(body, id), snapshot, at["size"]),
                *(at["position"], bytes(at["unalignedRecordsSizeInBytes"])),
            )
        case "DescribeQuorum":
            nodes = {
                node["nodeId"]: endpoints_of(node["listeners"]) for node in body.get("nodes", [])
            }
            return m.DescribeQuorumResponse(
                *(at["errorCode"], epoch, id, nodes.get(id, ()), at["highWatermark"]),
                tuple(map(state_of, at["currentVoters"])),
                tuple(map(state_of, at["observers"])),
                nodes,
            )
    raise AssertionError(f"no response is called {name}")


def state_of(state: Json) -> m.DescribedReplica:
    return m.DescribedReplica(
        key_of(state["replicaId"], state.get("replicaDirectoryId")),
        state["logEndOffset"],
        state.get("lastFetchTimestamp", -1),
        state.get("lastCaughtUpTimestamp", -1),
    )
