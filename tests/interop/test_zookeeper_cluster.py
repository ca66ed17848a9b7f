"""A whole cluster over real sockets: ZooKeeper, kraft's controllers and light brokers."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kraft.zookeeper import znodes
from kraft.zookeeper.broker_channels import SocketChannels
from kraft.zookeeper.broker_requests import LeaderAndIsr, PartitionUpdate, UpdateMetadata
from kraft.zookeeper.context import Leadership
from kraft.zookeeper.controller_rpcs import VERSIONS_0_8, VERSIONS_1_1, RequestVersions
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.light_broker import ZkLightBroker
from kraft.zookeeper.port import CreateZnode, GetZnode
from kraft.zookeeper.server import LocalZooKeeper, ZooKeeperAddress
from kraft.zookeeper.settings import ZkEra
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress, PartitionStateZnode
from tests.harness.commands import Foreground, eventually, kraft
from tests.interop.candidate_cluster import ZkCluster

pytestmark = [pytest.mark.interop, pytest.mark.zookeeper]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    with LocalZooKeeper(tmp_path_factory.mktemp("zookeeper"), heap_mb=128) as started:
        yield started


@pytest.fixture(params=ZkEra)
def cluster(
    server: LocalZooKeeper, request: pytest.FixtureRequest
) -> Iterator[Callable[[int, int], ZkCluster]]:
    made: list[ZkCluster] = []

    def make(controllers: int, brokers: int) -> ZkCluster:
        made.append(
            ZkCluster(server.endpoint, request.node.name, controllers, brokers, request.param)
        )
        return made[-1].__enter__()

    yield make
    for one in made:
        one.__exit__(None, None, None)


def test_brokers_obey_and_a_successor_knows_all(
    cluster: Callable[[int, int], ZkCluster],
) -> None:
    running = cluster(2, 3)
    running.admin.create("t", 20, 3)
    running.await_isr({1, 2, 3}, "t")
    eventually(lambda: all(len(one.replicas) == 20 for one in running.brokers.values()))
    # Without warning; its session ends.
    running.brokers[1].kill()
    running.await_isr({2, 3}, "t")
    first = running.active()
    first.stop()
    # An elected controller raises the epoch a moment later.
    ((_, epoch),) = eventually(
        running.acting, until=lambda found: found and found[0][0] is not first
    )
    assert epoch == 2
    # A broker that ends while it loads stays in ISRs: its leader would have to remove it.
    eventually(lambda: running.known() == {2, 3})
    # After a controlled shutdown the partitions have other leaders already.
    running.brokers[2].stop()
    running.await_isr({3}, "t")
    for id in (1, 2):
        running.brokers[id].start()
    # The controller that was stopped takes part again.
    first.start()
    running.await_isr({1, 2, 3}, "t")
    running.port.run([CreateZnode(znodes.PREFERRED_ELECTION, preferred("t", 20))])
    eventually(
        lambda: all(
            one.state is not None and one.state.leader == one.replicas[0]
            for one in running.admin.describe(["t"])["t"]
        )
    )
    running.admin.delete(["t"])
    eventually(lambda: running.admin.topics() == [])
    eventually(lambda: not any(one.replicas for one in running.brokers.values()))


def preferred(topic: str, partitions: int) -> bytes:
    return znodes.encode_partitions([(topic, partition) for partition in range(partitions)])


def test_a_reassignment_moves_replicas(cluster: Callable[[int, int], ZkCluster]) -> None:
    running = cluster(1, 4)
    placed = running.admin.create("t", 4, 2)
    wanted = {
        ("t", partition): tuple(id for id in running.brokers if id not in replicas)
        for partition, replicas in placed.items()
    }
    eventually(lambda: all(one.state for one in running.admin.describe(["t"])["t"]))
    running.port.run([CreateZnode(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment(wanted))])
    eventually(
        lambda: all(
            one.replicas == wanted["t", one.partition]
            and one.state is not None
            and set(one.state.isr) == set(one.replicas)
            for one in running.admin.describe(["t"])["t"]
        )
    )
    eventually(
        lambda: (
            {
                key: {id for id, one in running.brokers.items() if key in one.replicas}
                for key in wanted
            }
            == {key: set(ids) for key, ids in wanted.items()}
        )
    )


@pytest.mark.parametrize("versions", [VERSIONS_0_8, VERSIONS_1_1])
def test_a_light_leader_adds_live_replicas_and_drops_dead_ones(
    server: LocalZooKeeper, request: pytest.FixtureRequest, versions: RequestVersions
) -> None:
    """Without a controller: one that removed a dead broker would see it added again."""
    address = ZooKeeperAddress.parse(f"{server.endpoint}/{request.node.name}")
    with ExitStack() as stack:
        port = KazooPort(address, creates_chroot=True)
        stack.callback(port.close)
        state = PartitionStateZnode(1, 0, (1,), 1)
        folders = ("/brokers", "/brokers/ids", "/brokers/topics", znodes.topic_path("t"))
        folders += (znodes.partitions_path("t"), znodes.partition_path("t", 0))
        port.run([CreateZnode(path) for path in folders])
        port.run([CreateZnode(znodes.state_path("t", 0), state.encode())])
        broker = ZkLightBroker(1, address)
        broker.start()
        stack.callback(broker.kill)
        host, _, number = broker.endpoint.partition(":")
        first = BrokerZnode(1, (ListenerAddress(host, int(number)),))
        second = BrokerZnode(2, (ListenerAddress(host, 1),))
        channels = SocketChannels(1001, lambda *answer: None, versions)
        stack.callback(channels.stop)
        channels.set_brokers({1: first})
        update = PartitionUpdate(Leadership(1, 0, (1,), 1, 0), (1, 2))
        channels.send(1, LeaderAndIsr(1001, 1, {("t", 0): update}, [first]))
        for live, isr in (([first, second], (1, 2)), ([first], (1,)), ([second], (1, 2))):
            channels.send(1, UpdateMetadata(1001, 1, {("t", 0): update}, live))
            eventually(
                lambda isr=isr: (  # type: ignore[misc]
                    PartitionStateZnode.decode(
                        port.run([GetZnode(znodes.state_path("t", 0))])[0].data, "t"
                    ).isr
                    == isr
                )
            )


def test_a_restart_of_zookeeper_loses_no_watch(tmp_path: Path) -> None:
    """Sessions survive it; kazoo's watches do not, so that the controller looks again."""
    with (
        LocalZooKeeper(tmp_path, heap_mb=64) as own,
        ZkCluster(own.endpoint, "kafka", 1, 2) as running,
    ):
        running.admin.create("before", 1, 2)
        running.await_isr({1, 2}, "before")
        own.kill()
        own.start()
        running.admin.create("after", 1, 2)
        running.await_isr({1, 2}, "after")
        assert running.admin.controller().epoch == 1
        running.brokers[1].kill()
        running.await_isr({2}, "before", "after")
        running.admin.delete(["before"])
        # The other replica is on a dead broker: only the request stays.
        eventually(lambda: ("before", 0) not in running.brokers[2].replicas)
        assert running.admin.deletions() == {"before"}


