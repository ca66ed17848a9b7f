"""A process of the fleet: many light brokers on one event loop.

``python -m kraft.fleet.worker FILE`` runs the `WorkerPlan` of a JSON file. The process reads
commands from standard input and writes events to standard output, a JSON object a line;
`fleet_process` is the other side. Times are those of the system's monotonic clock, which all
processes of a machine share. The process ends when its standard input closes, however its parent
ends.

Commands (``do``): ``start``, ``die``, ``stop`` (controlled), ``lag``, ``delay``, ``expect`` (time
how a change of the marker topic reaches each broker), ``watch`` (the partitions of lost brokers),
``out_of_sync``, ``offset``, ``digest``, ``use`` (the fleet's own cost so far), ``catch_up`` (load
the snapshot of an earlier run, and the log behind it), ``release`` (held brokers), ``save`` (a
snapshot, for the next run) and ``end``.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import sys
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kraft.admin.settings import read_admin_settings
from kraft.collector import collect_rarely
from kraft.errors import KraftError
from kraft.fleet.broker_context import BrokerContext
from kraft.fleet.light_broker import LightBroker
from kraft.fleet.own_cost import ProcessCounts, Tally
from kraft.fleet.partition_rules import (
    RowCount,
    are_led_by,
    are_out_of_sync,
    changed_rows,
    table_digest,
)
from kraft.fleet.shared_metadata import SharedMetadata
from kraft.fleet.simulated_replicas import CATCH_UP_MS, LAG_MS, SimulatedReplicas
from kraft.fleet.state_directory import SavedSnapshot, snapshot_path
from kraft.image.publishing import ImageDelta
from kraft.image.snapshot_generation import SnapshotGeneration
from kraft.network.authentication import ListenerSecurity
from kraft.network.throttled_log import ThrottledLog
from kraft.network.tls_context import TlsContexts
from kraft.raft.rpc import OffsetAndEpoch
from kraft.raft.voters import Endpoint
from kraft.records import Uuid
from kraft.security.protocols import SecurityProtocol
from kraft.server.descriptors import raise_soft_limit
from kraft.server.process import loop_factory

#: The topic whose setting MARKER_SETTING the fleet changes to time the propagation of one change.
MARKER_TOPIC = "kraft-fleet-marker"
MARKER_SETTING = "retention.ms"
_SWEEP_S = 0.25
_PROBE_S = 0.05
#: The bytes of a snapshot that are loaded in one turn of the event loop.
_LOADED_BYTES = 4 << 20
#: Errors of a connection whose cause is this machine.
_OWN_FAULTS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)
_STATISTICS_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The brokers of one process, as the JSON file that its process reads.

    ``brokers`` are (id, rack, directory ids). ``properties`` is the path of a Kafka client's
    properties, or "". ``is_cold``: each broker fetches all metadata itself; else those after the
    first one start with its log. ``number`` is that of the process. ``snapshot`` is (path, offset,
    epoch) of the metadata that all of them have on their disks, as brokers that ran before.
    """

    cluster_id: str
    bootstrap_controllers: str
    brokers: list[tuple[int, str | None, list[str]]]
    properties: str = ""
    heartbeat_interval_ms: float = 2000.0
    lag_ms: float = LAG_MS
    catch_up_ms: float = CATCH_UP_MS
    is_cold: bool = False
    number: int = 0
    snapshot: tuple[str, int, int] | None = None


@dataclass(slots=True)
class _Marker:
    """A change whose arrival is timed: its end offset, and the brokers that lack it."""

    number: int
    offset: int
    waiting: set[int]
    arrived: list[tuple[int, float]]


@dataclass(slots=True)
class _Loss:
    """Lost brokers whose partitions have to get other leaders: those that ``led`` counts.

    ``offset`` is where the last of them lost its leadership, -1 before.
    """

    token: int
    led: RowCount
    offset: int = -1


