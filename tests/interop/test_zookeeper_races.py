"""Many candidates race for the controller while sessions expire and connections are cut.

Each candidate reaches ZooKeeper through a proxy of its own. In every round a few of them, mostly
with the active one, lose their session, their connection, or for a while every byte; then some
controller must carry out a request. ZK_ELECTORS, ZK_ROUNDS and SEED set the size (`make zk-races`).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from kraft.server.local_quorum import LOOPBACK, free_ports
from kraft.zookeeper import znodes
from kraft.zookeeper.controller_node import ZkControllerNode
from kraft.zookeeper.port import CreateZnode, DeleteZnode, FindZnode
from kraft.zookeeper.server import LocalZooKeeper
from kraft.zookeeper.settings import ZkEra
from tests.harness.commands import eventually
from tests.harness.network_links import NetworkLinks
from tests.interop.candidate_cluster import FIRST_CANDIDATE, ZkCluster

ELECTORS = int(os.environ.get("ZK_ELECTORS", "20"))
ROUNDS = int(os.environ.get("ZK_ROUNDS", "50"))
SEED = int(os.environ.get("SEED", "1"))

pytestmark = [pytest.mark.interop, pytest.mark.zookeeper, pytest.mark.timeout(300 + 30 * ROUNDS)]

#: Brokers and the administrator have the longest session, 20 ticks: 30 s.
TICK_MS = 1500
#: Of the candidates, 2 ticks. A standstill of the machine may end sessions too: one more fault.
SESSION_MS = 3000
#: ZooKeeper ends sessions at the next tick.
LONGEST_SESSION_S = (SESSION_MS + TICK_MS) / 1000
KEY = ("t", 0)


@pytest.fixture(params=ZkEra)
def race(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Race]:
    with ExitStack() as stack:
        server = stack.enter_context(LocalZooKeeper(tmp_path, tick_ms=TICK_MS, heap_mb=128))
        ids = range(FIRST_CANDIDATE, FIRST_CANDIDATE + ELECTORS)
        ports = dict(zip(ids, free_ports(ELECTORS), strict=True))
        links = stack.enter_context(
            NetworkLinks(ports, dict.fromkeys(ids, server.port), knows_senders=False)
        )
        cluster = ZkCluster(
            server.endpoint, "kafka", ELECTORS, 1, request.param,
            reach={id: f"{LOOPBACK}:{port}" for id, port in ports.items()},
            candidate_session_ms=SESSION_MS,
        )  # fmt: skip
        stack.enter_context(cluster)
        # Else the ends of sessions wait for cut links.
        stack.callback(links.mend)
        yield Race(server, links, cluster, random.Random(SEED))


class Race:
    """The candidates, and the faults that strike them."""

    def __init__(
        self,
        server: LocalZooKeeper,
        links: NetworkLinks,
        cluster: ZkCluster,
        choices: random.Random,
    ) -> None:
        self.cluster = cluster
        self._server = server
        self._links = links
        self._choices = choices

    def strike(self) -> str:
        """Let a few candidates fail; return the faults' names. Cut links stay cut."""
        choices = self._choices
        active = self.cluster.active()
        others = [node for node in self.cluster.controllers if node is not active]
        struck = choices.sample(others, choices.randint(0, 3))
        if choices.random() < 0.8 or not struck:
            struck.append(active)
        faults = [
            (choices.choices(("expire", "disconnect", "blink", "cut"), (8, 4, 4, 1))[0], node)
            for node in struck
        ]
        # Mending a blink mends all links: those that stay cut come last.
        faults.sort(key=lambda one: one[0] == "cut")
        names = [
            f"{fault} {'the active one' if one is active else one.id}" for fault, one in faults
        ]
        for fault, node in faults:
            self._carry_out(fault, node)
        if choices.random() < 0.2:
            names.append("delete /controller")
            self.cluster.port.run([DeleteZnode(znodes.CONTROLLER)])
        return ", ".join(names)

    def _carry_out(self, fault: str, node: ZkControllerNode) -> None:
        match fault:
            case "expire":
                self._expire(node)
            case "disconnect":
                self._links.disconnect(node.id)
            case _:
                self._links.cut([(None, node.id), (node.id, None)])
                if fault == "blink":
                    # Shorter than a session; what was sent meanwhile arrives late.
                    time.sleep(self._choices.random() * 0.3)
                    self._links.mend()

    def _expire(self, node: ZkControllerNode) -> None:
        """End a session at once, as its own client would; it may take the session back before."""
        thief = KazooClient(self._server.endpoint, client_id=node._session._client.client_id)
        # On a starved machine the thief may not get through.
        with suppress(KazooTimeoutError):
            thief.start(30)
        thief.stop()
        thief.close()

    def mend(self) -> None:
        self._links.mend()


def test_one_controller_acts_in_each_epoch(race: Race) -> None:
    cluster = race.cluster
    cluster.admin.create("t", 1, 1)
    request = CreateZnode(znodes.PREFERRED_ELECTION, znodes.encode_partitions([KEY]))
    epochs = [cluster.admin.controller().epoch]
    waits: list[tuple[float, str]] = []
    written = [1]
    for _ in range(ROUNDS):
        faults = race.strike()
        struck_s = time.monotonic()
        cluster.port.run([request])
        # A controller that is elected deletes it, also while others are cut off.
        eventually(lambda: not cluster.port.run([FindZnode(request.path)])[0].is_ok)
        waits.append((time.monotonic() - struck_s, faults))
        state = cluster.admin.describe(["t"])["t"][0].state
        assert state is not None
        written.append(state.controller_epoch)
        race.mend()
        epochs.append(cluster.admin.controller().epoch)
    cluster.actors.check()
    assert written == sorted(written)
    assert epochs == sorted(epochs)
    assert all(epoch in cluster.actors.elected for epoch in written)
    # Every single wait may be longer: the machine may stand still.
    assert median(waits)[0] < LONGEST_SESSION_S
    # Some faults spare the active controller: it is another one in half of the rounds.
    assert len(set(epochs)) > ROUNDS / 5
    # All follow the same one, in the last epoch.
    active, _ = eventually(
        lambda: followers(cluster), until=lambda found: found[0] > 0 and len(found[1]) == 1
    )
    assert active in cluster.actors.ids
    epoch = max(cluster.actors.elected)
    wait_s, faults = max(waits)
    print(
        f"\n{cluster.era}: {ELECTORS} candidates, {ROUNDS} rounds, {epoch} epochs; until one acts: "
        f"median {median(waits)[0]:.2f} s, longest {wait_s:.1f} s ({faults}); sessions of "
        f"{SESSION_MS / 1000:g} s end after at most {LONGEST_SESSION_S:g} s"
    )


def followers(cluster: ZkCluster) -> tuple[int, dict[int, list[int]]]:
    """Return who acts (-1: nobody), and the candidates by whom they take for the active one."""
    by_active: dict[int, list[int]] = {}
    for node in cluster.controllers:
        known = -1 if node.controller is None else node.controller.active_controller_id
        by_active.setdefault(known, []).append(node.id)
    acting = [node.id for node, _ in cluster.acting()] or [-1]
    # Whom nobody follows yet is one more group.
    by_active.setdefault(acting[0], [])
    return acting[0], by_active


def median(waits: list[tuple[float, str]]) -> tuple[float, str]:
    return sorted(waits)[len(waits) // 2]
