"""The controller of a node, on the node's event loop: what `raft` decides drives it, and back.

Owns when the controller is run, for how long at a time, and who waits for its answers. It rides on
the driver: what is committed is read from the log and applied while another node leads; while this
one does, its decisions are appended, in the order in which they were made.

    driver ── committed, role, control batch, snapshot installed ─▶ controller
    driver ◀── append, resign ───────────────────────────────────── controller ─▶ answers

Invariants: the controller is never run inside a step of the raft node, so that nothing comes
between the offset at which it decides and its append; one turn on the loop takes a few
milliseconds at most, then the network has its own; a record that cannot be applied ends the
process, with its offset. Fed by ``driver``; sources: Kafka's ``QuorumController``,
``KafkaRaftClient``'s listener contexts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraft._core.placement import JavaRandom, StripedPlacer
from kraft._core.snapshot_file import SnapshotReader
from kraft.controller.bootstrap import default_bootstrap, read_bootstrap
from kraft.controller.config_schema import is_supported_config
from kraft.controller.operations import Operation, Ready, UpgradeToAsk
from kraft.controller.quorum_controller import QuorumController
from kraft.controller.settings import ControllerSettings
from kraft.errors import (
    InvalidUpdateVersionError,
    KraftError,
    NotControllerError,
    RequestTimedOutError,
    StorageError,
    UnsupportedVersionError,
)
from kraft.image.replay import Cluster
from kraft.image.snapshot_generation import SnapshotPolicy
from kraft.metadata.directory import BOOTSTRAP_CHECKPOINT
from kraft.metadata.identifiers import random_uuid
from kraft.raft.messages import (
    NOT_LEADER_OR_FOLLOWER,
    LogSlice,
    OffsetAndEpoch,
    Response,
    UpdateKRaftVersionRequest,
    UpdateKRaftVersionResponse,
)
from kraft.raft.ready import Resign, Role, RoleChange
from kraft.records import MetadataVersion, Record
from kraft.server.disk.store import MetadataStore
from kraft.server.driver import Driver, now_ms
from kraft.server.publishing import MetadataPublishing

logger = logging.getLogger(__name__)

#: How long the controller runs before the loop looks at the network again.
TURN_MS = 2.0
#: How much of the log a standby applies at once: half as much where that took longer than a turn,
#: as a megabyte of partitions takes 3 ms and one of ACLs 70 ms. Whole batches are taken up anyway.
_MOST_READ = 1 << 20
_LEAST_READ = 32 << 10
#: When what is committed does not lie on the disk yet, it is looked for again.
_LOOK_AGAIN_S = 0.002


@dataclass(slots=True)
class _Claim:
    """This node leads ``epoch``, and may begin once everything below ``offset`` is applied."""

    epoch: int
    offset: int


class ControllerRunner:
    """See the module's docstring. `begin` is called once the driver exists, before its first step.

    ``on_failure`` hears of what must end the process.
    """

    def __init__(
        self,
        store: MetadataStore,
        settings: ControllerSettings,
        snapshots: SnapshotPolicy,
        *,
        bootstrap: Sequence[Record] = (),
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._on_failure = on_failure
        self.controller = QuorumController(
            load_latest(store),
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
            take_in=self._take_in_snapshot,
            wake=self._take_turn_soon,
        )
        self._driver: Driver | None = None
        self._high_watermark = 0
        #: How much of the log is read at once now.
        self.read_size = _MOST_READ
        self._claim: _Claim | None = None
        self._waiters: dict[int, asyncio.Future[Any]] = {}
        self._last_token = 0
        self._is_turn_due = False
        self._is_closed = False
        self._loading: asyncio.Future[Cluster] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, driver: Driver) -> None:
        self._driver = driver
        logger.info("the state on disk: %r, the log follows", self.controller.cluster)

    # -- what the driver tells, inside a step of the raft node

    def committed(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        if self.controller.is_active:
            self._carry_out(self.controller.commit(high_watermark, now_ms()))
        self._take_turn_soon()

    def role_changed(self, change: RoleChange) -> None:
        controller, leads = self.controller, change.role is Role.LEADER
        if controller.is_active and not (leads and change.epoch == controller.epoch):
            logger.info("the controller of epoch %d is active no more", controller.epoch)
        if not leads or change.epoch != controller.epoch:
            if controller.is_active or not change.is_active:
                self._claim = None
                self._carry_out(controller.renounce(now_ms()))
            if change.is_active:
                self._claim = _Claim(change.epoch, self._high_watermark)
        self._take_turn_soon()

    def control_batch_appended(self, base_offset: int, batch: memoryview) -> None:
        self.publishing.note_batches(batch)
        self.controller.control_batch_appended(base_offset, batch)

    def snapshot_installed(self, id: OffsetAndEpoch) -> None:
        """The log begins anew behind a snapshot: so does the state, read beside the loop."""
        self.publishing.give_up()
        loop = asyncio.get_running_loop()
        self._loading = loading = loop.run_in_executor(None, load_latest, self._store)
        loading.add_done_callback(self._snapshot_loaded)

    def _snapshot_loaded(self, loading: asyncio.Future[Cluster]) -> None:
        # Of two that come shortly after each other the later one counts.
        if loading is not self._loading or loading.cancelled():
            return
        self._loading = None
        try:
            cluster = loading.result()
            self.controller.replace_cluster(cluster)
            self.publishing.replace_cluster(cluster)
        except Exception as error:
            self._on_failure(error)
            raise
        logger.info("the state is that of the leader's snapshot: %r", cluster)
        self._take_turn_soon()

    # -- what is asked

    def submit(
        self, operation: Operation, *, timeout_ms: float = float("inf")
    ) -> asyncio.Future[Any]:
        """The response once it is committed. The future raises what the decision was refused with,
        NotControllerError where another node leads, RequestTimedOutError.
        """
        now, future = self._begin_waiting(operation, timeout_ms)
        self._carry_out(self.controller.submit(operation, now))
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
        """As `submit`, in front of everything else."""
        now, future = self._begin_waiting(operation, timeout_ms)
        ready = self.controller.submit_heartbeat(operation, broker_id, broker_epoch, now)
        self._carry_out(ready)
        self._take_turn_soon()
        return future

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
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_turn_due = False
        if self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._run_for_a_while()
            self._publish()
        except Exception as error:
            self._on_failure(error)
            raise

    def _publish(self) -> None:
        """Tells of what was taken up, and goes on with a snapshot that is being made."""
        publishing = self.publishing
        if self._loading is None:
            publishing.publish(self.controller.committed_offset, now_ms())
        if publishing.has_work:
            publishing.work()
            self._take_turn_soon()

    def _take_in_snapshot(self, id: OffsetAndEpoch) -> None:
        assert self._driver is not None
        self._driver.take_in_snapshot(id)

    def _run_for_a_while(self) -> None:
        assert self._driver is not None
        controller, node = self.controller, self._driver.node
        begin_ms = now = now_ms()
        while now < begin_ms + TURN_MS:
            if not controller.is_active and not self._catch_up(now):
                return
            if self._claim is not None:
                claim, self._claim = self._claim, None
                self._activate(claim.epoch, now)
            ready = controller.run(now, node.next_append_offset, may_append=node.may_append)
            self._carry_out(ready)
            after = now_ms()
            controller.processing_times.note(after - now)
            if ready.wake_at_ms > after:
                self._wake_at(ready.wake_at_ms, after)
                return
            if not node.may_append and ready.to_append is None and not ready.answers:
                # What waits would write, and the disk is behind.
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
            logger.info("an empty log begins: metadata.version %s, %d records", version, count)
        elif open_since is not None:
            logger.warning("the transaction that is open since offset %d is aborted", open_since)
        self._carry_out(ready)

    def _catch_up(self, now: float) -> bool:
        """Applies some of what is committed; False where there is more, or nothing else to do."""
        controller = self.controller
        offset = controller.cluster.next_offset
        if self._loading is not None:
            return False
        if offset < self._high_watermark:
            slice = LogSlice(offset, self._high_watermark, self.read_size)
            batches = self._store.read(slice)
            if not len(batches):
                self._wake_at(now + _LOOK_AGAIN_S * 1000, now)
                return False
            self.publishing.note_batches(batches)
            self._carry_out(controller.apply_committed(batches, now))
            self._note_reading(now_ms() - now)
            if controller.cluster.next_offset < self._high_watermark:
                self._take_turn_soon()
                return False
        return self._claim is not None and controller.cluster.next_offset >= self._claim.offset

    def _note_reading(self, taken_ms: float) -> None:
        if taken_ms > TURN_MS:
            self.read_size = max(self.read_size // 2, _LEAST_READ)
        elif taken_ms < TURN_MS / 4:
            self.read_size = min(self.read_size * 2, _MOST_READ)

    def _wake_at(self, at_ms: float, now: float) -> None:
        if at_ms < float("inf"):
            delay_s = max(0.0, (at_ms - now) / 1000)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._take_turn)

    def _carry_out(self, ready: Ready) -> None:
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
            self._ask_upgrade(upgrade)
        if ready.resign_epoch is not None:
            assert self._driver is not None
            logger.error(
                "the controller resigns from epoch %d: it is ahead of its log", ready.resign_epoch
            )
            self._driver.deliver(Resign(ready.resign_epoch))

    def _ask_upgrade(self, upgrade: UpgradeToAsk) -> None:
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
            self._carry_out(answer)
            self._take_turn_soon()

        self._driver.ask(request).add_done_callback(answered)

    def _append(self, ready: Ready) -> None:
        assert self._driver is not None
        node = self._driver.node
        assert ready.base_offset == node.next_append_offset, "something came between"
        assert ready.to_append is not None
        self.publishing.note_batches(ready.to_append)
        appended = self._driver.append(batches=ready.to_append, epoch=ready.epoch)
        # Nobody waits for it: what is committed is heard from the driver.
        appended.add_done_callback(lambda done: done.cancelled() or done.exception())
        if appended.done() and appended.exception() is not None:
            logger.warning("an append was refused: %s", appended.exception())
            self._carry_out(self.controller.append_failed(now_ms()))

    def close(self) -> None:
        """Whoever waits hears that this is the controller no more; there is no further turn."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._carry_out(self.controller.renounce(now_ms()))
        self.publishing.close()


