"""UpdateFeatures: raise and lower the finalized levels of features.

Makes the checks of UpdateFeatures and decides its records. A downgrade of metadata.version is
allowed only where it loses nothing. Enabling ELR sets min.insync.replicas (KIP-966). Sources:
Kafka's ``FeatureControlManager``, ``QuorumFeatures``, ``Feature.validateVersion``,
``ConfigurationControlManager.maybeGenerateElrSafetyRecords`` (4.3.1).

Invariant: a request takes effect as a whole or not at all. The raft layer sets the level of
``kraft.version``: it is only checked here, and the response names the level that
``requests.update_features`` has to ask the raft layer for before it writes a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kraft import records
from kraft.controller.arguments import MAX_INT16, is_integer
from kraft.controller.decision import MAX_RECORDS_PER_BATCH, Decision, Records
from kraft.controller.state import DEFAULTS, ELR_FEATURE, MIN_ISR, ClusterMetadata, DecisionSettings
from kraft.errors import (
    InvalidRequestError,
    InvalidUpdateVersionError,
    PolicyViolationError,
    UnsupportedVersionError,
)
from kraft.image import VersionRange
from kraft.image.configs import BROKER
from kraft.image.features import KRAFT_VERSION
from kraft.records import Record
from kraft.records.versions import (
    METADATA_VERSION,
    MINIMUM_VERSION,
    SUPPORTED_FEATURES,
    MetadataVersion,
    feature_dependencies,
)

_UNSUPPORTED = VersionRange(0, 0)


class UpgradeType(IntEnum):
    """The allowed direction of a change (``FeatureUpdate.UpgradeType``)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of a feature (0 is off); ``upgrade_type`` is Kafka's number."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


class LocalFeatures(NamedTuple):
    """The node id of this controller, and the features it supports.

    ``quorum_node_ids`` are the controllers in the configuration, in addition to the log's voter
    set.
    """

    node_id: int
    quorum_node_ids: tuple[int, ...] = ()
    supported: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES


class UpdatedFeatures(NamedTuple):
    """The levels that the records finalize.

    ``kraft_version`` is the level to ask the raft layer for before the records are appended (even
    for ``validate_only``), or None.
    """

    levels: Mapping[str, int]
    kraft_version: int | None = None


def update_features(
    cluster: ClusterMetadata,
    updates: Sequence[FeatureUpdate],
    local: LocalFeatures,
    settings: DecisionSettings = DEFAULTS,
    *,
    validate_only: bool = False,
) -> Decision[UpdatedFeatures]:
    """Finalize new levels, all or none.

    Raises InvalidUpdateVersionError with the reason if a level is not allowed, and
    InvalidRequestError if a feature is named twice.
    """
    finalized = finalized_features(cluster)
    proposed = finalized | {update.name: update.level for update in updates}
    if len({update.name for update in updates}) < len(updates):
        names = [update.name for update in updates]
        raise InvalidRequestError(f"a feature is named twice in the request: {names!r:.200}")
    written: list[Record] = []
    kraft_version: int | None = None
    for update in updates:
        _check_support(cluster, update, local)
        _check_direction(update, finalized.get(update.name, 0))
        if update.name == KRAFT_VERSION:
            if update.upgrade_type == UpgradeType.UPGRADE:
                kraft_version = update.level
                # The response waits until this record is committed, which follows the control
                # records.
                written.append(records.NoOp())
            elif update.level != finalized.get(KRAFT_VERSION, 0):
                raise _refused(update, "Can't downgrade the version of this feature.")
            continue
        if update.name == METADATA_VERSION:
            _check_metadata_version(update, finalized[METADATA_VERSION])
        else:
            _check_dependencies(update, proposed)
        written.append(records.FeatureLevel(name=update.name, feature_level=update.level))
    levels = {update.name: update.level for update in updates if update.name != KRAFT_VERSION}
    if levels.get(ELR_FEATURE, 0) > 0:
        written = [*_min_isr_for_elr(cluster, settings), *written]
    if len(written) > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"an operation writes at most {MAX_RECORDS_PER_BATCH} records, not {len(written)}"
        )
    made = Records.of(() if validate_only else written, cluster.state.metadata_version)
    return Decision(made, UpdatedFeatures(levels, kraft_version), is_atomic=True)


def finalized_features(cluster: ClusterMetadata) -> dict[str, int]:
    """Return the level of each enabled feature; ``metadata.version`` always, ``kraft.version`` from
    the control records.
    """
    levels = {METADATA_VERSION: cluster.state.metadata_version, **cluster.state.features}
    if cluster.state.quorum.kraft_version:
        levels[KRAFT_VERSION] = cluster.state.quorum.kraft_version
    return levels


