"""The fetches with which a consumer will probably go on, and their answers.

A consumer that reads old records asks again and again, each time from the end of the last response
on. Once it has done so, its connection can answer the next fetches by itself
(``kraft.network.answers_ahead``): the broker's Python code, whose caches are cold after each MiB
that is sent, then runs once for many fetches, and beside them. With the hand-over it took 190 of
480 us for 1 MiB.

An answer ahead is the one that `FetchApi` would give at that moment, and is withdrawn by the next
change of one of its partitions. So only fetches are foreseen that change nothing: of consumers,
outside of sessions, with enough records to be answered at once, from partitions that this broker
leads. With an authorizer each request is checked, and logged, when it comes; a consumer in a rack
may be sent to another replica. Used by ``fetch``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kraft._core.bytes.file_slice import FileSlice
from kraft.broker.replication.broker_fetches import BrokerFetches
from kraft.broker.replication.messages import (
    FINAL_SESSION_EPOCH,
    NO_SESSION,
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


class FetchesAhead(AnswersAhead):
    """The fetches after one that was answered; ``encode`` writes the body of a response."""

    def __init__(
        self,
        fetches: BrokerFetches,
        body: Body,
        data: FetchRequestData,
        version: int,
        request: BrokerFetchRequest,
        fetched: BrokerFetchResponse,
        encode: Encode,
    ) -> None:
        self._fetches = fetches
        self._body = body
        self._data = data
        self._asked = [each for topic in data.topics for each in topic.partitions]
        self._version = version
        self._request = request
        #: The last of the fetches and their answers; None if those after it are not known.
        self._last: tuple[Sequence[FetchPartition], Sequence[FetchedPartition]] | None = (
            *(request.partitions, fetched.partitions),
        )
        self._encode = encode
        self._ids = [fetch.id for fetch in request.partitions]
        self._withdraw: Callable[[], None] = lambda: None
        #: The answers that were not given yet.
        self._left: deque[Sequence[FetchedPartition]] = deque()
        #: Of a response with one partition: what surrounds so many bytes of records.
        self._around: dict[int, tuple[Piece, Piece]] = {}

    def begin(self, most: int, withdraw: Callable[[], None]) -> Sequence[ExpectedRequest]:
        # A client that writes defaults, or tags of its own, is not foreseen.
        if self._data.encode(self._version) != self._body or len(set(self._ids)) < len(self._ids):
            return ()
        found = self.more(most)
        if found:
            self._withdraw = withdraw
            self._fetches.ahead.watch(self._ids, withdraw)
        return found

    def more(self, most: int) -> Sequence[ExpectedRequest]:
        found: list[ExpectedRequest] = []
        while len(found) < most and self._last is not None:
            fetches = _following(*self._last)
            answers = None if fetches is None else self._fetches.read_ahead(self._request, fetches)
            if fetches is None or answers is None:
                self._last = None
                break
            for each, fetch in zip(self._asked, fetches, strict=True):
                each.fetch_offset = fetch.fetch_offset
            body = self._data.encode(self._version)
            found.append(ExpectedRequest(body, self._encoded(answers)))
            self._left.append(answers)
            self._last = fetches, answers
        return found

    def _encoded(self, answers: Sequence[FetchedPartition]) -> Sequence[Piece]:
        """Return the body of a response; within a run only records and their size differ."""
        records = answers[0].records
        if len(answers) > 1 or not isinstance(records, FileSlice):
            return self._encode(BrokerFetchResponse(NONE, NO_SESSION, answers))
        around = self._around.get(records.size)
        if around is None:
            start, _, end = self._encode(BrokerFetchResponse(NONE, NO_SESSION, answers))
            around = self._around[records.size] = start, end
        return around[0], records, around[1]

    def answered(self, count: int) -> None:
        for _ in range(count):
            self._fetches.note_read_ahead(self._left.popleft())

    def end(self) -> None:
        self._fetches.ahead.forget(self._ids, self._withdraw)


def may_go_on(request: BrokerFetchRequest, fetched: BrokerFetchResponse) -> bool:
    """Return whether the fetches after a request can be foreseen."""
    return (
        not request.is_from_follower
        and request.session_id == NO_SESSION
        and request.session_epoch == FINAL_SESSION_EPOCH
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
    for fetch, answer in zip(fetches, answers, strict=True):
        offset: int | None = fetch.fetch_offset
        if answer.records is not None:
            offset = _end_of(answer)
        if offset is None:
            return None
        id, _, *rest = fetch
        following.append(FetchPartition(id, offset, *rest))
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
