"""A process that writes blocks to a file of its own and syncs each: the floor of a quorum's node.

``python -m benchmarks.bare_writer FILE SIZE SECONDS`` waits for a line on standard input, so that
several begin together, and prints a line of JSON: blocks, and the seconds that they took.
"""

from __future__ import annotations

import json
import os
import sys
import time


def write_blocks(path: str, size: int, seconds: float) -> tuple[int, float]:
    """Blocks of `size` bytes, each written and synced before the next; how many, and how long."""
    block = bytes(size)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    count, begin = 0, time.perf_counter()
    while (taken := time.perf_counter() - begin) < seconds:
        os.write(descriptor, block)
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    return count, taken


def main() -> None:
    path, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    sys.stdin.readline()
    count, taken = write_blocks(path, size, seconds)
    print(json.dumps({"count": count, "seconds": taken}))


if __name__ == "__main__":
    main()
