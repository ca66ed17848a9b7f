"""Fetch sessions of the leader's side: a client names only the partitions that changed (KIP-227).

`FetchSessionCache` begins a context for each Fetch request: `SessionContext.partitions` are those
to read, and `SessionContext.respond` leaves out what the client knows already. A session reads the
partitions that are not settled (`settled_partitions`), in its own order. The cache is bounded by
Kafka's rules of eviction. Rules: Kafka's ``FetchSession``, ``FetchManager``.

A consumer's connection may answer the next requests of a session by itself
(``kraft.broker.apis.fetches_ahead``); `FetchSessionCache.foreseen` says which, and `went_on` notes
them. Any other use of the session ends these answers first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter

from kraft.broker.replication.messages import (
    FINAL_SESSION_EPOCH,
    INITIAL_SESSION_EPOCH,
    NO_SESSION,
    BrokerFetchRequest,
    BrokerFetchResponse,
    FetchedPartition,
    FetchPartition,
    PartitionId,
)
from kraft.broker.replication.settled_partitions import SettledPartitions
from kraft.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
)

#: max.incremental.fetch.session.cache.slots
DEFAULT_MAX_SESSIONS = 1_000
#: A session may be evicted by any other after this time, in ms.
EVICTION_MS = 120_000.0
#: The most partitions of a session whose next requests are foreseen: each of them is watched.
_MOST_FORESEEN = 100
_LAST_EPOCH = 2**31 - 1
_PLACE = attrgetter("place")


def session_epoch_after(epoch: int) -> int:
    """Return the next epoch of a session; 1 follows the largest int32, as 0 begins a session."""
    if epoch < 0:
        return FINAL_SESSION_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class SessionPartition:
    """A partition of a session: the last request for it, and what was answered last."""

    __slots__ = ("fetch", "high_watermark", "log_start_offset", "place")

    def __init__(self, fetch: FetchPartition, place: int) -> None:
        self.fetch = fetch
        #: Ascending in the order of the session.
        self.place = place
        self.high_watermark = -1
        self.log_start_offset = -1

    def note(self, answer: FetchedPartition) -> bool:
        """Remember an answer; return whether the client has to get it.

        After an error the next answer is sent in any case: the client must learn that it is over.
        So it is after a diverging epoch: a follower that truncates takes no high watermark. Kafka's
        ``CachedPartition`` waits until the high watermark rises again.
        """
        is_diverging = answer.diverging_epoch is not None
        is_needed = (
            answer.size > 0
            or answer.error != NONE
            or is_diverging
            or answer.preferred_read_replica >= 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )
        self.high_watermark = -1 if answer.error or is_diverging else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_needed


class BrokerFetchSession:
    """One session; ``epoch`` is that of the next request."""

    __slots__ = (
        "_next_place",
        "_settled",
        "created_ms",
        "epoch",
        "fetched_ms",
        "id",
        "is_privileged",
        "partitions",
        "reader",
        "replica_id",
        "unread",
        "used_ms",
        "uses_topic_ids",
        "waits",
        "withdraw",
    )

    def __init__(
        self,
        id: int,
        settled: SettledPartitions,
        now_ms: float,
        *,
        replica_id: int,
        uses_topic_ids: bool,
        fetched_ms: float,
    ) -> None:
        self.id = id
        self._settled = settled
        self.replica_id = replica_id
        self.is_privileged = replica_id >= 0
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms
        #: When the last request arrived.
        self.fetched_ms = fetched_ms
        self.epoch = session_epoch_after(INITIAL_SESSION_EPOCH)
        self.partitions: dict[PartitionId, SessionPartition] = {}
        #: The partitions that are not settled, in any order.
        self.unread: dict[PartitionId, SessionPartition] = {}
        #: What of the last request decided about all partitions; see `begin`.
        self.reader: Hashable = None
        #: Called with each partition that stops being settled: requests wait for it.
        self.waits: list[Callable[[FetchPartition], None]] = []
        #: Called to end the answers that a connection gives by itself; None: it gives none.
        self.withdraw: Callable[[], None] | None = None
        self._next_place = 0

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The order of eviction: consumers' sessions first, then those of few partitions."""
        return self.is_privileged, len(self.partitions), self.id

    def update(self, changed: Iterable[FetchPartition], forgotten: Iterable[PartitionId]) -> None:
        for fetch in changed:
            known = self.partitions.get(fetch.id)
            if known is None:
                known = SessionPartition(fetch, self._place())
                self.partitions[fetch.id] = self.unread[fetch.id] = known
            else:
                self._settled.unsettle(self, fetch.id)
                known.fetch = fetch
        for id in forgotten:
            self._settled.unsettle(self, id)
            self.partitions.pop(id, None)
            self.unread.pop(id, None)

    def begin(self, reader: Hashable, error_of: Callable[[PartitionId], int] | None) -> None:
        """Begin a request of a ``reader``: another one than before reads all partitions again.

        So it does with the partitions that it may not read any more.
        """
        if reader != self.reader:
            self.reader = reader
            self._settled.unsettle_all(self)
        if error_of is not None:
            for id in self.partitions:
                if id not in self.unread and error_of(id):
                    self._settled.unsettle(self, id)

    def to_read(self) -> list[FetchPartition]:
        """Return the partitions that are not settled, in the order of the session."""
        if len(self.unread) == len(self.partitions):
            return [known.fetch for known in self.partitions.values()]
        return [known.fetch for known in sorted(self.unread.values(), key=_PLACE)]

    def move_to_end(self, known: SessionPartition) -> None:
        known.place = self._place()
        id = known.fetch.id
        del self.partitions[id]
        self.partitions[id] = known

    def _place(self) -> int:
        self._next_place += 1
        return self._next_place

    def settle(self, answer: FetchedPartition, request: BrokerFetchRequest) -> None:
        """Settle the partition of an answer, if the next one would be the same."""
        if (
            answer.records is None
            and not answer.error
            and answer.diverging_epoch is None
            and answer.preferred_read_replica < 0
            and self.reader is not None
        ):
            self._settled.settle(self, self.partitions[answer.id], request)


