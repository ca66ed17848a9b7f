"""The compiled loop of a broker's plain connections, over loopback.

``data_loop_fetch``        responses of 1 MiB from the page cache on one connection, with 40 us of
                           Python work for each request
``data_loop_fetch_ahead``  the same with two requests ahead
``data_loop_fetch_four``   the same on four connections, one request each
``copied_fetch``           the first, where uvloop's transport copies the file
``slice_read``             1 MiB of a slice into a bytes object: the copy of connections with TLS
``sendfile_*``             the floors: a loop of C that answers every request by sendfile, without
                           work
``small_requests_*``       responses of 64 bytes, the same work, by the data loop, uvloop and
                           asyncio; on one connection and on 50

Client and floor are `loopback_peer.c`, compiled here; needs gcc. Both servers are measured in
turns: where the system puts the threads of two cores changes the floor by half.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conftest import FULL, Sizes
from benchmarks.timings import summary
from kraft._core.sockets.file_slice import FileSlice, SharedFile
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import request_frame

ROOT = Path(__file__).parents[1]
MIB = 1 << 20
ROUNDS = 5
ROUND_S = 0.6
#: Connections, and requests ahead on each.
FETCHES = {"fetch": (1, 1), "fetch_ahead": (1, 2), "fetch_four": (4, 1)}
SMALL = {"one": (1, 1), "50": (50, 1)}
KINDS = ("data_loop", "uvloop", "asyncio")

Note = Callable[..., None]


class Loads:
    """The compiled client, and the servers that it measures."""

    def __init__(self, directory: Path, round_s: float) -> None:
        self.peer = directory / "loopback_peer"
        self.file = directory / "segment"
        self._request = directory / "request"
        self._round_s = round_s
        source = ROOT / "benchmarks" / "loopback_peer.c"
        subprocess.run(["gcc", "-O2", "-Wall", "-o", self.peer, source], check=True)
        self.file.write_bytes(bytes(range(256)) * (MIB // 256))
        self._request.write_bytes(request_frame(FETCH, 12, 7, "client", bytes(40)))

    @contextlib.contextmanager
    def node(self, kind: str, size: int) -> Iterator[int]:
        command = [sys.executable, "-m", "benchmarks.data_loop_node", kind, str(self.file)]
        with self._running([*command, str(size)]) as port:
            yield port

    @contextlib.contextmanager
    def floor(self) -> Iterator[int]:
        size = str(self._request.stat().st_size)
        with self._running([str(self.peer), "serve", str(self.file), str(MIB), size]) as port:
            yield port

    @contextlib.contextmanager
    def _running(self, command: list[str]) -> Iterator[int]:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield int(process.stdout.readline())
            finally:
                process.kill()

    def response_s(self, port: int, connections: int, ahead: int) -> float:
        """Return the seconds of a response, while as many are asked for."""
        command = [str(self.peer), "load", str(port), str(connections), str(ahead)]
        command += [str(self._round_s), str(self._request)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        responses, seconds = printed.split()
        return float(seconds) / int(responses)


@pytest.fixture
def loads(tmp_path: Path, sizes: Sizes) -> Loads:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    return Loads(tmp_path, ROUND_S if sizes == FULL else ROUND_S / 6)


def bench_fetch(loads: Loads, figure: Note) -> None:
    with (
        loads.node("data_loop", MIB) as loop,
        loads.node("uvloop", MIB) as copying,
        loads.floor() as floor,
    ):
        for work, (connections, ahead) in FETCHES.items():
            values: dict[str, list[float]] = {f"data_loop_{work}": [], f"sendfile_{work}": []}
            ports = dict(zip(values, (loop, floor), strict=True))
            if work == "fetch":
                values["copied_fetch"] = []
                ports["copied_fetch"] = copying
            for _ in range(ROUNDS):
                for name, taken in values.items():
                    taken.append(loads.response_s(ports[name], connections, ahead))
            for name, taken in values.items():
                figure(name, unit="responses", count=1, bytes=MIB, **summary(taken))


def bench_small_requests(loads: Loads, figure: Note) -> None:
    with contextlib.ExitStack() as running:
        ports = {kind: running.enter_context(loads.node(kind, 0)) for kind in KINDS}
        for amount, (connections, ahead) in SMALL.items():
            values: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for _ in range(ROUNDS):
                for kind, taken in values.items():
                    taken.append(loads.response_s(ports[kind], connections, ahead))
            for kind, taken in values.items():
                work = f"small_requests_{amount}_{kind}"
                figure(work, unit="requests", count=1, **summary(taken))


def bench_slice_read(benchmark: Any, measured: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(MIB))
    part = FileSlice(SharedFile(path), 0, MIB)
    benchmark.pedantic(part.read, (0, MIB), rounds=200, warmup_rounds=5)
    measured("slice_read", unit="bytes", count=MIB, bytes=MIB)
