"""A well-behaved broker that registers at a controller and sends heartbeats all the time."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kraft.errors import NOT_CONTROLLER
from kraft.metadata.identifiers import random_uuid
from kraft.protocol.broker_heartbeat import (
    BROKER_HEARTBEAT,
    BrokerHeartbeatRequestData,
    BrokerHeartbeatResponseData,
)
from kraft.protocol.broker_registration import (
    BROKER_REGISTRATION,
    BrokerRegistrationRequestData,
    BrokerRegistrationResponseData,
)
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.headers import Api, read_response_header, request_frame
from kraft.server.local_quorum import LOOPBACK
from kraft.server.storage.features import SUPPORTED_FEATURES
from tests.harness.commands import PATIENCE_S, eventually
from tests.harness.standstills import Standstills

BROKER = 900_001
_PAUSE_S = 0.02
_CAUGHT_UP = 1 << 40


class BeatingBroker:
    """A broker of one connection, in a thread; a context manager.

    ``longest_s`` is the longest time to a response, without that in which the node waited for a
    processor, ``longest_stall_s`` the longest standstill of the machine, also while a response was
    due, ``count`` the heartbeats, ``without_leader`` those that were answered with NOT_CONTROLLER,
    ``problems`` all other errors.
    """

    def __init__(self, port: int, cluster_id: str, node_pid: int | None = None) -> None:
        """``node_pid``: the process of the node; without it its waits count, too."""
        self._node_pid = node_pid
        self._socket = socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._responses = self._socket.makefile("rb")
        self._epoch = self._register(cluster_id)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._standstills = Standstills()
        self.longest_s = 0.0
        self.count = 0
        self.without_leader = 0
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        eventually(lambda: self._beat().error_code == 0)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._socket.close()

    @property
    def longest_stall_s(self) -> float:
        return self._standstills.longest_s

    @property
    def is_unfenced(self) -> bool:
        """Whether the controller knows the broker as alive; call it after the thread's end."""
        response = self._beat()
        return response.error_code == 0 and not response.is_fenced

    def finish(self) -> None:
        """End the heartbeats; the connection stays open."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._standstills:
            self._beat_all_the_time()

    def _beat_all_the_time(self) -> None:
        try:
            while not self._is_over.wait(_PAUSE_S):
                began, waited_s = time.monotonic(), self._waited_s()
                response = self._beat()
                waited_s = self._waited_s() - waited_s
                self.longest_s = max(self.longest_s, time.monotonic() - began - waited_s)
                self.count += 1
                if response.error_code == NOT_CONTROLLER:
                    self.without_leader += 1
                elif response.error_code or response.is_fenced:
                    self.problems.append(repr(response))
        except OSError as error:
            self.problems.append(repr(error))

    def _waited_s(self) -> float:
        """Return for how long the node's event loop has waited for a processor so far."""
        path = Path(f"/proc/{self._node_pid}/schedstat")
        return int(path.read_text().split()[1]) / 1e9 if path.exists() else 0.0

    def _register(self, cluster_id: str) -> int:
        request = BrokerRegistrationRequestData(
            BROKER,
            cluster_id,
            random_uuid(),
            [AdvertisedListener("PLAINTEXT", LOOPBACK, 9092, 0)],
            [SupportedFeatureRange(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            log_dirs=[random_uuid()],
        )
        body = self._ask(BROKER_REGISTRATION, 4, request.encode(4))
        response = BrokerRegistrationResponseData.decode(body, 4)
        assert response.error_code == 0, response
        return response.broker_epoch

    def _beat(self) -> BrokerHeartbeatResponseData:
        request = BrokerHeartbeatRequestData(BROKER, self._epoch, _CAUGHT_UP)
        body = self._ask(BROKER_HEARTBEAT, 1, request.encode(1))
        return BrokerHeartbeatResponseData.decode(body, 1)

    def _ask(self, api: Api, version: int, body: bytes) -> bytes:
        self._socket.sendall(request_frame(api, version, 1, "broker", body))
        size = int.from_bytes(self._responses.read(4), "big")
        frame = self._responses.read(size)
        if not frame:
            raise ConnectionResetError("the controller closed the connection")
        return frame[read_response_header(frame, api, version)[1] :]