class FleetWorker:
    """The brokers of this process, and what is observed of them."""

    def __init__(self, plan: WorkerPlan, loop: asyncio.AbstractEventLoop) -> None:
        self._plan = plan
        self._loop = loop
        settings = read_admin_settings(plan.bootstrap_controllers, plan.properties or None)
        self.shared = SharedMetadata(self._on_delta)
        self._context = BrokerContext(
            loop,
            plan.cluster_id,
            tuple(Endpoint("CONTROLLER", *each) for each in settings.bootstrap_controllers),
            _listener_security(settings.security.tls, settings.security.credentials),
            ThrottledLog(logging.getLogger(__name__), time.monotonic),
            self.shared,
            self._report,
            self._broken,
            plan.heartbeat_interval_ms,
        )
        self.brokers = {
            id: LightBroker(id, rack, [Uuid.parse(each) for each in ids], self._context)
            for id, rack, ids in plan.brokers
        }
        for broker in self.brokers.values():
            broker.on_applied = self._applied
        self._replicas = SimulatedReplicas(
            loop,
            self.brokers,
            lambda: self.shared.image,
            lambda id: self.shared.state.table.broker_rows(id),
            lag_ms=plan.lag_ms,
            catch_up_ms=plan.catch_up_ms,
        )
        #: Counts the partitions that `come_back` waits for.
        self._out_of_sync = RowCount(are_out_of_sync, self.shared.state.table)
        self._expected_marker = -1
        self._markers: list[_Marker] = []
        self._losses: list[_Loss] = []
        self._everywhere: list[tuple[int, int, set[int]]] = []
        self._lines: list[str] = []
        self._input = bytearray()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Fetches the log behind the plan's snapshot, while `_catch_up` runs.
        self._observer: LightBroker | None = None
        #: How late the loop was at most since the last statistics: the fleet's own delay.
        self._delay_ms = 0.0
        #: How late the loop was each time that `probe` looked.
        self._late = Tally()
        self.ended = asyncio.Event()

    # -- output

    def say(self, **line: Any) -> None:
        """Write one line to the parent with the next flush."""
        if not self._lines:
            self._loop.call_soon(self._flush)
        self._lines.append(json.dumps(line))

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        try:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            self.ended.set()

    def _report(self, name: str, broker: int, value: float | None = None) -> None:
        if name == "broker_stopped":
            self._forget(broker)
        self.say(name=name, broker=broker, value=value, at=time.monotonic())

    def _broken(self, broker: int, error: Exception) -> None:
        self.say(broken=f"broker {broker}: {error}")

    # -- metadata

    def _on_delta(self, delta: ImageDelta, size: int) -> None:
        rows = changed_rows(delta)
        self._replicas.on_delta(delta, rows)
        self._out_of_sync.note(delta, rows, self.shared.state.table)
        image = delta.image
        if not delta.is_full:
            self._note_fenced(delta)
        if self._expected_marker >= 0:
            value = image.state.configs.topic(MARKER_TOPIC).get(MARKER_SETTING)
            if value == str(self._expected_marker):
                waiting = {each.id for each in self.brokers.values() if each.is_running}
                self._markers.append(_Marker(self._expected_marker, image.offset, waiting, []))
                self._expected_marker = -1
        for loss in self._losses:
            if loss.offset < 0:
                loss.led.note(delta, rows, self.shared.state.table)
                self._look_at_loss(loss)
        epoch = image.epoch
        before = -1 if delta.before is None else delta.before.epoch
        if epoch != before:
            self.say(name="controller_elected", broker=None, value=epoch, at=time.monotonic())

    def _note_fenced(self, delta: ImageDelta) -> None:
        """Report the brokers of this process that the controllers fenced.

        While none of them is in service, a delta is what they missed: the times are not known.
        """
        fenced: list[int] = []
        for id, change in delta.changes.get("broker", {}).items():
            was_fenced = change.before is None or change.before.fenced
            is_fenced = change.after is None or change.after.fenced
            if isinstance(id, int) and id in self.brokers and is_fenced and not was_fenced:
                fenced.append(id)
        if fenced and any(each.is_running for each in self.brokers.values()):
            for id in fenced:
                self._report("broker_fenced", id)
        for id in fenced:
            self.brokers[id].note_fenced()

    def _look_at_loss(self, loss: _Loss) -> None:
        if loss.led.count:
            return
        loss.offset = self.shared.next_offset
        self.say(decided=loss.token, offset=loss.offset, at=time.monotonic())
        waiting = {
            each.id
            for each in self.brokers.values()
            if each.is_running and each.applied_offset < loss.offset
        }
        self._everywhere.append((loss.token, loss.offset, waiting))
        self._settle()

    def _applied(self, broker: LightBroker, offset: int) -> None:
        if not self._markers and not self._everywhere:
            return
        for marker in self._markers:
            if offset >= marker.offset and broker.id in marker.waiting:
                marker.waiting.discard(broker.id)
                marker.arrived.append((broker.id, time.monotonic()))
        for _, needed, waiting in self._everywhere:
            if offset >= needed:
                waiting.discard(broker.id)
        self._settle()

    def _settle(self) -> None:
        """Report the markers and losses that every broker of this process has applied."""
        for marker in [each for each in self._markers if not each.waiting]:
            self._markers.remove(marker)
            self.say(marker=marker.number, offset=marker.offset, arrived=marker.arrived)
        for each in [each for each in self._everywhere if not each[2]]:
            self._everywhere.remove(each)
            self.say(everywhere=each[0], offset=each[1], at=time.monotonic())

    # -- commands

    def read_input(self, data: bytes) -> None:
        """Carry out the whole lines that have arrived."""
        self._input += data
        *lines, rest = bytes(self._input).split(b"\n")
        self._input = bytearray(rest)
        for line in lines:
            if line.strip():
                self._carry_out(json.loads(line))

    def _carry_out(self, command: dict[str, Any]) -> None:
        ids = command.get("brokers", [])
        match command["do"]:
            case "start":
                self._run(
                    self._start(
                        ids, command["spread_ms"], command["at_once"], is_held=command["is_held"]
                    )
                )
            case "catch_up":
                self._run(self._catch_up(command["token"]))
            case "release":
                for broker in self._chosen(ids):
                    broker.release()
            case "die":
                for broker in self._chosen(ids):
                    if broker.is_up:
                        broker.die()
                        self._forget(broker.id)
            case "stop":
                for broker in self._chosen(ids):
                    broker.stop()
            case "lag":
                self._replicas.set_lagging(ids, is_lagging=command["is_lagging"])
            case "delay":
                for broker in self._chosen(ids):
                    broker.fetch_delay_s = command["ms"] / 1000
            case "expect":
                self._expected_marker = command["marker"]
                self.say(reply=command["token"])
            case "watch":
                led = RowCount(are_led_by(np.array(ids, np.int32)), self.shared.state.table)
                loss = _Loss(command["token"], led)
                self._losses = [*self._losses[-3:], loss]
                self._look_at_loss(loss)
            case "out_of_sync":
                self.say(reply=command["token"], value=self._out_of_sync.count)
            case "offset":
                applied = [each.applied_offset for each in self.brokers.values() if each.is_running]
                slowest = min(applied, default=self.shared.next_offset)
                self.say(reply=command["token"], slowest=slowest)
            case "digest":
                self._write_statistics()
                self.say(
                    reply=command["token"],
                    value=table_digest(self.shared.state.table),
                    offset=self.shared.next_offset,
                    breach_count=self._replicas.breach_count,
                    breaches=[str(each) for each in self._replicas.breaches],
                    waiting=[
                        each.id
                        for each in self.brokers.values()
                        if each.is_up and not each.is_running
                    ],
                    applied=[
                        (each.id, each.applied_offset)
                        for each in self.brokers.values()
                        if each.is_running
                    ],
                )
            case "use":
                counts = self.shared.counts
                use = ProcessCounts(
                    time.process_time(),
                    counts.received_bytes + counts.snapshot_bytes,
                    self._late,
                    self.shared.applied,
                )
                self.say(reply=command["token"], use=use.as_dict())
            case "save":
                self._run(self._save(command["token"], Path(command["path"])))
            case "end":
                self.ended.set()

    def _chosen(self, ids: Iterable[int]) -> list[LightBroker]:
        return [self.brokers[id] for id in ids if id in self.brokers]

    def _forget(self, id: int) -> None:
        """Forget the requests of a broker that is down, and wait for it no longer."""
        self._replicas.forget(id)
        for marker in self._markers:
            marker.waiting.discard(id)
        for _, _, waiting in self._everywhere:
            waiting.discard(id)
        self._settle()

    async def _start(
        self, ids: list[int], spread_ms: float, at_once: int, *, is_held: bool
    ) -> None:
        """Start brokers one after the other within ``spread_ms``, or as soon as they may.

        At most ``at_once`` brokers of this process are up and not unfenced yet (0: any number).
        The first broker of the process loads the metadata; unless the plan is cold, the others
        start with its log, as brokers that ran before.
        """
        brokers = [each for each in self._chosen(ids) if not each.is_up]
        begun = self._loop.time()
        for index, broker in enumerate(brokers):
            while at_once and sum(each.is_starting for each in brokers[:index]) >= at_once:
                await asyncio.sleep(_SWEEP_S / 10)
            if not self._plan.is_cold and broker.position.end_offset == 0:
                first = await self._first_position()
                if first is not None:
                    broker.position = first.position.committed_copy()
            if not broker.is_up:
                broker.start(is_held=is_held)
            due = begun + spread_ms / 1000 * (index + 1) / len(brokers)
            if due > self._loop.time():
                await asyncio.sleep(due - self._loop.time())

    async def _first_position(self) -> LightBroker | None:
        """Return a broker that has loaded all metadata; None if none has begun to."""
        running = [each for each in self.brokers.values() if each.is_up]
        if not running:
            return None
        first = max(running, key=lambda each: each.position.end_offset)
        await self._caught_up(first)
        return first

    async def _caught_up(self, broker: LightBroker) -> None:
        """Wait until a broker has what its leader reported to be committed, or is down."""
        while broker.is_up and not broker.position.is_caught_up:
            await asyncio.sleep(_SWEEP_S / 10)

    async def _catch_up(self, token: int) -> None:
        """Load the plan's snapshot, and fetch the log behind it once for all brokers here."""
        assert self._plan.snapshot is not None
        path, offset, epoch = self._plan.snapshot
        try:
            await self._load(path, offset, epoch)
        except (KraftError, OSError) as error:
            self.say(unloaded=f"{path}: {error}")
            return
        # A run that saves its snapshot ends its brokers in order. The log behind the snapshot may
        # have registrations of a later run, which did not.
        for id, registration in self.shared.state.state.brokers.items():
            if id in self.brokers:
                self.brokers[id].note_clean_stop(registration.epoch)
        first, counts = next(iter(self.brokers.values())), self.shared.counts
        # It has the id of a broker that is down, and never registers.
        observer = LightBroker(
            first.id, first.rack, first.directories, self._context, has_session=False
        )
        observer.position.begin_at(offset, epoch)
        self._observer = observer
        observer.start()
        await self._caught_up(observer)
        observer.die()
        self._observer = None
        for broker in self.brokers.values():
            broker.position = observer.position.committed_copy()
        self.say(
            reply=token,
            offset=observer.position.committed_offset,
            bytes=counts.received_bytes + counts.snapshot_bytes,
        )

    async def _load(self, path: str, offset: int, epoch: int) -> None:
        """Load the snapshot that the brokers of this process have on their disks."""
        size = os.path.getsize(path)
        loading = self.shared.begin_snapshot(OffsetAndEpoch(offset, epoch))
        with open(path, "rb") as file:
            while part := file.read(_LOADED_BYTES):
                loading.add(part, size)
                await asyncio.sleep(0)
        self.shared.finish_snapshot(loading)

    async def _save(self, token: int, directory: Path) -> None:
        """Write a snapshot of the applied metadata, for brokers that start again."""
        image = self.shared.image
        while image is None or not image.is_batch_aligned:
            await asyncio.sleep(_SWEEP_S)
            image = self.shared.image
        try:
            generation = SnapshotGeneration(image, timestamp_ms=int(time.time() * 1000))
            path = snapshot_path(
                directory, self._plan.number, generation.end_offset, generation.epoch
            )
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as file:
                while (chunks := generation.next_slice()) is not None:
                    for chunk in chunks:
                        file.write(chunk)
                    # The brokers send their heartbeats meanwhile.
                    await asyncio.sleep(0)
                size = file.tell()
        except OSError as error:
            self.say(reply=token, error=f"cannot write to {directory}: {error}")
            return
        saved = SavedSnapshot(str(path.absolute()), generation.end_offset, generation.epoch, size)
        self.say(reply=token, saved=saved)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()  # type: ignore[misc]

    # -- periodic work

    async def probe(self) -> None:
        """Count how late the loop is, at times that do not depend on what it does."""
        while True:
            due = self._loop.time() + _PROBE_S
            await asyncio.sleep(_PROBE_S)
            self._late.add(max(self._loop.time() - due, 0.0) * 1000)

    async def sweep(self) -> None:
        """Check the timeouts of requests, and write the statistics once a second."""
        told = 0.0
        while True:
            due = self._loop.time() + _SWEEP_S
            await asyncio.sleep(_SWEEP_S)
            now = self._loop.time()
            self._delay_ms = max(self._delay_ms, (now - due) * 1000)
            for broker in self.brokers.values():
                if broker.is_up:
                    broker.check_time(now)
            if self._observer is not None:
                self._observer.check_time(now)
            if now - told >= _STATISTICS_S:
                told = now
                self._write_statistics()

    def _write_statistics(self) -> None:
        running = [each.applied_offset for each in self.brokers.values() if each.is_running]
        table, counts = self.shared.state.table, self.shared.counts
        self.say(
            statistics={
                "leader_port": next(
                    (port for each in self.brokers.values() if (port := each.leader_port)), None
                ),
                "up": sum(each.is_up for each in self.brokers.values()),
                "unfenced": len(running),
                "partitions": table.partition_count,
                "offset": self.shared.next_offset,
                "delay_ms": self._delay_ms,
                "applied_lag": self.shared.next_offset - min(running) if running else 0,
                "received_bytes": counts.received_bytes + counts.snapshot_bytes,
                "decoded_bytes": counts.decoded_bytes + counts.decoded_snapshot_bytes,
                "fetches": counts.fetches,
                "heartbeats": counts.heartbeats,
                "outcomes": dict(self._replicas.outcomes),
            }
        )
        self._delay_ms = 0.0


