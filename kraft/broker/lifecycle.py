"""The life of a broker: registered, fenced, in service, leaving; seen by the active controller.

`LifecycleState` decides which request is due and what a response means; it is pure.
`BrokerLifecycle` sends the requests over a `ControllerChannel`, one at a time.

    STARTING   registers, then sends heartbeats until its metadata contain its registration
    RECOVERY   the broker loads its partitions; then it asks to be unfenced
    RUNNING    unfenced: clients are sent to it
    PENDING_CONTROLLED_SHUTDOWN   the controller moves its leaders
    SHUTTING_DOWN   no more heartbeats

A heartbeat goes out at once when it could change something, else after
broker.heartbeat.interval.ms. The states have Kafka's numbers (the metric BrokerState).
Source: Kafka's ``BrokerLifecycleManager`` (4.3.1), KIP-631, KIP-858, KIP-966.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum

from kraft.broker.controller_channel import ControllerChannel
from kraft.errors import NONE, KraftError, RequestTimedOutError, error_name
from kraft.image.publishing import Image, ImageDelta
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
from kraft.records import Uuid
from kraft.server.driver import now_ms

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_MS = 100.0
#: The second request of a controlled shutdown: one that moves few leaders is over soon. Kafka's.
_SHUTDOWN_RETRY_MS = 50.0
#: From the response that says that the broker has caught up to the next heartbeat. Kafka's.
_CAUGHT_UP_WAIT_MS = 10.0
_NEVER = float("inf")


class BrokerState(IntEnum):
    """Kafka's BrokerState."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class LifecycleState:
    """What a broker has told the active controller, and what it has to tell next.

    The applied metadata end at ``offset`` (exclusive). ``is_loaded``: the partitions that the
    metadata name are open, and the broker may be unfenced.
    """

    def __init__(self, heartbeat_interval_ms: float) -> None:
        self._interval_ms = heartbeat_interval_ms
        self.state = BrokerState.STARTING
        #: The epoch of the registration; -1 before.
        self.epoch = -1
        self.offset = 0
        self.is_loaded = False
        #: Failed log directories, in the order of their failure.
        self.offline: list[Uuid] = []
        #: The directories that take no new partitions (KIP-1066), often none; None: controllers
        #: before 4.3 do not know the field.
        self.cordoned: list[Uuid] | None = None
        self._failures = 0
        self._has_asked_to_stop = False
        self._due_ms = 0.0

    @property
    def is_caught_up(self) -> bool:
        """Whether the applied metadata contain the registration."""
        return 0 <= self.epoch < self.offset

    @property
    def due_ms(self) -> float:
        """When the next request is due; infinity if none is."""
        is_over = self.state in (BrokerState.SHUTTING_DOWN, BrokerState.NOT_RUNNING)
        return _NEVER if is_over else self._due_ms

    def heartbeat(self, broker_id: int) -> BrokerHeartbeatRequestData:
        """Return the heartbeat that is due now.

        As Kafka's, a broker names its cordoned directories, also if there are none, once the
        controller has answered that it has applied its registration: the records of a
        registration would be others otherwise.
        """
        return BrokerHeartbeatRequestData(
            broker_id,
            self.epoch,
            max(self.offset - 1, 0),
            not self.is_loaded,
            self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            list(self.offline),
            None if self.state is BrokerState.STARTING else self.cordoned,
        )

    def sent(self) -> None:
        """Note that a request was sent: what happens until its response makes another one due."""
        self._due_ms = _NEVER

    def registered(self, epoch: int) -> None:
        self.epoch = epoch
        self._failures = 0
        self._due_ms = 0.0

    def beaten(self, response: BrokerHeartbeatResponseData, now_ms: float) -> None:
        """Note the response to a heartbeat."""
        self._failures = 0
        wait_ms = self._interval_ms
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                self.state = BrokerState.SHUTTING_DOWN
            elif not self._has_asked_to_stop:
                self._has_asked_to_stop = True
                wait_ms = min(_SHUTDOWN_RETRY_MS, wait_ms)
        elif self.state is BrokerState.STARTING and response.is_caught_up:
            self.state = BrokerState.RECOVERY
            wait_ms = min(_CAUGHT_UP_WAIT_MS, wait_ms)
        if self.state is BrokerState.RECOVERY and not response.is_fenced:
            self.state = BrokerState.RUNNING
        self._due_ms = min(self._due_ms, now_ms + wait_ms)

    def failed(self, now_ms: float) -> None:
        """Note that a request has failed: the next one waits, at most for an interval."""
        wait_ms = min(_FIRST_BACKOFF_MS * 2.0 ** min(self._failures, 20), self._interval_ms)
        self._failures += 1
        self._due_ms = min(self._due_ms, now_ms + wait_ms)

    def applied(self, offset: int) -> None:
        """Note the end of the applied metadata; tell the controller when it waits for it."""
        was_caught_up = self.is_caught_up
        self.offset = max(self.offset, offset)
        if self.is_caught_up and not was_caught_up:
            self._due_ms = 0.0

    def loaded(self) -> None:
        """Ask to be unfenced from now on."""
        if not self.is_loaded:
            self.is_loaded = True
            self._due_ms = 0.0

    def directory_failed(self, directory: Uuid) -> None:
        """Tell the controller of a failed log directory (KIP-858)."""
        if directory not in self.offline:
            self.offline.append(directory)
            self._due_ms = 0.0

    def set_cordoned(self, directories: list[Uuid] | None) -> None:
        """Name other cordoned directories with the next heartbeat, at once if one names them."""
        if directories != self.cordoned:
            self.cordoned = directories
            if self.state is not BrokerState.STARTING:
                self._due_ms = 0.0

    def begin_controlled_shutdown(self) -> bool:
        """Ask the controller to move the leaders away; False if the broker is not in service."""
        if self.state not in (BrokerState.RUNNING, BrokerState.RECOVERY):
            self.state = BrokerState.SHUTTING_DOWN
            return False
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._due_ms = 0.0
        return True


