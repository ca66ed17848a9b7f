"""Run the controller of a node on the node's event loop.

Responsible for when the controller runs and for how long, and for the futures of its callers. While
another node leads, it reads committed batches from the log and applies them. While this node leads,
it appends the controller's decisions in the order of the decisions.

    driver ── committed, role, control batch, snapshot installed ─▶ controller
    driver ◀── append, resign ───────────────────────────────────── controller ─▶ responses

Invariants:

- The controller never runs inside a step of the raft node, so that no other append comes between
  the offset at which it decides and its own append.
- One turn on the loop takes a few milliseconds at most; then the loop serves the network. While the
  loop is busy, a third of its time belongs to the controller.
- A record that cannot be applied ends the process; the error has its offset. So does a feature
  level that this node does not support.

Called by ``driver`` and by API handlers. Sources: Kafka's ``QuorumController``,
``KafkaRaftClient``'s listener contexts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kraft._core.decide.placement import JavaRandom, StripedPlacer
from kraft.controller.runtime.bootstrap import default_bootstrap, read_bootstrap
from kraft.controller.runtime.operations import (
    ControllerOutput,
    KRaftVersionUpgradeRequest,
    Operation,
)
from kraft.controller.runtime.quorum_controller import QuorumController
from kraft.controller.runtime.settings import ControllerSettings
from kraft.errors import (
    NOT_LEADER_OR_FOLLOWER,
    InvalidUpdateVersionError,
    KraftError,
    NotControllerError,
    RequestTimedOutError,
    StorageError,
    UnsupportedVersionError,
)
from kraft.image.replay import MetadataState
from kraft.image.snapshot_generation import SnapshotPolicy
from kraft.metadata.directory import BOOTSTRAP_CHECKPOINT
from kraft.metadata.identifiers import random_uuid
from kraft.raft.interface import Resign, Role, RoleChange
from kraft.raft.rpc import (
    LogSlice,
    OffsetAndEpoch,
    Response,
    UpdateKRaftVersionRequest,
    UpdateKRaftVersionResponse,
)
from kraft.records import MetadataVersion, Record
from kraft.server.disk.store import MetadataStore
from kraft.server.driver import Driver, now_ms
from kraft.server.newer_versions import check_finalized, newer_version_error
from kraft.server.opening import load_latest_snapshot
from kraft.server.publishing import MetadataPublishing

logger = logging.getLogger(__name__)

#: How long the controller runs before the loop serves the network again. On a busy loop it is half
#: as long as the loop has just served the network, within these limits: otherwise a thousand
#: brokers that fetch would leave the controller, for whose decisions they wait, a twentieth.
TURN_MS = 2.0
MAX_TURN_MS = 10.0
#: Bytes of the log that a standby applies at once. The size is halved after a read that took longer
#: than a turn: a megabyte of partitions takes 3 ms, one of ACLs 70 ms. A batch is never split.
_MAX_READ_SIZE = 1 << 20
_MIN_READ_SIZE = 32 << 10
#: Pause before the next read where committed records are not on the disk yet.
_READ_RETRY_S = 0.002


class _Claim(NamedTuple):
    """This node leads ``epoch``; its controller becomes active once ``offset`` is reached."""

    epoch: int
    offset: int


class ControllerRunner:
    """The controller of one node; call `begin` with the driver before the driver's first step.

    ``cluster`` is the state of the store's latest snapshot where it is loaded already.
    ``on_failure`` is called with an error that must end the process.
    """

    def __init__(
        self,
        store: MetadataStore,
        settings: ControllerSettings,
        snapshots: SnapshotPolicy,
        *,
        cluster: MetadataState | None = None,
        bootstrap: Sequence[Record] = (),
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._on_failure = on_failure
        self.controller = QuorumController(
            load_latest_snapshot(store) if cluster is None else cluster,
            settings,
            placer=StripedPlacer(JavaRandom(int.from_bytes(os.urandom(6), "big"))),
            random_uuid=random_uuid,
            bootstrap=bootstrap,
            log_fault=lambda what, error: logger.error("%s: %r", what, error, exc_info=error),
        )
        self.publishing = MetadataPublishing(
            store,
            self.controller.cluster,
            snapshots,
            on_snapshot_stored=self._snapshot_stored,
            wake=self._take_turn_soon,
        )
        self._driver: Driver | None = None
        self._high_watermark = 0
        #: Bytes of the log that the next read may take.
        self.read_size = _MAX_READ_SIZE
        self._claim: _Claim | None = None
        self._waiters: dict[int, asyncio.Future[Any]] = {}
        self._last_token = 0
        self._is_turn_due = False
        #: Since when the turn is due that the loop has still to begin.
        self._turn_due_ms = float("inf")
        self._is_closed = False
        #: Whether all records that the quorum had committed at the start are applied.
        self._is_up_to_date = False
        #: How often a leader was learned, this node included, and a snapshot loaded.
        self.leader_count = 0
        self.loaded_count = 0 if store.latest_snapshot() is None else 1
        self._last_leader = (-1, -1)
        self._loading: asyncio.Future[MetadataState] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._compaction_begin_ms = 0.0

    def begin(self, driver: Driver) -> None:
        self._driver = driver
        logger.info(
            "loaded the latest snapshot: %r; replaying the log after it", self.controller.cluster
        )

    # -- called by the driver, inside a step of the raft node

    def committed(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        if self.controller.is_active:
            self._execute(self.controller.commit(high_watermark, now_ms()))
        self._take_turn_soon()

    def role_changed(self, change: RoleChange) -> None:
        controller, leads = self.controller, change.role is Role.LEADER
        if change.leader_id >= 0 and (change.epoch, change.leader_id) != self._last_leader:
            self._last_leader = change.epoch, change.leader_id
            self.leader_count += 1
        if controller.is_active and not (leads and change.epoch == controller.epoch):
            logger.info("the controller of epoch %d is no longer active", controller.epoch)
        if not leads or change.epoch != controller.epoch:
            if controller.is_active or not change.is_active:
                self._claim = None
                self._execute(controller.renounce(now_ms()))
            if change.is_active:
                self._claim = _Claim(change.epoch, self._high_watermark)
        self._take_turn_soon()

    def control_batch_appended(self, base_offset: int, batch: memoryview) -> None:
        self.publishing.note_batches(batch)
        self.controller.control_batch_appended(base_offset, batch)

    def snapshot_installed(self, id: OffsetAndEpoch) -> None:
        """Load the state from the snapshot that replaced the log, in a thread."""
        self.publishing.cancel_snapshot()
        loop = asyncio.get_running_loop()
        self._loading = loading = loop.run_in_executor(None, load_latest_snapshot, self._store)
        loading.add_done_callback(self._snapshot_loaded)

    def _snapshot_loaded(self, loading: asyncio.Future[MetadataState]) -> None:
        # A later snapshot may have started its own load.
        if loading is not self._loading or loading.cancelled():
            return
        self._loading = None
        try:
            cluster = loading.result()
            self.controller.replace_cluster(cluster)
            self.publishing.replace_cluster(cluster)
        except Exception as error:
            self._fail(error)
            raise
        self.loaded_count += 1
        logger.info("loaded the leader's snapshot: %r", cluster)
        self._take_turn_soon()

    def publish_soon(self) -> None:
        """Give publishers that were registered meanwhile the present image, in the next turn."""
        self._take_turn_soon()

    # -- requests

    def submit(
        self, operation: Operation, *, timeout_ms: float = float("inf")
    ) -> asyncio.Future[Any]:
        """Return a future of the response, done once its records are committed.

        The future raises the error of a rejected request, NotControllerError where another node
        leads, RequestTimedOutError.
        """
        now, future = self._begin_waiting(operation, timeout_ms)
        self._execute(self.controller.submit(operation, now))
        self._take_turn_soon()
        return future

    def submit_heartbeat(
        self,
        operation: Operation,
        broker_id: int,
        broker_epoch: int,
        *,
        timeout_ms: float = float("inf"),
    ) -> asyncio.Future[Any]:
        """As `submit`, ahead of all other operations."""
        now, future = self._begin_waiting(operation, timeout_ms)
        ready = self.controller.submit_heartbeat(operation, broker_id, broker_epoch, now)
        self._execute(ready)
        self._take_turn_soon()
        return future

    def answer_heartbeat(self, operation: Operation, broker_id: int, broker_epoch: int) -> Any:
        """Return the response to a heartbeat that can be answered at once, without a turn.

        None: call `submit_heartbeat`. See `QuorumController.answer_unchanged`.
        """
        now = now_ms()
        controller = self.controller
        response = controller.answer_unchanged(operation, broker_id, broker_epoch, now)
        if response is not None:
            controller.processing_times.note(now_ms() - now)
        return response

    def _begin_waiting(
        self, operation: Operation, timeout_ms: float
    ) -> tuple[float, asyncio.Future[Any]]:
        self._last_token += 1
        now = now_ms()
        operation.token, operation.deadline_ms = self._last_token, now + timeout_ms
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiters[operation.token] = future
        return now, future

    # -- a turn

    def _take_turn_soon(self) -> None:
        if not self._is_turn_due and not self._is_closed and self._driver is not None:
            self._is_turn_due = True
            self._turn_due_ms = now_ms()
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_turn_due = False
        if self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            if not self.controller.is_compacting:
                self._run_controller()
                self._publish()
            self._compact()
        except Exception as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        if isinstance(error, UnsupportedVersionError):
            error = newer_version_error(error)
        self._on_failure(error)

    def _publish(self) -> None:
        """Publish an image of newly committed records, and continue a snapshot under way."""
        publishing = self.publishing
        if self._loading is None:
            publishing.publish(self.controller.committed_offset, now_ms())
        if publishing.has_work:
            begin = now_ms()
            publishing.work()
            self._rest(begin)

    def _rest(self, begin: float) -> None:
        """Take the next turn after a rest as long as the work since ``begin``, a millisecond at
        least.

        A thread that always has work waits long for a processor that others want too, and with
        it every request.
        """
        now = now_ms()
        if not self._is_turn_due:
            if self._timer is not None:
                self._timer.cancel()
            self._wake_at(now + max(1.0, now - begin), now)

    @property
    def _is_compaction_due(self) -> bool:
        return (
            self.controller.is_compaction_due and self._loading is None and self.publishing.is_idle
        )

    def _compact(self) -> None:
        """Compact the table where it is due and all is committed, in several turns.

        Nothing else is done meanwhile, for 0.3 s a million partitions, but heartbeats are answered,
        and requests that read the image. Images in use keep the old rows until they are dropped.
        """
        controller, now = self.controller, now_ms()
        if not controller.is_compacting:
            end_offset = controller.cluster.next_offset
            if not self._is_compaction_due or controller.stable_offset < end_offset:
                return
            self._compaction_begin_ms = now
        table = controller.cluster.table
        dead = table.row_count - table.partition_count
        # What has come meanwhile, or the next rows.
        self._take_turn_soon()
        if controller.prepare_compaction():
            return
        controller.compact(now)
        old = [self.publishing.images.publish_renumbered().table]
        # Mostly the last image of the old rows: to free two million takes 10 ms.
        asyncio.get_running_loop().run_in_executor(None, old.clear)
        taken_ms = now_ms() - self._compaction_begin_ms
        logger.info("dropped the rows of %d deleted partitions in %.0f ms", dead, taken_ms)

    def _snapshot_stored(self, id: OffsetAndEpoch) -> None:
        assert self._driver is not None
        self._driver.add_snapshot(id)

    def _run_controller(self) -> None:
        assert self._driver is not None
        controller, node = self.controller, self._driver.node
        now = now_ms()
        end_ms = now + min(max(TURN_MS, (now - self._turn_due_ms) / 2), MAX_TURN_MS)
        self._turn_due_ms = float("inf")
        while now < end_ms:
            if not controller.is_active and not self._catch_up(now):
                return
            if self._claim is not None:
                claim, self._claim = self._claim, None
                self._activate(claim.epoch, now)
            # A due compaction waits until all is committed, and writes wait for it.
            may_append = node.may_append and not self._is_compaction_due
            ready = controller.run(now, node.next_append_offset, may_append=may_append)
            self._execute(ready)
            after = now_ms()
            controller.processing_times.note(after - now)
            if ready.wake_at_ms > after:
                self._wake_at(ready.wake_at_ms, after)
                return
            if not may_append and ready.to_append is None and not ready.answers:
                # The operations in the queue would write.
                self._wake_at(after + 1.0, after)
                return
            now = after
        self._take_turn_soon()

    def _activate(self, epoch: int, now: float) -> None:
        assert self._driver is not None
        controller, cluster = self.controller, self.controller.cluster
        begins, open_since = "metadata.version" not in cluster.state.features, None
        if not begins:
            open_since = cluster.transaction_start
        offset = self._driver.node.next_append_offset
        ready = controller.claim(epoch, now, offset)
        logger.info("the controller is active in epoch %d, from offset %d on", epoch, offset)
        if begins:
            version = MetadataVersion.from_level(cluster.state.metadata_version).text
            count = cluster.next_offset - offset
            logger.info("the log was empty: wrote metadata.version %s, %d records", version, count)
        elif open_since is not None:
            logger.warning("aborting the transaction that is open since offset %d", open_since)
        self._execute(ready)

    def _catch_up(self, now: float) -> bool:
        """Apply committed batches; return whether the controller may now become active."""
        controller = self.controller
        offset = controller.cluster.next_offset
        if self._loading is not None:
            return False
        if offset < self._high_watermark:
            slice = LogSlice(offset, self._high_watermark, self.read_size)
            batches = self._store.read(slice)
            if not len(batches):
                self._wake_at(now + _READ_RETRY_S * 1000, now)
                return False
            self.publishing.note_batches(batches)
            self._execute(controller.apply_committed(batches, now))
            check_finalized(controller.cluster.state.features)
            self._adapt_read_size(now_ms() - now)
            if controller.cluster.next_offset < self._high_watermark:
                self._take_turn_soon()
                return False
        if not self._is_up_to_date and self._high_watermark > 0:
            self._is_up_to_date = True
            logger.info(
                "the state is up to date with the quorum: all %d committed records are applied",
                self._high_watermark,
            )
        return self._claim is not None and controller.cluster.next_offset >= self._claim.offset

    def _adapt_read_size(self, taken_ms: float) -> None:
        if taken_ms > TURN_MS:
            self.read_size = max(self.read_size // 2, _MIN_READ_SIZE)
        elif taken_ms < TURN_MS / 4:
            self.read_size = min(self.read_size * 2, _MAX_READ_SIZE)

    def _wake_at(self, at_ms: float, now: float) -> None:
        if at_ms < float("inf"):
            delay_s = max(0.0, (at_ms - now) / 1000)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._take_turn)

    def _execute(self, ready: ControllerOutput) -> None:
        if ready.to_append is not None:
            self._append(ready)
        for answer in ready.answers:
            future = self._waiters.pop(answer.token)
            if future.done():
                continue
            if answer.error is None:
                future.set_result(answer.response)
            else:
                future.set_exception(answer.error)
        for upgrade in ready.kraft_version_upgrades:
            self._upgrade_kraft_version(upgrade)
        if ready.resign_epoch is not None:
            assert self._driver is not None
            logger.error(
                "the controller resigns from epoch %d: a record that it appended cannot be applied",
                ready.resign_epoch,
            )
            self._driver.deliver(Resign(ready.resign_epoch))

    def _upgrade_kraft_version(self, upgrade: KRaftVersionUpgradeRequest) -> None:
        """Ask the raft node of this process to raise kraft.version, and pass its answer on."""
        assert self._driver is not None
        request = UpdateKRaftVersionRequest(upgrade.level, validate_only=upgrade.validate_only)

        def answered(asked: asyncio.Future[Response]) -> None:
            if self._is_closed or asked.cancelled():
                return
            error: KraftError | None = None
            if asked.exception() is not None:
                error = NotControllerError("the node stopped before kraft.version was raised")
            else:
                response = asked.result()
                assert isinstance(response, UpdateKRaftVersionResponse)
                error = _error_of(response)
            answer = self.controller.kraft_version_answered(upgrade.number, error, now_ms())
            self._execute(answer)
            self._take_turn_soon()

        self._driver.ask(request).add_done_callback(answered)

    def _append(self, ready: ControllerOutput) -> None:
        assert self._driver is not None
        node = self._driver.node
        assert ready.base_offset == node.next_append_offset, "another append came between"
        assert ready.to_append is not None
        self.publishing.note_batches(ready.to_append)
        appended = self._driver.append(batches=ready.to_append, epoch=ready.epoch)
        # No caller awaits this future: the driver reports committed offsets by `committed`.
        appended.add_done_callback(lambda done: done.cancelled() or done.exception())
        if appended.done() and appended.exception() is not None:
            logger.warning(
                "the raft node rejected the records of offset %d and epoch %d: %s",
                ready.base_offset,
                ready.epoch,
                appended.exception(),
            )
            self._execute(self.controller.append_failed(now_ms()))

    def close(self) -> None:
        """Stop taking turns; waiting callers get NotControllerError."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._execute(self.controller.renounce(now_ms()))
        self.publishing.close()


def _error_of(response: UpdateKRaftVersionResponse) -> KraftError | None:
    """Return the raft layer's error as an exception, None for success."""
    if response.error == 0:
        return None
    message = response.message or f"the raft layer answered with error {response.error}"
    for kind in (InvalidUpdateVersionError, RequestTimedOutError, UnsupportedVersionError):
        if kind.kafka_code == response.error:
            return kind(message)
    if response.error == NOT_LEADER_OR_FOLLOWER:
        return NotControllerError(message)
    error = KraftError(message)
    error.kafka_code = response.error
    return error


def load_bootstrap(metadata_log_dir: str) -> tuple[Record, ...]:
    """Return the records that formatting left for the first controller, or Kafka's default.

    Raises CorruptRecordError, InvalidRequestError, StorageError for an unusable file.
    """
    path = Path(metadata_log_dir) / BOOTSTRAP_CHECKPOINT
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return default_bootstrap()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    return read_bootstrap(data, path=path)
