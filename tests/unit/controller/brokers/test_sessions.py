"""Broker sessions: the last contact of each broker and its reported metadata offset."""

from __future__ import annotations

import pytest

from kraft.controller.brokers.broker_lifecycle import (
    fence_broker,
    register_broker,
    unregister_broker,
)
from kraft.controller.brokers.sessions import NO_ACTIVE_OFFSET, BrokerSessions, Heartbeat, Session
from tests.harness.decisions import Lab, registration


def active(lab: Lab, now_ms: float = 0.0) -> BrokerSessions:
    sessions = BrokerSessions(9_000)
    sessions.activate(lab.cluster, now_ms)
    return sessions


def epoch(lab: Lab, broker: int) -> int:
    return lab.cluster.state.brokers[broker].epoch


def test_activate_begins_a_whole_session_for_unfenced_brokers() -> None:
    lab = Lab(3)
    lab.do(fence_broker(lab.cluster, 2))
    sessions = active(lab, 100.0)
    alive = [sessions.is_alive(lab.cluster, broker, 9_100.0) for broker in (0, 1, 2, 3)]
    assert alive == [True, True, False, False], "a fenced broker may register again at once"
    assert not sessions.is_alive(lab.cluster, 0, 9_100.5)


def test_take_expired_returns_the_longest_silent_session() -> None:
    lab = Lab(3)
    sessions = active(lab)
    sessions.touch(0, epoch(lab, 0), 500.0)
    assert sessions.take_expired(9_000.0) is None, "the timeout is exclusive"
    found = [sessions.take_expired(20_000.0) for _ in range(4)]
    assert [session and session.broker_id for session in found] == [1, 2, 0, None]


def test_a_session_belongs_to_one_incarnation() -> None:
    lab = Lab(1)
    sessions = active(lab)
    old = epoch(lab, 0)
    lab.do(register_broker(lab.cluster, registration(0, 2), next_offset=lab.cluster.next_offset))
    sessions.reset_broker(lab.cluster, 0)
    assert sessions.has_valid_session(0, old, 1.0)
    assert not sessions.is_alive(lab.cluster, 0, 1.0), "the new incarnation has not been heard yet"
    assert sessions.take_expired(9_001.0) == Session(0, old)


def test_a_clock_that_steps_back_expires_no_session_early() -> None:
    sessions = BrokerSessions(100)
    sessions.touch(0, 5, 1_000.0)
    sessions.touch(1, 6, 400.0)
    assert sessions.last_contact_ms(1, 6) == 1_000.0
    assert sessions.take_expired(1_100.0) is None


def test_the_check_interval_is_an_eighth_of_the_timeout() -> None:
    assert BrokerSessions(9_000).check_interval_ms == 1_125
    assert BrokerSessions(4).check_interval_ms == 1


def test_the_lowest_offset_is_that_of_the_slowest_active_broker() -> None:
    lab = Lab(3)
    sessions = active(lab)
    assert sessions.lowest_active_offset() == -1, "no broker has reported an offset yet"
    for broker, offset in ((0, 70), (1, 50), (2, 60)):
        sessions.note_heartbeat(broker, is_fenced=False, metadata_offset=offset)
    assert sessions.lowest_active_offset() == 50
    sessions.note_controlled_shutdown(1, 80)
    assert sessions.lowest_active_offset() == 60, "a broker that shuts down does not count"
    sessions.note_heartbeat(2, is_fenced=True, metadata_offset=60)
    assert sessions.lowest_active_offset() == 70, "a fenced broker does not count"
    sessions.note_registration_change(lab.cluster, 0)
    assert sessions.lowest_active_offset() == -1, "a changed broker has to report its offset again"
    lab.do(unregister_broker(lab.cluster, 0))
    sessions.reset_broker(lab.cluster, 0)
    assert sessions.lowest_active_offset() == NO_ACTIVE_OFFSET


def test_the_lowest_offset_is_exact_after_many_heartbeats() -> None:
    lab = Lab(3)
    sessions = active(lab)
    for offset in range(1_000):
        for broker in range(3):
            sessions.note_heartbeat(broker, is_fenced=False, metadata_offset=offset + broker)
            expected = min(sessions.metadata_offset(other) for other in range(3))
            if offset % 97 == 0:
                assert sessions.lowest_active_offset() == expected
    assert len(sessions._offsets) < 20, "stale entries are removed"


def test_only_the_first_end_of_a_controlled_shutdown_counts_until_the_broker_is_fenced() -> None:
    lab = Lab(2)
    sessions = active(lab)
    sessions.note_controlled_shutdown(0, 40)
    sessions.note_controlled_shutdown(0, 90)
    sessions.note_heartbeat(1, is_fenced=False, metadata_offset=50)
    heartbeat = Heartbeat(0, epoch(lab, 0), 10, wants_shutdown=True)
    assert sessions.is_shutting_down(0)
    assert sessions.next_state(lab.cluster, heartbeat).should_shut_down
    sessions.note_heartbeat(0, is_fenced=True, metadata_offset=10)
    assert not sessions.is_shutting_down(0)


def test_an_unreported_fencing_raises() -> None:
    lab = Lab(1)
    sessions = active(lab)
    lab.do(fence_broker(lab.cluster, 0))
    with pytest.raises(AssertionError, match="not reported"):
        sessions.next_state(lab.cluster, Heartbeat(0, epoch(lab, 0), 0))


def test_clear_removes_all_sessions() -> None:
    lab = Lab(2)
    sessions = active(lab)
    sessions.clear()
    assert sessions.take_expired(1e9) is None
    assert sessions.lowest_active_offset() == NO_ACTIVE_OFFSET
    sessions.activate(lab.cluster, 5.0)
    assert sessions.is_alive(lab.cluster, 1, 5.0)


def test_a_broker_that_registers_again_moves_to_the_end_of_its_bucket() -> None:
    lab = Lab(0)
    ids = (4, 20, 36)
    for broker in ids:
        lab.do(register_broker(lab.cluster, registration(broker), next_offset=broker))
    sessions = active(lab)
    first, second, third = sessions.placement_order()
    assert sorted((first, second, third)) == [4, 20, 36]
    sessions.reset_broker(lab.cluster, first)
    assert sessions.placement_order() == [second, third, first]
