"""The text of the files in the tree: registrations, partitions, ACLs as Kafka's shell prints them.

Sources: ``toString`` of ``BrokerRegistration``, ``ControllerRegistration``,
``PartitionRegistration``, ``StandardAcl``, ``ScramCredentialData``, ``DelegationTokenDataNode``,
``MetadataProvenance`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from kraft.image import (
    AccessControl,
    BrokerRegistration,
    ControllerRegistration,
    ScramCredential,
    Token,
)
from kraft.image.diff import HIDDEN
from kraft.image.nodes import SECURITY_PROTOCOLS, NodeEndpoint, VersionRange
from kraft.image.security import AclOperation, PatternType, PermissionType, ResourceType
from kraft.metadata.partitions import PartitionInfo
from kraft.metadata.view import MetadataView

_RECOVERY_STATES = {0: "RECOVERED", 1: "RECOVERING"}


def broker(registration: BrokerRegistration) -> str:
    """Return a broker's registration."""
    cordoned = registration.cordoned_log_dirs
    rack = "Optional.empty" if registration.rack is None else f"Optional[{registration.rack}]"
    return (
        f"BrokerRegistration(id={registration.id}, epoch={registration.epoch}, "
        f"incarnationId={registration.incarnation_id!s}, "
        f"listeners={_endpoints(registration.endpoints.values())}, "
        f"supportedFeatures={_features(registration.features)}, rack={rack}, "
        f"fenced={_bool(registration.fenced)}, "
        f"inControlledShutdown={_bool(registration.in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_bool(registration.is_migrating_zk_broker)}, "
        f"directories={_list(registration.log_dirs)}, "
        f"cordonedDirectories={'null' if cordoned is None else _list(cordoned)})"
    )


def controller(registration: ControllerRegistration) -> str:
    """Return a controller's registration."""
    return (
        f"ControllerRegistration(id={registration.id}, "
        f"incarnationId={registration.incarnation_id!s}, "
        f"zkMigrationReady={_bool(registration.zk_migration_ready)}, "
        f"listeners={_endpoints(registration.endpoints.values())}, "
        f"supportedFeatures={_features(registration.features)})"
    )


def partition(info: PartitionInfo) -> str:
    """Return a partition."""
    state = _RECOVERY_STATES.get(info.leader_recovery_state, str(info.leader_recovery_state))
    return (
        f"PartitionRegistration(replicas={_list(info.replicas)}, "
        f"directories={_list(info.directories)}, isr={_list(info.isr)}, "
        f"removingReplicas={_list(info.removing_replicas)}, "
        f"addingReplicas={_list(info.adding_replicas)}, elr={_list(info.elr)}, "
        f"lastKnownElr={_list(info.last_known_elr)}, leader={info.leader}, "
        f"leaderRecoveryState={state}, leaderEpoch={info.leader_epoch}, "
        f"partitionEpoch={info.partition_epoch})"
    )


def acl(entry: AccessControl) -> str:
    """Return an ACL."""
    return (
        f"StandardAcl[resourceType={ResourceType(entry.resource_type).name}, "
        f"resourceName={entry.resource_name}, patternType={PatternType(entry.pattern_type).name}, "
        f"principal={entry.principal}, host={entry.host}, "
        f"operation={AclOperation(entry.operation).name}, "
        f"permissionType={PermissionType(entry.permission_type).name}]"
    )


def scram_credential(credential: ScramCredential, show_secrets: bool) -> str:
    """Return a SCRAM credential, its secrets in hexadecimal."""

    def secret(value: bytes) -> str:
        return value.hex() if show_secrets else HIDDEN

    return (
        f"ScramCredentialData(salt={secret(credential.salt)}, "
        f"storedKey={secret(credential.stored_key)}, serverKey={secret(credential.server_key)}, "
        f"iterations={credential.iterations})"
    )


def delegation_token(id: str, token: Token) -> str:
    """Return a delegation token; the parentheses are Kafka's."""
    return (
        f"DelegationTokenDatatokenId={id}(owner={token.owner}(tokenRequester={token.requester}"
        f"(renewers={' '.join(token.renewers)}, issueTimestamp={token.issue_timestamp_ms}, "
        f"maxTimestamp={token.max_timestamp_ms}), expiryTimestamp={token.expiration_timestamp_ms}"
    )


def provenance(metadata: MetadataView) -> str:
    """Return the last offset of the state, the leader epoch, and the time of the last record."""
    time_ms = metadata.newest_timestamp_ms
    at = datetime.fromtimestamp(time_ms // 1000, UTC)
    # Java leaves out seconds and milliseconds that are zero.
    text = at.strftime("%Y-%m-%dT%H:%M")
    if at.second or time_ms % 1000:
        text += at.strftime(":%S")
    if time_ms % 1000:
        text += f".{time_ms % 1000:03}"
    return f"offset {metadata.next_offset - 1}, epoch {metadata.epoch}, time {text}Z[UTC]"


def _endpoints(endpoints: Iterable[NodeEndpoint]) -> str:
    return _list(
        f"Endpoint(listenerName='{at.name}', "
        f"securityProtocol={SECURITY_PROTOCOLS[at.security_protocol]}, host='{at.host}', "
        f"port={at.port})"
        for at in sorted(endpoints)
    )


def _features(features: Mapping[str, VersionRange]) -> str:
    levels = (f"{name}: {_levels(each)}" for name, each in sorted(features.items()))
    return "{" + ", ".join(levels) + "}"


def _levels(levels: VersionRange) -> str:
    return str(levels.min) if levels.min == levels.max else f"{levels.min}-{levels.max}"


def _list(items: Iterable[object]) -> str:
    return f"[{', '.join(map(str, items))}]"


def _bool(value: bool) -> str:
    return "true" if value else "false"
