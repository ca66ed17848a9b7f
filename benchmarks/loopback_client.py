"""The compiled client of `bench_data_loop` and `bench_broker_data`, `loopback_peer.c`.

A client in C takes so little CPU time that the server is measured, on two cores as well.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SOURCE = Path(__file__).with_name("loopback_peer.c")


class Load(NamedTuple):
    """What one run of the client counted after its first tenth, at least one, and all responses."""

    responses: int
    bytes: int
    seconds: float
    responses_with_warmup: int
    #: Of each counted response.
    taken_us: npt.NDArray[np.float64]


class LoopbackClient:
    """Compiles the client into a directory, and runs it; needs gcc."""

    def __init__(self, directory: Path, prefix: Sequence[str] = ()) -> None:
        self.path = directory / "loopback_peer"
        self._prefix = prefix
        subprocess.run(["gcc", "-O2", "-Wall", "-o", self.path, SOURCE], check=True)

    def begin(
        self, port: int, connections: int, ahead: int, seconds: float, requests: Path
    ) -> subprocess.Popen[str]:
        """Start a run against a port of loopback; ``requests`` holds frames, sent in turn."""
        given = [str(port), str(connections), str(ahead), str(seconds), str(requests)]
        command = [*self._prefix, str(self.path), "load", *given]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def run(self, port: int, connections: int, ahead: int, seconds: float, requests: Path) -> Load:
        return ended(self.begin(port, connections, ahead, seconds, requests))


def ended(process: subprocess.Popen[str]) -> Load:
    """Wait for the end of a run. Raises RuntimeError if it failed."""
    printed, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the client ended with {process.returncode}: see its standard error")
    counts, taken_us = printed.splitlines()
    responses, size, seconds, all_responses = counts.split()
    return Load(
        int(responses),
        int(size),
        float(seconds),
        int(all_responses),
        np.array(taken_us.split(), np.float64),
    )
