"""A controller of the ZooKeeper era as a node: its session, runtime, and listener.

The listener answers ControlledShutdown, which brokers send to the address that the controller
registers below ``/brokers/ids`` while it is active. The node is no broker: it gets no replicas, and
clients do not see it.
"""

from __future__ import annotations

import logging
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
from kraft.zookeeper.controller import ZkController
from kraft.zookeeper.controller_rpcs import (
    CONTROLLED_SHUTDOWN,
    ControlledShutdownRequestData,
    encode_shutdown_response,
)
from kraft.zookeeper.era_0_8.controller import ListenerController
from kraft.zookeeper.frames import RequestServer
from kraft.zookeeper.kazoo_port import KazooPort
from kraft.zookeeper.port import ZooKeeperPort
from kraft.zookeeper.runtimes import ControllerRuntime, ListenerRuntime, QueueRuntime
from kraft.zookeeper.sequential_port import SequentialPort
from kraft.zookeeper.server import DEFAULT_SESSION_TIMEOUT_MS, ZooKeeperAddress
from kraft.zookeeper.settings import ZkControllerSettings, ZkEra
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress

_log = logging.getLogger(__name__)


class ZkControllerNode:
    """A candidate that runs from `start` to `stop`. ``port`` 0 chooses a free one.

    ``settings`` None are the defaults of the era. ``pipelines`` False reads and writes one znode at
    a time, as Kafka before 1.1; that of 0.8 always does.
    """

    def __init__(
        self,
        broker_id: int,
        address: ZooKeeperAddress,
        *,
        era: ZkEra = ZkEra.V2018,
        port: int = 0,
        settings: ZkControllerSettings | None = None,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        pipelines: bool = True,
    ) -> None:
        self.id = broker_id
        self.era = era
        self._port = port
        self._settings = settings
        self._session_timeout_ms = session_timeout_ms
        self._pipelines = pipelines
        self._connect = partial(
            KazooPort,
            address,
            session_timeout_ms=session_timeout_ms,
            creates_chroot=True,
            owner=f"controller {broker_id}",
        )
        self._runtime: ControllerRuntime | None = None
        self._session: KazooPort
        self._server: RequestServer

    @property
    def controller(self) -> ZkController | ListenerController | None:
        """The controller; None while the node does not run."""
        return None if self._runtime is None else self._runtime.controller

    @property
    def is_running(self) -> bool:
        return self._runtime is not None

    @property
    def is_active(self) -> bool:
        controller = self.controller
        return controller is not None and controller.is_active

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
        registration = BrokerZnode(
            self.id,
            (ListenerAddress(LOOPBACK, self._server.port),),
            timestamp_ms=int(time.time() * 1000),
            controller_era=self.era,
        )
        port: ZooKeeperPort = self._session if self._pipelines else SequentialPort(self._session)
        if self.era == ZkEra.V0_8:
            self._runtime = ListenerRuntime(
                self.id, port, registration, self._settings, self._session_timeout_ms
            )
        else:
            self._runtime = QueueRuntime(self.id, port, registration, self._settings)

    def stop(self) -> None:
        """End the session, so that another candidate is elected at once."""
        if self._runtime is None:
            return
        runtime, self._runtime = self._runtime, None
        # Requests of brokers that are waiting end with the session's operations.
        self._session.close()
        runtime.stop()
        self._server.stop()

    def _answer(self, key: int, version: int, body: memoryview) -> bytes:
        """Answer ControlledShutdown, the only request of brokers to a controller."""
        if key != CONTROLLED_SHUTDOWN.key or version not in CONTROLLED_SHUTDOWN:
            raise CorruptRecordError(
                f"controller {self.id} answers ControlledShutdown {CONTROLLED_SHUTDOWN.highest}, "
                f"not API {key} in version {version}"
            )
        broker_id = ControlledShutdownRequestData.decode(body, version).broker_id
        runtime = self._runtime
        try:
            if runtime is None:
                raise NotControllerError(f"controller {self.id} is not running")
            return encode_shutdown_response(0, runtime.shut_down_broker(broker_id))
        except NotControllerError:
            return encode_shutdown_response(NOT_CONTROLLER, ())
        except KraftError as error:
            _log.warning("controller %d: shutdown of broker %d: %s", self.id, broker_id, error)
            return encode_shutdown_response(BROKER_NOT_AVAILABLE, ())
