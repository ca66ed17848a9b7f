"""Requests -> records: what Kafka's controller would write.

Each function takes a ``Cluster`` (partitions and everything else, as committed records made them),
decides, and gives a ``Decision``: records, already encoded into batches, and the answer to whoever
asked. Deciding never changes the cluster; the records do, once they are applied. Pure: no socket,
file, thread, clock or random source; ids, offsets and the placer are arguments.

One module for each duty: ``brokers``, ``topics``, ``elections``, ``replication``,
``reassignment``, ``configs``, ``acls``, ``scram``, ``tokens``, and so on.
"""

from kraft.controller.acls import (
    AclFilter,
    create_acls,
    create_acls_in_pieces,
    delete_acls,
    delete_acls_in_pieces,
    describe_acls,
)
from kraft.controller.bootstrap import activation_records, default_bootstrap, read_bootstrap
from kraft.controller.brokers import (
    RegistrationRequest,
    begin_controlled_shutdown,
    fence_broker,
    fence_stale_broker,
    register_broker,
    shut_down_broker,
    unfence_broker,
    unregister_broker,
)
from kraft.controller.config_schema import ConfigRules, is_supported_config
from kraft.controller.configs import (
    AlterConfigPolicy,
    ConfigChange,
    ConfigOperation,
    alter_configs,
    alter_configs_in_pieces,
    incremental_alter_configs,
    incremental_alter_configs_in_pieces,
)
from kraft.controller.controllers import ControllerRegistrationRequest, register_controller
from kraft.controller.decision import Decision, Records
from kraft.controller.deletion import (
    DeletedTopic,
    DeletionRules,
    TopicToDelete,
    delete_topic,
    delete_topics,
    delete_topics_in_pieces,
)
from kraft.controller.directories import (
    DirectoryAssignment,
    assign_replicas_to_directories,
    take_directories_offline,
)
from kraft.controller.elections import (
    ElectionResults,
    ElectionType,
    LeaderElection,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from kraft.controller.features import (
    FeatureUpdate,
    LocalFeatures,
    UpdatedFeatures,
    UpgradeType,
    finalized_features,
    update_features,
)
from kraft.controller.growth import (
    NewPartitions,
    create_partitions,
    create_partitions_in_pieces,
    grow_topic,
)
from kraft.controller.heartbeats import (
    HeartbeatAnswer,
    heartbeat_applied,
    heartbeat_expired,
    process_heartbeat,
)
from kraft.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from kraft.controller.quotas import (
    QuotaAlteration,
    QuotaFilter,
    alter_client_quotas,
    alter_client_quotas_in_pieces,
    describe_client_quotas,
)
from kraft.controller.reassignment import (
    Reassignment,
    alter_reassignments,
    alter_reassignments_in_pieces,
    list_reassignments,
)
from kraft.controller.replication import (
    AlterPartitions,
    IsrChange,
    PartitionAnswer,
    alter_partitions,
    expand_isrs,
)
from kraft.controller.scram import (
    ScramDeletion,
    ScramDescription,
    ScramUpsertion,
    alter_scram_credentials,
    alter_scram_credentials_in_pieces,
    describe_scram_credentials,
)
from kraft.controller.sessions import BrokerControlState, BrokerSessions, Heartbeat
from kraft.controller.state import Cluster, Settings, election_context, usable_brokers
from kraft.controller.tokens import (
    IssuedToken,
    Principal,
    TokenSettings,
    check_token_request,
    create_token,
    describe_tokens,
    expire_token,
    expire_tokens,
    renew_token,
)
from kraft.controller.topics import (
    CreatedTopic,
    CreationRules,
    NewTopic,
    TopicMetadata,
    create_topic,
    create_topics,
    create_topics_in_pieces,
    partitions_asked,
)

__all__ = [
    "AclFilter",
    "AlterConfigPolicy",
    "AlterPartitions",
    "BrokerControlState",
    "BrokerSessions",
    "Cluster",
    "ConfigChange",
    "ConfigOperation",
    "ConfigRules",
    "ControllerRegistrationRequest",
    "CreatedTopic",
    "CreationRules",
    "Decision",
    "DeletedTopic",
    "DeletionRules",
    "DirectoryAssignment",
    "ElectionResults",
    "ElectionType",
    "FeatureUpdate",
    "Heartbeat",
    "HeartbeatAnswer",
    "IsrChange",
    "IssuedToken",
    "LeaderElection",
    "LocalFeatures",
    "NewPartitions",
    "NewTopic",
    "PartitionAnswer",
    "Principal",
    "ProducerIdBlock",
    "QuotaAlteration",
    "QuotaFilter",
    "Reassignment",
    "Records",
    "RegistrationRequest",
    "ScramDeletion",
    "ScramDescription",
    "ScramUpsertion",
    "Settings",
    "TokenSettings",
    "TopicMetadata",
    "TopicToDelete",
    "UpdatedFeatures",
    "UpgradeType",
    "activation_records",
    "allocate_producer_ids",
    "alter_client_quotas",
    "alter_client_quotas_in_pieces",
    "alter_configs",
    "alter_configs_in_pieces",
    "alter_partitions",
    "alter_reassignments",
    "alter_reassignments_in_pieces",
    "alter_scram_credentials",
    "alter_scram_credentials_in_pieces",
    "assign_replicas_to_directories",
    "balance_leaders",
    "begin_controlled_shutdown",
    "check_token_request",
    "create_acls",
    "create_acls_in_pieces",
    "create_partitions",
    "create_partitions_in_pieces",
    "create_token",
    "create_topic",
    "create_topics",
    "create_topics_in_pieces",
    "default_bootstrap",
    "delete_acls",
    "delete_acls_in_pieces",
    "delete_topic",
    "delete_topics",
    "delete_topics_in_pieces",
    "describe_acls",
    "describe_client_quotas",
    "describe_scram_credentials",
    "describe_tokens",
    "elect_leaders",
    "elect_unclean_leaders",
    "election_context",
    "expand_isrs",
    "expire_token",
    "expire_tokens",
    "fence_broker",
    "fence_stale_broker",
    "finalized_features",
    "grow_topic",
    "heartbeat_applied",
    "heartbeat_expired",
    "incremental_alter_configs",
    "incremental_alter_configs_in_pieces",
    "is_supported_config",
    "list_reassignments",
    "partitions_asked",
    "process_heartbeat",
    "read_bootstrap",
    "register_broker",
    "register_controller",
    "renew_token",
    "shut_down_broker",
    "take_directories_offline",
    "unfence_broker",
    "unregister_broker",
    "update_features",
    "usable_brokers",
]
