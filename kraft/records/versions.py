"""Levels of metadata.version, the record versions of each level, and the other features.

Holds the names and levels of metadata.version, the version in which each record is written at a
level, and the levels of the other features with their defaults and dependencies. Tests compare the
levels from 7 on with Kafka 4.3.1 (``tests/data/record-corpus-4.3.jsonl.gz``) and with 4.4.0, which
added 31 to 33 (``tests/data/schemas-4.4.0.json.gz``). Levels 1-6 exist only in logs of 3.x and come
from its documentation. Source: MetadataVersion, Feature and the *Version classes of
``org.apache.kafka.server.common``.
"""

from __future__ import annotations

from enum import IntEnum

from kraft._core.codec.metadata_codec import Record
from kraft.errors import UnsupportedVersionError
from kraft.records.classes import (
    AbortTransaction,
    BeginTransaction,
    BrokerRegistrationChange,
    ClearElr,
    DelegationToken,
    EndTransaction,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    RegisterBroker,
    RegisterController,
    RemoveDelegationToken,
    RemoveUserScramCredential,
    UnregisterController,
    UserScramCredential,
    ZkMigrationState,
)

METADATA_VERSION = "metadata.version"


class MetadataVersion(IntEnum):
    """A level of metadata.version; the comments name what each level introduced."""

    IBP_3_0_IV1 = 1  # the first of KRaft; assumed where a log has no FeatureLevel
    IBP_3_1_IV0 = 2  # topic ids in Fetch
    IBP_3_2_IV0 = 3  # leader recovery state
    IBP_3_3_IV0 = 4  # FeatureLevel
    IBP_3_3_IV1 = 5  # NoOp
    IBP_3_3_IV2 = 6  # BrokerRegistrationChange instead of FenceBroker and UnfenceBroker
    IBP_3_3_IV3 = 7  # controlled shutdown; the lowest level of 4.x
    IBP_3_4_IV0 = 8  # migration from ZooKeeper
    IBP_3_5_IV0 = 9  # tiered storage
    IBP_3_5_IV1 = 10  # replica epoch in Fetch
    IBP_3_5_IV2 = 11  # SCRAM
    IBP_3_6_IV0 = 12  # no new leader epoch when the ISR shrinks
    IBP_3_6_IV1 = 13  # metadata transactions
    IBP_3_6_IV2 = 14  # delegation tokens
    IBP_3_7_IV0 = 15  # RegisterController
    IBP_3_7_IV1 = 16  # reserved
    IBP_3_7_IV2 = 17  # log directories of replicas
    IBP_3_7_IV3 = 18  # reserved
    IBP_3_7_IV4 = 19  # Fetch 16
    IBP_3_8_IV0 = 20  # marks the release
    IBP_3_9_IV0 = 21  # kraft.version 1
    IBP_4_0_IV0 = 22  # group.version 1 by default
    IBP_4_0_IV1 = 23  # eligible leader replicas
    IBP_4_0_IV2 = 24  # transaction.version 2 by default
    IBP_4_0_IV3 = 25  # ListOffsets 10
    IBP_4_1_IV0 = 26  # eligible.leader.replicas.version 1 by default
    IBP_4_1_IV1 = 27  # Fetch 18
    IBP_4_2_IV0 = 28  # share.version 1 by default
    IBP_4_2_IV1 = 29  # streams.version 1 by default
    IBP_4_3_IV0 = 30  # cordoned log directories
    IBP_4_4_IV0 = 31  # share.version 2 by default
    IBP_4_4_IV1 = 32  # CIDR patterns in ACLs
    IBP_4_4_IV2 = 33  # UnregisterController

    @classmethod
    def from_level(cls, level: int) -> MetadataVersion:
        """Raise UnsupportedVersionError for a level that this package does not know."""
        try:
            return cls(level)
        except ValueError:
            raise UnsupportedVersionError(
                f"metadata.version {level} is not one of {min(cls).value}-{max(cls).value}"
            ) from None

    @classmethod
    def from_text(cls, text: str) -> MetadataVersion:
        """Return the level named ``4.3-IV0``, or the newest of the release ``4.3`` or ``4.3.1``.

        Raises UnsupportedVersionError.
        """
        release = ".".join(text.split(".")[:2])
        for version in reversed(cls):
            if text == version.text or ("-" not in text and release == version.short_text):
                return version
        raise UnsupportedVersionError(
            f"unknown metadata.version {text!r}: known are {', '.join(v.text for v in cls)}"
        )

    @property
    def text(self) -> str:
        """Kafka's name of the level: ``4.3-IV0``."""
        major, minor, internal = self.name.removeprefix("IBP_").split("_")
        return f"{major}.{minor}-{internal}"

    @property
    def short_text(self) -> str:
        """The release that introduced the level: ``4.3``."""
        return self.text.partition("-")[0]

    @property
    def did_metadata_change(self) -> bool:
        """Whether the level introduced records that lower levels cannot express (no downgrade)."""
        return self in _METADATA_CHANGED

    @property
    def is_scram_supported(self) -> bool:
        return self >= MetadataVersion.IBP_3_5_IV2

    @property
    def is_leader_epoch_bump_required_on_isr_shrink(self) -> bool:
        return self < MetadataVersion.IBP_3_6_IV0

    @property
    def is_metadata_transaction_supported(self) -> bool:
        return self >= MetadataVersion.IBP_3_6_IV1

    @property
    def is_delegation_token_supported(self) -> bool:
        return self >= MetadataVersion.IBP_3_6_IV2

    @property
    def is_controller_registration_supported(self) -> bool:
        return self >= MetadataVersion.IBP_3_7_IV0

    @property
    def is_directory_assignment_supported(self) -> bool:
        return self >= MetadataVersion.IBP_3_7_IV2

    @property
    def is_elr_supported(self) -> bool:
        return self >= MetadataVersion.IBP_4_0_IV1

    @property
    def is_cordoned_log_dirs_supported(self) -> bool:
        return self >= MetadataVersion.IBP_4_3_IV0

    @property
    def is_cidr_acl_supported(self) -> bool:
        return self >= MetadataVersion.IBP_4_4_IV1

    @property
    def is_controller_unregistration_supported(self) -> bool:
        return self >= MetadataVersion.IBP_4_4_IV2


