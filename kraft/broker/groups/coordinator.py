"""The coordinator of the groups of one partition of ``__consumer_offsets``.

`GroupCoordinator` takes requests, due timers, and the high watermark of its partition; it returns
the replies that have become ready. Its port is the partition's log: a decision's records are
appended at once, and a response waits until the high watermark has passed them, so that no client
sees what could be lost. A decision whose records cannot be appended is taken back.

A coordinator is loading, active or closed. A broker that leads the partition makes a coordinator,
gives it the log, and closes it when it leads no longer; a closed one is never used again.
Source: ``GroupCoordinatorShard``, ``CoordinatorRuntime``, ``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from typing import Protocol, TypeAlias

from typing_extensions import Buffer

from kraft._core.bytes.batch import BatchBuilder, scan
from kraft._core.codec.message_schema import Uuid
from kraft.broker.groups.config import GroupCoordinatorConfig
from kraft.broker.groups.error_responses import delete_error, error_response, fetch_error
from kraft.broker.groups.errors import GroupError
from kraft.broker.groups.group import ClassicGroup, GroupState
from kraft.broker.groups.group_table import GroupTable
from kraft.broker.groups.listing import GroupListing
from kraft.broker.groups.member import Call
from kraft.broker.groups.membership import GroupMembership
from kraft.broker.groups.offset_store import OffsetStore
from kraft.broker.groups.offsets import GroupOffsets
from kraft.broker.groups.rebalance import TimerKey
from kraft.broker.groups.records import (
    GroupRecord,
    OffsetCommitKey,
    decode_key,
    group_tombstone,
)
from kraft.broker.groups.replay import OffsetsReplay
from kraft.broker.groups.requests import ClientContext, GroupRequest, GroupResponse
from kraft.broker.groups.timers import Timers
from kraft.broker.groups.writes import GroupReply, Write
from kraft.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    NOT_COORDINATOR,
    REQUEST_TIMED_OUT,
    KraftError,
    RecordTooLargeError,
)
from kraft.protocol.delete_groups import DeletableGroupResult
from kraft.protocol.heartbeat import HeartbeatRequestData
from kraft.protocol.join_group import JoinGroupRequestData
from kraft.protocol.leave_group import LeaveGroupRequestData
from kraft.protocol.offset_commit import OffsetCommitRequestData
from kraft.protocol.offset_delete import OffsetDeleteRequestData
from kraft.protocol.offset_fetch import OffsetFetchRequestGroup
from kraft.protocol.sync_group import SyncGroupRequestData

_CLEANUP: TimerKey = ("cleanup", "", "")
_COMMIT_TIMEOUT: TimerKey = ("commit timeout", "", "")
#: Groups whose members are expected in one step of loading: about a millisecond.
_GROUPS_PER_STEP = 200
#: The response to a request that fails, by the error code.
ErrorResponse: TypeAlias = Callable[[int], GroupResponse]


class OffsetsLog(Protocol):
    """The partition's log and its replication, as its leader sees them."""

    def append(self, batch: Buffer) -> int:
        """Append one batch as leader and return the offset of its last record.

        Raises KraftError: NOT_ENOUGH_REPLICAS if the ISR is too small, NOT_LEADER_OR_FOLLOWER, ...
        """


