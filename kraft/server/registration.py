"""Register this controller with the active controller (KIP-919).

The active controller reads from the registrations which features every controller supports, and
clients find the controllers through them. `RegistrationState` decides when a request is due; it is
pure. `ControllerRegistrar` sends the requests: to the controller of this process if this node
leads, otherwise to the leader on a separate connection.

- A registration names one start of a process by a random incarnation id. The node registers while
  the published image has no registration with this id.
- Kafka's waits: 100 ms after the first failure, doubled up to 2 minutes, and changed by up to 2 %.
- A change of the leader, of the metadata.version or of this node's registration ends the wait.

Called by ``process``. Source: Kafka's ``ControllerRegistrationManager`` (4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from kraft.controller.brokers.controller_registration import ControllerRegistrationRequest
from kraft.controller.runtime import requests
from kraft.errors import KraftError, error_name
from kraft.image import NodeEndpoint, VersionRange
from kraft.image.nodes import SECURITY_PROTOCOLS, ControllerRegistration
from kraft.image.publishing import Image, ImageDelta
from kraft.metadata.identifiers import random_uuid
from kraft.network.transport import Transport
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.controller_registration import (
    CONTROLLER_REGISTRATION,
    ControllerRegistrationRequestData,
    ControllerRegistrationResponseData,
)
from kraft.raft.voters import Endpoint
from kraft.records import Uuid
from kraft.records.versions import SUPPORTED_FEATURES, MetadataVersion
from kraft.server.config.loading import ServerConfig
from kraft.server.controller import ControllerRunner
from kraft.server.driver import now_ms

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_MS = 100.0
_MAX_BACKOFF_MS = 120_000.0
_JITTER = 0.02
_NEVER = float("inf")

#: The leader's id, and its endpoint unless this node leads; None without a known leader.
Leader = tuple[int, Endpoint | None] | None


class RegistrationState:
    """Whether this start of a controller is registered, and when the next request is due.

    ``random`` returns a number from 0 to 1.
    """

    def __init__(self, node_id: int, incarnation_id: Uuid, random: Callable[[], float]) -> None:
        self.node_id = node_id
        self.incarnation_id = incarnation_id
        self._random = random
        self._leader_id = -1
        self._metadata_version = 0
        self._registration: ControllerRegistration | None = None
        self._failures = 0
        #: Why the last request failed; "" where none did since the last success.
        self.last_failure = ""
        #: When the next request may be sent; infinity while one is sent, and after its success.
        self._due_ms = 0.0

    @property
    def is_registered(self) -> bool:
        registration = self._registration
        return registration is not None and registration.incarnation_id == self.incarnation_id

    @property
    def why_unregistered(self) -> str | None:
        """Return why this controller is not registered; None where it is or need not be."""
        if self.is_registered or self._metadata_version < MetadataVersion.IBP_3_7_IV0:
            return None
        why = f": {self.last_failure}" if self.last_failure else ""
        return f"controller {self.node_id} is not registered{why}"

    def leader_changed(self, leader_id: int) -> None:
        """Note the leader, -1 for none. A request to a new leader is due at once."""
        if leader_id != self._leader_id:
            self._leader_id, self._due_ms = leader_id, 0.0

    def image_published(self, image: Image) -> None:
        """Follow this node's registration and the metadata.version."""
        known = (self._metadata_version, self._registration)
        was_registered = self.is_registered
        self._metadata_version = image.state.metadata_version
        self._registration = image.state.controllers.get(self.node_id)
        if (self._metadata_version, self._registration) == known:
            return
        self._due_ms = 0.0
        if self.is_registered and not was_registered:
            logger.info("controller %d is registered", self.node_id)
        elif was_registered and not self.is_registered:
            logger.warning("the registration of controller %d was removed", self.node_id)

    def sent(self) -> None:
        """Note that a request was sent: until its response only an event makes another one due."""
        self._due_ms = _NEVER

    def acknowledged(self) -> None:
        """Note that the leader committed the registration; a later image will contain it."""
        self._failures = 0
        self.last_failure = ""

    def failed(self, now_ms: float, why: str = "") -> None:
        """Wait longer than after the previous failure, unless an event came in the meantime."""
        backoff_ms = min(_FIRST_BACKOFF_MS * 2.0 ** min(self._failures, 60), _MAX_BACKOFF_MS)
        self._failures += 1
        self.last_failure = why
        if self._due_ms == _NEVER:
            self._due_ms = now_ms + backoff_ms * (1 + _JITTER * (2 * self._random() - 1))

    @property
    def due_ms(self) -> float:
        """Return when a request is due; infinity if none is due before the next event."""
        is_supported = self._metadata_version >= MetadataVersion.IBP_3_7_IV0
        if self.is_registered or not is_supported or self._leader_id < 0:
            return _NEVER
        return self._due_ms


