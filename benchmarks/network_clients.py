"""The load of the suite `network`: light brokers and an administrator on one event loop.

Every request is Kafka's protocol over loopback, sent in the same way to kraft and to Kafka. The
load runs in the process of the benchmark; its own work is part of no figure but latencies.
Brokers are light ones, as of ``kraft up``: they register, send heartbeats and store nothing.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, cast

from kraft._core.codec.metadata_codec import Message
from kraft.errors import NONE, error_name
from kraft.metadata.identifiers import random_uuid
from kraft.network.controller_connection import Address
from kraft.protocol.broker_heartbeat import (
    BROKER_HEARTBEAT,
    BrokerHeartbeatRequestData,
    BrokerHeartbeatResponseData,
)
from kraft.protocol.broker_registration import (
    BROKER_REGISTRATION,
    BrokerRegistrationRequestData,
    BrokerRegistrationResponseData,
)
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.headers import (
    Api,
    Ranges,
    newest_common_version,
    read_response_header,
    request_frame,
)
from kraft.records import Uuid
from kraft.records.versions import SUPPORTED_FEATURES

FIRST_BROKER_ID = 1001
RACKS = ("rack-a", "rack-b", "rack-c")
INTERVAL_S = 2.0
#: As many requests of registrations and first heartbeats as are in flight at once.
_REGISTERING = 32
_CLIENT_ID = "kraft-bench"

R = TypeVar("R", bound=Message)


class LoadConnection(asyncio.Protocol):
    """One connection to a controller; responses arrive in the order of the requests."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._correlation = 0
        self._waiting: dict[int, tuple[Api, int, asyncio.Future[tuple[bytes, int]]]] = {}
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(
        cls, address: Address, ranges: Ranges, tls: ssl.SSLContext | None = None
    ) -> LoadConnection:
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: cls(ranges), *address, ssl=tls)
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio's class.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for _, _, future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError(f"the connection was closed: {exc}"))
        self._waiting.clear()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) - at >= 4:
            end = at + 4 + int.from_bytes(received[at : at + 4], "big")
            if len(received) < end:
                break
            self._answer(bytes(received[at + 4 : end]))
            at = end
        if at:
            del received[:at]

    def _answer(self, frame: bytes) -> None:
        api, version, future = self._waiting.pop(int.from_bytes(frame[:4], "big"))
        _, position = read_response_header(frame, api, version)
        if not future.done():
            future.set_result((frame, position))

    def version(self, api: Api) -> int:
        version = newest_common_version(api, self._ranges)
        assert version is not None, api
        return version

    async def send(self, api: Api, body: bytes) -> tuple[bytes, int]:
        """Send a request of the newest version; return the response and its body's position."""
        if self._transport is None:
            raise ConnectionResetError("the connection is closed")
        self._correlation += 1
        version = self.version(api)
        future: asyncio.Future[tuple[bytes, int]] = asyncio.get_running_loop().create_future()
        self._waiting[self._correlation] = api, version, future
        self._transport.write(request_frame(api, version, self._correlation, _CLIENT_ID, body))
        return await future

    async def ask(self, api: Api, request: Message, response: type[R]) -> R:
        frame, at = await self.send(api, request.encode(self.version(api)))
        return response.decode(frame, self.version(api), at)

    def close(self) -> None:
        """Close the connection at once, as after a failure of the network."""
        if self._transport is not None:
            self._transport.abort()


class Heartbeat(NamedTuple):
    """A heartbeat: when it was due, and how long after that its response came; after it was sent,
    if that was a little earlier.
    """

    due_s: float
    taken_s: float


@dataclass(slots=True)
class LightBroker:
    id: int
    incarnation_id: Uuid = field(default_factory=random_uuid)
    log_dir: Uuid = field(default_factory=random_uuid)
    epoch: int = -1
    is_fenced: bool = True
    connection: LoadConnection | None = None

    @property
    def rack(self) -> str:
        return RACKS[self.id % len(RACKS)]


