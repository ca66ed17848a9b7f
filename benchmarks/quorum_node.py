"""A node of kraft's quorum, built by `kraft.server.process`, that generates its own load.

``python -m benchmarks.quorum_node FILE`` reads the node's configuration. Commands on standard input
and its output are those of `peers/.../Quorum.java`:

``latency COUNT PER_SECOND SIZE``    appends of one record, one at a time; from call to future
``bandwidth COUNT IN_FLIGHT SIZE``   this many finished batches in flight, as from a controller;
                                     building each batch is part of the time
``commits COUNT IN_FLIGHT SIZE``     this many records in flight; ``groups`` is the number of syncs
                                     that made them durable
``snapshot FILE``                    makes a snapshot of the log's committed end, with the records
                                     of that checkpoint

A node that began with an empty log prints once how long it took from its start until it had caught
up with a leader's snapshot.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from benchmarks.timings import summary
from kraft._core.bytes.batch import BatchBuilder, scan
from kraft.raft.interface import RoleChange
from kraft.raft.rpc import OffsetAndEpoch
from kraft.records import Record, control
from kraft.server.config.loading import ServerConfig
from kraft.server.driver import now_ms
from kraft.server.process import QuorumNode, loop_factory


class LoadedNode:
    """A running node and its load."""

    def __init__(self, config: ServerConfig) -> None:
        self.node = QuorumNode(
            config,
            on_committed=self._note_commit,
            on_role=self._report_role,
            has_controller=False,
        )
        self._started_at: float | None = None

    async def start(self) -> None:
        if self.node.store.view.end_offset == 0:
            self._started_at = time.perf_counter()
        await self.node.start()

    def _note_commit(self, high_watermark: int) -> None:
        snapshot_id = self.node.store.view.latest_snapshot
        if self._started_at is not None and snapshot_id and snapshot_id.offset:
            seconds = time.perf_counter() - self._started_at
            size = self.node.store.view.snapshots[snapshot_id]
            report(work="catch_up", unit="snapshots", count=1, bytes=size, median_s=seconds)
            self._started_at = None

    def _report_role(self, change: RoleChange) -> None:
        if change.is_active:
            report(leader=change.leader_id, epoch=change.epoch)

    def append(self, size: int) -> asyncio.Future[int]:
        assert self.node.driver is not None
        return self.node.driver.append((bytes(size),))

    def append_batch(self, size: int) -> asyncio.Future[int]:
        assert self.node.driver is not None
        builder = BatchBuilder(0, 0, time.time_ns() // 1_000_000)
        builder.append(bytes(size))
        return self.node.driver.append(batches=builder.finish())

    async def latency(self, count: int, per_second: int, size: int) -> None:
        clock, taken = time.perf_counter, []
        due = clock()
        for _ in range(count):
            due += 1 / per_second
            begin = clock()
            await self.append(size)
            taken.append(clock() - begin)
            due = max(due, clock())
            await asyncio.sleep(due - clock())
        report(work="latency", unit="commits", count=1, bytes=size, **summary(taken))

    async def bandwidth(self, count: int, in_flight: int, size: int) -> None:
        seconds = await self._keep_in_flight(self.append_batch, count, in_flight, size)
        times = {"median_s": seconds, "worst_s": seconds}
        report(work="bandwidth", unit="batches", count=count, bytes=count * size, **times)

    async def commits(self, count: int, in_flight: int, size: int) -> None:
        before = self.node.writer.group_count
        seconds = await self._keep_in_flight(self.append, count, in_flight, size)
        groups = self.node.writer.group_count - before
        times = {"median_s": seconds, "worst_s": seconds, "groups": groups}
        report(work="commits", unit="commits", count=count, bytes=count * size, **times)

    async def snapshot(self, source: str) -> None:
        driver, store = self.node.driver, self.node.store
        assert driver is not None
        await self.append(1)
        log = driver.node.log
        id = OffsetAndEpoch(log.high_watermark, log.last_epoch)
        records: list[Record] = [
            control.KRaftVersion(kraft_version=log.kraft_version),
            log.voters.to_record(),
        ]
        now = int(now_ms())
        with store.snapshot_writer(
            id,
            last_contained_log_timestamp_ms=now,
            timestamp_ms=now,
            control_records=[
                (control.control_type(record), control.encode_control(record)) for record in records
            ],
        ) as writer:
            checkpoint = memoryview(Path(source).read_bytes())
            table = scan(checkpoint, verify_crc=False)
            # Without the first batch (header) and the last one (footer).
            writer.append_batches(checkpoint[int(table.positions[1]) : int(table.positions[-1])])
            writer.finish()
        stored = store.add_snapshot(id)
        driver.deliver(stored)
        report(work="snapshot", unit="snapshots", count=1, bytes=stored.size, median_s=0.0)

    async def _keep_in_flight(
        self, append: Callable[[int], asyncio.Future[int]], count: int, in_flight: int, size: int
    ) -> float:
        begin = time.perf_counter()
        waiting: deque[asyncio.Future[int]] = deque()
        for _ in range(count):
            if len(waiting) == in_flight:
                await waiting.popleft()
            waiting.append(append(size))
        await asyncio.gather(*waiting)
        return time.perf_counter() - begin


def report(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def serve(config: ServerConfig) -> None:
    loaded = LoadedNode(config)
    await loaded.start()
    commands: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        lines = os.read(0, 4096).decode()
        for line in lines.splitlines():
            commands.put_nowait(line)
        if not lines:
            # The process that started this node has ended.
            loop.remove_reader(0)
            commands.put_nowait("end")

    loop.add_reader(0, read)
    while (command := await commands.get()) != "end":
        name, *numbers = command.split()
        if name == "snapshot":
            await loaded.snapshot(*numbers)
            continue
        loads = {
            "latency": loaded.latency,
            "bandwidth": loaded.bandwidth,
            "commits": loaded.commits,
        }
        await loads[name](*map(int, numbers))
    await loaded.node.stop()


def main() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(ServerConfig.load(sys.argv[1])))


if __name__ == "__main__":
    main()
