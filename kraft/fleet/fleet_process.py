"""``FleetProcess``: a worker process of the fleet, from its parent's side.

Starts ``python -m kraft.fleet.worker``, sends it commands and passes on its lines, which a thread
reads. A process that ends by itself is a fault of the fleet, never of the quorum: its parent gets
the line ``{"ended": exit code, "said": the end of its standard error}``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kraft.fleet.worker import WorkerPlan

_END_TIMEOUT_S = 10.0

#: glibc's allocator keeps the buffers of responses, of up to 8 MiB each. New ones would be pages of
#: the kernel, each of which is a page fault and is zeroed: a fifth of a process's CPU time while a
#: thousand brokers fetch.
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}


class FleetProcess:
    """One worker. ``received`` is called in another thread with each of its lines."""

    def __init__(
        self,
        number: int,
        plan: WorkerPlan,
        directory: Path,
        received: Callable[[int, dict[str, Any]], None],
    ) -> None:
        self.number = number
        self.broker_ids = frozenset(id for id, _, _ in plan.brokers)
        self._received = received
        self._errors = directory / f"worker-{number}.log"
        path = directory / f"worker-{number}.json"
        path.write_text(json.dumps(asdict(plan)))
        self._is_ending = False
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kraft.fleet.worker", str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **_ALLOCATOR},
                # Ctrl-C reaches only the parent, which ends the worker.
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._received(self.number, json.loads(line))
        code = self._process.wait()
        if not self._is_ending:
            said = self._errors.read_text(errors="replace")[-2000:]
            self._received(self.number, {"ended": code, "said": said})

    def send(self, **command: Any) -> None:
        """Send a command; a process that has ended gets none."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """Close the input, which ends the process; kill it if that takes too long."""
        self._is_ending = True
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_TIMEOUT_S)