def _error_of(response: UpdateKRaftVersionResponse) -> KraftError | None:
    """Return the raft layer's refusal as an exception, None for success."""
    if response.error == 0:
        return None
    message = response.message or f"the raft layer refused with error {response.error}"
    for kind in (InvalidUpdateVersionError, RequestTimedOutError, UnsupportedVersionError):
        if kind.kafka_code == response.error:
            return kind(message)
    if response.error == NOT_LEADER_OR_FOLLOWER:
        return NotControllerError(message)
    error = KraftError(message)
    error.kafka_code = response.error
    return error


def load_latest(store: MetadataStore) -> Cluster:
    """The state of the latest snapshot, empty where there is none; with a journal.

    Configurations that Kafka does not know are passed over, as there.
    """
    cluster = Cluster(is_supported_config=is_supported_config)
    snapshot = store.latest_snapshot()
    if snapshot is not None:
        with cluster.loading_snapshot(snapshot.id.offset) as callbacks:
            SnapshotReader(snapshot.data).read(cluster.table, **callbacks)
    cluster.start_journal()
    return cluster


def load_bootstrap(metadata_log_dir: str) -> tuple[Record, ...]:
    """What formatting left for the first controller to write; Kafka's default without a file.

    Raises CorruptRecordError, InvalidRequestError, StorageError for a file that is of no use.
    """
    path = Path(metadata_log_dir) / BOOTSTRAP_CHECKPOINT
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return default_bootstrap()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    return read_bootstrap(data, path=path)
