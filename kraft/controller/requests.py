"""Requests as operations: each API's decision, ready to be submitted to a `QuorumController`.

Owns what goes with a decision beyond its records: which requests are too large for a batch and
become metadata transactions, and what the sessions are told once a decision took effect. The
functions take what a request says and give an `Operation`; whoever submits it adds token and
deadline. ``QuorumController.submit`` takes them all but `heartbeat`, which goes to
``submit_heartbeat``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kraft._core.creation import topic_size
from kraft.controller.arguments import find_topic
from kraft.controller.brokers import RegistrationRequest, register_broker, unregister_broker
from kraft.controller.configs import (
    AlterConfigPolicy,
    ConfigChange,
    alter_configs,
    alter_configs_in_pieces,
    incremental_alter_configs,
    incremental_alter_configs_in_pieces,
)
from kraft.controller.controllers import ControllerRegistrationRequest, register_controller
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision
from kraft.controller.deletion import (
    DeletedTopic,
    DeletionRules,
    TopicToDelete,
    delete_topics,
    delete_topics_in_pieces,
)
from kraft.controller.directories import DirectoryAssignment, assign_replicas_to_directories
from kraft.controller.elections import ElectionType, LeaderElection
from kraft.controller.features import (
    FeatureUpdate,
    LocalFeatures,
    UpdatedFeatures,
    update_features,
)
from kraft.controller.growth import (
    NewPartitions,
    create_partitions,
    create_partitions_in_pieces,
)
from kraft.controller.heartbeats import (
    HeartbeatAnswer,
    heartbeat_applied,
    process_heartbeat,
)
from kraft.controller.operations import InPieces, KRaftVersionUpgrade, Operation, Outcome, Tip
from kraft.controller.producer_ids import allocate_producer_ids
from kraft.controller.quotas import (
    QuotaAlteration,
    alter_client_quotas,
    alter_client_quotas_in_pieces,
)
from kraft.controller.reassignment import alter_reassignments, alter_reassignments_in_pieces
from kraft.controller.replication import AlterPartitions, IsrChange, alter_partitions
from kraft.controller.sessions import Heartbeat
from kraft.controller.topics import (
    CreationRules,
    NewTopic,
    count_of,
    create_topics,
    create_topics_in_pieces,
    partitions_asked,
)
from kraft.image.configs import ConfigResource
from kraft.records.versions import MetadataVersion

#: What takes longer than a few milliseconds at once goes in pieces.
_REASSIGNMENTS_AT_ONCE = 1_000
_RESOURCES_AT_ONCE = 200

# -- brokers and controllers


def heartbeat(beat: Heartbeat) -> Operation:
    """BrokerHeartbeat; the response is a `HeartbeatAnswer`."""

    def decide(tip: Tip) -> Outcome:
        return process_heartbeat(tip.cluster, tip.sessions, beat, tip.settings)

    def applied(tip: Tip, answer: HeartbeatAnswer) -> None:
        heartbeat_applied(tip.cluster, tip.sessions, beat, answer, tip.next_offset - 1)

    return Operation("broker heartbeat", decide, applied)


def register(request: RegistrationRequest, cluster_id: str | None = None) -> Operation:
    """BrokerRegistration; the response is the broker's epoch."""

    def decide(tip: Tip) -> Outcome:
        return register_broker(
            tip.cluster,
            request,
            next_offset=tip.next_offset,
            has_live_session=tip.sessions.is_alive(tip.cluster, request.broker_id, tip.now_ms),
            cluster_id=cluster_id,
            settings=tip.settings,
        )

    def applied(tip: Tip, epoch: int) -> None:
        tip.sessions.follow(tip.cluster, request.broker_id)

    return Operation("broker registration", decide, applied)


def unregister(broker_id: int) -> Operation:
    """UnregisterBroker."""

    def decide(tip: Tip) -> Outcome:
        return unregister_broker(tip.cluster, broker_id, tip.settings)

    def applied(tip: Tip, response: None) -> None:
        tip.sessions.follow(tip.cluster, broker_id)

    return Operation("unregister broker", decide, applied)


def register_other_controller(request: ControllerRegistrationRequest) -> Operation:
    """ControllerRegistration."""
    return Operation(
        "controller registration", lambda tip: register_controller(tip.cluster, request)
    )


# -- topics and partitions


