"""Operations of the APIs: each function returns the operation of one request.

Sets the largest size of a request that is decided at once, and updates the broker sessions after a
decision is applied. The caller adds token and deadline and passes the operation to
``QuorumController.submit``, or for `broker_heartbeat` to ``submit_heartbeat``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kraft.controller import features
from kraft.controller.brokers import (
    broker_lifecycle,
    controller_registration,
    directories,
    heartbeats,
    producer_ids,
)
from kraft.controller.brokers.broker_lifecycle import RegistrationRequest
from kraft.controller.brokers.controller_registration import ControllerRegistrationRequest
from kraft.controller.brokers.directories import DirectoryAssignment
from kraft.controller.brokers.heartbeats import BrokerHeartbeatReply
from kraft.controller.brokers.sessions import Heartbeat
from kraft.controller.configs import client_quotas, config_changes
from kraft.controller.configs.client_quotas import QuotaAlteration
from kraft.controller.configs.config_changes import AlterConfigPolicy, ConfigChange
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision
from kraft.controller.features import FeatureUpdate, LocalFeatures, UpdatedFeatures
from kraft.controller.runtime.operations import (
    DecisionContext,
    KRaftVersionUpgrade,
    Operation,
    OperationResult,
)
from kraft.controller.topics import (
    isr_changes,
    partition_creation,
    reassignment,
    topic_creation,
    topic_deletion,
)
from kraft.controller.topics.elections import ElectionType, LeaderElection
from kraft.controller.topics.isr_changes import EncodedAlterPartition, IsrChange
from kraft.controller.topics.partition_creation import NewPartitions
from kraft.controller.topics.topic_creation import CreationRules, MutationQuota, NewTopic
from kraft.controller.topics.topic_deletion import DeletionRules, TopicToDelete
from kraft.image.configs import ConfigResource

#: Larger requests take longer than a few milliseconds and are decided in chunks.
_REASSIGNMENTS_AT_ONCE = 1_000
_RESOURCES_AT_ONCE = 200
#: The most partitions that one request may add. A larger request would run into the time limit of
#: its transaction, and heartbeats wait for it until then.
MAX_NEW_PARTITIONS = 10_000_000

# -- brokers and controllers


#: The name of the operation of a heartbeat.
HEARTBEAT = "broker heartbeat"


def broker_heartbeat(beat: Heartbeat) -> Operation:
    """Return the operation of BrokerHeartbeat; the response is a `BrokerHeartbeatReply`."""

    def decide(context: DecisionContext) -> OperationResult:
        return heartbeats.broker_heartbeat(
            context.cluster,
            context.sessions,
            beat,
            context.settings,
            next_offset=context.next_offset,
        )

    def applied(context: DecisionContext, answer: BrokerHeartbeatReply) -> None:
        heartbeats.broker_heartbeat_applied(
            context.cluster, context.sessions, beat, answer, context.next_offset - 1
        )

    def unchanged(context: DecisionContext) -> BrokerHeartbeatReply | None:
        return heartbeats.unchanged_heartbeat(context.cluster, context.sessions, beat)

    return Operation(HEARTBEAT, decide, applied, unchanged, reads_broker=beat.broker_id)


def register_broker(request: RegistrationRequest, cluster_id: str | None = None) -> Operation:
    """Return the operation of BrokerRegistration; the response is the broker's epoch."""

    def decide(context: DecisionContext) -> OperationResult:
        return broker_lifecycle.register_broker(
            context.cluster,
            request,
            next_offset=context.next_offset,
            has_live_session=context.sessions.is_alive(
                context.cluster, request.broker_id, context.now_ms
            ),
            cluster_id=cluster_id,
            settings=context.settings,
        )

    def applied(context: DecisionContext, epoch: int) -> None:
        context.sessions.reset_broker(context.cluster, request.broker_id)
        context.sessions.leaderless_search.registered(epoch, context.next_offset)

    return Operation("broker registration", decide, applied)


def unregister_broker(broker_id: int) -> Operation:
    """Return the operation of UnregisterBroker."""

    def decide(context: DecisionContext) -> OperationResult:
        return broker_lifecycle.unregister_broker(context.cluster, broker_id, context.settings)

    def applied(context: DecisionContext, response: None) -> None:
        context.sessions.reset_broker(context.cluster, broker_id)

    return Operation("unregister broker", decide, applied)


