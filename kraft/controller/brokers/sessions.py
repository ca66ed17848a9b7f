"""Broker sessions: the active controller's state of its brokers that is not in the log.

For each broker: the time of the last contact, the metadata offset that it has reached, the offset
at which its controlled shutdown may end, and its next state. ``heartbeats`` and
``broker_lifecycle`` read it to decide; the controller updates it after it applied a decision. A
standby has no sessions; a new active controller calls `BrokerSessions.activate`. Pure: the caller
passes the time. Sources: Kafka's ``BrokerHeartbeatManager``, ``BrokerHeartbeatTracker`` (4.3.1),
KIP-631, KIP-866, KAFKA-18138, KAFKA-19130.

Invariants: every registered broker has a state, fenced if its registration is; contacts are ordered
by time, so that the first one expires first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from kraft._core.decide.java_hash import hash_map_order_of_ids
from kraft.controller.brokers.leaderless_search import LeaderlessSearch
from kraft.controller.state import ClusterMetadata, activation_order
from kraft.image import BrokerRegistration
from kraft.records import Uuid

#: Kafka's ``broker.session.timeout.ms``.
SESSION_TIMEOUT_MS = 9_000

#: The lowest offset if no broker is active: greater than every offset.
NO_ACTIVE_OFFSET = (1 << 63) - 1

_CHECKS_PER_SESSION = 8
_NONE = -1


class BrokerControlState(Enum):
    """The state of a broker as the controller controls it."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shut down now"

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)

    @property
    def in_controlled_shutdown(self) -> bool:
        return self is BrokerControlState.CONTROLLED_SHUTDOWN

    @property
    def should_shut_down(self) -> bool:
        return self is BrokerControlState.SHUTDOWN_NOW


class BrokerControlStates(NamedTuple):
    """The present state of a broker, and the state after its heartbeat."""

    current: BrokerControlState
    next: BrokerControlState


class Heartbeat(NamedTuple):
    """A broker's heartbeat, sent every two seconds (BrokerHeartbeatRequest).

    ``metadata_offset`` is the last offset of the metadata log that the broker has applied.
    ``cordoned_log_dirs`` is None in versions without it (KIP-1066, version 2).
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    wants_fence: bool = False
    wants_shutdown: bool = False
    offline_log_dirs: Sequence[Uuid] = ()
    cordoned_log_dirs: Sequence[Uuid] | None = None


class Session(NamedTuple):
    """The session of one incarnation of a broker; each incarnation has its own epoch."""

    broker_id: int
    broker_epoch: int


@dataclass(slots=True)
class _Broker:
    """The state of one broker's session."""

    id: int
    is_fenced: bool
    metadata_offset: int = _NONE
    # End of the records that moved its leaderships; -1 unless it shuts down.
    shutdown_offset: int = _NONE

    @property
    def is_shutting_down(self) -> bool:
        return self.shutdown_offset >= 0

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.is_shutting_down