class BrokerLifecycle:
    """Keeps one start of a broker registered; a publisher of images.

    ``registration`` is its request; its epochs and offsets come from the responses and the images.
    Register it after the publishers of the broker: a heartbeat promises that they have applied the
    metadata up to its offset. ``applied_offset`` returns how far the replicas have; call
    `note_applied` when that grows. A broker in controlled shutdown waits for the offsets of all
    others: they lead in its place.
    """

    name = "BrokerLifecycle"

    def __init__(
        self,
        registration: BrokerRegistrationRequestData,
        channel: ControllerChannel,
        *,
        heartbeat_interval_ms: float,
        registration_timeout_ms: float,
        applied_offset: Callable[[], int],
    ) -> None:
        self._registration = registration
        self._channel = channel
        self._registration_timeout_ms = registration_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._applied_offset = applied_offset
        self._published_offset = 0
        self._seen = BrokerState.STARTING
        self._changed = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: Why the last request failed; "" where it did not.
        self.last_failure = ""
        self.facts = LifecycleState(heartbeat_interval_ms)

    @property
    def state(self) -> BrokerState:
        return self.facts.state

    @property
    def epoch(self) -> int:
        """The broker epoch; -1 before the registration."""
        return self.facts.epoch

    async def register(self) -> int:
        """Register and return the broker epoch.

        Raises RequestTimedOutError after initial.broker.registration.timeout.ms.
        """
        deadline_ms = now_ms() + self._registration_timeout_ms
        facts, request = self.facts, self._registration
        while now_ms() < deadline_ms:
            try:
                response = await self._channel.call(
                    BROKER_REGISTRATION,
                    request,
                    BrokerRegistrationResponseData,
                    timeout_ms=deadline_ms - now_ms(),
                )
            except KraftError as error:
                self._note_failure("register", str(error))
            else:
                if response.error_code == NONE:
                    facts.registered(response.broker_epoch)
                    if facts.is_caught_up:
                        self._caught_up.set()
                    logger.info("registered broker %d in epoch %d", request.broker_id, facts.epoch)
                    return facts.epoch
                self._note_failure("register", error_name(response.error_code))
            facts.failed(now_ms())
            await asyncio.sleep((facts.due_ms - now_ms()) / 1000)
            facts.sent()
        raise RequestTimedOutError(
            f"broker {request.broker_id} could not register within "
            f"{self._registration_timeout_ms:.0f} ms (initial.broker.registration.timeout.ms): "
            f"{self.last_failure}"
        )

    def start(self) -> None:
        """Send heartbeats until `close`, or until the controller lets a stopping broker go."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Send no further heartbeats."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Note how far the broker has applied the metadata."""
        self._published_offset = image.offset
        self.note_applied()

    def note_applied(self) -> None:
        """Note how far the replicas have applied the metadata that all publishers have."""
        self.facts.applied(min(self._published_offset, self._applied_offset()))
        self._changed.set()
        if self.facts.is_caught_up:
            self._caught_up.set()

    async def caught_up(self) -> None:
        """Wait until the published metadata contain the registration."""
        await self._caught_up.wait()

    def loaded(self) -> None:
        """Ask to be unfenced: the broker can serve."""
        self.facts.loaded()
        self._changed.set()

    def directory_failed(self, directory: Uuid) -> None:
        """Tell the controller that a log directory has failed."""
        self.facts.directory_failed(directory)
        self._changed.set()

    def set_cordoned(self, directories: Sequence[Uuid] | None) -> None:
        """Tell the controller which log directories take no new partitions (KIP-1066).

        None: do not name them.
        """
        self.facts.set_cordoned(None if directories is None else list(directories))
        self._changed.set()

    async def leave(self, timeout_ms: float) -> bool:
        """Let the controller move the leaders away; return whether it did so in time."""
        if self._task is None or not self.facts.begin_controlled_shutdown():
            return False
        self._note_state()
        self._changed.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._task
                return True
        return False

    def _note_state(self) -> None:
        if self.facts.state is not self._seen:
            self._seen = self.facts.state
            logger.info("broker %d is %s", self._registration.broker_id, self._seen.name)

    def _note_failure(self, what: str, reason: str) -> None:
        if reason != self.last_failure:
            id = self._registration.broker_id
            logger.warning("broker %d cannot %s yet: %s", id, what, reason)
        self.last_failure = reason

    async def _run(self) -> None:
        facts = self.facts
        while facts.due_ms < _NEVER:
            self._changed.clear()
            wait_ms = facts.due_ms - now_ms()
            if wait_ms <= 0:
                await self._beat()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()

    async def _beat(self) -> None:
        facts, id = self.facts, self._registration.broker_id
        facts.sent()
        try:
            response = await self._channel.call(
                BROKER_HEARTBEAT,
                facts.heartbeat(id),
                BrokerHeartbeatResponseData,
                timeout_ms=2 * self._heartbeat_interval_ms,
            )
        except (KraftError, OSError) as error:
            self._note_failure("send a heartbeat", str(error))
            facts.failed(now_ms())
            return
        if response.error_code != NONE:
            self._note_failure("send a heartbeat", error_name(response.error_code))
            facts.failed(now_ms())
            return
        self.last_failure = ""
        facts.beaten(response, now_ms())
        self._note_state()
