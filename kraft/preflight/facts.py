"""The facts about a running quorum that the rules of ``kraft preflight`` read.

``kraft.preflight.gathering`` collects them; unit tests write them. A fact that could not be
gathered is None, or missing; a rule says nothing about it, or says that it is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kraft.errors import UnsupportedVersionError
from kraft.image.nodes import VersionRange
from kraft.raft.voters import ReplicaKey
from kraft.records import Uuid
from kraft.records.versions import METADATA_VERSION, MetadataVersion

KRAFT_VERSION = "kraft.version"

#: A replica that has not fetched, or was not caught up, for this long, is not counted as one that
#: can commit records. Followers fetch every 0.5 s.
SILENT_MS = 5_000

NodeFeatures = Mapping[str, VersionRange]


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """How the leader sees one replica of the metadata log.

    ``lag`` is in records. ``silent_ms`` is the time since its last fetch, ``behind_ms`` since it
    was caught up; None: never since this leader was elected.
    """

    key: ReplicaKey
    lag: int = 0
    silent_ms: int | None = 0
    behind_ms: int | None = 0

    @property
    def is_fetching(self) -> bool:
        return self.silent_ms is not None and self.silent_ms <= SILENT_MS

    @property
    def is_current(self) -> bool:
        """Whether the replica fetches and is caught up."""
        return self.is_fetching and self.behind_ms is not None and self.behind_ms <= SILENT_MS


@dataclass(frozen=True, slots=True)
class ControllerFacts:
    """What is known about one controller.

    ``registered`` has the features of its registration, None without one; ``running`` those that
    its process answers with, None where it does not answer, for the reason ``silence``.
    ``listeners`` are the names of its registered listeners. ``settings`` is its effective
    configuration, as far as rules read it; ``file_settings`` are those that its file sets, a secret
    is None. Both are None where they were not readable. ``address`` is ``host:port``.
    """

    id: int
    address: str | None = None
    is_voter: bool = False
    replica: ReplicaFacts | None = None
    registered: NodeFeatures | None = None
    running: NodeFeatures | None = None
    silence: str = ""
    listeners: tuple[str, ...] = ()
    settings: Mapping[str, str] | None = None
    file_settings: Mapping[str, str | None] | None = None

    @property
    def is_gone(self) -> bool:
        """Whether only its registration is left: no voter, no answer, no fetches."""
        is_fetching = self.replica is not None and self.replica.is_fetching
        return not self.is_voter and self.running is None and not is_fetching

    @property
    def directory_id(self) -> Uuid | None:
        return None if self.replica is None else self.replica.key.directory_id

    @property
    def metadata_version_max(self) -> int | None:
        """The highest metadata.version of the process, else of the registration, if known."""
        features = self.running if self.running is not None else self.registered
        if features is None or METADATA_VERSION not in features:
            return None
        return features[METADATA_VERSION].max


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What is known about one registered broker.

    ``is_fetching``: it fetches the metadata log. ``replicas``: the number of partitions that it
    holds, ``sole_replicas`` of those that no other broker holds.
    """

    id: int
    features: NodeFeatures
    is_fenced: bool = False
    is_fetching: bool = True
    address: str = ""
    replicas: int = 0
    sole_replicas: int = 0

    @property
    def is_gone(self) -> bool:
        """Whether only its registration is left: fenced, and without fetches."""
        return self.is_fenced and not self.is_fetching


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """A metadata directory on this machine; sizes in bytes."""

    path: Path
    free_bytes: int
    #: The bytes of the metadata log and its snapshots, and of the newest snapshot.
    log_bytes: int
    snapshot_bytes: int
    node_id: int | None = None
    directory_id: Uuid | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A running quorum at one moment.

    ``finalized`` has the levels of features, kraft.version included. ``committed_voters`` are those
    of the log's last committed voter set, empty at kraft.version 0. ``dry_run`` has the
    controller's answer to the planned levels: the reason of a rejection by feature, empty if it
    accepts all or was not asked. ``settings_error``: why the settings of controllers are
    not known.
    """

    cluster_id: str
    leader_id: int
    finalized: Mapping[str, int]
    controllers: Mapping[int, ControllerFacts] = field(default_factory=dict)
    brokers: Mapping[int, BrokerFacts] = field(default_factory=dict)
    #: All replicas that are no voters: brokers, other controllers, other directories of voters.
    observers: tuple[ReplicaFacts, ...] = ()
    committed_voters: tuple[ReplicaKey, ...] = ()
    without_leader: int = 0
    under_min_isr: int = 0
    directories: tuple[DirectoryFacts, ...] = ()
    dry_run: Mapping[str, str] = field(default_factory=dict)
    settings_error: str = ""

    @property
    def metadata_version(self) -> int:
        return self.finalized.get(METADATA_VERSION, MetadataVersion.IBP_3_0_IV1)

    @property
    def kraft_version(self) -> int:
        return self.finalized.get(KRAFT_VERSION, 0)

    @property
    def voters(self) -> list[ControllerFacts]:
        """The voters by id."""
        return [each for _, each in sorted(self.controllers.items()) if each.is_voter]

    @property
    def leader(self) -> ControllerFacts | None:
        return self.controllers.get(self.leader_id)

    @property
    def other_directories(self) -> list[ReplicaFacts]:
        """The replicas that fetch with the id of a voter, another directory id, and later than the
        voter. A directory that was replaced a moment ago is still among the observers.
        """
        found = []
        for each in self.observers:
            voter = self.controllers.get(each.key.id)
            if voter is None or not voter.is_voter or voter.replica is None:
                continue
            has_directories = None not in (voter.directory_id, each.key.directory_id)
            if has_directories and each.is_fetching and each.silent_ms is not None:
                silent_ms = voter.replica.silent_ms
                if silent_ms is None or silent_ms > each.silent_ms:
                    found.append(each)
        return found


def release_of(metadata_version_max: int | None) -> str:
    """Return the release that supports metadata.version up to this level: ``4.1``.

    "an unknown release" where the level is not known.
    """
    if metadata_version_max is None:
        return "an unknown release"
    try:
        return f"Kafka {MetadataVersion.from_level(metadata_version_max).short_text}"
    except UnsupportedVersionError:
        return f"a release after Kafka {MetadataVersion(max(MetadataVersion)).short_text}"


def level_text(name: str, level: int) -> str:
    """Return a level as people write it: ``30 (4.3-IV0)`` of metadata.version, else the number."""
    if name != METADATA_VERSION:
        return str(level)
    try:
        return f"{level} ({MetadataVersion.from_level(level).text})"
    except UnsupportedVersionError:
        return str(level)
