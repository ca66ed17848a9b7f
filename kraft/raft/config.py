"""Settings of a raft node: Kafka's ``QuorumConfig`` and its defaults.

``kraft.server.config`` reads them from a Kafka properties file.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterSet
from kraft.records import Uuid

NO_VOTERS = VoterSet()
SUPPORTED_KRAFT_VERSIONS = KRaftVersionRange(0, 1)


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Identity, timeouts and limits of a node; times in milliseconds, sizes in bytes."""

    node_id: int
    directory_id: Uuid
    cluster_id: str
    #: The listener of connections between voters: the first of controller.listener.names.
    listener: str = "CONTROLLER"
    #: This node's advertised endpoints; empty if no voter has to reach it.
    endpoints: tuple[Endpoint, ...] = ()
    #: controller.quorum.voters: in force while kraft.version is 0 and the log names no voters.
    static_voters: VoterSet = NO_VOTERS
    #: controller.quorum.bootstrap.servers; if empty, the endpoints of the static voters.
    bootstrap_servers: tuple[Endpoint, ...] = ()
    #: Whether the node may become a voter (the controller role); a broker only observes.
    can_vote: bool = True
    auto_join: bool = False
    kraft_versions: KRaftVersionRange = SUPPORTED_KRAFT_VERSIONS
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    append_linger_ms: int = 25
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    #: Limit of a snapshot chunk, for requests of this node and for its responses as a leader.
    fetch_snapshot_max_bytes: int = 8 * 1024 * 1024
    max_batch_size: int = 8 * 1024 * 1024
    #: Appends that may wait for the disk before a leader rejects more.
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
