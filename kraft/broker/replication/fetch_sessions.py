"""Fetch sessions of the leader's side: a client names only the partitions that changed (KIP-227).

`FetchSessionCache` begins a context for each Fetch request: `SessionContext.partitions` are those
to read, and `SessionContext.respond` leaves out what the client knows already. The cache is bounded
by Kafka's rules of eviction. Rules: Kafka's ``FetchSession``, ``FetchManager``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

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
_LAST_EPOCH = 2**31 - 1


def session_epoch_after(epoch: int) -> int:
    """Return the next epoch of a session; 1 follows the largest int32, as 0 begins a session."""
    if epoch < 0:
        return FINAL_SESSION_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class SessionPartition:
    """A partition of a session: the last request for it, and what was answered last."""

    __slots__ = ("fetch", "high_watermark", "log_start_offset")

    def __init__(self, fetch: FetchPartition) -> None:
        self.fetch = fetch
        self.high_watermark = -1
        self.log_start_offset = -1

    def note(self, answer: FetchedPartition) -> bool:
        """Remember an answer; return whether the client has to get it.

        After an error the next answer is sent in any case: the client must learn that it is over.
        """
        is_needed = (
            answer.size > 0
            or answer.error != NONE
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica >= 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )
        self.high_watermark = -1 if answer.error else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_needed


class BrokerFetchSession:
    """One session; ``epoch`` is that of the next request."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "is_privileged",
        "partitions",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        id: int,
        partitions: dict[PartitionId, SessionPartition],
        now_ms: float,
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
    ) -> None:
        self.id = id
        self.partitions = partitions
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms
        self.epoch = session_epoch_after(INITIAL_SESSION_EPOCH)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The order of eviction: consumers' sessions first, then those of few partitions."""
        return self.is_privileged, len(self.partitions), self.id

    def update(self, changed: Iterable[FetchPartition], forgotten: Iterable[PartitionId]) -> None:
        for fetch in changed:
            known = self.partitions.get(fetch.id)
            if known is None:
                self.partitions[fetch.id] = SessionPartition(fetch)
            else:
                known.fetch = fetch
        for id in forgotten:
            self.partitions.pop(id, None)


class SessionContext(ABC):
    """What one Fetch request reads, and how it is answered."""

    __slots__ = ()

    #: The error of the whole request; then it reads nothing.
    error = NONE

    @property
    @abstractmethod
    def partitions(self) -> Sequence[FetchPartition]:
        """The partitions to read, in this order."""

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

    __slots__ = ("_cache", "_request")

    def __init__(self, cache: FetchSessionCache, request: BrokerFetchRequest) -> None:
        self._cache = cache
        self._request = request

    @property
    def partitions(self) -> Sequence[FetchPartition]:
        return self._request.partitions

    def respond(self, answers: Sequence[FetchedPartition], now_ms: float) -> BrokerFetchResponse:
        session = self._cache.create(self._request, answers, now_ms)
        return BrokerFetchResponse(NONE, NO_SESSION if session is None else session.id, answers)


class IncrementalFetch(SessionContext):
    """A request within a session."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: BrokerFetchSession) -> None:
        self._session = session
        self._epoch = session.epoch

    @property
    def partitions(self) -> Sequence[FetchPartition]:
        return [known.fetch for known in self._session.partitions.values()]

    def respond(self, answers: Sequence[FetchedPartition], now_ms: float) -> BrokerFetchResponse:
        """Answer with the partitions that changed; those with data go to the session's end.

        So a response of limited size serves others first next time.
        """
        session = self._session
        if session.epoch != self._epoch:
            # The client has sent its next request already: it does not wait for this response.
            return BrokerFetchResponse(INVALID_FETCH_SESSION_EPOCH, session.id, ())
        needed = []
        for answer in answers:
            known = session.partitions.get(answer.id)
            if known is not None and known.note(answer):
                needed.append(answer)
                if answer.size:
                    del session.partitions[answer.id]
                    session.partitions[answer.id] = known
        return BrokerFetchResponse(NONE, session.id, needed)


class FetchSessionCache:
    """The sessions of a broker, at most ``max_sessions``.

    ``new_id`` returns a random int32 above 0; an id in use is drawn again.
    """

    def __init__(
        self,
        new_id: Callable[[], int],
        max_sessions: int = DEFAULT_MAX_SESSIONS,
        eviction_ms: float = EVICTION_MS,
    ) -> None:
        self._new_id = new_id
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

    def begin(self, request: BrokerFetchRequest, now_ms: float) -> SessionContext:
        """Return the context of a request; a full request ends the session that it names."""
        if request.session_epoch in (INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_SESSION_EPOCH:
                return Sessionless(request.partitions)
            return FullFetch(self, request)
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionError(FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return SessionError(INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != request.uses_topic_ids:
            return SessionError(FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request.partitions, request.forgotten)
        if not session.partitions:
            del self._sessions[session.id]
            return Sessionless(request.partitions)
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        session.epoch = session_epoch_after(session.epoch)
        return IncrementalFetch(session)

    def create(
        self, request: BrokerFetchRequest, answers: Sequence[FetchedPartition], now_ms: float
    ) -> BrokerFetchSession | None:
        """Create the session of a full request; None if there is no room for it."""
        is_privileged = request.is_from_follower
        if len(self._sessions) >= self._max_sessions and not self._evict(
            is_privileged, len(answers), now_ms
        ):
            return None
        fetches = {fetch.id: fetch for fetch in request.partitions}
        partitions = {}
        for answer in answers:
            partitions[answer.id] = known = SessionPartition(fetches[answer.id])
            known.note(answer)
        id = self._new_id()
        while id == NO_SESSION or id in self._sessions:
            id = self._new_id()
        session = self._sessions[id] = BrokerFetchSession(
            id,
            partitions,
            now_ms,
            is_privileged=is_privileged,
            uses_topic_ids=request.uses_topic_ids,
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
        del sessions[chosen.id]
        self.eviction_count += 1
        return True