def _listener_security(tls: Any, credentials: Any) -> ListenerSecurity:
    """Return the security of a client's connections as that of a node's."""
    if tls is None:
        protocol = SecurityProtocol.SASL_PLAINTEXT if credentials else SecurityProtocol.PLAINTEXT
        return ListenerSecurity(protocol, credentials=credentials)
    protocol = SecurityProtocol.SASL_SSL if credentials else SecurityProtocol.SSL
    return ListenerSecurity(protocol, TlsContexts(tls, tls), credentials=credentials)


class _FaultHandler(logging.Handler):
    """Reports failures of this machine to the parent: the quorum has no part in them."""

    def __init__(self, worker: FleetWorker) -> None:
        super().__init__()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        for number in _OWN_FAULTS:
            if os.strerror(number) in text:
                self._worker.say(fault=text)


class _Input(asyncio.Protocol):
    """Standard input: commands; its end is the end of the process."""

    def __init__(self, worker: FleetWorker) -> None:
        self._worker = worker

    def data_received(self, data: bytes) -> None:
        self._worker.read_input(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.ended.set()


async def _run(plan: WorkerPlan) -> None:
    loop = asyncio.get_running_loop()
    worker = FleetWorker(plan, loop)
    failures: list[BaseException] = []

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        failures.append(context.get("exception") or RuntimeError(context["message"]))
        worker.ended.set()

    loop.set_exception_handler(failed)
    logging.getLogger().addHandler(_FaultHandler(worker))
    await loop.connect_read_pipe(lambda: _Input(worker), sys.stdin.buffer)
    periodic = [loop.create_task(worker.sweep()), loop.create_task(worker.probe())]
    worker.say(ready=len(worker.brokers))
    await worker.ended.wait()
    for task in periodic:
        task.cancel()
    for broker in worker.brokers.values():
        if broker.is_up:
            broker.die()
    if failures:
        raise failures[0]


def main() -> None:
    """Run the plan of the file until the input ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    raise_soft_limit()
    plan = WorkerPlan(**json.loads(Path(sys.argv[1]).read_text()))
    collect_rarely()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(plan))


if __name__ == "__main__":
    main()