def create(
    topics: Sequence[NewTopic],
    rules: CreationRules | None = None,
    *,
    validate_only: bool = False,
) -> Operation:
    """CreateTopics; the response holds for each name a `CreatedTopic` or why there is none.

    More than 10,000 partitions come in one metadata transaction, where the metadata.version has
    them.
    """
    rules = rules or CreationRules()

    def decide(tip: Tip) -> Outcome:
        large = partitions_asked(topics, tip.settings) > MAX_RECORDS_PER_BATCH
        if large and not validate_only and has_transactions(tip):
            pieces = create_topics_in_pieces(
                tip.cluster,
                topics,
                placer=tip.placer,
                settings=tip.settings,
                order=tip.sessions,
                rules=rules,
            )
            return InPieces("create topics", pieces)
        return create_topics(
            tip.cluster,
            topics,
            placer=tip.placer,
            settings=tip.settings,
            order=tip.sessions,
            rules=rules,
            validate_only=validate_only,
        )

    return Operation("create topics", decide)


def grow(topics: Sequence[NewPartitions], *, validate_only: bool = False) -> Operation:
    """CreatePartitions; large ones as in `create`."""

    def decide(tip: Tip) -> Outcome:
        wanted = sum(count_of(topic.count) for topic in topics)
        if wanted > MAX_RECORDS_PER_BATCH and not validate_only and has_transactions(tip):
            pieces = create_partitions_in_pieces(
                tip.cluster, topics, placer=tip.placer, settings=tip.settings, order=tip.sessions
            )
            return InPieces("create partitions", pieces)
        return create_partitions(
            tip.cluster,
            topics,
            placer=tip.placer,
            settings=tip.settings,
            order=tip.sessions,
            validate_only=validate_only,
        )

    return Operation("create partitions", decide)


def delete(topics: Sequence[TopicToDelete], rules: DeletionRules | None = None) -> Operation:
    """DeleteTopics; the response is a list of `DeletedTopic`.

    What holds many partitions goes in one metadata transaction, as applying it takes its time.
    """
    rules = rules or DeletionRules()

    def decide(tip: Tip) -> Outcome:
        if _partitions_of(tip, topics) > MAX_RECORDS_PER_BATCH and has_transactions(tip):
            pieces = delete_topics_in_pieces(
                tip.cluster, topics, settings=tip.settings, rules=rules
            )
            return InPieces("delete topics", pieces)
        decision: Decision[list[DeletedTopic]] = delete_topics(
            tip.cluster, topics, settings=tip.settings, rules=rules
        )
        return decision

    return Operation("delete topics", decide)