class SessionContext(ABC):
    """What one Fetch request reads, and how it is answered."""

    __slots__ = ()

    #: The error of the whole request; then it reads nothing.
    error = NONE
    #: The session of the request, if it is within one.
    session: BrokerFetchSession | None = None

    @property
    @abstractmethod
    def partitions(self) -> Sequence[FetchPartition]:
        """The partitions to read, in this order."""

    @property
    def may_wait(self) -> bool:
        """Whether there is anything for which the request can wait."""
        return bool(self.partitions)

    @abstractmethod
    def respond(
        self, answers: Sequence[FetchedPartition], now_ms: float
    ) -> BrokerFetchResponse: ...


class SessionError(SessionContext):
    """A request of an unknown session, or out of order."""

    __slots__ = ("error",)

    def __init__(self, error: int) -> None:
        self.error = error

    @property
    def partitions(self) -> Sequence[FetchPartition]:
        return ()

    def respond(self, answers: Sequence[FetchedPartition], now_ms: float) -> BrokerFetchResponse:
        return BrokerFetchResponse(self.error, NO_SESSION, ())


class Sessionless(SessionContext):
    """A request without a session, or one that ends it."""

    __slots__ = ("_fetches",)

    def __init__(self, fetches: Sequence[FetchPartition]) -> None:
        self._fetches = fetches

    @property
    def partitions(self) -> Sequence[FetchPartition]:
        return self._fetches

    def respond(self, answers: Sequence[FetchedPartition], now_ms: float) -> BrokerFetchResponse:
        return BrokerFetchResponse(NONE, NO_SESSION, answers)


class FullFetch(SessionContext):
    """A request that begins a session, if the cache takes it."""

    __slots__ = ("_began_ms", "_cache", "_reader", "_request")

    def __init__(
        self, cache: FetchSessionCache, request: BrokerFetchRequest, reader: Hashable, now_ms: float
    ) -> None:
        self._cache = cache
        self._request = request
        self._reader = reader
        self._began_ms = now_ms

    @property
    def partitions(self) -> Sequence[FetchPartition]:
        return self._request.partitions

    def respond(self, answers: Sequence[FetchedPartition], now_ms: float) -> BrokerFetchResponse:
        request = self._request
        session = self._cache.create(request, len(answers), now_ms, fetched_ms=self._began_ms)
        if session is None:
            return BrokerFetchResponse(NONE, NO_SESSION, answers)
        fetches = {fetch.id: fetch for fetch in request.partitions}
        session.update([fetches[answer.id] for answer in answers], ())
        session.reader = self._reader
        for answer in answers:
            session.partitions[answer.id].note(answer)
        for answer in {answer.id: answer for answer in answers}.values():
            session.settle(answer, request)
        return BrokerFetchResponse(NONE, session.id, answers)


class IncrementalFetch(SessionContext):
    """A request within a session."""

    __slots__ = ("_epoch", "_request", "session")

    session: BrokerFetchSession

    def __init__(self, session: BrokerFetchSession, request: BrokerFetchRequest) -> None:
        self.session = session
        self._epoch = session.epoch
        self._request = request

    @property
    def partitions(self) -> Sequence[FetchPartition]:
        return self.session.to_read()

    @property
    def may_wait(self) -> bool:
        return True

    def respond(self, answers: Sequence[FetchedPartition], now_ms: float) -> BrokerFetchResponse:
        """Answer with the partitions that changed; those with data go to the session's end.

        So a response of limited size serves others first next time.
        """
        session = self.session
        if session.epoch != self._epoch:
            # The client has sent its next request already: it does not wait for this response.
            return BrokerFetchResponse(INVALID_FETCH_SESSION_EPOCH, session.id, ())
        needed = []
        for answer in answers:
            known = session.partitions.get(answer.id)
            if known is None:
                continue
            if known.note(answer):
                needed.append(answer)
            if answer.size:
                session.move_to_end(known)
            else:
                session.settle(answer, self._request)
        return BrokerFetchResponse(NONE, session.id, needed)