@pytest.mark.parametrize("era", ZkEra)
def test_the_command_runs_a_cluster(era: ZkEra, tmp_path: Path) -> None:
    options = ("--brokers", 3, "--controllers", 2, "--era", era, "--json")
    command = Foreground(("zk", "up", *options), tmp_path / "err", is_typed=True)
    started = command.announced()
    assert started["era"] == era
    assert (started["controllerId"], started["controllerEpoch"]) == (1001, 1)
    assert [one["nodeId"] for one in started["brokers"]] == [1, 2, 3]
    zookeeper = ("--zookeeper", started["zookeeper"])
    created = kraft(
        *("zk", "topics", "create", "--topic", "demo", "--partitions", 6),
        *("--replication-factor", 3, *zookeeper),
    )
    assert (created.returncode, created.stdout) == (0, "created topic demo with 6 partitions\n")
    described = eventually(
        lambda: kraft("zk", "topics", "describe", *zookeeper), until=lambda ran: not ran.returncode
    )
    assert len(described.stdout.splitlines()) == 7
    # The cluster has an id; topics have none before Kafka 2.8.
    opened = kraft("open", f"zookeeper://{started['zookeeper']}")
    assert (opened.returncode, opened.stdout) == (1, "")
    assert opened.stderr.startswith("error: /brokers/topics/demo has no topic_id: brokers from 2.8")
    shown = kraft("zk", "controller", "--json", *zookeeper)
    assert json.loads(shown.stdout)["era"] == era
    assert command.process.stdin is not None
    command.process.stdin.write("stop 1001\nstop 9\nstatus\n")
    command.process.stdin.flush()
    status = command.announced()
    assert status["controllers"][0]["endpoint"] is None
    # The one that is elected raises the epoch a moment later.
    eventually(
        lambda: kraft("zk", "controller", "--json", *zookeeper).stdout,
        until=lambda text: '"controllerId": 1002, "controllerEpoch": 2' in text,
    )
    assert "there is no node 9; there are 1001, 1002, 1, 2, 3" in command.text
    deleted = kraft("zk", "topics", "delete", "--topic", "demo", *zookeeper)
    assert deleted.stdout == "topic demo is marked for deletion\n"
    eventually(
        lambda: kraft("zk", "topics", "list", *zookeeper).stdout, until=lambda text: text == ""
    )
    missing = kraft("zk", "topics", "delete", "--topic", "demo", *zookeeper)
    assert (missing.returncode, missing.stderr) == (1, "error: there is no topic 'demo'\n")
    assert command.end(signal.SIGINT) == 130
    gone = kraft("zk", "controller", *zookeeper)
    assert gone.returncode == 1
    assert "no ZooKeeper server answers" in gone.stderr
