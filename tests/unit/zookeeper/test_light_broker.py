"""Light brokers of the ZooKeeper era: what they know, and what they count of it."""

from __future__ import annotations

import pytest

from kraft.generations.zk_worker import Knowledge
from kraft.zookeeper import znodes
from kraft.zookeeper.broker_requests import (
    LEADER_DURING_DELETE,
    LeaderAndIsr,
    PartitionUpdate,
    UpdateMetadata,
)
from kraft.zookeeper.context import Leadership
from kraft.zookeeper.controller_rpcs import (
    CONTROLLED_SHUTDOWN,
    UPDATE_METADATA,
    ControlledShutdownRequestData,
    decode_request,
    encode_request,
    encode_shutdown_response,
)
from kraft.zookeeper.frames import RequestServer
from kraft.zookeeper.light_broker import RequestDecoder, ZkLightBroker
from kraft.zookeeper.memory import MemoryZooKeeper
from kraft.zookeeper.port import CreateZnode
from kraft.zookeeper.server import ZooKeeperAddress
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import BrokerZnode, ControllerZnode, ListenerAddress

ADDRESS = ZooKeeperAddress.parse("127.0.0.1:1")


def metadata(**leaders: tuple[int, tuple[int, ...]]) -> UpdateMetadata:
    """Return a request with partition 0 of topics: leader and ISR, replicas 1, 2, 3."""
    updates: dict[PartitionKey, PartitionUpdate] = {
        (topic, 0): PartitionUpdate(Leadership(leader, 1, isr, 1, 1), (1, 2, 3))
        for topic, (leader, isr) in leaders.items()
    }
    return UpdateMetadata(1001, 1, updates, [BrokerZnode(5, (ListenerAddress("h", 1),))])


def tell(broker: ZkLightBroker, request: UpdateMetadata) -> None:
    api, version, body = encode_request(request)
    broker._answer(api.key, version, memoryview(body))


def test_metadata_is_counted_by_leader() -> None:
    broker = ZkLightBroker(9, ADDRESS)
    seen: list[int] = []
    broker.on_metadata = lambda one: seen.append(len(one.metadata))
    tell(broker, metadata(a=(1, (1, 2, 3)), b=(2, (2, 3)), c=(-1, (3,))))
    assert (broker.leader_counts[1], broker.leader_counts[2], broker.leader_counts[-1]) == (1, 1, 1)
    assert broker.out_of_sync_count == 2
    tell(broker, metadata(b=(1, (1, 2, 3)), c=(LEADER_DURING_DELETE, ())))
    assert (broker.leader_counts[1], broker.leader_counts[2], broker.leader_counts[-1]) == (2, 0, 0)
    assert broker.out_of_sync_count == 0
    assert seen == [3, 2]


def test_a_stale_controller_changes_nothing() -> None:
    broker = ZkLightBroker(9, ADDRESS)
    broker.controller_epoch = 2
    tell(broker, metadata(a=(1, (1, 2, 3))))
    assert (broker.metadata, broker.leader_counts[1]) == ({}, 0)


@pytest.mark.parametrize(
    ("knowledge", "expected"),
    [
        (Knowledge(), True),
        (Knowledge(partitions=2), True),
        (Knowledge(partitions=3), False),
        (Knowledge(absent=[2]), False),
        (Knowledge(absent=[1, -1]), False),
        (Knowledge(absent=[3, -1]), True),
        (Knowledge(topic="a"), True),
        (Knowledge(topic="c"), False),
        (Knowledge(in_sync=True), True),
        (Knowledge(told_in_sync=True), False),
        (Knowledge(gone=[4]), True),
        (Knowledge(gone=[4, 5]), False),
    ],
)
def test_what_a_broker_must_know(knowledge: Knowledge, expected: bool) -> None:
    broker = ZkLightBroker(9, ADDRESS)
    tell(broker, metadata(a=(1, (1, 2, 3)), b=(2, (2, 3))))
    assert knowledge.holds_at(broker) == expected


def test_a_leader_knows_its_replicas_out_of_sync() -> None:
    broker = ZkLightBroker(1, ADDRESS)
    wanted = Knowledge(in_sync=True)
    for epoch, leader, isr, is_in_sync in ((1, 1, (1, 2), False), (2, 2, (2,), True)):
        state = PartitionUpdate(Leadership(leader, epoch, isr, 1, epoch), (1, 2, 3))
        api, version, body = encode_request(LeaderAndIsr(1001, 1, {("a", 0): state}, []))
        broker._answer(api.key, version, memoryview(body))
        assert wanted.holds_at(broker) == is_in_sync


@pytest.mark.parametrize("version", [0, 1])
def test_a_broker_that_stops_asks_the_controller(version: int) -> None:
    asked: list[tuple[int, int, int]] = []

    def answer(key: int, version: int, body: memoryview) -> bytes:
        data = ControlledShutdownRequestData.decode(body, version)
        asked.append((key, version, data.broker_id))
        return encode_shutdown_response(0, ())

    store = MemoryZooKeeper()
    server = RequestServer(0, answer, name="controller")
    try:
        port = store.connect()
        port.run([CreateZnode(path) for path in ("/brokers", "/brokers/ids")])
        registration = BrokerZnode(1001, (ListenerAddress("127.0.0.1", server.port),))
        port.run(
            [
                CreateZnode(znodes.CONTROLLER, ControllerZnode(1001).encode()),
                CreateZnode(znodes.broker_path(1001), registration.encode()),
            ]
        )
        broker = ZkLightBroker(9, ADDRESS, shutdown_version=version)
        broker._connect = store.connect  # type: ignore[assignment]
        broker.start()
        broker.stop()
    finally:
        server.stop()
    assert asked == [(CONTROLLED_SHUTDOWN.key, version, 9)]
    assert not broker.is_running


def test_brokers_of_a_process_decode_metadata_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def decode(key: int, version: int, body: memoryview) -> object:
        decoded.append(key)
        return decode_request(key, version, body)

    monkeypatch.setattr("kraft.zookeeper.light_broker.decode_request", decode)
    shared = RequestDecoder()
    brokers = [ZkLightBroker(id, ADDRESS, decode=shared) for id in (8, 9)]
    first, second = metadata(a=(1, (1,))), metadata(a=(2, (2,)))
    for request in (first, second):
        for broker in brokers:
            tell(broker, request)
    assert decoded == [UPDATE_METADATA.key] * 2
    assert [broker.leader_counts[2] for broker in brokers] == [1, 1]
    # What each broker receives for itself is decoded each time.
    own = LeaderAndIsr(1001, 1, {}, [])
    api, version, body = encode_request(own)
    assert shared(api.key, version, memoryview(body)) == own
    assert shared(api.key, version, memoryview(body)) == own
    assert len(decoded) == 4
