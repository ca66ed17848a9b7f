"""Move replicas between the log directories of a broker (AlterReplicaLogDirs, KIP-113).

`ReplicaMover` begins and cancels moves, and copies their records: one part after the other, of the
first move that has more to copy, so that moves end one by one, as in Kafka. A copy that has caught
up waits until the metadata assign its directory, and then replaces the log.

Invariants:
- The event loop changes the logs; a thread reads what may not be in the page cache, and syncs.
- Nothing runs between the last record's copy and the replacement: a log that is written to all the
  time can be moved.
- A copy replaces the log when it is as far on the device: flushed records stay so.
- Only the mover syncs a copy, and not while it replaces the log: its files get other names then.

Moves go on after a restart: their copies are on disk. Used by ``node`` and the API. Rules: Kafka's
``ReplicaManager.alterReplicaLogDirs``, ``ReplicaAlterLogDirsManager`` (4.3.1), KIP-858, KIP-1066.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from kraft.broker.log.checkpoint_files import PartitionKey
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_store import CREATING_THREADS, PartitionLogStore
from kraft.broker.log.partition_names import MAX_NAME_BYTES, future_name
from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.quotas import ReplicationQuota
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.broker.replication.replica_moves import ReplicaMove
from kraft.errors import (
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    LOG_DIR_NOT_FOUND,
    NONE,
    REPLICA_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    KraftError,
    StorageError,
)

#: Bytes that are copied at once (replica.fetch.max.bytes of Kafka's thread).
PART_BYTES = 1 << 20
#: Parts of at most this size are read by the event loop: they were just appended, or their segment
#: is small. Together the parts of one turn have at most about this size.
_SMALL_BYTES = 64 << 10
#: How long moves are looked at, and finished, before the loop serves the network again.
_TURN_S = 0.003
#: How often a copy that waits for the controller, or for its quota, looks again.
_PAUSE_S = 0.02

T = TypeVar("T")

logger = logging.getLogger(__name__)


class WantedMove(NamedTuple):
    """A replica of this broker, and the path of the directory that should have its log.

    ``id`` is None if the topic does not exist.
    """

    topic: str
    partition: int
    id: PartitionId | None
    path: str


class ReplicaMover:
    """The moves of a running broker; create it on the event loop.

    ``step_done`` is called after each step that may have given the manager something to send.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        store: PartitionLogStore,
        step_done: Callable[[], None],
    ) -> None:
        self._manager = manager
        self._store = store
        self._step_done = step_done
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(CREATING_THREADS, "replica mover")
        self._task: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._is_closed = False

    @property
    def moves(self) -> Mapping[PartitionId, ReplicaMove]:
        """The moves that are under way."""
        return self._manager.moves.moves

    @property
    def _quota(self) -> ReplicationQuota:
        return self._manager.context.quotas.moves

    # -- requests

    async def alter(self, wanted: Sequence[WantedMove]) -> dict[PartitionKey, int]:
        """Begin or cancel moves; return the error of each partition, 0 without one.

        A later directory of the same partition replaces an earlier one. A stopping broker begins
        none.
        """
        last = {(each.topic, each.partition): each for each in wanted}
        async with self._beginning:
            if self._is_closed:
                return dict.fromkeys(last, REPLICA_NOT_AVAILABLE)
            errors: dict[PartitionKey, int] = {}
            new: list[tuple[WantedMove, LogDirectory]] = []
            for key, each in last.items():
                directory = self._store.directory_at(each.path)
                errors[key] = error = self._prepare(each, directory)
                if directory is not None and not error and self._is_new(each, directory):
                    new.append((each, directory))
            for (each, _), failure in zip(new, await self._create(new), strict=True):
                try:
                    if failure is not None:
                        raise failure
                    self._begin(each)
                except StorageError as error:
                    logger.warning("%s-%d is not moved: %s", each.topic, each.partition, error)
                    errors[each.topic, each.partition] = error.kafka_code
        self._step_done()
        self.go_on()
        return errors

    def _prepare(self, wanted: WantedMove, directory: LogDirectory | None) -> int:
        """Return why a move cannot begin, 0 if it can.

        Cancel an earlier move of the replica to another directory. Note the directory for a replica
        that is not here yet.
        """
        if len(future_name(wanted.topic, wanted.partition, "0" * 32)) > MAX_NAME_BYTES:
            return INVALID_TOPIC_EXCEPTION
        if directory is None:
            return LOG_DIR_NOT_FOUND
        if directory.failure is not None:
            return KAFKA_STORAGE_ERROR
        if directory.is_cordoned:
            return INVALID_REPLICA_ASSIGNMENT
        id = wanted.id
        partition = None if id is None else self._manager.partitions.get(id)
        if partition is not None:
            if partition.log is None:
                return KAFKA_STORAGE_ERROR
            move = self.moves.get(partition.id)
            if move is not None and move.directory == directory.id:
                move.failure = None
            elif move is not None:
                self._manager.moves.cancel(partition.id)
            if directory.id != partition.directory and self._store.has_offline:
                # Its directory may have another copy.
                return NONE if partition.id in self.moves else KAFKA_STORAGE_ERROR
            return NONE
        self._store.prefer(wanted.topic, wanted.partition, directory)
        return UNKNOWN_TOPIC_OR_PARTITION if id is None else REPLICA_NOT_AVAILABLE

    def _is_new(self, wanted: WantedMove, directory: LogDirectory) -> bool:
        assert wanted.id is not None
        partition = self._manager.partitions[wanted.id]
        return directory.id != partition.directory and wanted.id not in self.moves

    async def _create(
        self, new: Sequence[tuple[WantedMove, LogDirectory]]
    ) -> list[StorageError | None]:
        """Create the copies of moves; return the failure of each: each takes some writes."""

        def create(wanted: WantedMove, directory: LogDirectory) -> StorageError | None:
            assert wanted.id is not None
            try:
                self._store.create_future(wanted.id, wanted.topic, directory)
            except StorageError as error:
                return error
            return None

        return await asyncio.gather(
            *(self._loop.run_in_executor(self._threads, create, *each) for each in new)
        )

    def _begin(self, wanted: WantedMove) -> None:
        assert wanted.id is not None
        if self._is_closed:
            # The broker goes on after its next start.
            return
        partition = self._manager.partitions.get(wanted.id)
        if partition is None:
            # It was deleted meanwhile.
            self._store.delete_future(wanted.id, wanted.topic)
        else:
            self._manager.moves.resume(partition)

    # -- copying

    def go_on(self) -> None:
        """Copy as long as there are moves; call it when there may be new ones."""
        if self.moves and self._task is None and not self._is_closed:
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self.moves:
                if self._quota.is_exceeded(self._now_ms()) or not await self._copy_first():
                    await asyncio.sleep(_PAUSE_S)
                else:
                    await asyncio.sleep(0)
        finally:
            self._task = None

    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    async def _copy_first(self) -> bool:
        """Copy a part of the first move that has more; return False if none has.

        Finish those before it that can be finished.
        """
        end = time.perf_counter() + _TURN_S
        for move in list(self.moves.values()):
            if move.failure is None and self._is_current(move) and await self._copied(move):
                return True
            if time.perf_counter() >= end:
                await asyncio.sleep(0)
                end = time.perf_counter() + _TURN_S
        return False

    def _is_current(self, move: ReplicaMove) -> bool:
        return self.moves.get(move.partition.id) is move

    async def _copied(self, move: ReplicaMove) -> bool:
        """Copy a part of a move, or finish one that has caught up; return whether to go on."""
        partition, copied = move.partition, 0
        try:
            while (part := move.next_part(PART_BYTES)) is not None and part.records.size:
                size = part.records.size
                if size > _SMALL_BYTES:
                    records = await self._in_thread(part.records.read)
                    if not self._is_current(move):
                        return True
                else:
                    records = part.records.read()
                move.append(part, records)
                self._quota.record(size, self._now_ms())
                copied += size
                if copied > _SMALL_BYTES:
                    await self._flush_rolled(move)
                    return True
            if not move.has_caught_up:
                return False
            if not move.is_assigned:
                self._manager.moves.report(move)
            elif self._store.is_flushed(partition.id, partition.topic):
                self._manager.moves.finish(move)
                logger.info("%s is in another log directory now", partition)
            else:
                await self._in_thread(
                    partial(self._store.flush_future, partition.id, partition.topic)
                )
                return True
        except StorageError as error:
            # The event of the failed directory ends the move.
            logger.error("the move of %s failed: %s", partition, error)
            move.failure = str(error)
        except KraftError as error:
            logger.error("%s cannot be copied to another log directory: %s", partition, error)
            move.failure = str(error)
        except Exception as error:
            logger.exception("%s cannot be copied to another log directory", partition)
            move.failure = str(error)
        self._step_done()
        return False

    async def _flush_rolled(self, move: ReplicaMove) -> None:
        """Flush the segments of a copy that were rolled: a start checks what was not flushed."""
        partition = move.partition
        flush = self._store.rolled_future_flush(partition.id, partition.topic)
        if flush is not None:
            await self._in_thread(flush)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._threads, work)

    def close(self) -> None:
        """Stop copying; await `settled` before the logs are closed."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    async def settled(self) -> None:
        """Wait for the work in threads, after `close`."""
        async with self._beginning:
            await self._loop.run_in_executor(None, self._threads.shutdown)