def registration_request(
    config: ServerConfig, endpoints: Sequence[Endpoint]
) -> ControllerRegistrationRequest:
    """Return the registration of one start of a controller, with a new incarnation id.

    ``endpoints`` are the advertised controller listeners, with the bound ports, in their order.
    """
    listeners = zip(endpoints, config.advertised_controller_listeners, strict=True)
    return ControllerRegistrationRequest(
        config.node_id,
        random_uuid(),
        [
            NodeEndpoint(*endpoint, SECURITY_PROTOCOLS.index(listener.security_protocol))
            for endpoint, listener in listeners
        ],
        {name: VersionRange(*levels) for name, levels in SUPPORTED_FEATURES.items()},
    )


class ControllerRegistrar:
    """Keeps a controller registered; a publisher of images.

    ``request`` is its registration, ``leader`` returns the present leader. Call `start` on the
    event loop, and `leader_changed` when the leader changed.
    """

    name = "ControllerRegistrar"

    def __init__(
        self,
        request: ControllerRegistrationRequest,
        runner: ControllerRunner,
        transport: Transport,
        leader: Callable[[], Leader],
    ) -> None:
        self._state = RegistrationState(
            request.controller_id, request.incarnation_id, random.random
        )
        self._request = request
        self._runner = runner
        self._transport = transport
        self._leader = leader
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow the images, and register where needed, until `close`."""
        self._runner.publishing.images.register(self)
        self.leader_changed()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def why_unregistered(self) -> str | None:
        """Return why this controller is not registered; None where it is or need not be."""
        return self._state.why_unregistered

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def leader_changed(self) -> None:
        leader = self._leader()
        self._state.leader_changed(-1 if leader is None else leader[0])
        self._changed.set()

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Follow a published image."""
        self._state.image_published(image)
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            wait_ms = self._state.due_ms - now_ms()
            if wait_ms <= 0:
                await self._attempt()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000 if wait_ms < _NEVER else None):
                    await self._changed.wait()

    async def _attempt(self) -> None:
        """Send one request; after a failure the next one waits."""
        self._state.sent()
        try:
            await self._register()
        except (KraftError, OSError) as error:
            logger.info(
                "controller %d is not registered yet: %s", self._request.controller_id, error
            )
            self._state.failed(now_ms(), str(error))
        else:
            self._state.acknowledged()

    async def _register(self) -> None:
        leader = self._leader()
        assert leader is not None, "without a leader nothing is due"
        id, endpoint = leader
        if id == self._request.controller_id:
            await self._runner.submit(requests.register_controller(self._request))
        elif endpoint is None:
            raise ConnectionError(f"the address of leader {id} is not known")
        else:
            response = await self._transport.call(
                endpoint,
                CONTROLLER_REGISTRATION,
                _message(self._request),
                ControllerRegistrationResponseData,
            )
            if response.error_code:
                raise KraftError(
                    f"leader {id} answered {error_name(response.error_code)} "
                    f"({response.error_message})"
                )


def _message(request: ControllerRegistrationRequest) -> ControllerRegistrationRequestData:
    return ControllerRegistrationRequestData(
        request.controller_id,
        request.incarnation_id,
        request.zk_migration_ready,
        [AdvertisedListener(*endpoint) for endpoint in request.endpoints],
        [SupportedFeatureRange(name, *levels) for name, levels in request.features.items()],
    )
