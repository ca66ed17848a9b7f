"""What a broker's heartbeat leads to: it is fenced, unfenced, or may shut down.

Owns the records that follow from a heartbeat, in Kafka's order, and the answer. ``sessions`` knows
which state comes next, ``brokers`` and ``directories`` what it takes. Sources: Kafka's
``ReplicationControlManager.processBrokerHeartbeat``, ``QuorumController.processBrokerHeartbeat``
(4.3.1), KIP-631, KIP-866, KIP-858, KIP-1066.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft._core.batch import BatchBuilder
from kraft.controller.brokers import (
    append_controlled_shutdown,
    append_fencing,
    append_unfencing,
    check_broker_epoch,
)
from kraft.controller.decision import Decision, Records
from kraft.controller.directories import append_cordoned, append_offline
from kraft.controller.sessions import BrokerControlState, BrokerSessions, Heartbeat, is_caught_up
from kraft.controller.state import DEFAULTS, Cluster, Settings
from kraft.records.versions import MetadataVersion


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """What a broker is told (BrokerHeartbeatResponse).

    ``state`` is the one that it is in once the records took effect, ``changes_registration``
    whether one of them is about the broker itself.
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


def process_heartbeat(
    cluster: Cluster,
    sessions: BrokerSessions,
    heartbeat: Heartbeat,
    settings: Settings = DEFAULTS,
) -> Decision[HeartbeatAnswer]:
    """Decides what a heartbeat leads to; one that changes nothing has no records.

    `heartbeat_applied` is to be called once the records took effect, or at once where there are
    none. That the broker was heard is told to `BrokerSessions.touch` before, however long the
    heartbeat has to wait. Raises StaleBrokerEpochError.
    """
    registration = check_broker_epoch(cluster, heartbeat.broker_id, heartbeat.broker_epoch)
    current, following = sessions.next_states(cluster, heartbeat)
    builder = BatchBuilder()
    has_changed = current is not following
    if has_changed:
        if following.is_fenced:
            append_fencing(builder, cluster, registration, settings)
        elif following.in_controlled_shutdown:
            append_controlled_shutdown(builder, cluster, registration, settings)
            has_changed = not registration.in_controlled_shutdown
        else:
            append_unfencing(builder, cluster, registration, settings)
    level = cluster.state.metadata_version
    if heartbeat.offline_log_dirs and level >= MetadataVersion.IBP_3_7_IV2:
        offline = heartbeat.offline_log_dirs
        has_changed |= append_offline(builder, cluster, registration, offline, settings)
    if heartbeat.cordoned_log_dirs is not None and level >= MetadataVersion.IBP_4_3_IV0:
        has_changed |= append_cordoned(builder, registration, heartbeat.cordoned_log_dirs)
    answer = HeartbeatAnswer(following, is_caught_up(registration, heartbeat), has_changed)
    return Decision(Records.finished(builder), answer)


def heartbeat_applied(
    cluster: Cluster,
    sessions: BrokerSessions,
    heartbeat: Heartbeat,
    answer: HeartbeatAnswer,
    end_offset: int,
) -> None:
    """Tells the sessions that a heartbeat took effect.

    ``end_offset`` is the offset of its last record, or the last one of the log where it has none.
    """
    broker_id = heartbeat.broker_id
    sessions.note_heartbeat(
        broker_id, is_fenced=answer.is_fenced, metadata_offset=heartbeat.metadata_offset
    )
    if answer.changes_registration:
        sessions.note_registration_change(cluster, broker_id)
    if answer.in_controlled_shutdown:
        sessions.note_controlled_shutdown(broker_id, end_offset)


def heartbeat_expired(cluster: Cluster, sessions: BrokerSessions, heartbeat: Heartbeat) -> None:
    """A heartbeat waited for so long that it was answered by an error: only the offset counts.

    Raises StaleBrokerEpochError.
    """
    registration = check_broker_epoch(cluster, heartbeat.broker_id, heartbeat.broker_epoch)
    sessions.note_heartbeat(
        registration.id,
        is_fenced=registration.fenced,
        metadata_offset=heartbeat.metadata_offset,
    )
