"""Nodes whose transports run on a loop in a thread, for tests of blocking clients."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from kraft import errors
from kraft.errors import UnsupportedVersionError
from kraft.network.transport import Transport, TransportConfig
from kraft.protocol.api_versions import NodeFeatures
from kraft.protocol.describe_cluster import DESCRIBE_CLUSTER, ClusterDescription
from kraft.raft import rpc as m
from kraft.raft.interface import (
    Event,
    RequestAbandoned,
    RequestReceived,
    RequestsReceived,
    SendResponse,
)
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey
from kraft.records import Uuid
from kraft.server.apis.api import handler_of
from kraft.server.cluster_description import describe_cluster_api
from tests.harness.commands import PATIENCE_S

LISTENER = "CONTROLLER"
CLUSTER_ID = "3Db5QLSqSZieL3rJBUUegA"
DIRECTORIES = {id: Uuid(bytes([id + 1]) * 16) for id in range(5)}


@dataclass
class RunningNodes:
    """``count`` nodes, one of which leads; `answer` is its response to all but DescribeQuorum."""

    count: int = 3
    leader_id: int = 1
    #: Its response is None where the leader does not answer.
    answer: Callable[[m.Request], m.Response | None] = field(
        default=lambda request: silent(request)
    )
    epoch: int = 7
    #: How long the leader takes for all requests but DescribeQuorum, from when it may answer.
    delay_s: float = 0.0
    may_answer: Callable[[], object] = field(default=lambda: True)
    #: Whether other nodes name the leader in their response to DescribeQuorum.
    names_leader: bool = True
    serves_describe_cluster: bool = True
    #: Nodes that DescribeCluster does not know.
    unregistered: tuple[int, ...] = ()
    #: Nodes that do not know the metadata.version yet.
    starting: tuple[int, ...] = ()
    asked: list[tuple[int, m.Request]] = field(default_factory=list)
    ports: dict[int, int] = field(default_factory=dict)
    transports: dict[int, Transport] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(PATIENCE_S)
        return self

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def addresses(self, *ids: int) -> list[tuple[str, int]]:
        return [("127.0.0.1", self.ports[id]) for id in ids]

    def endpoints(self, id: int) -> tuple[Endpoint, ...]:
        return (Endpoint(LISTENER, "127.0.0.1", self.ports[id]),)

    def description(self) -> m.DescribeQuorumResponse:
        """Return the leader's view: 0 is a second behind, 2 never fetched, 4 is an observer."""
        lags = {0: (90, 9_000, 8_000), 1: (100, 10_000, 10_000), 2: (-1, -1, -1)}
        return m.DescribeQuorumResponse(
            error=0,
            epoch=self.epoch,
            leader_id=self.leader_id,
            high_watermark=95,
            voters=tuple(
                m.DescribedReplica(ReplicaKey(id, DIRECTORIES[id]), *lag)
                for id, lag in lags.items()
            ),
            observers=(m.DescribedReplica(ReplicaKey(4), 97, 9_900, 9_800),),
            nodes={id: self.endpoints(id) for id in self.ports},
        )

    async def _start(self) -> None:
        for id in range(self.count):
            at = (Endpoint(LISTENER, "127.0.0.1", 0),)
            describe_cluster = describe_cluster_api(partial(self._cluster, id))
            handlers = {DESCRIBE_CLUSTER.key: handler_of(describe_cluster, None, None, Counter())}
            self.transports[id] = Transport(
                TransportConfig(id, at),
                partial(self._received, id),
                no_slices,
                lambda: NodeFeatures({"kraft.version": KRaftVersionRange(0, 1)}, {}, 5),
                handlers if self.serves_describe_cluster else {},
            )
            await self.transports[id].start()
            self.ports[id] = self.transports[id].endpoints[0].port

    async def _close(self) -> None:
        for transport in self.transports.values():
            await transport.close()

    def _cluster(self, id: int, listener: str) -> ClusterDescription:
        if id in self.starting:
            raise UnsupportedVersionError("not supported with the current MetadataVersion")
        controllers = {
            id: ("127.0.0.1", port)
            for id, port in self.ports.items()
            if id not in self.unregistered
        }
        return ClusterDescription(CLUSTER_ID, self.leader_id, controllers)

    def _received(self, id: int, event: Event) -> None:
        if isinstance(event, RequestAbandoned):
            return
        if isinstance(event, RequestsReceived):
            for each in event.requests:
                self._received(id, each)
            return
        assert isinstance(event, RequestReceived)
        self.asked.append((id, event.request))
        leads = id == self.leader_id
        if isinstance(event.request, m.DescribeQuorumRequest):
            response: m.Response = self.description() if leads else self._refusal()
        elif leads:
            answer = self.answer(event.request)
            if answer is not None:
                self._answer_later(
                    partial(self.transports[id].send, SendResponse(event.reply_to, answer))
                )
            return
        elif isinstance(event.request, m.FetchRequest):
            response = m.FetchResponse(errors.FENCED_LEADER_EPOCH, self.epoch)
            if self.leader_id >= 0:
                response.leader_id = self.leader_id
                response.leader_endpoints = self.endpoints(self.leader_id)
        else:
            name = type(event.request).__name__.replace("Request", "Response")
            response = getattr(m, name)(errors.NOT_LEADER_OR_FOLLOWER)
        self.transports[id].send(SendResponse(event.reply_to, response))

    def _answer_later(self, send: Callable[[], None]) -> None:
        if self.may_answer():
            self._loop.call_later(self.delay_s, send)
        else:
            self._loop.call_later(0.01, self._answer_later, send)

    def _refusal(self) -> m.DescribeQuorumResponse:
        refusal = m.DescribeQuorumResponse(errors.NOT_LEADER_OR_FOLLOWER, self.epoch)
        if self.names_leader and self.leader_id >= 0:
            refusal.leader_id = self.leader_id
            refusal.leader_endpoints = self.endpoints(self.leader_id)
        return refusal


def done(request: m.Request) -> m.Response:
    """Return a response without an error."""
    name = type(request).__name__.replace("Request", "Response")
    response: m.Response = getattr(m, name)(0)
    return response


def silent(request: m.Request) -> m.Response:
    raise AssertionError(f"unexpected request: {request}")


def no_slices(slice: m.LogSlice | m.SnapshotSlice) -> memoryview:
    raise AssertionError(f"unexpected slice: {slice}")
