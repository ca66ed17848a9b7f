"""A running quorum under clients that use as many connections, observers and log lines as they can.

The nodes run under ``ulimit -n 1024``, the limit of many shells and containers. `make processes`
runs these tests.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft.network.quorum_client import QuorumClient
from kraft.raft import rpc as m
from kraft.raft.rpc import FetchRequest
from kraft.raft.voters import ReplicaKey
from kraft.server.descriptors import SURPLUS, raise_soft_limit
from kraft.server.local_quorum import LOOPBACK
from tests.e2e.node_limits import DESCRIPTORS, resident_mib, with_few_descriptors
from tests.e2e.quorum_intruder import Intruder, closed_in, frame_of
from tests.harness.commands import PATIENCE_S, Foreground, eventually, is_gone

CROWD = 1000

pytestmark = pytest.mark.nodes


@pytest.fixture
def fetch_timeout_ms() -> int:
    return 3000


@pytest.fixture
def crowded(tmp_path: Path, fetch_timeout_ms: int) -> Iterator[tuple[Foreground, Any]]:
    raise_soft_limit()
    settings = ("--setting", f"controller.quorum.fetch.timeout.ms={fetch_timeout_ms}")
    command = ["up", "--json", "--dir", tmp_path / "home", *settings]
    with Foreground(command, tmp_path / "up.err", preexec=with_few_descriptors) as quorum:
        document = quorum.announced()
        yield quorum, document
        quorum.end(signal.SIGINT)


def ports_of(document: Any) -> list[int]:
    return [int(one["endpoint"].rpartition(":")[2]) for one in document["controllers"]]


def described(ports: list[int]) -> m.DescribeQuorumResponse:
    with QuorumClient([(LOOPBACK, port) for port in ports]) as client:
        return client.describe_quorum()


@pytest.mark.parametrize("what", ["silent", "known"])
def test_many_connections_neither_end_nodes_nor_keep_voters_out(
    what: str, crowded: tuple[Foreground, Any]
) -> None:
    quorum, document = crowded
    ports = ports_of(document)
    lost = document["leaderId"]
    rest = [port for id, port in enumerate(ports, 1) if id != lost]
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        for port in rest:
            for _ in range(CROWD):
                intruder = stack.enter_context(Intruder(port))
                if what == "known":
                    with contextlib.suppress(ConnectionError):
                        intruder.ask(m.DescribeQuorumRequest())
        for one in document["controllers"]:
            # An earlier version had 1,021 open: with only three free descriptors the node ended.
            open_now = len(os.listdir(f"/proc/{one['pid']}/fd"))
            assert open_now <= DESCRIPTORS - SURPLUS, one
        # A vote writes quorum-state: it opens a file, and a connection to the other voter.
        os.kill(document["controllers"][lost - 1]["pid"], signal.SIGKILL)
        now = described(rest)
        assert now.leader_id not in (-1, lost)
        eventually(lambda: described(rest).high_watermark > 0)
    assert quorum.process.poll() is None
    for one in document["controllers"]:
        if one["nodeId"] == lost:
            continue
        log = Path(one["log"]).read_text()
        assert not is_gone(one["pid"]), log
        assert "Too many open files" not in log
        assert f"the limit of open files is {DESCRIPTORS}" in log
        # One line a second; the counts add up to the closed connections.
        path = Path(one["log"])
        eventually(lambda path=path: closed_in(path) >= CROWD - 600 - SURPLUS)
        assert closed_in(path) <= CROWD
        lines = path.read_text().count("closed one of 127.0.0.2")
        assert lines <= time.monotonic() - began + 4


def test_a_thousand_brokers_of_one_host_connect_five_times_each(tmp_path: Path) -> None:
    if raise_soft_limit() < 8000:
        pytest.skip("the hard limit of open files is too low for 5,000 connections")
    command = ["up", "--json", "--controllers", "1"]
    with Foreground(command, tmp_path / "up.err") as quorum, contextlib.ExitStack() as stack:
        document = quorum.announced()
        (port,) = ports_of(document)
        epoch = document["leaderEpoch"]
        for first in range(1000, 2000, 20):
            # As many at once as the backlog has room for.
            brokers = [stack.enter_context(Intruder(port)) for _ in range(100)]
            for place, broker in enumerate(brokers):
                key = ReplicaKey(first + place // 5)
                broker.send(frame_of(FetchRequest(None, key, epoch, 0, 0)))
            for broker in brokers:
                broker.frame()
        observers = {state.key.id for state in described([port]).observers}
        assert observers == set(range(1000, 2000))
        assert quorum.end(signal.SIGINT) == 130


@pytest.mark.parametrize("fetch_timeout_ms", [30_000], ids=["no-election"])
def test_many_false_observers_cost_neither_memory_nor_the_leadership(
    crowded: tuple[Foreground, Any],
) -> None:
    _, document = crowded
    ports = ports_of(document)
    leader = document["controllers"][document["leaderId"] - 1]
    before = resident_mib(leader["pid"])
    with Intruder(ports[document["leaderId"] - 1]) as intruder:
        for first in range(100_000, 120_000, 100):
            ids = range(first, first + 100)
            intruder.send(
                b"".join(
                    frame_of(FetchRequest(None, ReplicaKey(id), document["leaderEpoch"], 0, 0))
                    for id in ids
                )
            )
            for _ in ids:
                intruder.frame()
        asked = time.monotonic()
        assert isinstance(intruder.ask(m.DescribeQuorumRequest()), m.DescribeQuorumResponse)
        assert time.monotonic() - asked < 30
    now = described(ports)
    assert (now.leader_id, now.epoch) == (document["leaderId"], document["leaderEpoch"])
    assert len(now.observers) <= 1000
    assert resident_mib(leader["pid"]) - before < 16


def test_a_node_without_free_descriptors_reports_it_and_does_not_start(tmp_path: Path) -> None:
    def hardly_any() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))

    command = ["up", "--controllers", "1"]
    with Foreground(command, tmp_path / "up.err", preexec=hardly_any) as quorum:
        assert quorum.process.wait(PATIENCE_S) == 1
        assert "the limit of open files is 300, and this node needs at least" in quorum.text
