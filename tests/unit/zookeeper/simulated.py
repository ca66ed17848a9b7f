"""A cluster of the ZooKeeper era in virtual time: candidates, brokers, and the tree in memory.

Brokers answer the requests of controllers at once, refuse those of an older controller epoch, and
remember what they were told. Each request is checked: one controller acts in each epoch.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kraft.zookeeper import znodes
from kraft.zookeeper.broker_requests import (
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    PartitionUpdate,
    StopReplica,
    UpdateMetadata,
)
from kraft.zookeeper.controller import ZkController
from kraft.zookeeper.era_0_8.controller import ListenerController
from kraft.zookeeper.events import BrokerResponseReceived, Expire, ListenerEvent, Startup
from kraft.zookeeper.memory import MemorySession, MemoryZooKeeper
from kraft.zookeeper.port import CreateZnode, DeleteZnode, GetZnode, SetZnode
from kraft.zookeeper.settings import SETTINGS_0_8, ZkControllerSettings, ZkEra
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress, PartitionStateZnode, TopicZnode

STALE_CONTROLLER_EPOCH = 11
#: The defaults of 0.8, but topics may be deleted.
DELETING_0_8 = replace(SETTINGS_0_8, delete_topic_enable=True)
#: Of the sessions, in 0.8: how long an elector waits for the end of its old one.
SESSION_TIMEOUT_MS = 6000


class SimulatedBroker:
    """What a broker was told; it has a session of its own while it runs."""

    def __init__(self, cluster: SimulatedZkCluster, id: int) -> None:
        self.id = id
        self.znode = BrokerZnode(id, (ListenerAddress("127.0.0.1", 9000 + id),))
        self.cluster = cluster
        self.session: MemorySession | None = None
        #: Replicas that it has.
        self.replicas: dict[PartitionKey, PartitionUpdate] = {}
        self.metadata: dict[PartitionKey, PartitionUpdate] = {}
        self.known_brokers: set[int] = set()
        self.controller_epoch = 0
        #: The codes with which it answers for partitions.
        self.errors: dict[PartitionKey, int] = {}

    def start(self) -> None:
        self.session = self.cluster.server.connect()
        path = znodes.broker_path(self.id)
        (result,) = self.session.run([CreateZnode(path, self.znode.encode(), is_ephemeral=True)])
        assert result.is_ok, result

    def stop(self) -> None:
        """End at once; its replicas stay on its disk."""
        assert self.session is not None
        session, self.session = self.session, None
        session.close()
        self.metadata.clear()
        self.known_brokers.clear()

    def receive(self, request: BrokerRequest) -> BrokerResponse:
        if request.controller_epoch < self.controller_epoch:
            return BrokerResponse(STALE_CONTROLLER_EPOCH, {})
        self.controller_epoch = request.controller_epoch
        match request:
            case LeaderAndIsr():
                # Without the address of a live leader a follower would not follow. In 0.8 it is
                # in the request itself, before the metadata.
                leaders = {broker.id for broker in request.live_leaders}
                if self.cluster.era == ZkEra.V2018:
                    assert leaders <= self.known_brokers | {self.id}, (self.id, request)
                for key, update in request.partitions.items():
                    old = self.replicas.get(key)
                    if old is None or old.leadership.leader_epoch < update.leadership.leader_epoch:
                        self.replicas[key] = update
            case UpdateMetadata():
                self.known_brokers = {broker.id for broker in request.live_brokers}
                for key, update in request.partitions.items():
                    if update.leadership.leader == -2:
                        self.metadata.pop(key, None)
                    else:
                        self.metadata[key] = update
            case StopReplica(delete=True):
                for key in request.partitions:
                    if not self.errors.get(key):
                        self.replicas.pop(key, None)
        keys = () if isinstance(request, UpdateMetadata) else request.partitions
        return BrokerResponse(0, {key: self.errors.get(key, 0) for key in keys})


class _Channels:
    """The channels of one candidate; requests arrive at once."""

    def __init__(self, cluster: SimulatedZkCluster, index: int) -> None:
        self._cluster = cluster
        self._index = index
        self.open: set[int] = set()

    def set_brokers(self, brokers: Mapping[int, BrokerZnode]) -> None:
        self.open = set(brokers)

    def send(self, broker: int, request: BrokerRequest) -> None:
        self._cluster.check(self._index, request)
        if broker in self.open:
            self._cluster.deliver(self._index, broker, request)


class SimulatedZkCluster:
    """``candidates`` controllers with ids from 101 on, and brokers from 1 on.

    The default settings let topics be deleted.
    """

    def __init__(
        self,
        candidates: int = 1,
        brokers: int = 3,
        settings: ZkControllerSettings | None = None,
        era: ZkEra = ZkEra.V2018,
    ) -> None:
        self.era = era
        self.server = MemoryZooKeeper()
        self.now_ms = 1000
        self._queue: list[tuple[int, int, int, ListenerEvent]] = []
        self._sequence = 0
        self.sent: list[tuple[int, BrokerRequest]] = []
        #: Controller epoch -> the candidate that acted in it.
        self.actors: dict[int, int] = {}
        self.admin = self.server.connect()
        self.brokers = {id: SimulatedBroker(self, id) for id in range(1, brokers + 1)}
        self.sessions = [self.server.connect() for _ in range(candidates)]
        self.channels = [_Channels(self, index) for index in range(candidates)]
        #: Called while an elector of 0.8 waits; the time passes before.
        self.on_wait: Callable[[], None] = lambda: None
        self.controllers = [self._controller(index, settings) for index in range(candidates)]
        for index in range(candidates):
            self.put(index, Startup())

    def _controller(
        self, index: int, settings: ZkControllerSettings | None
    ) -> ZkController | ListenerController:
        address = ListenerAddress("127.0.0.1", 9101 + index)
        registration = BrokerZnode(101 + index, (address,), controller_era=self.era)

        def put(event: ListenerEvent, delay_ms: int) -> None:
            self.put(index, event, delay_ms)

        if self.era == ZkEra.V2018:
            return ZkController(
                101 + index,
                self.sessions[index],
                self.channels[index],
                put=put,
                now_ms=lambda: self.now_ms,
                settings=settings,
                registration=registration,
            )
        return ListenerController(
            101 + index,
            self.sessions[index],
            self.channels[index],
            put=put,
            now_ms=lambda: self.now_ms,
            wait_ms=self._wait,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            settings=settings or DELETING_0_8,
            registration=registration,
        )

    def _wait(self, timeout_ms: int) -> None:
        self.now_ms += timeout_ms
        self.on_wait()

    def put(self, index: int, event: ListenerEvent, delay_ms: int = 0) -> None:
        if isinstance(event, Expire):
            self._queue = [one for one in self._queue if one[2] != index]
            heapq.heapify(self._queue)
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, index, event))

    def check(self, index: int, request: BrokerRequest) -> None:
        """Check the invariant of every request: one controller acts in an epoch."""
        epoch = request.controller_epoch
        assert self.actors.setdefault(epoch, index) == index, (epoch, index, self.actors)
        assert request.controller_id == 101 + index

    def deliver(self, index: int, broker: int, request: BrokerRequest) -> None:
        self.sent.append((broker, request))
        receiver = self.brokers.get(broker)
        if receiver is not None and receiver.session is not None:
            response = receiver.receive(request)
            if not isinstance(request, UpdateMetadata):
                self.put(index, BrokerResponseReceived(broker, request, response))

    def run(self, for_ms: int = 0, most_events: int = 5000) -> None:
        """Process what is due until ``for_ms`` later, in the order of time."""
        end_ms = self.now_ms + for_ms
        for _ in range(most_events):
            if not self._queue or self._queue[0][0] > end_ms:
                self.now_ms = end_ms
                return
            due_ms, _, index, event = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, due_ms)
            self.controllers[index].process(event)  # type: ignore[arg-type]
        raise AssertionError(f"more than {most_events} events; the next is {self._queue[0]}")

    # -- what administrators and leaders do

    @property
    def active(self) -> ZkController | ListenerController:
        (found,) = [one for one in self.controllers if one.is_active]
        return found

    def start(self, *brokers: int) -> None:
        """Start these brokers, or all, and run."""
        self.run()
        for id in brokers or self.brokers:
            self.brokers[id].start()
        self.run()

    def create_topic(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> None:
        data = TopicZnode({key: tuple(ids) for key, ids in assignment.items()}).encode()
        self.admin.run([CreateZnode(znodes.topic_path(topic), data)])
        self.run()

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a znode, and run."""
        (result,) = self.admin.run([CreateZnode(path, data)])
        if not result.is_ok:
            assert self.admin.run([SetZnode(path, data)])[0].is_ok, path
        self.run()

    def delete(self, path: str) -> None:
        assert self.admin.run([DeleteZnode(path)])[0].is_ok, path

    def state(self, topic: str, partition: int = 0) -> PartitionStateZnode:
        path = znodes.state_path(topic, partition)
        (result,) = self.admin.run([GetZnode(path)])
        assert result.is_ok, (path, result)
        return PartitionStateZnode.decode(result.data, path)

    def exists(self, path: str) -> bool:
        return path in self.server.paths()

    def set_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Write an ISR as its leader does, with the notification for the controller."""
        path = znodes.state_path(topic, partition)
        old = self.state(topic, partition)
        new = PartitionStateZnode(old.leader, old.leader_epoch, tuple(isr), old.controller_epoch)
        self.admin.run(
            [
                SetZnode(path, new.encode()),
                CreateZnode(
                    znodes.ISR_CHANGE_PREFIX,
                    znodes.encode_partitions([(topic, partition)]),
                    is_sequential=True,
                ),
            ]
        )
        self.run()
