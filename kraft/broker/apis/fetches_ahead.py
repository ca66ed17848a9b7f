"""The fetches with which a consumer will probably go on, and their answers.

A consumer that reads old records asks again and again, each time from the end of the last response
on. Once it has done so, its connection can answer the next fetches by itself
(``kraft.network.answers_ahead``): the broker's Python code, whose caches are cold after each MiB
that is sent, then runs once for many fetches, and beside them. With the hand-over it took 190 of
480 us for 1 MiB.

An answer ahead is the one that `FetchApi` would give at that moment, and is withdrawn by the next
change of one of its partitions, or of another one of its session. So only fetches are foreseen that
change nothing but a session: of consumers, with enough records to be answered at once, from
partitions that this broker leads. A session learns of its given answers before anyone looks at it.
With an authorizer each request is checked, and logged, when it comes; a consumer in a rack
may be sent to another replica. Used by ``fetch``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kraft._core.bytes.file_slice import FileSlice
from kraft.broker.replication.broker_fetches import BrokerFetches
from kraft.broker.replication.fetch_sessions import BrokerFetchSession, session_epoch_after
from kraft.broker.replication.messages import (
    FINAL_SESSION_EPOCH,
    INITIAL_SESSION_EPOCH,
    BrokerFetchRequest,
    BrokerFetchResponse,
    FetchedPartition,
    FetchPartition,
)
from kraft.errors import NONE, StorageError
from kraft.network.handler import AnswersAhead, ExpectedRequest
from kraft.protocol.fetch import FetchRequestData
from kraft.protocol.headers import Body

Piece = bytes | memoryview | FileSlice
Encode = Callable[[BrokerFetchResponse], Sequence[Piece]]

#: The bytes with which a batch begins: its first offset, int64.
_OFFSET_SIZE = 8


class _Foreseen(NamedTuple):
    """A request, as far as it differs from the first one, and its answers in the same order."""

    session_epoch: int
    fetches: Sequence[FetchPartition]
    answers: Sequence[FetchedPartition]


class FetchesAhead(AnswersAhead):
    """The fetches after one that was answered; ``encode`` writes the body of a response.

    ``now_ms`` returns the broker's time.
    """

    def __init__(
        self,
        fetches: BrokerFetches,
        now_ms: Callable[[], float],
        body: Body,
        data: FetchRequestData,
        version: int,
        request: BrokerFetchRequest,
        fetched: BrokerFetchResponse,
        encode: Encode,
    ) -> None:
        self._fetches = fetches
        self._now_ms = now_ms
        self._body = body
        self._data = data
        self._version = version
        self._request = request
        self._fetched = fetched
        asked = (each for topic in data.topics for each in topic.partitions)
        self._asked = {
            fetch.id: each for fetch, each in zip(request.partitions, asked, strict=True)
        }
        #: The last fetches and answers; None if those after it are not known.
        self._last: _Foreseen | None = None
        self._session: BrokerFetchSession | None = None
        self._encode = encode
        #: The partitions whose changes end the answers.
        self._ids = list(self._asked)
        self._withdraw: Callable[[], None] = lambda: None
        #: The answers that were not given yet.
        self._left: deque[_Foreseen] = deque()
        #: Of a response with one partition: what surrounds so many bytes of records.
        self._around: dict[int, tuple[Piece, Piece]] = {}

    def begin(self, most: int, withdraw: Callable[[], None]) -> Sequence[ExpectedRequest]:
        request = self._request
        if (
            len(self._asked) < len(request.partitions)
            # A client that writes defaults, or tags of its own, is not foreseen.
            or self._data.encode(self._version) != self._body
        ):
            return ()
        if request.session_epoch != FINAL_SESSION_EPOCH:
            self._session = self._fetches.sessions.foreseen(request, self._fetched.partitions)
            if self._session is None:
                return ()
            self._ids = list(self._session.partitions)
        fetches = {fetch.id: fetch for fetch in request.partitions}
        answers = self._fetched.partitions
        # A session reads its partitions in the order in which it answered them.
        self._last = _Foreseen(
            request.session_epoch, [fetches[answer.id] for answer in answers], answers
        )
        found = self.more(most)
        if found:
            self._withdraw = withdraw
            self._fetches.ahead.watch(self._ids, withdraw)
            if self._session is not None:
                self._session.withdraw = withdraw
        return found

    def more(self, most: int) -> Sequence[ExpectedRequest]:
        found: list[ExpectedRequest] = []
        while len(found) < most and self._last is not None:
            epoch = session_epoch_after(self._last.session_epoch)
            fetches = _following(self._last.fetches, self._last.answers)
            answers = None if fetches is None else self._fetches.read_ahead(self._request, fetches)
            if fetches is None or answers is None or not self._goes_on(answers):
                self._last = None
                break
            for fetch in fetches:
                self._asked[fetch.id].fetch_offset = fetch.fetch_offset
            self._data.session_epoch = epoch
            found.append(ExpectedRequest(self._data.encode(self._version), self._encoded(answers)))
            self._last = _Foreseen(epoch, fetches, answers)
            self._left.append(self._last)
        return found

    def _goes_on(self, answers: Sequence[FetchedPartition]) -> bool:
        """Return whether a session answers all its unread partitions, so that none is settled."""
        return self._session is None or all(answer.records is not None for answer in answers)

    def _encoded(self, answers: Sequence[FetchedPartition]) -> Sequence[Piece]:
        """Return the body of a response; within a run only records and their size differ."""
        records = answers[0].records
        if len(answers) > 1 or not isinstance(records, FileSlice):
            return self._encode(self._response(answers))
        around = self._around.get(records.size)
        if around is None:
            start, _, end = self._encode(self._response(answers))
            around = self._around[records.size] = start, end
        return around[0], records, around[1]

    def _response(self, answers: Sequence[FetchedPartition]) -> BrokerFetchResponse:
        return BrokerFetchResponse(NONE, self._request.session_id, answers)

    def answered(self, count: int) -> None:
        for _ in range(count):
            last = self._left.popleft()
            self._fetches.note_read_ahead(last.answers)
        if self._session is not None:
            epoch, fetches, answers = last
            request = self._request._replace(partitions=fetches, session_epoch=epoch)
            sessions = self._fetches.sessions
            sessions.went_on(self._session, request, answers, self._now_ms())

    def end(self) -> None:
        self._fetches.ahead.forget(self._ids, self._withdraw)
        if self._session is not None:
            self._session.withdraw = None


def may_go_on(request: BrokerFetchRequest, fetched: BrokerFetchResponse) -> bool:
    """Return whether the fetches after a request can be foreseen."""
    return (
        not request.is_from_follower
        and request.session_epoch != INITIAL_SESSION_EPOCH
        and not request.rack_id
        and request.error_of is None
        and not fetched.error
        and any(each.records is not None for each in fetched.partitions)
        and not any(each.error for each in fetched.partitions)
    )


def _following(
    fetches: Sequence[FetchPartition], answers: Sequence[FetchedPartition]
) -> list[FetchPartition] | None:
    """Return the fetches after those with these answers, None if they are not known."""
    following = []
    for (id, offset, *rest), answer in zip(fetches, answers, strict=True):
        end: int | None = offset
        if answer.records is not None:
            end = _end_of(answer)
        if end is None:
            return None
        following.append(FetchPartition(id, end, *rest))
    return following


def _end_of(answer: FetchedPartition) -> int | None:
    """Return the offset with which the batch after those of an answer begins.

    None at the end of a segment, and of the records that consumers may read. Behind a gap that
    compaction left the client asks for an earlier offset: then it is not the request foreseen.
    """
    records = answer.records
    if not isinstance(records, FileSlice):
        return None
    try:
        start = records.file.read_at(records.position + records.size, _OFFSET_SIZE)
    except StorageError:
        return None
    offset = int.from_bytes(start, "big", signed=True)
    return offset if len(start) == _OFFSET_SIZE and 0 < offset < answer.high_watermark else None
