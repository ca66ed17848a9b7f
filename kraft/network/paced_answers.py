"""Send answers with parts of the log to observers, a bounded number of bytes in a turn of the loop.

A thousand brokers that fetch the same new records get a thousand copies. An event loop that wrote
all copies in one turn would do nothing else for 100 ms and longer: no heartbeat, no fetch of a
voter, no decision of the controller. `PacedAnswers` therefore queues these answers, in their order,
and begins as many as `TURN_BYTES` allow in a turn.

Invariants:

- A connection has at most one answer in the queue, so that each peer gets its turn.
- At most `UNREAD_BYTES`, and the last answer, are begun and not taken by their peers. A peer that
  reads slowly counts for `SLOW_S`: it delays the others no longer.
- Answers that wait are begun in every turn otherwise: other work does not stop them.

Answers to voters, to heartbeats and to clients never wait here. Created by `listener`; called by
`server_connection` on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from kraft.network.framing import Buffer

#: Bytes that a turn of the loop begins to send: one to two milliseconds of copying, less than the
#: turn of the controller.
TURN_BYTES = 2 << 20
#: What an answer counts beside its bytes: a thousand small ones, a change for a thousand brokers,
#: are begun in one turn.
ANSWER_BYTES = 2 << 10
#: Bytes of answers that peers have not taken. A turn may have to write all of them: 40 ms.
UNREAD_BYTES = 64 << 20
#: How long an answer that its peer does not take counts, in seconds.
SLOW_S = 0.05


class PacedConnection(Protocol):
    """What `PacedAnswers` does with a connection: `ServerConnection`."""

    @property
    def is_writing(self) -> bool: ...
    def answer_paced(self, pieces: Sequence[Buffer]) -> None: ...


class PacedAnswers:
    """The queue of one listener."""

    def __init__(self) -> None:
        self._queue: deque[tuple[PacedConnection, Sequence[Buffer]]] = deque()
        #: Answers that their peers have not taken: the size, and since when; the oldest first.
        self._unread: dict[PacedConnection, tuple[int, float]] = {}
        self._unread_bytes = 0
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def send(self, connection: PacedConnection, pieces: Sequence[Buffer]) -> None:
        """Send an answer in the next turn of the loop, or in a later one."""
        self._queue.append((connection, pieces))
        if self._timer is None:
            self._release_soon()

    def taken(self, connection: PacedConnection) -> None:
        """Note that a peer has taken its answer, or that its connection is closed."""
        if self._forget(connection) and self._queue:
            self._release_soon()

    def close(self) -> None:
        """Drop the queued answers."""
        self._queue.clear()
        self._cancel_timer()

    def _forget(self, connection: PacedConnection) -> bool:
        size, _ = self._unread.pop(connection, (0, 0.0))
        self._unread_bytes -= size
        return size > 0

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        """Begin to send the answers that have room in this turn."""
        self._is_due = False
        self._cancel_timer()
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._forget_slow(now)
        room = TURN_BYTES
        while self._queue and room > 0 and self._unread_bytes < UNREAD_BYTES:
            connection, pieces = self._queue.popleft()
            size = sum(map(len, pieces)) + ANSWER_BYTES
            room -= size
            connection.answer_paced(pieces)
            if connection.is_writing:
                self._unread[connection] = (size, now)
                self._unread_bytes += size
        if not self._queue:
            return
        if room <= 0:
            self._release_soon()
        else:
            # Without an answer that may begin, a turn at once would be one of many: they would take
            # the processor from the peers that have to read.
            oldest_s = next(iter(self._unread.values()))[1]
            self._timer = loop.call_at(oldest_s + SLOW_S, self._release)

    def _forget_slow(self, now: float) -> None:
        """Count the answers no longer that wait for slow peers."""
        while self._unread:
            connection, (_, since_s) = next(iter(self._unread.items()))
            if now - since_s < SLOW_S:
                return
            self._forget(connection)
