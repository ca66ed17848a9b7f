"""The controllers, features, voters and registrations of a cluster.

Sources: KIP-919 (describe_cluster), KIP-584 and KIP-1022 (features), KIP-595 (describe_quorum),
KIP-853 (voters), KIP-1312 (unregister_controller).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kraft.admin.calls import ControllerCalls
from kraft.admin.results import ItemResult, ItemResults, in_order, result_of
from kraft.controller.features import FeatureUpdate
from kraft.errors import NONE, NOT_CONTROLLER, NOT_LEADER_OR_FOLLOWER
from kraft.metadata.facade import Metadata
from kraft.metadata.quorum_observer import OnProgress
from kraft.metadata.quorum_reader import read_metadata as read_quorum
from kraft.protocol.describe_cluster import ClusterDescription
from kraft.protocol.unregister_broker import (
    UNREGISTER_BROKER,
    UnregisterBrokerRequestData,
    UnregisterBrokerResponseData,
)
from kraft.protocol.unregister_controller import (
    UNREGISTER_CONTROLLER,
    UnregisterControllerRequestData,
    UnregisterControllerResponseData,
)
from kraft.protocol.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateData,
    UpdateFeaturesRequestData,
    UpdateFeaturesResponseData,
)
from kraft.raft.rpc import AddRaftVoterRequest, DescribeQuorumResponse, RemoveRaftVoterRequest
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """The features of a cluster (Kafka's ``FeatureMetadata``), by name.

    ``finalized``: the levels of the cluster as of the offset ``finalized_epoch``, -1 if unknown.
    ``supported``: the levels that the controller supports which answered.
    """

    finalized: Mapping[str, int]
    finalized_epoch: int
    supported: Mapping[str, KRaftVersionRange]


def describe_cluster(calls: ControllerCalls) -> ClusterDescription:
    """Return the cluster's id, its registered controllers and the active one.

    Raises QuorumUnreachableError, QuorumRefusedError, UnsupportedVersionError for controllers
    before Kafka 3.7. Source: ``KafkaAdminClient.describeCluster`` over ``bootstrap.controllers``.
    """
    return calls.client.describe_cluster()


def describe_features(calls: ControllerCalls) -> FeatureMetadata:
    """Return the finalized features of the cluster, and those that a controller supports.

    Raises QuorumUnreachableError. Source: ``KafkaAdminClient.describeFeatures``.
    """
    versions = calls.client.api_versions()
    return FeatureMetadata(versions.finalized, versions.finalized_epoch, versions.supported)


def update_features(
    calls: ControllerCalls, updates: Iterable[FeatureUpdate], *, validate_only: bool = False
) -> ItemResults[str, None]:
    """Change the levels of features, all or none; return the outcome of each.

    Items fail with INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED and others. Raises
    QuorumUnreachableError. Source: ``KafkaAdminClient.updateFeatures``.
    """
    wanted = {each.name: each for each in updates}
    request = UpdateFeaturesRequestData(
        calls.controller_timeout_ms,
        [
            FeatureUpdateData(each.name, each.level, upgrade_type=each.upgrade_type)
            for each in wanted.values()
        ],
        validate_only,
    )

    def codes(response: UpdateFeaturesResponseData) -> list[int]:
        given = [response.error_code, *(each.error_code for each in response.results)]
        # Whether the controller or the raft layer rejects: kraft.version is the raft layer's.
        return [NOT_CONTROLLER if code == NOT_LEADER_OR_FOLLOWER else code for code in given]

    response, is_repeated = calls.call(UPDATE_FEATURES, request, UpdateFeaturesResponseData, codes)
    found: dict[str, ItemResult[None]] = {}
    if response.error_code == NONE:
        found = {
            each.feature: result_of(
                each.error_code, each.error_message, _updating(each.feature), None, is_repeated
            )
            for each in response.results
        }
    # From version 2 on, a response has only an error of all of them.
    for name in wanted:
        if name not in found:
            found[name] = result_of(
                response.error_code, response.error_message, _updating(name), None, is_repeated
            )
    return in_order(wanted, found, _updating)


def describe_metadata_quorum(calls: ControllerCalls) -> DescribeQuorumResponse:
    """Return the leader's view of the quorum: epoch, high watermark, voters and observers.

    Raises QuorumUnreachableError, QuorumRefusedError. Source:
    ``KafkaAdminClient.describeMetadataQuorum``.
    """
    return calls.client.describe_quorum()


def add_raft_voter(
    calls: ControllerCalls,
    voter: ReplicaKey,
    endpoints: Iterable[Endpoint],
    *,
    cluster_id: str | None = None,
) -> None:
    """Add a voter; return when the new voters are committed.

    The controller must run and have caught up with the leader. Raises QuorumRefusedError
    (DUPLICATE_VOTER, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION with kraft.version 0),
    QuorumUnreachableError. Source: ``KafkaAdminClient.addRaftVoter``.
    """
    request = AddRaftVoterRequest(cluster_id, calls.controller_timeout_ms, voter, tuple(endpoints))
    calls.ask(request, f"adding controller {voter!r}")


def remove_raft_voter(
    calls: ControllerCalls, voter: ReplicaKey, *, cluster_id: str | None = None
) -> None:
    """Remove a voter, which may be down; return when the new voters are committed.

    Raises QuorumRefusedError (VOTER_NOT_FOUND and others), QuorumUnreachableError. Source:
    ``KafkaAdminClient.removeRaftVoter``.
    """
    calls.ask(RemoveRaftVoterRequest(cluster_id, voter), f"removing controller {voter!r}")


def unregister_broker(calls: ControllerCalls, broker_id: int) -> None:
    """Remove the registration of a broker that is gone for good.

    A broker that runs registers again only when it restarts. Raises QuorumRefusedError
    (BROKER_ID_NOT_REGISTERED), QuorumUnreachableError. Source:
    ``KafkaAdminClient.unregisterBroker``.
    """
    calls.call_whole(
        UNREGISTER_BROKER,
        UnregisterBrokerRequestData(broker_id),
        UnregisterBrokerResponseData,
        f"unregistering broker {broker_id}",
    )


def unregister_controller(calls: ControllerCalls, controller_id: int) -> None:
    """Remove the registration of a controller that is gone for good (Kafka 4.4, KIP-1312).

    Raises QuorumRefusedError, QuorumUnreachableError, UnsupportedVersionError for older
    controllers.
    """
    calls.call_whole(
        UNREGISTER_CONTROLLER,
        UnregisterControllerRequestData(controller_id),
        UnregisterControllerResponseData,
        f"unregistering controller {controller_id}",
    )


def read_metadata(calls: ControllerCalls, on_progress: OnProgress | None = None) -> Metadata:
    """Return the committed metadata of the quorum, as `kraft.open_metadata` does of a directory.

    For what no API of a controller describes: topics, brokers, quotas. Needs CLUSTER_ACTION on the
    cluster where an authorizer is configured. Raises the errors of
    `kraft.metadata.quorum_reader.read_metadata`.
    """
    return read_quorum(calls.client, on_progress)


def _updating(name: str) -> str:
    return f"updating feature {name!r}"
