"""What the active controller knows of its brokers that is not in the log: their sessions.

Owns when each broker was last heard of, the metadata offset that it has reached, the offset at
which its controlled shutdown is over, and which state it is in next. ``heartbeats`` and ``brokers``
ask it to decide; the controller that runs them tells it what took effect. A standby controller has
none, and a new active one begins with `BrokerSessions.activate`. Pure: the time is passed in.
Sources: Kafka's ``BrokerHeartbeatManager``, ``BrokerHeartbeatTracker`` (4.3.1), KIP-631, KIP-866,
KAFKA-18138, KAFKA-19130.

Invariants: there is a state for every registered broker, fenced there where its registration says
so; contacts lie in the order of their times, so that the first one expires first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from kraft._core.java_hash import hash_map_order_of_ids
from kraft.controller.state import Cluster, activation_order
from kraft.image import BrokerRegistration
from kraft.records import Uuid

#: Kafka's ``broker.session.timeout.ms``.
SESSION_TIMEOUT_MS = 9_000

#: Above every offset: what the lowest one is where no broker is active.
NO_ACTIVE_OFFSET = (1 << 63) - 1

_CHECKS_PER_SESSION = 8
_NONE = -1


class BrokerControlState(Enum):
    """What a broker is to do, as the controller sees it."""

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
    """The state that a broker is in, and the one that its heartbeat takes it to."""

    current: BrokerControlState
    next: BrokerControlState


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a broker says every two seconds (BrokerHeartbeatRequest).

    ``metadata_offset`` is the last offset of the metadata log that it has taken up.
    ``cordoned_log_dirs`` is None in versions that do not know it (KIP-1066, version 2).
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    wants_fence: bool = False
    wants_shutdown: bool = False
    offline_log_dirs: Sequence[Uuid] = ()
    cordoned_log_dirs: Sequence[Uuid] | None = None


class Session(NamedTuple):
    """One incarnation of a broker; another one of the same id has another epoch."""

    broker_id: int
    broker_epoch: int


@dataclass(slots=True)
class _Broker:
    id: int
    is_fenced: bool
    metadata_offset: int = _NONE
    # Where the records that took its leaderships away end; -1 while it does not shut down.
    shutdown_offset: int = _NONE

    @property
    def is_shutting_down(self) -> bool:
        return self.shutdown_offset >= 0

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.is_shutting_down


class BrokerSessions:
    """The sessions of all brokers; times are milliseconds of one clock that does not go back."""

    __slots__ = (
        "_brokers",
        "_contacts",
        "_most_brokers",
        "_newest_ms",
        "_offsets",
        "order_version",
        "session_timeout_ms",
    )

    def __init__(self, session_timeout_ms: float = SESSION_TIMEOUT_MS) -> None:
        self.session_timeout_ms = session_timeout_ms
        # In the order in which Kafka's heartbeat manager has put them into its HashMap.
        self._brokers: dict[int, _Broker] = {}
        self._most_brokers = 0
        #: Changes whenever `placement_order` may have.
        self.order_version = 0
        # The oldest contact first: whoever is heard again goes to the end.
        self._contacts: dict[Session, float] = {}
        self._newest_ms = float("-inf")
        # A heap of (metadata offset, broker) in which every active broker has its present entry
        # beside some that hold no more.
        self._offsets: list[tuple[int, int]] = []

    @property
    def check_interval_ms(self) -> float:
        """How often to look for a session that has run out: a broker is fenced after at most
        112.5 % of the timeout.
        """
        return max(1.0, self.session_timeout_ms / _CHECKS_PER_SESSION)

    # -- life

    def activate(self, cluster: Cluster, now_ms: float) -> None:
        """This controller leads from now on: brokers that are not fenced were just heard of.

        Fenced ones were not: they may register again at once (KAFKA-19130).
        """
        self.clear()
        for broker_id in activation_order(cluster):
            self._begin(cluster.state.brokers[broker_id])
        for registration in cluster.state.brokers.values():
            if not registration.fenced:
                self.touch(registration.id, registration.epoch, now_ms)

    def clear(self) -> None:
        """This controller does not lead any more."""
        self._brokers.clear()
        self._most_brokers = 0
        self.order_version += 1
        self._contacts.clear()
        self._offsets.clear()
        self._newest_ms = float("-inf")

    def placement_order(self) -> list[int]:
        """Return the ids of the brokers in the order in which Kafka's placer is given them.

        Source: ``BrokerHeartbeatManager.usableBrokers``, which goes through a HashMap.
        """
        return hash_map_order_of_ids(self._brokers, self._most_brokers)

    # -- contacts

    def touch(self, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        """A broker was heard, whatever it said; to be told before its heartbeat waits its turn."""
        session = Session(broker_id, broker_epoch)
        self._newest_ms = max(now_ms, self._newest_ms)
        self._contacts.pop(session, None)
        self._contacts[session] = self._newest_ms

    def last_contact_ms(self, broker_id: int, broker_epoch: int) -> float | None:
        """When a broker was last heard of, None where it was not."""
        return self._contacts.get(Session(broker_id, broker_epoch))

    def has_valid_session(self, broker_id: int, broker_epoch: int, now_ms: float) -> bool:
        """Whether it was heard within the timeout, fenced or not."""
        heard_ms = self.last_contact_ms(broker_id, broker_epoch)
        return heard_ms is not None and not self._is_over(heard_ms, now_ms)

    def is_alive(self, cluster: Cluster, broker_id: int, now_ms: float) -> bool:
        """Whether the broker that is registered with this id has a valid session."""
        registration = cluster.state.brokers.get(broker_id)
        return registration is not None and self.has_valid_session(
            broker_id, registration.epoch, now_ms
        )

    def take_expired(self, now_ms: float) -> Session | None:
        """At most one session that has run out, which is forgotten; the longest silent one."""
        oldest = next(iter(self._contacts), None)
        if oldest is None or not self._is_over(self._contacts[oldest], now_ms):
            return None
        del self._contacts[oldest]
        return oldest

    def _is_over(self, heard_ms: float, now_ms: float) -> bool:
        return heard_ms + self.session_timeout_ms < now_ms

    # -- what brokers have reached

    def next_states(self, cluster: Cluster, heartbeat: Heartbeat) -> BrokerControlStates:
        """What a heartbeat of a registered broker leads to; changes nothing.

        Costs a look at the broker's partitions where it wants to shut down, else nothing.
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

    def next_state(self, cluster: Cluster, heartbeat: Heartbeat) -> BrokerControlState:
        """As `next_states`, without the state that the broker is in."""
        return self.next_states(cluster, heartbeat).next

    def lowest_active_offset(self) -> int:
        """The metadata offset that every active broker has reached, NO_ACTIVE_OFFSET where none
        is active; -1 as long as one has not told its own.
        """
        while self._offsets:
            offset, broker_id = self._offsets[0]
            broker = self._brokers.get(broker_id)
            if broker is not None and broker.is_active and broker.metadata_offset == offset:
                return offset
            heappop(self._offsets)
        return NO_ACTIVE_OFFSET

    def metadata_offset(self, broker_id: int) -> int:
        """What the broker said last, -1 where it has said nothing since its registration last
        changed.
        """
        return self._brokers[broker_id].metadata_offset

    def is_shutting_down(self, broker_id: int) -> bool:
        """In controlled shutdown, as far as this controller has led it there itself."""
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.is_shutting_down

    # -- what took effect

    def follow(self, cluster: Cluster, broker_id: int) -> None:
        """A registration, or its end, took effect: the broker's state begins anew, or ends.

        Like Kafka's, a broker that registers again goes behind those of its bucket
        (ClusterControlManager.replay removes it from the heartbeat manager first).
        """
        self._brokers.pop(broker_id, None)
        self.order_version += 1
        registration = cluster.state.brokers.get(broker_id)
        if registration is not None:
            self._begin(registration)

    def fence(self, broker_id: int) -> None:
        """The broker is about to be fenced, as its session is over."""
        self._set(self._brokers[broker_id], is_fenced=True, metadata_offset=_NONE)

    def note_heartbeat(self, broker_id: int, *, is_fenced: bool, metadata_offset: int) -> None:
        """A heartbeat took effect. A broker that is fenced leaves its controlled shutdown."""
        self._set(self._brokers[broker_id], is_fenced=is_fenced, metadata_offset=metadata_offset)

    def note_registration_change(self, cluster: Cluster, broker_id: int) -> None:
        """A change of the registration took effect. As in Kafka a broker that stays fenced or
        unfenced must tell anew which offset it has reached.
        """
        broker = self._brokers[broker_id]
        is_fenced = cluster.state.brokers[broker_id].fenced
        offset = _NONE if broker.is_fenced == is_fenced else broker.metadata_offset
        self._set(broker, is_fenced=is_fenced, metadata_offset=offset)

    def note_controlled_shutdown(self, broker_id: int, end_offset: int) -> None:
        """The broker's leaderships have been moved by records up to ``end_offset``, which others
        must have taken up before it may go; only the first one counts.
        """
        broker = self._brokers[broker_id]
        assert not broker.is_fenced, "a fenced broker has nothing to hand over"
        if not broker.is_shutting_down:
            broker.shutdown_offset = end_offset

    def _begin(self, registration: BrokerRegistration) -> None:
        self.order_version += registration.id not in self._brokers
        self._brokers[registration.id] = broker = _Broker(registration.id, registration.fenced)
        self._most_brokers = max(self._most_brokers, len(self._brokers))
        self._set(broker, is_fenced=registration.fenced, metadata_offset=_NONE)

    def _broker(self, registration: BrokerRegistration) -> _Broker:
        broker = self._brokers.get(registration.id)
        assert broker is not None, "sessions were not told that a broker has registered"
        assert broker.is_fenced == registration.fenced, "sessions were not told of a fencing"
        return broker

    def _set(self, broker: _Broker, *, is_fenced: bool, metadata_offset: int) -> None:
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
    """Whether a broker has taken up the record of its own registration (KAFKA-13959)."""
    return heartbeat.metadata_offset >= registration.registration_offset


def _leads(cluster: Cluster, broker_id: int) -> bool:
    rows = cluster.table.broker_rows(broker_id)
    return bool((cluster.table.column("leader")[rows] == broker_id).any())
