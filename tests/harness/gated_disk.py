"""A disk in memory whose writes wait for the test."""

from __future__ import annotations

import threading

from kraft.simulation.memory_disk import MemoryDisk

PATIENCE_S = 60


class GatedDisk(MemoryDisk):
    """A disk whose writes to files with this end of the name wait until ``gate`` is set."""

    def __init__(self, end_of_name: str = "") -> None:
        super().__init__()
        self.gate = threading.Event()
        self.is_asked = threading.Event()
        self._end_of_name = end_of_name

    def attempt(self, operation: str, path: str) -> None:
        if operation == "write" and path.endswith(self._end_of_name):
            self.is_asked.set()
            assert self.gate.wait(PATIENCE_S)
        super().attempt(operation, path)
