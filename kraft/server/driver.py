"""What joins the state machine with network and disk: one event in, one ``Ready`` carried out.

Owns the order in which a ``Ready`` is carried out, the clock, the timer, and those who wait for
their records to be committed. Everything runs on one event loop; only the writer is elsewhere.

    transport ─▶ deliver ─▶ node.step ─▶ writer, transport, on_committed, on_role
    writer ────▶ deliver        └──────▶ the timer of ``wake_at_ms``

Invariants: events are stepped one after the other, also those that a callback brings forth; time
never goes back; a future of `append` is resolved once, when its records are committed or when that
can no longer be said.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kraft.errors import (
    KraftError,
    NotControllerError,
    RecordTooLargeError,
    ThrottlingQuotaExceededError,
)
from kraft.raft.accumulator import is_control
from kraft.raft.messages import OffsetAndEpoch, Request, Response
from kraft.raft.node import Node
from kraft.raft.ready import (
    Append,
    AppendBatches,
    Appended,
    Event,
    Ready,
    RequestReceived,
    Role,
    RoleChange,
    Send,
    SendResponse,
    Shutdown,
    SnapshotsCleaned,
    SnapshotStored,
    Write,
)
from kraft.server.disk.store import MetadataStore

_REFUSALS: dict[int, type[KraftError]] = {
    error.kafka_code: error for error in (RecordTooLargeError, ThrottlingQuotaExceededError)
}


class Writer(Protocol):
    """Where writes go; ``writer.WriterThread``."""

    def submit(
        self, writes: list[Write], sequence: int, /, *, is_awaited: bool = False
    ) -> None: ...
    def run(self, work: Callable[[], Event], /) -> None: ...


class Driver:
    """See the module's docstring.

    ``send`` is the transport's. ``on_committed`` hears the high watermark each time it rises,
    ``on_role`` each change of role, epoch or leader, ``on_control_batch`` what the raft layer
    itself writes while it leads, ``on_snapshot`` that a leader's snapshot took the place of the
    log; all may call `append` and `deliver`.
    ``on_failure`` hears of a step that broke off: nothing of the node can be trusted any more, and
    it should not return.
    """

    def __init__(
        self,
        node: Node,
        store: MetadataStore,
        writer: Writer,
        send: Callable[[Send], None],
        *,
        on_committed: Callable[[int], None] = lambda high_watermark: None,
        on_role: Callable[[RoleChange], None] = lambda change: None,
        on_control_batch: Callable[[int, memoryview], None] = lambda base_offset, batch: None,
        on_snapshot: Callable[[OffsetAndEpoch], None] = lambda id: None,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self.node = node
        self.store = store
        self._writer = writer
        self._send = send
        self._on_committed = on_committed
        self._on_role = on_role
        self._on_control_batch = on_control_batch
        self._on_snapshot = on_snapshot
        self._on_failure = on_failure
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._last_token = 0
        #: Appends that are not answered yet, and accepted ones by the offset that must be
        #: committed.
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._accepted: deque[tuple[int, asyncio.Future[int]]] = deque()
        #: Requests of this process, under negative numbers.
        self._own_requests: dict[int, asyncio.Future[Response]] = {}
        self._last_own = 0
        self._leader_epoch = -1
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = float("inf")
        self._wake_at_ms = float("inf")
        self._stopped: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Steps the node for the first time, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.deliver(None)

    # -- a step

    def deliver(self, event: Event) -> None:
        """Steps the node with an event, and whatever that brings forth."""
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                event = self._events.popleft()
                self._carry_out(self.node.step(event, now_ms()))
                if type(event) is SnapshotStored and event.is_installed:
                    self._on_snapshot(event.snapshot_id)
        except Exception as error:
            self._on_failure(error)
            raise
        finally:
            self._is_stepping = False
        self._set_timer()

    def _carry_out(self, ready: Ready) -> None:
        if ready.to_write:
            # A follower fetches on once it has synced, and has nothing else to do meanwhile.
            is_awaited = self.node.role is Role.FOLLOWER
            self._writer.submit(ready.to_write, ready.write_sequence, is_awaited=is_awaited)
            if self.node.role is Role.LEADER:
                self._tell_control_batches(ready.to_write)
        for send in ready.to_send:
            if type(send) is SendResponse and send.reply_to in self._own_requests:
                asked = self._own_requests.pop(send.reply_to)
                if not asked.done():
                    asked.set_result(send.response)
            else:
                self._send(send)
        for appended in ready.appended:
            self._answer(appended)
        if ready.committed is not None:
            self._resolve_committed(ready.committed)
            self._on_committed(ready.committed)
        if ready.role_change is not None:
            self._change_role(ready.role_change)
        self._wake_at_ms = ready.wake_at_ms
        if ready.is_shut_down and self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    def _tell_control_batches(self, writes: list[Write]) -> None:
        for write in writes:
            if type(write) is AppendBatches and is_control(write.batches):
                self._on_control_batch(write.base_offset, memoryview(write.batches))

    def _set_timer(self) -> None:
        # A timer that goes off early is set again: most steps leave it as it is.
        if self._wake_at_ms < self._timer_at_ms and self._loop is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at_ms = self._wake_at_ms
            delay_s = max(0.0, (self._wake_at_ms - now_ms()) / 1000)
            self._timer = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_at_ms = None, float("inf")
        if now_ms() >= self._wake_at_ms:
            self.deliver(None)
        else:
            self._set_timer()

    # -- requests from within the process

    def ask(self, request: Request) -> asyncio.Future[Response]:
        """Step the node with a request of this process; the future holds the node's response.

        It raises NotControllerError where the node stops before it answers.
        """
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        # The listener numbers its requests from 0 up.
        self._last_own -= 1
        self._own_requests[self._last_own] = future
        self.deliver(RequestReceived(request, self._last_own))
        return future

    # -- appends

    def append(
        self,
        values: tuple[bytes, ...] = (),
        batches: memoryview | bytearray | None = None,
        *,
        epoch: int | None = None,
    ) -> asyncio.Future[int]:
        """Appends records, as ``ready.Append`` takes them; the offset of the last once committed.

        ``epoch`` is that in which they were decided; that of the present leadership by default.
        The future raises NotControllerError where this node does not lead, or ceases to before it
        is known that they are committed (they may be, or become so), RecordTooLargeError,
        ThrottlingQuotaExceededError.
        """
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._last_token += 1
        self._asked[self._last_token] = future
        epoch = self._leader_epoch if epoch is None else epoch
        self.deliver(Append(self._last_token, epoch, values, batches))
        return future

    def _answer(self, appended: Appended) -> None:
        future = self._asked.pop(appended.token)
        if appended.error == 0:
            self._accepted.append((appended.last_offset, future))
        elif not future.done():
            refusal = _REFUSALS.get(appended.error, NotControllerError)
            future.set_exception(refusal(f"records refused with error {appended.error}"))

    def _resolve_committed(self, high_watermark: int) -> None:
        accepted = self._accepted
        while accepted and accepted[0][0] < high_watermark:
            offset, future = accepted.popleft()
            if not future.done():
                future.set_result(offset)

    def _change_role(self, change: RoleChange) -> None:
        is_leader = change.role is Role.LEADER
        if not is_leader or change.epoch != self._leader_epoch:
            self._give_up("leadership was lost")
        self._leader_epoch = change.epoch if is_leader else -1
        self._on_role(change)

    def _give_up(self, reason: str) -> None:
        for offset, future in self._accepted:
            if not future.done():
                future.set_exception(
                    NotControllerError(f"{reason} before offset {offset} was known to be committed")
                )
        self._accepted.clear()

    # -- snapshots and cleaning, stopping

    def take_in_snapshot(self, id: OffsetAndEpoch) -> None:
        """A snapshot was finished under its name: it is checked, and served from then on."""
        self._writer.run(lambda: self.store.add_snapshot(id))

    def clean(self, max_bytes: int, max_ms: int) -> None:
        """Lets the store clean by retention, behind the writes that are queued."""

        def work() -> SnapshotsCleaned | None:
            return self.store.clean(now_ms(), max_bytes, max_ms)

        self._writer.run(work)

    async def shut_down(self, timeout_ms: int = 5000) -> None:
        """Leaves the quorum in good order: a leader resigns and tells the others first."""
        self._stopped = asyncio.get_running_loop().create_future()
        self.deliver(Shutdown(timeout_ms))
        await self._stopped

    def close(self) -> None:
        """Stops the clock, and gives up what waits; events that still come in are stepped."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = float("-inf")
        self._give_up("the node stopped")
        for asked in self._own_requests.values():
            if not asked.done():
                asked.set_exception(NotControllerError("the node stopped before it answered"))
        self._own_requests.clear()


_ORIGIN_MS = time.time() * 1000 - time.monotonic() * 1000


def now_ms() -> float:
    """Milliseconds since 1970 that never go back: the wall clock as of the start, run on."""
    return _ORIGIN_MS + time.monotonic() * 1000