def _check_direction(update: FeatureUpdate, current: int) -> None:
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        raise _refused(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        raise _refused(update, "Can't downgrade to a newer version.")


def _check_support(cluster: ClusterMetadata, update: FeatureUpdate, local: LocalFeatures) -> None:
    """Check that all registered nodes support the level, and all controllers are registered."""
    if not is_integer(update.upgrade_type, min(UpgradeType), max(UpgradeType)):
        raise _refused(update, "The controller does not support the given upgrade type.")
    if not is_integer(update.level, -1 - MAX_INT16, MAX_INT16):
        raise _refused(update, f"A feature version is an integer from 0 to {MAX_INT16}.")
    if update.level < 0:
        raise _refused(update, "A feature version cannot be less than 0.")
    state = cluster.state
    supported = VersionRange(*local.supported.get(update.name, _UNSUPPORTED))
    _check_node(update, f"Local controller {local.node_id}", supported)
    for broker in state.brokers.values():
        _check_node(update, f"Broker {broker.id}", broker.features.get(update.name, _UNSUPPORTED))
    if state.metadata_version < MetadataVersion.IBP_3_7_IV0:
        return
    for controller in state.controllers.values():
        if controller.id != local.node_id:
            _check_node(
                update,
                f"Controller {controller.id}",
                controller.features.get(update.name, _UNSUPPORTED),
            )
    for node_id in quorum_node_ids(cluster, local):
        if node_id != local.node_id and node_id not in state.controllers:
            raise _refused(
                update,
                f"controller {node_id} has not registered, and may not support this feature",
            )


def quorum_node_ids(cluster: ClusterMetadata, local: LocalFeatures) -> set[int]:
    """Return the ids of the voters: those of the configuration, and those of the log."""
    return {*local.quorum_node_ids, *(voter.id for voter in cluster.state.quorum.voters)}


def _check_node(update: FeatureUpdate, node: str, supported: VersionRange) -> None:
    if supported.min <= update.level <= supported.max:
        return
    if not supported.max:
        raise _refused(update, f"{node} does not support this feature.")
    levels = (
        f"{supported.min}-{supported.max}" if supported.min < supported.max else f"{supported.max}"
    )
    raise _refused(update, f"{node} only supports versions {levels}")


def _check_metadata_version(update: FeatureUpdate, current: int) -> None:
    try:
        MetadataVersion.from_level(update.level)
    except UnsupportedVersionError as error:
        raise _refused(update, str(error)) from None
    if any(
        update.level < level <= current and level.did_metadata_change for level in MetadataVersion
    ):
        raise InvalidUpdateVersionError(
            f"Unsupported metadata.version downgrade from {current} to {update.level}. "
            + (
                "Unsafe metadata downgrade is not supported in this version."
                if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE
                else "Refusing to perform the requested downgrade because it might delete "
                "metadata information."
            )
        )


def _check_dependencies(update: FeatureUpdate, proposed: Mapping[str, int]) -> None:
    if update.name not in SUPPORTED_FEATURES:
        raise _refused(update, f"Feature {update.name} not found.")
    needed = feature_dependencies(update.name, update.level)
    depends = f"{update.name} could not be set to {update.level} because it depends on"
    if update.level >= 1 and proposed.get(METADATA_VERSION, 0) < MINIMUM_VERSION:
        raise _refused(
            update,
            f"{depends} {METADATA_VERSION}={MINIMUM_VERSION.value} ({MINIMUM_VERSION.text})",
        )
    for name, level in needed.items():
        if proposed.get(name, 0) < level:
            raise _refused(update, f"{depends} {name} level {level}")


def _min_isr_for_elr(cluster: ClusterMetadata, settings: DecisionSettings) -> list[records.Config]:
    """With ELR on, set min.insync.replicas for the whole cluster and remove it from single brokers.

    Reads every configured resource once; only enabling ELR does this.
    """
    configs = cluster.state.configs
    written = []
    if MIN_ISR not in configs.cluster_default():
        written.append(_min_isr("", str(settings.min_insync_replicas)))
    brokers = [
        name
        for (resource_type, name), values in configs.items()
        if resource_type == BROKER and name and MIN_ISR in values
    ]
    return written + [_min_isr(name, None) for name in sorted(brokers, key=int)]


def _min_isr(broker: str, value: str | None) -> records.Config:
    return records.Config(resource_type=BROKER, resource_name=broker, name=MIN_ISR, value=value)


def _refused(update: FeatureUpdate, reason: str) -> InvalidUpdateVersionError:
    return InvalidUpdateVersionError(
        f"Invalid update version {update.level!r:.80} for feature {update.name}. {reason}"
    )
