"""BrokerHeartbeat: fence or unfence a broker, or let it shut down.

Decides the records of a heartbeat in Kafka's order, and the response. ``sessions`` computes the
next state of the broker; ``broker_lifecycle`` and ``directories`` write the records. Sources:
Kafka's ``ReplicationControlManager.processBrokerHeartbeat``,
``QuorumController.processBrokerHeartbeat`` (4.3.1), KIP-631, KIP-866, KIP-858, KIP-1066.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft._core.bytes.batch import BatchBuilder
from kraft.controller.brokers.broker_lifecycle import (
    append_controlled_shutdown,
    append_fencing,
    append_unfencing,
    check_broker_epoch,
)
from kraft.controller.brokers.directories import append_cordoned, append_offline
from kraft.controller.brokers.sessions import (
    BrokerControlState,
    BrokerSessions,
    Heartbeat,
    is_caught_up,
)
from kraft.controller.decision import Decision, Records
from kraft.controller.state import DEFAULTS, ClusterMetadata, DecisionSettings
from kraft.records.versions import MetadataVersion


class BrokerHeartbeatReply(NamedTuple):
    """The response to a heartbeat (BrokerHeartbeatResponse).

    ``state`` is the broker's state after the records are applied. ``changes_registration``: one of
    the records changes the broker's registration.
    """

    state: BrokerControlState
    is_caught_up: bool
    changes_registration: bool = False

    @property
    def is_fenced(self) -> bool:
        return self.state.is_fenced

    @property
    def in_controlled_shutdown(self) -> bool:
        return self.state.in_controlled_shutdown

    @property
    def should_shut_down(self) -> bool:
        return self.state.should_shut_down


#: The replies to heartbeats that change nothing, by fenced and caught up.
_UNCHANGED = {
    (is_fenced, is_caught_up): BrokerHeartbeatReply(state, is_caught_up)
    for is_fenced, state in (
        (True, BrokerControlState.FENCED),
        (False, BrokerControlState.UNFENCED),
    )
    for is_caught_up in (False, True)
}


def unchanged_heartbeat(
    cluster: ClusterMetadata, sessions: BrokerSessions, heartbeat: Heartbeat
) -> BrokerHeartbeatReply | None:
    """Return the reply to a heartbeat for which `broker_heartbeat` certainly writes no records.

    None where the broker, its directories or its epoch have to be looked at more closely. Reads no
    partitions. As for every decision, `broker_heartbeat_applied` is called with the reply.
    """
    registration = cluster.state.brokers.get(heartbeat.broker_id)
    if (
        registration is None
        or registration.epoch != heartbeat.broker_epoch
        or heartbeat.wants_shutdown
        or heartbeat.offline_log_dirs
        or sessions.is_shutting_down(heartbeat.broker_id)
    ):
        return None
    is_fenced, caught_up = registration.fenced, is_caught_up(registration, heartbeat)
    wants_change = caught_up and not heartbeat.wants_fence if is_fenced else heartbeat.wants_fence
    if wants_change:
        return None
    cordoned = heartbeat.cordoned_log_dirs
    if cordoned is not None and (
        registration.cordoned_log_dirs is None
        or set(registration.cordoned_log_dirs) != set(cordoned)
    ):
        return None
    return _UNCHANGED[is_fenced, caught_up]


def broker_heartbeat(
    cluster: ClusterMetadata,
    sessions: BrokerSessions,
    heartbeat: Heartbeat,
    settings: DecisionSettings = DEFAULTS,
    *,
    next_offset: int,
) -> Decision[BrokerHeartbeatReply]:
    """Decide a heartbeat; if it changes nothing, there are no records.

    ``next_offset`` is the offset of the decision's first record. The controller calls
    `BrokerSessions.touch` when the heartbeat arrives, however long it waits in the queue. It calls
    `broker_heartbeat_applied` after the records are applied, or at once without records. Raises
    StaleBrokerEpochError.
    """
    registration = check_broker_epoch(cluster, heartbeat.broker_id, heartbeat.broker_epoch)
    current, following = sessions.next_states(cluster, heartbeat)
    builder = BatchBuilder()
    has_changed, has_elected = current is not following, False
    if has_changed:
        if following.is_fenced:
            append_fencing(builder, cluster, registration, settings)
        elif following.in_controlled_shutdown:
            append_controlled_shutdown(builder, cluster, registration, settings)
            has_changed = not registration.in_controlled_shutdown
        else:
            rows = sessions.leaderless_search.rows(cluster, registration.id, next_offset)
            append_unfencing(builder, cluster, registration, settings, rows)
            has_elected = True
    level = cluster.state.metadata_version
    if heartbeat.offline_log_dirs and level >= MetadataVersion.IBP_3_7_IV2:
        offline = heartbeat.offline_log_dirs
        has_changed |= append_offline(builder, cluster, registration, offline, settings)
    if heartbeat.cordoned_log_dirs is not None and level >= MetadataVersion.IBP_4_3_IV0:
        has_changed |= append_cordoned(builder, registration, heartbeat.cordoned_log_dirs)
    # Failed directories change partitions after the election.
    is_closed = has_elected and not heartbeat.offline_log_dirs
    sessions.leaderless_search.decided(registration.id, is_closed=is_closed)
    answer = BrokerHeartbeatReply(following, is_caught_up(registration, heartbeat), has_changed)
    return Decision(Records.finished(builder), answer)


def broker_heartbeat_applied(
    cluster: ClusterMetadata,
    sessions: BrokerSessions,
    heartbeat: Heartbeat,
    answer: BrokerHeartbeatReply,
    end_offset: int,
) -> None:
    """Update the sessions after a heartbeat was applied.

    ``end_offset`` is the offset of its last record, or of the log's last record if it has none.
    """
    broker_id = heartbeat.broker_id
    sessions.note_heartbeat(
        broker_id, is_fenced=answer.is_fenced, metadata_offset=heartbeat.metadata_offset
    )
    if answer.changes_registration:
        sessions.note_registration_change(cluster, broker_id)
        sessions.leaderless_search.applied(broker_id, end_offset + 1)
    if answer.in_controlled_shutdown:
        sessions.note_controlled_shutdown(broker_id, end_offset)


def broker_heartbeat_expired(
    cluster: ClusterMetadata, sessions: BrokerSessions, heartbeat: Heartbeat
) -> None:
    """Take only the metadata offset of a heartbeat that expired in the queue.

    Raises StaleBrokerEpochError.
    """
    registration = check_broker_epoch(cluster, heartbeat.broker_id, heartbeat.broker_epoch)
    sessions.note_heartbeat(
        registration.id,
        is_fenced=registration.fenced,
        metadata_offset=heartbeat.metadata_offset,
    )