class CoordinatorState(Enum):
    """Whether a coordinator can decide."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


@dataclass(slots=True)
class _Pending:
    """A decision whose response waits for the high watermark."""

    last_offset: int
    deadline_ms: int
    call: Call | None
    error: ErrorResponse | None
    write: Write
    is_failed: bool = False


class GroupCoordinator:
    """The groups and offsets of one partition, from loading to closing.

    ``call`` is the caller's name for a request; each is answered by exactly one `GroupReply`, from
    this method or a later one.
    """

    def __init__(self, config: GroupCoordinatorConfig, log: OffsetsLog) -> None:
        self.config = config
        self.state = CoordinatorState.LOADING
        self._log = log
        self._replies: list[GroupReply] = []
        self._timers: Timers[TimerKey] = Timers()
        self._groups = GroupTable()
        self._store = OffsetStore()
        self._membership = GroupMembership(config, self._groups, self._timers, self._replies)
        self._offsets = GroupOffsets(config, self._groups, self._store)
        self._listing = GroupListing(self._groups)
        self._replay: OffsetsReplay | None = OffsetsReplay(self._groups, self._store)
        self._pending: deque[_Pending] = deque()
        self._high_watermark = 0
        self._last_offset = -1
        self._to_clean: deque[str] = deque()

    # Loading and closing.

    def load(self, batches: Buffer, high_watermark: int) -> Iterator[None]:
        """Replay whole batches of the log, in order, from its start to its end.

        A generator of steps of at most a millisecond. What is not below ``high_watermark`` now is
        committed by a later `advance`. Raises CorruptRecordError or UnsupportedVersionError; the
        coordinator is closed then.
        """
        assert self._replay is not None
        try:
            yield from self._replay.replay(batches, high_watermark)
        except KraftError:
            self.close()
            raise

    def finish_loading(self, now_ms: int) -> Iterator[None]:
        """Prepare to decide, in steps as `load`: the log is replayed, and `activate` is next."""
        assert self._replay is not None
        yield from self._replay.finish(now_ms)
        groups = list(self._groups)
        for start in range(0, len(groups), _GROUPS_PER_STEP):
            self._membership.loaded(groups[start : start + _GROUPS_PER_STEP], now_ms)
            yield

    def activate(self, now_ms: int, high_watermark: int) -> list[GroupReply]:
        """Begin to decide. Return the replies that are ready."""
        assert self._replay is not None
        self._last_offset = self._replay.next_offset - 1
        self._replay = None
        self.state = CoordinatorState.ACTIVE
        self.schedule_cleanup(now_ms)
        return self.advance(high_watermark, now_ms)

    def close(self) -> list[GroupReply]:
        """Answer all that waits with NOT_COORDINATOR: another broker leads the partition."""
        self.state = CoordinatorState.CLOSED
        self._timers.clear()
        for pending in self._pending:
            self._fail(pending, NOT_COORDINATOR, 0)
        self._pending.clear()
        self._membership.unloaded()
        self._timers.clear()
        self._replay = None
        return self._take_replies()

    @property
    def group_count(self) -> int:
        """How many groups the partition has."""
        return len(self._groups)

    @property
    def offset_count(self) -> int:
        """How many committed offsets the partition has."""
        return len(self._store)

    # Requests.

    def groups(self) -> Iterable[ClassicGroup]:
        """Return the groups as they are now."""
        return self._groups

    def handle(
        self,
        call: Call,
        context: ClientContext,
        request: GroupRequest,
        now_ms: int,
        random_id: str = "",
    ) -> list[GroupReply]:
        """Decide a request; return the replies that are ready, not only to this call.

        ``random_id`` is the random part of a new member's id, a uuid in Kafka; only JoinGroup
        reads it. The caller does not change the request after that: a member keeps its protocols.
        """
        try:
            self._validate(request)
            self._check_active()
            write = self._decide(call, context, request, now_ms, random_id)
        except GroupError as error:
            self._replies.append(GroupReply(call, error_response(request, error.kafka_code)))
            write = None
        if (
            write is None
            and self._last_offset >= self._high_watermark
            and isinstance(request, JoinGroupRequestData | SyncGroupRequestData)
        ):
            # It waits for its group, but not longer than for the records before it.
            parked = self._membership.parked(call, request)
            write = None if parked is None else Write([], completion=parked)
        self._write(write, call, partial(error_response, request), now_ms)
        return self._take_replies()

    def fetch_offsets(
        self,
        call: Call,
        request: OffsetFetchRequestGroup,
        now_ms: int,
        *,
        require_stable: bool = False,
    ) -> list[GroupReply]:
        """Answer one group of an OffsetFetch like `handle`; ``require_stable`` is the request's."""
        error = partial(fetch_error, request.group_id)
        try:
            self._check_active()
        except GroupError as inactive:
            return [GroupReply(call, error(inactive.kafka_code))]
        fetched = self._offsets.fetch(request, require_stable=require_stable)
        if not require_stable:
            return [GroupReply(call, fetched)]
        self._write(Write([], fetched), call, error, now_ms)
        return self._take_replies()

    def delete_group(self, call: Call, group_id: str, now_ms: int) -> list[GroupReply]:
        """Delete one group of a DeleteGroups like `handle`."""
        error = partial(delete_error, group_id)
        try:
            self._check_active()
        except GroupError as inactive:
            return [GroupReply(call, error(inactive.kafka_code))]
        self._write(self._delete_group(group_id), call, error, now_ms)
        return self._take_replies()

    def _validate(self, request: GroupRequest) -> None:
        # Old consumers commit with an empty group id.
        if not request.group_id and not isinstance(request, OffsetCommitRequestData):
            raise GroupError(INVALID_GROUP_ID, "the group id is empty")
        if isinstance(request, JoinGroupRequestData):
            low = self.config.group_min_session_timeout_ms
            high = self.config.group_max_session_timeout_ms
            if not low <= request.session_timeout_ms <= high:
                raise GroupError(
                    INVALID_SESSION_TIMEOUT,
                    f"the session timeout is {request.session_timeout_ms} ms, not {low} to {high}",
                )

    def _check_active(self) -> None:
        if self.state is CoordinatorState.LOADING:
            raise GroupError(COORDINATOR_LOAD_IN_PROGRESS, "the partition is loading")
        if self.state is CoordinatorState.CLOSED:
            raise GroupError(NOT_COORDINATOR, "another broker leads the partition")

    def _decide(
        self,
        call: Call,
        context: ClientContext,
        request: GroupRequest,
        now_ms: int,
        random_id: str,
    ) -> Write | None:
        membership, offsets = self._membership, self._offsets
        match request:
            case JoinGroupRequestData():
                return membership.join(call, context, request, random_id, now_ms)
            case SyncGroupRequestData():
                return membership.sync(call, request, now_ms)
            case HeartbeatRequestData():
                return membership.heartbeat(request, now_ms)
            case LeaveGroupRequestData():
                return membership.leave(request, now_ms)
            case OffsetCommitRequestData():
                group = offsets.validated_group(context, request, now_ms)
                # A commit shows that the member lives, as a heartbeat does.
                if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
                    member = group.members[request.member_id]
                    membership.schedule_heartbeat(group, member, now_ms)
                return offsets.commit(request, now_ms)
            case OffsetDeleteRequestData():
                return offsets.delete(request)

    def _delete_group(self, group_id: str) -> Write:
        try:
            self._listing.check_deletable(group_id)
        except GroupError as error:
            return Write([], DeletableGroupResult(group_id, error.kafka_code))
        records = [*self._offsets.tombstones(group_id), group_tombstone(group_id)]
        return Write(records, DeletableGroupResult(group_id))

    @property
    def listing(self) -> GroupListing:
        """Answers ListGroups and DescribeGroups; raises GroupError unless active."""
        self._check_active()
        return self._listing

    def delete_topics(self, deleted: Mapping[str, Uuid], now_ms: int) -> list[GroupReply]:
        """Delete the offsets of deleted topics, given by name and id."""
        if self.state is CoordinatorState.ACTIVE:
            records = self._offsets.tombstones_of_topics(deleted)
            self._write(Write(records, is_atomic=False), None, None, now_ms)
        return self._take_replies()

    # Time.

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` has something to do, or None."""
        return self._timers.next_deadline_ms()

    def expire(self, now_ms: int) -> list[GroupReply]:
        """Do what is due at this time: sessions, rebalances, expired offsets, late commits."""
        while (due := self._timers.pop_due(now_ms)) is not None:
            key, detail = due
            if key == _CLEANUP:
                self._clean_up(now_ms)
            elif key == _COMMIT_TIMEOUT:
                self._fail_late(detail, now_ms)
            else:
                self._write(self._membership.expire(key, detail, now_ms), None, None, now_ms)
        return self._take_replies()

    def schedule_cleanup(self, now_ms: int) -> None:
        """Look for expired offsets after offsets.retention.check.interval.ms, and not before."""
        interval_ms = self.config.offsets_retention_check_interval_ms
        self._timers.schedule(_CLEANUP, now_ms + interval_ms)

    def _clean_up(self, now_ms: int) -> None:
        """Write tombstones of expired offsets, and of empty groups without any.

        A slice of the groups at a time: many groups must not delay heartbeats.
        """
        if not self._to_clean:
            self._to_clean.extend(self._groups.ids())
        records: list[GroupRecord] = []
        for _ in range(min(self.config.cleanup_slice, len(self._to_clean))):
            group_id = self._to_clean.popleft()
            group = self._groups.get(group_id)
            if group is None:
                continue
            expired, is_all = self._offsets.expired(group, now_ms)
            records += expired
            if is_all and group.is_empty:
                records.append(group_tombstone(group_id))
        if self._to_clean:
            self._timers.schedule(_CLEANUP, now_ms + 1)
        else:
            self.schedule_cleanup(now_ms)
        write = Write(records, completion=_Cleanup(self), is_atomic=False)
        self._write(write, None, None, now_ms)

    # Records on their way to the log and back.

    def _write(
        self, write: Write | None, call: Call | None, error: ErrorResponse | None, now_ms: int
    ) -> None:
        if write is None:
            return
        deadline_ms = now_ms + self.config.offsets_commit_timeout_ms
        pending = _Pending(self._last_offset, deadline_ms, call, error, write)
        if write.records:
            try:
                pending.last_offset = self._append(write, now_ms)
            except KraftError as failure:
                self._groups.revert()
                self._fail(pending, failure.kafka_code, now_ms)
                return
        if pending.last_offset < self._high_watermark:
            self._complete(pending, now_ms)
            return
        self._pending.append(pending)
        if _COMMIT_TIMEOUT not in self._timers:
            self._timers.schedule(_COMMIT_TIMEOUT, deadline_ms, deadline_ms)

    def _append(self, write: Write, now_ms: int) -> int:
        """Append the records in one batch, or in as many as they need; return the last offset.

        The state follows each batch, so that it is right if a later one fails.
        """
        for batch, records in self._batches(write, now_ms):
            self._last_offset = self._log.append(batch)
            self._groups.stamp(self._last_offset)
            if write.applies:
                self._apply(records, self._last_offset)
        return self._last_offset

    def _batches(self, write: Write, now_ms: int) -> list[tuple[Buffer, list[GroupRecord]]]:
        """Return the batches of a decision, each with its records."""
        limit = self.config.max_batch_bytes
        builder = BatchBuilder(
            timestamp_ms=now_ms,
            attributes=self.config.offsets_topic_compression_codec,
            max_batch_size=limit,
            max_batch_records=len(write.records),
        )
        for record in write.records:
            builder.append(record.value, record.key)
        buffer = builder.finish()
        table = scan(buffer, verify_crc=False)
        if write.is_atomic and len(table) > 1:
            raise RecordTooLargeError(
                f"{len(write.records)} records of one decision have more than {limit} bytes"
            )
        batches: list[tuple[Buffer, list[GroupRecord]]] = []
        records = iter(write.records)
        for start, size, count in zip(
            table.positions.tolist(),
            table.sizes.tolist(),
            table.record_counts.tolist(),
            strict=True,
        ):
            batches.append((buffer[start : start + size], list(islice(records, count))))
        return batches

    def _apply(self, records: list[GroupRecord], last_offset: int) -> None:
        for record in records:
            key = decode_key(record.key)
            if isinstance(key, OffsetCommitKey):
                self._store.set(key.group, key.topic, key.partition, record.value, last_offset)
            elif key is not None and record.value is None:
                group = self._groups.get(key.group)
                if group is not None:
                    self._membership.cancel_timers(group)
                    self._groups.set(key.group, None)
        self._groups.stamp(last_offset)

    def advance(self, high_watermark: int, now_ms: int) -> list[GroupReply]:
        """Take note of the partition's high watermark; return replies that waited for it."""
        if high_watermark > self._high_watermark:
            self._high_watermark = high_watermark
            self._groups.commit(high_watermark)
            self._store.commit(high_watermark)
            while self._pending and self._pending[0].last_offset < high_watermark:
                self._complete(self._pending.popleft(), now_ms)
            self._schedule_commit_timeout()
        return self._take_replies()

    def _schedule_commit_timeout(self) -> None:
        waiting = next((one for one in self._pending if not one.is_failed), None)
        if waiting is None:
            self._timers.cancel(_COMMIT_TIMEOUT)
        else:
            deadline_ms = waiting.deadline_ms
            self._timers.schedule(_COMMIT_TIMEOUT, deadline_ms, deadline_ms)

    def _fail_late(self, deadline_ms: object, now_ms: int) -> None:
        """Answer what waits longer than offsets.commit.timeout.ms; its records stay in the log."""
        for pending in self._pending:
            if pending.deadline_ms == deadline_ms and not pending.is_failed:
                self._fail(pending, REQUEST_TIMED_OUT, now_ms)
        self._schedule_commit_timeout()

    def _complete(self, pending: _Pending, now_ms: int) -> None:
        if pending.is_failed:
            return
        write = pending.write
        if write.completion is not None:
            write.completion.committed(now_ms)
        if pending.call is not None and write.response is not None:
            self._replies.append(GroupReply(pending.call, write.response))

    def _fail(self, pending: _Pending, code: int, now_ms: int) -> None:
        if pending.is_failed:
            return
        pending.is_failed = True
        write = pending.write
        if write.completion is not None:
            write.completion.failed(code, now_ms)
        if pending.error is not None and write.response is not None:
            assert pending.call is not None
            self._replies.append(GroupReply(pending.call, pending.error(code)))

    def _take_replies(self) -> list[GroupReply]:
        replies = self._replies.copy()
        self._replies.clear()
        return replies


@dataclass(slots=True)
class _Cleanup:
    """Tombstones of expired offsets; where they are not committed, more would not be."""

    coordinator: GroupCoordinator

    def committed(self, now_ms: int) -> None:
        """Nothing: the next cleanup is scheduled."""

    def failed(self, code: int, now_ms: int) -> None:
        self.coordinator.schedule_cleanup(now_ms)
