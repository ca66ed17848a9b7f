"""The admin client of a quorum: Kafka's Admin, with all its requests sent to controllers.

    async with kraft.admin.connect("localhost:9093") as admin:
        created = await admin.create_topics([TopicSpec("orders", 6, 3)])
        print(created["orders"].get().topic_id)

    with kraft.admin.connect_blocking("localhost:9093") as admin:
        print(admin.describe_metadata_quorum().leader_id)

`client` has the two clients; the other modules have the calls by subject, and the types of their
requests and results.
"""

from kraft.admin.client import Admin, BlockingAdmin, connect, connect_blocking
from kraft.admin.cluster import FeatureMetadata
from kraft.admin.configs import ConfigEntry, ConfigResourceType, ConfigSource
from kraft.admin.results import ItemResult, ItemResults
from kraft.admin.scram import ScramMechanismType, scram_upsertion
from kraft.admin.settings import AdminSettings
from kraft.admin.topics import TopicCreated, TopicSpec
from kraft.controller.configs.client_quotas import QuotaAlteration, QuotaFilter
from kraft.controller.configs.config_changes import ConfigChange, ConfigOperation
from kraft.controller.features import FeatureUpdate, UpgradeType
from kraft.controller.security.acls import AclFilter
from kraft.controller.security.delegation_tokens import IssuedToken
from kraft.controller.security.scram import ScramDeletion, ScramUpsertion
from kraft.controller.topics.elections import ElectionType
from kraft.controller.topics.partition_creation import NewPartitions
from kraft.controller.topics.reassignment import Reassignment
from kraft.image.security import (
    AccessControl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kraft.network.quorum_client import QuorumRefusedError, QuorumUnreachableError
from kraft.raft.voters import Endpoint, ReplicaKey
from kraft.records import Uuid

__all__ = [
    "AccessControl",
    "AclFilter",
    "AclOperation",
    "Admin",
    "AdminSettings",
    "BlockingAdmin",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResourceType",
    "ConfigSource",
    "ElectionType",
    "Endpoint",
    "FeatureMetadata",
    "FeatureUpdate",
    "IssuedToken",
    "ItemResult",
    "ItemResults",
    "NewPartitions",
    "PatternType",
    "PermissionType",
    "QuorumRefusedError",
    "QuorumUnreachableError",
    "QuotaAlteration",
    "QuotaFilter",
    "Reassignment",
    "ReplicaKey",
    "ResourceType",
    "ScramDeletion",
    "ScramMechanismType",
    "ScramUpsertion",
    "TopicCreated",
    "TopicSpec",
    "UpgradeType",
    "Uuid",
    "connect",
    "connect_blocking",
    "scram_upsertion",
]
