"""``GroupDriver``: runs the group coordinators of a broker on its event loop.

A coordinator exists for each partition of ``__consumer_offsets`` that this broker leads. The driver
loads it from the partition's log, appends its records, gives it the high watermark and the time,
and resolves the futures of requests.

Invariants:
- Each request is answered once, also when the partition moves away and when the broker stops.
- A coordinator lives as long as this broker leads the partition with the same log. Its state is
  that log; a new leader epoch of the same leader changes neither.
- Replaying a log and due timers hold the event loop for about two milliseconds at a time. The bytes
  of a log are read in a thread.
- While a coordinator decides, no other one is called: an append may raise the high watermark at
  once, and the coordinator is told when it has decided.

A publisher of metadata after the replica manager. Called by ``kraft.broker.apis``; calls
``kraft.broker.groups`` and the replica driver. Source: ``CoordinatorRuntime``,
``CoordinatorLoaderImpl``, ``BrokerMetadataPublisher`` (4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kraft._core.bytes.batch import scan
from kraft._core.codec.message_schema import Uuid
from kraft.broker.group_settings import GroupSettings
from kraft.broker.groups import (
    OFFSETS_TOPIC,
    ClientContext,
    CoordinatorState,
    GroupCoordinator,
    GroupCoordinators,
    GroupError,
    GroupReply,
)
from kraft.broker.groups.error_responses import delete_error, error_response, fetch_error
from kraft.broker.groups.group import GroupState
from kraft.broker.groups.requests import GroupRequest, GroupResponse
from kraft.broker.replication.messages import PartitionId, ProducedPartition
from kraft.broker.replication.partition import ALL_IN_SYNC, HostedPartition, RejectedOperationError
from kraft.broker.replication.ports import DataSlice, ReplicatedLog
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.errors import COORDINATOR_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER
from kraft.image.publishing import Image, ImageDelta
from kraft.protocol.delete_groups import DeletableGroupResult
from kraft.protocol.describe_groups import DescribedGroup
from kraft.protocol.join_group import JoinGroupRequestData
from kraft.protocol.list_groups import ListedGroup
from kraft.protocol.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kraft.server.driver import now_ms as wall_clock_ms

logger = logging.getLogger(__name__)

#: How long coordinators work before the loop serves the network again.
_TURN_S = 0.002

Response = TypeVar("Response", bound=GroupResponse)


class OffsetsReplicas(Protocol):
    """The replicas of this broker, as `ReplicaDriver` has them."""

    @property
    def manager(self) -> ReplicaManager: ...

    @property
    def after_step(self) -> list[Callable[[], None]]:
        """Functions that are called when roles or high watermarks may have changed."""

    def produce(
        self, batches: Mapping[PartitionId, Buffer], acks: int, timeout_ms: float
    ) -> asyncio.Future[dict[PartitionId, ProducedPartition]]:
        """Append batches before this method returns; a rejected batch is answered at once."""

    async def settled(self) -> None:
        """Wait until all published metadata are applied: large deltas are applied in slices."""


class _LedPartition:
    """A partition of the topic that this broker leads, and its coordinator's log."""

    def __init__(
        self,
        replicas: OffsetsReplicas,
        index: int,
        partition: HostedPartition,
        timeout_ms: float,
    ) -> None:
        self.index = index
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.coordinator: GroupCoordinator
        #: The high watermark that the coordinator knows.
        self.high_watermark = -1
        #: The offset of the last record that the coordinator has appended, -1 without one.
        self.last_offset = -1
        #: Topics that were deleted while the partition was loading.
        self.deleted: dict[str, Uuid] = {}
        self._replicas = replicas
        self._timeout_ms = timeout_ms

    @property
    def log(self) -> ReplicatedLog:
        """The log of the partition; another one after a move to another log directory."""
        return self.partition.local_log

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads the partition; if its log fails, it does not again."""
        return self.partition.is_leader and self.partition.log is not None

    @property
    def is_settled(self) -> bool:
        """Whether the coordinator knows that all its records are committed."""
        return self.last_offset < self.high_watermark

    def append(self, batch: Buffer) -> int:
        """Append a batch of the coordinator with acks=all (see `OffsetsLog`)."""
        if not self.is_led:
            raise RejectedOperationError(
                NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.partition}"
            )
        end = self.log.end_offset
        id = self.partition.id
        produced = self._replicas.produce({id: batch}, ALL_IN_SYNC, self._timeout_ms)
        if self.log.end_offset == end:
            outcome = produced.result()[id]
            raise RejectedOperationError(outcome.error, outcome.message or "")
        # The coordinator finds out by itself whether the records are committed in time.
        self.last_offset = self.log.end_offset - 1
        return self.last_offset


class _Chunk(NamedTuple):
    """Whole batches of a log, and the offset after them."""

    data: Buffer
    next_offset: int


class GroupDriver:
    """The group coordinators of one broker. Create it on the event loop.

    ``create_topic`` asks the controller to create ``__consumer_offsets``, unless it is asked.
    """

    name = "GroupCoordinator"

    def __init__(
        self,
        replicas: OffsetsReplicas,
        settings: GroupSettings,
        create_topic: Callable[[], None],
        *,
        clock_ms: Callable[[], float] = wall_clock_ms,
    ) -> None:
        self._replicas = replicas
        self._settings = settings
        self._create_topic = create_topic
        self._clock_ms = clock_ms
        self._loop = asyncio.get_running_loop()
        self._coordinators = GroupCoordinators(
            settings.coordinator_config, settings.offsets_topic_num_partitions
        )
        self._led: dict[int, _LedPartition] = {}
        #: Partitions with records that are not committed yet.
        self._unsettled: dict[int, _LedPartition] = {}
        self._to_load: deque[_LedPartition] = deque()
        self._loading: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at_ms: float = float("inf")
        self._following: asyncio.Task[None] | None = None
        self._image: Image | None = None
        self._topic_id: bytes | None = None
        self._is_deciding = False
        self._is_closed = False
        replicas.after_step.append(self._settle)

    def _now_ms(self) -> int:
        return int(self._clock_ms())

    # -- requests

    def partition_of(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` whose leader coordinates a group."""
        return self._coordinators.partition_of(group_id)

    def create_offsets_topic(self) -> None:
        """Ask the controller to create ``__consumer_offsets``, unless it is being asked."""
        if not self._is_closed:
            self._create_topic()

    def handle(
        self, context: ClientContext, request: GroupRequest
    ) -> asyncio.Future[GroupResponse]:
        """Decide a request; the response may wait for other members of the group."""
        random_id = str(uuid4()) if isinstance(request, JoinGroupRequestData) else ""
        return self._ask(
            request.group_id,
            lambda call, now_ms: self._coordinators.handle(
                call, context, request, now_ms, random_id
            ),
            lambda code: error_response(request, code),
        )

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> asyncio.Future[OffsetFetchResponseGroup]:
        """Return the committed offsets of a group."""
        return self._ask(
            request.group_id,
            lambda call, now_ms: self._coordinators.fetch_offsets(
                call, request, now_ms, require_stable=require_stable
            ),
            lambda code: fetch_error(request.group_id, code),
        )

    def delete_group(self, group_id: str) -> asyncio.Future[DeletableGroupResult]:
        """Delete a group without members, with its offsets."""
        return self._ask(
            group_id,
            lambda call, now_ms: self._coordinators.delete_group(call, group_id, now_ms),
            lambda code: delete_error(group_id, code),
        )

    def group_states(self) -> Counter[GroupState]:
        """Return the number of groups in each state."""
        return self._coordinators.group_states()

    @property
    def offset_count(self) -> int:
        """The committed offsets of all groups."""
        return self._coordinators.offset_count

    def list_groups(
        self, states_filter: Sequence[str], types_filter: Sequence[str]
    ) -> list[ListedGroup]:
        """Return the groups of this broker. Raises GroupError while a partition is loading."""
        if self._is_closed:
            raise GroupError(COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        return self._coordinators.list_groups(states_filter, types_filter)

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """Return a group for DescribeGroups, or its error."""
        if self._is_closed:
            return DescribedGroup(group_id=group_id, error_code=COORDINATOR_NOT_AVAILABLE)
        return self._coordinators.describe_group(group_id, api_version)

    def _ask(
        self,
        group_id: str,
        ask: Callable[[asyncio.Future[Any], int], list[GroupReply]],
        error: Callable[[int], Response],
    ) -> asyncio.Future[Response]:
        call: asyncio.Future[Response] = self._loop.create_future()
        if self._is_closed:
            call.set_result(error(COORDINATOR_NOT_AVAILABLE))
        else:
            self._decide(self.partition_of(group_id), lambda now_ms: ask(call, now_ms))
        return call

    def _decide(self, index: int, decide: Callable[[int], list[GroupReply]]) -> None:
        """Let the coordinator of a partition decide; take care of what follows."""
        self._run(decide)
        led = self._led.get(index)
        if led is not None and led.coordinator.state is CoordinatorState.ACTIVE:
            if not led.is_settled:
                self._unsettled[index] = led
                self._settle()
            self._schedule(led.coordinator.next_deadline_ms())

    def _run(self, decide: Callable[[int], list[GroupReply]]) -> None:
        assert not self._is_deciding
        self._is_deciding = True
        try:
            replies = decide(self._now_ms())
        finally:
            self._is_deciding = False
        for call, response in replies:
            # A client that is gone has cancelled its call.
            if not (future := cast("asyncio.Future[GroupResponse]", call)).done():
                future.set_result(response)

    # -- the high watermark

    def _settle(self) -> None:
        """Give coordinators the high watermarks that their records wait for."""
        if self._is_deciding:
            return
        is_changed = bool(self._unsettled)
        while is_changed:
            is_changed = False
            for led in list(self._unsettled.values()):
                if not led.is_led:
                    self._resign(led)
                    continue
                reached = led.partition.high_watermark
                if reached > led.high_watermark:
                    led.high_watermark = reached
                    self._run(partial(led.coordinator.advance, reached))
                    self._schedule(led.coordinator.next_deadline_ms())
                    is_changed = True
                if led.is_settled:
                    self._unsettled.pop(led.index, None)

    # -- time

    def _schedule(self, deadline_ms: float | None) -> None:
        """Let the timer run at this time, or earlier."""
        if deadline_ms is None or deadline_ms >= self._timer_at_ms or self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock_ms(), 0)
        self._timer = self._loop.call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        """Do what is due for a turn, the partition with the earliest deadline first."""
        self._timer = None
        self._timer_at_ms = float("inf")
        until = time.perf_counter() + _TURN_S
        while (due := min(self._deadlines(), default=None)) is not None:
            deadline_ms, index = due
            if deadline_ms > self._now_ms():
                self._schedule(deadline_ms)
                return
            self._decide(index, self._led[index].coordinator.expire)
            if time.perf_counter() >= until:
                # The network first; the timer goes on with what is due.
                self._schedule(self._now_ms())
                return

    def _deadlines(self) -> Iterator[tuple[int, int]]:
        for index, led in self._led.items():
            if led.coordinator.state is CoordinatorState.ACTIVE:
                deadline_ms = led.coordinator.next_deadline_ms()
                if deadline_ms is not None:
                    yield deadline_ms, index

    # -- metadata

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Follow the leadership of the topic's partitions; forget offsets of deleted topics."""
        before, self._image = self._image, image
        if self._is_closed:
            return
        if self._follow_topic(delta, image):
            self._follow_leaders()
            if self._following is None:
                self._following = self._loop.create_task(self._follow_settled())
        deleted = _deleted_topics(delta, before, image)
        if deleted:
            self._delete_topics(deleted)

    def _follow_topic(self, delta: ImageDelta, image: Image) -> bool:
        """Take over the topic's id and count; return whether its partitions may have changed."""
        table = image.table
        number = table.topic_number(OFFSETS_TOPIC)
        topic_id = table.topic_id_of(number) if number >= 0 else None
        if topic_id == self._topic_id:
            return number >= 0 and _is_changed(delta, table.topic_rows(number))
        for led in list(self._led.values()):
            self._resign(led)
        self._topic_id = topic_id
        # As in Kafka a broker keeps the count that it has read first: groups of another count
        # would have other partitions, without their offsets.
        count = len(table.topic_rows(number)) if number >= 0 else None
        self._coordinators.partition_count = count or self._settings.offsets_topic_num_partitions
        return topic_id is not None

    async def _follow_settled(self) -> None:
        """Follow the leaders again when the replica manager has applied all metadata."""
        await self._replicas.settled()
        self._following = None
        self._follow_leaders()

    def _follow_leaders(self) -> None:
        if self._topic_id is not None:
            for index in range(self._coordinators.partition_count):
                self._follow_leader(index, PartitionId(self._topic_id, index))

    def _follow_leader(self, index: int, id: PartitionId) -> None:
        partition = self._replicas.manager.partitions.get(id)
        led = self._led.get(index)
        if led is not None:
            has_failed = led.coordinator.state is CoordinatorState.CLOSED
            is_same = partition is led.partition and led.is_led
            if is_same and not (has_failed and led.partition.leader_epoch > led.epoch):
                return
            self._resign(led)
        if partition is not None and partition.is_leader and partition.log is not None:
            self._elect(index, partition)

    def _elect(self, index: int, partition: HostedPartition) -> None:
        timeout_ms = self._settings.offsets_commit_timeout_ms
        led = _LedPartition(self._replicas, index, partition, timeout_ms)
        led.coordinator, replies = self._coordinators.elect(index, partition.leader_epoch, led)
        assert not replies, "the coordinator before has resigned"
        self._led[index] = led
        self._to_load.append(led)
        if self._loading is None:
            self._loading = self._loop.create_task(self._load_all())

    def _resign(self, led: _LedPartition) -> None:
        del self._led[led.index]
        self._unsettled.pop(led.index, None)
        self._run(lambda now_ms: self._coordinators.resign(led.index))

    def _is_current(self, led: _LedPartition) -> bool:
        """Return whether the coordinator of a partition has not resigned meanwhile."""
        return self._led.get(led.index) is led

    def _delete_topics(self, deleted: Mapping[str, Uuid]) -> None:
        for led in list(self._led.values()):
            if led.coordinator.state is CoordinatorState.LOADING:
                led.deleted.update(deleted)
            else:
                self._decide(led.index, partial(led.coordinator.delete_topics, deleted))

    # -- loading

    async def _load_all(self) -> None:
        """Load the partitions that wait, one after the other."""
        try:
            while self._to_load:
                led = self._to_load.popleft()
                if self._is_current(led):
                    await self._load(led)
        finally:
            self._loading = None

    async def _load(self, led: _LedPartition) -> None:
        """Load a partition; a coordinator that cannot stays closed, as in Kafka."""
        began = time.perf_counter()
        try:
            is_loaded = await self._replay(led)
        except Exception as error:
            # Requests are answered by NOT_COORDINATOR until there is another leader epoch.
            logger.error("cannot load the groups of %r", led.partition, exc_info=error)
            led.coordinator.close()
            return
        if not is_loaded:
            return
        led.high_watermark = led.partition.high_watermark
        self._decide(led.index, lambda now_ms: led.coordinator.activate(now_ms, led.high_watermark))
        group_count = led.coordinator.group_count
        # A start loads 50 partitions, most of them without groups.
        logger.log(
            logging.INFO if group_count else logging.DEBUG,
            "loaded %d groups of %s-%d in %.0f ms",
            *(group_count, OFFSETS_TOPIC, led.index),
            (time.perf_counter() - began) * 1000,
        )
        if led.deleted:
            self._delete_topics(led.deleted)

    async def _replay(self, led: _LedPartition) -> bool:
        """Replay the log; return False if the coordinator resigned meanwhile."""
        coordinator, size = led.coordinator, self._settings.offsets_load_buffer_size
        offset = led.log.start_offset
        while offset < led.log.end_offset:
            part = led.log.read(offset, size, led.log.end_offset)
            if not part.size:
                break  # compaction has removed the last batches
            chunk = await self._loop.run_in_executor(None, _read, part)
            if not self._is_current(led):
                return False
            offset = chunk.next_offset
            steps = coordinator.load(chunk.data, led.partition.high_watermark)
            if not await self._in_turns(led, steps):
                return False
        led.last_offset = offset - 1
        return await self._in_turns(led, coordinator.finish_loading(self._now_ms()))

    async def _in_turns(self, led: _LedPartition, steps: Iterable[None]) -> bool:
        """Take steps of `_TURN_S` together, and let the loop run between them.

        Return False if the coordinator resigned meanwhile.
        """
        until = time.perf_counter() + _TURN_S
        for _ in steps:
            if time.perf_counter() >= until:
                await asyncio.sleep(0)
                if not self._is_current(led):
                    return False
                until = time.perf_counter() + _TURN_S
        return True

    # -- stop

    def close(self) -> None:
        """Answer all that waits, and every later request, that the coordinator has gone."""
        if self._is_closed:
            return
        self._is_closed = True
        self._replicas.after_step.remove(self._settle)
        for task in (self._loading, self._following, self._timer):
            if task is not None:
                task.cancel()
        for led in list(self._led.values()):
            self._resign(led)


def _read(part: DataSlice) -> _Chunk:
    data = part.read()
    return _Chunk(data, scan(data, verify_crc=False).last_offsets.tolist()[-1] + 1)


def _is_changed(delta: ImageDelta, rows: NDArray[np.int32]) -> bool:
    """Return whether a delta concerns these rows of the table."""
    if delta.is_full:
        return True
    return bool(np.isin(rows, delta.rows_changed).any()) or any(
        ((first <= rows) & (rows < end)).any() for first, end in delta.rows_added
    )


def _deleted_topics(delta: ImageDelta, before: Image | None, image: Image) -> dict[str, Uuid]:
    """Return the topics that ``image`` does not have any more, by name."""
    if before is None:
        return {}
    table = before.table
    if delta.is_full:
        # After a snapshot the delta does not say what is gone.
        removed = [
            number
            for number in table.topic_numbers()
            if image.table.topic_number_by_id(table.topic_id_of(number)) < 0
        ]
    else:
        removed = delta.topics_removed
    return {table.topic_name(number): Uuid(table.topic_id_of(number)) for number in removed}
