"""The node of `bench_data_loop`: a listener whose handler does a little work for each request.

``python -m benchmarks.data_loop_node {data_loop,uvloop,asyncio} FILE SIZE WORK_US`` prints its
port. Each response has the next ``SIZE`` bytes of the file, again from its start after its end; 0:
64 bytes of memory. Each request takes ``WORK_US`` of Python work.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.log.disk import OsDisk
from kraft.network.handler import Handler, HandlerAnswer
from kraft.network.transport import Transport, TransportConfig
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import RequestHeader
from kraft.raft.interface import Event
from kraft.raft.rpc import LogSlice, SnapshotSlice
from kraft.raft.voters import Endpoint
from kraft.security.protocols import PeerIdentity
from kraft.server.process import loop_factory

_SMALL = bytes(64)


def _unexpected(event: Event | LogSlice | SnapshotSlice) -> memoryview:
    raise AssertionError(f"no request is the raft node's: {event}")


async def _serve(kind: str, path: str, size: int, work_s: float) -> None:
    file = OsDisk().open(path)
    positions = itertools.cycle(range(0, file.size(), size or file.size()))

    async def answer(
        header: RequestHeader, body: bytes | memoryview, sender: PeerIdentity
    ) -> HandlerAnswer:
        end = time.perf_counter() + work_s
        while time.perf_counter() < end:
            pass
        return HandlerAnswer([FileSlice(file, next(positions), size)] if size else _SMALL)

    transport = Transport(
        TransportConfig(
            1, (Endpoint("PLAINTEXT", "127.0.0.1", 0),), has_data_loop=kind == "data_loop"
        ),
        lambda event: None,
        _unexpected,
        handlers={FETCH.key: Handler(FETCH, answer)},
    )
    await transport.start()
    print(transport.endpoints[0].port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    chosen = None if sys.argv[1] == "asyncio" else loop_factory()
    with asyncio.Runner(loop_factory=chosen) as runner:
        runner.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) / 1e6))
