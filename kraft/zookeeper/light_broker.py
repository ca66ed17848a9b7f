"""A light broker of the ZooKeeper era: it registers, obeys the controller, and stores no records.

It answers LeaderAndIsr, UpdateMetadata and StopReplica over a real socket as a broker of Kafka 1.1
or 0.8.2 does. Where it leads, live replicas join the ISR at once, as if they had caught up, and
dead ones leave it, as if they had fallen behind: it writes the partition's state and a
notification, as leaders do. (0.8 has no notifications: their parent is missing there.)
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from kraft._core.codec.partition_updates import apply_metadata
from kraft.errors import CorruptRecordError, ZooKeeperError
from kraft.metadata.identifiers import random_uuid
from kraft.protocol.headers import read_response_header, request_frame
from kraft.server.local_quorum import LOOPBACK
from kraft.zookeeper import znodes
from kraft.zookeeper.broker_requests import (
    LEADER_DURING_DELETE,
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    PartitionUpdate,
    StopReplica,
    UpdateMetadata,
)
from kraft.zookeeper.controller_rpcs import (
    CONTROLLED_SHUTDOWN,
    UPDATE_METADATA,
    ControlledShutdownRequestData,
    ControlledShutdownResponseData,
    decode_request,
    encode_response,
    inter_broker_address,
)
from kraft.zookeeper.frames import RequestServer, read_frame
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.port import CreateZnode, GetZnode, SetZnode
from kraft.zookeeper.server import DEFAULT_SESSION_TIMEOUT_MS, ZooKeeperAddress
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import (
    BrokerZnode,
    ControllerZnode,
    ListenerAddress,
    PartitionStateZnode,
)

_STALE_CONTROLLER_EPOCH = 11
_TIMEOUT_S = 30.0


class RequestDecoder:
    """Decodes requests for the brokers of one process: what all of them receive, once.

    UpdateMetadata is the same bytes for every broker, and with many partitions most of their work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[int, int, bytes, BrokerRequest] | None = None

    def __call__(self, key: int, version: int, body: memoryview) -> BrokerRequest:
        """Return the request. Raises CorruptRecordError."""
        if key != UPDATE_METADATA.key:
            return decode_request(key, version, body)
        # Views are compared byte by byte, hundreds of times as slowly.
        content = bytes(body)
        with self._lock:
            if self._last is not None and self._last[:3] == (key, version, content):
                return self._last[3]
            request = decode_request(key, version, body)
            self._last = key, version, content, request
            return request


