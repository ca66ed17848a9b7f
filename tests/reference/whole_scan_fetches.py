"""Slow twin of `kraft.broker.replication.broker_fetches`: each fetch reads its whole session.

`WholeScanFetches` takes the place of a manager's `BrokerFetches`. It keeps no account of changes:
what a fetch answers follows from the partitions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kraft.broker.replication.broker_fetches import BrokerFetches
from kraft.broker.replication.fetch_sessions import session_epoch_after
from kraft.broker.replication.messages import (
    BrokerFetchRequest,
    BrokerFetchResponse,
    FetchedPartition,
    FetchPartition,
    PartitionId,
)
from kraft.broker.replication.waiting import WaitingOperation
from kraft.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)

Answer = Callable[[BrokerFetchResponse], None]


class ScannedSession:
    """A session: what the client asked of each partition, and its last watermarks."""

    def __init__(self, id: int, request: BrokerFetchRequest, now_ms: float) -> None:
        self.id = id
        self.is_follower = request.is_from_follower
        self.uses_topic_ids = request.uses_topic_ids
        self.fetches = {fetch.id: fetch for fetch in request.partitions}
        self.known: dict[PartitionId, tuple[int, int]] = {}
        self.created_ms = self.used_ms = now_ms
        self.epoch = 1

    def note(self, answer: FetchedPartition) -> bool:
        known = answer.high_watermark, answer.log_start_offset
        is_needed = (
            answer.size > 0
            or answer.error != 0
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica >= 0
            or known != self.known.get(answer.id, (-1, -1))
        )
        is_unknown = answer.error or answer.diverging_epoch is not None
        self.known[answer.id] = (-1 if is_unknown else answer.high_watermark), known[1]
        return is_needed


class WaitingScan(WaitingOperation):
    """A fetch that waits: each change of any of its partitions reads that one again."""

    def __init__(
        self,
        owner: WholeScanFetches,
        request: BrokerFetchRequest,
        fetches: Sequence[FetchPartition],
        answers: Sequence[FetchedPartition],
        deadline_ms: float,
        respond: Callable[[Sequence[FetchedPartition], float], None],
    ) -> None:
        self.fetches = {fetch.id: fetch for fetch in fetches}
        super().__init__(self.fetches, deadline_ms)
        self.sizes = {answer.id: answer.size for answer in answers}
        self.owner, self.request, self.respond = owner, request, respond

    def is_satisfied(self, changed: PartitionId) -> bool:
        now = self.owner.read_again(self.request, self.fetches[changed])
        self.sizes[changed] = now.size
        return (
            bool(now.error)
            or now.diverging_epoch is not None
            or sum(self.sizes.values()) >= self.request.min_bytes
        )

    def end(self, now_ms: float) -> None:
        self.respond(self.owner._read(self.request, list(self.fetches.values()), None), now_ms)


class WholeScanFetches(BrokerFetches):
    """Fetches whose sessions read every partition."""

    def __init__(
        self,
        replicas: Any,
        partitions: Mapping[PartitionId, Any],
        context: Any,
        settings: Any,
        new_session_id: Callable[[], int],
    ) -> None:
        super().__init__(replicas, partitions, context, settings, new_session_id)
        self._new_id = new_session_id
        self._most = settings.max_fetch_sessions
        self.scanned: dict[int, ScannedSession] = {}

    def settle_no_more(self, id: PartitionId) -> None:
        pass

    def start_offsets_changed(self, now_ms: float) -> None:
        pass

    def changed(self, id: PartitionId, now_ms: float) -> None:
        self.waiting.changed(id, now_ms)

    def fetch(self, request: BrokerFetchRequest, now_ms: float, answer: Answer) -> bool:
        session, error = self._session(request, now_ms)
        if error:
            answer(BrokerFetchResponse(error, 0, ()))
            return False
        fetches = list(session.fetches.values()) if session else list(request.partitions)
        epoch = session.epoch if session else 0
        begins = request.session_epoch == 0

        def respond(answers: Sequence[FetchedPartition], now_ms: float) -> None:
            if begins:
                answer(self._begun(request, answers, now_ms))
            elif session is None:
                answer(BrokerFetchResponse(0, 0, answers))
            else:
                answer(_within(session, epoch, answers))

        answers = self._read(request, fetches, now_ms)
        if (
            request.max_wait_ms <= 0
            or not answers
            or sum(each.size for each in answers) >= request.min_bytes
            or any(
                each.error or each.diverging_epoch is not None or each.preferred_read_replica >= 0
                for each in answers
            )
        ):
            respond(answers, now_ms)
            return False
        deadline_ms = now_ms + request.max_wait_ms
        self.waiting.add(WaitingScan(self, request, fetches, answers, deadline_ms, respond))
        return True

    def _session(
        self, request: BrokerFetchRequest, now_ms: float
    ) -> tuple[ScannedSession | None, int]:
        """Return the session of a request, None without one, and the request's error."""
        if request.session_epoch in (0, -1):
            self.scanned.pop(request.session_id, None)
            return None, 0
        session = self.scanned.get(request.session_id)
        if session is None:
            return None, FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return None, INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != request.uses_topic_ids:
            return None, FETCH_SESSION_TOPIC_ID_ERROR
        for fetch in request.partitions:
            session.fetches[fetch.id] = fetch
        for id in request.forgotten:
            session.fetches.pop(id, None)
            session.known.pop(id, None)
        if not session.fetches:
            del self.scanned[session.id]
            return None, 0
        session.used_ms = now_ms
        session.epoch = session_epoch_after(session.epoch)
        self.scanned[session.id] = self.scanned.pop(session.id)
        return session, 0

    def _begun(
        self, request: BrokerFetchRequest, answers: Sequence[FetchedPartition], now_ms: float
    ) -> BrokerFetchResponse:
        if len(self.scanned) >= self._most and not self._evicted(request, len(answers), now_ms):
            return BrokerFetchResponse(0, 0, answers)
        id = self._new_id()
        session = self.scanned[id] = ScannedSession(id, request, now_ms)
        for each in answers:
            session.note(each)
        return BrokerFetchResponse(0, id, answers)

    def _evicted(self, request: BrokerFetchRequest, size: int, now_ms: float) -> bool:
        sessions = list(self.scanned.values())
        if not sessions:
            return False
        chosen = sessions[0]
        if now_ms - chosen.used_ms <= self.sessions._eviction_ms:
            is_follower = request.is_from_follower
            old = [
                each
                for each in sessions
                if now_ms - each.created_ms > self.sessions._eviction_ms
                or (is_follower and not each.is_follower)
            ]
            if not old:
                return False
            chosen = min(old, key=_rank)
            if (is_follower, size, 0) < _rank(chosen):
                return False
        del self.scanned[chosen.id]
        return True


def _rank(session: ScannedSession) -> tuple[bool, int, int]:
    return session.is_follower, len(session.fetches), session.id


def _within(
    session: ScannedSession, epoch: int, answers: Sequence[FetchedPartition]
) -> BrokerFetchResponse:
    """Answer within a session: what changed; partitions with records go to its end."""
    if session.epoch != epoch:
        return BrokerFetchResponse(INVALID_FETCH_SESSION_EPOCH, session.id, ())
    needed = []
    for answer in answers:
        if answer.id in session.fetches and session.note(answer):
            needed.append(answer)
            if answer.size:
                session.fetches[answer.id] = session.fetches.pop(answer.id)
    return BrokerFetchResponse(0, session.id, needed)
