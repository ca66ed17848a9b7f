"""The limits and the memory of nodes that run as processes."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.harness.commands import heed_interrupts

#: The limit of open files of many shells and containers.
DESCRIPTORS = 1024


def with_few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, DESCRIPTORS))
    heed_interrupts()


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)
