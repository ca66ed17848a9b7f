"""Drive the replica manager: requests become futures, its output becomes requests to other nodes.

`ReplicaDriver` calls the manager with one event at a time, then carries out what it returns:
answers, Fetch and ListOffsets to leaders, AlterPartition, directory assignments, and its next
timer. It is the publisher that gives the manager the metadata.

Invariants:
- Every request of the manager ends in one call of the manager: with the response, or with None if
  the peer did not answer. The manager decides about retries.
- The metadata are applied from the registration of this process on; before it they may show this
  broker as the leader of an earlier life. The first delta is full.
- Requests are served between the slices of a large delta: see ``metadata_steps``.

Runs on the event loop. Called by the APIs and group coordinators of a broker. Rules: Kafka's
``ReplicaManager``, ``ReplicaFetcherThread``, ``DefaultAlterPartitionManager`` (4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import islice
from typing import Any, cast

from typing_extensions import Buffer

from kraft.broker.directory_assignments import DirectoryAssignments
from kraft.broker.leader_links import LeaderLinks
from kraft.broker.log.log_store import PartitionLogStore
from kraft.broker.metadata_steps import MetadataSteps
from kraft.broker.replica_mover import ReplicaMover
from kraft.broker.replication.messages import (
    BrokerFetchRequest,
    BrokerFetchResponse,
    DeletedRecords,
    IsrChangeResponse,
    IsrProposal,
    PartitionId,
    ProducedPartition,
)
from kraft.broker.replication.replica_fetching import FetchToSend, OffsetQuery
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.broker.replication.replication_output import ReplicationAnswer, ReplicationOutput
from kraft.broker.replication_rpcs import alter_partition_request, isr_change_response
from kraft.broker.request_channels import (
    ActiveControllerChannel,
    BrokerChannel,
    RequestChannel,
)
from kraft.errors import KraftError
from kraft.image.publishing import Image, ImageDelta
from kraft.protocol.alter_partition import ALTER_PARTITION, AlterPartitionResponseData

#: How long the partitions of a leader's response are worked on before the loop serves others.
TURN_S = 0.003
#: Partitions of a Produce or DeleteRecords that are handled at once.
PARTITIONS_AT_ONCE = 50
#: The time for requests to the controller and to leaders (replica.socket.timeout.ms).
REQUEST_TIMEOUT_MS = 30_000.0

Produced = dict[PartitionId, ProducedPartition]
Deleted = dict[PartitionId, DeletedRecords]

logger = logging.getLogger(__name__)


class ReplicaDriver:
    """The running replica manager of a broker; create it on the event loop.

    ``store`` has the logs of ``manager``. ``channels`` returns a new channel to a broker, None
    while its address is unknown.
    """

    name = "ReplicaManager"

    def __init__(
        self,
        manager: ReplicaManager,
        *,
        store: PartitionLogStore,
        channels: Callable[[int], BrokerChannel | None],
        isr_channel: ActiveControllerChannel,
        directory_channel: RequestChannel,
        broker_id: int,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> None:
        self.manager = manager
        self.traffic = manager.traffic
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._isr_channel = isr_channel
        self._broker_id = broker_id
        self._timeout_ms = request_timeout_ms
        #: Called after each event that may have changed roles or high watermarks.
        self.after_step: list[Callable[[], None]] = []
        #: Called when metadata were applied.
        self.on_applied: Callable[[], None] = lambda: None
        self._links = LeaderLinks(channels, broker_id, manager.partitions, request_timeout_ms)
        self._assignments = DirectoryAssignments(
            directory_channel,
            broker_id,
            lambda: manager.context.broker_epoch,
            self._is_assignment_needed,
            timeout_ms=request_timeout_ms,
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.Handle | None = None
        #: The time of the timer: uvloop's handle for a time that is due has none.
        self._timer_at_ms = float("inf")
        self._is_stepping = False
        self._has_more_output = self._has_more_than_answers = False
        self._is_closed = False
        self.mover = ReplicaMover(manager, store, self._after)
        self.after_step.append(self.mover.go_on)
        self._metadata = MetadataSteps(manager, store, self._applied)

    @property
    def now_ms(self) -> float:
        """The time of the manager's events, by the loop's clock."""
        return self._loop.time() * 1000

    # -- metadata

    def begin(self, broker_epoch: int) -> None:
        """Apply the metadata from now on: they contain the registration with this epoch."""
        self.manager.set_broker_epoch(broker_epoch)
        self._metadata.begin()

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Apply a delta; see `MetadataSteps`."""
        self._metadata.add(delta, image)

    @property
    def applied_offset(self) -> int:
        """The end (exclusive) of the metadata that are applied."""
        return self._metadata.applied_offset

    @property
    def apply_error_count(self) -> int:
        """How often metadata could not be applied."""
        return self._metadata.error_count

    async def settled(self) -> None:
        """Wait until all metadata that were published are applied, or the driver is closed."""
        await self._metadata.settled()
        if self._is_closed:
            await self.mover.settled()

    def _applied(self) -> None:
        """Go on after a part of the metadata was applied."""
        self.on_applied()
        if self._metadata.is_idle:
            self._links.close_unused(self.manager.fetching.leaders)
        self._after()

    def directory_failed(self, directory: bytes) -> None:
        """Take all replicas in a log directory offline; may be called by any thread.

        A log directory may fail within a call of the manager: this comes after it.
        """
        self._loop.call_soon_threadsafe(self._directory_failed, directory)

    def _directory_failed(self, directory: bytes) -> None:
        self.manager.directory_failed(directory, self.now_ms)
        self._after()

    def note_high_watermarks(self) -> None:
        """Give the logs their high watermarks, for checkpoints and retention."""
        self._store.set_high_watermarks(self.manager.high_watermarks())

    def start_offsets_changed(self) -> None:
        """Let fetches see the log start offsets that retention has raised."""
        self.manager.start_offsets_changed(self.now_ms)
        self._after()

    # -- requests of clients and followers

    def produce(
        self, batches: Mapping[PartitionId, Buffer], acks: int, timeout_ms: float
    ) -> asyncio.Future[Produced]:
        """Append validated batches; see `ReplicaManager.produce`."""
        if len(batches) > PARTITIONS_AT_ONCE:
            return self._spawn(self._produce_in_slices(batches, acks, timeout_ms))
        answer: asyncio.Future[Produced] = self._loop.create_future()
        waits = self.manager.produce(answer, batches, acks, timeout_ms, self.now_ms)
        self._after(has_only_answers=not waits)
        return answer

    async def _produce_in_slices(
        self, batches: Mapping[PartitionId, Buffer], acks: int, timeout_ms: float
    ) -> Produced:
        deadline = self.now_ms + timeout_ms
        answers = []
        rest = iter(batches.items())
        while part := dict(islice(rest, PARTITIONS_AT_ONCE)):
            answers.append(self.produce(part, acks, max(deadline - self.now_ms, 0.0)))
            await asyncio.sleep(0)
        return _joined(await asyncio.gather(*answers))

    def fetch(self, request: BrokerFetchRequest) -> asyncio.Future[BrokerFetchResponse]:
        """Read for a follower or a consumer; see `ReplicaManager.fetch`."""
        answer: asyncio.Future[BrokerFetchResponse] = self._loop.create_future()
        has_more = self.manager.fetch(answer, request, self.now_ms)
        self._after(has_only_answers=not has_more)
        return answer

    def delete_records(
        self, offsets: Mapping[PartitionId, int], timeout_ms: float
    ) -> asyncio.Future[Deleted]:
        """Delete the records before offsets; see `ReplicaManager.delete_records`."""
        if len(offsets) > PARTITIONS_AT_ONCE:
            return self._spawn(self._delete_in_slices(offsets, timeout_ms))
        answer: asyncio.Future[Deleted] = self._loop.create_future()
        self.manager.delete_records(answer, offsets, timeout_ms, self.now_ms)
        self._after()
        return answer

    async def _delete_in_slices(
        self, offsets: Mapping[PartitionId, int], timeout_ms: float
    ) -> Deleted:
        deadline = self.now_ms + timeout_ms
        answers = []
        rest = iter(offsets.items())
        while part := dict(islice(rest, PARTITIONS_AT_ONCE)):
            answers.append(self.delete_records(part, max(deadline - self.now_ms, 0.0)))
            await asyncio.sleep(0)
        return _joined(await asyncio.gather(*answers))

    # -- the manager's output

    def _after(self, *, has_only_answers: bool = False) -> None:
        """Carry out what the manager has to do after an event.

        ``has_only_answers``: see `ReplicaManager.produce` and `ReplicaManager.fetch`.
        """
        self._has_more_output = True
        self._has_more_than_answers |= not has_only_answers
        if self._is_stepping or self._is_closed:
            # The loop below takes the output of a call from `after_step`.
            return
        self._is_stepping = True
        try:
            while self._has_more_output:
                self._has_more_output = False
                if self._has_more_than_answers:
                    self._has_more_than_answers = False
                    self._carry_out(self.manager.take_output(self.now_ms))
                else:
                    self._give(self.manager.take_answers())
                for call in self.after_step:
                    try:
                        call()
                    except Exception:
                        # Its fault is not that of the request whose event this is.
                        logger.exception("a part of the broker failed after an event")
        finally:
            self._is_stepping = False

    def _give(self, answers: Iterable[ReplicationAnswer]) -> None:
        for answer in answers:
            future = cast("asyncio.Future[Any]", answer.token)
            # A connection that is closed cancels the requests that wait for it.
            if not future.done():
                future.set_result(answer.response)

    def _carry_out(self, output: ReplicationOutput) -> None:
        self._give(output.answers)
        for fetch in output.fetches:
            self._spawn(self._fetch(fetch))
        for query in output.queries:
            self._spawn(self._query(query))
        if output.isr_changes is not None:
            self._spawn(self._alter_partition(output.isr_changes))
        if output.directories:
            self._assignments.report(output.directories)
        self._wake_at(output.wake_at_ms)

    def _wake_at(self, at_ms: float) -> None:
        """Set the timer; one that is set for an earlier time stays, and sets the next one."""
        if self._timer_at_ms <= at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at_ms / 1000, self._tick)
        self._timer_at_ms = at_ms

    def _tick(self) -> None:
        self._timer = None
        self._timer_at_ms = float("inf")
        self.manager.tick(self.now_ms)
        self._after()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a request of the replication failed", exc_info=error)

    # -- requests to other nodes

    async def _fetch(self, fetch: FetchToSend) -> None:
        response = await self._links.fetch(fetch)
        if self._is_closed:
            return
        manager = self.manager
        manager.note_time(self.now_ms)
        end = time.perf_counter() + TURN_S
        for _ in manager.fetching.fetched_steps(
            fetch.leader_id, fetch.number, response, self.now_ms
        ):
            if time.perf_counter() >= end:
                self._after()
                await asyncio.sleep(0)
                if self._is_closed:
                    return
                manager.note_time(self.now_ms)
                end = time.perf_counter() + TURN_S
        self._after()

    async def _query(self, query: OffsetQuery) -> None:
        listed = await self._links.list_offset(query)
        if not self._is_closed:
            self.manager.offset_listed(query, listed, self.now_ms)
            self._after()

    async def _alter_partition(self, proposals: list[IsrProposal]) -> None:
        response: IsrChangeResponse | None = None
        channel = self._isr_channel
        request = alter_partition_request(
            self._broker_id, self.manager.context.broker_epoch, proposals, channel.versions
        )
        try:
            response = isr_change_response(
                await channel.call(
                    ALTER_PARTITION,
                    request,
                    AlterPartitionResponseData,
                    timeout_ms=self._timeout_ms,
                )
            )
        except (KraftError, OSError) as error:
            logger.warning("no answer to %d changes of ISRs: %s", len(proposals), error)
        except Exception:
            # Without an answer no ISR would change any more.
            logger.exception("%d changes of ISRs failed", len(proposals))
        if not self._is_closed:
            self.manager.isr_answered(response, self.now_ms)
            self._after()

    def _is_assignment_needed(self, id: PartitionId, directory: bytes) -> bool:
        """Return whether the metadata do not show a replica in its directory yet.

        Also in one that has failed: the metadata may assign the one to which it was being moved.
        """
        partition = self.manager.partitions.get(id)
        return (
            partition is not None
            and partition.assignment is not None
            and partition.assignment.directory != directory
            and self.manager.moves.reported_directory(partition) == directory
        )

    # -- the end

    def begin_controlled_shutdown(self) -> None:
        """Stop fetching replicas that lose their leader, or leave the ISR, from now on."""
        self.manager.begin_controlled_shutdown()

    def close(self) -> None:
        """Stop: no more requests are sent, timers and connections end.

        Requests of clients that wait are not answered: their connections close. Await `settled`
        before the logs are closed: a thread may be creating some.
        """
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._metadata.close()
        self.mover.close()
        for task in self._tasks:
            task.cancel()
        self._assignments.close()
        self._links.close()


def _joined(parts: list[dict[PartitionId, Any]]) -> dict[PartitionId, Any]:
    return {id: outcome for part in parts for id, outcome in part.items()}
