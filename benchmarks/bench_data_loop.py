"""The compiled loop of a broker's plain connections, over loopback.

``data_loop_fetch``        each response is the next 1 MiB of a file in the page cache; on one
                           connection, with 40 us of Python work for each request
``data_loop_fetch_ahead``  the same with two requests ahead
``data_loop_fetch_four``   the same on four connections, one request each
``data_loop_fetch_idle``   the first without the Python work: the cost of the loop itself
``copied_fetch``           the first, where uvloop's transport copies the file
``slice_read``             1 MiB of a slice into a bytes object: the copy of connections with TLS
``sendfile_*``             the floors: a loop of C that answers every request by sendfile, without
                           work
``small_requests_*``       responses of 64 bytes, the same work, by the data loop, uvloop and
                           asyncio; on one connection and on 50

Client and floor are `loopback_peer.c`, compiled here; needs gcc, taskset and two cores. All
servers have the same client and the same cores: the first, or the first two of more; the client has
the last. Where the system puts the threads would otherwise change the floor by half. Rounds
alternate between the servers, every second round in the opposite order; the first tenth of a round
does not count. ``cpu_s`` is the median CPU time of the server for a response.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from benchmarks.conftest import FULL, Sizes
from benchmarks.loopback_client import LoopbackClient
from benchmarks.machine import cpu_seconds_of
from benchmarks.timings import summary
from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.disk import OsDisk
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import request_frame

ROOT = Path(__file__).parents[1]
MIB = 1 << 20
#: More than the caches of a CPU: a consumer reads each byte once.
FILE_MIB = 256
#: The Python work of a handler for a request.
WORK_US = 40
ROUNDS = 9
ROUND_S = 0.8
SMALL_ROUNDS = 5
#: Connections, and requests ahead on each.
FETCHES = {"fetch": (1, 1), "fetch_ahead": (1, 2), "fetch_four": (4, 1)}
SMALL = {"one": (1, 1), "50": (50, 1)}
KINDS = ("data_loop", "uvloop", "asyncio")

Note = Callable[..., None]


class Server(NamedTuple):
    pid: int
    port: int


class Loads:
    """The compiled client, and the servers that it measures."""

    def __init__(self, directory: Path, round_s: float) -> None:
        self.file = directory / "segment"
        self._request = directory / "request"
        self._round_s = round_s
        cores = sorted(os.sched_getaffinity(0))
        self._client = LoopbackClient(directory, ("taskset", "-c", str(cores[-1])))
        self._server_cores = ",".join(map(str, cores[: max(1, min(2, len(cores) - 1))]))
        self.file.write_bytes(bytes(range(256)) * (FILE_MIB * MIB // 256))
        self._request.write_bytes(request_frame(FETCH, 12, 7, "client", bytes(40)))

    @contextlib.contextmanager
    def node(self, kind: str, size: int, work_us: int = WORK_US) -> Iterator[Server]:
        command = [sys.executable, "-m", "benchmarks.data_loop_node", kind, str(self.file)]
        with self._running([*command, str(size), str(work_us)]) as server:
            yield server

    @contextlib.contextmanager
    def floor(self) -> Iterator[Server]:
        size = str(self._request.stat().st_size)
        with self._running(
            [str(self._client.path), "serve", str(self.file), str(MIB), size]
        ) as server:
            yield server

    @contextlib.contextmanager
    def _running(self, command: list[str]) -> Iterator[Server]:
        command = ["taskset", "-c", self._server_cores, *command]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield Server(process.pid, int(process.stdout.readline()))
            finally:
                process.kill()

    def measure(
        self, servers: dict[str, Server], connections: int, ahead: int, rounds: int = ROUNDS
    ) -> dict[str, dict[str, Any]]:
        """Return the figures of the servers, each asked for as many responses at a time."""
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
        for turn in range(rounds):
            for name in list(servers)[:: -1 if turn % 2 else 1]:
                taken[name].append(self._round(servers[name], connections, ahead))
        return {
            name: {
                **summary([seconds for seconds, _ in values]),
                "cpu_s": median(cpu_s for _, cpu_s in values),
            }
            for name, values in taken.items()
        }

    def _round(self, server: Server, connections: int, ahead: int) -> tuple[float, float]:
        """Return the seconds and the server's CPU seconds of a response."""
        before = cpu_seconds_of(server.pid)
        load = self._client.run(server.port, connections, ahead, self._round_s, self._request)
        cpu_s = cpu_seconds_of(server.pid) - before
        return load.seconds / load.responses, cpu_s / load.responses_with_warmup


@pytest.fixture
def loads(tmp_path: Path, sizes: Sizes) -> Loads:
    for tool in ("gcc", "taskset"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    return Loads(tmp_path, ROUND_S if sizes == FULL else ROUND_S / 6)


def bench_fetch(loads: Loads, figure: Note) -> None:
    with (
        loads.node("data_loop", MIB) as loop,
        loads.node("data_loop", MIB, 0) as idle,
        loads.node("uvloop", MIB) as copying,
        loads.floor() as floor,
    ):
        for work, (connections, ahead) in FETCHES.items():
            servers = {f"data_loop_{work}": loop, f"sendfile_{work}": floor}
            if work == "fetch":
                servers |= {"data_loop_fetch_idle": idle, "copied_fetch": copying}
            for name, figures in loads.measure(servers, connections, ahead).items():
                figure(name, unit="responses", count=1, bytes=MIB, **figures)


def bench_small_requests(loads: Loads, figure: Note) -> None:
    with contextlib.ExitStack() as running:
        servers = {kind: running.enter_context(loads.node(kind, 0)) for kind in KINDS}
        for amount, (connections, ahead) in SMALL.items():
            measured = loads.measure(servers, connections, ahead, SMALL_ROUNDS)
            for kind, figures in measured.items():
                figure(f"small_requests_{amount}_{kind}", unit="requests", count=1, **figures)


def bench_slice_read(benchmark: Any, measured: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(MIB))
    part = FileSlice(OsDisk().open(path), 0, MIB)
    benchmark.pedantic(part.read, rounds=200, warmup_rounds=5)
    measured("slice_read", unit="bytes", count=MIB, bytes=MIB)
