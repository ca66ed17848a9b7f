"""A controller's process under hostile clients, while a broker keeps sending heartbeats.

The node runs under ``ulimit -n 1024``. Whatever the clients send, keep back or leave unread: the
process lives, each heartbeat is answered within a second, and memory stays bounded.
"""

from __future__ import annotations

import contextlib
import random
import re
import selectors
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
)
from kraft.protocol.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequestData,
    DescribeConfigsResource,
)
from kraft.protocol.headers import request_frame
from kraft.raft.rpc import FetchRequest
from kraft.raft.voters import ReplicaKey
from kraft.server.descriptors import raise_soft_limit
from tests.e2e.beating_broker import BeatingBroker
from tests.e2e.node_limits import resident_mib, with_few_descriptors
from tests.e2e.quorum_intruder import Intruder, closed_in, frame_of
from tests.harness.commands import Foreground, eventually
from tests.reference.frame_mutations import mutated_stream
from tests.reference.request_frames import ALL, FrameWriter, Vocabulary, whole_frames

pytestmark = pytest.mark.nodes

FRAMES = 1500
AT_ONCE = 25
#: How long clients wait for a response that a Fetch may delay, after the last response to one.
BRIEF_S = 0.05
LONGEST_S = 1.0
READERS = 40


@dataclass
class Target:
    """A running controller and its broker."""

    port: int
    cluster_id: str
    broker: BeatingBroker
    log: Path


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    raise_soft_limit()
    command = ["up", "--json", "--controllers", "1", "--dir", tmp_path / "home"]
    with Foreground(command, tmp_path / "up.err", preexec=with_few_descriptors) as quorum:
        document: Any = quorum.announced()
        (node,) = document["controllers"]
        port = int(node["endpoint"].rpartition(":")[2])
        log = Path(node["log"])
        properties = (log.parent / "data" / "meta.properties").read_text()
        (cluster_id,) = re.findall("^cluster.id=(.*)$", properties, re.MULTILINE)
        before = resident_mib(node["pid"])
        with BeatingBroker(port, cluster_id, node["pid"]) as broker:
            yield Target(port, cluster_id, broker, log)
            broker.finish()
            assert broker.count > 10
            assert broker.problems == []
            # A machine that stands still delays this process and the node alike.
            assert broker.longest_s < LONGEST_S + 2 * broker.longest_stall_s
            assert broker.is_unfenced
        assert resident_mib(node["pid"]) - before < 128
        text = log.read_text()
        assert not re.search("Traceback|ERROR|CRITICAL|Too many open files", text), text[-5000:]
        assert quorum.process.poll() is None
        assert quorum.end(signal.SIGINT) == 130


def test_mutated_frames_harm_neither_the_node_nor_a_broker(target: Target) -> None:
    chance = random.Random(13)
    writer = FrameWriter(Vocabulary(target.cluster_id, {}, brokers={1: 1}), chance)
    valid = [writer.frame(key, version) for key, version in ALL]
    streams = [mutated_stream(chance.choice(valid), chance, valid) for _ in range(FRAMES)]
    outcomes = {"answered": 0, "closed": 0, "waiting": 0}
    for first in range(0, len(streams), AT_ONCE):
        for outcome in exchanged(target.port, streams[first : first + AT_ONCE]):
            outcomes[outcome] += 1
    assert min(outcomes["answered"], outcomes["closed"]) > FRAMES // 10, outcomes


def exchanged(port: int, streams: list[bytes]) -> Iterator[str]:
    """Send the bytes of these connections; return the end of each."""
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        received: dict[socket.socket, bytearray] = {}
        counts: dict[socket.socket, int] = {}
        for stream in streams:
            client = stack.enter_context(Intruder(port)).socket
            with contextlib.suppress(ConnectionError):
                client.sendall(stream)
            received[client], counts[client] = bytearray(), len(whole_frames(stream))
            selector.register(client, selectors.EVENT_READ)
        end = time.monotonic() + BRIEF_S
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(BRIEF_S / 10):
                # A busy machine, or one that stood still, has delayed the others' as well.
                end = time.monotonic() + BRIEF_S
                client = key.fileobj  # type: ignore[assignment]
                data = b""
                with contextlib.suppress(ConnectionError):
                    data = client.recv(1 << 16)
                received[client] += data
                is_answered = len(whole_frames(received[client])) >= counts[client]
                if not data or (is_answered and counts[client]):
                    selector.unregister(client)
                    yield "answered" if is_answered and counts[client] else "closed"
        yield from ["waiting"] * len(selector.get_map())


def test_slow_readers_and_writers_and_idle_clients_delay_no_broker(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(Intruder(target.port))
        topics = [CreatableTopic(f"topic-{number}", 50, 1) for number in range(400)]
        body = CreateTopicsRequestData(topics).encode(7)
        admin.send(request_frame(CREATE_TOPICS, 7, 1, "admin", body))
        admin.frame()
        resources = [DescribeConfigsResource(2, topic.name) for topic in topics]
        body = DescribeConfigsRequestData(resources, True, True).encode(4)
        describe = request_frame(DESCRIBE_CONFIGS, 4, 1, "slow", body)
        fetch = frame_of(FetchRequest(None, ReplicaKey(-1), 1, 0, 0))
        for number in range(READERS):
            reader = stack.enter_context(Intruder(target.port, receive_buffer=4096))
            reader.socket.settimeout(0.05)
            with contextlib.suppress(TimeoutError, ConnectionError):
                reader.send((fetch, describe)[number % 2] * 3)
        writers = [stack.enter_context(Intruder(target.port)) for _ in range(100)]
        idle = [stack.enter_context(Intruder(target.port)) for _ in range(1500)]
        for byte in describe[:10]:
            for writer in writers:
                with contextlib.suppress(ConnectionError):
                    writer.send(bytes((byte,)))
            time.sleep(0.05)
        # Above its limit the node closes idle connections and keeps the places of brokers free.
        # A busy node does it later.
        eventually(lambda: closed_in(target.log) > 500 + len(writers) + READERS)
        assert sum(map(is_closed_now, idle)) > 500
        admin.send(frame_of(FetchRequest(None, ReplicaKey(-1), 1, 0, 0, max_bytes=1000)))
        assert admin.frame()


def is_closed_now(intruder: Intruder) -> bool:
    intruder.socket.setblocking(False)
    try:
        return intruder.socket.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