MINIMUM_VERSION = MetadataVersion.IBP_3_3_IV3
#: The newest level of the pinned release, 4.3.1: the default for formatting a directory.
LATEST_PRODUCTION = MetadataVersion.IBP_4_3_IV0
#: The newest level that a node supports; 31 to 33 are for production in 4.4.0.
LATEST_SUPPORTED = MetadataVersion.IBP_4_4_IV2

_METADATA_CHANGED = frozenset((1, 3, 5, 6, 7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33))

# The first level at which a record may be written; other types may be written at every level.
_FIRST_LEVEL: dict[type[Record], int] = {
    FeatureLevel: MetadataVersion.IBP_3_3_IV0,
    NoOp: MetadataVersion.IBP_3_3_IV1,
    BrokerRegistrationChange: MetadataVersion.IBP_3_3_IV2,
    ZkMigrationState: MetadataVersion.IBP_3_4_IV0,
    UserScramCredential: MetadataVersion.IBP_3_5_IV2,
    RemoveUserScramCredential: MetadataVersion.IBP_3_5_IV2,
    BeginTransaction: MetadataVersion.IBP_3_6_IV1,
    EndTransaction: MetadataVersion.IBP_3_6_IV1,
    AbortTransaction: MetadataVersion.IBP_3_6_IV1,
    DelegationToken: MetadataVersion.IBP_3_6_IV2,
    RemoveDelegationToken: MetadataVersion.IBP_3_6_IV2,
    RegisterController: MetadataVersion.IBP_3_7_IV0,
    ClearElr: MetadataVersion.IBP_4_0_IV1,
    UnregisterController: MetadataVersion.IBP_4_4_IV2,
}

