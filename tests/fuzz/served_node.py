"""A controller node in this process that gets the bytes of connections without a socket.

The node is a real one: a formatted directory, a quorum of one voter, a log on disk, the listener's
connections. Only the sockets between its connections and their peers are missing. `ServedNode.play`
passes on the bytes of many connections at once and checks the node's answers:

- Each whole request is answered with its correlation id, and with a body that Kafka's schema can
  read; or the connection closes. A response may wait only where the request asks for it.
- The node logs no error and no traceback; a log line has no control characters and is short.
- No callback of the event loop takes more than ``longest_block_s`` of CPU time, which does not
  depend on the load of the machine.

A violation raises `FindingError`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from kraft.controller.runtime import requests
from kraft.controller.topics.topic_creation import NewTopic
from kraft.network.server_connection import accept_connection
from kraft.protocol.add_raft_voter import ADD_RAFT_VOTER
from kraft.protocol.api_versions import API_VERSIONS
from kraft.protocol.apis import RPC_BY_KEY
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
from kraft.protocol.fetch import FETCH
from kraft.protocol.headers import Api, read_response_header, request_frame
from kraft.records import Uuid
from kraft.server import process
from kraft.server.config.loading import ServerConfig
from kraft.server.local_quorum import LISTENER, LOOPBACK, LocalQuorum
from kraft.server.process import QuorumNode
from kraft.server.storage.features import SUPPORTED_FEATURES
from tests.reference.request_frames import ALL, Vocabulary, whole_frames

#: A hang of the node: nobody else is served meanwhile.
LONGEST_BLOCK_S = 1.0
#: How long a connection may wait for a response before the peer disconnects.
_PATIENCE_S = 5.0
_BRIEF_S = 0.02
#: Kafka's limit for one request. At kraft's own limit one request would take longer than
#: `_PATIENCE_S` under sanitizers, and the memory of the whole run.
_MAX_NEW_PARTITIONS = 10_000
_LONGEST_LINE = 2000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: These answer later on purpose: Fetch for ``max_wait_ms``, AddRaftVoter until the voter caught up.
_WAITING = frozenset((FETCH.key, ADD_RAFT_VOTER.key))
#: The broker whose heartbeats are answered all the time; generated requests do not name it.
_OWN_BROKER = 900_001
_BROKERS = (1, 2, 3, _OWN_BROKER)
_TOPICS = {"a": Uuid(b"a" * 16), "b": Uuid(b"b" * 16), "x.y": Uuid(b"x" * 16)}
SETTINGS = {
    "controller.quorum.append.linger.ms": "0",
    "controller.quorum.election.timeout.ms": "100",
    "controller.quorum.election.backoff.max.ms": "20",
    "broker.session.timeout.ms": "600000",
    "delegation.token.secret.key": "key of a throwaway cluster",
}


class FindingError(AssertionError):
    """The node did what no bytes of a peer may cause."""


class Pipe(asyncio.Transport):
    """The transport of one connection; its peer is `ServedNode.play`."""

    def __init__(self, protocol: asyncio.BufferedProtocol, stream: bytes) -> None:
        super().__init__()
        self._protocol = protocol
        self._stream = memoryview(stream)
        self._is_paused = False
        self.is_closed = False
        self.received = bytearray()
        protocol.connection_made(self)

    def feed(self) -> None:
        """Pass on bytes until the node pauses reading or closes."""
        while self._stream and not self._is_paused and not self.is_closed:
            view = self._protocol.get_buffer(-1)
            size = min(len(view), len(self._stream))
            view[:size] = self._stream[:size]
            self._stream = self._stream[size:]
            self._protocol.buffer_updated(size)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        asyncio.get_running_loop().call_soon(self.feed)

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.received += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.2", 50_000) if name == "peername" else default


class _Watch(logging.Handler):
    """Keeps the log lines that a peer must not be able to cause."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.findings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        is_clean = len(text) <= _LONGEST_LINE and not _CONTROL.search(text)
        if record.levelno >= logging.ERROR or record.exc_info or not is_clean:
            self.findings.append(f"{record.levelname}: {text}\n{record.exc_info}")


def _has_all(pipe: Pipe, asked: Sequence[bytes]) -> bool:
    """Return whether a connection has all its responses, or is closed."""
    return pipe.is_closed or len(whole_frames(pipe.received)) >= len(asked)


