"""Drive the raft state machine: step it with one event, then execute the ``RaftReady`` it returns.

Responsible for the order of execution, the clock, the timer, and the futures of appended records.
Everything runs on one event loop, except the writer's threads.

    transport ─▶ deliver ─▶ node.step ─▶ writer, transport, on_committed, on_role
    writer ────▶ deliver        └──────▶ the timer of ``wake_at_ms``

Invariants:

- Events are stepped one after the other, also those that a callback delivers.
- Time never goes back.
- A future of `append` is resolved once: when its records are committed, or when the node can no
  longer know whether they are.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kraft.errors import (
    KraftError,
    NotControllerError,
    RecordTooLargeError,
    ThrottlingQuotaExceededError,
)
from kraft.raft.accumulator import is_control
from kraft.raft.interface import (
    Append,
    AppendBatches,
    Appended,
    Event,
    RaftReady,
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
from kraft.raft.node import Node
from kraft.raft.rpc import OffsetAndEpoch, Request, Response
from kraft.server.disk.snapshots import StoredSnapshot
from kraft.server.disk.store import MetadataStore
from kraft.server.recent_times import RecentTimes

_REFUSALS: dict[int, type[KraftError]] = {
    error.kafka_code: error for error in (RecordTooLargeError, ThrottlingQuotaExceededError)
}


class _PendingAppend(NamedTuple):
    """An append without a result yet, and when it was submitted."""

    future: asyncio.Future[int]
    begun_ms: float


class LogWriter(Protocol):
    """The part of ``writer.WriterThread`` that the driver calls."""

    def submit(
        self, writes: list[Write], sequence: int, /, *, is_awaited: bool = False
    ) -> None: ...
    def run(self, work: Callable[[], Event], /) -> None: ...


class Driver:
    """The loop around one raft node; see the module's docstring.

    ``send`` is the transport's. These callbacks may call `append` and `deliver`:
    ``on_committed``, with the high watermark each time it rises; ``on_role``, at each change of
    role, epoch or leader; ``on_control_batch``, with each batch that the raft layer itself writes
    while it leads; ``on_snapshot``, when a leader's snapshot has replaced the log.
    ``on_failure`` gets the exception of a failed step: the node's state is in doubt then, and the
    callback should end the process.
    """

    def __init__(
        self,
        node: Node,
        store: MetadataStore,
        writer: LogWriter,
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
        #: Appends that the node has not accepted yet, by token; then the accepted ones, with the
        #: offset that must be committed.
        self._asked: dict[int, _PendingAppend] = {}
        self._accepted: deque[tuple[int, _PendingAppend]] = deque()
        #: Requests of this process, by negative numbers.
        self._own_requests: dict[int, asyncio.Future[Response]] = {}
        self._last_own = 0
        self._leader_epoch = -1
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = float("inf")
        self._wake_at_ms = float("inf")
        self._stopped: asyncio.Future[None] | None = None
        #: For the metrics: time in steps, records written as a leader and as a follower, times from
        #: append to commit, and from the begin of an election to its leader.
        self.busy_ms = 0.0
        self.appended_count = 0
        self.fetched_count = 0
        self.commit_times = RecentTimes()
        self.election_times = RecentTimes()
        self._election_begun_ms: float | None = None

    def start(self) -> None:
        """Step the node for the first time, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.deliver(None)

    # -- a step

    def deliver(self, event: Event) -> None:
        """Step the node with this event, and then with the events that callbacks deliver."""
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        begin_ms = now_ms()
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
            self.busy_ms += now_ms() - begin_ms
        self._set_timer()

    def _carry_out(self, ready: RaftReady) -> None:
        if ready.to_write:
            # A follower sends its next fetch after the sync, and has nothing to do until then.
            is_awaited = self.node.role is Role.FOLLOWER
            self._writer.submit(ready.to_write, ready.write_sequence, is_awaited=is_awaited)
            self._note_appends(ready.to_write, is_leader=self.node.role is Role.LEADER)
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

    def _note_appends(self, writes: list[Write], *, is_leader: bool) -> None:
        """Count the written records; report the control batches that a leader writes."""
        for write in writes:
            if type(write) is not AppendBatches:
                continue
            count = write.end_offset - write.base_offset
            if not is_leader:
                self.fetched_count += count
                continue
            self.appended_count += count
            if is_control(write.batches):
                self._on_control_batch(write.base_offset, memoryview(write.batches))

    def _set_timer(self) -> None:
        # A timer that fires early is set again, so that most steps need not touch it.
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
        """Append records, see ``ready.Append``; return a future of the last offset once committed.

        ``epoch`` is the epoch of the decision, by default the one that this node leads. The future
        raises NotControllerError where this node does not lead, or loses leadership before it knows
        that the records are committed (they may be, or become so); RecordTooLargeError;
        ThrottlingQuotaExceededError.
        """
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._last_token += 1
        self._asked[self._last_token] = _PendingAppend(future, now_ms())
        epoch = self._leader_epoch if epoch is None else epoch
        self.deliver(Append(self._last_token, epoch, values, batches))
        return future

    def _answer(self, appended: Appended) -> None:
        pending = self._asked.pop(appended.token)
        if appended.error == 0:
            self._accepted.append((appended.last_offset, pending))
        elif not pending.future.done():
            refusal = _REFUSALS.get(appended.error, NotControllerError)
            pending.future.set_exception(refusal(f"records rejected with error {appended.error}"))

    def _resolve_committed(self, high_watermark: int) -> None:
        accepted = self._accepted
        while accepted and accepted[0][0] < high_watermark:
            offset, pending = accepted.popleft()
            now = now_ms()
            self.commit_times.note(now - pending.begun_ms, now)
            if not pending.future.done():
                pending.future.set_result(offset)

    def _change_role(self, change: RoleChange) -> None:
        is_leader = change.role is Role.LEADER
        if not is_leader or change.epoch != self._leader_epoch:
            self._fail_appends("leadership was lost")
        self._leader_epoch = change.epoch if is_leader else -1
        self._note_election(change)
        self._on_role(change)

    def _note_election(self, change: RoleChange) -> None:
        """Measure the time from this node's candidacy to the leader of its election."""
        if change.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            if self._election_begun_ms is None:
                self._election_begun_ms = now_ms()
        elif change.leader_id >= 0 and self._election_begun_ms is not None:
            now = now_ms()
            self.election_times.note(now - self._election_begun_ms, now)
            self._election_begun_ms = None

    def _fail_appends(self, reason: str) -> None:
        for offset, pending in self._accepted:
            if not pending.future.done():
                pending.future.set_exception(
                    NotControllerError(f"{reason} before offset {offset} was known to be committed")
                )
        self._accepted.clear()

    # -- snapshots and cleaning, stopping

    def add_snapshot(self, id: OffsetAndEpoch) -> None:
        """Have the writer check a finished snapshot file; the node serves it from then on."""
        self._writer.run(lambda: self.store.add_snapshot(id))

    def resolve_snapshot(self, id: OffsetAndEpoch, snapshot: StoredSnapshot | None) -> None:
        """Have the store serve a snapshot that it has checked, see its `resolve_snapshot`."""
        self._writer.run(lambda: self.store.resolve_snapshot(id, snapshot))

    def clean(self, max_bytes: int, max_ms: int) -> None:
        """Have the store delete old snapshots and log by retention, after the queued writes."""

        def work() -> SnapshotsCleaned | None:
            return self.store.clean(now_ms(), max_bytes, max_ms)

        self._writer.run(work)

    async def shut_down(self, timeout_ms: int = 5000) -> None:
        """Leave the quorum; a leader first resigns and sends EndQuorumEpoch."""
        self._stopped = asyncio.get_running_loop().create_future()
        self.deliver(Shutdown(timeout_ms))
        await self._stopped

    def close(self) -> None:
        """Stop the timer and fail all waiting futures; later events are still stepped."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = float("-inf")
        self._fail_appends("the node stopped")
        for asked in self._own_requests.values():
            if not asked.done():
                asked.set_exception(NotControllerError("the node stopped before it answered"))
        self._own_requests.clear()


_ORIGIN_MS = time.time() * 1000 - time.monotonic() * 1000


def now_ms() -> float:
    """Return milliseconds since 1970 that never go back: start time plus the monotonic clock."""
    return _ORIGIN_MS + time.monotonic() * 1000
