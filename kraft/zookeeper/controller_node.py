"""A controller of 2018 as a node: its session, event loop, channels, and listener.

The listener answers ControlledShutdown, which brokers send to the address that the controller
registers below ``/brokers/ids`` while it is active. The node is no broker: it gets no replicas, and
clients do not see it.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial

from kraft.errors import (
    BROKER_NOT_AVAILABLE,
    NOT_CONTROLLER,
    CorruptRecordError,
    KraftError,
    NotControllerError,
)
from kraft.server.local_quorum import LOOPBACK
from kraft.zookeeper.broker_channels import SocketChannels
from kraft.zookeeper.controller import ZkController
from kraft.zookeeper.controller_rpcs import (
    CONTROLLED_SHUTDOWN,
    ControlledShutdownRequestData,
    encode_shutdown_response,
)
from kraft.zookeeper.event_loop import ControllerEventLoop
from kraft.zookeeper.events import BrokerResponseReceived, ControlledShutdown, Startup
from kraft.zookeeper.frames import RequestServer
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.server import DEFAULT_SESSION_TIMEOUT_MS, ZooKeeperAddress
from kraft.zookeeper.settings import ZkControllerSettings
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress

_log = logging.getLogger(__name__)

#: How long a broker waits for its answer, as ``controller.socket.timeout.ms``.
_SHUTDOWN_TIMEOUT_S = 30.0


class ZkControllerNode:
    """A candidate that runs from `start` to `stop`. ``port`` 0 chooses a free one.

    ``pipelines`` False writes one znode at a time, as Kafka before 1.1.
    """

    def __init__(
        self,
        broker_id: int,
        address: ZooKeeperAddress,
        *,
        port: int = 0,
        settings: ZkControllerSettings | None = None,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        pipelines: bool = True,
    ) -> None:
        self.id = broker_id
        self._port = port
        self._settings = settings
        self._connect = partial(
            KazooPort,
            address,
            session_timeout_ms=session_timeout_ms,
            creates_chroot=True,
            pipelines=pipelines,
        )
        #: None while it does not run.
        self.controller: ZkController | None = None
        self._loop: ControllerEventLoop
        self._channels: SocketChannels
        self._session: KazooPort
        self._server: RequestServer

    @property
    def is_running(self) -> bool:
        return self.controller is not None

    @property
    def is_active(self) -> bool:
        return self.controller is not None and self.controller.is_active

    @property
    def endpoint(self) -> str:
        """The address of its listener, while it runs."""
        return f"{LOOPBACK}:{self._server.port}"

    def start(self) -> None:
        """Connect and elect. Raises as `server.open_client`, and OSError for a port that
        is in use.
        """
        self._session = self._connect()
        try:
            self._server = RequestServer(self._port, self._answer, name=f"controller-{self.id}")
        except BaseException:
            self._session.close()
            raise
        self._loop = loop = ControllerEventLoop()
        self._channels = SocketChannels(
            self.id,
            lambda broker, request, response: loop.put(
                BrokerResponseReceived(broker, request, response)
            ),
        )
        registration = BrokerZnode(
            self.id,
            (ListenerAddress(LOOPBACK, self._server.port),),
            timestamp_ms=_now_ms(),
            is_controller_only=True,
        )
        self.controller = ZkController(
            self.id,
            self._session,
            self._channels,
            put=loop.put,
            now_ms=_now_ms,
            settings=self._settings,
            registration=registration,
        )
        loop.put(Startup())
        loop.start(self.controller)

    def stop(self) -> None:
        """End the session, so that another candidate is elected at once."""
        if self.controller is None:
            return
        self.controller = None
        # Requests of the broker that are waiting end with the session's operations.
        self._session.close()
        self._loop.stop()
        self._channels.stop()
        self._server.stop()

    def _answer(self, key: int, version: int, body: memoryview) -> bytes:
        """Answer ControlledShutdown, the only request of brokers to a controller."""
        if key != CONTROLLED_SHUTDOWN.key or version not in CONTROLLED_SHUTDOWN:
            raise CorruptRecordError(
                f"controller {self.id} answers ControlledShutdown {CONTROLLED_SHUTDOWN.highest}, "
                f"not API {key} in version {version}"
            )
        broker_id = ControlledShutdownRequestData.decode(body, version).broker_id
        answered = threading.Event()
        answers: list[list[PartitionKey] | KraftError] = []

        def take(answer: list[PartitionKey] | KraftError) -> None:
            answers.append(answer)
            answered.set()

        self._loop.put(ControlledShutdown(broker_id, take))
        if not answered.wait(_SHUTDOWN_TIMEOUT_S):
            return encode_shutdown_response(NOT_CONTROLLER, ())
        answer = answers[0]
        if isinstance(answer, NotControllerError):
            return encode_shutdown_response(NOT_CONTROLLER, ())
        if isinstance(answer, KraftError):
            _log.warning("controller %d: shutdown of broker %d: %s", self.id, broker_id, answer)
            return encode_shutdown_response(BROKER_NOT_AVAILABLE, ())
        return encode_shutdown_response(0, answer)


def _now_ms() -> int:
    return int(time.time() * 1000)