def register_controller(request: ControllerRegistrationRequest) -> Operation:
    """Return the operation of ControllerRegistration."""
    return Operation(
        "controller registration",
        lambda context: controller_registration.register_controller(context.cluster, request),
    )


def unregister_controller(controller_id: int, local: LocalFeatures) -> Operation:
    """Return the operation of UnregisterController; ``local`` names this controller."""

    def decide(context: DecisionContext) -> OperationResult:
        return controller_registration.unregister_controller(
            context.cluster,
            controller_id,
            local.node_id,
            features.quorum_node_ids(context.cluster, local),
        )

    return Operation("unregister controller", decide)


# -- topics and partitions


def create_topics(
    topics: Sequence[NewTopic],
    rules: CreationRules | None = None,
    *,
    validate_only: bool = False,
) -> Operation:
    """Return the operation of CreateTopics; the response maps names to `CreatedTopic` or an error.

    More than 10,000 partitions are written in one metadata transaction, if the metadata.version has
    transactions. Answers PolicyViolationError for more than `MAX_NEW_PARTITIONS`.
    """
    rules = rules or CreationRules()

    def decide(context: DecisionContext) -> OperationResult:
        return topic_creation.create_topics(
            context.cluster,
            topics,
            placer=context.placer,
            settings=context.settings,
            order=context.sessions,
            rules=rules,
            validate_only=validate_only,
            at_once=context.at_once(MAX_RECORDS_PER_BATCH),
            most=MAX_NEW_PARTITIONS,
        )

    return Operation("create topics", decide)


def create_partitions(
    topics: Sequence[NewPartitions],
    *,
    is_authorized: Callable[[str], bool] | None = None,
    quota: MutationQuota | None = None,
    validate_only: bool = False,
) -> Operation:
    """Return the operation of CreatePartitions; large requests as in `create_topics`.

    ``is_authorized`` returns whether the client may alter a topic of a name; None allows all.
    ``quota`` is called with the numbers of new partitions.
    """

    def decide(context: DecisionContext) -> OperationResult:
        return partition_creation.create_partitions(
            context.cluster,
            topics,
            placer=context.placer,
            settings=context.settings,
            order=context.sessions,
            is_authorized=is_authorized,
            quota=quota,
            validate_only=validate_only,
            at_once=context.at_once(MAX_RECORDS_PER_BATCH),
            most=MAX_NEW_PARTITIONS,
        )

    return Operation("create partitions", decide)


def delete_topics(topics: Sequence[TopicToDelete], rules: DeletionRules | None = None) -> Operation:
    """Return the operation of DeleteTopics; the response is a list of `DeletedTopic`.

    Topics with many partitions are deleted in one metadata transaction, because applying takes
    time.
    """
    rules = rules or DeletionRules()

    def decide(context: DecisionContext) -> OperationResult:
        return topic_deletion.delete_topics(
            context.cluster,
            topics,
            settings=context.settings,
            rules=rules,
            at_once=context.at_once(MAX_RECORDS_PER_BATCH),
        )

    return Operation("delete topics", decide)


