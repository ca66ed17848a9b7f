"""Disk proof: crash a workload at every boundary, and flip bits in the files that it leaves.

    python -m tests.simulation.disk_proof --operations 500 --variants 5 --flips 10000 --seed 1

At each write, sync and rename of the workload, the disk stops in each of the five ways of `Loss`,
and a restarted node opens what is left: no acknowledged record may be lost, the election state may
not go back, the store must open. Some restarts crash too. A flipped bit must raise a `KraftError`,
or change nothing in the state with which the node starts.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from random import Random

from kraft.errors import KraftError
from kraft.raft.rpc import LogSlice
from tests.harness.crash_disk import CrashDisk, Loss
from tests.harness.disk_workload import BrokenPromiseError, Workload

#: One restart in so many crashes too, at each of its boundaries.
CRASHED_RESTARTS = 50


@dataclass
class CrashReport:
    boundaries: int = 0
    crashes: int = 0
    crashed_restarts: int = 0


def prove_crashes(seed: int, operations: int, variants: int = len(Loss)) -> CrashReport:
    """Crash a workload at every boundary; a `BrokenPromiseError` names the boundary."""
    random, report = Random(seed), CrashReport()
    disk = CrashDisk()
    workload = Workload(disk, Random(seed + 1))
    ways = list(Loss)[:variants]

    def crash() -> None:
        report.boundaries += 1
        for loss in ways:
            report.crashes += 1
            left = disk.after_crash(loss, random)
            try:
                if report.crashes % CRASHED_RESTARTS == 0:
                    report.crashed_restarts += _crash_restart(workload, left, random)
                workload.check(left)
            except BrokenPromiseError as violation:
                raise BrokenPromiseError(
                    f"seed {seed}, boundary {report.boundaries}, loss {loss.value}: {violation}"
                ) from violation

    disk.on_boundary = crash
    workload.run(operations)
    return report


def _crash_restart(workload: Workload, disk: CrashDisk, random: Random) -> int:
    """Crash the recovery of a crashed disk at each boundary; return their number."""
    stopped = CrashDisk.of(disk.files())
    lefts: list[CrashDisk] = []
    stopped.on_boundary = lambda: lefts.append(
        stopped.after_crash(random.choice(list(Loss)), random)
    )
    workload.open(stopped)
    for left in lefts:
        workload.check(left)
    return len(lefts)


@dataclass
class FlipReport:
    refused: int = 0
    harmless: int = 0


def prove_flips(seed: int, flips: int, operations: int = 60) -> FlipReport:
    """Flip one bit of a stopped node's files at a time; raise BrokenPromiseError for a change that
    no error reports.
    """
    random, report = Random(seed), FlipReport()
    while report.refused + report.harmless < flips:
        disk = CrashDisk()
        workload = Workload(disk, Random(random.random()))
        workload.run(operations)
        # Killed, not closed: exactly the written bytes are there.
        files = disk.files()
        expected = start_of(workload, CrashDisk.of(files))
        paths = sorted(
            path for path in files if path.startswith(workload.directory) and files[path]
        )
        sizes = [len(files[path]) for path in paths]
        for _ in range(min(1000, flips - report.refused - report.harmless)):
            # Choose half of the files by size and half uniformly, so that small files are hit too.
            path = random.choices(paths, sizes if random.random() < 0.5 else None)[0]
            content = bytearray(files[path])
            at = random.randrange(8 * len(content))
            content[at // 8] ^= 1 << at % 8
            try:
                found = start_of(workload, CrashDisk.of({**files, path: bytes(content)}))
            except KraftError:
                report.refused += 1
                continue
            if found != expected:
                raise BrokenPromiseError(
                    f"seed {seed}: bit {at} of {path} changed the state in silence"
                )
            report.harmless += 1
    return report


def start_of(workload: Workload, disk: CrashDisk) -> object:
    """Return all that a node starts with, and all that it would serve."""
    store = workload.open(disk)
    view = store.view
    batches, offset = [], view.start_offset
    while offset < view.end_offset:
        data = bytes(store.read(LogSlice(offset, view.end_offset, 1)))
        batches.append(data)
        offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
    snapshots = [(id, bytes(one.data)) for id in view.snapshots if (one := store.snapshot(id))]
    start = (
        store.election,
        view.start_offset,
        view.end_offset,
        view.epochs.entries,
        view.voters,
        view.kraft_version,
        batches,
        snapshots,
    )
    store.close()
    return start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=500)
    parser.add_argument("--variants", type=int, default=len(Loss))
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    try:
        crashes = prove_crashes(options.seed, options.operations, options.variants)
        print(
            f"{options.operations} operations: {crashes.crashes} crashes at {crashes.boundaries} "
            f"boundaries, {crashes.crashed_restarts} of restarts, nothing lost, "
            f"{time.perf_counter() - began:.1f} s"
        )
        began = time.perf_counter()
        flips = prove_flips(options.seed, options.flips)
        print(
            f"{options.flips} flipped bits: {flips.refused} refused, {flips.harmless} harmless, "
            f"{time.perf_counter() - began:.1f} s"
        )
    except BrokenPromiseError as violation:
        print(f"BROKEN PROMISE: {violation}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