def change_isrs(broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> Operation:
    """AlterPartition, typed; the response holds each partition's new state or its refusal."""
    return Operation(
        "alter partition",
        lambda tip: alter_partitions(tip.cluster, broker_id, broker_epoch, changes, tip.settings),
    )


def change_isrs_by(request: AlterPartitions) -> Operation:
    """AlterPartition from its bytes, some 10,000 partitions at a time; the response is a body."""
    return Operation("alter partition", lambda tip: request.decide(tip.cluster, tip.settings))


def elect(
    election: ElectionType, partitions: Mapping[str, Sequence[int]] | None = None
) -> Operation:
    """ElectLeaders, some 10,000 at a time; the response is an `ElectionResults`."""
    asked = LeaderElection(election, partitions)
    return Operation("elect leaders", lambda tip: asked.decide(tip.cluster, tip.settings))


def reassign(
    targets: Mapping[tuple[str, int], Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> Operation:
    """AlterPartitionReassignments."""

    def decide(tip: Tip) -> Outcome:
        if len(targets) > _REASSIGNMENTS_AT_ONCE and has_transactions(tip):
            pieces = alter_reassignments_in_pieces(
                tip.cluster,
                targets,
                allow_replication_factor_change=allow_replication_factor_change,
                settings=tip.settings,
            )
            return InPieces("alter partition reassignments", pieces)
        return alter_reassignments(
            tip.cluster,
            targets,
            allow_replication_factor_change=allow_replication_factor_change,
            settings=tip.settings,
        )

    return Operation("alter partition reassignments", decide)


# -- everything else


def configure(
    resources: Iterable[tuple[ConfigResource, Sequence[ConfigChange]]],
    *,
    validate_only: bool = False,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
) -> Operation:
    """IncrementalAlterConfigs; ``is_forwarded`` as in `incremental_alter_configs`."""
    wanted = list(resources)

    def decide(tip: Tip) -> Outcome:
        if len(wanted) > _RESOURCES_AT_ONCE and not validate_only and has_transactions(tip):
            pieces = incremental_alter_configs_in_pieces(
                tip.cluster, wanted, tip.settings, is_forwarded=is_forwarded, policy=policy
            )
            return InPieces("incremental alter configs", pieces)
        return incremental_alter_configs(
            tip.cluster,
            wanted,
            tip.settings,
            validate_only=validate_only,
            is_forwarded=is_forwarded,
            policy=policy,
        )

    return Operation("incremental alter configs", decide)


def replace_configs(
    resources: Iterable[tuple[ConfigResource, Mapping[str, str | None]]],
    *,
    validate_only: bool = False,
    is_forwarded: bool = False,
    policy: AlterConfigPolicy | None = None,
) -> Operation:
    """AlterConfigs, the one of old; ``is_forwarded`` as in `incremental_alter_configs`."""
    wanted = list(resources)

    def decide(tip: Tip) -> Outcome:
        if len(wanted) > _RESOURCES_AT_ONCE and not validate_only and has_transactions(tip):
            pieces = alter_configs_in_pieces(
                tip.cluster, wanted, tip.settings, is_forwarded=is_forwarded, policy=policy
            )
            return InPieces("alter configs", pieces)
        return alter_configs(
            tip.cluster,
            wanted,
            tip.settings,
            validate_only=validate_only,
            is_forwarded=is_forwarded,
            policy=policy,
        )

    return Operation("alter configs", decide)


def assign_directories(
    broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
) -> Operation:
    """AssignReplicasToDirs; the response holds Kafka's error codes, an array an assignment."""
    return Operation(
        "assign replicas to directories",
        lambda tip: assign_replicas_to_directories(
            tip.cluster, broker_id, broker_epoch, assignments, tip.settings
        ),
    )


def allocate_ids(broker_id: int, broker_epoch: int) -> Operation:
    """AllocateProducerIds; the response is a `ProducerIdBlock`."""
    return Operation(
        "allocate producer ids",
        lambda tip: allocate_producer_ids(tip.cluster, broker_id, broker_epoch),
    )


def finalize(
    updates: Sequence[FeatureUpdate], local: LocalFeatures, *, validate_only: bool = False
) -> Operation:
    """UpdateFeatures; the response is an `UpdatedFeatures`.

    Every update is checked first. An upgrade of kraft.version is then asked of the raft layer,
    whose refusal is the answer. The other levels are written once it has succeeded, and all are
    checked against the state of that moment. A NoOp stands for kraft.version, as in Kafka.
    """

    def others(tip: Tip) -> Decision[UpdatedFeatures]:
        return update_features(
            tip.cluster, updates, local, tip.settings, validate_only=validate_only
        )

    def decide(tip: Tip) -> Outcome:
        decision = others(tip)
        level = decision.response.kraft_version
        return decision if level is None else KRaftVersionUpgrade(level, validate_only, others)

    return Operation("update features", decide)


def limit_clients(
    alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
) -> Operation:
    """AlterClientQuotas."""

    def decide(tip: Tip) -> Outcome:
        large = len(alterations) > _RESOURCES_AT_ONCE
        if large and not validate_only and has_transactions(tip):
            pieces = alter_client_quotas_in_pieces(tip.cluster, alterations)
            return InPieces("alter client quotas", pieces)
        return alter_client_quotas(tip.cluster, alterations, validate_only=validate_only)

    return Operation("alter client quotas", decide)


def has_transactions(tip: Tip) -> bool:
    """Whether the metadata.version knows metadata transactions (KIP-868)."""
    return tip.cluster.state.metadata_version >= MetadataVersion.IBP_3_6_IV1


def _partitions_of(tip: Tip, topics: Sequence[TopicToDelete]) -> int:
    """How many partitions the named topics have, at most."""
    table = tip.cluster.table
    total = len(topics)
    for topic in topics:
        number = (
            find_topic(table, topic.name)
            if topic.name is not None
            else table.topic_number_by_id(topic.topic_id or b"\0" * 16)
        )
        if number >= 0:
            total += topic_size(table, number)[0]
    return total
