"""The threads of a controller: of 2018 one queue, of 0.8 several that share one lock.

A runtime joins a controller with a session of ZooKeeper and channels to brokers. It starts the
election when it is made.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from kraft.errors import KraftError, NotControllerError
from kraft.zookeeper.broker_channels import SocketChannels
from kraft.zookeeper.broker_requests import BrokerRequest, BrokerResponse
from kraft.zookeeper.controller import ZkController
from kraft.zookeeper.controller_rpcs import VERSIONS_0_8
from kraft.zookeeper.era_0_8.controller import ListenerController
from kraft.zookeeper.event_loop import ControllerEventLoop, process_guarded
from kraft.zookeeper.events import (
    AutoPreferredReplicaLeaderElection,
    BrokerResponseReceived,
    ControlledShutdown,
    ControllerEvent,
    ListenerEvent,
    Startup,
    TopicDeletionResumed,
)
from kraft.zookeeper.port import ZooKeeperPort
from kraft.zookeeper.settings import SETTINGS_0_8, ZkControllerSettings
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import BrokerZnode

#: How long a broker waits for its answer, as ``controller.socket.timeout.ms``.
_SHUTDOWN_TIMEOUT_S = 30.0


class ControllerRuntime(Protocol):
    """A controller that runs from the construction to `stop`."""

    @property
    def controller(self) -> ZkController | ListenerController: ...

    def shut_down_broker(self, broker: int) -> list[PartitionKey]:
        """Move the leaders of a broker that wants to stop; return those that it keeps.

        Called in any thread. Raises NotControllerError unless active, and other KraftErrors.
        """

    def stop(self) -> None:
        """End the threads; the session must have ended."""


class QueueRuntime:
    """The controller of 2018: one queue, one thread."""

    def __init__(
        self,
        broker_id: int,
        port: ZooKeeperPort,
        registration: BrokerZnode,
        settings: ZkControllerSettings | None,
    ) -> None:
        self._loop: ControllerEventLoop[ControllerEvent] = ControllerEventLoop()
        self._channels = SocketChannels(
            broker_id,
            lambda broker, request, response: self._loop.put(
                BrokerResponseReceived(broker, request, response)
            ),
        )
        self.controller = ZkController(
            broker_id,
            port,
            self._channels,
            put=self._loop.put,
            now_ms=_now_ms,
            settings=settings,
            registration=registration,
        )
        self._loop.put(Startup())
        self._loop.start(self.controller)

    def shut_down_broker(self, broker: int) -> list[PartitionKey]:
        """Queue the event, and wait for its answer."""
        answered = threading.Event()
        answers: list[list[PartitionKey] | KraftError] = []

        def take(answer: list[PartitionKey] | KraftError) -> None:
            answers.append(answer)
            answered.set()

        self._loop.put(ControlledShutdown(broker, take))
        if not answered.wait(_SHUTDOWN_TIMEOUT_S):
            raise NotControllerError(
                f"controller {self.controller.broker_id} did not answer within "
                f"{_SHUTDOWN_TIMEOUT_S:.0f} s"
            )
        if isinstance(answers[0], KraftError):
            raise answers[0]
        return answers[0]

    def stop(self) -> None:
        """End the thread and the channels."""
        self._loop.stop()
        self._channels.stop()


class ListenerRuntime:
    """The controller of 0.8 and its threads.

    ZooKeeper's changes, the deletion of topics and the election of preferred leaders have a thread
    each; requests and answers of brokers come in those of their connections.
    """

    def __init__(
        self,
        broker_id: int,
        port: ZooKeeperPort,
        registration: BrokerZnode,
        settings: ZkControllerSettings | None,
        session_timeout_ms: int,
    ) -> None:
        self._stopping = threading.Event()
        self._loops: dict[str, ControllerEventLoop[ListenerEvent]] = {
            name: ControllerEventLoop(f"{name}-{broker_id}")
            for name in ("zookeeper-events", "delete-topics", "partition-rebalance")
        }
        self._channels = SocketChannels(broker_id, self._answered, VERSIONS_0_8)
        self.controller = ListenerController(
            broker_id,
            port,
            self._channels,
            put=self._put,
            now_ms=_now_ms,
            wait_ms=self._wait,
            session_timeout_ms=session_timeout_ms,
            settings=settings or SETTINGS_0_8,
            registration=registration,
        )
        self._put(Startup())
        for loop in self._loops.values():
            loop.start(self.controller)

    def _put(self, event: ListenerEvent, delay_ms: int = 0) -> None:
        match event:
            case TopicDeletionResumed():
                name = "delete-topics"
            case AutoPreferredReplicaLeaderElection():
                name = "partition-rebalance"
            case _:
                name = "zookeeper-events"
        self._loops[name].put(event, delay_ms)

    def _wait(self, timeout_ms: int) -> None:
        self._stopping.wait(timeout_ms / 1000)

    def _answered(self, broker: int, request: BrokerRequest, response: BrokerResponse) -> None:
        process_guarded(self.controller, BrokerResponseReceived(broker, request, response))

    def shut_down_broker(self, broker: int) -> list[PartitionKey]:
        """Move the leaders in the calling thread."""
        return self.controller.shut_down_broker(broker)

    def stop(self) -> None:
        """End the threads and the channels."""
        self._stopping.set()
        for loop in self._loops.values():
            loop.stop()
        self._channels.stop()


def _now_ms() -> int:
    return int(time.time() * 1000)
