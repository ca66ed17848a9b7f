"""A thousand brokers on one controller: heartbeats, mutual TLS, and all reconnecting at once.

``network_heartbeats_*``  CPU seconds that the active controller takes for a second of heartbeats
                          of 1,000 brokers at 2 s: without TLS (``plain``), with mutual TLS on
                          uvloop (``tls``) and on asyncio's loop (``tls_asyncio``)
``network_reconnect_*``   all brokers lose their connections and reconnect together, with mutual
                          TLS: until each has the response to a heartbeat, the work of a thousand
                          clients on the same cores included. A heartbeat counts as missed if the
                          broker waits longer for the controller than until the next one is due
                          (``*_each``; `network_storm` says what counts), or if the response says
                          that the broker is fenced. CPU seconds are those of the controller
``network_connection_*``  resident memory by which the controller grew with its 1,000 connections,
                          with what it keeps of the brokers

The peer is Apache Kafka's controller, with the same certificates (P-256) and the same load.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench_network import Note, run
from benchmarks.conftest import FULL, Sizes
from benchmarks.java_peers import Peers
from benchmarks.machine import cpu_seconds_of, own_bytes_of
from benchmarks.network_clients import INTERVAL_S
from benchmarks.network_quorums import KafkaQuorum, KraftQuorum, NetworkQuorum, pid_of
from benchmarks.network_storm import Storm, plan_of
from benchmarks.network_work import Loaded
from benchmarks.timings import summary
from kraft.protocol.broker_heartbeat import BROKER_HEARTBEAT
from kraft.protocol.headers import newest_common_version
from kraft.server.config.key_stores import read_client_security
from kraft.server.descriptors import raise_soft_limit
from kraft.server.local_quorum import LOOPBACK
from tests.harness.certificates import authority
from tests.harness.kafka_jars import MissingToolError

#: Reconnections that count, after one that does not.
STORMS = 3
HEAP = "1g"


def tls_settings(directory: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Write a certificate of all nodes and one of the brokers; return the settings of the nodes,
    with mutual TLS, and of the brokers' connections.
    """
    trust = directory / "authority.pem"
    trust.write_text(authority().pem)
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}

    def keys(name: str) -> dict[str, str]:
        path = directory / f"{name}.pem"
        path.write_text(authority().issue(name).pem)
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}

    node = trusted | keys("node") | {"ssl.client.auth": "required"}
    node["listener.security.protocol.map"] = "CONTROLLER:SSL"
    return node, trusted | keys("broker") | {"security.protocol": "SSL"}


async def work(
    quorum: NetworkQuorum,
    kind: str,
    count: int,
    seconds: float,
    note: Note,
    client: dict[str, str],
) -> None:
    """Measure heartbeats, memory, and with TLS the reconnections of ``count`` brokers."""
    pid = pid_of(quorum.leader())
    memory = own_bytes_of(pid)
    loaded = Loaded(quorum, count)
    brokers = loaded.brokers
    await loaded.begin()
    await asyncio.sleep(seconds / 2)
    cpu_s = cpu_seconds_of(pid)
    brokers.heartbeats.clear()
    await asyncio.sleep(seconds)
    cpu_s = (cpu_seconds_of(pid) - cpu_s) / seconds
    taken = [each.taken_s for each in brokers.heartbeats]
    note(work=f"heartbeats_{kind}", unit="seconds", count=1, values_s=[cpu_s], cpu_s=cpu_s,
         median_s=cpu_s, worst_s=cpu_s)  # fmt: skip
    note(work=f"heartbeat_{kind}", unit="heartbeats", count=1, **summary(taken))
    grown = max(own_bytes_of(pid) - memory, 0)
    note(work=f"connection_{kind}", unit="connections", count=count, bytes=grown)
    if quorum.security is not None:
        await reconnect(loaded, kind, note, client)
    await loaded.end()


async def reconnect(loaded: Loaded, kind: str, note: Note, client: dict[str, str]) -> None:
    brokers, rounds, each, cpu_s, missed = loaded.brokers, [], [], [], 0
    await brokers.rest()
    brokers.close()
    pid = pid_of(loaded.leader)
    version = newest_common_version(BROKER_HEARTBEAT, loaded.ranges)
    assert version is not None
    plan = plan_of((LOOPBACK, loaded.leader.port), client, version, brokers.brokers)
    with Storm(plan) as storm:
        for number in range(1 + STORMS):
            begin_cpu_s = cpu_seconds_of(pid)
            taken = await asyncio.to_thread(storm.round)
            if number:
                rounds.append(taken.seconds)
                each += taken.waited_s
                cpu_s.append(cpu_seconds_of(pid) - begin_cpu_s)
                missed += sum(one > INTERVAL_S for one in taken.waited_s) + taken.fenced
            await asyncio.sleep(INTERVAL_S)
    note(work=f"reconnect_{kind}", unit="handshakes", count=len(brokers.brokers), missed=missed,
         cpu_s=sum(cpu_s) / len(cpu_s), **summary(rounds))  # fmt: skip
    note(work=f"reconnect_{kind}_each", unit="brokers", count=1, **summary(each))


@pytest.mark.peer
@pytest.mark.timeout(1800)
def bench_brokers(figure: Note, peers: Peers, sizes: Sizes, tmp_path: Path) -> None:
    raise_soft_limit()
    is_full = sizes == FULL
    count, seconds = (1000, 20.0) if is_full else (60, 3.0)

    def note(**line: Any) -> None:
        figure(**line | {"work": f"network_{line['work']}"})

    def note_peer(**line: Any) -> None:
        peers.lines.append(line | {"work": f"network_{line['work']}", "heap": HEAP})

    settings, client = tls_settings(tmp_path)
    security = read_client_security(client, tmp_path / "client.properties")
    made: list[tuple[str, Callable[[], NetworkQuorum], Note]] = [
        ("plain", lambda: KraftQuorum(tmp_path / "plain", {}), note),
        ("tls", lambda: KraftQuorum(tmp_path / "tls", settings, security), note),
        (
            "tls_asyncio",
            lambda: KraftQuorum(tmp_path / "asyncio", settings, security, has_uvloop=False),
            note,
        ),
        ("plain", lambda: KafkaQuorum(tmp_path / "kafka", {}, heap=HEAP), note_peer),
        (
            "tls",
            lambda: KafkaQuorum(tmp_path / "kafka-tls", settings, security, heap=HEAP),
            note_peer,
        ),
    ]
    for kind, make, noted in made:
        try:
            with make() as quorum:
                run(work(quorum, kind, count, seconds, noted, client))
        except MissingToolError as missing:
            warnings.warn(f"no quorum of Kafka's: {missing}", stacklevel=1)