class ZkLightBroker:
    """One broker. Keeps its replicas between `stop` and `start`.

    ``decode`` is `controller_rpcs.decode_request`, or a `RequestDecoder` that several brokers of a
    process share. ``shutdown_version`` is that of ControlledShutdown: 0 for Kafka 0.8's controller.
    """

    def __init__(
        self,
        broker_id: int,
        address: ZooKeeperAddress,
        *,
        rack: str | None = None,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        decode: Callable[[int, int, memoryview], BrokerRequest] = decode_request,
        shutdown_version: int = 1,
    ) -> None:
        self.id = broker_id
        self._rack = rack
        self._decode = decode
        self._shutdown_version = shutdown_version
        self._connect = partial(
            KazooPort, address, session_timeout_ms=session_timeout_ms, owner=f"broker {broker_id}"
        )
        self._lock = threading.Lock()
        #: The partitions that it has replicas of, as the controller last told.
        self.replicas: dict[PartitionKey, PartitionUpdate] = {}
        #: The partitions of the cluster that it could answer clients about.
        self.metadata: dict[PartitionKey, PartitionUpdate] = {}
        #: How many of these each broker leads (-1: none does), and how many lack a replica in sync.
        self.leader_counts: Counter[int] = Counter()
        self.out_of_sync_count = 0
        #: Called after each UpdateMetadata that was applied, in the thread of its connection.
        self.on_metadata: Callable[[ZkLightBroker], None] = lambda broker: None
        #: Called when ZooKeeper has ended the session, so that the broker is not registered.
        self.on_expired: Callable[[ZkLightBroker], None] = lambda broker: None
        self.controller_epoch = 0
        #: The brokers that the controller counts as live.
        self.live_brokers: set[int] = set()
        self._server: RequestServer | None = None
        self._session: KazooPort

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @property
    def endpoint(self) -> str:
        """The address of its listener, while it runs."""
        assert self._server is not None
        return f"{LOOPBACK}:{self._server.port}"

    def start(self) -> None:
        """Listen and register. Raises ZooKeeperError if the id is registered already."""
        self._forget_metadata()
        session = self._connect()
        session.on_expired = lambda: self.on_expired(self)
        server = RequestServer(0, self._answer, name=f"broker-{self.id}")
        registration = BrokerZnode(
            self.id,
            (ListenerAddress(LOOPBACK, server.port),),
            self._rack,
            timestamp_ms=int(time.time() * 1000),
        )
        self._session, self._server = session, server
        # The first broker of a cluster names it (``KafkaServer.getOrGenerateClusterId``).
        cluster_id = znodes.encode_cluster_id(str(random_uuid()))
        session.run([CreateZnode("/cluster"), CreateZnode(znodes.CLUSTER_ID, cluster_id)])
        path = znodes.broker_path(self.id)
        (created,) = session.run([CreateZnode(path, registration.encode(), is_ephemeral=True)])
        if not created.is_ok:
            self.kill()
            raise ZooKeeperError(
                f"broker {self.id} cannot register at {path}: {created.code.name}; it may be "
                "registered in another session"
            )

    def _forget_metadata(self) -> None:
        """Begin with an empty cache of metadata, as a process that starts."""
        with self._lock:
            self.metadata.clear()
            self.leader_counts.clear()
            self.out_of_sync_count = 0

    def kill(self) -> None:
        """End at once; the session ends too, so that the controller sees it."""
        if self._server is not None:
            server, self._server = self._server, None
            self._session.close()
            server.stop()

    def stop(self) -> None:
        """Let the controller move the leaders away, then end."""
        if self._server is not None:
            self._shut_down()
            self.kill()

    def _shut_down(self) -> None:
        """Send ControlledShutdown to the active controller, if there is one."""
        (found,) = self._session.run([GetZnode(znodes.CONTROLLER)])
        if not found.is_ok:
            return
        controller_id = ControllerZnode.decode(found.data).broker_id
        (found,) = self._session.run([GetZnode(znodes.broker_path(controller_id))])
        address = None
        if found.is_ok:
            address = inter_broker_address(BrokerZnode.decode(found.data, controller_id))
        if address is None:
            return
        version = self._shutdown_version
        body = ControlledShutdownRequestData(broker_id=self.id).encode(version)
        if version == 0:
            # The only request without a client id.
            head = struct.pack(">ihhi", 8 + len(body), CONTROLLED_SHUTDOWN.key, version, 1)
            request = head + body
        else:
            request = request_frame(CONTROLLED_SHUTDOWN, version, 1, f"{self.id}", body)
        with socket.create_connection((address.host, address.port), _TIMEOUT_S) as connection:
            connection.sendall(request)
            frame = read_frame(connection)
            if frame is None:
                raise CorruptRecordError(f"controller {controller_id} closed the connection")
            _, position = read_response_header(frame, CONTROLLED_SHUTDOWN, version)
            ControlledShutdownResponseData.decode(frame, version, position)

    # -- the controller's requests

    def _answer(self, key: int, version: int, body: memoryview) -> bytes:
        request = self._decode(key, version, body)
        with self._lock:
            response = self._obey(request)
            # Only now: after LeaderAndIsr the live brokers may still be those of before.
            if not response.error and isinstance(request, UpdateMetadata):
                self._adjust_isrs(request.partitions)
        if isinstance(request, UpdateMetadata):
            self.on_metadata(self)
        return encode_response(request, version, response)

    def _obey(self, request: BrokerRequest) -> BrokerResponse:
        keys = () if isinstance(request, UpdateMetadata) else tuple(request.partitions)
        if request.controller_epoch < self.controller_epoch:
            return BrokerResponse(
                _STALE_CONTROLLER_EPOCH, dict.fromkeys(keys, _STALE_CONTROLLER_EPOCH)
            )
        self.controller_epoch = request.controller_epoch
        codes = dict.fromkeys(keys, 0)
        match request:
            case LeaderAndIsr():
                for key, update in request.partitions.items():
                    old = self.replicas.get(key)
                    if old is None or old.leadership.leader_epoch < update.leadership.leader_epoch:
                        self.replicas[key] = update
                    else:
                        codes[key] = _STALE_CONTROLLER_EPOCH
            case UpdateMetadata():
                self.live_brokers = {broker.id for broker in request.live_brokers}
                self.out_of_sync_count += apply_metadata(
                    self.metadata, request.partitions, self.leader_counts, LEADER_DURING_DELETE
                )
            case StopReplica():
                if request.delete:
                    for key in request.partitions:
                        self.replicas.pop(key, None)
        return BrokerResponse(0, codes)

    def leads_out_of_sync(self) -> bool:
        """Return whether it leads a partition that lacks a replica in sync."""
        with self._lock:
            return any(
                update.leadership.leader == self.id
                and len(update.leadership.isr) < len(update.replicas)
                for update in self.replicas.values()
            )

    def _adjust_isrs(self, keys: Iterable[PartitionKey]) -> None:
        """Add live replicas to the ISRs of those partitions that this broker leads; drop dead ones.

        The controller drops them too, but this broker may have added one after that.
        """
        wanted: dict[PartitionKey, PartitionStateZnode] = {}
        replicas, live = self.replicas, self.live_brokers
        for key in keys:
            update = replicas.get(key)
            if update is None or update.leadership.leader != self.id:
                continue
            known = update.leadership
            if len(known.isr) == len(update.replicas) and live.issuperset(known.isr):
                continue
            isr = [one for one in known.isr if one in self.live_brokers or one == self.id]
            isr += [
                one for one in update.replicas if one in self.live_brokers and one not in known.isr
            ]
            if tuple(isr) != known.isr:
                wanted[key] = PartitionStateZnode(
                    self.id, known.leader_epoch, tuple(isr), known.controller_epoch
                )
        if not wanted:
            return
        # A state that the controller has written meanwhile stays: its next request comes.
        results = self._session.run(
            [
                SetZnode(
                    znodes.state_path(*key),
                    state.encode(),
                    self.replicas[key].leadership.zk_version,
                )
                for key, state in wanted.items()
            ]
        )
        written = []
        for (key, state), result in zip(wanted.items(), results, strict=True):
            if result.is_ok:
                update = self.replicas[key]
                changed = update.leadership._replace(isr=state.isr, zk_version=result.version)
                self.replicas[key] = update._replace(leadership=changed)
                written.append(key)
        if written:
            notification = znodes.encode_partitions(written)
            self._session.run(
                [CreateZnode(znodes.ISR_CHANGE_PREFIX, notification, is_sequential=True)]
            )