# (first level, record version) of each record, newest first.
_PARTITION_VERSIONS = ((23, 2), (17, 1), (1, 0))
_WRITTEN_VERSION: dict[type[Record], tuple[tuple[int, int], ...]] = {
    RegisterBroker: ((30, 4), (17, 3), (8, 2), (7, 1), (1, 0)),
    Partition: _PARTITION_VERSIONS,
    PartitionChange: _PARTITION_VERSIONS,
}


def record_version(
    type: type[Record], metadata_version: int, record: BrokerRegistrationChange | None = None
) -> int:
    """Return the version in which a controller at ``metadata_version`` writes a ``type`` record.

    A BrokerRegistrationChange is written in the lowest version that can express its changes, so it
    needs ``record``; other types ignore it. Raises UnsupportedVersionError if the level does not
    have the record, or not that change.
    """
    first = _FIRST_LEVEL.get(type)
    if first is not None and metadata_version < first:
        raise UnsupportedVersionError(
            f"{type.__name__} needs metadata.version level {first}, not {metadata_version}"
        )
    if type is BrokerRegistrationChange:
        return 0 if record is None else _change_version(record, metadata_version)
    for level, version in _WRITTEN_VERSION.get(type, ()):
        if metadata_version >= level:
            return version
    return 0


def _change_version(record: BrokerRegistrationChange, metadata_version: int) -> int:
    if record.cordoned_log_dirs is not None:
        version, level = 3, MetadataVersion.IBP_4_3_IV0
    elif record.log_dirs:
        version, level = 2, MetadataVersion.IBP_3_7_IV2
    elif record.in_controlled_shutdown:
        version, level = 1, MetadataVersion.IBP_3_3_IV3
    else:
        return 0
    if metadata_version < level:
        raise UnsupportedVersionError(
            f"version {version} of BrokerRegistrationChange needs metadata.version level {level},"
            f" not {metadata_version}"
        )
    return version


# The levels of each feature, from 0 on: the metadata.version from which a new cluster gets it.
_BOOTSTRAP_LEVELS: dict[str, tuple[int, ...]] = {
    "kraft.version": (7, 21),
    "transaction.version": (7, 24, 24),
    "group.version": (7, 22),
    "eligible.leader.replicas.version": (7, 26),
    "share.version": (7, 28, 31),
    "streams.version": (7, 29),
}

#: Every feature with the lowest and highest level that a node supports: Kafka 4.4.0's.
SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (MINIMUM_VERSION.value, LATEST_SUPPORTED.value),
    **{name: (0, len(levels) - 1) for name, levels in _BOOTSTRAP_LEVELS.items()},
}


#: The features that kraft's own broker lacks: what they bring, and the topic that belongs to it.
LACKED_BY_BROKER: dict[str, tuple[str, str]] = {
    "group.version": ("groups of KIP-848", "__consumer_offsets"),
    "share.version": ("share groups", "__share_group_state"),
    "streams.version": ("groups of Kafka Streams (KIP-1071)", "__consumer_offsets"),
    "transaction.version": ("transactions", "__transaction_state"),
}


def default_feature_level(name: str, metadata_version: int) -> int:
    """Return the level of a feature in a cluster formatted at ``metadata_version``; 0: off.

    For kraft.version, which depends on how the quorum is formatted, return the level that
    ``metadata_version`` allows. Raises UnsupportedVersionError for an unknown feature.
    """
    if name == METADATA_VERSION:
        return metadata_version
    if name not in _BOOTSTRAP_LEVELS:
        raise UnsupportedVersionError(f"unknown feature {name!r}")
    return max(
        (level for level, first in enumerate(_BOOTSTRAP_LEVELS[name]) if metadata_version >= first),
        default=0,
    )


def feature_dependencies(name: str, level: int) -> dict[str, int]:
    """Return the levels of other features on which ``level`` of a feature depends (KIP-1022)."""
    lowest, highest = SUPPORTED_FEATURES.get(name, (0, -1))
    if not lowest <= level <= highest:
        raise UnsupportedVersionError(f"feature {name!r} has no level {level}")
    if name == "eligible.leader.replicas.version" and level >= 1:
        return {METADATA_VERSION: MetadataVersion.IBP_4_0_IV1.value}
    return {}
