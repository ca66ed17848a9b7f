"""Raft nodes in virtual time: a queue of actions, and a network between the nodes.

A subclass of `VirtualQuorum` has the disks: it performs the writes of a step in `carry_out`, and
reads the records and snapshots of responses. It may drop messages, and record steps.
`kraft.simulation` has its own quorum, which injects faults at random and checks every step.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Generic, TypeVar

from kraft.raft.interface import (
    Event,
    RaftReady,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SendRequest,
)
from kraft.raft.node import Node
from kraft.raft.rpc import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    FetchSnapshotResponse,
    LogSlice,
    Request,
    SnapshotSlice,
)
from tests.harness.raft_nodes import endpoint

#: The source of requests that no node sent; their responses go nowhere.
CLIENT = "client"
NEVER = float("inf")
_FIRST_PORT = endpoint(0).port


@dataclass
class VirtualNode:
    """A node, which may be stopped."""

    id: int
    node: Node | None = None
    #: The number of its starts and stops: actions of an earlier process are dropped.
    life: int = 0
    wake_at_ms: float = NEVER

    @property
    def running(self) -> Node:
        assert self.node is not None, f"{self.id} does not run"
        return self.node


AnyNode = TypeVar("AnyNode", bound=VirtualNode)


class VirtualQuorum(ABC, Generic[AnyNode]):
    """The nodes by id; node ``id`` has the endpoint ``raft_nodes.endpoint(id)``."""

    def __init__(self, now_ms: float, *, latency_ms: float) -> None:
        self.now_ms = now_ms
        self.latency_ms = latency_ms
        self.members: dict[int, AnyNode] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        #: Source and correlation of each request without a response yet.
        self._calls: dict[int, tuple[int | str, int]] = {}

    # -- time

    def at(self, at_ms: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (at_ms, next(self._order), act))

    def run(self, until_ms: float, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Run until ``is_enough`` (return True) or until ``until_ms`` (return False)."""
        while not is_enough():
            if not self._queue or self._queue[0][0] > until_ms:
                self.now_ms = until_ms
                return False
            at_ms, _, act = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, at_ms)
            act()
        return True

    def after(self, delay_ms: float, member: AnyNode, act: Callable[[], Any]) -> None:
        """Call ``act`` after a delay, unless the member is stopped, or starts or stops before."""
        life = member.life

        def act_if_running() -> None:
            if member.node is not None and member.life == life:
                act()

        self.at(self.now_ms + delay_ms, act_if_running)

    # -- steps

    def start(self, member: AnyNode, node: Node) -> None:
        member.node = node
        member.life += 1
        self.step(member, None)

    def stop(self, member: AnyNode) -> None:
        member.node, member.wake_at_ms = None, NEVER
        member.life += 1

    def step(self, member: AnyNode, event: Event) -> RaftReady:
        """Step a node and carry out the result."""
        ready = self.react(member, event)
        self.carry_out(member, event, ready)
        for send in ready.to_send:
            if isinstance(send, SendRequest):
                self.send_request(member, send, self.members.get(send.endpoint.port - _FIRST_PORT))
            else:
                self._respond(member, send.reply_to, send.response)
        wake_at_ms = member.wake_at_ms = ready.wake_at_ms
        if wake_at_ms != NEVER:
            self.at(wake_at_ms, lambda: self._wake(member, wake_at_ms))
        return ready

    def _wake(self, member: AnyNode, at_ms: float) -> None:
        if member.wake_at_ms == at_ms:
            self.step(member, None)

    # -- the network

    def send_request(self, member: AnyNode, send: SendRequest, target: AnyNode | None) -> None:
        """Deliver a request, or let it fail if there is no such node."""
        if target is None:
            self.fail(member, send)
            return
        reply_to = next(self._order)
        self._calls[reply_to] = (member.id, send.correlation)
        life = member.life

        def arrive() -> None:
            if target.node is not None:
                self._receive(target, send.request, reply_to)
            elif member.life == life and not self.is_cut(target.id, member.id):
                self.step(member, RequestFailed(send.correlation))

        self.at(self.now_ms + self.latency_ms, arrive)

    def fail(self, member: AnyNode, send: SendRequest, *, is_unsupported: bool = False) -> None:
        failure = RequestFailed(send.correlation, is_unsupported)
        self.after(self.latency_ms, member, lambda: self.step(member, failure))

    def ask(self, target: AnyNode, request: Request) -> None:
        """Send a request of a client, or of a peer that is not simulated."""
        reply_to = next(self._order)
        self._calls[reply_to] = (CLIENT, 0)
        self._receive(target, request, reply_to)

    def _receive(self, target: AnyNode, request: Request, reply_to: int) -> None:
        if isinstance(request, ApiVersionsRequest):
            # The server answers it, not the node.
            versions = target.running.config.kraft_versions
            self._respond(target, reply_to, ApiVersionsResponse(0, versions))
            return
        self.step(target, RequestReceived(request, reply_to))

    def _respond(self, member: AnyNode, reply_to: int, response: Any) -> None:
        source, correlation = self._calls.pop(reply_to)
        if isinstance(response, FetchResponse) and isinstance(response.records, LogSlice):
            response = replace(response, records=self.read(member, response.records))
        elif isinstance(response, FetchSnapshotResponse) and isinstance(
            response.data, SnapshotSlice
        ):
            response = replace(response, data=self.read_snapshot(member, response.data))
        if not self.is_delivered(member, source, response) or not isinstance(source, int):
            return
        caller, received = self.members[source], ResponseReceived(correlation, response)
        self.after(self.latency_ms, caller, lambda: self.step(caller, received))

    # -- of subclasses

    def react(self, member: AnyNode, event: Event) -> RaftReady:
        return member.running.step(event, self.now_ms)

    @abstractmethod
    def carry_out(self, member: AnyNode, event: Event, ready: RaftReady) -> None:
        """Perform the writes of a step, before its messages are sent."""

    @abstractmethod
    def read(self, member: AnyNode, at: LogSlice) -> bytes | memoryview: ...

    @abstractmethod
    def read_snapshot(self, member: AnyNode, at: SnapshotSlice) -> bytes | memoryview: ...

    def is_cut(self, source: int, target: int) -> bool:
        """Return whether messages from ``source`` to ``target`` are lost."""
        return False

    def is_delivered(self, member: AnyNode, source: int | str, response: Any) -> bool:
        return True