def _is_due(pipe: Pipe, asked: Sequence[bytes]) -> bool:
    """Return whether a response is missing of a request that may not wait."""
    if _has_all(pipe, asked):
        return False
    waiting = asked[len(whole_frames(pipe.received))]
    return int.from_bytes(waiting[:2], "big") not in _WAITING


class ServedNode:
    """A node with three brokers and a few topics; a context manager."""

    def __init__(self, home: Path, *, longest_block_s: float = LONGEST_BLOCK_S) -> None:
        node = LocalQuorum(home, 1, SETTINGS).nodes[0]
        self._node = QuorumNode(ServerConfig.load(node.config_path))
        self._loop = (process.loop_factory() or asyncio.new_event_loop)()
        self._watch = _Watch()
        self._longest_allowed_s = longest_block_s
        self._epochs: dict[int, int] = {}
        self.vocabulary = Vocabulary(
            self._node.identity.cluster_id,
            dict(_TOPICS),
            self._node.identity.node_id,
            self._node.identity.directory_id,
        )
        #: Responses by API key and error code, -1000 where the connection was closed instead.
        self.outcomes: Counter[tuple[int, int]] = Counter()
        #: The APIs and versions with a response.
        self.answered: Counter[tuple[int, int]] = Counter()
        self.longest_block_s = 0.0

    def __enter__(self) -> ServedNode:
        logging.getLogger("kraft").addHandler(self._watch)
        self._loop.set_exception_handler(self._note_unhandled)
        self._end_process, process.end_process = process.end_process, self._end
        self._limit, requests.MAX_NEW_PARTITIONS = requests.MAX_NEW_PARTITIONS, _MAX_NEW_PARTITIONS
        self._loop.run_until_complete(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run_until_complete(self._node.stop(timeout_ms=0))
        finally:
            process.end_process = self._end_process
            requests.MAX_NEW_PARTITIONS = self._limit
            logging.getLogger("kraft").removeHandler(self._watch)
            self._loop.close()

    @property
    def announced(self) -> list[tuple[int, int]]:
        """The APIs and versions that the listener serves."""
        apis = self._node.transport.listener.apis
        return [(key, version) for key, version in ALL if key in apis and version in apis[key]]

    def play(self, streams: Iterable[bytes]) -> None:
        """Pass on the bytes of these connections at once; raise FindingError for a violation."""
        self._loop.run_until_complete(self._play(list(streams)))
        if self._watch.findings:
            raise FindingError("\n".join(self._watch.findings))

    def is_healthy(self) -> bool:
        """Return whether an active controller answers the heartbeat of a broker within seconds.

        No generated request names this broker. Votes of other epochs cause elections, as in Kafka.
        """
        end = time.monotonic() + _PATIENCE_S
        while not self._loop.run_until_complete(self._beat(_OWN_BROKER)):
            if time.monotonic() > end:
                return False
            self._loop.run_until_complete(asyncio.sleep(0.01))
        return True

    # -- the node

    async def _start(self) -> None:
        await self._node.start()
        runner = self._node.controller
        assert runner is not None
        async with asyncio.timeout(_PATIENCE_S):
            while not runner.controller.is_active:
                await asyncio.sleep(0.001)
        for broker in _BROKERS:
            self._epochs[broker] = await self._register(broker)
            assert await self._beat(broker)
        topics = [NewTopic(name, id, 3, 2) for name, id in _TOPICS.items()]
        await runner.submit(requests.create_topics(topics))
        self._learn()

    def _learn(self) -> None:
        """Bring the vocabulary up to date with the node's state."""
        runner, driver, known = self._node.controller, self._node.driver, self.vocabulary
        assert runner is not None
        assert driver is not None
        cluster = runner.controller.cluster
        table = cluster.table
        known.topics = {
            table.topic_name(number): Uuid(table.topic_id_of(number))
            for number in itertools.islice(table.topic_numbers(), 40)
        }
        known.epoch = driver.node.epoch
        known.brokers = {
            id: broker.epoch for id, broker in cluster.state.brokers.items() if id != _OWN_BROKER
        }

    async def _register(self, broker: int) -> int:
        request = BrokerRegistrationRequestData(
            broker,
            self.vocabulary.cluster_id,
            Uuid(broker.to_bytes(16, "big")),
            [AdvertisedListener("PLAINTEXT", LOOPBACK, 9092, 0)],
            [SupportedFeatureRange(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            log_dirs=[Uuid(bytes([64 + broker % 64]) * 16)],
        )
        body = await self._ask(BROKER_REGISTRATION, 4, request.encode(4))
        response = BrokerRegistrationResponseData.decode(body, 4)
        assert response.error_code == 0, response
        return response.broker_epoch

    async def _beat(self, broker: int) -> bool:
        request = BrokerHeartbeatRequestData(broker, self._epochs[broker], 1 << 40)
        body = await self._ask(BROKER_HEARTBEAT, 1, request.encode(1))
        return BrokerHeartbeatResponseData.decode(body, 1).error_code == 0

    async def _ask(self, api: Api, version: int, body: bytes) -> bytes:
        pipe = self._connect(request_frame(api, version, 1, "broker", body))
        pipe.feed()
        await self._settle(lambda: _has_all(pipe, [body]), _PATIENCE_S)
        frame = bytes(pipe.received[4:])
        pipe.close()
        await asyncio.sleep(0)
        if not frame:
            raise FindingError(f"{api.name} has no response within {_PATIENCE_S} s")
        return frame[read_response_header(frame, api, version)[1] :]

    def _end(self, what: str, error: BaseException) -> None:
        self._watch.findings.append(f"the process would end: {what}: {error!r}")

    def _note_unhandled(self, loop: object, context: dict[str, Any]) -> None:
        self._watch.findings.append(f"unhandled: {context}")

    # -- connections

    def _connect(self, stream: bytes) -> Pipe:
        listener = self._node.transport.listener
        return Pipe(accept_connection(listener, LISTENER, self._loop), stream)

    async def _play(self, streams: list[bytes]) -> None:
        watching = self._loop.create_task(self._watch_loop())
        pipes = [self._connect(stream) for stream in streams]
        asked = [whole_frames(stream) for stream in streams]
        for pipe in pipes:
            self._feed(pipe)
            await asyncio.sleep(0)
        await self._settle(lambda: all(map(_has_all, pipes, asked)), _BRIEF_S)
        # A request behind one that may wait is due from the response to that one on.
        await self._settle(lambda: not any(map(_is_due, pipes, asked)), _PATIENCE_S)
        for pipe, requests_of_it in zip(pipes, asked, strict=True):
            self._check(pipe, requests_of_it)
            pipe.close()
        await asyncio.sleep(0)
        watching.cancel()
        self._learn()
        if self.longest_block_s > self._longest_allowed_s:
            raise FindingError(f"the event loop was blocked for {self.longest_block_s:.2f} s")

    def _feed(self, pipe: Pipe) -> None:
        began = time.thread_time()
        pipe.feed()
        self.longest_block_s = max(self.longest_block_s, time.thread_time() - began)

    async def _watch_loop(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.005)
            now = time.thread_time()
            self.longest_block_s = max(self.longest_block_s, now - last)
            last = now

    async def _settle(self, is_settled: Callable[[], bool], patience_s: float) -> None:
        end = self._loop.time() + patience_s
        while not is_settled() and self._loop.time() <= end:
            await asyncio.sleep(0.0005)

    def _check(self, pipe: Pipe, asked: list[bytes]) -> None:
        """Check the responses of a connection, none of which is due any more."""
        frames = whole_frames(pipe.received)
        for request, frame in zip(asked, frames, strict=False):
            self._check_response(request, frame)
        if len(frames) > len(asked):
            raise FindingError(f"{len(frames)} responses to {len(asked)} requests")
        if _is_due(pipe, asked):
            waiting = asked[len(frames)][:200].hex()
            raise FindingError(f"no response within {_PATIENCE_S} s: {waiting}")
        if pipe.is_closed and len(frames) < len(asked):
            key = int.from_bytes(asked[len(frames)][:2], "big", signed=True)
            self.outcomes[key, -1000] += 1

    def _check_response(self, request: bytes, frame: bytes) -> None:
        if len(request) < 8:
            raise FindingError(f"a response to {request.hex()}: {frame[:200].hex()}")
        key, version = (int.from_bytes(request[at : at + 2], "big", signed=True) for at in (0, 2))
        api, _, response = RPC_BY_KEY[key]
        if key == API_VERSIONS.key and version not in api:
            version = 0
        correlation, at = read_response_header(frame, api, version)
        if correlation != int.from_bytes(request[4:8], "big", signed=True):
            raise FindingError(f"{correlation} answers {request[:200].hex()}")
        error = 0
        if response is not None:
            error = getattr(response.decode(frame, version, at), "error_code", 0)
        self.outcomes[key, error] += 1
        self.answered[key, version] += 1