class BrokerSessions:
    """The sessions of all brokers; times are milliseconds of one monotonic clock."""

    __slots__ = (
        "_brokers",
        "_contacts",
        "_most_brokers",
        "_newest_ms",
        "_offsets",
        "leaderless_search",
        "order_version",
        "session_timeout_ms",
    )

    def __init__(self, session_timeout_ms: float = SESSION_TIMEOUT_MS) -> None:
        self.session_timeout_ms = session_timeout_ms
        # In the order in which Kafka's heartbeat manager put them into its HashMap.
        self._brokers: dict[int, _Broker] = {}
        self._most_brokers = 0
        #: Changes whenever `placement_order` may change.
        self.order_version = 0
        self.leaderless_search = LeaderlessSearch()
        # Oldest contact first; a new contact moves a broker to the end.
        self._contacts: dict[Session, float] = {}
        self._newest_ms = float("-inf")
        # A heap of (metadata offset, broker). It has the present entry of every active broker, and
        # stale entries.
        self._offsets: list[tuple[int, int]] = []

    @property
    def check_interval_ms(self) -> float:
        """The interval of checks for expired sessions: a broker is fenced after at most 112.5 % of
        the timeout.
        """
        return max(1.0, self.session_timeout_ms / _CHECKS_PER_SESSION)

    # -- activation

    def activate(self, cluster: ClusterMetadata, now_ms: float) -> None:
        """Begin the sessions of a new active controller: unfenced brokers count as just heard.

        Fenced brokers do not: they may register again at once (KAFKA-19130).
        """
        self.clear()
        for broker_id in activation_order(cluster):
            self._add(cluster.state.brokers[broker_id])
        for registration in cluster.state.brokers.values():
            if not registration.fenced:
                self.touch(registration.id, registration.epoch, now_ms)

    def clear(self) -> None:
        """Remove all sessions when leadership is lost."""
        self._brokers.clear()
        self._most_brokers = 0
        self.order_version += 1
        self._contacts.clear()
        self._offsets.clear()
        self.leaderless_search.clear()
        self._newest_ms = float("-inf")

    def placement_order(self) -> list[int]:
        """Return the ids of the brokers in the order in which Kafka passes them to its placer.

        Source: ``BrokerHeartbeatManager.usableBrokers``, which iterates over a HashMap.
        """
        return hash_map_order_of_ids(self._brokers, self._most_brokers)

    # -- contacts

    def touch(self, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        """Record a contact of a broker; called before its heartbeat waits in the queue."""
        session = Session(broker_id, broker_epoch)
        if now_ms > self._newest_ms:
            self._newest_ms = now_ms
        self._contacts.pop(session, None)
        self._contacts[session] = self._newest_ms

    def last_contact_ms(self, broker_id: int, broker_epoch: int) -> float | None:
        """Return the time of the broker's last contact, None without one."""
        return self._contacts.get(Session(broker_id, broker_epoch))

    def has_valid_session(self, broker_id: int, broker_epoch: int, now_ms: float) -> bool:
        """Return whether the broker was heard within the timeout, fenced or not."""
        heard_ms = self.last_contact_ms(broker_id, broker_epoch)
        return heard_ms is not None and not self._has_expired(heard_ms, now_ms)

    def is_alive(self, cluster: ClusterMetadata, broker_id: int, now_ms: float) -> bool:
        """Return whether the broker that is registered with this id has a valid session."""
        registration = cluster.state.brokers.get(broker_id)
        return registration is not None and self.has_valid_session(
            broker_id, registration.epoch, now_ms
        )

    def take_expired(self, now_ms: float) -> Session | None:
        """Remove and return the longest silent session if it has expired, else return None."""
        oldest = next(iter(self._contacts), None)
        if oldest is None or not self._has_expired(self._contacts[oldest], now_ms):
            return None
        del self._contacts[oldest]
        return oldest

    def _has_expired(self, heard_ms: float, now_ms: float) -> bool:
        return heard_ms + self.session_timeout_ms < now_ms

    # -- states

    def next_states(self, cluster: ClusterMetadata, heartbeat: Heartbeat) -> BrokerControlStates:
        """Return the present and the next state for a heartbeat of a registered broker; changes
        nothing.

        Reads the broker's partitions if it wants to shut down.
        """
        states = BrokerControlState
        registration = cluster.state.brokers[heartbeat.broker_id]
        broker = self._broker(registration)
        if broker.is_shutting_down:
            current = following = states.CONTROLLED_SHUTDOWN
            if (
                not _leads(cluster, broker.id)
                and broker.shutdown_offset <= self.lowest_active_offset()
            ):
                following = states.SHUTDOWN_NOW
        elif broker.is_fenced:
            current = following = states.FENCED
            if heartbeat.wants_shutdown:
                following = states.SHUTDOWN_NOW
            elif not heartbeat.wants_fence and is_caught_up(registration, heartbeat):
                following = states.UNFENCED
        else:
            current = following = states.UNFENCED
            if heartbeat.wants_fence:
                following = states.SHUTDOWN_NOW if heartbeat.wants_shutdown else states.FENCED
            elif heartbeat.wants_shutdown:
                following = states.SHUTDOWN_NOW
                if _leads(cluster, broker.id):
                    following = states.CONTROLLED_SHUTDOWN
        return BrokerControlStates(current, following)

    def next_state(self, cluster: ClusterMetadata, heartbeat: Heartbeat) -> BrokerControlState:
        """Return the next state alone; see `next_states`."""
        return self.next_states(cluster, heartbeat).next

    def lowest_active_offset(self) -> int:
        """Return the metadata offset that every active broker has reached.

        NO_ACTIVE_OFFSET if no broker is active; -1 while an active broker has not reported an
        offset.
        """
        while self._offsets:
            offset, broker_id = self._offsets[0]
            broker = self._brokers.get(broker_id)
            if broker is not None and broker.is_active and broker.metadata_offset == offset:
                return offset
            heappop(self._offsets)
        return NO_ACTIVE_OFFSET

    def metadata_offset(self, broker_id: int) -> int:
        """Return the last reported metadata offset, -1 if none was reported since the registration
        changed.
        """
        return self._brokers[broker_id].metadata_offset

    def is_shutting_down(self, broker_id: int) -> bool:
        """Return whether this controller has led the broker into controlled shutdown."""
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.is_shutting_down

    # -- applied records

    def reset_broker(self, cluster: ClusterMetadata, broker_id: int) -> None:
        """Reset or remove a broker's state after its registration or unregistration was applied.

        As in Kafka, a broker that registers again moves after the others of its hash bucket
        (ClusterControlManager.replay removes it from the heartbeat manager first).
        """
        self._brokers.pop(broker_id, None)
        self.order_version += 1
        registration = cluster.state.brokers.get(broker_id)
        if registration is not None:
            self._add(registration)

    def fence(self, broker_id: int) -> None:
        """Mark a broker as fenced, because its session has expired."""
        self._update(self._brokers[broker_id], is_fenced=True, metadata_offset=_NONE)

    def note_heartbeat(self, broker_id: int, *, is_fenced: bool, metadata_offset: int) -> None:
        """Update the state after a heartbeat was applied. A fenced broker leaves its controlled
        shutdown.
        """
        self._update(self._brokers[broker_id], is_fenced=is_fenced, metadata_offset=metadata_offset)

    def note_registration_change(self, cluster: ClusterMetadata, broker_id: int) -> None:
        """Update the state after a registration change was applied. As in Kafka, a broker whose
        fencing does not change has to report its metadata offset again.
        """
        broker = self._brokers[broker_id]
        is_fenced = cluster.state.brokers[broker_id].fenced
        offset = _NONE if broker.is_fenced == is_fenced else broker.metadata_offset
        self._update(broker, is_fenced=is_fenced, metadata_offset=offset)

    def note_controlled_shutdown(self, broker_id: int, end_offset: int) -> None:
        """Set the offset that all active brokers have to reach before the broker may shut down.

        The records up to ``end_offset`` have moved its leaderships. Only the first call counts.
        """
        broker = self._brokers[broker_id]
        assert not broker.is_fenced, "a fenced broker has nothing to hand over"
        if not broker.is_shutting_down:
            broker.shutdown_offset = end_offset

    def _add(self, registration: BrokerRegistration) -> None:
        self.order_version += registration.id not in self._brokers
        self._brokers[registration.id] = broker = _Broker(registration.id, registration.fenced)
        self._most_brokers = max(self._most_brokers, len(self._brokers))
        self._update(broker, is_fenced=registration.fenced, metadata_offset=_NONE)

    def _broker(self, registration: BrokerRegistration) -> _Broker:
        broker = self._brokers.get(registration.id)
        assert broker is not None, "a registration was not reported to the sessions"
        assert broker.is_fenced == registration.fenced, "a fencing was not reported to the sessions"
        return broker

    def _update(self, broker: _Broker, *, is_fenced: bool, metadata_offset: int) -> None:
        if (
            broker.metadata_offset == metadata_offset
            and broker.is_fenced == is_fenced
            and metadata_offset != _NONE
        ):
            # The usual heartbeat of an idle cluster: the heap has the entry, if it needs one.
            return
        broker.is_fenced = is_fenced
        broker.metadata_offset = metadata_offset
        if is_fenced:
            broker.shutdown_offset = _NONE
        elif not broker.is_shutting_down:
            if len(self._offsets) > 2 * len(self._brokers):
                self._offsets = [
                    (other.metadata_offset, other.id)
                    for other in self._brokers.values()
                    if other.is_active
                ]
                heapify(self._offsets)
            else:
                heappush(self._offsets, (metadata_offset, broker.id))


def is_caught_up(registration: BrokerRegistration, heartbeat: Heartbeat) -> bool:
    """Return whether the broker has applied the record of its own registration (KAFKA-13959)."""
    return heartbeat.metadata_offset >= registration.registration_offset


def _leads(cluster: ClusterMetadata, broker_id: int) -> bool:
    rows = cluster.table.broker_rows(broker_id)
    return bool((cluster.table.column("leader")[rows] == broker_id).any())
