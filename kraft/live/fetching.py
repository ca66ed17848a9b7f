"""``Fetching``: the thread that fetches for a ``LiveMetadata``.

The thread owns the client and the observer. It puts what it received into a queue, from which
`take` hands it to the thread of the user; only these two meet, under one lock. It never changes a
state that the user sees: it loads a snapshot into a new state.

It sends one request at a time. Beyond ``MAX_QUEUED_BYTES`` that nobody took, it stops fetching
until they are taken. It survives the loss of every controller: it tries again, and `trouble` has
the reason. An error that does not pass (another cluster, damaged records) ends it, and `take`
raises it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from kraft.errors import KraftError, UnsupportedVersionError
from kraft.live.stable_batches import StableBatches
from kraft.metadata.quorum_observer import (
    Asking,
    CommittedBatches,
    LoadedSnapshot,
    OnProgress,
    Piece,
    QuorumObserver,
)
from kraft.metadata.quorum_reader import run_requests
from kraft.network.quorum_client import QuorumClient, QuorumRefusedError, QuorumUnreachableError

R = TypeVar("R")

MAX_QUEUED_BYTES = 64 << 20
#: How long the leader keeps a fetch waiting that finds nothing, in ms.
_MAX_WAIT_MS = 500
#: The bytes of one fetch once the first state is there: a few milliseconds to apply.
_FOLLOWING_BYTES = 1 << 20
_RETRY_S = 0.5
#: How long `close` waits for the thread. It ends at once, except while it connects to a controller
#: that does not answer.
_CLOSE_S = 1.0


class Fetching:
    """A thread that observes a quorum until it is closed. The client is closed with it."""

    def __init__(
        self,
        client: QuorumClient,
        cluster_id: str | None,
        on_progress: OnProgress,
    ) -> None:
        self._client = client
        self._observer = QuorumObserver(cluster_id, on_progress)
        self._stable = StableBatches()
        self._lock = threading.RLock()
        #: Waited for by the thread that fetches alone. Ctrl-C in the wait of a threading.Condition,
        #: or while its lock is taken, would lose the lock and raise another error.
        self._changed = threading.Condition(self._lock)
        #: Has an item after each change; the user's thread waits for it without the lock.
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._queue: deque[Piece] = deque()
        self._queued_bytes = 0
        self._on_arrival: list[Callable[[], object]] = []
        self._is_closed = False
        self._error: Exception | None = None
        #: Whether everything is in the queue that was committed when the thread began.
        self._has_first_state = False
        #: Why the quorum does not answer at present; "" while it answers.
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name="kraft-follow", daemon=True)
        self._thread.start()

    @property
    def high_watermark(self) -> int:
        """The highest that a leader reported; -1 before it reported one."""
        return self._observer.high_watermark

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """End the thread, and the request in progress."""
        with self._lock:
            self._is_closed = True
            self._notify()
        self._client.abort()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)

    # -- the user's thread

    def wait_for_first_state(self) -> bool:
        """Wait until there is something to take; return whether it completes the first state.

        Raises the error that ended the thread, and QuorumUnreachableError for a quorum that does
        not answer.
        """
        while True:
            with self._lock:
                if self._queue or self._has_first_state:
                    return self._has_first_state
                if self._error is not None:
                    raise self._error
                if self.trouble or self._is_closed:
                    raise QuorumUnreachableError(self.trouble or "the follower was closed")
            self._wakes.get()

    def take(self, timeout_s: float, max_bytes: int | None) -> list[Piece]:
        """Return what has arrived, oldest first; wait up to ``timeout_s`` if nothing has.

        ``max_bytes``: at least one piece, and no more than this many bytes in several. Raises the
        error that ended the thread once all pieces are taken.
        """
        end = time.monotonic() + timeout_s
        while (left_s := end - time.monotonic()) > 0:
            with self._lock:
                if self._queue or self._error or self._is_closed:
                    break
            with suppress(Empty):
                self._wakes.get(timeout=left_s)
        with self._lock:
            taken: list[Piece] = []
            size = 0
            while self._queue:
                size += _size_of(self._queue[0])
                if taken and max_bytes is not None and size > max_bytes:
                    break
                taken.append(self._queue.popleft())
                self._queued_bytes -= _size_of(taken[-1])
            if not taken and self._error is not None:
                raise self._error
            self._changed.notify_all()
            return taken

    def call_on_arrival(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once, in any thread, when there is something to take, or at the end."""
        with self._lock:
            if self._queue or self._error is not None or self._is_closed:
                callback()
            else:
                self._on_arrival.append(callback)

    # -- the thread

    def _run(self) -> None:
        try:
            self._begin()
            while not self._is_closed:
                self._fetch()
        except Exception as error:
            with self._lock:
                if not self._is_closed:
                    self._error = error
        finally:
            with self._lock:
                self._notify()
            self._client.close()

    def _begin(self) -> None:
        """Read all that is committed now."""
        observer = self._observer
        target = -1
        while not self._is_closed and (target < 0 or observer.next_offset < target):
            if target < 0:
                self._ask(observer.describe())
                target = observer.high_watermark
                if target < 0:
                    # A leader that has committed nothing in its epoch yet.
                    self._pause(_RETRY_S)
            else:
                self._put(self._ask(observer.next_piece(_MAX_WAIT_MS)))
        with self._lock:
            self._has_first_state = True
            self._notify()
        observer.fetch_bytes = _FOLLOWING_BYTES

    def _fetch(self) -> None:
        with self._lock:
            self._changed.wait_for(lambda: self._queued_bytes < MAX_QUEUED_BYTES or self._is_closed)
        if not self._is_closed:
            self._put(self._ask(self._observer.next_piece(_MAX_WAIT_MS)))

    def _ask(self, asking: Asking[R]) -> R | None:
        """Return what the requests return; None where the quorum does not answer."""
        try:
            result = run_requests(self._client, asking, self._pause)
        except QuorumUnreachableError as error:
            with self._lock:
                self.trouble = str(error)
                self._notify()
            self._pause(_RETRY_S)
            return None
        self.trouble = ""
        return result

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._lock:
            self._changed.wait_for(lambda: self._is_closed, max(end - time.monotonic(), 0))

    def _put(self, piece: Piece | None) -> None:
        if isinstance(piece, CommittedBatches):
            batches = self._stable.add(piece.batches)
            piece = None if batches is None else CommittedBatches(batches)
        elif piece is not None:
            self._stable.drop()
        if piece is None:
            return
        with self._lock:
            if isinstance(piece, LoadedSnapshot):
                # It replaces what nobody has taken.
                self._queue.clear()
                self._queued_bytes = 0
            self._queue.append(piece)
            self._queued_bytes += _size_of(piece)
            self._notify()

    def _notify(self) -> None:
        """Wake all that wait; called with the lock."""
        self._changed.notify_all()
        if self._wakes.empty():
            self._wakes.put(None)
        callbacks, self._on_arrival = self._on_arrival, []
        for callback in callbacks:
            callback()


def _size_of(piece: Piece) -> int:
    return 0 if isinstance(piece, LoadedSnapshot) else len(piece.batches)


def cluster_id_of(client: QuorumClient, expected: str | None) -> str | None:
    """Return the id of the client's cluster, None where the client may not ask or it is not served.

    Raises QuorumUnreachableError, and KraftError for another cluster than ``expected``.
    """
    try:
        found = client.describe_cluster().cluster_id
    except (QuorumRefusedError, UnsupportedVersionError):
        return expected
    if expected is not None and found != expected:
        raise KraftError(
            f"the controllers are of cluster {found}, not of {expected}: give the addresses of "
            "that cluster's controllers, or its cluster id"
        )
    return found
