"""Fetch sessions of both sides (KIP-227; FetchSession, FetchSessionHandler)."""

from __future__ import annotations

from typing import Any

import pytest

from kraft._core.log.epoch_cache import EpochEndOffset
from kraft.broker.replication.fetch_sessions import (
    BrokerFetchSession,
    FetchSessionCache,
    session_epoch_after,
)
from kraft.broker.replication.messages import (
    BrokerFetchRequest,
    BrokerFetchResponse,
    FetchedPartition,
    FetchPartition,
    PartitionId,
    ReceivedFetch,
)
from kraft.broker.replication.session_client import FetchSessionClient
from kraft.broker.replication.settled_partitions import SettledPartitions
from kraft.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    UNKNOWN_SERVER_ERROR,
)

TOPIC = b"t" * 16


def p(partition: int) -> PartitionId:
    return PartitionId(TOPIC, partition)


def fetch(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(p(partition), offset, 1_000)


class Records:
    size = 10

    def read(self) -> bytes:
        return bytes(self.size)


def found(
    partition: int, high_watermark: int = 0, *, error: int = NONE, size: int = 0
) -> FetchedPartition:
    return FetchedPartition(p(partition), error, high_watermark, 0, Records() if size else None)


class Server:
    """A cache that draws the ids 1, 2, 3 ..."""

    def __init__(self, max_sessions: int = 10) -> None:
        self._last = 0
        # No partition is hosted, so none is ever settled.
        self.settled = SettledPartitions({}, lambda id: False)
        self.cache = FetchSessionCache(self._next, self.settled, max_sessions, eviction_ms=100.0)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def ask(
        self,
        fetches: list[FetchPartition],
        answers: list[FetchedPartition],
        *,
        session: tuple[int, int] = (0, 0),
        forgotten: tuple[PartitionId, ...] = (),
        now: float = 0.0,
        replica: int = -1,
        uses_topic_ids: bool = True,
    ) -> BrokerFetchResponse:
        request = BrokerFetchRequest(
            fetches,
            replica,
            session_id=session[0],
            session_epoch=session[1],
            forgotten=forgotten,
            uses_topic_ids=uses_topic_ids,
        )
        context = self.cache.begin(request, now)
        self.read = [each.id.partition for each in context.partitions]
        return context.respond(answers, now)


def test_epochs_of_sessions() -> None:
    """FetchMetadata.nextEpoch."""
    assert [session_epoch_after(each) for each in (0, 1, 2**31 - 1, -1)] == [1, 2, 1, -1]


def test_an_incremental_fetch_reads_all_and_answers_what_changed() -> None:
    server = Server()
    full = server.ask([fetch(0), fetch(1)], [found(0, 5), found(1, 6)])
    assert (full.session_id, len(full.partitions)) == (1, 2)
    answers = [found(0, 5), found(1, 7)]
    response = server.ask([], answers, session=(1, 1))
    assert server.read == [0, 1]
    assert response.partitions == [found(1, 7)]
    assert server.ask([], answers, session=(1, 2)).partitions == []


def both(first: int, second: int, **fields: Any) -> BrokerFetchRequest:
    """Return the second request of session 1, for two partitions."""
    made = BrokerFetchRequest([fetch(0, first), fetch(1, second)], session_id=1, session_epoch=1)
    return made._replace(**fields)


def test_the_next_request_of_a_session_is_foreseen() -> None:
    server = Server()
    server.ask([fetch(0), fetch(1)], [found(0, 9, size=10), found(1, 9)])
    answers = [found(0, 9, size=10), found(1, 9, size=10)]
    server.ask([fetch(0, 3), fetch(1, 4)], answers, session=(1, 1))
    cache = server.cache
    session = cache.foreseen(both(3, 4), answers)
    assert session is not None
    assert cache.foreseen(both(3, 4, session_id=2), answers) is None
    assert cache.foreseen(both(3, 4, session_epoch=2), answers) is None
    assert cache.foreseen(both(3, 4, forgotten=[p(2)]), answers) is None
    assert cache.foreseen(both(3, 4), answers[:1]) is None
    assert cache.foreseen(both(3, 4), [answers[0], found(1, 9)]) is None
    assert cache.foreseen(both(3, 4), [*answers, found(2, 9)]) is None
    # The next request would read the other one too, which is not settled.
    assert cache.foreseen(both(3, 4, partitions=[fetch(0, 3)]), answers[:1]) is None
    # It was answered three more times, without the cache.
    cache.went_on(session, both(13, 14, session_epoch=4), answers, 70.0)
    assert (session.epoch, session.used_ms) == (5, 70.0)
    assert [each.fetch_offset for each in session.to_read()] == [13, 14]
    assert server.ask([], [], session=(1, 5)).error == NONE


def test_a_large_session_is_not_foreseen() -> None:
    server = Server()
    fetches = [fetch(each) for each in range(101)]
    answers = [found(each, 9, size=10) for each in range(101)]
    for count in (100, 101):
        id = server.ask(fetches[:count], answers[:count]).session_id
        server.ask(fetches[:count], answers[:count], session=(id, 1))
        request = BrokerFetchRequest(fetches[:count], session_id=id, session_epoch=1)
        foreseen = server.cache.foreseen(request, answers[:count])
        assert (foreseen is not None) == (count == 100)


@pytest.mark.parametrize("how", ["request", "stale", "full", "final", "evicted"])
def test_whoever_needs_a_session_withdraws_its_answers_first(how: str) -> None:
    server = Server(max_sessions=1)
    answers = [found(0, 9, size=10), found(1, 9, size=10)]
    server.ask([fetch(0), fetch(1)], answers)
    server.ask([fetch(0, 3), fetch(1, 4)], answers, session=(1, 1))
    session = server.cache.foreseen(both(3, 4), answers)
    assert session is not None
    epochs: list[int] = []

    def withdraw() -> None:
        epochs.append(session.epoch)
        server.cache.went_on(session, both(5, 6, session_epoch=2), answers, 5.0)
        session.withdraw = None

    session.withdraw = withdraw
    if how == "evicted":
        assert server.ask([fetch(5)], [found(5)], replica=7).session_id == 2
    else:
        epoch = {"request": 3, "stale": 2, "full": 0, "final": -1}[how]
        error = server.ask([fetch(0, 9)], [], session=(1, epoch)).error
        assert error == (INVALID_FETCH_SESSION_EPOCH if how == "stale" else NONE)
    assert epochs == [2]


def test_the_answer_after_an_error_is_always_sent() -> None:
    server = Server()
    server.ask([fetch(0)], [found(0, 5)])
    error = found(0, -1, error=UNKNOWN_SERVER_ERROR)
    assert server.ask([], [error], session=(1, 1)).partitions == [error]
    assert server.ask([], [error], session=(1, 2)).partitions == [error]
    assert server.ask([], [found(0, 5)], session=(1, 3)).partitions == [found(0, 5)]


def test_the_answer_after_a_divergence_is_always_sent() -> None:
    """A follower does not take the high watermark of an answer that makes it truncate: without the
    next one it would not know the high watermark until that rises again.
    """
    server = Server()
    diverging = found(0, 5)._replace(diverging_epoch=EpochEndOffset(0, 5))
    server.ask([fetch(0)], [diverging])
    assert server.ask([], [found(0, 5)], session=(1, 1)).partitions == [found(0, 5)]
    assert server.ask([], [found(0, 5)], session=(1, 2)).partitions == []


def test_partitions_with_records_move_to_the_end() -> None:
    server = Server()
    server.ask([fetch(0), fetch(1), fetch(2)], [found(0), found(1), found(2)])
    server.ask([], [found(0, size=10), found(1), found(2)], session=(1, 1))
    server.ask([], [found(1), found(2), found(0)], session=(1, 2))
    assert server.read == [1, 2, 0]


def test_partitions_are_changed_added_and_forgotten() -> None:
    server = Server()
    server.ask([fetch(0), fetch(1)], [found(0), found(1)])
    request = BrokerFetchRequest(
        [fetch(1, 50), fetch(2)], session_id=1, session_epoch=1, forgotten=[p(0)]
    )
    context = server.cache.begin(request, 0.0)
    assert context.partitions == [fetch(1, 50), fetch(2)]


def test_a_session_without_partitions_ends() -> None:
    server = Server()
    server.ask([fetch(0)], [found(0)])
    response = server.ask([], [], session=(1, 1), forgotten=(p(0),))
    assert (response.session_id, len(server.cache)) == (0, 0)


@pytest.mark.parametrize(
    ("session", "uses_topic_ids", "error"),
    [
        ((9, 1), True, FETCH_SESSION_ID_NOT_FOUND),
        ((1, 2), True, INVALID_FETCH_SESSION_EPOCH),
        ((1, 1), False, FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_requests_that_no_session_expects(
    session: tuple[int, int], uses_topic_ids: bool, error: int
) -> None:
    server = Server()
    server.ask([fetch(0)], [found(0)])
    response = server.ask([], [], session=session, uses_topic_ids=uses_topic_ids)
    assert (response.error, response.session_id, server.read) == (error, 0, [])


def test_a_response_that_comes_after_the_next_request_is_an_error() -> None:
    """IncrementalFetchContext: the client has given up the request."""
    server = Server()
    server.ask([fetch(0)], [found(0)])
    late = server.cache.begin(BrokerFetchRequest([], session_id=1, session_epoch=1), 0.0)
    server.cache.begin(BrokerFetchRequest([], session_id=1, session_epoch=2), 0.0)
    assert late.respond([found(0, 9)], 0.0).error == INVALID_FETCH_SESSION_EPOCH


def test_full_requests_end_the_session_that_they_name() -> None:
    server = Server()
    server.ask([fetch(0)], [found(0)])
    assert server.ask([fetch(0)], [found(0)], session=(1, 0)).session_id == 2
    assert server.ask([fetch(0)], [found(0)], session=(2, -1)).session_id == 0
    assert len(server.cache) == 0


# -- eviction (FetchSessionCache.tryEvict)


def test_a_full_cache_refuses_an_equal_session() -> None:
    server = Server(max_sessions=1)
    server.ask([fetch(0)], [found(0)])
    assert server.ask([fetch(1)], [found(1)], now=50.0).session_id == 0


def test_an_unused_session_is_evicted() -> None:
    server = Server(max_sessions=1)
    server.ask([fetch(0)], [found(0)])
    server.ask([], [found(0)], session=(1, 1), now=50.0)
    assert server.ask([fetch(1)], [found(1)], now=149.0).session_id == 0
    assert server.ask([fetch(1)], [found(1)], now=151.0).session_id == 2
    assert server.cache.eviction_count == 1


def test_a_follower_evicts_a_consumer() -> None:
    server = Server(max_sessions=1)
    server.ask([fetch(0), fetch(1)], [found(0), found(1)])
    assert server.ask([fetch(2)], [found(2)], replica=7).session_id == 2
    assert server.ask([fetch(0), fetch(1)], [found(0), found(1)]).session_id == 0


def test_an_old_session_gives_way_to_a_larger_one() -> None:
    server = Server(max_sessions=2)
    server.ask([fetch(0)], [found(0)])
    server.ask([fetch(0), fetch(1)], [found(0), found(1)])
    for epoch, now in ((1, 90.0), (2, 180.0)):
        server.ask([], [found(0)], session=(1, epoch), now=now)
        server.ask([], [found(0), found(1)], session=(2, epoch), now=now)
    assert server.ask([fetch(0)], [found(0)], now=181.0).session_id == 0
    assert server.ask([fetch(0), fetch(1)], [found(0), found(1)], now=181.0).session_id == 3
    assert server.cache.begin(BrokerFetchRequest([], session_id=2, session_epoch=3), 0.0).error == 0


def test_ranks_put_consumers_before_followers_and_few_partitions_before_many() -> None:
    def rank(privileged: bool, size: int, id: int) -> tuple[bool, int, int]:
        session = BrokerFetchSession(
            id,
            SettledPartitions({}, lambda id: False),
            0.0,
            replica_id=7 if privileged else -1,
            uses_topic_ids=True,
            fetched_ms=0.0,
        )
        session.update(map(fetch, range(size)), ())
        return session.rank

    ordered = [rank(False, 1, 9), rank(False, 2, 1), rank(False, 2, 3), rank(True, 1, 1)]
    assert ordered == sorted(ordered)


# -- the client


def test_a_client_names_only_changes() -> None:
    client = FetchSessionClient()
    offsets = {p(0): 0, p(1): 0}

    def wanted(id: PartitionId) -> FetchPartition | None:
        return fetch(id.partition, offsets[id]) if id in offsets else None

    first = client.build(list(offsets), wanted)
    assert first is not None
    assert (first.session_epoch, len(first.partitions)) == (0, 2)
    assert client.received(ReceivedFetch(NONE, 5, []))
    second = client.build(list(offsets), wanted)
    assert second is not None
    assert second == (5, 1, [], [])
    client.received(ReceivedFetch(NONE, 5, []))
    offsets[p(0)] = 3
    del offsets[p(1)]
    client.changed(p(0))
    client.changed(p(1))
    third = client.build(list(offsets), wanted)
    assert third == (5, 2, [fetch(0, 3)], [p(1)])


@pytest.mark.parametrize(
    ("response", "session_id"),
    [
        (ReceivedFetch(FETCH_SESSION_ID_NOT_FOUND, 0, []), 0),
        (ReceivedFetch(INVALID_FETCH_SESSION_EPOCH, 0, []), 5),
        (ReceivedFetch(NONE, 0, []), 0),
        (None, 5),
    ],
)
def test_a_client_begins_a_new_session(response: ReceivedFetch | None, session_id: int) -> None:
    """A new session closes the old one, unless the leader has closed it."""
    client = FetchSessionClient()
    client.build([p(0)], lambda id: fetch(0))
    client.received(ReceivedFetch(NONE, 5, []))
    client.build([p(0)], lambda id: fetch(0))
    if response is None:
        client.failed()
    else:
        assert client.received(response) == (response.error == NONE)
    again = client.build([p(0)], lambda id: fetch(0))
    assert again == (session_id, 0, [fetch(0)], [])


def test_a_client_without_partitions_sends_nothing_after_it_forgot_them() -> None:
    client = FetchSessionClient()
    assert client.build([], lambda id: None) is None
    client.build([p(0)], lambda id: fetch(0))
    client.received(ReceivedFetch(NONE, 5, []))
    client.changed(p(0))
    last = client.build([], lambda id: None)
    assert last == (5, 1, [], [p(0)])
    client.received(ReceivedFetch(NONE, 0, []))
    assert client.build([], lambda id: None) is None
