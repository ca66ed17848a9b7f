"""A process that writes and syncs blocks to its own file: the physical floor of a quorum's node.

``python -m benchmarks.bare_writer FILE SIZE SECONDS`` waits for a line on standard input, so that
several processes start together, and prints a line of JSON: blocks, and their time in seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.harness.line_process import LineProcess


def write_blocks(path: str, size: int, seconds: float) -> tuple[int, float]:
    """Write blocks of `size` bytes, syncing each; return their number and time."""
    block = bytes(size)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    count, begin = 0, time.perf_counter()
    while (taken := time.perf_counter() - begin) < seconds:
        os.write(descriptor, block)
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    return count, taken


def write_together(directory: Path, writers: int, size: int, seconds: float) -> float:
    """Return the total bytes per second of several such processes, each with its own file."""
    paths = [directory / f"bare-{number}" for number in range(writers)]
    command = [sys.executable, "-m", "benchmarks.bare_writer"]
    with ExitStack() as running:
        processes = [
            running.enter_context(LineProcess([*command, str(path), str(size), str(seconds)]))
            for path in paths
        ]
        time.sleep(0.2)
        for process in processes:
            process.send("")
        results = [json.loads(process.read_line()) for process in processes]
    for path in paths:
        path.unlink()
    return sum(float(each["count"] * size / each["seconds"]) for each in results)


def main() -> None:
    path, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    sys.stdin.readline()
    count, taken = write_blocks(path, size, seconds)
    print(json.dumps({"count": count, "seconds": taken}))


if __name__ == "__main__":
    main()
