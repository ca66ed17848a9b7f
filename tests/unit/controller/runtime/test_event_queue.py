"""The event queue: the order of events, timers and deadlines."""

from __future__ import annotations

from kraft.controller.runtime.event_queue import DurationHistogram, EventQueue, QueuedEvent


def taken(queue: EventQueue[str], now_ms: float = 0.0) -> list[str]:
    """Take all due events; return them in order."""
    events = []
    while (waiting := queue.take(now_ms)) is not None:
        events.append(waiting.event)
    return events


def test_heartbeats_come_first_and_the_others_in_order() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.append("create", 0)
    queue.append("delete", 1)
    queue.prepend("rest of create", 2)
    queue.append_heartbeat("heartbeat of 1", 1, 3)
    queue.append_heartbeat("heartbeat of 2", 2, 4)
    assert taken(queue) == [
        "heartbeat of 1",
        "heartbeat of 2",
        "rest of create",
        "create",
        "delete",
    ]


def test_the_last_prepended_event_comes_first() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.prepend("a", 0)
    queue.prepend("b", 0)
    assert taken(queue) == ["b", "a"]


def test_a_due_timer_comes_before_appended_events() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.schedule("balance", 100, lambda: "balance leaders")
    queue.append("create", 0)
    queue.append("delete", 0)
    waiting = queue.take(99)
    assert waiting is not None
    assert waiting.event == "create"
    waiting = queue.take(105)
    assert waiting is not None
    assert (waiting.event, waiting.since_ms) == ("balance leaders", 100)
    assert taken(queue, 200) == ["delete"]


def test_a_tag_has_one_timer_at_its_latest_time() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.schedule("fence", 10, lambda: "too early")
    queue.schedule("fence", 30, lambda: "fence")
    queue.schedule("balance", 20, lambda: "never")
    queue.cancel("balance")
    assert queue.wake_at_ms() == 30
    assert taken(queue, 29) == []
    assert taken(queue, 30) == ["fence"]
    assert taken(queue, 1000) == []


def test_an_expired_event_is_returned_and_never_run() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.append("patient", 0)
    queue.append("hurried", 0, deadline_ms=50)
    queue.append("later", 0, deadline_ms=70)
    assert [late.event for late in queue.take_expired(49)] == []
    assert [late.event for late in queue.take_expired(50)] == ["hurried"]
    assert taken(queue) == ["patient", "later"]
    assert [late.event for late in queue.take_expired(100)] == [], "it has been taken"


def test_released_events_come_first_and_can_expire_while_held() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.append_heartbeat("first", 1, 0, deadline_ms=50)
    queue.append_heartbeat("second", 2, 0)
    for _ in range(2):
        waiting = queue.take_heartbeat()
        assert waiting is not None
        queue.hold(waiting)
    queue.append_heartbeat("third", 3, 1)
    assert len(queue) == 3
    assert taken(queue) == ["third"]
    assert [late.event for late in queue.take_expired(60)] == ["first"]
    queue.append_heartbeat("fourth", 4, 2)
    queue.release_held()
    assert taken(queue) == ["second", "fourth"]


def test_heartbeats_can_be_taken_alone() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.append("create", 0)
    queue.append_heartbeat("heartbeat", 1, 0)
    waiting = queue.take_heartbeat()
    assert waiting is not None
    assert waiting.event == "heartbeat"
    assert queue.take_heartbeat() is None
    assert len(queue) == 1


def test_the_queue_knows_whose_heartbeats_wait() -> None:
    queue: EventQueue[str] = EventQueue()
    assert not queue.has_heartbeat(1)
    queue.append_heartbeat("of the old connection", 1, 0, deadline_ms=50)
    queue.append_heartbeat("of the new one", 1, 1)
    queue.append_heartbeat("of 2", 2, 1)
    waiting = queue.take_heartbeat()
    assert waiting is not None
    assert queue.has_heartbeat(1), "the second one waits"
    queue.hold(waiting)
    assert queue.take_heartbeat() is not None
    assert queue.has_heartbeat(1), "the first one is held"
    assert [late.event for late in queue.take_expired(60)] == ["of the old connection"]
    assert not queue.has_heartbeat(1)
    assert queue.has_heartbeat(2)
    assert [waiting.event for waiting in queue.take_all()] == ["of 2"]
    assert not queue.has_heartbeat(2)


def test_wake_at_is_the_earliest_timer_or_deadline() -> None:
    queue: EventQueue[str] = EventQueue()
    assert queue.wake_at_ms() == float("inf")
    queue.schedule("balance", 300, lambda: "balance")
    assert queue.wake_at_ms() == 300
    queue.append("hurried", 0, deadline_ms=5)
    assert queue.wake_at_ms() == float("-inf"), "an event is ready"
    list(queue.take_expired(5))
    assert queue.wake_at_ms() == 300


def test_take_all_empties_the_queue() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.append("create", 0)
    queue.append_heartbeat("heartbeat", 1, 0)
    queue.schedule("balance", 1, lambda: "balance")
    assert [waiting.event for waiting in queue.take_all()] == ["heartbeat", "create"]
    assert len(queue) == 0
    assert queue.take(1000) is None
    assert queue.wake_at_ms() == float("inf")


def test_a_held_event_is_the_same_object() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.append("create", 7, deadline_ms=9)
    waiting = queue.take(8)
    assert waiting == QueuedEvent("create", 7, 9, is_taken=True)


def test_a_histogram_has_the_maximum_and_bounds_percentiles() -> None:
    times = DurationHistogram()
    assert times.percentile_ms(99) == 0.0
    for _ in range(99):
        times.note(0.1)
    times.note(4.0)
    assert times.count == 100
    assert times.worst_ms == 4.0
    assert 0.1 <= times.percentile_ms(50) <= 0.2
    assert times.percentile_ms(100) == 4.0


def test_held_events_keep_their_order() -> None:
    queue: EventQueue[str] = EventQueue()
    for event in ("first", "second", "third"):
        queue.append_heartbeat(event, 1, 0)
        waiting = queue.take_heartbeat()
        assert waiting is not None
        queue.hold(waiting)
    queue.append_heartbeat("later", 1, 1)
    queue.release_held()
    assert taken(queue) == ["first", "second", "third", "later"]
