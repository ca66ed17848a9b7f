"""The settings of a raft node; Kafka's ``QuorumConfig``, with its defaults.

``kraft.server`` fills them from a Kafka properties file.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.raft.voters import Endpoint, ReplicaKey, VersionRange, VoterSet
from kraft.records import Uuid

NO_VOTERS = VoterSet()
SUPPORTED_KRAFT_VERSIONS = VersionRange(0, 1)


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Who a node is and how long it waits; times in milliseconds, sizes in bytes."""

    node_id: int
    directory_id: Uuid
    cluster_id: str
    #: The listener by which the voters reach each other: the first of controller.listener.names.
    listener: str = "CONTROLLER"
    #: This node's own, advertised; empty for a node that no voter needs to reach.
    endpoints: tuple[Endpoint, ...] = ()
    #: controller.quorum.voters: used while kraft.version is 0 and the log names no voters.
    static_voters: VoterSet = NO_VOTERS
    #: controller.quorum.bootstrap.servers; empty: those of the static voters.
    bootstrap_servers: tuple[Endpoint, ...] = ()
    #: Whether the node may ever vote (the controller role); a pure broker only observes.
    can_vote: bool = True
    auto_join: bool = False
    kraft_versions: VersionRange = SUPPORTED_KRAFT_VERSIONS
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    append_linger_ms: int = 25
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    #: Of a snapshot, in one answer: what is asked for, and what a leader gives at most.
    fetch_snapshot_max_bytes: int = 8 * 1024 * 1024
    max_batch_size: int = 8 * 1024 * 1024
    #: Appends that may wait for the disk before a leader refuses more.
    max_unwritten_appends: int = 1000
    observer_session_ms: int = 300_000

    @property
    def replica(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def check_quorum_timeout_ms(self) -> int:
        """How long a leader leads without fetches of a majority (KAFKA-15489)."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_epoch_interval_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    @property
    def update_voter_period_ms(self) -> int:
        return self.fetch_timeout_ms
