"""ZooKeeper stands still, or loses its quorum, while controllers work on a change.

Sessions that last longer go on, and their controllers with them; a controller whose session ends
resigns, and another one is elected. Afterwards everything goes on. ZK_STOP_S is how long ZooKeeper
stands still (`make zk-outages`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest

from kraft.zookeeper.server import LocalZooKeeper
from kraft.zookeeper.settings import ZkEra
from tests.harness.commands import eventually
from tests.interop.candidate_cluster import ZkCluster
from tests.interop.zookeeper_ensemble import SERVERS, ZooKeeperEnsemble

pytestmark = [pytest.mark.interop, pytest.mark.zookeeper]

STOP_S = float(os.environ.get("ZK_STOP_S", "6"))
#: Of sessions that outlast the stop, on a machine that stands still too.
LONG_MS = int(1000 * STOP_S) + 20_000
#: ZooKeeper grants 2 to 20 ticks, and ends sessions at the next tick.
TICK_MS = LONG_MS // 20
SHORT_MS = 2 * TICK_MS
PARTITIONS = 40


def begin_a_change(clusters: Iterable[ZkCluster]) -> None:
    """Let the leader of partitions crash in each cluster; the controller has just begun to act."""
    for cluster in clusters:
        cluster.admin.create("t", PARTITIONS, 3)
        cluster.await_isr({1, 2, 3}, "t")
    for cluster in clusters:
        cluster.brokers[1].kill()


def check_that_all_goes_on(cluster: ZkCluster) -> None:
    cluster.await_isr({2, 3}, "t")
    cluster.admin.create("later", 4, 2)
    cluster.await_isr({2, 3}, "later")
    cluster.brokers[1].start()
    cluster.await_isr({1, 2, 3}, "t")
    ((active, epoch),) = eventually(cluster.acting)
    assert epoch == max(cluster.actors.elected)
    eventually(lambda: [node for node in cluster.controllers if node.is_active] == [active])
    cluster.actors.check()


def said(cluster: ZkCluster, words: str) -> list[str]:
    """Return what the cluster's controllers said of their sessions with these words."""
    names = tuple(f"controller {node.id}, " for node in cluster.controllers)
    return [line for line in cluster.actors.lines if line.startswith(names) and words in line]


def test_zookeeper_stands_still(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(LocalZooKeeper(tmp_path, tick_ms=TICK_MS, heap_mb=128))
        clusters = {
            (era, session_ms): stack.enter_context(
                ZkCluster(
                    server.endpoint, f"kafka-{era}-{session_ms}", 2, 3, era,
                    first=1000 * (number + 1), candidate_session_ms=session_ms,
                    session_ms=LONG_MS,
                )
            )
            for number, (era, session_ms) in enumerate(
                (era, session_ms) for era in ZkEra for session_ms in (SHORT_MS, LONG_MS)
            )
        }  # fmt: skip
        for cluster in clusters.values():
            # A standstill of the machine may have ended short sessions already.
            eventually(cluster.acting)
            cluster.actors.lines.clear()
        before = {key: cluster.admin.controller() for key, cluster in clusters.items()}
        begin_a_change(clusters.values())
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(STOP_S)
        server.process.send_signal(signal.SIGCONT)
        for (era, session_ms), cluster in clusters.items():
            check_that_all_goes_on(cluster)
            epoch = cluster.admin.controller().epoch
            ended = said(cluster, "has ended")
            print(f"\n{era}, session {session_ms} ms: epoch {epoch}, {len(ended)} sessions ended")
            old = before[era, session_ms]
            # A client that is back before ZooKeeper has looked at its clock keeps its session.
            has_resigned = any(f"controller {old.broker_id}, " in line for line in ended)
            assert (epoch > old.epoch) == has_resigned
            if session_ms == LONG_MS:
                assert ended == []
            else:
                assert said(cluster, "the connection is lost; it waits for a server")


def test_zookeeper_loses_its_quorum(tmp_path: Path) -> None:
    """Without a quorum no session ends: the controllers wait, and go on in their epoch."""
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeperEnsemble(tmp_path))
        clusters = {
            era: stack.enter_context(
                ZkCluster(ensemble.servers, f"kafka-{era}", 2, 3, era, first=1000 * (number + 1))
            )
            for number, era in enumerate(ZkEra)
        }
        before = {era: cluster.admin.controller().epoch for era, cluster in clusters.items()}
        begin_a_change(clusters.values())
        (leader,) = [id for id in SERVERS if ensemble.mode(id) == "leader"]
        killed = [leader, leader % len(SERVERS) + 1]
        for id in killed:
            ensemble.kill(id)
        for cluster in clusters.values():
            eventually(lambda cluster=cluster: said(cluster, "it waits for a server"))  # type: ignore[misc]
        for id in killed:
            ensemble.start(id)
        for id in SERVERS:
            ensemble.await_service(id)
        for era, cluster in clusters.items():
            check_that_all_goes_on(cluster)
            assert said(cluster, "goes on: connected again after ")
            assert said(cluster, "has ended") == []
            assert cluster.admin.controller().epoch == before[era]