class LightBrokers:
    """The brokers of a cluster; `beat` sends their heartbeats to one controller, the leader."""

    def __init__(self, count: int, cluster_id: str) -> None:
        self.brokers = [LightBroker(FIRST_BROKER_ID + index) for index in range(count)]
        self._cluster_id = cluster_id
        self._address: Address = ("", 0)
        self._ranges: Ranges = {}
        self._tls: ssl.SSLContext | None = None
        self._beats: list[asyncio.Task[None]] = []
        self.heartbeats: list[Heartbeat] = []
        #: Heartbeats that failed, or whose response says that the broker is fenced.
        self.missed: list[str] = []

    async def connect(
        self, address: Address, ranges: Ranges, tls: ssl.SSLContext | None = None
    ) -> None:
        """Connect all brokers to this controller, closing earlier connections.

        Each sends its first request at once, a registration if it has none: a controller closes
        connections that are silent for ten seconds.
        """
        self._address, self._ranges, self._tls = address, ranges, tls
        await together([self._begin(broker) for broker in self.brokers], _REGISTERING)

    async def _begin(self, broker: LightBroker) -> None:
        await self._connected(broker)
        if broker.epoch < 0:
            await self._register(broker)
        else:
            # The controller may have just become active; `beat` tries again.
            with suppress(RuntimeError):
                await self._beat_once(broker)

    async def _connected(self, broker: LightBroker) -> LoadConnection:
        if broker.connection is not None:
            broker.connection.close()
        broker.connection = await LoadConnection.open(self._address, self._ranges, self._tls)
        return broker.connection

    async def _register(self, broker: LightBroker) -> None:
        assert broker.connection is not None
        request = BrokerRegistrationRequestData(
            broker.id,
            self._cluster_id,
            broker.incarnation_id,
            [AdvertisedListener("PLAINTEXT", "127.0.0.1", 9092, 0)],
            [SupportedFeatureRange(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            broker.rack,
            log_dirs=[broker.log_dir],
        )
        said = await broker.connection.ask(
            BROKER_REGISTRATION, request, BrokerRegistrationResponseData
        )
        if said.error_code != NONE:
            raise RuntimeError(f"registering {broker.id}: {error_name(said.error_code)}")
        broker.epoch = said.broker_epoch
        while broker.is_fenced:
            # A heartbeat may expire in the queue of a busy controller.
            with suppress(RuntimeError):
                await self._beat_once(broker)
            if broker.is_fenced:
                await asyncio.sleep(0.05)

    async def _beat_once(self, broker: LightBroker) -> BrokerHeartbeatResponseData:
        assert broker.connection is not None
        request = BrokerHeartbeatRequestData(broker.id, broker.epoch, broker.epoch)
        said = await broker.connection.ask(BROKER_HEARTBEAT, request, BrokerHeartbeatResponseData)
        if said.error_code != NONE:
            raise RuntimeError(f"heartbeat of {broker.id}: {error_name(said.error_code)}")
        broker.is_fenced = said.is_fenced
        return said

    # -- heartbeats every two seconds

    def beat(self, brokers: Sequence[LightBroker] | None = None) -> None:
        """Begin to send heartbeats, spread over the interval."""
        brokers = brokers if brokers is not None else self.brokers
        begin = time.perf_counter()
        for index, broker in enumerate(brokers):
            due = begin + INTERVAL_S * index / len(brokers)
            self._beats.append(asyncio.create_task(self._keep_alive(broker, due)))

    async def rest(self) -> None:
        """Stop all heartbeats."""
        for task in self._beats:
            task.cancel()
        await asyncio.gather(*self._beats, return_exceptions=True)
        self._beats.clear()

    async def _keep_alive(self, broker: LightBroker, due: float) -> None:
        while True:
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            # The loop's timers count whole milliseconds: one may end that much too early.
            begun = min(due, time.perf_counter())
            try:
                said = await self._beat_once(broker)
                if said.is_fenced:
                    self.missed.append(f"{broker.id} is fenced")
            except (OSError, RuntimeError) as error:
                self.missed.append(f"{broker.id}: {error}")
                await asyncio.sleep(0.05)
                if broker.connection is not None and isinstance(error, OSError):
                    continue
            self.heartbeats.append(Heartbeat(due, time.perf_counter() - begun))
            due = max(due + INTERVAL_S, time.perf_counter())

    async def burst(self, brokers: Sequence[LightBroker]) -> None:
        """Send one heartbeat of each of these brokers at once."""
        await asyncio.gather(*(self._beat_once(broker) for broker in brokers))

    def close(self) -> None:
        for broker in self.brokers:
            if broker.connection is not None:
                broker.connection.close()


async def together(awaitables: Sequence[Awaitable[object]], at_once: int) -> None:
    """Await all, at most so many at a time."""
    waiting = list(awaitables)[::-1]

    async def work() -> None:
        while waiting:
            await waiting.pop()

    await asyncio.gather(*(work() for _ in range(at_once)))


async def in_flight(
    connections: Sequence[LoadConnection],
    count: int,
    work: Callable[[LoadConnection, int], Awaitable[None]],
) -> list[float]:
    """Do ``count`` works, one at a time a connection; return the seconds of each."""
    numbers, taken = iter(range(count)), []

    async def run(connection: LoadConnection) -> None:
        for number in numbers:
            begin = time.perf_counter()
            await work(connection, number)
            taken.append(time.perf_counter() - begin)

    await asyncio.gather(*(run(connection) for connection in connections))
    return taken