def alter_partition(broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> Operation:
    """Return the operation of a typed AlterPartition; the response maps partitions to state or
    error.
    """
    return _alter_partition(
        lambda context: isr_changes.alter_partition(
            context.cluster, broker_id, broker_epoch, changes, context.settings
        )
    )


def alter_partition_encoded(request: EncodedAlterPartition) -> Operation:
    """Return the operation of an AlterPartition in bytes; the response is a body.

    It decides about 10,000 partitions at a time.
    """
    return _alter_partition(lambda context: request.decide(context.cluster, context.settings))


def _alter_partition(decide: Callable[[DecisionContext], OperationResult]) -> Operation:
    first_offset = -1

    def decided(context: DecisionContext) -> OperationResult:
        nonlocal first_offset
        first_offset = context.next_offset
        return decide(context)

    def applied(context: DecisionContext, response: Any) -> None:
        context.sessions.leaderless_search.isrs_changed(first_offset, context.next_offset)

    return Operation("alter partition", decided, applied)


def elect_leaders(
    election: ElectionType, partitions: Mapping[str, Sequence[int]] | None = None
) -> Operation:
    """Return the operation of ElectLeaders; the response is an `ElectionResults`.

    It decides about 10,000 elections at a time.
    """
    asked = LeaderElection(election, partitions)
    return Operation(
        "elect leaders", lambda context: asked.decide(context.cluster, context.settings)
    )


def alter_partition_reassignments(
    targets: Mapping[tuple[str, int], Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> Operation:
    """Return the operation of AlterPartitionReassignments."""

    def decide(context: DecisionContext) -> OperationResult:
        return reassignment.alter_partition_reassignments(
            context.cluster,
            targets,
            allow_replication_factor_change=allow_replication_factor_change,
            settings=context.settings,
            at_once=context.at_once(_REASSIGNMENTS_AT_ONCE),
        )

    return Operation("alter partition reassignments", decide)


# -- configurations, directories, producer ids, features, quotas


def incremental_alter_configs(
    resources: Iterable[tuple[ConfigResource, Sequence[ConfigChange]]],
    *,
    validate_only: bool = False,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
) -> Operation:
    """Return the operation of IncrementalAlterConfigs; arguments as in `config_changes`."""
    wanted = list(resources)

    def decide(context: DecisionContext) -> OperationResult:
        return config_changes.incremental_alter_configs(
            context.cluster,
            wanted,
            context.settings,
            validate_only=validate_only,
            is_forwarded=is_forwarded,
            policy=policy,
            at_once=context.at_once(_RESOURCES_AT_ONCE),
        )

    return Operation("incremental alter configs", decide)


def alter_configs(
    resources: Iterable[tuple[ConfigResource, Mapping[str, str | None]]],
    *,
    validate_only: bool = False,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
) -> Operation:
    """Return the operation of the legacy AlterConfigs; arguments as in `config_changes`."""
    wanted = list(resources)

    def decide(context: DecisionContext) -> OperationResult:
        return config_changes.alter_configs(
            context.cluster,
            wanted,
            context.settings,
            validate_only=validate_only,
            is_forwarded=is_forwarded,
            policy=policy,
            at_once=context.at_once(_RESOURCES_AT_ONCE),
        )

    return Operation("alter configs", decide)


def assign_replicas_to_dirs(
    broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
) -> Operation:
    """Return the operation of AssignReplicasToDirs.

    The response has one array of Kafka's error codes for each assignment.
    """
    return Operation(
        "assign replicas to directories",
        lambda context: directories.assign_replicas_to_dirs(
            context.cluster, broker_id, broker_epoch, assignments, context.settings
        ),
    )


def allocate_producer_ids(broker_id: int, broker_epoch: int) -> Operation:
    """Return the operation of AllocateProducerIds; the response is a `ProducerIdBlock`."""
    return Operation(
        "allocate producer ids",
        lambda context: producer_ids.allocate_producer_ids(
            context.cluster, broker_id, broker_epoch
        ),
    )


def update_features(
    updates: Sequence[FeatureUpdate], local: LocalFeatures, *, validate_only: bool = False
) -> Operation:
    """Return the operation of UpdateFeatures; the response is an `UpdatedFeatures`.

    The operation checks every update. Then the raft layer upgrades kraft.version; its error is the
    response. After it succeeded, all updates are checked again on the state of that moment, and the
    other levels are written. A NoOp record stands for kraft.version, as in Kafka.
    """

    def others(context: DecisionContext) -> Decision[UpdatedFeatures]:
        return features.update_features(
            context.cluster, updates, local, context.settings, validate_only=validate_only
        )

    def decide(context: DecisionContext) -> OperationResult:
        decision = others(context)
        level = decision.response.kraft_version
        return decision if level is None else KRaftVersionUpgrade(level, validate_only, others)

    return Operation("update features", decide)


def alter_client_quotas(
    alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
) -> Operation:
    """Return the operation of AlterClientQuotas."""

    def decide(context: DecisionContext) -> OperationResult:
        return client_quotas.alter_client_quotas(
            context.cluster,
            alterations,
            validate_only=validate_only,
            at_once=context.at_once(_RESOURCES_AT_ONCE),
        )

    return Operation("alter client quotas", decide)