class FetchSessionCache:
    """The sessions of a broker, at most ``max_sessions``.

    ``new_id`` returns a random int32 above 0; an id in use is drawn again.
    """

    def __init__(
        self,
        new_id: Callable[[], int],
        settled: SettledPartitions,
        max_sessions: int = DEFAULT_MAX_SESSIONS,
        eviction_ms: float = EVICTION_MS,
    ) -> None:
        self._new_id = new_id
        self._settled = settled
        self._max_sessions = max_sessions
        self._eviction_ms = eviction_ms
        #: By id, the one that was used last at the end.
        self._sessions: dict[int, BrokerFetchSession] = {}
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(
        self, request: BrokerFetchRequest, now_ms: float, reader: Hashable = None
    ) -> SessionContext:
        """Return the context of a request; a full request ends the session that it names.

        ``reader`` is equal for requests that get the same answers from partitions that did not
        change. None: the request reads all partitions.
        """
        session = self._sessions.get(request.session_id)
        if session is not None and session.withdraw is not None:
            session.withdraw()
        return self._begin(request, now_ms, reader)

    def _begin(
        self, request: BrokerFetchRequest, now_ms: float, reader: Hashable
    ) -> SessionContext:
        if request.session_epoch in (INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH):
            self._end(request.session_id)
            if request.session_epoch == FINAL_SESSION_EPOCH:
                return Sessionless(request.partitions)
            return FullFetch(self, request, reader, now_ms)
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionError(FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return SessionError(INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != request.uses_topic_ids:
            return SessionError(FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request.partitions, request.forgotten)
        if not session.partitions:
            self._end(session.id)
            return Sessionless(request.partitions)
        session.begin(reader, request.error_of)
        session.replica_id = request.replica_id
        session.used_ms = session.fetched_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        session.epoch = session_epoch_after(session.epoch)
        return IncrementalFetch(session, request)

    def foreseen(
        self, request: BrokerFetchRequest, answers: Sequence[FetchedPartition]
    ) -> BrokerFetchSession | None:
        """Return the session of a request that was just answered, if its next request is known.

        So it is where each of its partitions has got records, and the client knows all of the
        others: a consumer goes on behind these records, and names the same partitions again.
        """
        session = self._sessions.get(request.session_id)
        asked = {fetch.id for fetch in request.partitions}
        if (
            session is None
            or session.epoch != session_epoch_after(request.session_epoch)
            or len(session.partitions) > _MOST_FORESEEN
            or request.forgotten
            or {answer.id for answer in answers if answer.size} != asked
            or len(answers) > len(asked)
            or session.unread.keys() != asked
        ):
            return None
        return session

    def went_on(
        self,
        session: BrokerFetchSession,
        request: BrokerFetchRequest,
        answers: Sequence[FetchedPartition],
        now_ms: float,
    ) -> None:
        """Note the last one of requests that were answered as foreseen, each with records."""
        if self._sessions.get(session.id) is session:
            session.epoch = request.session_epoch
            self._begin(request, now_ms, session.reader).respond(answers, now_ms)

    def _end(self, id: int) -> None:
        session = self._sessions.pop(id, None)
        if session is not None:
            if session.withdraw is not None:
                session.withdraw()
            # Without a reader a response that comes later settles nothing.
            session.begin(None, None)

    def create(
        self, request: BrokerFetchRequest, size: int, now_ms: float, *, fetched_ms: float
    ) -> BrokerFetchSession | None:
        """Create an empty session for a request of ``size`` partitions that came at ``fetched_ms``.

        Return None if there is no room for it.
        """
        is_privileged = request.is_from_follower
        if len(self._sessions) >= self._max_sessions and not self._evict(
            is_privileged, size, now_ms
        ):
            return None
        id = self._new_id()
        while id == NO_SESSION or id in self._sessions:
            id = self._new_id()
        session = self._sessions[id] = BrokerFetchSession(
            id,
            self._settled,
            now_ms,
            replica_id=request.replica_id,
            uses_topic_ids=request.uses_topic_ids,
            fetched_ms=fetched_ms,
        )
        return session

    def _evict(self, is_privileged: bool, size: int, now_ms: float) -> bool:
        """Make room for a new session; return whether one was evicted.

        First the session that was not used for `EVICTION_MS`. Else the one of lowest rank below the
        new one's, among those that exist for as long, and for a follower among all consumers'.
        """
        sessions = self._sessions
        if not sessions:
            return False
        oldest = next(iter(sessions.values()))
        if now_ms - oldest.used_ms > self._eviction_ms:
            chosen = oldest
        else:
            evictable = [
                session
                for session in sessions.values()
                if now_ms - session.created_ms > self._eviction_ms
                or (is_privileged and not session.is_privileged)
            ]
            if not evictable:
                return False
            chosen = min(evictable, key=lambda session: session.rank)
            if (is_privileged, size, 0) < chosen.rank:
                return False
        self._end(chosen.id)
        self.eviction_count += 1
        return True
