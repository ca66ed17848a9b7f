"""``LiveMetadata``: a running quorum's metadata that stays current, and `follow`, which makes one.

Threads: one thread fetches ahead (``kraft.live.fetching``). The state changes only inside of
`LiveMetadata.poll`, in the thread of its caller. So the columns, which are views of memory, and
several questions in a row show one state, without a lock; a thread that applied records meanwhile
would tear them. A program that pauses keeps its state, and gets the changes, or the next snapshot,
at its next poll. Under asyncio ``async for`` waits without blocking the loop, and each poll applies
at most a megabyte of records there.

Invariants: the state is that of the controllers at ``next_offset``, never holds an uncommitted
record or a part of a metadata transaction, and never goes backwards. If records cannot be applied,
the state stays as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self
from weakref import WeakSet

from kraft.admin.settings import Properties, read_admin_settings
from kraft.errors import InvalidArgumentError, InvalidRequestError, KraftError
from kraft.image.publishing import ImageDelta, ImagePublishing
from kraft.image.replay import MetadataState
from kraft.live.delta import LiveDelta
from kraft.live.fetching import Fetching, cluster_id_of
from kraft.metadata.diff import Difference, diff
from kraft.metadata.facade import Metadata
from kraft.metadata.quorum_observer import CommittedBatches, LoadedSnapshot, OnProgress, Piece
from kraft.metadata.view import MetadataView
from kraft.network.quorum_client import QuorumClient

OnDelta = Callable[[LiveDelta], object]

#: The dead rows from which on a table is compacted that has more of them than live ones.
_MIN_DEAD_ROWS = 10_000
#: The records that one step of ``async for`` applies, in bytes.
_STEP_BYTES = 1 << 20
#: How long one wait of ``for`` lasts before it looks for Ctrl-C and `close`.
_WAIT_S = 3600.0


def follow(
    bootstrap_controllers: str | Sequence[str],
    *,
    properties: Properties | None = None,
    cluster_id: str | None = None,
    timeout_s: float = 30.0,
    on_delta: OnDelta | None = None,
    on_progress: OnProgress | None = None,
) -> LiveMetadata:
    """Return the committed metadata of a running quorum; `LiveMetadata.poll` keeps it current.

    ``bootstrap_controllers``: ``"host:port,…"`` or a list of ``"host:port"``; any controller names
    the leader. ``properties`` are those of a Kafka client (``security.protocol``, ``ssl.*``,
    ``sasl.*``), or the path of a file with them. ``cluster_id`` is the id that the cluster must
    have. ``timeout_s`` bounds the wait for a leader. ``on_delta`` is registered as by
    `LiveMetadata.on_delta`; ``on_progress`` gets the downloaded fraction of a snapshot, 0 to 1.

    The controllers may be Apache Kafka's. The client needs CLUSTER_ACTION and DESCRIBE on the
    cluster. Raises :class:`InvalidArgumentError` for a malformed address,
    :class:`InvalidConfigError`, :class:`QuorumUnreachableError` where no controller
    answers or leads, :class:`KraftError` for another cluster.
    """
    if type(timeout_s) not in (int, float) or not 0 < timeout_s < float("inf"):
        raise InvalidArgumentError(
            f"timeout_s is {timeout_s!r:.100}: give the seconds to wait for a leader, above 0"
        )
    settings = read_admin_settings(bootstrap_controllers, properties)
    client = QuorumClient(
        settings.bootstrap_controllers,
        timeout_s=timeout_s,
        client_id=settings.client_id,
        security=settings.security,
    )
    return follow_client(client, cluster_id, on_delta, on_progress)


def follow_client(
    client: QuorumClient,
    cluster_id: str | None = None,
    on_delta: OnDelta | None = None,
    on_progress: OnProgress | None = None,
) -> LiveMetadata:
    """Follow the quorum of a client, which the result owns and closes; otherwise as `follow`."""
    try:
        cluster_id = cluster_id_of(client, cluster_id)
    except BaseException:
        client.close()
        raise
    fetching = Fetching(client, cluster_id, on_progress or (lambda fraction: None))
    try:
        live = LiveMetadata(fetching, cluster_id)
    except BaseException:
        fetching.close()
        raise
    if on_delta is not None:
        live.on_delta(on_delta)
    return live


async def follow_async(
    bootstrap_controllers: str | Sequence[str],
    *,
    properties: Properties | None = None,
    cluster_id: str | None = None,
    timeout_s: float = 30.0,
) -> LiveMetadata:
    """Return as `follow` does, without blocking the event loop meanwhile."""
    return await asyncio.to_thread(
        follow,
        bootstrap_controllers,
        properties=properties,
        cluster_id=cluster_id,
        timeout_s=timeout_s,
    )


class LiveMetadata(MetadataView):
    """The metadata of a running quorum, read-only; `follow` makes one. A context manager.

    Between two polls nothing changes. A snapshot of the quorum may replace ``partitions`` and
    ``topics`` in a poll: read them from this object each time. Iterating yields each delta after
    it was applied, and ends when the object is closed.
    """

    def __init__(self, fetching: Fetching, cluster_id: str | None) -> None:
        """Read the first state. Raises as `follow`."""
        self._fetching = fetching
        self._cluster_id = cluster_id
        self._callbacks: list[OnDelta] = []
        self._failure: KraftError | None = None
        #: The deltas that the program has not dropped.
        self._deltas: WeakSet[LiveDelta] = WeakSet()
        state = MetadataState()
        while True:
            is_complete = fetching.wait_for_first_state()
            for piece in fetching.take(0, None):
                if isinstance(piece, LoadedSnapshot):
                    state = piece.state
                else:
                    state.apply(piece.batches)
            if is_complete:
                break
        super().__init__(state)
        self._begin(state)

    def _begin(self, state: MetadataState) -> None:
        """Show a state that was loaded, and publish the deltas to it from now on."""
        if not state.table.is_compact:
            state.table.compact()
        state.start_journal()
        self._show(state)
        self._publishing = ImagePublishing(state)
        self._publishing.publish(state.next_offset)

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None where the client may not ask for it."""
        return self._cluster_id

    @property
    def newest_timestamp_ms(self) -> int:
        """The append time of the last record, in ms."""
        return max(self._publishing.applied_timestamp_ms, 0)

    @property
    def lag(self) -> int:
        """The number of committed records that this state does not have, as last reported."""
        return max(self._fetching.high_watermark - self.next_offset, 0)

    @property
    def trouble(self) -> str:
        """Why the quorum does not answer at present; "" while it answers."""
        return self._fetching.trouble

    # -- changes

    def on_delta(self, callback: OnDelta) -> None:
        """Call ``callback`` in each later poll with its delta, where something changed.

        If a callback raises, the others are called, and poll raises the first error afterwards: the
        state has changed then.
        """
        self._callbacks.append(callback)

    def poll(self, timeout_s: float = 0.0, *, max_bytes: int | None = None) -> LiveDelta | None:
        """Apply what has arrived; return the delta, None if nothing changed.

        Waits up to ``timeout_s`` for something to arrive. ``max_bytes`` bounds the records that are
        applied, to bound the time; the rest stays for the next poll. Loss of the quorum is no
        error: see `trouble`. Raises :class:`KraftError` where following cannot go on (another
        cluster, damaged records), in each poll from then on, and :class:`InvalidRequestError` once
        closed.
        """
        if self._failure is not None:
            raise self._failure
        if self._fetching.is_closed:
            raise InvalidRequestError("the metadata is no longer followed: it was closed")
        pieces = self._fetching.take(timeout_s, max_bytes)
        if not pieces:
            return None
        try:
            delta = self._apply(pieces)
        except KraftError as error:
            self._failure = error
            self._fetching.close()
            raise
        return None if delta.is_empty else self._call(delta)

    def _call(self, delta: LiveDelta) -> LiveDelta:
        errors: list[Exception] = []
        for callback in self._callbacks:
            try:
                callback(delta)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return delta

    def _apply(self, pieces: Sequence[Piece]) -> LiveDelta:
        self._settle_differences()
        from_offset = self.next_offset
        if isinstance(pieces[0], LoadedSnapshot):
            return self._replace(pieces[0].state, pieces[1:], from_offset)
        is_compacted = self._compact()
        batches = [each.batches for each in pieces if isinstance(each, CommittedBatches)]
        self._apply_batches(self.cluster, batches)
        for each in batches:
            self._publishing.note_batches(each)
        image_delta = self._publishing.publish(self.cluster.next_offset)
        assert image_delta is not None, "batches of the log advance the offset"
        delta = LiveDelta(image_delta, self.cluster.table, from_offset, batches)
        if is_compacted:
            full = ImageDelta(None, image_delta.image)
            delta = LiveDelta(full, self.cluster.table, from_offset, batches, delta.differences)
        self._deltas.add(delta)
        return delta

    def _apply_batches(self, state: MetadataState, batches: Sequence[memoryview]) -> None:
        offset = state.next_offset
        try:
            for each in batches:
                state.apply(each)
        except KraftError:
            if state is self.cluster:
                state.revert(offset)
            raise

    def _compact(self) -> bool:
        """Drop the rows of removed topics if they are many; return whether rows have new numbers.

        Not after the last change, as its delta is in use until the next poll.
        """
        table = self.cluster.table
        dead_rows = table.row_count - table.partition_count
        if dead_rows < max(_MIN_DEAD_ROWS, table.partition_count):
            return False
        for delta in self._deltas:
            delta.settle()
        self._deltas.clear()
        self._publishing.forget_image()
        self.cluster.compact()
        self._publishing.publish(self.cluster.next_offset)
        return True

    def _replace(
        self, state: MetadataState, pieces: Sequence[Piece], from_offset: int
    ) -> LiveDelta:
        batches = [each.batches for each in pieces if isinstance(each, CommittedBatches)]
        self._apply_batches(state, batches)
        before, after = Metadata(self.cluster), Metadata(state)
        self._begin(state)
        assert self._publishing.image is not None

        def differences() -> Sequence[Difference]:
            return diff(before, after)

        image_delta = ImageDelta(None, self._publishing.image)
        delta = LiveDelta(image_delta, state.table, from_offset, batches, differences)
        # Its differences are those from the old state to this one, which the next poll changes.
        self._keep_differences(delta)
        return delta

    # -- iteration

    def __iter__(self) -> Iterator[LiveDelta]:
        """Yield each delta after it was applied; wait for the next one until `close`."""
        while not self._fetching.is_closed:
            delta = self.poll(_WAIT_S)
            if delta is not None:
                yield delta

    async def __aiter__(self) -> AsyncIterator[LiveDelta]:
        """Yield each delta after it was applied; the loop is free while it waits."""
        loop = asyncio.get_running_loop()
        while not self._fetching.is_closed:
            arrived = asyncio.Event()
            self._fetching.call_on_arrival(partial(loop.call_soon_threadsafe, arrived.set))
            await arrived.wait()
            if self._fetching.is_closed:
                return
            delta = self.poll(max_bytes=_STEP_BYTES)
            if delta is not None:
                yield delta

    # -- the end

    def close(self) -> None:
        """Stop fetching; the state stays as it is. Returns at once, at most after a second."""
        self._fetching.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Live{super().__repr__()}"
