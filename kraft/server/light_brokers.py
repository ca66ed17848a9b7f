"""Light brokers: registrations and heartbeats without real brokers (``kraft up --light-brokers``).

A quorum creates topics only on registered, unfenced brokers. Light brokers register and send
heartbeats over the network, as Kafka's brokers do. They have no listener, store no record and serve
no client; nothing listens at the endpoint that they register. So every partition keeps its leader
and ISR until its brokers are fenced.

Several threads send the requests, each through its own client for a share of the brokers. The
response to a registration comes after its commit, and one connection would wait for one commit
after the other.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kraft.errors import (
    BROKER_ID_NOT_REGISTERED,
    DUPLICATE_BROKER_REGISTRATION,
    NONE,
    STALE_BROKER_EPOCH,
    KraftError,
)
from kraft.network.controller_connection import Address
from kraft.network.quorum_client import QuorumClient, QuorumRefusedError
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
from kraft.records import Uuid
from kraft.records.versions import SUPPORTED_FEATURES
from kraft.server.local_quorum import FIRST_BROKER_ID

RACKS = ("rack-a", "rack-b", "rack-c")
#: Kafka's default of broker.heartbeat.interval.ms; a session lasts 9 s.
_HEARTBEAT_INTERVAL_S = 2.0
_REQUEST_TIMEOUT_S = 5.0
_THREADS = 16
_PORT = 9092


@dataclass(slots=True)
class _LightBroker:
    id: int
    incarnation_id: Uuid
    log_dir: Uuid
    #: -1: not registered.
    epoch: int = -1
    is_unfenced: bool = False


class LightBrokers:
    """``count`` light brokers of a quorum with the ids from `FIRST_BROKER_ID` on.

    Their incarnation ids and directory ids derive from the broker ids. A quorum that is started
    again therefore recognises them, and they register without waiting until old sessions expire.
    """

    def __init__(self, controllers: Sequence[Address], cluster_id: str, count: int) -> None:
        self._controllers = tuple(controllers)
        self._cluster_id = cluster_id
        self._brokers = [
            _LightBroker(id, self._uuid(id, "incarnation"), self._uuid(id, "directory"))
            for id in range(FIRST_BROKER_ID, FIRST_BROKER_ID + count)
        ]
        self._stopping = threading.Event()
        #: The last failure of a request; "" where the last request succeeded.
        self._failure = ""

    def start(self) -> None:
        """Begin to register; return at once."""
        for share in range(min(_THREADS, len(self._brokers))):
            brokers = self._brokers[share::_THREADS]
            # The threads end with the process even inside of a request.
            threading.Thread(target=self._keep_alive, args=(brokers,), daemon=True).start()

    def stop(self) -> None:
        """Send no further heartbeats; the quorum fences the brokers when their sessions end."""
        self._stopping.set()

    @property
    def unfenced_count(self) -> int:
        """The number of brokers that the active controller has unfenced."""
        return sum(broker.is_unfenced for broker in self._brokers)

    @property
    def failure(self) -> str:
        """Why the last request failed; empty where it did not."""
        return self._failure

    def _uuid(self, id: int, use: str) -> Uuid:
        return Uuid(hashlib.sha256(f"{self._cluster_id}/{id}/{use}".encode()).digest()[:16])

    def _keep_alive(self, brokers: Sequence[_LightBroker]) -> None:
        with QuorumClient(
            self._controllers, timeout_s=_REQUEST_TIMEOUT_S, client_id="kraft-light-brokers"
        ) as client:
            while not self._stopping.is_set():
                began = time.monotonic()
                failure = ""
                for broker in brokers:
                    if self._stopping.is_set():
                        return
                    try:
                        self._send(client, broker)
                    except (KraftError, OSError) as error:
                        failure = str(error)
                        if not isinstance(error, QuorumRefusedError):
                            # There is no leader: the next round finds one.
                            break
                self._failure = failure
                passed_s = time.monotonic() - began
                self._stopping.wait(max(_HEARTBEAT_INTERVAL_S - passed_s, 0.1))

    def _send(self, client: QuorumClient, broker: _LightBroker) -> None:
        """Register the broker if need be, and send its heartbeat."""
        if broker.epoch < 0:
            self._register(client, broker)
        # A broker is unfenced once it has the record of its registration.
        beat = BrokerHeartbeatRequestData(broker.id, broker.epoch, broker.epoch)
        beaten = client.call(
            BROKER_HEARTBEAT, beat, BrokerHeartbeatResponseData, lambda each: each.error_code
        ).response
        if beaten.error_code in (STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED):
            broker.epoch = -1
        if beaten.error_code != NONE:
            broker.is_unfenced = False
            raise QuorumRefusedError(beaten.error_code, f"heartbeat of broker {broker.id}", None)
        broker.is_unfenced = not beaten.is_fenced

    def _register(self, client: QuorumClient, broker: _LightBroker) -> None:
        request = BrokerRegistrationRequestData(
            broker.id,
            self._cluster_id,
            broker.incarnation_id,
            [AdvertisedListener("PLAINTEXT", "127.0.0.1", _PORT, 0)],
            [SupportedFeatureRange(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            RACKS[broker.id % len(RACKS)],
            log_dirs=[broker.log_dir],
        )
        registered = client.call(
            BROKER_REGISTRATION,
            request,
            BrokerRegistrationResponseData,
            lambda each: each.error_code,
        ).response
        if registered.error_code != NONE:
            asked = f"registering broker {broker.id}"
            hint = None
            if registered.error_code == DUPLICATE_BROKER_REGISTRATION:
                hint = "another process has registered this id"
            raise QuorumRefusedError(registered.error_code, asked, hint)
        broker.epoch = registered.broker_epoch
